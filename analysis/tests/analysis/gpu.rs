//! GPU time computed by hand: sampled operators, steps, and how the device's time divides.

use crate::common::{T0, span, step};
use candlescope_figures::Intervals;
use candlescope_figures::Phases;
use candlescope_figures::StepRow;
use candlescope_figures::Tree;
use candlescope_figures::busy::Clocks;
use candlescope_figures::covered::CoveredTime;
use candlescope_figures::device_work::DeviceWork;
use candlescope_figures::gaps::{Activity, GapSum, Occupancy, blocks};
use candlescope_figures::gpu_of_steps::Gpu;
use candlescope_figures::intervals::IntervalPass;
use candlescope_figures::operators::{Operator, OperatorGpu, operators};
use candlescope_schema::stretches::merged_but_touching;
use candlescope_schema::{GpuSource, GpuTime, SpanRecord, StepRecord};
use proptest::prelude::*;
use std::collections::BTreeMap;

fn on_gpu(span: &mut SpanRecord, source: GpuSource, dur_ns: u64) {
    span.gpu = Some(GpuTime { start: span.host_start, dur_ns, source });
}

/// Four decoding steps: decode 200 (block 100 (linear 80), head 60) on the host.
fn four_steps() -> Vec<SpanRecord> {
    let mut spans = Vec::new();
    for i in 0..4u64 {
        let (seq, at) = (10 * i, 1000 * i as i64);
        let mut own = vec![
            span(seq, None, "decode", at, 200),
            span(seq + 1, Some(seq), "decode/block[0]", at + 1, 100),
            span(seq + 2, Some(seq + 1), "decode/block[0]/linear", at + 2, 80),
            span(seq + 3, Some(seq), "decode/head", at + 110, 60),
        ];
        own.iter_mut().for_each(|s| s.step = Some(i));
        own[2].flops = Some(2000);
        own[2].bytes = Some(100);
        own[2].io_bytes = Some(400);
        spans.extend(own);
    }
    spans
}

/// The same as the adaptive tier marks them: the first step on every interval, the others on the step alone.
fn adaptive() -> Vec<SpanRecord> {
    let mut spans = four_steps();
    for (at, ns) in [(0, 100), (1, 60), (2, 40), (3, 30), (4, 90), (8, 110), (12, 100)] {
        on_gpu(&mut spans[at], GpuSource::Event, ns);
    }
    spans
}

fn intervals_of(spans: &[SpanRecord], recorded: &[u64]) -> Intervals {
    let mut pass = IntervalPass::default();
    pass.recorded(recorded.iter().copied());
    spans.iter().for_each(|span| pass.add(span));
    pass.finish()
}

fn table(spans: &[SpanRecord], recorded: &[u64], launches: &[(&str, u64)]) -> Vec<Operator> {
    let intervals = intervals_of(spans, recorded);
    let launches: BTreeMap<&str, u64> = launches.iter().copied().collect();
    operators(&Tree::of(&intervals), &intervals, &launches, &BTreeMap::new())
}

fn row<'a>(table: &'a [Operator], path: &str) -> &'a Operator {
    table.iter().find(|o| o.path == path).unwrap_or_else(|| panic!("no {path}"))
}

fn gpu(table: &[Operator], path: &str) -> OperatorGpu {
    row(table, path).gpu.unwrap_or_else(|| panic!("{path} has no GPU time"))
}

fn near(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * b.abs().max(1.0)
}

