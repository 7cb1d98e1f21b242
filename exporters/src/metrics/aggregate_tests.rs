//! Aggregation compared with figures computed by hand.

use super::*;
use candlescope_core::run::{ExporterReport, LossCounts, RunManifest, StepCounts};
use candlescope_core::{ExporterQueue, GpuSource, GpuTime, PathInfo, RequestRecord, SampleRecord};
use candlescope_testkit::records;
use candlescope_testkit::with;
use prometheus::{Encoder, TextEncoder};
use serde_json::json;
use std::collections::BTreeMap;

pub(super) const MS: u64 = 1_000_000;

pub(super) fn text(aggregate: &Aggregate) -> String {
    let mut out = Vec::new();
    TextEncoder::new().encode(&super::super::gather(&aggregate.registry()), &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

/// The value of one series by its name in the text format.
pub(super) fn value(aggregate: &Aggregate, series: &str) -> Option<f64> {
    text(aggregate).lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok())
}

fn path(rollup_id: u32, rollup: &str) -> Arc<PathInfo> {
    Arc::new(with(PathInfo::new(rollup_id, format!("{rollup}[0]"), "x", "t"), |r| {
        (r.rollup, r.rollup_id) = (rollup.into(), rollup_id)
    }))
}

pub(super) fn span(rollup_id: u32, rollup: &str, host_ns: u64, gpu_ns: Option<u64>) -> SpanRecord {
    with(records::span(1, None, rollup, 0, host_ns), |r| {
        r.path = path(rollup_id, rollup);
        r.host_start = HostNs(0);
        r.gpu = gpu_ns.map(|dur_ns| GpuTime { start: HostNs(0), dur_ns, source: GpuSource::Event });
    })
}

/// A step of request `request` from `start_ms` to `end_ms` after the epoch.
pub(super) fn step(phase: Option<Phase>, request: Option<u64>, start_ms: u64, end_ms: u64) -> StepRecord {
    let host_start = HostNs((start_ms * MS) as i64);
    with(records::step(0, "step", 0, (end_ms - start_ms) * MS), |r| {
        (r.phase, r.request, r.host_start, r.seq) = (phase, request, host_start, 1)
    })
}

pub(super) fn request(
    number: u64,
    model: &str,
    dur_ms: u64,
    ttft_ms: Option<u64>,
    output: Option<u64>,
) -> RequestRecord {
    with(records::request(number, 0, dur_ms * MS), |r| {
        r.model = model.into();
        r.host_start = HostNs(0);
        r.ttft_ns = ttft_ms.map(|ms| ms * MS);
        r.prompt_tokens = Some(7);
        r.output_tokens = output;
    })
}

pub(super) fn aggregate(max_paths: usize) -> Aggregate {
    Aggregate::new(max_paths).unwrap()
}

pub(super) fn spans(spans: Vec<SpanRecord>) -> Batch {
    let mut batch = Batch::default();
    batch.spans = spans;
    batch
}

pub(super) fn steps(steps: Vec<StepRecord>) -> Batch {
    let mut batch = Batch::default();
    batch.steps = steps;
    batch
}

fn requests(requests: Vec<RequestRecord>) -> Batch {
    let mut batch = Batch::default();
    batch.requests = requests;
    batch
}

#[test]
fn durations_fall_into_the_buckets_that_they_should() {
    let mut a = aggregate(10);
    // 1 µs is in the bucket up to 1 µs, 1.001 µs in the next, 20 s above them all.
    let host = [1_000, 1_001, 300_000, 20_000_000_000];
    a.add(&spans(host.iter().map(|&ns| span(0, "decode/linear", ns, (ns == 300_000).then_some(40_000))).collect()));
    let host = "clock=\"host\",path=\"decode/linear\"";
    let gpu = "clock=\"gpu\",path=\"decode/linear\",source=\"event\"";
    let bucket =
        |clock: &str, le: &str| value(&a, &format!("candlescope_span_duration_seconds_bucket{{{clock},le=\"{le}\"}}"));
    for (le, n) in
        [("0.000001", 1.0), ("0.0000025", 2.0), ("0.00025", 2.0), ("0.0005", 3.0), ("10", 3.0), ("+Inf", 4.0)]
    {
        assert_eq!(bucket(host, le), Some(n), "{le}");
    }
    for (le, n) in [("0.000025", 0.0), ("0.00005", 1.0), ("+Inf", 1.0)] {
        assert_eq!(bucket(gpu, le), Some(n), "{le}");
    }
    let sum = value(&a, &format!("candlescope_span_duration_seconds_sum{{{host}}}")).unwrap();
    assert!((sum - 20.000302001).abs() < 1e-9, "{sum}");
}

#[test]
fn a_path_without_gpu_time_has_no_gpu_series() {
    let mut a = aggregate(10);
    a.add(&spans(vec![span(0, "a", 5, None)]));
    assert!(!text(&a).contains("clock=\"gpu\""), "no time is not the same as none known");
}

#[test]
fn paths_beyond_the_limit_share_one_and_are_counted() {
    let mut a = aggregate(2);
    // Numbers of rollups come in any order and repeatedly.
    let ids = [7, 3, 9, 1, 7, 9, 0];
    a.add(&spans(ids.iter().map(|&id| span(id, &format!("p{id}"), 1, Some(1))).collect()));
    let count =
        |path: &str| value(&a, &format!("candlescope_span_duration_seconds_count{{clock=\"host\",path=\"{path}\"}}"));
    assert_eq!((count("p7"), count("p3"), count("(overflow)")), (Some(2.0), Some(1.0), Some(4.0)));
    assert_eq!((count("p9"), count("p1")), (None, None));
    assert_eq!(value(&a, "candlescope_paths_overflow_total"), Some(4.0));
    assert_eq!(value(&a, "candlescope_paths"), Some(2.0));
    assert_eq!(
        value(&a, "candlescope_span_duration_seconds_count{clock=\"gpu\",path=\"(overflow)\",source=\"event\"}"),
        Some(4.0)
    );
    let mut none = aggregate(0);
    none.add(&spans(vec![span(0, "a", 1, None)]));
    assert_eq!(value(&none, "candlescope_paths_overflow_total"), Some(1.0));
}

#[test]
fn a_request_gives_ttft_tpot_itl_and_tokens() {
    let mut a = aggregate(1);
    // First token after 20 ms, then one at 30, 50 and 51: gaps of 10, 20 and 1 ms; TPOT (51 − 20) / 3.
    let (prefill, decode) = (Some(Phase::Prefill), Some(Phase::Decode));
    a.add(&steps(vec![
        step(prefill, Some(1), 0, 10),
        step(prefill, Some(1), 10, 20),
        step(decode, Some(1), 21, 30),
        step(decode, Some(1), 31, 50),
        step(decode, Some(1), 50, 51),
    ]));
    assert_eq!(value(&a, "candlescope_requests_active"), Some(1.0));
    let mut done = requests(vec![request(1, "m", 60, Some(20), Some(4))]);
    a.add(&done);
    let of =
        |name: &str| value(&a, &format!("gen_ai_server_{name}_seconds_sum{{gen_ai_request_model=\"m\"}}")).unwrap();
    assert!((of("time_to_first_token") - 0.020).abs() < 1e-12);
    assert!((of("request_duration") - 0.060).abs() < 1e-12);
    assert!((of("time_per_output_token") - 0.031 / 3.0).abs() < 1e-12);
    for (le, n) in [("0.0005", 0.0), ("0.001", 1.0), ("0.005", 1.0), ("0.01", 2.0), ("0.025", 3.0)] {
        let series = format!("candlescope_inter_token_latency_seconds_bucket{{le=\"{le}\"}}");
        assert_eq!(value(&a, &series), Some(n), "{le}");
    }
    assert_eq!(value(&a, "candlescope_tokens_total{type=\"input\"}"), Some(7.0));
    assert_eq!(value(&a, "candlescope_tokens_total{type=\"output\"}"), Some(4.0));
    assert_eq!(value(&a, "candlescope_requests_active"), Some(0.0));

    // With one token there is no time per token after the first, and neither with an unknown number.
    done.requests = vec![request(2, "m", 9, Some(9), Some(1)), request(3, "m", 9, None, None)];
    a.add(&done);
    let count = |name: &str| value(&a, &format!("gen_ai_server_{name}_seconds_count{{gen_ai_request_model=\"m\"}}"));
    assert_eq!(count("time_per_output_token"), Some(1.0));
    assert_eq!((count("time_to_first_token"), count("request_duration")), (Some(2.0), Some(3.0)));
}

#[test]
fn sampling_as_a_step_of_its_own_yields_the_tokens() {
    let mut a = aggregate(1);
    let (prefill, decode, sample) = (Some(Phase::Prefill), Some(Phase::Decode), Some(Phase::Sample));
    a.add(&steps(vec![
        step(prefill, Some(1), 0, 10),
        step(sample, Some(1), 10, 12),
        step(decode, Some(1), 12, 20),
        step(sample, Some(1), 20, 22),
        step(None, Some(1), 22, 30),
        step(decode, None, 22, 30),
    ]));
    a.settle();
    assert_eq!(value(&a, "candlescope_inter_token_latency_seconds_count"), Some(1.0));
    let sum = value(&a, "candlescope_inter_token_latency_seconds_sum").unwrap();
    assert!((sum - 0.010).abs() < 1e-12, "from the end of one sampling to the end of the next: {sum}");
    assert_eq!(value(&a, "candlescope_steps_total{phase=\"none\"}"), Some(1.0));
}

#[test]
fn a_batch_is_counted_along_its_longest_sequence() {
    let mut a = aggregate(1);
    let mut steps_of = vec![step(Some(Phase::Prefill), Some(1), 0, 10)];
    steps_of.extend((0..4).map(|n| step(Some(Phase::Decode), Some(1), 10 + n * 10, 20 + n * 10)));
    for s in &mut steps_of {
        (s.context_len, s.batch) = (Some(100), Some(3));
    }
    a.add(&steps(steps_of));
    assert_eq!(value(&a, "candlescope_tokens_in_flight"), Some(300.0));
    let mut r = request(1, "m", 60, Some(10), Some(9));
    r.batch = Some(3);
    a.add(&requests(vec![r]));
    // Five steps yielded tokens, although nine tokens over three sequences would be three: (50 − 10) / 4.
    let sum = value(&a, "gen_ai_server_time_per_output_token_seconds_sum{gen_ai_request_model=\"m\"}").unwrap();
    assert!((sum - 0.010).abs() < 1e-12, "{sum}");
    assert_eq!(value(&a, "candlescope_tokens_in_flight"), Some(0.0));
}

/// 10 of every 100 steps are recorded; for a request with a token every 10 ms, these are the 6th to the 9th of 12, and
/// one much later.
#[test]
fn figures_of_a_request_survive_a_schedule() {
    let schedule = json!({ "skip_first": 0, "wait": 90, "warmup": 0, "active": 10, "repeat": 0 });
    let mut a = aggregate(1);
    a.learn(&RunManifest { options: BTreeMap::from([("schedule".into(), schedule)]), ..RunManifest::default() });
    let decode = |number: u64, token: u64| {
        with(step(Some(Phase::Decode), Some(1), token * 10 + 1, token * 10 + 10), |r| {
            r.step = number;
            r.context_len = Some(100 + token as u32);
            r.tokens = Some(1);
            r.batch = Some(1);
        })
    };
    // Steps of another thread come in between.
    a.add(&steps(vec![decode(90, 6), decode(92, 7), decode(95, 8), decode(97, 9), decode(190, 11)]));
    let mut of_it = request(1, "m", 150, Some(10), Some(12));
    // The last of twelve tokens 120 ms after the beginning.
    of_it.last_token_ns = Some(120 * MS);
    a.add(&requests(vec![of_it]));
    assert_eq!(value(&a, "candlescope_inter_token_latency_seconds_count"), Some(3.0));
    let gaps = value(&a, "candlescope_inter_token_latency_seconds_sum").unwrap();
    assert!((gaps - 0.030).abs() < 1e-12, "nothing across the steps that are missing: {gaps}");
    let tpot = value(&a, "gen_ai_server_time_per_output_token_seconds_sum{gen_ai_request_model=\"m\"}").unwrap();
    assert!((tpot - 0.010).abs() < 1e-12, "(120 - 10) / 11 ms: {tpot}");

    // Without a time of its last token the request's end is the best estimate, not the last recorded step.
    a.add(&steps(vec![with(decode(191, 3), |r| r.request = Some(2))]));
    a.add(&requests(vec![request(2, "n", 120, Some(10), Some(12))]));
    let tpot = value(&a, "gen_ai_server_time_per_output_token_seconds_sum{gen_ai_request_model=\"n\"}").unwrap();
    assert!((tpot - 0.010).abs() < 1e-12, "{tpot}");
    // Nor are tokens counted from steps.
    a.add(&steps(vec![with(decode(192, 3), |r| r.request = Some(3)), with(decode(193, 4), |r| r.request = Some(3))]));
    a.add(&requests(vec![request(3, "o", 120, Some(10), None)]));
    let series = "gen_ai_server_time_per_output_token_seconds_count{gen_ai_request_model=\"o\"}";
    assert_eq!(value(&a, series), Some(0.0));
}

#[test]
fn steps_that_do_not_tell_their_context_are_adjacent_in_a_window_of_the_schedule() {
    let mut a = aggregate(1);
    let schedule = candlescope_core::Schedule { skip_first: 0, wait: 6, warmup: 0, active: 4, repeat: 0 };
    let options = BTreeMap::from([("schedule".to_string(), json!(schedule))]);
    a.learn(&RunManifest { options, ..RunManifest::default() });
    let decode = |number| with(step(Some(Phase::Decode), Some(1), number * 10, number * 10 + 5), |r| r.step = number);
    a.add(&steps(vec![decode(6), decode(9), decode(16)]));
    let count = "candlescope_inter_token_latency_seconds_count";
    a.settle();
    assert_eq!(value(&a, count), Some(1.0), "6 to 9, and not 9 to 16");
    // Recording was off for some steps: only the next number shows that steps are adjacent.
    let mut account = stats(0, 0, 0);
    account.steps = StepCounts { paused: 1, schedule: Some(schedule), ..StepCounts::default() };
    a.account(&account);
    a.add(&steps(vec![decode(17), decode(19)]));
    a.settle();
    assert_eq!(value(&a, count), Some(2.0));
}

#[test]
fn tokens_of_a_batch_are_counted_over_all_its_sequences() {
    let mut a = aggregate(1);
    let mut of_four = request(1, "m", 60, Some(10), Some(36));
    of_four.batch = Some(4);
    a.add(&requests(vec![of_four]));
    assert_eq!(value(&a, "candlescope_tokens_total{type=\"input\"}"), Some(28.0), "four prompts of seven");
    assert_eq!(value(&a, "candlescope_tokens_total{type=\"output\"}"), Some(36.0));
}

#[test]
fn the_session_knows_of_requests_without_a_recorded_step() {
    let mut a = aggregate(1);
    let mut account = stats(0, 0, 0);
    account.steps = StepCounts {
        begun: 100,
        recorded: 7,
        captured: 3,
        scheduled_out: 85,
        paused: 4,
        lost: 1,
        ..StepCounts::default()
    };
    (account.requests_open, account.tokens_in_flight) = (5, 640);
    a.account(&account);
    // Whichever steps come, they are only a part.
    a.add(&steps(vec![step(Some(Phase::Decode), Some(1), 0, 1)]));
    for (series, expected) in [
        ("candlescope_steps_begun_total{outcome=\"recorded\"}", 7.0),
        ("candlescope_steps_begun_total{outcome=\"captured\"}", 3.0),
        ("candlescope_steps_begun_total{outcome=\"scheduled_out\"}", 85.0),
        ("candlescope_steps_begun_total{outcome=\"paused\"}", 4.0),
        ("candlescope_steps_begun_total{outcome=\"lost\"}", 1.0),
        ("candlescope_requests_active", 5.0),
        ("candlescope_tokens_in_flight", 640.0),
    ] {
        assert_eq!(value(&a, series), Some(expected), "{series}");
    }
}

#[test]
fn requests_that_never_end_do_not_pile_up() {
    let mut a = aggregate(1);
    let open: Vec<StepRecord> = (0..5_000).map(|n| step(Some(Phase::Decode), Some(n), n, n + 1)).collect();
    a.add(&steps(open));
    assert_eq!(value(&a, "candlescope_requests_active"), Some(4096.0));
}

#[test]
fn more_models_than_there_is_room_for_share_one() {
    let mut a = aggregate(1);
    a.add(&requests((0..150).map(|n| request(n, &format!("m{n}"), 1, None, None)).collect()));
    let count =
        |m: &str| value(&a, &format!("gen_ai_server_request_duration_seconds_count{{gen_ai_request_model=\"{m}\"}}"));
    assert_eq!((count("m99"), count("m100"), count("(overflow)")), (Some(1.0), None, Some(50.0)));
}

fn sample(device: &str, metric: &'static str, value: f64) -> SampleRecord {
    SampleRecord::new(HostNs(0), device, metric, value, "count")
}

#[test]
fn samples_become_families_with_labels() {
    let mut a = aggregate(1);
    let mut batch = Batch::default();
    batch.samples = vec![
        sample("GPU-1", "hw_power_watts", 300.0),
        sample("GPU-2", "hw_power_watts", 400.0),
        sample("GPU-1", "hw_power_watts", 310.0),
        sample("GPU-1", "candlescope_gpu_clock_hertz_sm", 1.98e9),
        sample("GPU-1", "candlescope_gpu_throttled_sw_power_cap", 1.0),
        sample("host", "process_resident_memory_bytes", 5.0),
        sample("host", "my_queue_depth", 3.0),
        sample("GPU-1", "hw_energy_joules_total", 1000.5),
        sample("GPU-1", "hw_energy_joules_total", 1001.0),
    ];
    assert_eq!(a.add(&batch), 0);
    for (series, expected) in [
        ("hw_power_watts{hw_id=\"GPU-1\"}", 310.0),
        ("hw_power_watts{hw_id=\"GPU-2\"}", 400.0),
        ("candlescope_gpu_clock_hertz{domain=\"sm\",hw_id=\"GPU-1\"}", 1.98e9),
        ("candlescope_gpu_throttled{hw_id=\"GPU-1\",reason=\"sw_power_cap\"}", 1.0),
        ("process_resident_memory_bytes", 5.0),
        ("my_queue_depth", 3.0),
        ("hw_energy_joules_total{hw_id=\"GPU-1\"}", 1001.0),
    ] {
        assert_eq!(value(&a, series), Some(expected), "{series}");
    }
    assert!(text(&a).contains("# TYPE hw_energy_joules_total counter"));
    // The driver was reloaded: Prometheus sees a counter that starts again.
    batch.samples = vec![sample("GPU-1", "hw_energy_joules_total", 2.0)];
    a.add(&batch);
    assert_eq!(value(&a, "hw_energy_joules_total{hw_id=\"GPU-1\"}"), Some(2.0));
}

/// 0.253 + (1.393 - 0.253) is more than 1.393 by the last bit. To Prometheus, a counter that falls has started again.
#[test]
fn a_counter_does_not_fall_by_a_rounding_error() {
    let mut a = aggregate(1);
    let shown: Vec<f64> = [0.253, 1.393, 1.393, 1.394]
        .map(|joules| {
            let mut batch = Batch::default();
            batch.samples = vec![sample("GPU-1", "hw_energy_joules_total", joules)];
            assert_eq!(a.add(&batch), 0);
            value(&a, "hw_energy_joules_total{hw_id=\"GPU-1\"}").expect("a value")
        })
        .into();
    assert!(shown.is_sorted(), "{shown:?}");
    assert!((shown[3] - 1.394).abs() < 1e-12, "{shown:?}");
}

#[test]
fn samples_that_cannot_be_shown_are_refused_not_swallowed() {
    let mut a = aggregate(1);
    let mut batch = Batch::default();
    batch.samples = vec![sample("host", "not a name", 1.0), sample("host", "fine", 1.0), sample("GPU-1", "fine", 2.0)];
    assert_eq!(a.add(&batch), 2, "a bad name, and a name that has no device elsewhere");
    batch.samples = (0..3_000).map(|n| sample(&format!("GPU-{n}"), "hw_power_watts", 1.0)).collect();
    assert_eq!(a.add(&batch), 1_001, "one series is taken already");
    batch.samples = vec![sample("host", "bad_total", -1.0)];
    a.add(&batch);
}

fn stats(exported: u64, full: u64, received: u64) -> Stats {
    let table = |n: u64| BTreeMap::from([("spans".to_string(), n)]);
    let mut stats = Stats::default();
    stats.loss = LossCounts { emitted: 100, ring_full: 10, requests_lost: 2, ..LossCounts::default() };
    stats.exporters.push(ExporterReport {
        name: "parquet".into(),
        received: table(received),
        exported: table(exported),
        dropped: BTreeMap::from([("spans".to_string(), BTreeMap::from([("queue_full".to_string(), full)]))]),
        last_error: None,
    });
    let mut queue = ExporterQueue::default();
    (queue.exporter, queue.queued, queue.limit) = ("parquet".into(), 2, 1_000);
    stats.queues.push(queue);
    stats.overhead_ratio = (received > 10).then_some(0.25);
    stats
}

#[test]
fn the_sessions_account_is_shown_as_it_stands() {
    let mut a = aggregate(1);
    a.account(&stats(5, 1, 6));
    assert_eq!(value(&a, "candlescope_overhead_ratio"), None, "before the first step nothing is known");
    a.account(&stats(50, 4, 60));
    a.account(&stats(50, 4, 60));
    for (series, expected) in [
        ("candlescope_records_total{exporter=\"parquet\",outcome=\"exported\"}", 50.0),
        ("candlescope_records_total{exporter=\"parquet\",outcome=\"queue_full\"}", 4.0),
        // The six that it has neither exported nor dropped are not in its queue.
        ("candlescope_records_pending{exporter=\"parquet\"}", 2.0),
        ("candlescope_records_pending_limit{exporter=\"parquet\"}", 1_000.0),
        ("candlescope_intervals_total{outcome=\"recorded\"}", 90.0),
        ("candlescope_intervals_total{outcome=\"ring_full\"}", 10.0),
        ("candlescope_lost_total{kind=\"requests\"}", 2.0),
        ("candlescope_overhead_ratio", 0.25),
    ] {
        assert_eq!(value(&a, series), Some(expected), "{series}");
    }
}

/// Segments that a budget removes are written no less: their records move from exported to dropped.
#[test]
fn what_a_disk_budget_removes_stays_exported() {
    let mut a = aggregate(1);
    let removed = |exported: u64, removed: u64| {
        let mut stats = stats(exported, 0, exported + removed);
        let reasons = BTreeMap::from([("disk_budget".to_string(), removed)]);
        stats.exporters[0].dropped = BTreeMap::from([("spans".to_string(), reasons)]);
        stats
    };
    let exported = |a: &Aggregate| value(a, "candlescope_records_total{exporter=\"parquet\",outcome=\"exported\"}");
    a.account(&removed(100, 0));
    assert_eq!(exported(&a), Some(100.0));
    // 50 more are written, and the oldest 50 removed.
    a.account(&removed(100, 50));
    assert_eq!(exported(&a), Some(150.0));
    let series = "candlescope_records_total{exporter=\"parquet\",outcome=\"disk_budget\"}";
    assert_eq!(value(&a, series), Some(50.0));
}

#[test]
fn what_the_run_says_of_itself_replaces_what_it_said_before() {
    let mut a = aggregate(1);
    let mut run = RunManifest { run_id: "r".into(), host: "h".into(), ..RunManifest::default() };
    a.learn(&run);
    run.model.insert("name".into(), "tiny".into());
    a.learn(&run);
    let lines: Vec<String> =
        text(&a).lines().filter(|l| l.starts_with("candlescope_run_info{")).map(String::from).collect();
    assert_eq!(lines, ["candlescope_run_info{host=\"h\",model=\"tiny\",run_id=\"r\"} 1"]);
}

#[test]
fn requests_of_an_experiment_are_counted_and_their_times_are_no_sample() {
    let mut a = aggregate(1);
    let mut of_experiment = request(2, "m", 3, Some(1), Some(2));
    of_experiment.perturbed = Some(true);
    a.add(&requests(vec![request(1, "m", 3, Some(1), Some(2)), of_experiment]));
    let of_model = |name: &str, labels: &str| value(&a, &format!("{name}{{{labels}}}"));
    assert_eq!(of_model("candlescope_requests_total", "gen_ai_request_model=\"m\",outcome=\"unstated\""), Some(2.0));
    assert_eq!(of_model("candlescope_tokens_total", "type=\"output\""), Some(4.0));
    let durations = text(&a)
        .lines()
        .filter(|line| line.contains("duration") && line.contains("_count"))
        .map(String::from)
        .collect::<Vec<_>>();
    assert!(!durations.is_empty() && durations.iter().all(|line| line.ends_with(" 1")), "{durations:?}");
}

#[test]
fn what_requests_caused_is_summed_by_model_and_what_is_not_known_is_not_zero() {
    let mut a = aggregate(1);
    let mut known = request(1, "m", 3, Some(1), Some(2));
    (known.step_count, known.device_step_count) = (Some(5), Some(2));
    (known.device_share_ns, known.energy_mj) = (Some(1_500 * MS), Some(2_500.0));
    let mut next = known.clone();
    (next.request, next.energy_mj) = (2, None);
    a.add(&requests(vec![known, next, request(3, "other", 3, Some(1), Some(2))]));
    let mut samples = Batch::default();
    samples.samples = vec![sample("GPU-1", "candlescope_energy_joules_total_idle", 7.0)];
    assert_eq!(a.add(&samples), 0);
    for (series, expected) in [
        ("candlescope_request_steps_total{device_time=\"yes\",gen_ai_request_model=\"m\"}", Some(4.0)),
        ("candlescope_request_steps_total{device_time=\"no\",gen_ai_request_model=\"m\"}", Some(6.0)),
        ("candlescope_request_device_seconds_total{gen_ai_request_model=\"m\"}", Some(3.0)),
        ("candlescope_request_energy_joules_total{gen_ai_request_model=\"m\"}", Some(2.5)),
        ("candlescope_request_energy_joules_total{gen_ai_request_model=\"other\"}", None),
        ("candlescope_energy_joules_total{hw_id=\"GPU-1\",of=\"idle\"}", Some(7.0)),
    ] {
        assert_eq!(value(&a, series), expected, "{series}");
    }
}

#[test]
fn only_metrics_of_the_catalogue_come_of_records() {
    let mut a = aggregate(3);
    let mut batch = spans(vec![span(0, "a", 1, Some(1)), span(1, "b", 1, None)]);
    batch.steps = vec![step(Some(Phase::Prefill), Some(1), 0, 1), step(Some(Phase::Decode), Some(1), 1, 2)];
    batch.requests = vec![request(1, "m", 3, Some(1), Some(2))];
    a.add(&batch);
    a.account(&stats(50, 4, 60));
    a.learn(&RunManifest::default());
    for family in a.registry().gather() {
        let known = cat::METRICS.iter().find(|m| m.name == family.name());
        let known = known.unwrap_or_else(|| panic!("{} is not in the catalogue", family.name()));
        let mut labels: Vec<&str> = known.labels.to_vec();
        labels.sort_unstable();
        for metric in family.get_metric() {
            let has: Vec<&str> = metric.get_label().iter().map(|l| l.name()).collect();
            assert_eq!(has, labels, "{}", known.name);
        }
        assert_eq!(family.help(), known.help);
    }
}
