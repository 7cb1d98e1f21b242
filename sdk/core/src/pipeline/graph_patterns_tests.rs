//! Recorded steps, and steps made for a case.

use super::*;
use crate::record::{PathInfo, SpanId, ThreadInfo, TraceId};

/// Intervals and kernels of steps, with one number for each path.
#[derive(Default)]
struct Steps {
    paths: Vec<Arc<PathInfo>>,
    seq: u64,
}

/// A step: its intervals in enter order, and the index of that of each kernel.
struct Step {
    spans: Vec<SpanRecord>,
    kernels: Vec<(usize, RawKernel)>,
}

fn kernel(name: &str, grid: [u32; 3], block: [u32; 3], start: usize) -> RawKernel {
    RawKernel {
        kind: KernelKind::Kernel,
        name: name.into(),
        span: None,
        device: "GPU-paper".into(),
        stream: 7,
        start: HostNs(1_000 + start as i64 * 10),
        dur_ns: 5,
        grid: Some(grid),
        block: Some(block),
        registers: None,
        shared_static: None,
        shared_dynamic: None,
        bytes: None,
        launch: None,
        launch_start: None,
        launch_dur_ns: None,
        correlation: 1,
        graph: None,
        graph_node: None,
    }
}

impl Steps {
    fn path(&mut self, text: &str) -> Arc<PathInfo> {
        if let Some(known) = self.paths.iter().find(|known| known.path == text) {
            return known.clone();
        }
        let name = text.rsplit('/').next().expect("a name");
        let path = Arc::new(PathInfo::new(self.paths.len() as u32, text, name, "model"));
        self.paths.push(path.clone());
        path
    }

    /// A step whose kernels were launched below these paths.
    fn step<'a>(&mut self, kernels: impl IntoIterator<Item = (RawKernel, &'a str)>) -> Step {
        let thread = Arc::new(ThreadInfo::new(1, 7, "main"));
        let (mut spans, mut launched): (Vec<SpanRecord>, Vec<(usize, RawKernel)>) = Default::default();
        let first = self.seq + 1;
        for (kernel, path) in kernels {
            let ends = path.match_indices('/').map(|(at, _)| at).chain([path.len()]);
            let mut around = None;
            for end in ends {
                let path = self.path(&path[..end]);
                let known = spans.iter().position(|span| span.path.id == path.id);
                let at = known.unwrap_or_else(|| {
                    self.seq += 1;
                    let start = HostNs(self.seq as i64);
                    let id = SpanId(self.seq);
                    let mut span = SpanRecord::new(self.seq, TraceId(1), id, path, thread.clone(), start, 1);
                    (span.step, span.parent_seq) = (Some(first), around);
                    spans.push(span);
                    spans.len() - 1
                });
                around = Some(spans[at].seq);
            }
            let at = spans.iter().position(|span| Some(span.seq) == around).expect("it was made");
            launched.push((at, kernel));
        }
        Step { spans, kernels: launched }
    }

    /// A step of so many layers of eight kernels each, called `layer`, in a step called `root`.
    fn model(&mut self, root: &str, layer: &str, layers: usize) -> Step {
        let path = |at: usize| format!("{root}/{layer}[{}]", at / 8);
        let paths: Vec<String> = (0..layers * 8).map(path).collect();
        let kernel = |at: usize| kernel(&format!("k{}", at % 8), [at as u32 / 8 + 1, 1, 1], [32, 1, 1], at);
        self.step(paths.iter().enumerate().map(|(at, path)| (kernel(at), path.as_str())))
    }
}

impl Step {
    /// What the patterns learn of it.
    fn learned_by(&self, patterns: &mut GraphPatterns) -> Vec<u64> {
        let at = self.spans.iter().enumerate().map(|(i, span)| (span.seq, i)).collect();
        let seen = self.kernels.iter().map(|(whose, kernel)| patterns.see(*whose, kernel)).collect();
        patterns.learn_step(&self.spans, &at, self.spans[0].step, seen)
    }

    /// The path of each kernel.
    fn paths(&self) -> Vec<&str> {
        self.kernels.iter().map(|(at, _)| self.spans[*at].path.path.as_str()).collect()
    }

    /// The same kernels, launched by a graph whose nodes are numbered.
    fn as_graph(&self, graph: u32) -> Vec<RawKernel> {
        let number = |(n, (_, kernel)): (usize, &(usize, RawKernel))| {
            let node = u64::from(graph) << 32 | n as u64;
            RawKernel { graph: Some(graph), graph_node: Some(node), ..kernel.clone() }
        };
        self.kernels.iter().enumerate().map(number).collect()
    }

