//! What recording costs: steps of small kernels, as a decode step of a small model has them, in and out of windows.

use crate::sys::{CANDLE_PARTS, Gpu, Kernel, PER_THREAD};
use candlescope_core::gpu::{Activity, ActivityError, ActivitySink, Correlator};
use candlescope_core::{HostNs, SpanId};
use serde_json::{Map, Value, json};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Windows for each way to record: one, and two more for which CUPTI is attached again.
const WINDOWS: u64 = 3;

/// Allocations, launches and frees per step, as candle makes them for one token of a small model.
const CANDLE_KERNELS: u32 = 700;

pub(crate) fn ms(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}

fn text(error: ActivityError) -> String {
    error.to_string()
}

/// Kernels that end at once, so that the launching thread is the bottleneck, and kernels with which the device is.
const KERNEL_NS: [u32; 2] = [0, 4_000];

/// Medians over `steps` steps, of the launches alone and of the whole step. An interval is open around every two
/// launches. Also how many kernels were launched.
pub(crate) fn steps(
    gpu: &Gpu,
    correlator: Option<&dyn Correlator>,
    steps: u32,
    launches: u32,
) -> Result<(Value, usize), String> {
    let mut report = Map::new();
    let mut launched = 0;
    for ns in KERNEL_NS {
        let (mut launching, mut whole) = (Vec::new(), Vec::new());
        for step in 0..steps + 5 {
            let began = Instant::now();
            for n in 0..launches {
                if n % 2 == 0 {
                    correlator.into_iter().for_each(|c| c.push(SpanId(u64::from(n) + 1)));
                }
                gpu.launch(Kernel::Long, PER_THREAD, 1, ns)?;
                if n % 2 == 1 || n + 1 == launches {
                    correlator.into_iter().for_each(|c| c.pop());
                }
            }
            launched += launches as usize;
            let took = ms(began);
            gpu.synchronize(PER_THREAD)?;
            // The first few steps pay for what is made on first use.
            if step >= 5 {
                launching.push(took);
                whole.push(ms(began));
            }
        }
        let launch_ns = median(&mut launching) * 1e6 / f64::from(launches);
        report.insert(
            format!("kernels_of_{ns}_ns"),
            json!({ "step_ms": median(&mut whole), "ns_per_launch": launch_ns }),
        );
    }
    let (candle, more) = as_candle(gpu, correlator, steps)?;
    report.insert("as_candle".to_string(), candle);
    Ok((Value::Object(report), launched + more))
}

/// Steps with the calls that candle makes around each launch: nanoseconds of each call, as a median over steps.
fn as_candle(gpu: &Gpu, correlator: Option<&dyn Correlator>, steps: u32) -> Result<(Value, usize), String> {
    let mut parts: [Vec<f64>; 6] = Default::default();
    let mut whole = Vec::new();
    for step in 0..steps + 5 {
        let mut took = [Duration::ZERO; 6];
        let began = Instant::now();
        for n in 0..CANDLE_KERNELS {
            correlator.into_iter().for_each(|c| c.push(SpanId(u64::from(n) + 1)));
            gpu.launch_as_candle_does(PER_THREAD, 1_000, &mut took)?;
            correlator.into_iter().for_each(|c| c.pop());
        }
        gpu.synchronize(PER_THREAD)?;
        if step >= 5 {
            whole.push(ms(began));
            for ((values, took), (_, calls)) in parts.iter_mut().zip(took).zip(CANDLE_PARTS) {
                values.push(took.as_nanos() as f64 / f64::from(CANDLE_KERNELS * calls));
            }
        }
    }
    let calls: Map<String, Value> = CANDLE_PARTS
        .iter()
        .zip(&mut parts)
        .map(|((name, _), values)| (name.to_string(), median(values).into()))
        .collect();
    let launched = ((steps + 5) * CANDLE_KERNELS) as usize;
    Ok((json!({ "kernels": CANDLE_KERNELS, "step_ms": median(&mut whole), "ns_per_call": calls }), launched))
}

