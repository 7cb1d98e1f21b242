//! Why a device was idle: a scripted one, recorded by a session, written to a run and read from it.
#![allow(missing_docs, reason = "a test")]

#[path = "../../sdk/core/tests/scripted/mod.rs"]
mod scripted;

use candlescope_core::{HostNs, RecordKind, Schedule, Session};
use candlescope_exporters::parquet::{ParquetConfig, ParquetExporter};
use candlescope_figures::account::DeviceAccount;
use candlescope_figures::advice::{AdviceCode, RATES};
use candlescope_findings::{AnalyzeOptions, Analyzed, analyze};
use candlescope_predict::simulation::{Change, SimulationOptions, what_if};
use candlescope_reader::Run;
use candlescope_testkit::SOON;
use scripted::{Device, Recorder};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tracing::trace_span;
use tracing_subscriber::prelude::*;

/// A kernel is launched every so many nanoseconds,
const EVERY: i64 = 8_000;
/// by a call that takes so long,
const CALL: i64 = 3_000;
/// and arrives so long after its end.
const LATENCY: i64 = 1_000;
/// Kernels of a step.
const KERNELS: i64 = 60;
const STEPS: usize = 12;

/// Records steps of kernels of `ns` nanoseconds. Of every `of` steps the kernels of one are recorded.
fn recorded(dir: &Path, ns: i64, of: u64) -> Run {
    let mut device = Device::new();
    device.recorder_bound = Some(100);
    let schedule = Schedule { skip_first: 0, wait: of - 1, warmup: 0, active: 1, repeat: u64::MAX };
    let schedule = if of == 1 { Schedule { active: u64::MAX, repeat: 1, ..schedule } } else { schedule };
    let builder = Session::builder().kernels(Recorder(device.clone()), Some(schedule));
    let (layer, session) = builder.exporter(ParquetExporter::new(ParquetConfig::new(dir))).start().unwrap();
    let handle = session.handle().clone();
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        handle.wait_for_kernels(SOON);
        let step = trace_span!("decode", candlescope.phase = "decode");
        // Where windows are asked for, it depends on the machine how soon the recorder is on.
        let is_enough = |n| n >= STEPS * of as usize && (of == 1 || device.enables.load(Ordering::Relaxed) > 5);
        for _ in (0..2_000).take_while(|n| !is_enough(*n)) {
            // Who has slept is not sent away at once by a busy machine's scheduler.
            std::thread::sleep(Duration::from_micros(100));
            let _step = step.enter();
            let begin = HostNs::now().0;
            for at in 0..KERNELS {
                let call = begin + at * EVERY;
                device.launch_at("gemv", (HostNs(call), HostNs(call + CALL)), LATENCY, ns);
            }
            // The last kernel ends within its step.
            while HostNs::now().0 < begin + (KERNELS + 2) * EVERY {
                std::hint::spin_loop();
            }
        }
    });
    session.finish();
    Run::open(dir).unwrap()
}

/// Records until this part of the steps with kernels was not held up for long by other programs: what is asked is not what they do to
/// a step.
fn undisturbed(dir: &Path, ns: i64, of: u64, part: f64) -> Run {
    let scripted = ((KERNELS + 2) * EVERY) as u64;
    for at in 0..200 {
        let dir = dir.join(at.to_string());
        let run = recorded(&dir, ns, of);
        let kernels = run.table(RecordKind::Kernel).flat_map(|batch| batch.kernels);
        let with_kernels: BTreeSet<u64> = kernels.filter_map(|kernel| kernel.step).collect();
        let steps = run.table(RecordKind::Step).flat_map(|batch| batch.steps);
        let mut times: Vec<u64> =
            steps.filter(|step| with_kernels.contains(&step.step)).map(|step| step.host_dur_ns).collect();
        times.sort_unstable();
        let last = (times.len() as f64 * part) as usize - 1;
        if times[last] < scripted + scripted / 4 {
            return run;
        }
    }
    panic!("in each of 200 takes steps were held up by other programs");
}

fn device(analyzed: &Analyzed) -> &DeviceAccount {
    &analyzed.account.as_ref().unwrap().devices[0]
}

/// Whether the launching call begins before the device has run out of work (5 µs) or after (4 µs), the device waits
/// for it.
#[test]
fn a_launch_that_returns_too_late_is_the_hosts_whenever_it_began() {
    for ns in [4_000, 5_000] {
        let dir = tempfile::tempdir().unwrap();
        let run = recorded(dir.path(), ns, 1);
        let analyzed = analyze(&run, &AnalyzeOptions::default());
        let line = device(&analyzed).line.unwrap();
        let gaps = line.gaps;
        let n = STEPS as u64 * (KERNELS as u64 - 1);
        assert_eq!((gaps.host_bound.n, gaps.launch_latency.n, gaps.other.n), (n, n, 0), "{ns}: {gaps:?}");
        let each = |sum: u64| sum as f64 / n as f64;
        assert_eq!(each(gaps.host_bound.ns), (EVERY - ns - LATENCY) as f64, "until the call had returned");
        assert_eq!(each(gaps.launch_latency.ns), LATENCY as f64);

        let busy = analyzed.analysis.gpu.busy.as_ref().unwrap();
        assert_eq!((busy.host_bound, busy.launch_latency), (gaps.host_bound, gaps.launch_latency), "as in the report");
    }
}