    /// A replay of a graph that was captured in it.
    fn as_replay(&self, graph: u32) -> Replay {
        let at = self.spans.iter().enumerate().map(|(i, span)| (span.seq, i)).collect();
        let held = self.kernels.iter().map(|(at, _)| *at);
        let (form, places) = Form::of(&self.spans, &at, self.spans[0].step, held);
        let placed = self.kernels.iter().zip(self.as_graph(graph)).map(|((at, _), kernel)| (places[at], kernel));
        Replay { kernels: placed.collect(), form: Arc::new(form), derived: false }
    }

    fn root(&self) -> Option<u32> {
        Some(self.spans[0].path.id)
    }
}

/// The path of each kernel of a replay.
fn derived(patterns: &mut GraphPatterns, kernels: &[RawKernel], root: Option<u32>) -> Option<Vec<Option<String>>> {
    let graph = kernels.first().and_then(|kernel| kernel.graph).expect("a graph");
    let DerivedLayers { form, places } = patterns.find(graph, kernels, root)?;
    Some(places.iter().map(|place| place.map(|place| form.spans[place].path.path.clone())).collect())
}

/// Steps as they were recorded: one that was launched call by call, the graph of its shape, that of another shape, and one that lost
/// more than half of its records.
fn recorded(steps: &mut Steps) -> [Step; 4] {
    let (mut signatures, mut paths, mut found) = (Vec::new(), Vec::new(), Vec::new());
    let mut part = "";
    for line in include_str!("smollm2_steps.txt").lines().filter(|line| !line.starts_with('#')) {
        if line == "signatures" || line == "paths" || line.starts_with("step ") {
            part = line;
        } else if part == "signatures" {
            let (name, numbers) = line.split_once(' ').expect("a name");
            let n: Vec<u32> = numbers.split(' ').map(|n| n.parse().expect("a number")).collect();
            signatures.push((name, [n[0], n[1], n[2]], [n[3], n[4], n[5]]));
        } else if part == "paths" {
            paths.push(line);
        } else {
            let kernels = line.split(' ').enumerate().map(|(at, one)| {
                let (signature, path) = one.split_once(':').expect("two numbers");
                let (name, grid, block) = signatures[signature.parse::<usize>().expect("a number")];
                (kernel(name, grid, block, at), paths[path.parse::<usize>().expect("a number")])
            });
            found.push(steps.step(kernels));
        }
    }
    found.try_into().unwrap_or_else(|found: Vec<Step>| panic!("{} steps", found.len()))
}

#[test]
fn a_recorded_replay_has_the_layers_of_the_step_that_ran_the_same_call_by_call() {
    let mut steps = Steps::default();
    let [eager, same_shape, other_shape, lossy] = recorded(&mut steps);
    assert_eq!((eager.kernels.len(), same_shape.kernels.len(), lossy.kernels.len()), (734, 732, 345));
    let mut patterns = GraphPatterns::default();
    let replay = same_shape.as_graph(5);
    assert_eq!(derived(&mut patterns, &replay, same_shape.root()), None, "nothing is known");
    assert!(eager.learned_by(&mut patterns).is_empty());
    let found = derived(&mut patterns, &replay, same_shape.root()).expect("it is the same step");
    // The truth is known: the recorder saw this graph's capture.
    let truth = same_shape.paths();
    assert!(found.iter().map(Option::as_deref).eq(truth.iter().copied().map(Some)));
    assert!(truth.contains(&"decode/block[29]/mlp/down_proj"));
    // Attention has other blocks there, so that one kernel in six is another one; and half a replay may be anything.
    for (graph, other) in [(2, &other_shape), (9, &lossy)] {
        assert_eq!(derived(&mut patterns, &other.as_graph(graph), other.root()), None, "graph {graph}");
    }
}

#[test]
fn a_recorded_replay_without_one_record_has_the_layers_of_its_twin() {
    let mut steps = Steps::default();
    let [_, twin, other, _] = recorded(&mut steps);
    let mut patterns = GraphPatterns::default();
    assert!(patterns.learn_replay(&twin.as_replay(5)).is_empty());
    let mut replay = twin.as_graph(6);
    replay.remove(400);
    let found = derived(&mut patterns, &replay, twin.root()).expect("it is like its twin");
    let mut truth = twin.paths();
    truth.remove(400);
    let told: Vec<(&str, &str)> =
        found.iter().zip(truth).filter_map(|(own, right)| Some((own.as_deref()?, right))).collect();
    assert!(told.iter().all(|(own, right)| own == right), "those that have a layer have the right one");
    assert!(told.len() > 720, "{}", told.len());
    assert_eq!(derived(&mut patterns, &other.as_graph(7), other.root()), None);
}

