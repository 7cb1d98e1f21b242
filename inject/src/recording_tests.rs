//! Recordings of made programs: which steps and paths there are.

use super::*;
use candlescope_core::MemoryExporter;

/// Steps by name, and paths in order, of what a thread does.
fn recorded(work: impl FnOnce(&Recording)) -> (Vec<String>, Vec<String>) {
    recorded_with(KernelRecording::PLAIN, None, work)
}

fn recorded_with(
    kernels: KernelRecording,
    model: Option<Model>,
    work: impl FnOnce(&Recording),
) -> (Vec<String>, Vec<String>) {
    let memory = MemoryExporter::new();
    let builder = candlescope::builder().exporter(memory.clone()).report_at_end(false);
    let (_layer, scope) = builder.layer().expect("a session");
    let recording = Recording::new(scope, None, model, kernels).expect("it records");
    work(&recording);
    recording.own.leave();
    recording.end();
    let batch = memory.batch();
    let mut spans: Vec<_> = batch.spans.iter().collect();
    spans.sort_by_key(|span| span.seq);
    let steps = spans.iter().filter(|span| span.parent_seq.is_none()).map(|span| span.path.path.clone()).collect();
    (steps, spans.iter().map(|span| span.path.path.clone()).collect())
}

#[cfg(feature = "gpu")]
#[test]
fn a_recording_without_calls_ends_early_as_well() {
    static TIMES: AtomicU64 = AtomicU64::new(0);
    at_first_launch(|| _ = TIMES.fetch_add(1, Ordering::Relaxed));
    (0..3).for_each(|_| launches_first());
    assert_eq!(TIMES.load(Ordering::Relaxed), 1, "registered once");
}

fn call(outside: bool) -> Call {
    Call { outside, what: 1, is_graph: false }
}

#[test]
fn a_step_lasts_from_one_result_to_the_next() {
    let (steps, _) = recorded(|recording| {
        recording.own.launches(call(true), Some(7));
        for _ in 0..3 {
            (0..5).for_each(|_| recording.own.launches(call(false), Some(7)));
            recording.own.fetched();
            recording.own.fetched();
        }
        recording.own.launches(call(false), Some(7));
    });
    assert_eq!(steps, ["program"; 4]);
}

#[test]
fn a_window_that_has_its_steps_gets_no_more_until_the_next_one() {
    let (steps, _) = recorded(|recording| {
        let launch = |outside, window| recording.own.launches(call(outside), window);
        launch(true, Some(7));
        launch(false, Some(7));
        // A range that is a phase ends it, and there is room for one more after that.
        let phase = recording.name(0, "prefill");
        recording.own.around(phase.is_phase(), Some(7));
        recording.ranges.enter(phase, 1);
        recording.ranges.exit(1);
        launch(true, Some(7));
        launch(false, Some(7));
        // The window has no room for the next one.
        recording.own.fetched();
        launch(false, Some(7));
        (0..9_999).for_each(|_| launch(true, Some(7)));
        launch(true, Some(8));
        launch(false, Some(8));
        // Between windows nothing is told, and nothing begins.
        launch(true, None);
    });
    let expected = ["program", "prefill", "program", "program", "program"];
    assert_eq!(steps, expected, "with one that found no room, and one of the second window");
}

/// What a program launches while a window opens is in none: steps that began then are begun again, ever less often.
#[test]
fn a_window_that_only_opens_has_its_steps_soon() {
    let (steps, _) = recorded(|recording| {
        (0..100).for_each(|_| recording.own.launches(call(true), Some(7)));
        (0..100).for_each(|_| recording.own.launches(call(false), Some(7)));
    });
    assert_eq!(steps.len(), 8, "at once, and after 1, 2, 4, 8, 16, 32 and 64 calls");
    let (steps, _) = recorded(|recording| {
        (0..9_999).for_each(|_| recording.own.launches(call(true), Some(9)));
    });
    assert_eq!(steps.len(), 11, "and never again");
}

#[test]
fn operators_are_parts_of_the_programs_step_and_phases_are_steps() {
    let (steps, paths) = recorded(|recording| {
        let range = |text: &str, number: u64, window: Option<u64>| {
            let name = recording.name(0, text);
            recording.own.around(name.is_phase(), window);
            recording.ranges.enter(name, number);
            recording.ranges.exit(number);
        };
        range("aten::mm, seq = 1", 1, Some(7));
        range("aten::add", 2, Some(7));
        recording.own.fetched();
        range("aten::mm, seq = 2", 3, Some(7));
        range("decode 1", 4, Some(7));
        // No window: a range by itself is a step.
        range("forward", 5, None);
    });
    assert_eq!(steps, ["program", "program", "decode 1", "forward"]);
    assert_eq!(paths[..3], ["program", "program/aten::mm", "program/aten::add"]);
}

/// A range as a program makes it.
fn range(recording: &Recording, text: &str, window: Option<u64>) {
    let name = recording.name(0, text);
    if name.is_phase() {
        recording.own.marks_phases();
    }
    recording.own.around(name.is_phase(), window);
    recording.ranges.enter(name, 1);
    recording.ranges.exit(1);
}

