//! The program's own steps inside of a range that stays open, such as one around all of a generation: what repeats
//! there is found as it is outside of ranges, and is a step of its own, with the range
//! around it.
//!
//! Such a step begins and ends where the program's loop is: at the fewest ranges that were open around anything between
//! two results.

use super::{OwnSteps, PatternVerdict, end_with_this_thread, waited};
use crate::inside_of_ranges::{INSIDE, LoopState, NONE, PATTERNS_INSIDE};
use crate::open;
use crate::patterns::{Patterns, StepKind, with_patterns};
use std::sync::atomic::Ordering;
use std::time::Instant;

/// Number of such a step, among those of ranges.
const NUMBER: u64 = (u64::MAX >> 1) - 1;

/// How often steps are begun in a window in vain: it only opens, or is full.
const TRIES: u32 = 10;

impl OwnSteps {
    /// Something begins on this thread inside of ranges: a range, or a call that puts work on a device, of which it is
    /// told whether it is in no step whose kernels are recorded.
    #[inline]
    pub(crate) fn inside(&self, outside: Option<bool>, window: Option<u64>) {
        let (depth, second) = (open::count(), self.time.load(Ordering::Relaxed));
        let _ = INSIDE.try_with(|inside| {
            if inside.base.get() == 0 && (!self.cuts_inside || window.is_none()) {
                return;
            }
            if depth < inside.fewest.get() {
                inside.fewest.set(depth);
            }
            let base = inside.base.get();
            if base != 0 && depth != base {
                return;
            }
            self.at_level(inside, depth, second, outside, window);
        });
    }

    /// The same, of what may end the step that is open or begin one.
    fn at_level(&self, inside: &LoopState, depth: u32, second: u64, outside: Option<bool>, window: Option<u64>) {
        let Some(window) = window.filter(|_| !self.has_phases()) else { return self.leave_inside() };
        if inside.window.replace(window) != window {
            // Nobody saw what the thread did until now.
            self.leave_inside();
            let _ = with_patterns(&PATTERNS_INSIDE, Patterns::forget);
            inside.tries.set(0);
            inside.had_room.set(false);
            inside.since.set(second);
            self.sees(window);
        }
        if inside.comes_in.take() {
            // A result from outside is none of what comes.
            inside.fetched.set(None);
            inside.has_results.set(false);
            inside.fewest_now.set(depth);
            inside.fewest_before.set(NONE);
            let is_known = with_patterns(&PATTERNS_INSIDE, |patterns| {
                patterns.begins_anew();
                patterns.is_known()
            });
            if is_known == Some(true) && depth == inside.usual.get() {
                self.enter_inside(inside, depth, second);
            }
        }
        if inside.second.replace(second) == second {
            inside.fewest_now.set(inside.fewest_now.get().min(depth));
        } else {
            inside.fewest_before.set(inside.fewest_now.replace(depth));
        }
        let is_open = inside.base.get() != 0;
        if inside.fetched.get().is_some() && (is_open || (inside.level.get() != 0 && depth <= inside.level.get())) {
            self.goes_on_inside(inside, depth, second);
        } else if second > inside.since.get() + self.longest() {
            // Kernels wait for the end of their step.
            if is_open || depth <= inside.fewest_before.get() {
                self.leave_inside();
                self.enter_inside(inside, depth, second);
            }
        } else if is_open && outside == Some(true) {
            self.leave_inside();
            // Where there was room before, the window is full.
            inside.tries.set(if inside.had_room.get() { TRIES } else { inside.tries.get() + 1 });
        } else if is_open && outside == Some(false) {
            inside.had_room.set(true);
        }
    }

    /// A result was fetched and the program goes on where its loop is.
    fn goes_on_inside(&self, inside: &LoopState, depth: u32, second: u64) {
        let was_open = inside.base.get() != 0;
        if self.ends_inside(inside) == Some(true) || (was_open && inside.base.get() == 0) {
            self.enter_inside(inside, depth, second);
        }
    }

    /// The step that is open ends with its result, unless it wants more. Whether a pattern is known, if something ended
    /// here.
    fn ends_inside(&self, inside: &LoopState) -> Option<bool> {
        let fetched = inside.fetched.take();
        inside.has_results.set(true);
        let said = with_patterns(&PATTERNS_INSIDE, |patterns| self.ask(patterns)).unwrap_or_default();
        let PatternVerdict { was: Some(was), is_foretold, is_known, repetition, passed, .. } = said else {
            return None;
        };
        let base = inside.base.get();
        if base != 0 {
            if repetition.is_some() {
                inside.usual.set(base);
            }
            let waited = waited(fetched, inside.began.get());
            self.count(is_foretold && !waited, repetition.filter(|_| !waited));
            self.leave_inside_as(inside, Some(if waited { StepKind::Other } else { was }));
        }
        self.recognises(passed);
        Some(is_known)
    }

