//! Steps of an experiment: which of their intervals are made slower, and how. Not the hot path: these steps are in no
//! figure but the experiment's, in which the control does the same as the delayed one.

use super::super::frame::left_out;
use super::ThreadState;
use crate::clock::{TickSource, Ticks};
use crate::control::{StepDecision, StepFate};
use crate::perturb::{Arm, Experiment, NOWHERE, OnThread, PathQuery, StepBegin, StepRole, Tree};
use crate::record::SEQ_BITS;
use crate::shared::SessionState;
use crate::vocabulary::Side;
use std::sync::atomic::Ordering::Relaxed;

impl ThreadState {
    /// Called when a step of name `name` begins while an experiment goes on, or a step of one. Returns what
    /// [`begin_step`](Self::begin_step) returns, with bits of [`left_out`] for the step.
    #[cold]
    #[inline(never)]
    pub(super) fn begin_perturbed(
        &mut self,
        shared: &SessionState,
        name: u32,
        request: u32,
        phase: u8,
        nested: bool,
    ) -> ((StepDecision, bool), u8) {
        let perturbed = self.takes_part(shared, name, request, phase, nested);
        let begun = self.begin_step(shared, name, nested, perturbed);
        let left_out = if perturbed { self.settle_perturbed(shared, begun.0.fate, request) } else { 0 };
        (begun, left_out)
    }

    /// Whether a step that begins is to be part of an experiment.
    fn takes_part(&mut self, shared: &SessionState, name: u32, request: u32, phase: u8, nested: bool) -> bool {
        // A step inside another one is what that one is.
        self.in_perturbed = self.has_perturbed_open();
        if self.in_perturbed {
            return true;
        }
        // The forked child of a program has nobody who takes what is found.
        if nested || !shared.control.perturbs() || shared.is_forked() {
            return false;
        }
        if shared.control.in_a_window() || shared.control.is_off() {
            // What is recorded is no part of a stretch, and a stretch around it would last as long as that takes.
            if let Some(experiment) = shared.experiment().filter(|experiment| experiment.assigned().is_some()) {
                experiment.give_up();
            }
            return false;
        }
        let number = shared.experiments.load(Relaxed);
        if self.perturbed.as_ref().is_none_or(|perturbed| perturbed.number != number) {
            let latest = shared.experiment();
            self.perturbed = latest.map(|experiment| {
                Box::new(OnThread { experiment, number, tree: Tree::default(), part_of: None, first: false })
            });
        }
        let thread = self.thread();
        let Some(perturbed) = self.perturbed.as_deref_mut() else { return false };
        let OnThread { experiment, tree, .. } = perturbed;
        let node = tree.node(PathQuery { experiment, names: &shared.names, parent: NOWHERE, name });
        let Some(info) = tree.info(node) else { return false };
        let is_kind = experiment.is_kind(&info.name, info.text, phase, shared.phases_marked.load(Relaxed));
        let now = shared.ticks.now();
        let beginning = StepBegin { thread, name: &info.name, text: info.text, phase, request, is_kind, now };
        (perturbed.part_of, perturbed.first) = match experiment.begin(&beginning) {
            StepRole::Part { of, first } => (Some(of), first),
            // Part of no stretch, and not recorded.
            StepRole::Usual if experiment.alone => (None, false),
            StepRole::Usual => return false,
        };
        true
    }

    fn has_perturbed_open(&self) -> bool {
        self.open().iter().any(|frame| frame.is_left_out(left_out::PERTURBED))
    }

    /// What became of a step that was to be part of an experiment is known. Returns bits of [`left_out`].
    fn settle_perturbed(&mut self, shared: &SessionState, fate: StepFate, request: u32) -> u8 {
        let Some(perturbed) = self.perturbed.as_deref_mut() else { return 0 };
        let first = std::mem::take(&mut perturbed.first);
        if fate != StepFate::Perturbed {
            // A window was opened in between.
            if first {
                perturbed.experiment.give_up();
            }
            return 0;
        }
        self.in_perturbed = true;
        if request != 0 {
            shared.steps_of_requests.mark_perturbed(request);
        }
        left_out::PERTURBED | if first { left_out::FIRST } else { 0 }
    }