#[test]
fn a_step_of_another_name_is_no_evidence_and_a_graph_captured_in_one_is() {
    let mut steps = Steps::default();
    let (prefill, decode) = (steps.model("prefill", "layer", 4), steps.model("decode", "layer", 4));
    let mut patterns = GraphPatterns::default();
    prefill.learned_by(&mut patterns);
    let replay = decode.as_graph(9);
    assert_eq!(derived(&mut patterns, &replay, decode.root()), None, "a prompt of one token runs the same");
    patterns.learn_replay(&prefill.as_replay(3));
    let found = derived(&mut patterns, &replay, decode.root()).expect("its twin is known");
    assert_eq!(found[8].as_deref(), Some("prefill/layer[1]"), "as the twin's replays have it");
    // What ran in the same step is the better evidence, from then on.
    assert_eq!(decode.learned_by(&mut patterns).len(), 32, "the layers found before are doubted");
    let again = decode.as_graph(10);
    let found = derived(&mut patterns, &again, decode.root()).expect("the step itself is known");
    assert_eq!(found[8].as_deref(), Some("decode/layer[1]"));
}

#[test]
fn where_two_steps_run_the_same_below_other_layers_nothing_is_derived() {
    let mut steps = Steps::default();
    let (one, other) = (steps.model("decode", "layer", 4), steps.model("decode", "expert", 4));
    let mut patterns = GraphPatterns::default();
    one.learned_by(&mut patterns);
    other.learned_by(&mut patterns);
    assert_eq!(derived(&mut patterns, &one.as_graph(9), one.root()), None);
    // Nor does it stay where the second one comes later.
    let mut patterns = GraphPatterns::default();
    one.learned_by(&mut patterns);
    let replay = one.as_graph(9);
    assert!(derived(&mut patterns, &replay, one.root()).is_some());
    let mut doubted = other.learned_by(&mut patterns);
    doubted.sort_unstable();
    assert_eq!(doubted, replay.iter().filter_map(|kernel| kernel.graph_node).collect::<Vec<_>>());
    assert_eq!(derived(&mut patterns, &replay, one.root()), None);
    // The same layers again are no other ones.
    let mut patterns = GraphPatterns::default();
    one.learned_by(&mut patterns);
    assert!(derived(&mut patterns, &replay, one.root()).is_some());
    assert!(steps.model("decode", "layer", 4).learned_by(&mut patterns).is_empty());
    patterns.learn_replay(&steps.model("decode", "layer", 4).as_replay(3));
    assert!(derived(&mut patterns, &one.as_graph(10), one.root()).is_some());
}

#[test]
fn copies_have_the_layer_of_those_between_the_same_kernels() {
    let mut steps = Steps::default();
    let of = |copies: [Option<&'static str>; 2]| {
        let kernels = (0..4).map(|at| kernel(&format!("k{at}"), [1, 1, 1], [32, 1, 1], at * 10));
        let mut all: Vec<(RawKernel, String)> =
            kernels.enumerate().map(|(at, kernel)| (kernel, format!("decode/layer[{at}]"))).collect();
        for (after, name) in copies.iter().enumerate().rev() {
            let Some(name) = name else { continue };
            let copy = kernel(name, [0; 3], [0; 3], after * 10 + 5);
            let copy = RawKernel { kind: KernelKind::Memcpy, grid: None, block: None, ..copy };
            all.insert(after + 1, (copy, format!("decode/layer[{after}]/copy")));
        }
        all
    };
    let mut step = |copies| {
        let all = of(copies);
        steps.step(all.iter().map(|(kernel, path)| (kernel.clone(), path.as_str())))
    };
    let (known, same, other) =
        (step([Some("dtod"), Some("htod")]), step([Some("dtod"), None]), step([Some("dtod"), Some("dtod")]));
    let mut patterns = GraphPatterns::default();
    known.learned_by(&mut patterns);
    let found = derived(&mut patterns, &same.as_graph(4), same.root()).expect("copies do not count");
    assert_eq!(found[1].as_deref(), Some("decode/layer[0]/copy"));
    let found = derived(&mut patterns, &other.as_graph(5), other.root()).expect("copies do not count");
    assert_eq!((found[1].is_some(), &found[3]), (true, &None), "another copy was there");
}

