//! The account of a device's time, against time lines that are worked out by hand, and against the simplest possible
//! implementation.

use crate::common::{T0, kernel, manifest, path, span, step, write_run};
use candlescope_figures::account::{Account, AccountError, AccountOptions, DeviceAccount, account};
use candlescope_figures::gaps::GapSum;
use candlescope_reader::Run;
use candlescope_schema::run::{GpuAccount, KernelAccount};
use candlescope_schema::{Batch, HostNs, KernelKind, KernelRecord};
use candlescope_testkit::scenario::{Scenario, make};
use proptest::prelude::*;

/// What `seq` of thread 1 begins with.
const THREAD: u64 = 1 << 40;

/// Work at `start..end`, launched by a call of 100 ns at `launch`, by `text` in step 0.
fn work(text: &str, start: i64, end: i64, launch: i64, stream: u32) -> KernelRecord {
    candlescope_testkit::with(kernel("GPU", start, (end - start) as u64), |r| {
        r.seq = Some(THREAD + launch.max(0) as u64);
        r.step = Some(0);
        r.path = Some(path(text));
        r.stream = stream;
        r.name = text.rsplit('/').next().unwrap_or(text).into();
        r.launch = Some("cuLaunchKernel");
        r.launch_start = Some(HostNs(T0 + launch));
        r.launch_dur_ns = Some(100);
        r.correlation = start as u32;
    })
}

fn copy(direction: &str, bytes: u64, of: KernelRecord) -> KernelRecord {
    candlescope_testkit::with(of, |r| {
        r.kind = KernelKind::Memcpy;
        r.name = direction.into();
        r.bytes = Some(bytes);
    })
}

fn try_account(batch: &Batch, bound_ns: Option<u64>, options: &AccountOptions) -> Result<Account, AccountError> {
    let dir = tempfile::tempdir().unwrap();
    let mut manifest = manifest(batch);
    let kernels = KernelAccount { clock_bound_ns: bound_ns, ..KernelAccount::default() };
    manifest.gpu = Some(GpuAccount { kernels: Some(kernels), ..GpuAccount::default() });
    write_run(dir.path(), batch, &manifest, 1_000);
    account(&Run::open(dir.path()).unwrap(), options).map(|(account, _)| account)
}

fn device(steps: &[(i64, u64)], kernels: Vec<KernelRecord>, bound_ns: u64) -> DeviceAccount {
    let mut batch = Batch::default();
    batch.steps = steps.iter().enumerate().map(|(n, (at, dur))| step(n as u64, "decode", *at, *dur)).collect();
    batch.spans = vec![span(THREAD, None, "decode", 0, 20_000)];
    batch.kernels = kernels;
    let account = try_account(&batch, Some(bound_ns), &AccountOptions::default()).unwrap();
    assert_eq!(account.devices.len(), 1);
    account.devices.into_iter().next().unwrap()
}

/// Busy 1000–4000, 5000–6000, 6500–7000, 9000–9500 and 12000–13000 of a step of 20,000 ns.
fn by_hand() -> Vec<KernelRecord> {
    vec![
        work("decode/a", 1_000, 3_000, 500, 1),
        // Overlaps on another stream.
        work("decode/b", 2_500, 4_000, 600, 2),
        // Launched 500 ns after the device ran out of work.
        work("decode/a", 5_000, 6_000, 4_500, 1),
        // In the queue; 500 ns after the one before.
        work("decode/b", 6_500, 7_000, 5_000, 1),
        // A copy, launched in time, 2000 ns later; its call returns at 9600, when it has ended.
        candlescope_testkit::with(copy("dtoh", 1_000, work("decode/c", 9_000, 9_500, 6_000, 1)), |r| {
            r.launch_dur_ns = Some(3_600);
        }),
        // The host waited for the copy, and went on.
        work("decode/a", 12_000, 13_000, 11_000, 1),
    ]
}

