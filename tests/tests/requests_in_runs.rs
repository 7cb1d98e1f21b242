//! Requests in runs on disk: what a program says of them comes back from Parquet, in figures and in SQL.
#![allow(missing_docs, reason = "a test")]

use candlescope::llm::{self, Request, Tokens};
use candlescope::parquet::ParquetConfig;
use candlescope_core::{
    CollectError, Collector, Outcome, RecordKind, RequestRecord, Samples, Served, Session, SessionBuilder, SpanId,
    metric,
};
use candlescope_exporters::parquet::ParquetExporter;
use candlescope_figures::Analysis;
use candlescope_reader::{ReadLimits, Run};
use candlescope_sql::{Answer, Sources, SqlValue, query};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tracing_subscriber::prelude::*;

fn recorded(dir: &Path, program: impl FnOnce()) {
    recorded_by(Session::builder(), dir, program);
}

fn recorded_by(session: SessionBuilder, dir: &Path, program: impl FnOnce()) {
    let session = session.exporter(ParquetExporter::new(ParquetConfig::new(dir)));
    let (layer, session) = session.start().expect("starts");
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), program);
    let manifest = session.finish();
    assert!(manifest.verdict.ok, "{:?}", manifest.verdict);
}

fn read(dir: &Path) -> (Run, Vec<RequestRecord>) {
    let run = Run::open(dir).expect("opens");
    let requests = run.table(RecordKind::Request).flat_map(|batch| batch.requests).collect();
    (run, requests)
}

fn ask(dir: &Path, sql: &str) -> Answer {
    let limits = ReadLimits::default();
    let sources = Sources::open([dir], &limits).expect("opens");
    query(sql, &sources, &limits, 0).unwrap_or_else(|error| panic!("{sql}: {error}"))
}

fn work(at_least: Duration) {
    tracing::trace_span!("linear").in_scope(|| std::thread::sleep(at_least));
}

/// Sensors of a GPU that draws 400 W while it is at work, and 100 W otherwise.
struct Sensors {
    at_work: Arc<AtomicBool>,
    read: Instant,
    joules: f64,
}

impl Collector for Sensors {
    fn name(&self) -> &'static str {
        "sensors"
    }

    fn period(&self) -> Duration {
        Duration::from_millis(5)
    }

    fn sample(&mut self, out: &mut Samples<'_>) -> Result<(), CollectError> {
        let watts = if self.at_work.load(Ordering::Relaxed) { 400.0 } else { 100.0 };
        let before = std::mem::replace(&mut self.read, Instant::now());
        self.joules += watts * (self.read - before).as_secs_f64();
        let gpu = Arc::from("GPU-0");
        out.push(&gpu, metric::GPU_ENERGY, self.joules, "joules");
        out.push(&gpu, metric::GPU_POWER, watts, "watts");
        Ok(())
    }
}

#[test]
fn energy_of_requests_other_steps_and_idling_is_what_the_counter_counted_in_tables_and_in_reports() {
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run");
    let at_work = Arc::new(AtomicBool::new(false));
    let sensors = Sensors { at_work: at_work.clone(), read: Instant::now(), joules: 77.0 };
    let step = |serve: &dyn Fn()| {
        at_work.store(true, Ordering::Relaxed);
        let _step = llm::decode(Tokens::new(4));
        work(Duration::from_millis(3));
        serve();
        at_work.store(false, Ordering::Relaxed);
    };
    recorded_by(Session::builder().collector(sensors), &run, || {
        std::thread::sleep(Duration::from_millis(30));
        let (long, short) = (Request::new("chat", "m"), Request::new("chat", "m"));
        for _ in 0..10 {
            step(&|| {
                llm::serves(&long, Tokens::new(3), 1);
                llm::serves(&short, Tokens::new(1), 1);
            });
        }
        drop(short);
        (0..5).for_each(|_| step(&|| llm::serves(&long, Tokens::new(1), 1)));
        drop(long);
        std::thread::sleep(Duration::from_millis(30));
        (0..3).for_each(|_| step(&|| ()));
        // The session ends with this one.
        let last = Request::new("chat", "m");
        step(&|| llm::serves(&last, Tokens::new(1), 1));
    });
    let (read, requests) = read(&run);
    let analysis = Analysis::of(&read);
    assert_eq!(requests.len(), 3);
    let mut of_requests = 0.0;
    for request in &requests {
        let joules = request.energy_mj.expect("every reading has come") / 1e3;
        let reported = analysis.shares.of_request(request.request).and_then(|share| share.joules).expect("sensors");
        assert!((joules - reported).abs() < 1e-6 * reported, "{joules} J live, {reported} J in the report");
        let [low, high] = [request.energy_low_mj, request.energy_high_mj].map(|mj| mj.expect("power") / 1e3);
        assert!(0.0 <= low && low < joules && joules < high, "{low} to {high} for {joules}");
        of_requests += joules;
    }
    let mut by_number: Vec<&RequestRecord> = requests.iter().collect();
    by_number.sort_by_key(|request| request.request);
    let counts: Vec<_> = by_number.iter().map(|r| (r.step_count, r.device_step_count, r.device_share_ns)).collect();
    assert_eq!(counts, [15, 10, 1].map(|steps| (Some(steps), Some(0), None)), "no device has told its time");

    let told = ask(&run, "SELECT * FROM device_accounts");
    let of = |name: &str| {
        let at = told.columns.iter().position(|column| column == name).unwrap_or_else(|| panic!("no {name}"));
        let SqlValue::Float(joules) = told.rows[0][at] else { panic!("{told:?}") };
        joules
    };
    let parts = ["requests_joules", "other_steps_joules", "idle_joules", "unattributed_joules"].map(of);
    let [charged, other, idle, unknown] = parts;
    assert!((charged - of_requests).abs() < 1e-9, "{charged} J of steps, {of_requests} J of requests");
    assert!(other > 0.0 && idle > 0.0 && unknown < 1e-9, "{parts:?}");
    let (accounted, counted) = (of("accounted_joules"), of("counted_joules"));
    assert!((accounted - counted).abs() < 1e-9 * counted.max(1.0), "{accounted} of {counted}");
    assert!((analysis.shares.sum().expect("sensors") - counted).abs() < 1e-6, "{:?}", analysis.shares.sum());
    let estimates = ask(&run, "SELECT count(*), count(device_estimate_ns), min(step_share_ns) FROM request_accounts");
    let counts = &estimates.rows[0];
    assert!(matches!(counts[..], [SqlValue::Int(3), SqlValue::Int(0), SqlValue::Int(1..)]), "{counts:?}");
}

