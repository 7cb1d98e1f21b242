//! A live server held against its own past, from a real Prometheus that has a week of it: what `candlescope gate --prometheus` reads
//! and judges.

use candlescope_compare::{
    CompareOptions, LEAST_VALUES, Outcome, ServerWindows, Window, WindowedFigure, WindowsComparison, compare_windows,
};
use candlescope_monitor::{EarlierWindows, FigureWindows, PrometheusError, SpanValues, WindowOptions, read_windows};
use candlescope_testkit::services::Prometheus;
use std::fmt::Write as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const DAY_S: i64 = 86_400;
/// Seconds between scrapes.
const SCRAPE_S: i64 = 30;

/// Numbers from 0 to 1 that look random and are the same each time.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A factor about 1, with this standard deviation.
    fn factor(&mut self, deviation: f64) -> f64 {
        1.0 + deviation * ((0..12).map(|_| self.next()).sum::<f64>() - 6.0)
    }
}

/// What a server writes, by series.
struct Server {
    job: &'static str,
    noise: Noise,
    series: std::collections::BTreeMap<String, String>,
}

impl Server {
    fn new(job: &'static str, seed: u64) -> Self {
        Self { job, noise: Noise(seed), series: std::collections::BTreeMap::new() }
    }

    fn sample(&mut self, metric: &str, labels: &str, value: f64, at: i64) {
        let labels = format!("{{job=\"{}\",instance=\"{}:9464\"{labels}}}", self.job, self.job);
        let name = format!("{metric}{labels}");
        let _ = writeln!(self.series.entry(name.clone()).or_default(), "{name} {value} {at}");
    }

    /// A stretch of time in which it is scraped, slower by this factor than usual. Counters begin anew, as they do after a start.
    fn serves(&mut self, from: i64, to: i64, run: &str, slower: f64) {
        let level = slower * self.noise.factor(0.02);
        let mut counters = [0.0; 10];
        for at in (from..=to).step_by(SCRAPE_S as usize) {
            let requests = 60.0 * self.noise.factor(0.1);
            let tokens = 100.0 * requests;
            let took = |seconds: f64, noise: &mut Noise| seconds * level * noise.factor(0.03);
            // More of a step is in attention the slower it is.
            let step = took(0.02, &mut self.noise);
            let more = [
                requests * took(0.2, &mut self.noise),
                requests,
                requests * took(0.02, &mut self.noise),
                tokens,
                tokens * step,
                tokens * (step - 0.012 * self.noise.factor(0.01)),
                300.0 * requests,
                tokens * took(2.0, &mut self.noise),
                0.0,
                0.0,
            ];
            counters.iter_mut().zip(more).for_each(|(counter, more)| *counter += more);
            let [ttft, requests, tpot, tokens, itl, attention, input, energy, ..] = counters;
            let (a, b) = ("gen_ai_server_time_to_first_token_seconds", "gen_ai_server_time_per_output_token_seconds");
            let (c, d) = ("candlescope_inter_token_latency_seconds", "candlescope_span_duration_seconds");
            let model = ",gen_ai_request_model=\"m\"";
            let of_path = |path: &str| format!(",clock=\"host\",path=\"{path}\"");
            for (metric, labels, value) in [
                (format!("{a}_sum"), model.to_string(), ttft),
                (format!("{a}_count"), model.to_string(), requests),
                (format!("{b}_sum"), model.to_string(), tpot),
                (format!("{b}_count"), model.to_string(), requests),
                (format!("{c}_sum"), String::new(), itl),
                (format!("{c}_count"), String::new(), tokens),
                (format!("{d}_sum"), of_path("decode"), itl),
                (format!("{d}_sum"), of_path("decode/attn"), attention),
                ("gen_ai_server_request_duration_seconds_count".into(), model.to_string(), requests),
                ("candlescope_tokens_total".into(), ",type=\"output\"".into(), tokens),
                ("candlescope_tokens_total".into(), ",type=\"input\"".into(), input),
                ("candlescope_tokens_per_second".into(), ",phase=\"decode\"".into(), 1.0 / step),
                ("hw_energy_joules_total".into(), ",hw_id=\"GPU-1\"".into(), energy),
                ("candlescope_run_info".into(), format!(",run_id=\"{run}\""), 1.0),
            ] {
                self.sample(&metric, &labels, value, at);
            }
        }
    }

    fn text(self) -> String {
        self.series.into_values().collect::<String>() + "# EOF\n"
    }
}