/// Steps before, in, between and after windows. `recorder` is prepared; in between CUPTI should be gone, and cost
/// nothing.
pub(crate) fn windows(
    gpu: &Gpu,
    recorder: &mut dyn Activity,
    attributes: bool,
    count: u32,
    launches: u32,
    failures: &mut Vec<String>,
) -> Result<Value, String> {
    let correlator = recorder.correlator();
    let (prepared, _) = steps(gpu, None, count, launches)?;
    let mut windows = Vec::new();
    for window in 1..=WINDOWS {
        let began = Instant::now();
        recorder.enable().map_err(text)?;
        let enable_ms = ms(began);
        let mut sink = ActivitySink::default();
        let ((recorded, launched), deliveries) =
            while_collecting(recorder, &mut sink, || steps(gpu, Some(&*correlator), count, launches))?;
        let began = Instant::now();
        recorder.collect(false, &HostNs::now, &mut sink).map_err(text)?;
        let collect_ms = ms(began);
        let in_first = sink.kernels.len();
        let began = Instant::now();
        recorder.disable().map_err(text)?;
        let disable_ms = ms(began);
        let began = Instant::now();
        recorder.collect(true, &HostNs::now, &mut sink).map_err(text)?;
        let collect_all_ms = ms(began);
        let began = Instant::now();
        recorder.release().map_err(text)?;
        let release_ms = ms(began);
        let with = sink.kernels.iter().filter(|k| k.span.is_some() && k.launch.is_some()).count();
        let expected = if attributes { launched } else { 0 };
        if (sink.kernels.len(), with) != (launched, expected) {
            let delivered = sink.kernels.len();
            failures.push(format!("window {window}: {launched} launched, {delivered} delivered, {with} attributed"));
        }
        let began = Instant::now();
        gpu.launch(Kernel::Long, PER_THREAD, 1, 0)?;
        let first_launch_ms = ms(began);
        let correlations = sink.kernels.iter().map(|k| k.correlation);
        let (first, last) = (correlations.clone().min(), correlations.max());
        let (afterwards, _) = steps(gpu, None, count, launches)?;
        windows.push(json!({
            "enable_ms": enable_ms,
            "recorded": recorded,
            "deliveries_longest_ms": deliveries.iter().copied().fold(0.0, f64::max),
            "collect_ms": collect_ms,
            "disable_ms": disable_ms,
            "collect_all_ms": collect_all_ms,
            "release_ms": release_ms,
            "launch_that_detaches_ms": first_launch_ms,
            "kernels_launched": launched,
            "kernels_by_first_collect": in_first,
            "kernels_delivered": sink.kernels.len(),
            "attributed": with,
            "dropped": sink.dropped,
            "correlations": [first, last],
            "afterwards": afterwards,
            "resident_mb": resident_mb(),
        }));
    }
    Ok(json!({ "prepared": prepared, "windows": windows }))
}

