//! Synthetic runs with known true figures, read from Parquet as a report does.

use crate::common::{self, T0, path, span, step, thread, write_run};
use candlescope_figures::Analysis;
use candlescope_figures::PathTotals;
use candlescope_figures::peaks::{Metric, TimeBase, Utilisation, utilisation};
use candlescope_reader::Run;
use candlescope_schema::run::RunManifest;
use candlescope_schema::{Batch, DType, GpuSource, GpuTime, HostNs, Phase, SampleRecord, SpanId, SpanRecord};
use candlescope_testkit::with;
use serde_json::{Value, json};

const MS: i64 = 1_000_000;

/// A machine of 1 TFLOP/s in f32 and 1 GB/s: its peaks make ratios easy to read.
fn machine(manifest: &mut RunManifest) {
    manifest.environment.insert(
        "peaks".into(),
        json!([
            { "kind": "flops", "value": 1e12, "label": "datasheet", "source": "made up", "dtype": "f32" },
            { "kind": "flops", "value": 4e12, "label": "datasheet", "source": "made up", "dtype": "i8" },
            { "kind": "bandwidth", "value": 1e9, "label": "datasheet", "source": "made up" },
        ]),
    );
}

#[derive(Default)]
struct Maker {
    batch: Batch,
    options: Vec<(&'static str, Value)>,
    model: Vec<(&'static str, Value)>,
}

impl Maker {
    /// A step with a span of its own, on the thread with this number; times in milliseconds.
    fn step(&mut self, phase: Phase, on: u32, request: Option<u64>, start_ms: i64, dur_ms: i64) -> u64 {
        let number = self.batch.steps.len() as u64;
        let name = phase.as_str();
        let mut made = step(number, name, start_ms * MS, (dur_ms * MS) as u64);
        (made.phase, made.request, made.thread) = (Some(phase), request, thread(on, &format!("worker-{on}")));
        let mut own = span(number, None, name, start_ms * MS, (dur_ms * MS) as u64);
        (own.step, own.phase, own.thread) = (Some(number), Some(phase), made.thread.clone());
        self.batch.steps.push(made);
        self.batch.spans.push(own);
        number
    }

    fn work(&mut self, step: u64, flops: u64, bytes: u64, tokens: u32) {
        let record = &mut self.batch.steps[step as usize];
        (record.flops, record.bytes, record.tokens) = (Some(flops), Some(bytes), Some(tokens));
        (record.flops_executed, record.io_bytes) = (Some(2 * flops), Some(3 * bytes));
        let own = &mut self.batch.spans[step as usize];
        (own.flops, own.bytes, own.dtype) = (Some(flops), Some(bytes), Some(DType::F32));
        (own.flops_executed, own.io_bytes) = (Some(2 * flops), Some(3 * bytes));
    }

    /// A kernel of a step; times in microseconds.
    fn kernel(&mut self, step: u64, device: &str, stream: u32, start_us: i64, dur_us: i64, launch_us: i64) {
        let of = &self.batch.steps[step as usize];
        self.batch.kernels.push(with(common::kernel(device, start_us * 1_000, (dur_us * 1_000) as u64), |r| {
            r.seq = Some(step);
            r.step = Some(step);
            r.phase = of.phase;
            r.path = Some(of.path.clone());
            r.stream = stream;
            r.launch_start = Some(HostNs(T0 + launch_us * 1_000));
            r.launch_dur_ns = Some(1_000);
        }));
    }

    fn request(&mut self, number: u64, start_ms: i64, dur_ms: i64) {
        self.batch.requests.push(common::request(number, start_ms * MS, (dur_ms * MS) as u64));
    }

    fn analysis(&self) -> Analysis {
        let mut manifest = crate::common::manifest(&self.batch);
        machine(&mut manifest);
        manifest.options = self.options.iter().map(|(key, value)| (key.to_string(), value.clone())).collect();
        manifest.model = self.model.iter().map(|(key, value)| (key.to_string(), value.clone())).collect();
        let dir = tempfile::tempdir().expect("a directory");
        write_run(dir.path(), &self.batch, &manifest, 1_000);
        Analysis::of(&Run::open(dir.path()).expect("opens"))
    }
}

fn ratio(all: &[Utilisation], phase: &str, metric: Metric, over: TimeBase) -> Option<f64> {
    let found: Vec<f64> =
        all.iter().filter(|u| u.phase == phase && u.metric == metric && u.over == over).map(|u| u.ratio).collect();
    assert!(found.len() <= 1, "one peak of its type: {all:?}");
    found.first().copied()
}

fn near(value: Option<f64>, truth: f64) -> bool {
    value.is_some_and(|value| (value - truth).abs() <= 1e-9 * truth.abs().max(1.0))
}

fn codes(analysis: &Analysis) -> Vec<&str> {
    analysis.verdict.findings.iter().map(|f| f.code.as_str()).collect()
}

/// Two threads decode at once on one GPU for 50 ms, 10 steps of 5 ms each. Their kernels of 500 µs alternate without a
/// gap: the GPU is busy 100 % of the time. Together they move 33.35 MB, 66.7 % of what 1 GB/s moves in 50 ms, for 20
/// tokens: 400 per second.
#[test]
fn two_threads_that_share_a_gpu_keep_it_busy_together() {
    let mut run = Maker::default();
    for i in 0..10i64 {
        for on in 0..2i64 {
            let step = run.step(Phase::Decode, on as u32 + 1, None, 5 * i, 5);
            run.work(step, 1_000_000, 1_667_500, 1);
            for k in 0..5i64 {
                let start = 5_000 * i + 1_000 * k + 500 * on;
                run.kernel(step, "GPU-a", 10 + on as u32, start, 500, (start - 400).max(0));
            }
        }
    }
    let analysis = run.analysis();
    let busy = analysis.gpu.busy.as_ref().expect("recorded");
    assert_eq!((busy.steps, busy.devices, busy.wall_ns, busy.busy_ns), (20, 1, 50_000_000, 50_000_000));
    assert_eq!((busy.idle_ns(), busy.unattributed_ns, busy.host_bound.n), (0, 0, 0));
    assert!(near(busy.steps_at_once(), 2.0) && near(busy.streams_at_once(), 1.0));
    assert_eq!((busy.launches, busy.launches_per_step()), (100, Some(5.0)));
    let decode = &analysis.phases.rows[0];
    assert_eq!((decode.total_ns, decode.union_ns), (100_000_000, 50_000_000));
    assert!(near(decode.tokens_per_s, 400.0) && near(decode.steps_at_once, 2.0));
    let used = utilisation(&analysis);
    assert!(near(ratio(&used, "decode", Metric::Mbu, TimeBase::Wall), 0.667), "{used:?}");
    assert!(near(ratio(&used, "decode", Metric::Mfu, TimeBase::Wall), 20e6 / 0.05 / 1e12));
    assert!(near(ratio(&used, "decode", Metric::Hfu, TimeBase::Wall), 40e6 / 0.05 / 1e12));
    assert!(busy.launch_bound_share().unwrap_or(0.0) < 0.15, "nobody waits");
    let page = candlescope_report::json::metrics(&analysis);
    assert_eq!(page["gpu"]["all"]["busy_share"], json!(1.0));
}

/// The same work with marks only: each thread's stream elapsed time is the whole 50 ms.
#[test]
fn marks_of_two_threads_do_not_halve_the_rate() {
    let mut run = Maker::default();
    for i in 0..10i64 {
        for on in 0..2u32 {
            let step = run.step(Phase::Decode, on + 1, None, 5 * i, 5);
            run.work(step, 1_000_000_000, 1_667_500, 1);
            let gpu = GpuTime { start: HostNs(T0 + 5 * i * MS), dur_ns: 5_000_000, source: GpuSource::Event };
            run.batch.steps[step as usize].gpu = Some(gpu);
            run.batch.spans[step as usize].gpu = Some(gpu);
        }
    }
    let used = utilisation(&run.analysis());
    let over = TimeBase::Gpu(GpuSource::Event);
    assert!(near(ratio(&used, "decode", Metric::Mbu, over), 0.667), "{used:?}");
    assert!(near(ratio(&used, "decode", Metric::Mfu, over), 20e9 / 0.05 / 1e12));
}

/// One step of 100 kernels of 50 µs on each of two GPUs, 10 ms long: one recorded step, 200 kernels, each GPU busy half
/// of the time. Its 15 MB in 10 ms are 75 % of what both could move.
#[test]
fn a_step_on_two_gpus_is_one_step() {
    let mut run = Maker::default();
    let step = run.step(Phase::Decode, 1, None, 0, 10);
    run.work(step, 1_000, 15_000_000, 1);
    for k in 0..100 {
        run.kernel(step, "GPU-a", 7, 100 * k, 50, 100 * k);
        run.kernel(step, "GPU-b", 7, 100 * k + 50, 50, 100 * k);
    }
    let analysis = run.analysis();
    let busy = analysis.gpu.busy.as_ref().expect("recorded");
    assert_eq!((busy.steps, busy.devices, busy.launches, busy.launches_per_step()), (1, 2, 200, Some(200.0)));
    assert!(near(busy.busy_share(), 0.5));
    let each: Vec<_> = analysis.gpu.devices.iter().map(|(uuid, b)| (&**uuid, b.steps, b.busy_share())).collect();
    assert_eq!(each, [("GPU-a", 1, Some(0.5)), ("GPU-b", 1, Some(0.5))]);
    let used = utilisation(&analysis);
    assert!(near(ratio(&used, "decode", Metric::Mbu, TimeBase::Wall), 0.75), "{used:?}");
    assert_eq!(ratio(&used, "decode", Metric::Mbu, TimeBase::Gpu(GpuSource::Cupti)), None, "no GPU time in steps");
    assert_eq!(used.iter().map(|u| u.devices).max(), Some(2));
}

/// 1 TFLOP in 10 ms, in two kernels of 10 ms on two streams at once: 100 TFLOP/s over wall time, and no less over
/// kernel time.
#[test]
fn kernels_at_once_do_not_lower_the_rate() {
    let mut run = Maker::default();
    let step = run.step(Phase::Prefill, 1, None, 0, 10);
    run.work(step, 1_000_000_000_000, 1_000, 8);
    run.kernel(step, "GPU-a", 1, 0, 10_000, 0);
    run.kernel(step, "GPU-a", 2, 0, 10_000, 0);
    let gpu = GpuTime { start: HostNs(T0), dur_ns: 20_000_000, source: GpuSource::Cupti };
    run.batch.steps[0].gpu = Some(gpu);
    run.batch.spans[0].gpu = Some(gpu);
    let analysis = run.analysis();
    let kernels = &analysis.gpu.kinds[0].elapsed[0];
    assert_eq!((kernels.source, kernels.measured_ns, kernels.merged_ns), (GpuSource::Cupti, 20_000_000, 10_000_000));
    assert!(near(kernels.tflops, 100.0), "{kernels:?}");
    let row = analysis.operators[0].gpu.expect("measured");
    assert!(near(Some(row.total_ns), 2e7) && near(row.tflops, 100.0), "{row:?}");
    let busy = analysis.gpu.busy.as_ref().expect("recorded");
    assert!(near(busy.busy_share(), 1.0) && near(busy.streams_at_once(), 2.0));
}

/// A gap of 20 µs before a kernel that was launched 5 µs after the GPU ran out of work. If the clocks' error is at most
/// 1 µs, the host caused it; with 10 µs this cannot be told.
#[test]
fn gaps_within_the_clocks_error_have_a_class_of_their_own() {
    let mut run = Maker::default();
    let step = run.step(Phase::Decode, 1, None, 0, 1);
    run.kernel(step, "GPU-a", 1, 0, 500, 0);
    run.kernel(step, "GPU-a", 1, 520, 480, 505);
    let with_bound = |ns: Option<u64>| {
        let mut manifest = crate::common::manifest(&run.batch);
        manifest.gpu = Some(candlescope_schema::run::GpuAccount {
            kernels: Some(candlescope_schema::run::KernelAccount { clock_bound_ns: ns, ..Default::default() }),
            ..Default::default()
        });
        let dir = tempfile::tempdir().expect("a directory");
        write_run(dir.path(), &run.batch, &manifest, 1_000);
        let busy = Analysis::of(&Run::open(dir.path()).expect("opens")).gpu.busy?;
        assert_eq!(busy.launch_bound_share().is_none(), ns.is_none());
        Some((busy.host_bound.ns + busy.launch_latency.ns, busy.uncertain.ns, busy.busy_ns))
    };
    assert_eq!(with_bound(Some(1_000)), Some((20_000, 0, 980_000)));
    assert_eq!(with_bound(Some(10_000)), Some((0, 20_000, 980_000)));
    assert_eq!(with_bound(Some(7_330_000_000)), None, "7.33 s void all that holds one clock against the other");
    assert_eq!(with_bound(None), Some((0, 20_000, 980_000)), "of an old run nobody knows what caused a gap");
}

/// Request 1 warms up: a prefill of 2 s, cold. Requests 2 to 4 take 50 ms each for the same 15.15 GFLOP: MFU 30.3 %,
/// 2,560 tokens/s.
fn cold_start(warmup: Option<u64>) -> Analysis {
    let mut run = Maker { options: warmup.map(|n| ("warmup", json!(n))).into_iter().collect(), ..Maker::default() };
    let mut at = 0;
    for (request, ms) in [(1, 2_000), (2, 50), (3, 50), (4, 50)] {
        run.request(request, at, ms + 10);
        let prefill = run.step(Phase::Prefill, 1, Some(request), at, ms);
        run.work(prefill, 15_150_000_000, 1_000_000, 128);
        let decode = run.step(Phase::Decode, 1, Some(request), at + ms, 10);
        run.work(decode, 1_000_000, 5_000_000, 1);
        let us = (at + ms) * 1_000;
        run.kernel(prefill, "GPU-a", 1, at * 1_000, 1_000, at * 1_000);
        run.kernel(decode, "GPU-a", 1, us, if request == 1 { 9_000 } else { 1_000 }, us);
        at += ms + 100;
    }
    run.analysis()
}

#[test]
fn a_cold_start_is_in_no_figure() {
    let analysis = cold_start(Some(1));
    let [prefill, decode] = &analysis.phases.rows[..] else { panic!("{:?}", analysis.phases) };
    assert_eq!((prefill.steps, prefill.total_ns, decode.steps), (3, 150_000_000, 3));
    assert!(near(prefill.tokens_per_s, 2_560.0) && near(prefill.gflops, 303.0));
    assert!(near(prefill.work.intensity(), 15_150.0 / 3.0), "over bytes with activations");
    let used = utilisation(&analysis);
    assert!(near(ratio(&used, "prefill", Metric::Mfu, TimeBase::Wall), 0.303), "{used:?}");
    assert!(near(ratio(&used, "decode", Metric::Mbu, TimeBase::Wall), 0.5));
    // Warm-up is not in operators, tree, flame graph, kernels and the device's time.
    let calls: Vec<_> = analysis.operators.iter().map(|o| (o.path.as_str(), o.calls, o.total_ns)).collect();
    assert_eq!(calls, [("prefill", 3, 150_000_000), ("decode", 3, 30_000_000)]);
    assert_eq!(analysis.tree.total_ns, 180_000_000);
    assert_eq!(candlescope_figures::flame::collapsed(&analysis.tree), ["decode 30000000", "prefill 150000000"]);
    assert_eq!((analysis.kernels.records, analysis.kernels.total_ns), (6, 6_000_000));
    let busy = analysis.gpu.busy.as_ref().expect("recorded");
    assert_eq!((busy.steps, busy.wall_ns, busy.busy_ns), (6, 180_000_000, 6_000_000));
    assert_eq!(analysis.phases.wall_ns, 3 * 60_000_000 + 2 * 90_000_000, "from the second request on");
    // It is listed apart.
    let listed: Vec<_> = analysis.warmup.rows.iter().map(|r| (r.name.as_str(), r.steps, r.total_ns)).collect();
    assert_eq!(listed, [("prefill", 1, 2_000_000_000), ("decode", 1, 10_000_000)]);
    assert_eq!((analysis.warmup.steps(), analysis.warmup.intervals, analysis.warmup.kernels), (2, 2, 2));
    let report = candlescope_report::markdown::report(&analysis);
    assert!(report.contains("### Warm-up") && report.contains("| `prefill` | 1 | 2.00 s |"), "{report}");
}

/// `main`, itself a step, loads for 100 ms, has request 1 warm up for 2,010 ms (a prefill of 2,000 ms), and then
/// requests 2 to 4 for 60 ms each (50 of them prefill), 40 ms apart. Without warm-up that is 400 ms, of which 250 are
/// its own. Its GPU time is that of all prefills, 1 ms each. `turn` changes the order in which intervals are written.
fn main_around_warmup(warmup: bool, turn: fn(&mut Vec<SpanRecord>)) -> Analysis {
    let mut run = Maker { options: vec![("warmup", json!(u64::from(warmup)))], ..Maker::default() };
    let gpu = |at: i64, dur_ns| Some(GpuTime { start: HostNs(T0 + at * MS), dur_ns, source: GpuSource::Cupti });
    let main = run.step(Phase::Prefill, 1, None, 0, 100 + 2_010 + 3 * 100);
    (run.batch.steps[0].phase, run.batch.spans[0].phase, run.batch.spans[0].gpu) = (None, None, gpu(100, 4_000_000));
    run.batch.steps[0].gpu = gpu(100, 4_000_000);
    (run.batch.steps[0].path, run.batch.spans[0].path) = (path("main"), path("main"));
    let mut at = 100;
    let mut entries = Vec::new();
    for (request, ms) in [(1, 2_000), (2, 50), (3, 50), (4, 50)] {
        run.request(request, at, ms + 10);
        let mut entry = span(1_000 + request, Some(main), "request", at * MS, ((ms + 10) * MS) as u64);
        (entry.step, entry.span_id, entry.thread) = (None, SpanId(request), thread(1, "worker-1"));
        entries.push(entry);
        let prefill = run.step(Phase::Prefill, 1, Some(request), at, ms) as usize;
        run.batch.steps[prefill].gpu = gpu(at, 1_000_000);
        let own = run.batch.spans.last_mut().expect("its span");
        (own.parent_seq, own.gpu) = (Some(1_000 + request), gpu(at, 1_000_000));
        at += ms + if request == 1 { 10 } else { 50 };
    }
    run.batch.spans.extend(entries);
    turn(&mut run.batch.spans);
    run.analysis()
}

#[test]
fn warm_up_is_not_in_the_step_around_it() {
    // In order of beginning; in order of end; requests before their steps and these before `main`; and in reverse.
    let orders: [fn(&mut Vec<SpanRecord>); 4] = [
        |spans| spans.sort_by_key(|s| (s.host_start, s.seq != 0, s.step.is_some())),
        |spans| spans.sort_by_key(|s| (s.host_start.plus_ns(s.host_dur_ns), s.seq == 0)),
        |spans| spans.sort_by_key(|s| (s.seq == 0, s.step.is_some(), s.seq)),
        |spans| spans.sort_by_key(|s| (s.seq != 0, s.step.is_none(), s.seq)),
    ];
    for (n, order) in orders.into_iter().enumerate() {
        let analysis = main_around_warmup(true, order);
        let of = |rollup: &str| analysis.intervals.paths.iter().find(|p| p.rollup == rollup).expect("a path");
        let (main, prefill) = (of("main"), of("prefill"));
        assert_eq!((main.calls, main.total_ns, main.self_ns), (1, 400_000_000, 250_000_000), "order {n}");
        assert_eq!((main.min_ns, main.max_ns), (400_000_000, 400_000_000), "order {n}");
        assert_eq!((prefill.total_ns, prefill.parent.as_deref()), (150_000_000, Some("main")), "order {n}");
        assert_eq!(analysis.intervals.outermost_ns, 400_000_000, "order {n}");
        assert_eq!((analysis.intervals.orphans, analysis.intervals.impossible), (0, 0), "order {n}");
        let on_gpu = |path: &PathTotals| {
            let sums = path.gpu.of(GpuSource::Cupti);
            (sums.calls, sums.total_ns, sums.detail_ns - sums.inside_ns)
        };
        assert_eq!((on_gpu(main), on_gpu(prefill)), ((1, 3_000_000, 0), (3, 3_000_000, 3_000_000)), "order {n}");
        let rows: Vec<_> = analysis.phases.rows.iter().map(|r| (r.name.as_str(), r.steps, r.total_ns)).collect();
        assert_eq!(rows, [("prefill", 3, 150_000_000), ("main", 1, 400_000_000)], "order {n}");
        assert!(analysis.phases.rows.iter().all(|row| near(row.steps_at_once, 1.0)), "{:?}", analysis.phases.rows);
        assert_eq!((analysis.phases.wall_ns, analysis.phases.outside_ns()), (400_000_000, Some(0)), "order {n}");
        assert_eq!((analysis.warmup.steps(), analysis.warmup.intervals), (1, 1), "order {n}");
    }
    let with = main_around_warmup(false, orders[1]);
    let main = with.intervals.paths.iter().find(|p| p.rollup == "main").expect("a path");
    assert_eq!((main.total_ns, main.self_ns), (2_410_000_000, 260_000_000), "where everything counts");
}

/// `main` enters request 1, which warms up, and waits 2 s while a worker runs its step of 1.9 s; then its own step of
/// 100 ms.
#[test]
fn warm_up_on_another_thread_is_not_in_the_step_that_waited_for_it() {
    let mut run = Maker { options: vec![("warmup", json!(1))], ..Maker::default() };
    let main = run.step(Phase::Prefill, 1, None, 0, 2_100) as usize;
    (run.batch.steps[main].phase, run.batch.spans[main].phase) = (None, None);
    (run.batch.steps[main].path, run.batch.spans[main].path) = (path("main"), path("main"));
    run.step(Phase::Decode, 2, Some(1), 50, 1_900);
    run.step(Phase::Decode, 1, Some(2), 2_000, 100);
    run.batch.spans[2].parent_seq = Some(0);
    run.request(1, 0, 2_000);
    run.request(2, 2_000, 100);
    let mut entry = span(1_001, Some(0), "request", 0, (2_000 * MS) as u64);
    (entry.step, entry.span_id, entry.thread) = (None, SpanId(1), thread(1, "worker-1"));
    run.batch.spans.push(entry);
    let analysis = run.analysis();
    let main = analysis.intervals.paths.iter().find(|p| p.rollup == "main").expect("a path");
    assert_eq!((main.total_ns, main.self_ns), (100_000_000, 0));
    let rows: Vec<_> = analysis.phases.rows.iter().map(|r| (r.name.as_str(), r.total_ns, r.share)).collect();
    assert_eq!(rows, [("decode", 100_000_000, 1.0), ("main", 100_000_000, 1.0)]);
    assert_eq!(analysis.phases.wall_ns, 100_000_000);
}

/// Request 1 warms up on one thread from 0 to 10 s, request 2 is measured on another from 1 to 11 s, 100 W all the
/// time: 1 kJ for its 100 tokens, in 10 s of wall time. Rates are over the second in which nothing warmed up.
#[test]
fn warm_up_beside_a_measured_request_leaves_its_time_and_energy() {
    let mut run = Maker { options: vec![("warmup", json!(1))], ..Maker::default() };
    run.request(1, 0, 10_000);
    run.request(2, 1_000, 10_000);
    run.step(Phase::Decode, 1, Some(1), 0, 10_000);
    let step = run.step(Phase::Decode, 2, Some(2), 1_000, 10_000);
    run.work(step, 1_000_000, 1_000_000_000, 100);
    for ms in (0..=11_000).step_by(100) {
        for (metric, value) in [("hw_power_watts", 100.0), ("hw_energy_joules_total", 1_000.0 + ms as f64 * 0.1)] {
            run.batch.samples.push(SampleRecord::new(HostNs(T0 + ms * MS), "GPU-a", metric, value, ""));
        }
    }
    let analysis = run.analysis();
    let decode = &analysis.phases.rows[0];
    assert_eq!((decode.steps, decode.total_ns, decode.union_ns), (1, 10_000_000_000, 1_000_000_000));
    assert!(near(decode.tokens_per_s, 10.0) && near(decode.gbytes, 0.1), "{decode:?}");
    assert_eq!((analysis.phases.wall_ns, analysis.phases.in_steps_ns), (10_000_000_000, Some(10_000_000_000)));
    let energy = &analysis.energy.phases[0];
    assert!((energy.energy.joules - 1_000.0).abs() < 15.0 && energy.tokens == Some(100), "{energy:?}");
}

#[test]
fn without_the_option_everything_counts() {
    let analysis = cold_start(None);
    let prefill = &analysis.phases.rows[0];
    assert_eq!((prefill.steps, prefill.total_ns), (4, 2_150_000_000));
    assert_eq!((analysis.warmup.steps(), analysis.warmup.rows.len()), (0, 0));
}

/// Steps 0 to 9 of every 100, two workers: gaps between recorded steps are not time outside steps.
#[test]
fn a_schedule_voids_what_needs_every_step() {
    let mut run = Maker::default();
    run.request(1, 0, 400);
    for window in 0..2i64 {
        for i in 0..10i64 {
            let step = run.step(Phase::Decode, 1 + (i % 2) as u32, Some(1), 200 * window + 5 * (i / 2), 5) as usize;
            let number = (100 * window + i) as u64;
            (run.batch.steps[step].step, run.batch.spans[step].step) = (number, Some(number));
        }
    }
    let analysis = run.analysis();
    assert_eq!((analysis.phases.in_steps_ns, analysis.phases.outside_ns()), (None, None));
    let finding = analysis.verdict.findings.iter().find(|f| f.code == "steps_sampled").expect("said");
    assert!(finding.message().starts_with("90 steps "), "{finding:?}");
    let text = candlescope_report::terminal::summary(&analysis, &Default::default());
    assert!(text.contains("some of its steps were not recorded") && !text.contains("outside steps"), "{text}");
    let all = cold_start(Some(1));
    assert_eq!(all.phases.outside_ns(), Some(180_000_000));
}

/// Two threads decode steps of 4 ms without a break, 2 ms apart: 500 tokens/s and 2 steps at once, whether all of them
/// are recorded or 6 of every 20.
#[test]
fn a_schedule_leaves_rates_as_they_are() {
    let with = |recorded: fn(u64) -> bool| {
        let mut run = Maker::default();
        for i in 0..200i64 {
            let step = run.step(Phase::Decode, 1 + (i % 2) as u32, None, 2 * i, 4);
            run.work(step, 1_000_000, 1_000_000, 1);
        }
        run.batch.steps.retain(|step| recorded(step.step));
        run.batch.spans.retain(|span| span.step.is_some_and(recorded));
        run.analysis()
    };
    for (name, analysis) in [("all", with(|_| true)), ("some", with(|step| step % 20 < 6))] {
        let decode = &analysis.phases.rows[0];
        let near = |value: Option<f64>, truth: f64| value.is_some_and(|value| (value / truth - 1.0).abs() < 0.011);
        assert!(near(decode.tokens_per_s, 500.0) && near(decode.steps_at_once, 2.0), "{name}: {decode:?}");
        let used = utilisation(&analysis);
        assert!(near(ratio(&used, "decode", Metric::Mbu, TimeBase::Wall), 0.5), "{name}: {used:?}");
        // The estimate has an interval: ten windows, all alike except the first.
        let errors = decode.rate_errors.map(|errors| (errors.windows, errors.tokens.is_some_and(|e| e < 0.05)));
        assert_eq!(errors, (name == "some").then_some((10, true)), "{name}: {decode:?}");
        assert_eq!(used[0].error.is_some(), name == "some");
    }
    // One step in 20 says nothing about the steps that ran beside it.
    for alone in [with(|step| step % 20 == 0), with(|step| step % 21 == 0)] {
        let decode = &alone.phases.rows[0];
        assert_eq!((decode.steps, decode.tokens_per_s, decode.steps_at_once), (10, None, None));
        assert!(utilisation(&alone).is_empty(), "no MFU and no MBU");
    }
}

/// Four threads keep a GPU busy in turns, a millisecond each of their steps of 4 ms. Kernels are recorded of five steps
/// in a row: at the ends of that window the GPU works for steps whose kernels are in no table.
#[test]
fn a_window_of_kernels_does_not_count_others_work_as_idle() {
    let mut run = Maker::default();
    for i in 0..100i64 {
        let step = run.step(Phase::Decode, 1 + (i % 4) as u32, None, i, 4);
        if (40..45).contains(&i) {
            run.kernel(step, "GPU-a", 1 + (i % 4) as u32, 1_000 * i, 1_000, 1_000 * i - 3_000);
        }
    }
    let analysis = run.analysis();
    let busy = analysis.gpu.busy.as_ref().expect("recorded");
    assert_eq!((busy.steps, busy.wall_ns, busy.busy_ns), (5, 2_000_000, 2_000_000), "from 43 to 45 ms all is known");
    assert!(near(busy.busy_share(), 1.0) && busy.launch_bound_share().unwrap_or(0.0) < 0.15);
}

/// Ten steps with marks of 1 ms each, inside a request; only the first, cold one has marks on its layer, too, of 0.9
/// ms. The steps' GPU time is 10 ms; that of the layers is not known.
#[test]
fn a_cold_step_keeps_its_own_time_and_says_nothing_of_its_parts() {
    let mut run = Maker::default();
    for i in 0..10i64 {
        let step = run.step(Phase::Decode, 1, None, 5 * i, 5) as usize;
        let gpu = |dur_ns| Some(GpuTime { start: HostNs(T0 + 5 * i * MS), dur_ns, source: GpuSource::Event });
        let mut layer = span(100 + i as u64, Some(i as u64), "decode/layer", 5 * i * MS, 4_000_000);
        (layer.step, layer.depth, layer.gpu) = (Some(i as u64), 2, gpu(900_000).filter(|_| i == 0));
        (run.batch.spans[2 * step].depth, run.batch.spans[2 * step].gpu) = (1, gpu(1_000_000));
        run.batch.spans.push(layer);
    }
    let mut manifest = crate::common::manifest(&run.batch);
    let gpu = candlescope_schema::run::GpuAccount { cold_steps: vec![0], ..Default::default() };
    manifest.gpu = Some(gpu);
    let dir = tempfile::tempdir().expect("a directory");
    write_run(dir.path(), &run.batch, &manifest, 1_000);
    let analysis = Analysis::of(&Run::open(dir.path()).expect("opens"));
    let of = |path: &str| analysis.operators.iter().find(|o| o.path == path).expect("a row").gpu;
    let decode = of("decode").expect("measured");
    assert_eq!((decode.measured, decode.measured_ns), (10, 10_000_000));
    assert!(near(Some(decode.total_ns), 1e7) && of("decode/layer").is_none(), "{decode:?}");
}

/// Kernels that ran before the first step initialise the model: 4 of 5 ms here. They are in no table.
#[test]
fn loading_is_in_no_table_of_kernels() {
    let mut run = Maker::default();
    let step = run.step(Phase::Decode, 1, None, 10, 5);
    run.kernel(step, "GPU-a", 1, 10_000, 1_000, 9_990);
    run.kernel(step, "GPU-a", 1, 1_000, 4_000, 900);
    let loading = run.batch.kernels.last_mut().expect("made");
    (loading.step, loading.seq, loading.path, loading.name) = (None, None, None, "generate_seed_pseudo".into());
    let analysis = run.analysis();
    assert_eq!((analysis.kernels.records, analysis.kernels.total_ns), (1, 1_000_000));
    assert_eq!(analysis.kernels.before_steps, (1, 4_000_000));
    assert!(!codes(&analysis).contains(&"kernels_unattributed"));
}

/// A quantised model on a GPU multiplies 8-bit integers: its FLOPs are compared with that peak, 4 TFLOP/s here, or with
/// none.
#[test]
fn flops_are_held_against_the_type_that_is_multiplied() {
    let mfu = |model: &[(&'static str, Value)], dtype: DType| {
        let mut run = Maker { model: model.to_vec(), ..Maker::default() };
        let step = run.step(Phase::Prefill, 1, None, 0, 10);
        run.work(step, 1_000_000_000, 1_000, 8);
        run.batch.spans[0].dtype = Some(dtype);
        ratio(&utilisation(&run.analysis()), "prefill", Metric::Mfu, TimeBase::Wall)
    };
    assert!(near(mfu(&[], DType::F32), 0.1));
    assert_eq!(mfu(&[("dtype", json!("f32"))], DType::Q4_1), None, "nobody says what is multiplied");
    assert!(near(mfu(&[("compute_dtype", json!("int8"))], DType::Q4_1), 0.025));
    let by_phase = json!({ "prefill": "f32", "decode": "int8" });
    assert!(near(mfu(&[("compute_dtype", by_phase)], DType::Q4_1), 0.1));
    assert_eq!(mfu(&[("compute_dtype", json!({ "decode": "int8" }))], DType::Q4_1), None);
    assert_eq!(mfu(&[("compute_dtype", json!("bf16"))], DType::BF16), None, "this machine has no such peak");
}
