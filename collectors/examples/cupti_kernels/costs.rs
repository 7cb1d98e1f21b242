//! What recording costs: steps of small kernels, as a decode step of a small model has them.

use crate::sys::{Gpu, Kernel, PER_THREAD};
use candlescope_core::gpu::{Activity, ActivitySink, Correlator};
use candlescope_core::{HostNs, SpanId};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

pub(crate) fn ms(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}

/// Kernels that end at once, so that the thread that launches is what limits; and such that the device is.
const KERNEL_NS: [u32; 2] = [0, 4_000];

/// Medians over `steps` steps, of the launches alone and of the whole step. An interval is open around every two launches.
pub(crate) fn steps(
    gpu: &Gpu,
    correlator: Option<&dyn Correlator>,
    steps: u32,
    launches: u32,
) -> Result<Value, String> {
    let mut report = serde_json::Map::new();
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
            let launched = ms(began);
            gpu.synchronize(PER_THREAD)?;
            // The first few pay for what is made on first use.
            if step >= 5 {
                launching.push(launched);
                whole.push(ms(began));
            }
        }
        let launch_ns = median(&mut launching) * 1e6 / f64::from(launches);
        report.insert(
            format!("kernels_of_{ns}_ns"),
            json!({ "step_ms": median(&mut whole), "ns_per_launch": launch_ns }),
        );
    }
    Ok(Value::Object(report))
}

/// Steps with a prepared recorder: idle, in two windows, and idle again.
pub(crate) fn windows(gpu: &Gpu, recorder: &mut dyn Activity, count: u32, launches: u32) -> Result<Value, String> {
    let text = |e: candlescope_core::gpu::ActivityError| e.to_string();
    let correlator = recorder.correlator();
    let prepared = steps(gpu, None, count, launches)?;
    let mut windows = Vec::new();
    for _ in 0..2 {
        let began = Instant::now();
        recorder.enable().map_err(text)?;
        let enable_ms = ms(began);
        let mut sink = ActivitySink::default();
        let (recorded, deliveries) =
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
        let launched = KERNEL_NS.len() * (count as usize + 5) * launches as usize;
        windows.push(json!({
            "enable_ms": enable_ms,
            "recorded": recorded,
            "deliveries": deliveries,
            "collect_ms": collect_ms,
            "disable_ms": disable_ms,
            "collect_all_ms": ms(began),
            "kernels_launched": launched,
            "kernels_by_first_collect": in_first,
            "kernels_delivered": sink.kernels.len(),
            "with_interval": sink.kernels.iter().filter(|k| k.span.is_some()).count(),
            "dropped": sink.dropped,
        }));
    }
    let idle = steps(gpu, None, count, launches)?;
    Ok(json!({ "prepared": prepared, "windows": windows, "disabled": idle }))
}

/// Does `work` while a thread takes deliveries ten times a second, as a session does. Also how long each of these took, in ms.
fn while_collecting(
    recorder: &mut dyn Activity,
    sink: &mut ActivitySink,
    work: impl FnOnce() -> Result<Value, String>,
) -> Result<(Value, Vec<f64>), String> {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let collector = scope.spawn(|| {
            let mut took = Vec::new();
            while !done.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(100));
                let began = Instant::now();
                recorder.collect(false, &HostNs::now, sink).map_err(|e| e.to_string())?;
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

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