#[test]
fn a_rate_is_of_copies_whose_bytes_are_known() {
    let known = copy("htod", 1_000, work("decode/a", 1_000, 1_500, 500, 1));
    let unknown =
        candlescope_testkit::with(copy("htod", 0, work("decode/a", 2_000, 4_000, 600, 1)), |r| r.bytes = None);
    let copies = device(&[(0, 10_000)], vec![known, unknown], 0).copies;
    assert_eq!((copies[0].count, copies[0].bytes, copies[0].merged_ns), (2, Some(1_000), 2_500));
    assert_eq!(copies[0].rate.map(|rate| rate.overall), Some(2.0), "1,000 bytes in 500 ns");
}

#[test]
fn a_time_line_by_hand() {
    let device = device(&[(0, 20_000)], by_hand(), 0);
    let line = device.line.unwrap();
    assert_eq!((line.steps, line.wall_ns, line.busy_ns, line.idle_ns, line.edges_ns), (1, 20_000, 6_000, 6_000, 8_000));
    assert_eq!(line.gaps.host_bound, GapSum { n: 1, ns: 600 }, "until the call had returned");
    assert_eq!(line.gaps.launch_latency, GapSum { n: 2, ns: 400 + 900 });
    assert_eq!(line.gaps.launch_overhead, GapSum { n: 1, ns: 500 });
    assert_eq!(line.gaps.copy, GapSum { n: 1, ns: 2_000 }, "launched in time, before a copy");
    assert_eq!(line.gaps.sync, GapSum { n: 1, ns: 1_600 }, "after a copy that the host had waited for");
    assert_eq!((line.gaps.other, line.gaps.uncertain), (GapSum::default(), GapSum::default()));
    assert_eq!(line.streams_ns, 6_500, "stream 2 is at work for 500 ns beside stream 1");
    assert_eq!(device.phases.len(), 1);
    assert_eq!((device.phases[0].name.as_str(), device.phases[0].line), ("decode", line));

    let trace = device.trace;
    assert_eq!((trace.span_ns, trace.busy_ns, trace.idle_ns), (12_000, 6_000, 6_000));
    assert_eq!(
        (trace.compute_ns, trace.memory_ns, trace.non_compute_ns, trace.compute_and_memory_ns),
        (5_500, 500, 500, 0)
    );

    let [one, two] = &device.streams[..] else { panic!("{:?}", device.streams) };
    assert_eq!((one.stream, one.records, one.busy_ns, two.stream, two.records), (1, 5, 5_000, 2, 1));
    // 3000–5000 (launched at 4500), 9500–12000 (at 11000); 6000–6500; 7000–9000.
    assert_eq!(
        (one.host_wait, one.kernel_wait, one.other),
        (Some(GapSum { n: 2, ns: 4_500 }), Some(GapSum { n: 1, ns: 500 }), Some(GapSum { n: 1, ns: 2_000 }),)
    );
    // Stream 1: launches 500, 4500, 5000, 6000, 11000; starts 1000, 5000, 6500, 9000, 12000. At 5000 one is launched first.
    let queue = one.queue.unwrap();
    assert_eq!((queue.at_changes.n, queue.at_changes.max, queue.at_changes.min), (10, 2.0, 0.0));
    let held = 500 + 500 + 1_500 + 500 + 2_500 + 1_000;
    assert!((queue.mean_over_time - f64::from(held) / 11_500.0).abs() < 1e-9, "{queue:?}");
    assert!((queue.empty_share - f64::from(11_500 - 6_000) / 11_500.0).abs() < 1e-9, "{queue:?}");

    let dtoh = &device.copies[0];
    assert_eq!((dtoh.count, dtoh.bytes, dtoh.merged_ns, dtoh.exposed_ns), (1, Some(1_000), 500, 500));
    assert_eq!(dtoh.rate.map(|rate| (rate.overall, rate.each.n, rate.each.p50)), Some((2.0, 1, 2.0)));
    let launches = device.launches.unwrap();
    assert_eq!((launches.call.n, launches.call.total, launches.delay.unwrap().max), (6, 4_100.0, 1_800.0));
    assert_eq!(launches.delay.unwrap().min, 0.0, "the copy began before its call returned");
    assert_eq!(launches.shorter_than_their_call, 1, "the copy");
}

