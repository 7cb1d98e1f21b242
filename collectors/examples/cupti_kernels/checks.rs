//! Checks that everything that was launched was recorded correctly.

use crate::sys::{Blas, Gpu, Kernel, PER_THREAD};
use candlescope_core::gpu::{Activity, ActivityError, ActivitySink, Correlator, RawKernel};
use candlescope_core::{HostNs, KernelKind, SpanId};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

const ROUNDS: u64 = 200;
const THREADS: u64 = 2;

/// How far apart two clocks of one machine may be when one is mapped to the other.
const SLACK_NS: i64 = 50_000;

pub(crate) struct Check<'a> {
    gpu: &'a Gpu,
    recorder: &'a mut dyn Activity,
    name: String,
    pub(crate) failures: Vec<String>,
}

/// A round's ids: thread, round, depth from 1.
fn id(thread: u64, round: u64, depth: u64) -> SpanId {
    SpanId((thread + 1) << 40 | (round + 1) << 8 | depth)
}

/// What an interval launched: kernel names, copies and memsets, with how often.
type Counts = BTreeMap<(u64, String), usize>;

impl<'a> Check<'a> {
    pub(crate) fn new(gpu: &'a Gpu, recorder: &'a mut dyn Activity, name: String) -> Self {
        Self { gpu, recorder, name, failures: Vec::new() }
    }

    pub(crate) fn all(&mut self) -> Result<Value, String> {
        Ok(json!({
            "nested": self.nested()?,
            "graph": self.graph()?,
            "in_flight": self.in_flight()?,
            "cublas": self.cublas()?,
        }))
    }