    fn enter_inside(&self, inside: &LoopState, depth: u32, second: u64) {
        if inside.tries.get() >= TRIES {
            return;
        }
        let as_repeated = with_patterns(&PATTERNS_INSIDE, |patterns| patterns.is_known()).unwrap_or(false);
        self.ranges.enter(self.names_inside.at_begin(&self.ranges, as_repeated, self.model.is_some()), NUMBER);
        inside.as_repeated.set(as_repeated);
        inside.base.set(depth);
        inside.since.set(second);
        inside.began.set(Some(Instant::now()));
        end_with_this_thread();
    }

    /// Ends the step inside of ranges without a result, if one is open on this thread.
    #[inline]
    pub(super) fn leave_inside(&self) {
        let _ = INSIDE.try_with(|inside| {
            if inside.base.get() != 0 {
                let _ = with_patterns(&PATTERNS_INSIDE, Patterns::forget);
                self.leave_inside_as(inside, None);
            }
        });
    }

    fn leave_inside_as(&self, inside: &LoopState, was: Option<StepKind>) {
        inside.base.set(0);
        let begun_as = self.names_inside.at_begin(&self.ranges, inside.as_repeated.get(), self.model.is_some());
        let name = self.names_inside.at_end(&self.ranges, was, self.model.is_some());
        self.ranges.exit_as(NUMBER, (name != begun_as).then_some(name), self.did(was));
    }