    fn thread(&self) -> u64 {
        self.next_seq >> SEQ_BITS
    }

    /// An interval of such a step begins, or the step itself.
    #[cold]
    pub(super) fn enter_perturbed(&mut self, shared: &SessionState, at: usize) {
        let thread = self.thread();
        let Some(OnThread { experiment, tree, part_of: Some(of), .. }) = self.perturbed.as_deref_mut() else { return };
        let around = self.frames[..at].iter().rev().find(|frame| !frame.is_detached());
        let around = around.filter(|frame| frame.is_left_out(left_out::PERTURBED));
        let own = &self.frames[at];
        let is_of_it = if own.is_step() { own.is_left_out(left_out::PERTURBED) } else { around.is_some() };
        if !is_of_it {
            return;
        }
        let (parent, inside) = match around {
            Some(frame) => (frame.marks[0], frame.left_out & (left_out::TARGET | left_out::IN_TARGET) != 0),
            None => (NOWHERE, false),
        };
        let frame = &mut self.frames[at];
        let parent = if frame.is_step() { NOWHERE } else { parent };
        frame.left_out |= left_out::PERTURBED;
        if frame.transparent {
            frame.left_out |= if inside { left_out::IN_TARGET } else { 0 };
            frame.marks[0] = parent;
            return;
        }
        let name = frame.name;
        let node = tree.node(PathQuery { experiment, names: &shared.names, parent, name });
        frame.marks[0] = node;
        // Of intervals inside each other that are both meant, the outer one is made slower.
        frame.left_out |= match inside {
            true => left_out::IN_TARGET,
            false if tree.is_target(node, of.arm()) => left_out::TARGET,
            false => 0,
        };
        frame.start = shared.ticks.now();
        if frame.is_left_out(left_out::FIRST) {
            experiment.began_with(thread, frame.step, frame.start);
        }
    }

    /// The same ends.
    #[cold]
    pub(super) fn exit_perturbed(&mut self, shared: &SessionState, at: usize) {
        self.in_perturbed = self.has_perturbed_open();
        let Some(OnThread { experiment, part_of: Some(of), .. }) = self.perturbed.as_deref() else { return };
        let frame = &self.frames[at];
        // A step that outlasts its stretch is not made slower in the next one.
        if frame.is_left_out(left_out::TARGET)
            && experiment.assigned() == Some(*of)
            && let Some(arm) = experiment.arms.get(of.arm())
        {
            let took = shared.ticks.now().0.saturating_sub(frame.start.0);
            let added = match arm.side {
                Side::Host => keep_busy(arm, experiment, &shared.ticks, took, of.delayed()),
                Side::Device => {
                    let ns = if of.delayed() { experiment.granted(arm.device_delay_ns()) } else { 0 };
                    let waits = self.gpu.as_mut().is_some_and(|marker| marker.wait(ns).is_ok());
                    if waits { ns } else { 0 }
                }
            };
            experiment.add(*of, took, added);
        }
        if self.frames[at].is_left_out(left_out::FIRST) {
            experiment.step_ended(*of, shared.ticks.now());
        }
    }
}

/// Adds time to an interval that took `took` ticks, if it is `delayed`. Returns how many ticks passed.
fn keep_busy(arm: &Arm, experiment: &Experiment, ticks: &TickSource, took: u64, delayed: bool) -> u64 {
    // No less than was asked for, unless the budget has less.
    let asked = (arm.delay.of(took as f64 * experiment.ns_per_tick) / experiment.ns_per_tick).ceil() as u64;
    let Ticks(began) = ticks.now();
    if !delayed {
        return 0;
    }
    let wanted = experiment.granted(asked);
    loop {
        let passed = ticks.now().0.saturating_sub(began);
        if passed >= wanted {
            return passed;
        }
        std::hint::spin_loop();
    }
}