#[test]
fn totals_are_extrapolated_from_the_measured_intervals() {
    for reversed in [false, true] {
        let mut spans = adaptive();
        if reversed {
            spans.reverse();
        }
        let table = table(&spans, &[], &[]);
        let decode = gpu(&table, "decode");
        assert_eq!((decode.source, decode.measured, decode.measured_ns), (GpuSource::Event, 4, 400));
        assert!(near(decode.mean_ns, 100.0) && near(decode.total_ns, 400.0));
        // The children's GPU time is known only for the first step: 100 − 60 − 30, times four.
        assert_eq!((decode.self_measured, decode.self_measured_ns), (1, 10));
        assert!(near(decode.self_ns.unwrap(), 40.0));
        let block = gpu(&table, "decode/block");
        assert_eq!((block.measured, block.measured_ns, block.self_measured_ns), (1, 60, 20));
        assert!(near(block.total_ns, 240.0) && near(block.self_ns.unwrap(), 80.0));
        let linear = gpu(&table, "decode/block/linear");
        assert!(near(linear.total_ns, 160.0) && near(linear.self_ns.unwrap(), 160.0));
        assert!(near(linear.tflops.unwrap(), 0.05), "4 × 2000 FLOP in 160 ns");
        assert!(near(linear.gbytes.unwrap(), 10.0), "4 × 400 B in 160 ns");
        assert!(near(decode.tflops.unwrap(), 0.02), "the whole step's work in its 400 ns");
        assert_eq!(gpu(&table, "decode/head").tflops, None, "no work is told");
        let shares = ["decode", "decode/block", "decode/block/linear", "decode/head"]
            .map(|path| gpu(&table, path).self_share.unwrap());
        for (share, expected) in shares.into_iter().zip([0.1, 0.2, 0.4, 0.3]) {
            assert!(near(share, expected), "{shares:?}");
        }
        assert!(near(gpu(&table, "decode/block").total_share.unwrap(), 0.6));
        assert!(table.iter().all(|o| o.launches_per_call.is_none()), "no kernels were recorded");
    }
}

#[test]
fn a_child_that_was_not_measured_hides_its_parents_self_time() {
    let mut spans = adaptive();
    spans[3].gpu = None;
    let table = table(&spans, &[], &[]);
    let decode = gpu(&table, "decode");
    assert_eq!((decode.measured, decode.self_measured, decode.self_ns, decode.self_share), (4, 0, None, None));
    assert!(near(gpu(&table, "decode/block").self_ns.unwrap(), 80.0));
    assert_eq!(row(&table, "decode/head").gpu, None, "missing stays missing");
}

#[test]
fn steps_alone_have_totals_and_no_self_time() {
    let mut spans = four_steps();
    [0, 4, 8, 12].into_iter().for_each(|at| on_gpu(&mut spans[at], GpuSource::Event, 100));
    let table = table(&spans, &[], &[]);
    assert_eq!(gpu(&table, "decode").self_ns, None);
    assert!(near(gpu(&table, "decode").total_share.unwrap(), 1.0));
    assert_eq!(table.iter().filter(|o| o.gpu.is_some()).count(), 1);
}

#[test]
fn in_recorded_steps_an_interval_without_kernels_took_none() {
    let mut spans = four_steps();
    // Steps 0 and 1 are recorded; `head` launched a kernel in the first only.
    for (at, ns) in [(0, 100), (3, 50), (4, 60)] {
        on_gpu(&mut spans[at], GpuSource::Cupti, ns);
    }
    let table = table(&spans, &[0, 1], &[("decode", 3), ("decode/head", 1)]);
    let decode = gpu(&table, "decode");
    assert_eq!((decode.source, decode.measured, decode.measured_ns), (GpuSource::Cupti, 2, 160));
    assert!(near(decode.total_ns, 320.0), "80 × 4");
    // 100 − 50 and 60 − 0: a mean of 55.
    assert!(near(decode.self_ns.unwrap(), 220.0));
    let head = gpu(&table, "decode/head");
    assert_eq!(head.measured, 2);
    assert!(near(head.total_ns, 100.0), "25 × 4, not 50 × 4");
    assert_eq!(row(&table, "decode").launches_per_call, Some(2.0), "(3 + 1) / 2 recorded calls");
    assert_eq!(row(&table, "decode/head").launches_per_call, Some(0.5));
    assert_eq!(row(&table, "decode/block").launches_per_call, Some(0.0), "recorded, and none launched");
    assert_eq!(row(&table, "decode/block").gpu, None);
}