    /// A range is about to end, and so many are open around it: what is inside of it ends.
    #[inline]
    pub(crate) fn range_ends(&self, around: u32) {
        let _ = INSIDE.try_with(|inside| {
            let base = inside.base.get();
            if base <= around {
                return;
            }
            // Its result is there, and what the loop does ends with the range.
            if inside.fetched.get().is_some() && base == around + 1 {
                self.ends_inside(inside);
            }
            self.leave_inside();
            // What was taken for a loop is none.
            if !inside.has_results.get() {
                inside.usual.set(0);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Model;
    use crate::program::{Call, KernelRecording};
    use crate::recording::Recording;
    use candlescope_core::{Batch, MemoryExporter};

    const WINDOW: Option<u64> = Some(7);

    /// What a thread records that does this.
    fn recorded(work: impl FnOnce(&Recording)) -> Batch {
        recorded_of(None, work)
    }

    fn recorded_of(model: Option<Model>, work: impl FnOnce(&Recording)) -> Batch {
        let memory = MemoryExporter::new();
        let builder = candlescope::builder().exporter(memory.clone()).report_at_end(false);
        let (_layer, scope) = builder.layer().expect("a session");
        let recording = Recording::new(scope, None, model, KernelRecording::PLAIN).expect("it records");
        work(&recording);
        recording.own.leave();
        recording.end();
        memory.batch()
    }

    /// A range around what `inside` does, as a program makes it.
    fn range(recording: &Recording, text: &str, number: u64, inside: impl FnOnce()) {
        let name = recording.name(0, text);
        if name.is_phase() {
            recording.own.marks_phases();
        }
        match open::count() {
            0 => recording.own.around(name.is_phase(), WINDOW),
            _ => recording.own.inside(None, WINDOW),
        }
        open::begins();
        recording.ranges.enter(name, number);
        inside();
        recording.own.range_ends(open::count() - 1);
        open::ends();
        recording.ranges.exit(number);
    }

    fn launch(recording: &Recording, what: u64) {
        recording.own.launches(Call { outside: false, what, is_graph: false }, WINDOW);
    }

    /// A token of six kernels, and its result.
    fn token(recording: &Recording) {
        (1..7).for_each(|what| launch(recording, what));
        recording.own.fetched();
    }

    fn prompt(recording: &Recording) {
        (0..30).for_each(|what| launch(recording, 100 + what));
        recording.own.fetched();
    }

    /// Paths of steps, each with that of the interval around it.
    fn steps(batch: &Batch) -> Vec<(&str, Option<&str>)> {
        let path = |seq: u64| Some(batch.spans.iter().find(|span| span.seq == seq)?.path.path.as_str());
        let mut steps: Vec<_> = batch.steps.iter().collect();
        steps.sort_by_key(|step| step.step);
        let around = |seq: u64| batch.spans.iter().find(|span| span.seq == seq)?.parent_seq.and_then(path);
        steps.iter().map(|step| (step.path.path.as_str(), around(step.seq))).collect()
    }

    #[test]
    fn what_repeats_in_a_range_around_all_of_it_is_a_step() {
        let batch = recorded(|recording| {
            range(recording, "generate", 1, || {
                prompt(recording);
                (0..8).for_each(|_| token(recording));
            });
            // It is known by now: the prompt of the next one is no token, and all tokens are.
            range(recording, "generate", 1, || {
                prompt(recording);
                (0..2).for_each(|_| token(recording));
            });
        });
        let generate = Some("program/generate");
        // The first token goes with the prompt, and three are learned from.
        let mut expected = vec![("program", None)];
        expected.extend([("repeated", generate); 4]);
        // From the result of the first generation to that of the second.
        expected.push(("program", None));
        expected.extend([("program", generate), ("repeated", generate), ("repeated", generate)]);
        assert_eq!(steps(&batch), expected);
    }

    #[test]
    fn tokens_of_a_model_that_is_told_are_decodes_and_what_lies_between_is_their_prompt() {
        let config = r#"{"model_type": "llama", "vocab_size": 100, "hidden_size": 64, "num_hidden_layers": 2,
            "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 128}"#;
        let model = Model::of(config, "batch=1,prompt=8").expect("a model");
        let batch = recorded_of(Some(model), |recording| {
            for tokens in [8, 2] {
                range(recording, "generate", 1, || {
                    prompt(recording);
                    (0..tokens).for_each(|_| token(recording));
                });
            }
        });
        let generate = Some("program/generate");
        let mut expected = vec![("program", None)];
        expected.extend([("decode", generate); 4]);
        expected.extend([("program", None), ("prefill", generate), ("decode", generate), ("decode", generate)]);
        assert_eq!(steps(&batch), expected);
        let tokens: Vec<_> = batch.steps.iter().filter_map(|step| Some((step.tokens?, step.context_len?))).collect();
        // Four tokens of the first prompt went by before one was known as such.
        let first = [(1, 13), (1, 14), (1, 15), (1, 16)];
        assert_eq!(tokens, [&first[..], &[(8, 8), (1, 9), (1, 10)]].concat());
    }

    #[test]
    fn steps_end_where_the_loop_is_and_not_in_what_it_calls() {
        let batch = recorded(|recording| {
            range(recording, "generate", 1, || {
                for _ in 0..8 {
                    range(recording, "forward", 2, || (1..6).for_each(|what| launch(recording, what)));
                    range(recording, "choose", 2, || {
                        launch(recording, 6);
                        recording.own.fetched();
                        launch(recording, 6);
                    });
                }
            });
        });
        let found = steps(&batch);
        assert_eq!(found[1..], [("repeated", Some("program/generate")); 3], "{found:?}");
        let paths = |path: &str| batch.spans.iter().filter(|span| span.path.path == path).count();
        assert_eq!([paths("repeated/forward"), paths("repeated/choose")], [3, 3]);
    }

    #[test]
    fn operators_and_steps_that_fetch_twice_are_what_they_were() {
        let batch = recorded(|recording| {
            for _ in 0..8 {
                range(recording, "aten::mm", 1, || {
                    range(recording, "aten::view", 2, || (1..7).for_each(|what| launch(recording, what)));
                });
                range(recording, "aten::item", 1, || range(recording, "copy", 2, || recording.own.fetched()));
            }
            for _ in 0..8 {
                range(recording, "train", 1, || {
                    token(recording);
                    token(recording);
                    (1..4).for_each(|what| launch(recording, what));
                });
            }
        });
        assert!(
            batch.steps.len() > 8 && steps(&batch).iter().all(|(_, around)| around.is_none()),
            "{:?}",
            steps(&batch)
        );
    }

    #[test]
    fn phases_inside_are_the_steps_where_the_program_marks_some() {
        let batch = recorded(|recording| {
            range(recording, "generate", 1, || {
                (0..6).for_each(|_| range(recording, "decode", 2, || token(recording)));
                (0..6).for_each(|_| token(recording));
            });
        });
        let found = steps(&batch);
        assert_eq!(found.iter().filter(|(path, _)| *path == "decode").count(), 6, "{found:?}");
        assert_eq!(found.len(), 7, "nothing is guessed: {found:?}");
    }

    #[test]
    fn without_results_time_ends_a_step_inside_a_range_as_well() {
        let batch = recorded(|recording| {
            range(recording, "main", 1, || {
                range(recording, "load", 2, || {
                    for second in 0..9 {
                        launch(recording, second);
                        range(recording, "block", 3, || launch(recording, second));
                        recording.own.tick();
                    }
                });
            });
        });
        let found = steps(&batch);
        // One second is the limit, and the next one has passed.
        assert_eq!(found[0], ("program", None));
        assert_eq!(found[1..], [("program", Some("program/main/load")); 4], "{found:?}");
    }
}