    fn expect(&mut self, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            self.failures.push(format!("{}: {}", self.name, what()));
        }
    }

    fn enable(&mut self) -> Result<(), String> {
        self.recorder.enable().map_err(|e| e.to_string())
    }

    /// Ends the window and takes everything.
    fn finish(&mut self, sink: &mut ActivitySink) -> Result<(), String> {
        let text = |e: ActivityError| e.to_string();
        self.recorder.disable().map_err(text)?;
        self.gpu.synchronize_all()?;
        self.recorder.collect(true, &HostNs::now, sink).map_err(text)?;
        self.recorder.release().map_err(text)
    }

    /// Two threads, three intervals deep, while deliveries go on.
    fn nested(&mut self) -> Result<Value, String> {
        self.enable()?;
        let (gpu, correlator) = (self.gpu, self.recorder.correlator());
        let mut sink = ActivitySink::default();
        let mut rounds = Vec::new();
        let mut deliveries = 0;
        let recorder = &mut *self.recorder;
        std::thread::scope(|scope| -> Result<(), String> {
            let threads: Vec<_> = (0..THREADS)
                .map(|thread| {
                    let correlator = &*correlator;
                    scope.spawn(move || {
                        (0..ROUNDS).map(|r| round(gpu, correlator, thread, r)).collect::<Result<Vec<_>, _>>()
                    })
                })
                .collect();
            while threads.iter().any(|thread| !thread.is_finished()) {
                recorder.collect(false, &HostNs::now, &mut sink).map_err(|e| e.to_string())?;
                deliveries += 1;
                std::thread::sleep(Duration::from_millis(1));
            }
            for thread in threads {
                rounds.push(thread.join().map_err(|_| "a thread panicked".to_string())??);
            }
            Ok(())
        })?;
        let before_end = sink.kernels.len();
        self.finish(&mut sink)?;

        let (long, other) = (Kernel::Long.readable().to_string(), Kernel::Other.readable().to_string());
        let mut expected = Counts::new();
        for thread in 0..THREADS {
            for round in 0..ROUNDS {
                for (depth, name, count) in
                    [(1, "memset", 1), (1, &*long, 1), (2, &*other, 2), (3, &*long, 2), (3, "htod", 1)]
                {
                    expected.insert((id(thread, round, depth).0, name.to_string()), count);
                }
            }
        }
        expected.insert((0, long.clone()), (THREADS * ROUNDS) as usize);
        let mut seen = Counts::new();
        for kernel in &sink.kernels {
            *seen.entry((kernel.span.map_or(0, |s| s.0), kernel.name.to_string())).or_default() += 1;
        }
        let differing: Vec<_> = (expected.iter().filter(|(key, count)| seen.get(key) != Some(count)))
            .map(|(key, count)| format!("{key:?}: {count} launched, {:?} recorded", seen.get(key)))
            .collect();
        let unexpected: Vec<_> = seen.iter().filter(|(key, _)| !expected.contains_key(key)).collect();
        self.expect(differing.is_empty(), || format!("{} differ, first {:?}", differing.len(), &differing[..1]));
        self.expect(unexpected.is_empty(), || format!("not launched: {:?}", &unexpected[..unexpected.len().min(3)]));
        self.expect(sink.dropped == 0, || format!("{} were dropped", sink.dropped));
        self.shapes(&sink.kernels);
        let times = self.times(&sink.kernels, &rounds);
        Ok(json!({
            "recorded": sink.kernels.len(),
            "recorded_before_the_end": before_end,
            "deliveries": deliveries,
            "dropped": sink.dropped,
            "differing": differing.len(),
            "launches": names(&sink.kernels),
            "times": times,
            "sample": sink.kernels.first().map(|k| format!("{k:?}")),
        }))
    }

    /// Numbers of each kernel that are known beforehand.
    fn shapes(&mut self, kernels: &[RawKernel]) {
        for kernel in kernels {
            let right = match kernel.kind {
                KernelKind::Kernel => {
                    let blocks = if *kernel.name == *Kernel::Long.readable() { [2, 1, 1] } else { [3, 2, 1] };
                    let shared = (kernel.shared_static, kernel.shared_dynamic);
                    kernel.grid == Some(blocks)
                        && kernel.block == Some([32, 1, 1])
                        && shared == (Some(0), Some(0))
                        && kernel.registers.is_some_and(|n| n > 0)
                        && kernel.dur_ns > 0
                        && kernel.dur_ns < 1_000_000
                }
                _ => kernel.bytes == Some(4096) && kernel.grid.is_none(),
            };
            let known = kernel.device.starts_with("GPU-") && kernel.graph.is_none() && kernel.launch.is_some();
            self.expect(right && known, || format!("not as launched: {kernel:?}"));
            if self.failures.len() > 10 {
                return;
            }
        }
    }

    /// Calls must lie within their round, kernels after the beginning of their call.
    fn times(&mut self, kernels: &[RawKernel], rounds: &[Vec<(HostNs, HostNs)>]) -> Value {
        let (mut outside, mut early, mut unknown) = (0, 0, 0);
        let (mut delays, mut durations) = (Vec::new(), Vec::new());
        for kernel in kernels {
            let (Some(start), Some(dur)) = (kernel.launch_start, kernel.launch_dur_ns) else {
                unknown += 1;
                continue;
            };
            delays.push(kernel.start.0 - start.0);
            durations.push(dur as i64);
            early += usize::from(kernel.start.0 + SLACK_NS < start.0);
            if let Some(SpanId(span)) = kernel.span {
                let (thread, round) = ((span >> 40) as usize - 1, (span >> 8 & 0xFFFF_FFFF) as usize - 1);
                let Some((from, to)) = rounds.get(thread).and_then(|rounds| rounds.get(round)) else { continue };
                outside += usize::from(start.0 + SLACK_NS < from.0 || start.plus_ns(dur).0 > to.0 + SLACK_NS);
            }
        }
        self.expect(outside == 0, || format!("{outside} calls lie outside of their round"));
        self.expect(early == 0, || format!("{early} kernels began before their call"));
        self.expect(unknown == 0, || format!("{unknown} have no times of their call"));
        json!({
            "outside": outside, "early": early, "unknown": unknown,
            "launch_to_kernel_ns": quartiles(&mut delays), "launch_dur_ns": quartiles(&mut durations),
        })
    }

    /// All kernels of a graph belong to the interval that launched it.
    fn graph(&mut self) -> Result<Value, String> {
        let (captured, replays) = (3, 5);
        // Where CUPTI is to be detached, this launch does it, so that the graph is made without CUPTI and replayed with
        // it.
        self.gpu.launch(Kernel::Other, PER_THREAD, 2, 0)?;
        let graph = self.gpu.graph(captured)?;
        let correlator = self.recorder.correlator();
        self.enable()?;
        let mut sink = ActivitySink::default();
        for replay in 0..replays {
            correlator.push(SpanId(7_000 + replay));
            self.gpu.launch_graph(&graph)?;
            correlator.pop();
        }
        self.finish(&mut sink)?;
        for replay in 0..replays {
            let of = sink.kernels.iter().filter(|k| k.span == Some(SpanId(7_000 + replay))).count();
            self.expect(of == captured as usize, || format!("replay {replay} has {of} of {captured} kernels"));
        }
        let right = sink.kernels.iter().all(|k| k.launch == Some("cuGraphLaunch") && k.graph.is_some());
        self.expect(right, || format!("not of a graph: {:?}", sink.kernels.first()));
        Ok(json!({ "recorded": sink.kernels.len(), "launches": names(&sink.kernels), "dropped": sink.dropped }))
    }

    /// The window ends while kernels wait in the stream.
    fn in_flight(&mut self) -> Result<Value, String> {
        let correlator = self.recorder.correlator();
        self.enable()?;
        correlator.push(SpanId(9));
        for _ in 0..100 {
            self.gpu.launch(Kernel::Long, PER_THREAD, 2, 100_000)?;
        }
        correlator.pop();
        let text = |e: ActivityError| e.to_string();
        self.recorder.disable().map_err(text)?;
        let mut sink = ActivitySink::default();
        self.recorder.collect(false, &HostNs::now, &mut sink).map_err(text)?;
        let at_once = sink.kernels.len();
        // What is launched now is in no window.
        self.gpu.launch(Kernel::Other, PER_THREAD, 2, 0)?;
        self.gpu.synchronize_all()?;
        self.recorder.collect(true, &HostNs::now, &mut sink).map_err(text)?;
        self.recorder.release().map_err(text)?;
        let of = sink.kernels.iter().filter(|k| k.span == Some(SpanId(9)) && k.dur_ns >= 90_000).count();
        self.expect(of == 100, || format!("{of} of 100 kernels in flight arrived"));
        let stray = sink.kernels.len() - sink.kernels.iter().filter(|k| k.span == Some(SpanId(9))).count();
        self.expect(stray == 0, || format!("{stray} kernels of after the window"));
        Ok(json!({ "arrived": of, "of": 100, "before_they_ended": at_once, "dropped": sink.dropped }))
    }

    /// Kernels launched by cuBLAS, through the runtime inside it, which calls the driver.
    fn cublas(&mut self) -> Result<Value, String> {
        let blas = match Blas::new(PER_THREAD) {
            Ok(blas) => blas,
            Err(error) => return Ok(json!({ "not_tried": error })),
        };
        // The first multiplication loads the kernels.
        blas.multiply(self.gpu)?;
        self.gpu.synchronize_all()?;
        let correlator = self.recorder.correlator();
        self.enable()?;
        let mut sink = ActivitySink::default();
        for n in 0..10 {
            correlator.push(SpanId(8_000 + n));
            blas.multiply(self.gpu)?;
            correlator.pop();
        }
        self.finish(&mut sink)?;
        let with = sink.kernels.iter().filter(|k| k.span.is_some() && k.launch_start.is_some()).count();
        let intervals = (0..10).filter(|n| sink.kernels.iter().any(|k| k.span == Some(SpanId(8_000 + n)))).count();
        self.expect(with == sink.kernels.len() && intervals == 10, || {
            format!(
                "cuBLAS: {with} of {} kernels have their interval, {intervals} of 10 intervals a kernel",
                sink.kernels.len()
            )
        });
        Ok(json!({ "recorded": sink.kernels.len(), "with_interval_and_call": with, "launches": names(&sink.kernels) }))
    }
}