#[test]
fn places_have_their_work_and_the_gaps_before_it() {
    let device = device(&[(0, 20_000)], by_hand(), 0);
    let rows: Vec<_> = device
        .paths
        .iter()
        .map(|row| (row.place.as_deref(), row.kernels, row.copies, row.total_ns, row.late.unwrap().ns))
        .collect();
    assert_eq!(
        rows,
        [(Some("decode/a"), 3, 0, 4_000, 3_500), (Some("decode/b"), 2, 0, 2_000, 0), (Some("decode/c"), 0, 1, 500, 0),]
    );
    let a = &device.kernels[0];
    assert_eq!((a.name.as_str(), a.count, a.total_ns, a.min_ns, a.max_ns), ("a", 3, 4_000, 1_000, 2_000));
    assert!((a.stddev_ns.unwrap() - 577.350_269).abs() < 1e-6 && (a.share - 4_000.0 / 6_500.0).abs() < 1e-12);
}

#[test]
fn clocks_that_are_apart_judge_no_gap() {
    let line = device(&[(0, 20_000)], by_hand(), 600).line.unwrap();
    assert_eq!((line.gaps.host_bound.n, line.gaps.uncertain), (0, GapSum { n: 1, ns: 1_000 }));
    assert_eq!(line.gaps.sync.ns, 1_600, "1600 ns late is late");
    let mut batch = Batch::default();
    batch.steps = vec![step(0, "decode", 0, 20_000)];
    batch.kernels = by_hand();
    let unknown = try_account(&batch, None, &AccountOptions::default()).unwrap();
    let line = unknown.devices[0].line.unwrap();
    assert_eq!(line.gaps.ns(), line.gaps.uncertain.ns, "every gap may be within an unknown error");
    assert!(unknown.absent.iter().any(|absent| absent.what == "classes of gaps"));
    let apart = try_account(&batch, Some(1_000_000), &AccountOptions::default()).unwrap();
    assert_eq!((apart.devices[0].line, apart.devices[0].trace.busy_ns), (None, 6_000));
    let options = AccountOptions::default().overhead_ns(500);
    let line = try_account(&batch, Some(0), &options).unwrap().devices[0].line.unwrap();
    assert_eq!((line.gaps.launch_overhead.n, line.gaps.other.ns), (0, 500), "500 ns is not under 500 ns");
}

#[test]
fn steps_that_overlap_count_once_and_what_runs_between_them_is_nobodys() {
    let mut kernels = vec![work("decode/a", 100, 400, 10, 1), work("decode/a", 1_200, 1_400, 1_100, 1)];
    kernels[1].step = Some(1);
    let line = device(&[(0, 1_000), (500, 1_000)], kernels, 0).line.unwrap();
    assert_eq!((line.steps, line.wall_ns, line.busy_ns), (2, 1_500, 500));
    assert_eq!((line.gaps.host_bound.n, line.gaps.host_bound.ns + line.gaps.launch_latency.ns), (1, 800));
    assert_eq!(line.edges_ns, 100 + 100);
}

#[test]
fn the_critical_path_by_hand() {
    // The host begins at 0; the device catches up with the host until the queue is full, and the step ends with a copy
    // that the host waits for: its call lasts from 400 to 10,100, the copy from 9,000 to 10,000.
    let kernels = vec![
        work("decode/a", 1_000, 5_000, 100, 1),
        work("decode/b", 5_200, 8_900, 250, 1),
        candlescope_testkit::with(copy("dtoh", 4, work("decode/c", 9_000, 10_000, 400, 1)), |r| {
            r.launch_dur_ns = Some(9_700);
        }),
    ];
    let path = device(&[(0, 10_300)], kernels, 0).critical_path.unwrap();
    let parts = path.parts;
    assert_eq!((path.steps, path.total_ns, parts.total_ns()), (1, 10_300, 10_300));
    assert_eq!((parts.kernels_ns, parts.copies_ns), (7_700, 1_000));
    assert_eq!(parts.queue_ns, 100 + 200, "before the copy, and before b");
    assert_eq!((parts.launch_delay_ns, parts.launch_calls_ns), (800, 100), "of a");
    assert_eq!((parts.host_ns, parts.wake_up_ns), (100 + 200, 100), "before a's launch, and after the copy's call");
    let host = |place: Option<&str>| {
        let (_, part) = path.by_path.iter().find(|(at, _)| at.as_deref() == place).expect("the place is on the path");
        part.host_ns
    };
    assert_eq!(
        (host(Some("decode/a")), host(Some("decode"))),
        (100, 200),
        "the way to a's launch is a's, the end the step's"
    );
}