#[test]
fn one_source_serves_the_whole_table() {
    let mut spans = adaptive();
    // Kernels were recorded in the last step, and the prefill was measured by marks only.
    on_gpu(&mut spans[12], GpuSource::Cupti, 70);
    let only_decode = table(&spans, &[3], &[]);
    assert_eq!(gpu(&only_decode, "decode").source, GpuSource::Cupti, "kernels of all of the steps' time");
    let mut prefill = span(90, None, "prefill", 9000, 500);
    prefill.step = Some(9);
    on_gpu(&mut prefill, GpuSource::Event, 400);
    spans.push(prefill);
    let both = table(&spans, &[3], &[]);
    let decode = gpu(&both, "decode");
    assert_eq!((decode.source, decode.measured, decode.measured_ns), (GpuSource::Event, 3, 300));
    assert!(near(decode.total_ns, 400.0), "100 × 4");
    assert!(near(gpu(&both, "prefill").total_share.unwrap(), 0.5));
    // Where the steps that have no kernels are few, what marks tell of the others is not shown in place of these.
    spans.last_mut().unwrap().host_dur_ns = 100;
    let nearly_all = table(&spans, &[3], &[]);
    assert_eq!(gpu(&nearly_all, "decode").source, GpuSource::Cupti);
    assert_eq!(row(&nearly_all, "prefill").gpu, None);
    let totals = intervals_of(&spans, &[3]);
    let path = totals.paths.iter().find(|p| p.rollup == "decode").unwrap();
    assert_eq!((path.gpu.cupti.calls, path.gpu.cupti.total_ns), (1, 70), "the other source is kept");
}

#[test]
fn a_parent_with_less_gpu_time_than_its_children_is_seen() {
    let mut spans = adaptive();
    assert_eq!(intervals_of(&spans, &[]).gpu_impossible, 0);
    on_gpu(&mut spans[1], GpuSource::Event, 1_000);
    on_gpu(&mut spans[2], GpuSource::Event, 1_999);
    assert_eq!(intervals_of(&spans, &[]).gpu_impossible, 0, "marks resolve no better");
    on_gpu(&mut spans[2], GpuSource::Event, 2_001);
    on_gpu(&mut spans[0], GpuSource::Event, 1_030);
    let found = intervals_of(&spans, &[]);
    assert_eq!((found.gpu_impossible, found.gpu_worst), (1, Some(("decode/block".to_string(), 1_000, 2_001))));
    // Time from another source is not part of it.
    on_gpu(&mut spans[2], GpuSource::Cupti, 9_000);
    assert_eq!(intervals_of(&spans, &[]).gpu_impossible, 0);
}

fn activity(start: i64, end: i64, launch: Option<i64>, delay: u64, is_kernel: bool) -> Activity {
    Activity::new(T0 + start, T0 + end, 7, is_kernel).launched(launch.map(|at| T0 + at), Some(delay))
}

/// Busy 1000–4000, 5000–6000, 6500–7000, 9000–9500: 5000 of 8500.
fn activities() -> Vec<Activity> {
    vec![
        // Out of order, as from several streams.
        activity(9000, 9500, Some(6000), 400, true), // launched in time but started late: other
        activity(1000, 3000, Some(500), 100, true),
        activity(2500, 4000, Some(600), 300, true),  // overlaps
        activity(5000, 6000, Some(4500), 200, true), // launched after the device ran out of work: host-bound
        activity(6500, 7000, Some(5000), 0, false),  // a copy after 500 ns: launch overhead
    ]
}

