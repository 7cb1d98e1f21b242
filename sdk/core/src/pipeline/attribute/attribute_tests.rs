//! Windows that do not end as they should, and steps and kernels that come late.

use super::*;
use crate::control::Control;
use crate::gpu::GraphNode;
use crate::record::{PathInfo, ThreadInfo, TraceId};
use crate::shared::{Hooks, Rings};
use crate::vocabulary::KernelKind;
use crossbeam_channel::unbounded;

/// A session with a recorder, the drain's end of it, and the requests to the recorder's thread.
fn session() -> (SessionState, Kernels, Receiver<Ask>) {
    let control = Control::new(None, false).with_kernels(None);
    let rings = Rings { capacity: 64, memory: 0 };
    let shared = SessionState::new(control, Hooks::default(), Vec::new(), rings, unbounded().0);
    let (ask, asked) = unbounded();
    (shared, Kernels::new("paper", ask, unbounded().1, Arc::default()), asked)
}

fn begin_step(shared: &SessionState) -> WindowStep {
    let step = shared.control.begin_step(true, || false);
    assert!(step.kernels, "{step:?}");
    WindowStep { number: step.number, extent: (HostNs(step.number as i64 * 10), HostNs(step.number as i64 * 10 + 5)) }
}

/// Opens a window and begins all its steps.
fn window<const N: usize>(shared: &SessionState) -> [WindowStep; N] {
    let kernels = shared.control.kernels().expect("has a recorder");
    assert!(kernels.ask(N as u64), "none is open");
    kernels.ready();
    std::array::from_fn(|_| begin_step(shared))
}

/// Whether the drain asks now for the window to be closed; if so, closes it.
fn closes(kernels: &mut Kernels, shared: &SessionState, asked: &Receiver<Ask>) -> bool {
    kernels.close_window_when_done(shared, &|| HostNs(0));
    let closes = asked.try_iter().count() > 0;
    assert!(!closes || shared.control.stop_recorder(), "the recorder can be switched off");
    closes
}

/// Pretends that the longest wait for a window has passed.
fn wait(kernels: &mut Kernels) {
    let since = kernels.closing_since.expect("is being closed");
    kernels.closing_since = since.checked_sub(CLOSE_ANYWAY + Duration::from_millis(1));
}

#[test]
fn a_captured_step_that_does_not_end_keeps_the_recorder_on_for_a_bounded_time() {
    let (shared, mut kernels, asked) = session();
    let recorder = shared.control.kernels().expect("has a recorder");
    assert!(recorder.ask_for_capture());
    recorder.ready();
    assert_eq!(shared.control.open_window(2, true), Some(0..2));
    let [one, _] = [begin_step(&shared), begin_step(&shared)];
    kernels.steps_came(&[one]);
    assert!(!closes(&mut kernels, &shared, &asked) && kernels.closing_since.is_none(), "nobody else pays for it");
    assert!(!shared.control.begin_step(true, || false).kernels);
    assert!(!closes(&mut kernels, &shared, &asked));
    wait(&mut kernels);
    assert!(closes(&mut kernels, &shared, &asked) && !recorder.is_active());
}

#[test]
fn a_step_that_comes_after_its_window_is_none_of_the_next_one() {
    let (shared, mut kernels, asked) = session();
    let [one, late] = window(&shared);
    kernels.steps_came(&[one]);
    assert!(!closes(&mut kernels, &shared, &asked), "one is missing");
    wait(&mut kernels);
    assert!(closes(&mut kernels, &shared, &asked));
    let [next] = window(&shared);
    kernels.steps_came(&[late]);
    assert!(!closes(&mut kernels, &shared, &asked), "the next one's step has not come");
    assert_eq!(kernels.current, None, "it did not run in this window");
    kernels.steps_came(&[next]);
    assert!(closes(&mut kernels, &shared, &asked));
    assert_eq!(kernels.windows, [one.extent, late.extent, next.extent]);
}

fn interval(shared: &SessionState, seq: u64, name: &str) -> SpanRecord {
    let (path, thread) = (PathInfo::new(seq as u32, name, name, "model"), ThreadInfo::new(1, 7, "main"));
    let span_id = shared.span_id(seq);
    let mut span = SpanRecord::new(seq, TraceId(1), span_id, path.into(), thread.into(), HostNs(seq as i64 * 100), 50);
    span.step = Some(seq);
    span
}

