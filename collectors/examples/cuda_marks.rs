//! The CUDA clock on a real device, without candle: what marks cost and whether their times are right, as one JSON
//! object.
//!
//! ```text
//! cargo run --example cuda_marks -p candlescope-collectors --no-default-features --features cuda
//! ```
//!
//! Exit status 1 if a check failed; `checks` says which.
#![allow(
    unsafe_code,
    reason = "cudarc's event tracking, which gets in the way of graph capture, can be turned off only so"
)]

use candlescope_collectors::cuda::{CudaClock, CudaClockOptions, Stream, call_costs, capture_mode, with_stream};
use candlescope_core::HostNs;
use candlescope_core::gpu::{DeviceNs, GpuClock, GpuLane, GpuReport, NoMark};
use cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};
use cudarc::driver::{CudaContext, CudaSlice, CudaStream};
use serde_json::{Map, Value, json};
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const MB: usize = 1 << 20;

/// The clock and what it reported.
struct Rig {
    clock: CudaClock,
    lane: Box<dyn GpuLane>,
    began: Instant,
    reports: Vec<GpuReport>,
    poll_ns: Vec<u64>,
}

impl Rig {
    fn host(&self) -> HostNs {
        HostNs(i64::try_from(self.began.elapsed().as_nanos()).unwrap_or(i64::MAX))
    }

    fn poll(&mut self) {
        let began = self.began;
        let host = || HostNs(i64::try_from(began.elapsed().as_nanos()).unwrap_or(i64::MAX));
        let reports = &mut self.reports;
        let before = Instant::now();
        self.clock.poll(&host, &mut |report| reports.push(report));
        self.poll_ns.push(u64::try_from(before.elapsed().as_nanos()).unwrap_or(u64::MAX));
    }

