//! Figures of a server in windows of time.

use super::answer::Series;
use super::plan::{NoPlan, Plan, Span, shortest};
use super::prometheus::Prometheus;
use super::prometheus_error::PrometheusError;
use super::queries::{self, FIGURE, FIGURES, TRAFFIC};
use super::window_options::{EarlierWindows, WindowOptions};
use candlescope_core::RedactedUrl;
use std::collections::{BTreeMap, BTreeSet};

/// Days in which a start is looked for.
const DAYS: i64 = 7;
/// Seconds of a day.
const DAY_S: i64 = 86_400;
/// Scrapes that a part of a window needs for its rates.
const SCRAPES: i64 = 4;

/// What a figure was in a window.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SpanValues {
    /// When the window began, seconds since 1970.
    pub from_s: i64,
    /// Values of its parts, in order; those without any are left out.
    pub values: Vec<f64>,
}

/// A figure in all windows.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FigureWindows {
    /// Its name, as comparisons have it; of layers their path.
    pub name: String,
    /// The windows before, in order of time.
    pub before: Vec<SpanValues>,
    /// The window that is judged.
    pub now: SpanValues,
}

/// All that is known of a server in windows.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ServerReading {
    /// Where it was read; shows no credentials.
    pub url: RedactedUrl,
    /// Which stretches of time were read: the window that is judged, and those before.
    pub plan: Plan,
    /// Figures that say how well it works.
    pub figures: Vec<FigureWindows>,
    /// What was asked of it.
    pub traffic: Vec<FigureWindows>,
    /// Shares of paths in their step on the host, a value a window.
    pub layers: Vec<FigureWindows>,
}

/// Reads a server's windows from Prometheus; `now_s` is the end of the last one. Parts of a window need `least` values.
///
/// # Errors
/// When Prometheus does not answer, knows no such server, or its last window has too few values.
pub fn read_windows(options: &WindowOptions, now_s: i64, least: usize) -> Result<ServerReading, PrometheusError> {
    let prometheus = Prometheus::new(options.url.clone(), options.key.clone(), options.timeout)?;
    let select = options.select.as_str();
    let runs = prometheus.at(&queries::runs(select), now_s)?;
    if runs.is_empty() {
        return Err(PrometheusError::NoSeries { url: prometheus.url(), select: queries::braces(select, "") });
    }
    let plan = plan(&prometheus, options, now_s)?;
    let read = |span: &Span| Ok((*span, values(&prometheus, select, *span, plan.every_s)?));
    let now = read(&plan.now)?;
    let known = |name: &&str| now.1.get(*name).is_some_and(|values| values.len() >= least);
    if !FIGURES.iter().any(known) {
        return Err(PrometheusError::TooFew {
            select: queries::programs(select),
            needed: least,
            parts: usize::try_from(plan.parts()).unwrap_or(0),
            every: plan.every_s,
            scrape: plan.every_s / SCRAPES,
        });
    }
    let before: Vec<(Span, Values)> = plan.before.iter().map(read).collect::<Result<_, PrometheusError>>()?;
    let figures = FIGURES.iter().map(|name| of(name, &before, &now)).collect();
    let traffic = TRAFFIC.iter().map(|name| of(name, &before, &now)).collect();
    let layers = layers(&prometheus, select, &plan)?;
    Ok(ServerReading { url: prometheus.url(), plan, figures, traffic, layers })
}

/// Values by figure.
type Values = BTreeMap<String, Vec<f64>>;

fn plan(prometheus: &Prometheus, options: &WindowOptions, now_s: i64) -> Result<Plan, PrometheusError> {
    let seconds = |time: std::time::Duration| i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
    let last = seconds(options.last);
    if last < shortest() {
        let least = shortest() / 60;
        return Err(PrometheusError::Windows(format!(
            "--last {last}s is too short for a window: give {least}m or more"
        )));
    }
    match options.against {
        EarlierWindows::Earlier(by) if seconds(by) < last => Err(PrometheusError::Windows(format!(
            "--against {}s is less than --last {last}s, so windows would overlap: give at least as much",
            seconds(by)
        ))),
        EarlierWindows::Earlier(by) => Ok(Plan::earlier(now_s, last, seconds(by), options.windows)),
        EarlierWindows::LastStart => {
            let starts = starts(prometheus, &options.select, now_s)?;
            let select = queries::programs(&options.select);
            Plan::since_start(now_s, last, &starts, now_s - DAYS * DAY_S, options.windows).map_err(|why| match why {
                NoPlan::NoStart => PrometheusError::NoStart { select, days: DAYS },
                NoPlan::TooSoon { ago, needed } => PrometheusError::TooSoon { select, ago, needed },
                NoPlan::NothingBefore { window } => PrometheusError::NothingBefore { select, window },
            })
        }
    }
}

/// When runs were seen first. What was there at the beginning, or when the first samples were kept, started before.
fn starts(prometheus: &Prometheus, select: &str, now_s: i64) -> Result<Vec<i64>, PrometheusError> {
    let seen = prometheus.at(&queries::starts(select, DAYS * DAY_S), now_s)?;
    let first: BTreeSet<i64> = seen.iter().flat_map(|series| &series.samples).map(|(_, at)| *at as i64).collect();
    let earliest = first.first().copied().unwrap_or(now_s);
    Ok(first.into_iter().filter(|at| *at > earliest).collect())
}

fn values(prometheus: &Prometheus, select: &str, span: Span, every_s: i64) -> Result<Values, PrometheusError> {
    let found = prometheus.range(&queries::figures(select, every_s), span, every_s)?;
    let of = |series: Series| {
        let values = series.samples.into_iter().map(|(_, value)| value).collect();
        Some((series.labels.get(FIGURE)?.clone(), values))
    };
    Ok(found.into_iter().filter_map(of).collect())
}

fn of(name: &str, before: &[(Span, Values)], now: &(Span, Values)) -> FigureWindows {
    let window = |(span, values): &(Span, Values)| SpanValues {
        from_s: span.from_s,
        values: values.get(name).cloned().unwrap_or_default(),
    };
    FigureWindows { name: name.to_string(), before: before.iter().map(window).collect(), now: window(now) }
}

fn layers(prometheus: &Prometheus, select: &str, plan: &Plan) -> Result<Vec<FigureWindows>, PrometheusError> {
    let read = |span: &Span| -> Result<(Span, Values), PrometheusError> {
        let found = prometheus.at(&queries::layers(select, span.to_s - span.from_s), span.to_s)?;
        let of = |series: Series| Some((series.labels.get("path")?.clone(), vec![series.samples.first()?.1]));
        Ok((*span, found.into_iter().filter_map(of).collect()))
    };
    let now = read(&plan.now)?;
    let before: Vec<(Span, Values)> = plan.before.iter().map(read).collect::<Result<_, _>>()?;
    // A step's share of itself is 1.
    Ok(now.1.keys().filter(|path| path.contains('/')).map(|path| of(path, &before, &now)).collect())
}