#[test]
fn gaps_by_hand() {
    let within = |list: &[Activity], bound_ns| Occupancy::within(&blocks(list), &[(T0, T0 + 10_000)], bound_ns);
    let o = within(&activities(), 0);
    assert_eq!((o.wall_ns, o.busy_ns, o.edges_ns), (10_000, 5000, 1500));
    assert_eq!((o.host_bound, o.launch_latency), (GapSum { n: 1, ns: 500 }, GapSum { n: 1, ns: 500 }));
    assert_eq!(o.launch_overhead, GapSum { n: 1, ns: 500 });
    assert_eq!(o.other, GapSum { n: 1, ns: 2000 });
    assert_eq!(within(&[], 0), Occupancy { wall_ns: 10_000, edges_ns: 10_000, ..Occupancy::default() });
    // Nothing is known about the launch: the gap is not host-bound, and short gaps are overhead.
    let unknown =
        [activity(0, 10, None, 0, true), activity(20, 30, None, 0, true), activity(1530, 1531, None, 0, true)];
    let o = within(&unknown, 0);
    assert_eq!((o.launch_overhead.n, o.other.n, o.host_bound.n), (1, 1, 0), "1500 ns is not under 1.5 µs");
    // A launch exactly at the end of the one before was in time.
    let exact = [activity(0, 10, None, 0, true), activity(20, 30, Some(10), 0, true)];
    assert_eq!(within(&exact, 0).host_bound.n, 0);
    // The launch at 4500 came 500 ns after the device ran out of work: clocks with an error of that size cannot tell.
    // The one at 6000 was early by 1000 ns.
    let o = within(&activities(), 499);
    assert_eq!((o.host_bound.ns + o.launch_latency.ns, o.uncertain.ns), (1000, 0));
    let o = within(&activities(), 500);
    assert_eq!((o.host_bound, o.uncertain), (GapSum::default(), GapSum { n: 1, ns: 1000 }));
    let o = within(&activities(), 999);
    assert_eq!((o.uncertain, o.launch_overhead.n, o.other.n), (GapSum { n: 1, ns: 1000 }, 1, 1));
    assert_eq!(
        within(&activities(), 1_000).uncertain,
        GapSum { n: 3, ns: 3500 },
        "the two launched at 5000 and 6000, too"
    );
}

#[test]
fn work_that_reaches_over_a_window_counts_where_it_is() {
    let list = [activity(50, 150, None, 0, true), activity(160, 170, Some(0), 0, true)];
    let o = Occupancy::within(&blocks(&list), &[(T0, T0 + 100), (T0 + 100, T0 + 200)], 0);
    assert_eq!((o.wall_ns, o.busy_ns, o.launch_overhead.ns, o.edges_ns), (200, 110, 10, 50 + 30));
    let o = Occupancy::within(&blocks(&list), &[(T0 + 60, T0 + 70)], 0);
    assert_eq!((o.busy_ns, o.edges_ns), (10, 0));
}

fn gpu_of(steps: &[StepRecord], recorded: DeviceWork) -> Gpu {
    let rows: Vec<StepRow> = steps.iter().map(StepRow::of).collect();
    let phases = Phases::of(&[], &rows, &Intervals::default(), &CoveredTime::default(), &[]);
    Gpu::of(&rows, &phases, &recorded, Clocks { bound_ns: Some(0) }, &CoveredTime::default())
}

fn recorded(list: &[(u64, &str, Vec<Activity>)]) -> DeviceWork {
    let steps = list.iter().map(|(step, device, activities)| ((*step, (*device).into()), activities.clone()));
    DeviceWork { steps: steps.collect(), ..DeviceWork::default() }
}

#[test]
fn wall_time_is_conserved() {
    let steps = [step(0, "decode", 0, 10_000), step(1, "decode", 20_000, 10_000)];
    let gpu = gpu_of(&steps, recorded(&[(0, "a", activities())]));
    let busy = gpu.busy.unwrap();
    assert_eq!((busy.steps, busy.wall_ns, busy.busy_ns, busy.idle_ns()), (1, 10_000, 5000, 3500));
    assert_eq!(busy.unattributed_ns, 1500, "before the first and after the last");
    assert_eq!((busy.busy_share(), busy.launch_bound_share()), (Some(0.5), Some(0.1)));
    assert_eq!(busy.unattributed_share(), Some(0.15));
    assert_eq!((busy.launches, busy.copies, busy.launches_per_step()), (4, 1, Some(4.0)));
    let delay = busy.queue_delay.as_ref().unwrap();
    assert_eq!((delay.n, delay.median, delay.max), (4, 250.0, 400.0), "of kernels: 100, 200, 300, 400");
    assert_eq!(gpu.kinds.len(), 1);
    assert_eq!((gpu.kinds[0].steps, gpu.kinds[0].wall_ns), (2, 20_000), "all steps, recorded or not");
    assert!(gpu.kinds[0].elapsed.is_empty(), "kernels alone make no stream time");
}