fn judged(options: WindowOptions, now_s: i64) -> Result<WindowsComparison, PrometheusError> {
    let reading = read_windows(&options, now_s, LEAST_VALUES)?;
    let window = |of: &SpanValues| Window { from_ns: of.from_s * 1_000_000_000, values: of.values.clone() };
    let windowed = |of: &FigureWindows| WindowedFigure {
        name: of.name.clone(),
        before: of.before.iter().map(window).collect(),
        now: window(&of.now),
    };
    let all = |figures: &[FigureWindows]| figures.iter().map(windowed).collect();
    let server =
        ServerWindows { figures: all(&reading.figures), traffic: all(&reading.traffic), layers: all(&reading.layers) };
    Ok(compare_windows(&server, false, &CompareOptions::default().margin(0.1)))
}

#[test]
fn a_server_that_became_slower_is_told_from_one_that_did_not() {
    let now = i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs()).expect("fits");
    let now = now - 60;
    let (mut steady, mut slower, mut deployed) =
        (Server::new("steady", 1), Server::new("slower", 2), Server::new("deployed", 3));
    for days in (0..=7).rev() {
        let end = now - days * DAY_S;
        steady.serves(end - 2100, end, "run", 1.0);
        slower.serves(end - 2100, end, "run", if days == 0 { 1.3 } else { 1.0 });
    }
    let start = now - 2400;
    // Windows of ten minutes, each of which differs a little from the next one.
    deployed.serves(start - 6600, start - 6000 - SCRAPE_S, "before", 1.0);
    for window in (1..=10).rev() {
        deployed.serves(start - window * 600, start - (window - 1) * 600 - SCRAPE_S, "before", 1.0);
    }
    deployed.serves(start, now, "after", 1.3);
    let texts = [steady, slower, deployed].map(Server::text);
    let prometheus = Prometheus::start_of(&texts.each_ref().map(String::as_str));
    let url = format!("http://{}", prometheus.address);
    let of = |job: &str| WindowOptions::new(url.as_str()).select(format!("job=\"{job}\"")).windows(7);

    let found = judged(of("steady"), now).expect("windows");
    assert_eq!((found.figures.len(), found.too_few.len(), found.traffic.len()), (5, 0, 3), "{found:?}");
    assert!(found.figures.iter().all(|figure| figure.windows == 7 && figure.withheld.is_none()), "{found:?}");
    assert!(matches!(found.outcome, Outcome::Equivalent | Outcome::Undecided) && found.layers.is_empty(), "{found:?}");
    let value =
        |name: &str| found.figures.iter().find(|figure| figure.change.name == name).expect("the figure").change.a;
    for (name, expected) in
        [("ttft_ns", 2e8), ("tpot_ns", 2e7), ("itl_ns", 2e7), ("working_tps", 50.0), ("energy_per_token_j", 2.0)]
    {
        assert!((value(name) / expected - 1.0).abs() < 0.05, "{name} is {}, not {expected}", value(name));
    }

    let found = judged(of("slower"), now).expect("windows");
    assert_eq!(found.outcome, Outcome::Worse, "{found:?}");
    let worse: Vec<&str> = found
        .figures
        .iter()
        .filter(|f| f.change.outcome == Some(Outcome::Worse))
        .map(|f| f.change.name.as_str())
        .collect();
    assert!(worse.len() >= 4, "{worse:?} of {found:?}");
    let layers: Vec<&str> = found.layers.iter().map(|layer| layer.path.as_str()).collect();
    assert_eq!((layers, found.layers_tested), (vec!["decode/attn"], 1), "{found:?}");

    let since = of("deployed").last(Duration::from_secs(600)).against(EarlierWindows::LastStart);
    let reading = read_windows(&since, now, LEAST_VALUES).expect("windows");
    // Starts are looked for once a minute.
    let seen = reading.plan.started_s.expect("a start");
    assert!((start..=start + 60).contains(&seen), "{seen}, not {start}");
    assert_eq!(judged(since, now).expect("windows").outcome, Outcome::Worse);

    let error = judged(of("nobody"), now).expect_err("no such server").to_string();
    assert!(error.contains("candlescope_run_info{job=\"nobody\"}"), "{error}");
    let error = judged(WindowOptions::new(url.as_str()).select("job=steady"), now).expect_err("no matcher").to_string();
    assert!(error.contains("refuses a query") && error.contains("--select"), "{error}");
    let error = judged(of("steady").against(EarlierWindows::LastStart), now).expect_err("one run").to_string();
    assert!(error.contains("no start of"), "{error}");
}