/// Windows that open and close while another thread launches without pause, as they do in a program: how long the
/// longest single launch took around each switch, and whether what was launched inside of windows was recorded with its
/// interval.
pub(crate) fn switching(
    gpu: &Gpu,
    recorder: &mut dyn Activity,
    windows: u32,
    failures: &mut Vec<String>,
) -> Result<Value, String> {
    let correlator = recorder.correlator();
    let (done, open) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        // Every launch with its start and duration in nanoseconds, and whether a window was known to be open around it.
        let launching = scope.spawn(|| -> Result<Vec<(i64, i64, bool)>, String> {
            gpu.use_here()?;
            let mut launches = Vec::with_capacity(1 << 20);
            while !done.load(Ordering::Relaxed) {
                let inside = open.load(Ordering::SeqCst);
                if inside {
                    correlator.push(SpanId(5));
                }
                for _ in 0..50 {
                    let began = HostNs::now();
                    gpu.launch(Kernel::Long, PER_THREAD, 1, 0)?;
                    launches.push((began.0, HostNs::now().0 - began.0, inside));
                }
                if inside {
                    correlator.pop();
                }
                gpu.synchronize(PER_THREAD)?;
            }
            Ok(launches)
        });
        let mut marks: Vec<[i64; 5]> = Vec::new();
        let mut resident = Vec::new();
        let mut sink = ActivitySink::default();
        let outcome = (|| {
            std::thread::sleep(Duration::from_millis(100));
            for _ in 0..windows {
                let before = HostNs::now().0;
                recorder.enable().map_err(text)?;
                let enabled = HostNs::now().0;
                open.store(true, Ordering::SeqCst);
                std::thread::sleep(Duration::from_millis(30));
                open.store(false, Ordering::SeqCst);
                // Launches that begin inside the window also end inside it.
                std::thread::sleep(Duration::from_millis(10));
                let closing = HostNs::now().0;
                recorder.disable().map_err(text)?;
                recorder.collect(true, &HostNs::now, &mut sink).map_err(text)?;
                recorder.release().map_err(text)?;
                let released = HostNs::now().0;
                std::thread::sleep(Duration::from_millis(60));
                marks.push([before, enabled, closing, released, HostNs::now().0]);
                resident.push(resident_mb());
            }
            Ok::<(), String>(())
        })();
        done.store(true, Ordering::Relaxed);
        let launches = launching.join().map_err(|_| "the launching thread panicked".to_string())??;
        outcome?;
        let inside = launches.iter().filter(|(.., inside)| *inside).count();
        let with = sink.kernels.iter().filter(|k| k.span == Some(SpanId(5)) && k.launch.is_some()).count();
        if inside != with || sink.dropped > 0 {
            failures.push(format!("switching: {inside} in intervals, {with} attributed, {} dropped", sink.dropped));
        }
        let longest = |from: i64, to: i64| {
            let within = launches.iter().filter(|(start, dur, _)| start + dur >= from && *start <= to);
            within.map(|(_, dur, _)| *dur).max().unwrap_or(0) as f64 / 1e6
        };
        let typical = |from: i64, to: i64| {
            let within = launches.iter().filter(|(start, dur, _)| *start >= from && start + dur <= to);
            median(&mut within.map(|(_, dur, _)| *dur as f64).collect::<Vec<_>>())
        };
        let each: Vec<Value> = marks
            .iter()
            .map(|[before, enabled, closing, released, after]| {
                json!({
                    "enable_ms": (enabled - before) as f64 / 1e6,
                    "longest_launch_ms": {
                        "enable": longest(*before, *enabled), "window": longest(*enabled, *closing),
                        "disable_and_collect": longest(*closing, *released), "detached": longest(*released, *after),
                    },
                    "median_launch_ns": { "window": typical(*enabled, *closing), "detached": typical(released + 30_000_000, *after) },
                })
            })
            .collect();
        let first = marks.first().map_or(0, |mark| mark[0]);
        Ok(json!({
            "launches": launches.len(),
            "launched_in_intervals": inside,
            "attributed": with,
            "median_launch_ns_before": typical(first - 50_000_000, first),
            "windows": each,
            "resident_mb": resident,
        }))
    })
}

/// Does `work` while a thread takes deliveries ten times a second, as a session does. Also how long each of these took,
/// in ms.
fn while_collecting<T>(
    recorder: &mut dyn Activity,
    sink: &mut ActivitySink,
    work: impl FnOnce() -> Result<T, String>,
) -> Result<(T, Vec<f64>), String> {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let collector = scope.spawn(|| {
            let mut took = Vec::new();
            while !done.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(100));
                let began = Instant::now();
                recorder.collect(false, &HostNs::now, sink).map_err(text)?;
                took.push(ms(began));
            }
            Ok(took)
        });
        let outcome = work();
        done.store(true, Ordering::Relaxed);
        let took: Result<Vec<f64>, String> =
            collector.join().map_err(|_| "the collecting thread panicked".to_string())?;
        Ok((outcome?, took?))
    })
}

/// Memory of this process, to see whether windows leave some behind.
fn resident_mb() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let kilobytes = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?.split_whitespace().next()?;
    Some(kilobytes.parse::<f64>().ok()? / 1024.0)
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
