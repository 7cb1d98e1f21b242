//! What the drain has counted, for whoever asks and for the verdict.

use super::Drain;
use super::source::ThreadSums;
use crate::run::{Code, Finding, StepCounts};
use crate::tally::Tally;
use std::sync::atomic::Ordering;

impl Drain {
    pub(super) fn tally(&self) -> Tally {
        let mut sums = self.gone;
        self.sources.iter().for_each(|source| sums.add(source));
        let ThreadSums { mut loss, drained, entered, .. } = sums;
        // Intervals that are nested too deeply, or whose thread has no ring, are emitted without having been entered
        // into the stack.
        loss.open_at_end = entered.saturating_sub(loss.emitted.saturating_sub(loss.too_deep + loss.no_ring));
        loss.requests_paused = self.shared.requests_paused.load(Ordering::Relaxed);
        loss.requests_lost = self.shared.requests_lost.load(Ordering::Relaxed);
        loss.samples_lost = self.shared.samples_lost.load(Ordering::Relaxed);
        let mark_ticks = self.shared.gpu.as_ref().map_or(0, |gpu| gpu.counts.ticks.load(Ordering::Relaxed));
        Tally {
            loss,
            drained,
            steps: self.steps(&sums),
            counts: self.counts,
            orphans: self.resolver.orphans,
            outlived_parent: self.resolver.outlived_parent,
            step_ns: self.resolver.step_ns,
            marks_ns: (mark_ticks as f64 * self.mapper.ns_per_tick()) as u64,
            model_spans: self.resolver.model_spans,
            helper_spans: self.resolver.helper_spans,
            phase_steps: self.resolver.phase_steps,
            hollow_phase_steps: self.resolver.hollow_phase_steps,
        }
    }

    /// How often a step that has no record began, or ended, or was lost, and whether one is open.
    pub(super) fn without_record(&self) -> (u64, bool) {
        let gone = self.gone.unrecorded_turns + self.gone.steps_lost;
        self.sources.iter().fold((gone, false), |(turns, open), source| {
            let (ended, begun) = source.counts.unrecorded();
            let lost = source.counts.steps_lost.load(Ordering::Acquire);
            (turns + ended + begun + lost, open || begun > ended)
        })
    }

    /// Steps by what became of them. Those that were to be recorded and have neither arrived nor been lost are still
    /// open.
    fn steps(&self, sums: &ThreadSums) -> StepCounts {
        let resolver = &self.resolver;
        StepCounts {
            begun: sums.steps_due
                + sums.steps_scheduled_out
                + sums.steps_plain
                + sums.steps_perturbed
                + sums.steps_paused,
            recorded: resolver.steps - resolver.steps_captured,
            captured: resolver.steps_captured,
            scheduled_out: sums.steps_scheduled_out,
            left_plain: sums.steps_plain,
            perturbed: sums.steps_perturbed,
            paused: sums.steps_paused,
            lost: sums.steps_lost,
            open_at_end: sums.steps_due.saturating_sub(resolver.steps + sums.steps_lost),
            schedule: self.shared.control.schedule(),
            budgeted: self.shared.control.budget().is_some(),
        }
    }

    /// Says in the verdict that spans of the application are in no figure: they may have been a model's. Those that
    /// were entered before the first phase was marked have become steps; readers leave them out.
    pub(super) fn note_outside_phases(&self) {
        let mut sums = self.gone;
        self.sources.iter().for_each(|source| sums.add(source));
        let before = match self.shared.phases_marked.load(Ordering::Relaxed) {
            true => self.resolver.application_steps,
            false => 0,
        };
        let entered = sums.outside_phases + before;
        if entered == 0 {
            return;
        }
        let mut names = Vec::new();
        self.shared.names.extend(&mut names);
        let first = self.resolver.application_step.filter(|_| before > 0);
        let first = first.map_or_else(|| self.shared.outside_phases.load(Ordering::Relaxed), |(_, name)| name);
        let name = names.get(first as usize);
        let name = name.map_or_else(String::new, |name| format!("{} ({})", name.name, name.target));
        let finding = Finding::new(
            Code::SpansOutsidePhases,
            "{entered} times a span was entered outside all phases, {name} the first: as this program marks phases, such \
             spans are taken for the application's and are in no figure",
            "nothing, if they are the application's; if the model runs in one, mark the pass as a phase: llm::prefill, \
             llm::decode, llm::encode or llm::vision",
        );
        let finding = finding.count("entered", entered).count("before_the_first_phase", before);
        self.shared.notices.note(finding.text("name", name));
    }
}