#[test]
fn where_no_window_comes_ranges_are_steps() {
    let soon = KernelRecording { all: Some(Duration::from_millis(50)), ..KernelRecording::PLAIN };
    let (steps, _) = recorded_with(soon, None, |recording| {
        (0..3).for_each(|_| range(recording, "forward", None));
        std::thread::sleep(Duration::from_millis(60));
        (0..2).for_each(|_| range(recording, "forward", None));
    });
    assert_eq!(steps, ["program", "forward", "forward"]);
}

#[test]
fn in_windows_that_count_ranges_these_are_steps() {
    let counted = KernelRecording { ranges_are_steps: true, ..KernelRecording::PLAIN };
    let (steps, _) = recorded_with(counted, None, |recording| {
        range(recording, "forward", None);
        (0..2).for_each(|_| range(recording, "forward", Some(7)));
    });
    assert_eq!(steps, ["forward"; 3]);
}

/// A token of six kernels and its result, so often.
fn tokens(recording: &Recording, times: usize, window: u64) {
    for _ in 0..times {
        (1..7).for_each(|what| recording.own.launches(Call { outside: false, what, is_graph: false }, Some(window)));
        recording.own.fetched();
    }
}

#[test]
fn where_a_server_waits_for_requests_that_is_in_no_token() {
    let (steps, _) = recorded(|recording| {
        recording.own.launches(call(true), Some(7));
        recording.own.fetched();
        tokens(recording, 5, 7);
        std::thread::sleep(Duration::from_millis(150));
        tokens(recording, 2, 7);
    });
    // The first launch, three that are learned from, one like them, the one that waited, and after it one and the last.
    let expected = ["program", "program", "program", "program", "repeated", "program", "repeated", "program"];
    assert_eq!(steps, expected);
}

#[test]
fn what_a_program_says_is_not_guessed_and_windows_know_nothing_of_what_was_before() {
    let config = r#"{"model_type": "llama", "vocab_size": 100, "hidden_size": 64, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 128}"#;
    let model = || Model::of(config, "batch=1,prompt=8").expect("a model");
    // As a phase is in it, a request repeats and is no token. On a thread of its own, which goes on so.
    let marked = || {
        recorded_with(KernelRecording::PLAIN, Some(model()), |recording| {
            recording.own.launches(call(true), Some(7));
            recording.own.fetched();
            recording.own.marks_phases();
            tokens(recording, 6, 7);
        })
    };
    let (steps, _) = std::thread::scope(|scope| scope.spawn(marked).join()).expect("ends");
    assert_eq!(steps, ["program"; 7]);
    let in_windows = KernelRecording { in_windows: true, ..KernelRecording::PLAIN };
    let (steps, _) = recorded_with(in_windows, Some(model()), |recording| {
        recording.own.launches(call(true), Some(7));
        recording.own.fetched();
        tokens(recording, 5, 7);
        // The next window opens in the middle of a token.
        recording.own.launches(call(true), Some(8));
        (3..7).for_each(|what| recording.own.launches(Call { outside: false, what, is_graph: false }, Some(8)));
        recording.own.fetched();
        tokens(recording, 2, 8);
    });
    let expected = [vec!["program"; 4], vec!["decode"; 2], vec!["program"], vec!["decode"], vec!["program"]].concat();
    assert_eq!(steps, expected);
}

/// Three tokens are needed until a pattern is known: they have passed when the first one is told as such.
#[test]
fn the_first_tokens_that_are_known_have_the_context_that_those_before_made() {
    let config = r#"{"model_type": "llama", "vocab_size": 100, "hidden_size": 64, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 128}"#;
    let contexts = |prompt: bool| {
        let memory = MemoryExporter::new();
        let builder = candlescope::builder().exporter(memory.clone()).report_at_end(false);
        let (_layer, scope) = builder.layer().expect("a session");
        let model = Model::of(config, "batch=1,prompt=8").expect("a model");
        let recording = Recording::new(scope, None, Some(model), KernelRecording::PLAIN).expect("it records");
        recording.own.launches(call(true), Some(7));
        let of_prompt = |what| recording.own.launches(Call { outside: false, what, is_graph: false }, Some(7));
        (100..130).filter(|_| prompt).for_each(of_prompt);
        recording.own.fetched();
        tokens(&recording, 6, 7);
        recording.own.leave();
        recording.end();
        let batch = memory.batch();
        let steps = batch.steps.iter().filter(|step| step.phase == Some(candlescope_core::Phase::Decode));
        steps.map(|step| (step.tokens, step.context_len, step.flops.is_some())).collect::<Vec<_>>()
    };
    // On threads of their own, which begin without a context.
    let [with, without] =
        [true, false].map(|prompt| std::thread::scope(|scope| scope.spawn(|| contexts(prompt)).join()).expect("ends"));
    // The last one goes on when the recording ends.
    assert_eq!(with, [(Some(1), Some(12), true), (Some(1), Some(13), true)]);
    assert_eq!(without, [(Some(1), None, false); 2], "nobody saw a prompt");
}