/// Three requests that come one after the other and are served together. The prompt of each takes two steps.
#[test]
fn a_batching_loop_gives_each_request_its_figures() {
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run");
    let mut own_gaps: Vec<Vec<Duration>> = vec![Vec::new(); 3];
    // Before and behind the making of each.
    let mut made: Vec<[Instant; 2]> = Vec::new();
    recorded(&run, || {
        let make = |_| {
            let before = Instant::now();
            let request = Request::new("chat", "m").prompt_tokens(10);
            made.push([before, Instant::now()]);
            request
        };
        let requests: Vec<Request> = (0..3).map(make).collect();
        let mut latest: [Option<Instant>; 3] = [None; 3];
        for step in 0..12 {
            let span = llm::decode(Tokens::new(3).batch(3));
            work(Duration::from_millis(1));
            // The second one comes two steps after the first, and so on.
            for (n, request) in requests.iter().enumerate() {
                match step - 2 * n as i32 {
                    ..0 => {}
                    0 => llm::serves(request, Tokens::new(6), 0),
                    1 => llm::serves(request, Tokens::new(4), 1),
                    _ => llm::serves(request, Tokens::new(1), 1),
                }
            }
            drop(span);
            let now = Instant::now();
            for n in (0..3).filter(|n| step > 2 * *n) {
                own_gaps[n as usize].extend(latest[n as usize].replace(now).map(|before| now - before));
            }
        }
        requests[0].outcome(Outcome::Done);
        requests[1].outcome(Outcome::Cancelled);
    });
    let (read, _) = read(&run);
    let analysis = Analysis::of(&read);
    let latency = &analysis.latency;
    assert_eq!(latency.requests.len(), 3);
    for (figures, own) in latency.requests.iter().zip(&own_gaps) {
        assert_eq!(figures.itl_ns.len(), own.len());
        let (theirs, all) = (figures.itl_ns.iter().sum::<u64>(), own.iter().sum::<Duration>().as_nanos() as u64);
        assert!(theirs.abs_diff(all) < all / 10 + 20_000_000, "{theirs} ns of gaps for {all}");
        assert_eq!(figures.output_tokens, Some(own.len() as u64 + 1));
        assert_eq!(figures.prompt_tokens, Some(10));
        assert!(figures.queue_ns < figures.ttft_ns && figures.ttft_ns < figures.e2e_ns);
    }
    let queues: Vec<u64> = latency.requests.iter().map(|r| r.queue_ns.unwrap()).collect();
    // Each began two steps of a millisecond later than the one before, which was made by so much earlier at the most.
    for n in 0..2 {
        let earlier = made[n + 1][1].duration_since(made[n][0]).as_nanos() as u64;
        assert!(queues[n + 1] + earlier >= queues[n] + 2_000_000, "{queues:?} {made:?}");
    }
    // All time of the steps is shared out.
    let shares: f64 = analysis.shares.requests.iter().map(|share| share.step_ns).sum();
    let all = ask(&run, "SELECT sum(host_dur_ns) FROM steps");
    let SqlValue::Int(all) = all.rows[0][0] else { panic!("{all:?}") };
    assert!((shares - all as f64).abs() < 1.0, "{shares} of {all}");
    let outcomes: Vec<_> = latency.outcomes.iter().map(|(outcome, n)| (*outcome, *n)).collect();
    assert_eq!(outcomes, [(None, 1), (Some(Outcome::Done), 1), (Some(Outcome::Cancelled), 1)]);

    let served = ask(
        &run,
        "SELECT request, count(*), sum(tokens), sum(output_tokens) FROM served GROUP BY request ORDER BY request",
    );
    let int = SqlValue::Int;
    let row = |n: i64, steps: i64| vec![int(n), int(steps), int(10 + steps - 2), int(steps - 1)];
    assert_eq!(served.rows, [row(1, 12), row(2, 10), row(3, 8)]);
    let measured = ask(
        &run,
        "SELECT count(*) AS n, (SELECT count(*) FROM steps WHERE serves IS NULL) AS others FROM measured_steps",
    );
    assert_eq!(measured.rows, [[int(12), int(0)]]);
    let steps: Vec<_> = read.table(RecordKind::Step).flat_map(|batch| batch.steps).collect();
    assert_eq!(steps[3].serves, [Served::new(1, 1, 1), Served::new(2, 4, 1)]);
}

