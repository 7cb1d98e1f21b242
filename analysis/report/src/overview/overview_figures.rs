//! The figures of an overview: the headline figures, then those of steps, of peaks, and of recording.

use super::super::headline_figures::{FigureValue, figures};
use super::overview_parts::OverviewFigure;
use super::short_text::{name, six_digits};
use candlescope_figures::definitions::definition;
use candlescope_figures::gpu_time::source_name;
use candlescope_figures::peaks::{Metric, TimeBase, Utilisation, utilisation};
use candlescope_figures::{Analysis, Distribution, kv_bytes_of_a_token};
use candlescope_schema::metric;

/// Kinds of steps that have figures of their own, those with the most time.
const MOST_KINDS: usize = 3;

/// Keys in the order in which they stand: where there is no room, the last ones are left out.
const ORDER: [&str; 24] = [
    "ttft",
    "tpot",
    "decode_tps",
    "output_tps",
    "step_host",
    "step_device",
    "step_launches",
    "mbu",
    "mfu",
    "gpu_busy",
    "launch_bound",
    "energy_per_token",
    "usd_per_million_output_tokens",
    "peak_memory",
    "overhead",
    "records_lost",
    "prefill_tps",
    "itl",
    "e2e",
    "power",
    "gpu_memory",
    "kv_per_token",
    "net_energy_per_token",
    "queue",
];

/// What is known, the most important first.
pub(super) fn all(analysis: &Analysis) -> Vec<OverviewFigure> {
    let headline = figures(analysis).into_iter().map(|figure| {
        let d = figure.definition;
        let one = match figure.value {
            FigureValue::Spread(distribution) => of_spread(d.key, d.unit, d.label, distribution),
            FigureValue::Single(value, n) => single(d.key, d.unit, d.label, value, n as u64),
        };
        OverviewFigure { source: figure.remark.map(str::to_string), ..one }
    });
    let mut all: Vec<OverviewFigure> = headline.collect();
    all.extend(steps(analysis));
    all.extend(peaks(analysis));
    all.extend(memory(analysis));
    all.extend(recording(analysis));
    all.retain(|figure| figure.value.is_finite());
    all.sort_by_key(|figure| ORDER.iter().position(|key| *key == figure.key).unwrap_or(ORDER.len()));
    all
}

fn single(key: &'static str, unit: &'static str, kind: &'static str, value: f64, n: u64) -> OverviewFigure {
    let value = six_digits(value);
    OverviewFigure { key, of: None, value, unit, kind, n, low: None, high: None, interval: None, source: None }
}

fn of_spread(key: &'static str, unit: &'static str, kind: &'static str, d: &Distribution) -> OverviewFigure {
    let ci95 = d.median_ci95.map(|(low, high)| (low, high, "ci95"));
    let interval = ci95.or_else(|| d.range.map(|range| (range.low, range.high, range.of.as_str())));
    OverviewFigure {
        low: interval.map(|(low, ..)| six_digits(low)),
        high: interval.map(|(_, high, _)| six_digits(high)),
        interval: interval.map(|(.., of)| of),
        ..single(key, unit, kind, d.median, d.n as u64)
    }
}

/// Steps on the host and on the device, and kernels that one launches.
fn steps(analysis: &Analysis) -> Vec<OverviewFigure> {
    let mut rows: Vec<_> = analysis.phases.rows.iter().filter(|row| row.duration.is_some()).collect();
    rows.sort_by_key(|row| std::cmp::Reverse((row.is_phase, row.total_ns)));
    let mut found = Vec::new();
    for row in rows.into_iter().take(MOST_KINDS) {
        let of = Some(name(&row.name));
        let host = row.duration.as_ref().map(|d| of_spread("step_host", "ns", "measured", d));
        found.extend(host.map(|figure| OverviewFigure { of: of.clone(), ..figure }));
        let kind = analysis.gpu.kinds.iter().find(|kind| kind.name == row.name && kind.is_phase == row.is_phase);
        let source = row.gpu.map(|gpu| gpu.source);
        let elapsed = kind.and_then(|kind| kind.elapsed.iter().find(|elapsed| Some(elapsed.source) == source));
        let device =
            elapsed.and_then(|e| Some((of_spread("step_device", "ns", "measured", e.duration.as_ref()?), e.source)));
        found.extend(device.map(|(figure, source)| OverviewFigure {
            of: of.clone(),
            source: Some(source_name(source).to_string()),
            ..figure
        }));
        let busy = kind.and_then(|kind| kind.busy.as_ref());
        let launches = busy.and_then(|busy| Some((busy.launches_per_step()?, busy.steps)));
        found.extend(launches.map(|(launches, steps)| OverviewFigure {
            of,
            ..single("step_launches", "count", "measured", launches, steps)
        }));
    }
    found
}