/// One round of a thread; when it began and ended.
fn round(gpu: &Gpu, correlator: &dyn Correlator, thread: u64, round: u64) -> Result<(HostNs, HostNs), String> {
    gpu.use_here()?;
    let began = HostNs::now();
    correlator.push(id(thread, round, 1));
    gpu.memset(PER_THREAD)?;
    gpu.launch(Kernel::Long, PER_THREAD, 2, 1_000)?;
    correlator.push(id(thread, round, 2));
    gpu.launch(Kernel::Other, PER_THREAD, 2, 1_000)?;
    correlator.push(id(thread, round, 3));
    gpu.launch(Kernel::Long, PER_THREAD, 2, 1_000)?;
    gpu.launch(Kernel::Long, PER_THREAD, 2, 1_000)?;
    gpu.copy_in(PER_THREAD)?;
    correlator.pop();
    gpu.launch(Kernel::Other, PER_THREAD, 2, 1_000)?;
    correlator.pop();
    correlator.pop();
    let ended = HostNs::now();
    gpu.launch(Kernel::Long, PER_THREAD, 2, 1_000)?;
    if round % 50 == 49 {
        gpu.synchronize(PER_THREAD)?;
    }
    Ok((began, ended))
}

/// Names of launch calls with how often.
fn names(kernels: &[RawKernel]) -> Value {
    let mut counts = BTreeMap::<String, usize>::new();
    for kernel in kernels {
        *counts.entry(kernel.launch.unwrap_or("none").to_string()).or_default() += 1;
    }
    json!(counts)
}

fn quartiles(values: &mut [i64]) -> Value {
    values.sort_unstable();
    let at = |share: usize| values.get(values.len() * share / 100).or(values.last()).copied();
    json!({ "min": at(0), "p25": at(25), "p50": at(50), "p75": at(75), "p99": at(99), "max": values.last() })
}