/// The host prepares for 5000 ns before it launches anything, and waits for nothing.
#[test]
fn the_way_to_the_first_launch_is_the_hosts() {
    let first = || work("decode/a", 5_200, 6_000, 5_000, 1);
    let parts = |kernels: Vec<KernelRecord>, end| {
        let path = device(&[(0, end)], kernels, 0).critical_path.unwrap();
        assert_eq!(path.parts.total_ns(), path.total_ns, "each nanosecond has one reason");
        (path.parts.host_ns, path.parts.launch_calls_ns, path.parts.launch_delay_ns, path.parts.kernels_ns)
    };
    assert_eq!(parts(vec![first()], 5_500), (5_000, 100, 100, 800), "the device ends after the host");
    assert_eq!(parts(vec![first()], 7_000), (5_000 + 1_900, 100, 0, 0), "the host ends after the device");
    // Launched before the step began: no way to it is left.
    assert_eq!(parts(vec![work("decode/a", 200, 900, -300, 1)], 500), (0, 0, 200, 700));
    // The first two calls, of which the second is waited for.
    let second = work("decode/b", 6_000, 9_000, 5_300, 1);
    assert_eq!(parts(vec![first(), second], 8_000), (5_000, 100, 100, 800 + 3_000));
}

#[test]
fn sequences_that_repeat_are_found_at_every_depth() {
    let mut kernels = Vec::new();
    for layer in 0..3 {
        for (at, name) in ["norm", "gemm", "gemm"].iter().enumerate() {
            let start = 1_000 * (3 * layer + at as i64) + 1_000;
            let text = format!("decode/block[{layer}]/{}", if at == 0 { "norm" } else { "mlp" });
            kernels.push(candlescope_testkit::with(work(&text, start, start + 100, start - 500, 1), |r| {
                r.name = (*name).into();
            }));
        }
    }
    let device = device(&[(0, 20_000)], kernels, 0);
    let found: Vec<_> = device
        .sequences
        .iter()
        .map(|row| (row.path.as_str(), row.kernels.join(" "), row.count, row.total_ns))
        .collect();
    assert_eq!(
        found,
        [("decode/block", "norm gemm gemm".to_string(), 3, 900), ("decode/block/mlp", "gemm gemm".to_string(), 3, 600),]
    );
}

#[test]
fn runs_without_kernels_are_refused_by_name() {
    let mut batch = Batch::default();
    batch.steps = vec![step(0, "decode", 0, 20_000)];
    let error = try_account(&batch, Some(0), &AccountOptions::default()).unwrap_err();
    assert!(matches!(error, AccountError::NoKernels(_)) && error.to_string().contains("--cupti"), "{error}");
    // Without launch calls, nothing is said about the host.
    batch.kernels = by_hand()
        .into_iter()
        .map(|kernel| {
            candlescope_testkit::with(kernel, |r| {
                r.launch = None;
                r.launch_start = None;
                r.launch_dur_ns = None;
            })
        })
        .collect();
    let account = try_account(&batch, Some(0), &AccountOptions::default()).unwrap();
    let device = &account.devices[0];
    assert_eq!((device.launches, device.critical_path.as_ref(), device.streams[0].queue), (None, None, None));
    assert!(account.absent.iter().any(|absent| absent.what.contains("host-bound")));
}