/// A kernel of graph 3, launched by an interval.
fn replayed(shared: &SessionState, launcher: u64, node: u64) -> RawKernel {
    RawKernel {
        kind: KernelKind::Kernel,
        name: "gemm".into(),
        span: Some(shared.span_id(launcher)),
        device: "GPU-paper".into(),
        stream: 7,
        start: HostNs(1_000 + node as i64 * 10),
        dur_ns: 10,
        grid: None,
        block: None,
        registers: None,
        shared_static: None,
        shared_dynamic: None,
        bytes: None,
        launch: Some("cuGraphLaunch"),
        launch_start: None,
        launch_dur_ns: None,
        correlation: 1,
        graph: Some(3),
        graph_node: Some(node),
    }
}

/// The innermost interval of each kernel, by name.
fn names(batch: &Batch) -> Vec<&str> {
    batch.kernels.iter().filter_map(|kernel| Some(&*kernel.path.as_ref()?.name)).collect()
}

#[test]
fn kernels_of_a_replay_that_come_late_have_its_launch_and_are_not_lost() {
    let (shared, ..) = session();
    let (deliver, deliveries) = unbounded();
    let mut kernels = Kernels::new("paper", unbounded().0, deliveries, Arc::default());
    for node in 1..=4 {
        kernels.nodes.add(GraphNode { node, original: None, span: None }, Some(1));
    }
    let mut captured = Batch::default();
    captured.spans.push(interval(&shared, 1, "layer"));
    kernels.learn_graphs(&captured);
    let come = |nodes: &[u64]| {
        let kernels = nodes.iter().map(|node| replayed(&shared, 2, *node)).collect();
        let sink = ActivitySink { kernels, ..ActivitySink::default() };
        deliver.send(Delivery { ticket: 0, sink }).expect("it is received");
    };
    come(&[1, 2, 4]);
    kernels.receive(&shared);
    let mut batch = Batch::default();
    batch.spans.push(interval(&shared, 2, "decode"));
    kernels.attribute(&mut batch, &[0], &shared);
    let counts = |kernels: &Kernels| (kernels.counts.attributed, kernels.counts.late, kernels.counts.dropped);
    assert_eq!((counts(&kernels), names(&batch)), ((3, 0, 0), vec!["layer"; 3]));

    come(&[3]);
    kernels.receive(&shared);
    let mut late = Batch::default();
    kernels.loose(&mut late, &shared);
    assert_eq!((counts(&kernels), names(&late)), ((3, 1, 0), vec!["decode"]));
    assert_eq!(kernels.counts.recorded, 4);
}

#[test]
fn what_a_first_replay_lacked_is_found_once_and_later_replays_have_one_row_a_layer() {
    let (shared, ..) = session();
    let (deliver, deliveries) = unbounded();
    let mut kernels = Kernels::new("paper", unbounded().0, deliveries, Arc::default());
    let path = |id, text: &str| Arc::new(PathInfo::new(id, text, text.rsplit('/').next().expect("a name"), "model"));
    let (decode, layer) = (path(1, "decode"), path(2, "decode/layer"));
    let of = |seq, path: &Arc<PathInfo>, step| {
        let mut span = interval(&shared, seq, "any");
        (span.path, span.step) = (path.clone(), Some(step));
        span
    };
    // Kernels of which each runs once in a replay, in this launch.
    let launch = |launcher: u64, count: u64, graph: Option<u32>| {
        let kernel = |node: u64| RawKernel {
            grid: Some([node as u32, 1, 1]),
            correlation: launcher as u32,
            graph,
            graph_node: graph.map(|_| node),
            ..replayed(&shared, launcher, node)
        };
        let sink = ActivitySink { kernels: (1..=count).map(kernel).collect(), ..ActivitySink::default() };
        deliver.send(Delivery { ticket: 0, sink }).expect("it is received");
    };
    let mut inner = of(2, &layer, 1);
    inner.parent_seq = Some(1);
    launch(2, 80, None);
    launch(3, 79, Some(3));
    kernels.receive(&shared);
    let mut batch = Batch::default();
    batch.spans.extend([of(1, &decode, 1), inner, of(3, &decode, 3)]);
    kernels.attribute(&mut batch, &[0, 1, 2], &shared);
    assert_eq!((kernels.counts.of_graphs, kernels.counts.of_derived), (79, 79));

    launch(4, 80, Some(3));
    launch(5, 80, Some(3));
    kernels.receive(&shared);
    let mut batch = Batch::default();
    batch.spans.extend([of(4, &decode, 4), of(5, &decode, 5)]);
    kernels.attribute(&mut batch, &[0, 1], &shared);
    assert_eq!((kernels.counts.of_graphs, kernels.counts.of_derived), (239, 239));
    assert_eq!((kernels.counts.attributed, names(&batch)), (319, vec!["layer"; 160]));
    let rows: Vec<_> = batch.spans.iter().filter(|span| span.graph == Some(3)).collect();
    let times = rows.iter().map(|row| (row.step, row.gpu.map(|gpu| gpu.dur_ns), row.derived));
    assert_eq!(times.collect::<Vec<_>>(), [4, 5].map(|step| (Some(step), Some(800), Some(true))));
}