#[test]
fn streams_stand_one_after_the_other_whatever_their_numbers() {
    let mut steps = Steps::default();
    // The second stream is behind the first one, by more or less.
    let mut on = |streams: [u32; 2], behind: i64| {
        let mut step = steps.model("decode", "layer", 4);
        for (at, (_, kernel)) in step.kernels.iter_mut().enumerate() {
            kernel.stream = streams[at % 2];
            kernel.start.0 += if at % 2 == 1 { behind } else { 0 };
        }
        step
    };
    let (known, replay) = (on([7, 13], 0), on([20, 14], 95));
    let mut patterns = GraphPatterns::default();
    known.learned_by(&mut patterns);
    let found = derived(&mut patterns, &replay.as_graph(4), replay.root()).expect("the same in each stream");
    assert!(found.iter().map(Option::as_deref).eq(replay.paths().into_iter().map(Some)));
}

#[test]
fn streams_that_run_the_same_below_other_layers_are_no_evidence() {
    let mut steps = Steps::default();
    let mut step = |paths: [&'static str; 2]| {
        let launched = |at: usize| {
            let one = kernel(&format!("k{}", at / 2), [1, 1, 1], [32, 1, 1], at);
            (RawKernel { stream: 7 + at as u32 % 2, ..one }, paths[at % 2])
        };
        steps.step((0..8).map(launched))
    };
    let (twins, same) = (step(["decode/k_proj", "decode/v_proj"]), step(["decode/k_proj", "decode/k_proj"]));
    let mut patterns = GraphPatterns::default();
    twins.learned_by(&mut patterns);
    patterns.learn_replay(&twins.as_replay(3));
    assert_eq!(derived(&mut patterns, &twins.as_graph(4), twins.root()), None, "the other one may begin first");
    same.learned_by(&mut patterns);
    assert!(derived(&mut patterns, &same.as_graph(5), same.root()).is_some(), "both are of one layer");
}

#[test]
fn the_end_of_a_stream_and_the_beginning_of_the_next_are_no_piece_of_one() {
    let mut steps = Steps::default();
    let mut known = steps.model("decode", "layer", 16);
    known.kernels.iter_mut().skip(64).for_each(|(_, kernel)| kernel.stream = 13);
    let mut patterns = GraphPatterns::default();
    known.learned_by(&mut patterns);
    let mut piece = |graph, part: std::ops::Range<usize>| {
        let mut kernels = known.as_graph(graph)[part].to_vec();
        kernels.iter_mut().for_each(|kernel| kernel.stream = 7);
        derived(&mut patterns, &kernels, known.root())
    };
    assert!(piece(4, 0..64).is_some(), "all of the first stream");
    assert_eq!(piece(5, 32..100), None);
}

#[test]
fn what_is_captured_again_and_again_is_kept_once() {
    let mut steps = Steps::default();
    let (first, again) = (steps.model("decode", "layer", 5), steps.model("decode", "layer", 4));
    let mut patterns = GraphPatterns::default();
    patterns.learn_replay(&first.as_replay(1));
    (2..2 + 2 * MOST_CAPTURED as u32)
        .for_each(|graph| assert!(patterns.learn_replay(&again.as_replay(graph)).is_empty()));
    assert_eq!((patterns.captured.len(), patterns.version), (2, 2));
    assert!(derived(&mut patterns, &first.as_graph(900), first.root()).is_some(), "it is not forgotten");
}

#[test]
fn a_program_without_graphs_is_looked_at_for_a_while_and_a_replay_without_layers_asks_for_more() {
    let mut steps = Steps::default();
    let mut patterns = GraphPatterns::default();
    let step = steps.model("decode", "layer", 1);
    (0..MOST_LOOKED_AT).for_each(|_| {
        assert!(patterns.looks_at_steps());
        step.learned_by(&mut patterns);
    });
    assert!(!patterns.looks_at_steps());
    let other = steps.model("decode", "layer", 3);
    assert_eq!(derived(&mut patterns, &other.as_graph(4), other.root()), None);
    assert!(patterns.looks_at_steps());
    // No more is kept than is stated, and the oldest is forgotten first.
    for layers in 10..10 + MOST_STEPS {
        steps.model("decode", "layer", layers).learned_by(&mut patterns);
    }
    assert_eq!(patterns.steps.len(), MOST_STEPS);
    assert_eq!(derived(&mut patterns, &step.as_graph(5), step.root()), None);
}