/// Runs of an H200, whose energy counter is the truth: no share is made up and none is lost.
#[test]
fn what_requests_used_adds_up_to_the_counter() {
    let recorded = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cli/tests/recorded/gpu");
    for name in ["decode", "host", "replays", "threads"] {
        let run = Run::open(recorded.join(name)).expect("opens");
        let analysis = Analysis::of(&run);
        let (shares, sensors) = (&analysis.shares, &analysis.energy.sensors);
        let [(_, sensor)] = &sensors[..] else { panic!("{name}: one GPU") };
        assert!(sensor.has_counter, "{name}");
        let (from, to) = sensor.covers().unwrap();
        let (sum, counted) = (shares.sum().unwrap(), sensor.counted(from, to));
        assert!((sum - counted).abs() < 1e-6 * counted && counted > 1.0, "{name}: {sum} of {counted} J");
        let used = shares.of_requests().unwrap();
        // What works for no request is there, too: the last of these marks none.
        let of_steps = used + shares.other_steps.unwrap();
        assert!(of_steps > 0.0 && of_steps < counted, "{name}: {of_steps} of {counted} J");
        assert_eq!(used > 0.0, name != "threads", "{name}: {used} J");
        for share in &shares.requests {
            let ((low, high), joules) = (share.bound.unwrap(), share.joules.unwrap());
            assert!(low <= joules && joules <= high, "{name}: {share:?}");
            // A GPU of this kind draws between 60 and 700 W while it works for one request.
            let watts = joules / (share.step_ns / 1e9);
            assert!(watts > 15.0 && watts < 800.0, "{name}: {watts} W, {share:?}");
        }
    }
}

#[test]
fn the_caller_and_the_outcome_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run");
    recorded(&run, || {
        let caller = |flags| format!("00-4bf92f3577b34da6a3ce929d0e0e4736-f0f067aa0ba902b7-{flags}");
        work(Duration::ZERO);
        Request::new("chat", "m").traceparent(&caller("01")).outcome(Outcome::Failed);
        drop(Request::new("chat", "m").traceparent(&caller("00")));
        drop(Request::new("chat", "m"));
    });
    let (_, requests) = read(&run);
    let kept: Vec<_> = requests.iter().map(|r| (r.parent_span_id, r.caller_sampled, r.outcome)).collect();
    let caller = Some(SpanId(0xf0f0_67aa_0ba9_02b7));
    assert_eq!(kept, [(caller, Some(true), Some(Outcome::Failed)), (caller, Some(false), None), (None, None, None)]);
}

/// The writer says that all is well, so a reader with the usual limits must find all.
#[test]
fn a_name_of_any_length_hides_no_row() {
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run");
    recorded(&run, || {
        for n in 0..200 {
            let long = "ä".repeat(if n == 100 { 20_000 } else { 10 });
            let request = Request::new("chat", &long);
            let _in_request = request.enter();
            let _step = llm::decode(Tokens::new(1));
            // Forty levels of names as long as they may be are a path that is longer than a text may be.
            let depth = if n == 100 { 40 } else { 2 };
            let spans: Vec<_> = (0..depth).map(|_| tracing::info_span!("inner", otel.name = %long).entered()).collect();
            drop(spans.into_iter().rev().collect::<Vec<_>>());
        }
    });
    let (run, requests) = read(&run);
    assert_eq!(requests.len(), 200);
    let analysis = Analysis::of(&run);
    assert_eq!(analysis.latency.requests.len(), 200);
    let spans: usize = run.table(RecordKind::Span).map(|batch| batch.spans.len()).sum();
    assert_eq!(spans, 199 * 4 + 42);
    let said = format!("{:?}", analysis.verdict.findings);
    assert!(!said.contains("limit_reached"), "{said}");
}