/// The account and the report use the same rules where both have a figure.
#[test]
fn the_report_agrees() {
    let (batch, manifest) = make(&Scenario::on_gpu());
    let dir = tempfile::tempdir().unwrap();
    write_run(dir.path(), &batch, &manifest, 5_000);
    let run = Run::open(dir.path()).unwrap();
    let (account, seen) = account(&run, &AccountOptions::default()).unwrap();
    assert!(seen.is_empty(), "{seen:?}");
    let (line, busy) = (account.devices[0].line.unwrap(), candlescope_figures::Analysis::of(&run).gpu.busy.unwrap());
    assert_eq!((line.steps, line.wall_ns, line.busy_ns), (busy.steps, busy.wall_ns, busy.busy_ns));
    assert_eq!((line.open_ns, line.streams_ns, line.edges_ns), (busy.open_ns, busy.streams_ns, busy.unattributed_ns));
    assert_eq!(line.gaps.host_bound.ns + line.gaps.sync.ns, busy.host_bound.ns);
    assert_eq!(line.gaps.other.ns + line.gaps.copy.ns, busy.other.ns);
    assert_eq!((line.gaps.launch_overhead, line.gaps.uncertain), (busy.launch_overhead, busy.uncertain));
    assert_eq!(line.gaps.launch_latency, busy.launch_latency);
    let json = serde_json::to_value(account.top(3)).unwrap();
    assert_eq!(json["devices"][0]["kernels"].as_array().map(Vec::len), Some(3));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Compares with the simplest implementation: flags for every nanosecond.
    #[test]
    fn time_is_conserved(
        list in prop::collection::vec((0i64..3_000, 1i64..400, 0i64..3_000, 1u32..4, any::<bool>()), 1..40),
        steps in prop::collection::vec((0i64..3_000, 1u64..900), 1..4),
    ) {
        let kernels: Vec<KernelRecord> = list.iter().map(|&(start, dur, launch, stream, copies)| {
            let made = work("decode/a", start, start + dur, launch, stream);
            if copies { copy("htod", 8, made) } else { made }
        }).collect();
        let device = device(&steps[..1], kernels, 0);
        let (line, window) = (device.line.unwrap(), steps[0].0..steps[0].0 + steps[0].1 as i64);
        let at_work = |which: &dyn Fn(u32, bool) -> bool, at: i64| {
            list.iter().any(|&(start, dur, _, stream, copies)| which(stream, copies) && (start..start + dur).contains(&at))
        };
        let count = |which: &dyn Fn(u32, bool) -> bool| (0..3_400).filter(|at| at_work(which, *at)).count() as u64;
        let all = |_: u32, _: bool| true;
        prop_assert_eq!(line.busy_ns, window.clone().filter(|at| at_work(&all, *at)).count() as u64);
        prop_assert_eq!(line.busy_ns + line.gaps.ns() + line.edges_ns, line.wall_ns);
        prop_assert_eq!(device.trace.busy_ns, count(&all));
        prop_assert_eq!(device.trace.compute_ns, count(&|_, copies| !copies));
        prop_assert_eq!(device.trace.memory_ns, count(&|_, copies| copies));
        prop_assert_eq!(device.trace.busy_ns + device.trace.idle_ns, device.trace.span_ns);
        let exposed: u64 = device.copies.iter().map(|row| row.exposed_ns).sum();
        prop_assert_eq!(exposed, device.trace.busy_ns - device.trace.compute_ns);
        for stream in &device.streams {
            prop_assert_eq!(stream.busy_ns, count(&|number, _| number == stream.stream));
        }
        if let Some(path) = &device.critical_path {
            prop_assert_eq!(path.parts.total_ns(), path.total_ns, "each nanosecond has one reason");
            let places: u64 = path.by_path.iter().map(|(_, part)| part.total_ns()).sum();
            prop_assert_eq!(places, path.total_ns);
        }
        let total: u64 = device.kernels.iter().map(|row| row.total_ns).sum();
        prop_assert_eq!(device.paths.iter().map(|row| row.total_ns).sum::<u64>(), total);
    }
}