/// And the finding says so, where a graph would save that time: it promises what `--what-if graph` does at most, and
/// 7/8 of the device's rate as the middle, as every gain does.
#[test]
fn such_a_device_is_launch_bound() {
    for ns in [4_000, 5_000] {
        let dir = tempfile::tempdir().unwrap();
        // What recording cost is measured on the side, and on a busy machine now and then taken for all of the waiting.
        let found = (0..20).find_map(|at: u8| {
            let run = undisturbed(&dir.path().join(at.to_string()), ns, 1, 0.8);
            let analyzed = analyze(&run, &AnalyzeOptions::default());
            let diagnosis = analyzed.analysis.diagnosis.as_ref().unwrap();
            let found = diagnosis.findings.iter().find(|found| found.code == AdviceCode::LaunchBound)?;
            let (gain, waits) = (found.gain, found.figure("late_at_most").unwrap());
            let (simulated, _) = what_if(&run, &SimulationOptions::default(), &[vec![Change::Graph]]);
            let graph = simulated.steps[0].scenarios[0].outcome.as_ref().unwrap().share_of_step.mid;
            // The waits are a part of all the time, of which the few steps that were held up take more than theirs.
            let summary = candlescope_report::markdown::stakeholder_summary(&analyzed.analysis);
            (waits > 0.8 * graph).then_some((simulated, summary, gain, waits, graph))
        });
        let (simulated, summary, gain, waits, graph) =
            found.unwrap_or_else(|| panic!("{ns}: not one of 20 takes is launch-bound as its script is"));
        let expected = [1.0 - (1.0 - graph) / RATES[1], graph].map(|gain| gain.min(waits));
        assert!(gain.mid > 0.05, "{ns}: {gain:?}, {graph} and {waits}");
        let apart = (gain.mid - expected[0]).abs().max((gain.high - expected[1]).abs());
        assert!(apart < 1e-6, "{ns}: {gain:?} and {expected:?}");
        let told = candlescope_report::what_if::text(&simulated);
        assert!(told.contains("the upper end of what `launch_bound` promises"), "{told}");
        assert!(summary.contains("the GPU waits for the host in"), "it is what limits the run: {summary}");
    }
}

/// Where the kernels of some steps are recorded, the time of the others is neither idle nor a wait.
#[test]
fn steps_between_windows_count_for_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let analyzed = analyze(&undisturbed(dir.path(), 5_000, 2, 1.0), &AnalyzeOptions::default());
    let device = device(&analyzed);
    let (line, trace, stream) = (device.line.unwrap(), device.trace, &device.streams[0]);
    assert!(line.steps >= 3 && trace.windows == line.steps, "{line:?} {trace:?}");
    let own = line.steps * (KERNELS * EVERY) as u64;
    assert!(trace.span_ns < own + own / 10, "{trace:?}");
    assert_eq!(trace.span_ns, trace.busy_ns + trace.idle_ns);
    let late = stream.host_wait.unwrap();
    // But for the first kernels of a step, which only one of them counts where work of the step before still ran.
    assert!(late.n.abs_diff(line.gaps.host_bound.n) <= 2 * line.steps, "{late:?} {line:?}");
    let gaps = line.gaps.host_bound.ns + line.gaps.launch_latency.ns;
    assert!(late.ns.abs_diff(gaps) <= gaps / 20, "{late:?} {line:?}");
    assert!(stream.queue.unwrap().empty_share < 0.9);
}

/// What needs the clocks of both is not known where these are not.
#[test]
fn unknown_clocks_give_no_zeros() {
    let dir = tempfile::tempdir().unwrap();
    recorded(dir.path(), 5_000, 1);
    for bound in [serde_json::Value::Null, 150_000.into(), 7_330_000_000_u64.into()] {
        let file = dir.path().join("run.json");
        let mut manifest: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
        manifest["gpu"]["kernels"]["clock_bound_ns"] = bound.clone();
        std::fs::write(&file, manifest.to_string()).unwrap();
        let analyzed = analyze(&Run::open(dir.path()).unwrap(), &AnalyzeOptions::default());
        let device = device(&analyzed);
        let stream = &device.streams[0];
        assert_eq!((stream.host_wait, stream.kernel_wait, stream.other, stream.queue), (None, None, None, None));
        assert!(device.paths.iter().all(|row| row.late.is_none()), "{bound}");
        assert_eq!(device.launches.unwrap().delay, None);
        let shown = candlescope_report::account::text(analyzed.account.as_ref().unwrap(), 10, &[]);
        assert!(!shown.contains("from its end to the start"), "{shown}");
    }
}