#[test]
fn each_gpu_of_a_step_counts() {
    let steps = [step(0, "decode", 0, 10_000)];
    let gpu = gpu_of(&steps, recorded(&[(0, "a", activities()), (0, "b", vec![activity(0, 1000, None, 0, true)])]));
    let busy = gpu.busy.unwrap();
    assert_eq!((busy.steps, busy.devices, busy.wall_ns, busy.busy_ns), (1, 2, 20_000, 6000));
    assert_eq!(
        (busy.busy_share(), busy.launches, busy.launches_per_step()),
        (Some(0.3), 5, Some(5.0)),
        "one step of 5"
    );
    let each: Vec<_> =
        gpu.devices.iter().map(|(uuid, b)| (&**uuid, b.steps, b.wall_ns, b.busy_ns, b.launches)).collect();
    assert_eq!(each, [("a", 1, 10_000, 5000, 4), ("b", 1, 10_000, 1000, 1)]);
}

#[test]
fn kernels_may_outlast_their_step() {
    let gpu = gpu_of(&[step(0, "decode", 0, 1_000)], recorded(&[(0, "a", vec![activity(500, 3_000, None, 0, true)])]));
    let busy = gpu.busy.unwrap();
    // 500 of 2500 ns fall into the step: the other 2000 are shown, but are not part of its time.
    assert_eq!((busy.busy_share(), busy.unattributed_ns, busy.own_ns, busy.after_ns), (Some(0.5), 500, 2_500, 2_000));
}

#[test]
fn steps_around_recorded_steps_are_no_steps_beside_them() {
    let mut steps =
        vec![step(0, "generate", 0, 50_000), step(1, "decode", 10_000, 10_000), step(2, "sample", 30_000, 100)];
    let all = |steps: &[StepRecord]| {
        gpu_of(
            steps,
            recorded(&[
                (0, "a", vec![activity(0, 100, None, 0, true), activity(200, 300, None, 0, true)]),
                (1, "a", activities()),
                (7, "a", vec![activity(0, 100, None, 0, true)]),
            ]),
        )
    };
    let gpu = all(&steps);
    assert_eq!(gpu.without_step, 1);
    assert_eq!(gpu.busy.as_ref().map(|b| (b.steps, b.wall_ns, b.busy_ns)), Some((1, 10_000, 0)));
    let kinds: Vec<_> = gpu.kinds.iter().filter_map(|k| Some((k.name.as_str(), k.busy.as_ref()?.busy_ns))).collect();
    assert_eq!(kinds, [("generate", 5_200), ("decode", 0)], "the device worked that long while `generate` was open");
    // On another thread it is around no other step.
    steps[0].thread = crate::common::thread(2, "worker");
    assert_eq!(all(&steps).busy.map(|b| (b.steps, b.wall_ns, b.open_ns)), Some((2, 50_000, 60_000)), "open at once");
}

#[test]
fn stream_time_of_steps_is_no_busy_share() {
    let timed = |number: u64, source, ns: Option<u64>, flops| {
        let mut s = step(number, "decode", 10_000 * number as i64, 1_000);
        s.gpu = ns.map(|dur_ns| GpuTime { start: s.host_start, dur_ns, source });
        s.flops = Some(flops);
        s.bytes = Some(flops / 10);
        s
    };
    let (event, cupti) = (GpuSource::Event, GpuSource::Cupti);
    let steps = [
        timed(0, event, Some(600), 6_000),
        timed(1, event, Some(1_000), 10_000),
        timed(2, cupti, Some(400), 8_000),
        timed(3, event, None, 1),
    ];
    let gpu = gpu_of(&steps, DeviceWork::default());
    assert_eq!(gpu.busy, None, "marks do not tell how busy the device is");
    let [stream, kernels] = &gpu.kinds[0].elapsed[..] else { panic!("{:?}", gpu.kinds) };
    assert_eq!((stream.source, stream.measured, stream.measured_ns, stream.wall_ns), (event, 2, 1_600, 2_000));
    assert_eq!(stream.of_wall(), Some(0.8));
    assert!(near(stream.total_ns, 3_200.0), "800 × 4 steps");
    assert!(near(stream.tflops.unwrap(), 0.01), "16000 FLOP in 1600 ns");
    assert!(near(stream.gbytes.unwrap(), 1.0), "1600 B in 1600 ns");
    assert_eq!((kernels.source, kernels.measured, kernels.of_wall()), (cupti, 1, Some(0.4)));
    assert!(near(kernels.tflops.unwrap(), 0.02));
    assert!(near(kernels.total_ns, 1_600.0));
}