    /// Polls for some time, every 2 ms.
    fn run(&mut self, time: Duration) {
        let began = Instant::now();
        while began.elapsed() < time {
            self.poll();
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Times of the marks reported so far, in order.
    fn times(&self) -> Vec<Option<DeviceNs>> {
        let time = |report: &GpuReport| if let GpuReport::Mark { at, .. } = report { Some(*at) } else { None };
        self.reports.iter().filter_map(time).collect()
    }

    fn anchors(&self) -> Vec<(DeviceNs, HostNs, u64)> {
        let anchor = |report: &GpuReport| match report {
            GpuReport::Anchor { at, host, bound_ns, .. } => Some((*at, *host, *bound_ns)),
            _ => None,
        };
        self.reports.iter().filter_map(anchor).collect()
    }

    /// The host's time of a device's time, by the line through the first anchor and the last.
    fn on_host(&self, at: DeviceNs) -> Option<i64> {
        let anchors = self.anchors();
        let (first, last) = (anchors.first()?, anchors.last()?);
        let device = (last.0.0 - first.0.0) as f64;
        let rate = if device > 0.0 { (last.1.0 - first.1.0) as f64 / device } else { 1.0 };
        Some(last.1.0 + ((at.0 - last.0.0) as f64 * rate) as i64)
    }

    /// Runs `work` between two marks; gives the time between them once they are reported.
    fn timed(&mut self, work: impl FnOnce() -> Result<(), Box<dyn Error>>) -> Result<Option<i64>, Box<dyn Error>> {
        let before = self.times().len();
        self.lane.mark().map_err(refused)?;
        work()?;
        self.lane.mark().map_err(refused)?;
        self.run(Duration::from_millis(60));
        let times = self.times();
        Ok(match times.get(before..) {
            Some([Some(from), Some(to)]) => Some(to.0 - from.0),
            _ => None,
        })
    }
}

fn refused(why: NoMark) -> Box<dyn Error> {
    format!("a mark was refused: {why:?}").into()
}

fn median(mut values: Vec<u64>) -> Option<u64> {
    values.sort_unstable();
    values.get(values.len() / 2).copied()
}

/// Costs of marks in a tight loop, in bursts that fit the events there are.
fn mark_costs(rig: &mut Rig) -> Result<Value, Box<dyn Error>> {
    let began = Instant::now();
    rig.lane.mark().map_err(refused)?;
    let first = began.elapsed();
    rig.run(Duration::from_millis(20));
    let mut costs = Vec::new();
    for _ in 0..20 {
        for _ in 0..300 {
            let began = Instant::now();
            rig.lane.mark().map_err(refused)?;
            costs.push(u64::try_from(began.elapsed().as_nanos())?);
        }
        rig.run(Duration::from_millis(10));
    }
    costs.sort_unstable();
    let began = Instant::now();
    for _ in 0..300 {
        rig.lane.mark().map_err(refused)?;
    }
    let together = began.elapsed().as_nanos() as f64 / 300.0;
    rig.run(Duration::from_millis(20));
    Ok(json!({
        "first_us": first.as_micros() as u64, "median_ns": costs[costs.len() / 2], "p99_ns": costs[costs.len() * 99 / 100],
        "without_timer_ns": together, "marks": costs.len(),
    }))
}

/// The time of copies is proportional to their size, and there is almost no time between marks around nothing.
fn durations(rig: &mut Rig, stream: &Arc<CudaStream>) -> Result<Value, Box<dyn Error>> {
    let from: CudaSlice<u8> = stream.alloc_zeros(1024 * MB)?;
    let mut to: CudaSlice<u8> = stream.alloc_zeros(1024 * MB)?;
    stream.synchronize()?;
    let empty = rig.timed(|| Ok(()))?;
    let mut copies = |n: usize| -> Result<Option<i64>, Box<dyn Error>> {
        rig.timed(|| {
            for _ in 0..n {
                stream.memcpy_dtod(&from, &mut to)?;
            }
            Ok(())
        })
    };
    let (one, ten) = (copies(1)?, copies(10)?);
    let ratio = one.zip(ten).map(|(one, ten)| ten as f64 / one as f64);
    // The same from the host's side, which includes the launch and the wait.
    let began = Instant::now();
    for _ in 0..10 {
        stream.memcpy_dtod(&from, &mut to)?;
    }
    stream.synchronize()?;
    let by_host = began.elapsed().as_nanos() as u64;
    Ok(json!({
        "empty_ns": empty, "copy_1gib_ns": one, "ten_copies_ns": ten, "ratio": ratio, "ten_copies_by_host_ns": by_host,
        "gb_per_s": ten.map(|ns| 10.0 * 2.0 * 1024.0 * MB as f64 / ns as f64),
    }))
}

/// A mark in an idle stream falls between the host's readings around it, in the host's time.
fn truth(rig: &mut Rig) -> Result<Value, Box<dyn Error>> {
    let mut off = Vec::new();
    for _ in 0..50 {
        let seen = rig.times().len();
        let before = rig.host().0;
        rig.lane.mark().map_err(refused)?;
        let after = rig.host().0;
        rig.run(Duration::from_millis(5));
        let at = rig.times().get(seen).copied().flatten().and_then(|at| rig.on_host(at)).ok_or("no time of a mark")?;
        off.push((at - before, after - before));
    }
    off.sort_unstable();
    let middle = off[off.len() / 2];
    Ok(json!({
        "after_call_began_ns": { "least": off[0].0, "median": middle.0, "most": off[off.len() - 1].0 },
        "call_ns": middle.1,
    }))
}

/// A graph is captured in global mode, in the per-thread stream and in one of its own, while another thread polls.
fn capture(rig: &mut Rig, context: &Arc<CudaContext>, stream: &Arc<CudaStream>) -> Result<Value, Box<dyn Error>> {
    let mut to: CudaSlice<u8> = stream.alloc_zeros(MB)?;
    stream.synchronize()?;
    let mode_before = capture_mode();
    let lane = &mut rig.lane;
    let clock = &mut rig.clock;
    let began = rig.began;
    let reports = &mut rig.reports;
    let (stop, polls) = (AtomicBool::new(false), std::sync::atomic::AtomicU64::new(0));
    let outcome = std::thread::scope(|scope| -> Result<Value, Box<dyn Error>> {
        scope.spawn(|| {
            let host = || HostNs(i64::try_from(began.elapsed().as_nanos()).unwrap_or(i64::MAX));
            while !stop.load(Ordering::Relaxed) {
                clock.poll(&host, &mut |report| reports.push(report));
                polls.fetch_add(1, Ordering::Relaxed);
            }
        });
        let result = (|| {
            // Work that keeps marks incomplete while the capture runs.
            let mut big: CudaSlice<u8> = stream.alloc_zeros(1024 * MB)?;
            let other = context.new_stream()?;
            let mut own = Map::new();
            for (name, target) in [("per_thread", stream), ("own", &other)] {
                for _ in 0..200 {
                    stream.memset_zeros(&mut big)?;
                    lane.mark().map_err(refused)?;
                }
                target.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL)?;
                let mut marks = Vec::new();
                for _ in 0..50 {
                    marks.push(with_stream(target, || lane.mark()));
                    target.memset_zeros(&mut to)?;
                    std::thread::sleep(Duration::from_millis(1));
                }
                let graph = target.end_capture(CUgraphInstantiate_flags(0))?;
                let launched = graph.as_ref().map(|graph| graph.launch());
                target.synchronize()?;
                let captured = matches!(launched, Some(Ok(())));
                let refused = marks.iter().filter(|m| **m == Err(NoMark::Capturing)).count();
                own.insert(name.to_string(), json!({ "captured": captured, "refused": refused, "of": marks.len() }));
            }
            Ok(Value::Object(own))
        })();
        stop.store(true, Ordering::Relaxed);
        result
    })?;
    rig.run(Duration::from_millis(100));
    let resumed = rig.lane.mark().is_ok();
    rig.run(Duration::from_millis(20));
    Ok(json!({
        "streams": outcome, "polls_meanwhile": polls.load(Ordering::Relaxed), "marks_again_after": resumed,
        "mode_before": mode_before, "mode_after": capture_mode(),
    }))
}

/// Marks follow the stream that is named: behind its work, and not behind the other's.
fn streams(rig: &mut Rig, context: &Arc<CudaContext>, stream: &Arc<CudaStream>) -> Result<Value, Box<dyn Error>> {
    let other = context.new_stream()?;
    let mut big: CudaSlice<u8> = other.alloc_zeros(1024 * MB)?;
    other.synchronize()?;
    stream.synchronize()?;
    let seen = rig.times().len();
    rig.lane.mark().map_err(refused)?;
    for _ in 0..50 {
        other.memset_zeros(&mut big)?;
    }
    // In this order, so that the time from a later event to an earlier one is asked for: the per-thread stream is idle.
    with_stream(&other, || rig.lane.mark()).map_err(refused)?;
    rig.lane.mark().map_err(refused)?;
    rig.run(Duration::from_millis(200));
    let times: Vec<_> = rig.times().split_off(seen).into_iter().flatten().map(|at| at.0).collect();
    let by_device = Stream::from(&other);
    rig.clock.streams().use_stream(0, by_device);
    for _ in 0..50 {
        other.memset_zeros(&mut big)?;
    }
    let seen = rig.times().len();
    let before = rig.host().0;
    rig.lane.mark().map_err(refused)?;
    rig.run(Duration::from_millis(200));
    let at = rig.times().get(seen).copied().flatten().and_then(|at| rig.on_host(at));
    rig.clock.streams().use_stream(0, Stream::PER_THREAD);
    Ok(match times[..] {
        [first, behind, idle] => json!({
            "behind_50_memsets_ns": behind - first, "idle_stream_ns": idle - first,
            "named_for_device_ns": at.map(|at| at - before),
        }),
        _ => json!({ "times": times }),
    })
}

/// Anchors while the device is never idle.
fn busy(rig: &mut Rig, stream: &Arc<CudaStream>) -> Result<Value, Box<dyn Error>> {
    let mut big: CudaSlice<u8> = stream.alloc_zeros(1024 * MB)?;
    let from = rig.anchors().len();
    let seen = rig.times().len();
    let began = Instant::now();
    let mut marks = 0u64;
    while began.elapsed() < Duration::from_secs(9) {
        for _ in 0..20 {
            stream.memset_zeros(&mut big)?;
            marks += u64::from(rig.lane.mark().is_ok());
        }
        rig.run(Duration::from_millis(4));
    }
    stream.synchronize()?;
    rig.run(Duration::from_millis(50));
    let anchors = rig.anchors().split_off(from);
    let gaps = anchors.windows(2).map(|w| w[1].1.since(w[0].1) / 1_000_000).collect::<Vec<_>>();
    let times: Vec<_> = rig.times().split_off(seen).into_iter().map(|at| at.map(|at| at.0)).collect();
    let ordered = times.iter().flatten().is_sorted();
    Ok(json!({
        "bounds_ns": anchors.iter().map(|a| a.2).collect::<Vec<_>>(), "gaps_ms": gaps, "marks": marks,
        "reported": times.len(), "unknown": times.iter().filter(|t| t.is_none()).count(), "in_order": ordered,
    }))
}

fn main() -> std::process::ExitCode {
    match run() {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("cuda_marks: {e}");
            std::process::ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let mut clock = CudaClock::new(CudaClockOptions::default())?;
    let described = clock.describe();
    let lane = clock.lanes().lane(0);
    let mut rig = Rig { clock, lane, began: Instant::now(), reports: Vec::new(), poll_ns: Vec::new() };
    let without_context = rig.lane.mark();
    let context = CudaContext::new(0)?;
    // SAFETY: without tracking, cudarc does not order streams; each buffer below is used by one stream at a time, and
    // what goes on to another stream is synchronised first.
    unsafe { context.disable_event_tracking() };
    let multi_stream_before = context.is_in_multi_stream_mode();
    let stream = context.per_thread_stream();
    let marks = mark_costs(&mut rig)?;
    let idle_poll_ns = median(std::mem::take(&mut rig.poll_ns));
    let costs = call_costs(512)?;
    let multi_stream_after = context.is_in_multi_stream_mode();
    let durations = durations(&mut rig, &stream)?;
    let truth = truth(&mut rig)?;
    let capture = capture(&mut rig, &context, &stream)?;
    let streams = streams(&mut rig, &context, &stream)?;
    let idle_bounds: Vec<_> = rig.anchors().iter().map(|a| a.2).collect();
    rig.poll_ns.clear();
    let busy = busy(&mut rig, &stream)?;
    let busy_poll_ns = median(std::mem::take(&mut rig.poll_ns));
    let statistics = rig.clock.statistics();
    let error = context.check_err().err().map(|e| e.to_string());

    let number = |value: &Value, path: &str| value.pointer(path).and_then(Value::as_f64).unwrap_or(f64::NAN);
    let all_refused = |name: &str| {
        number(&capture, &format!("/streams/{name}/refused")) == 50.0 && capture["streams"][name]["captured"] == true
    };
    let checks = json!({
        "no_mark_without_context": without_context == Err(NoMark::NoContext),
        "ten_copies_take_ten_times_one": (8.0..12.0).contains(&number(&durations, "/ratio")),
        "nothing_takes_less_than_100_us": number(&durations, "/empty_ns") < 1e5,
        "idle_mark_within_100_us_of_its_call": number(&truth, "/after_call_began_ns/least") > -5e4
            && number(&truth, "/after_call_began_ns/median") < 1e5,
        "capture_succeeds_and_refuses_marks": all_refused("per_thread") && all_refused("own"),
        "marks_again_after_capture": capture["marks_again_after"] == true,
        "capture_mode_untouched": capture["mode_before"] == "global" && capture["mode_after"] == "global",
        "named_stream_is_marked": number(&streams, "/behind_50_memsets_ns") > 3e6 && number(&streams, "/named_for_device_ns") > 3e6,
        "idle_stream_is_not_behind": number(&streams, "/idle_stream_ns") < 3e6,
        "all_marks_of_a_busy_device_known_and_in_order": number(&busy, "/unknown") == 0.0 && busy["in_order"] == true
            && busy["marks"] == busy["reported"],
        "anchors_at_least_every_4_s": busy["gaps_ms"].as_array().is_some_and(|g| !g.is_empty() && g.iter().all(|ms| ms.as_u64() < Some(4_000))),
        "context_has_no_error": error.is_none(),
        "stream_mode_untouched": multi_stream_before == multi_stream_after,
    });
    let failed = checks.as_object().is_some_and(|c| c.values().any(|ok| *ok != true));
    let outcome = json!({
        "device": described, "mark": marks, "idle_poll_ns": idle_poll_ns, "busy_poll_ns": busy_poll_ns,
        "calls_ns": {
            "current_context": costs.current_context, "is_capturing": costs.is_capturing, "record": costs.record,
            "query": costs.query, "elapsed": costs.elapsed, "create": costs.create, "timer": costs.timer,
        },
        "durations": durations, "truth": truth, "capture": capture, "streams": streams, "idle_anchor_bounds_ns": idle_bounds,
        "busy": busy, "statistics": statistics, "context_error": error, "checks": checks,
    });
    println!("{}", serde_json::to_string_pretty(&outcome)?);
    if failed { Err("a check failed, see `checks`".into()) } else { Ok(()) }
}