/// Nodes of graph 3 in [`replays`].
const NODES: u64 = 1_516;

/// Ten whole replays, each of an interval of its own; then these, which go out together and lack so many records each.
/// The recorder tells of as many as `dropped` and, where it knows whose, of the launchers `of`. The last of the answer
/// is whether each of the latter has its time.
fn replays(lack: &[u64], dropped: u64, of: &[u64]) -> (SessionState, Kernels, Sender<Delivery>, Vec<bool>) {
    let (shared, ..) = session();
    let (deliver, deliveries) = unbounded();
    let mut kernels = Kernels::new("paper", unbounded().0, deliveries, Arc::default());
    let mut have_time = Vec::new();
    let whole = (1..=10).map(|seq| (vec![(seq, 0)], 0, Vec::new()));
    let last: Vec<(u64, u64)> = (11..).zip(lack.iter().copied()).collect();
    let of = of.iter().map(|seq| shared.span_id(*seq)).collect();
    for (ticket, (launched, dropped, dropped_of)) in (1..).zip(whole.chain([(last, dropped, of)])) {
        let nodes = |(seq, lost): &(u64, u64)| {
            let seq = *seq;
            (1..=NODES - lost).map(move |node| (seq, node))
        };
        let came = launched.iter().flat_map(nodes).map(|(seq, node)| replayed(&shared, seq, node)).collect();
        let sink = ActivitySink { kernels: came, dropped, dropped_of, ..ActivitySink::default() };
        deliver.send(Delivery { ticket, sink }).expect("it is received");
        kernels.receive(&shared);
        let mut batch = Batch::default();
        batch.spans.extend(launched.iter().map(|(seq, _)| interval(&shared, *seq, "decode")));
        let all: Vec<u32> = (0..launched.len() as u32).collect();
        have_time = kernels.attribute(&mut batch, &all, &shared).per_span().map(|inside| inside.recorded).collect();
    }
    (shared, kernels, deliver, have_time)
}

#[test]
fn what_the_recorder_told_of_is_a_part_of_what_a_replay_lacks() {
    let counts = |lack: &[u64], dropped, of: &[u64]| {
        let (_, kernels, _, have_time) = replays(lack, dropped, of);
        assert_eq!(kernels.counts.dropped, dropped);
        (kernels.counts.untold, have_time)
    };
    assert_eq!(counts(&[1_082], 0, &[]), (1_082, vec![false]));
    // As on an H200: two of 1,082 are told, with their interval or without.
    for of in [&[11, 11][..], &[11], &[]] {
        assert_eq!(counts(&[1_082], 2, of), (1_080, vec![false]), "told of {of:?}");
    }
    // What was told is all that is missing, or of something beside the graph.
    assert_eq!(counts(&[2], 2, &[11, 11]), (0, vec![false]));
    assert_eq!(counts(&[1], 2, &[]), (0, vec![false]));
    assert_eq!(counts(&[0], 1, &[11]), (0, vec![false]));
    // What is told of one of two replays is none of the other one's, and what is told of either is taken once.
    assert_eq!(counts(&[7, 5], 2, &[12, 12]), (10, vec![false; 2]));
    assert_eq!(counts(&[7, 5], 6, &[]), (6, vec![false; 2]));
}

#[test]
fn what_the_recorder_tells_of_an_interval_that_has_gone_out_is_not_counted_twice() {
    let (shared, mut kernels, deliver, _) = replays(&[9], 0, &[]);
    assert_eq!((kernels.counts.untold, kernels.counts.dropped), (9, 0));
    let of = vec![shared.span_id(11); 4];
    let sink = ActivitySink { dropped: 4, dropped_of: of, ..ActivitySink::default() };
    deliver.send(Delivery { ticket: 12, sink }).expect("it is received");
    kernels.receive(&shared);
    assert_eq!((kernels.counts.untold, kernels.counts.dropped), (5, 4));
}