proptest! {
    /// Compares merging with the simplest implementation: a flag for every nanosecond.
    #[test]
    fn merged_time_is_what_was_covered(list in prop::collection::vec((0i64..3_000, 0i64..400, prop::option::of(0i64..3_000)), 0..40), from in 0i64..1_000, apart in 0i64..300) {
        let activities: Vec<Activity> =
            list.iter().map(|&(start, dur, launch)| activity(start, start + dur, launch, 0, true)).collect();
        let windows = [(T0 + from, T0 + from + 700), (T0 + from + 700 + apart, T0 + from + 1_900 + apart)];
        let o = Occupancy::within(&blocks(&activities), &windows, 0);
        let mut covered = vec![false; 4_000];
        for &(start, dur, _) in &list {
            covered[start as usize..(start + dur) as usize].fill(true);
        }
        let inside = |at: &usize| windows.iter().any(|(a, b)| (*a - T0..*b - T0).contains(&(*at as i64)));
        prop_assert_eq!(o.busy_ns, (0..4_000).filter(inside).filter(|at| covered[*at]).count() as u64);
        prop_assert_eq!(o.wall_ns, 1_900);
        let gaps = o.host_bound.ns + o.launch_latency.ns + o.launch_overhead.ns + o.other.ns;
        prop_assert_eq!(o.busy_ns + gaps + o.edges_ns, o.wall_ns, "busy + gaps + edges = wall");
        let mut reversed = activities.clone();
        reversed.reverse();
        let blocks = blocks(&reversed);
        let again = Occupancy::within(&blocks, &windows, 0);
        prop_assert_eq!((again.busy_ns, again.edges_ns), (o.busy_ns, o.edges_ns), "whatever the order");
    }

    /// No time, however damaged, ends a report.
    #[test]
    fn no_time_makes_it_panic(list in prop::collection::vec((any::<i64>(), any::<i64>(), prop::option::of(any::<i64>())), 0..12)) {
        let activities: Vec<Activity> = list
            .iter()
            .map(|&(start_ns, end_ns, ready_ns)| Activity::new(start_ns, end_ns, 0, true).launched(ready_ns, None))
            .collect();
        let windows = merged_but_touching(list.iter().map(|&(start, end, _)| (start.wrapping_sub(9), end)));
        let o = Occupancy::within(&blocks(&activities), &windows, 1);
        prop_assert!(o.busy_ns <= o.wall_ns);
    }

    /// Self times of fully measured steps add up to the steps' own, whatever the tree.
    #[test]
    fn self_times_add_up_to_the_steps(parents in prop::collection::vec(0usize..8, 0..24), own in prop::collection::vec(0u64..1_000, 25)) {
        let mut spans = vec![span(0, None, "s", 0, 1)];
        for (i, parent) in parents.iter().enumerate() {
            let parent = parent % (i + 1);
            let path = format!("{}/s", spans[parent].path.path);
            spans.push(span(i as u64 + 1, Some(parent as u64), &path, 0, 1));
        }
        let mut total: Vec<u64> = own[..spans.len()].to_vec();
        for i in (1..spans.len()).rev() {
            let parent = spans[i].parent_seq.unwrap() as usize;
            total[parent] += total[i];
        }
        for (span, ns) in spans.iter_mut().zip(&total) {
            on_gpu(span, GpuSource::Event, *ns);
        }
        let table = table(&spans, &[], &[]);
        let sum: f64 = table.iter().filter_map(|o| o.gpu?.self_ns).sum();
        prop_assert!(near(sum, total[0] as f64), "{} of {}", sum, total[0]);
        prop_assert!(table.iter().all(|o| o.gpu.is_some_and(|g| g.self_measured == g.measured)));
    }
}