/// MFU of prefill and MBU of decode against each peak: over GPU time where that is known, else over time on the host.
fn peaks(analysis: &Analysis) -> Vec<OverviewFigure> {
    let rows = || analysis.phases.rows.iter().filter(|row| row.is_phase);
    let figure = |used: Utilisation| {
        let key = match (used.phase.as_str(), used.metric) {
            ("prefill", Metric::Mfu) => "mfu",
            ("decode", Metric::Mbu) => "mbu",
            _ => return None,
        };
        let row = rows().find(|row| row.name == used.phase)?;
        let over = row.gpu.map_or(TimeBase::Wall, |gpu| TimeBase::Gpu(gpu.source));
        let half = used.error.map(|error| used.ratio * error);
        (used.over == over).then(|| OverviewFigure {
            of: Some(used.phase.clone()),
            low: half.map(|half| six_digits(used.ratio - half)),
            high: half.map(|half| six_digits(used.ratio + half)),
            interval: half.map(|_| "ci95"),
            source: Some(format!("over {}; peak: {}", used.over.name(), name(&used.peak.label))),
            ..single(key, "ratio", definition(key).label, used.ratio, row.gpu.map_or(row.steps, |gpu| gpu.steps))
        })
    };
    utilisation(analysis).into_iter().filter_map(figure).collect()
}

/// Memory of GPUs, and of the KV cache.
fn memory(analysis: &Analysis) -> Vec<OverviewFigure> {
    let series = analysis.memory.series.iter().filter(|series| series.metric == metric::GPU_MEMORY_USED);
    let used = series.filter(|series| analysis.may_have_run_on(&series.device)).map(|series| OverviewFigure {
        of: Some(name(&series.device)),
        source: Some("largest sample, of all programs".to_string()),
        ..single("gpu_memory", "bytes", "measured", series.max, series.n)
    });
    let kv = kv_bytes_of_a_token(&analysis.manifest.model);
    used.take(1).chain(kv.map(|bytes| single("kv_per_token", "bytes", "derived", bytes, 1))).collect()
}

/// What recording took, and what it lost.
fn recording(analysis: &Analysis) -> Vec<OverviewFigure> {
    let (overhead, loss) = (&analysis.manifest.overhead, &analysis.manifest.loss);
    let label = definition("overhead").label;
    let in_place = overhead.in_place.as_ref().filter(|in_place| in_place.n_plain > 0).map(|in_place| OverviewFigure {
        low: in_place.low.map(six_digits),
        high: in_place.high.map(six_digits),
        interval: in_place.low.and(in_place.high).map(|_| "ci95"),
        source: Some("measured in place".to_string()),
        ..single("overhead", "ratio", label, in_place.ratio, in_place.n_recorded)
    });
    let estimate = overhead.ratio.map(|ratio| OverviewFigure {
        source: Some("estimate of a warm loop; in place it is two to three times that".to_string()),
        ..single("overhead", "ratio", label, ratio, loss.emitted)
    });
    let lost =
        (loss.emitted > 0).then(|| single("records_lost", "count", "measured", loss.lost() as f64, loss.emitted));
    in_place.or(estimate).into_iter().chain(lost).collect()
}
