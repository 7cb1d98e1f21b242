//! What one thread did when: on a CPU, ready, or waiting, between its switches.
//!
//! No I/O and no clocks here: events in, times out.

use crate::HostNs;
use crate::stacks::ThreadChange;
use std::collections::VecDeque;
use std::sync::Arc;

/// Switches and page faults that are remembered of one thread.
///
/// Overload policy: beyond this the oldest are forgotten, and what intervals did before them is not known.
const MOST_REMEMBERED: usize = 1 << 16;

/// Stretches of unknown time that are remembered; earlier ones are joined with the next.
const MOST_GAPS: usize = 64;

/// Time of a stretch, by what the thread did in it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct SpentTime {
    pub(crate) cpu_ns: u64,
    pub(crate) preempted_ns: u64,
    pub(crate) blocked_ns: u64,
}

/// What the thread does from a switch on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SwitchedTo {
    Runs,
    Waits,
    IsPreempted,
}

/// A switch, and what the thread had done before it, since it is followed.
#[derive(Debug, Clone, Copy)]
struct Switch {
    at: HostNs,
    before: SpentTime,
    does: SwitchedTo,
}

/// One thread's switches and page faults.
#[derive(Debug)]
pub(crate) struct ThreadTime {
    pub(crate) name: Arc<str>,
    /// Since when it is followed.
    since: HostNs,
    /// What it did then; not known before its first switch, and where no switches are reported.
    first: Option<SwitchedTo>,
    reports_switches: bool,
    reports_faults: bool,
    switches: VecDeque<Switch>,
    /// Time of each provision of pages, and all pages until then.
    faults: VecDeque<(HostNs, u64)>,
    /// Pages until the first of them.
    forgotten: (HostNs, u64),
    /// Stretches in which events were lost.
    gaps: VecDeque<(HostNs, HostNs)>,
    /// Since when nothing is reported.
    paused: Option<HostNs>,
    /// Time of the last event.
    latest: HostNs,
    /// Whether it has ended, or is no longer followed.
    pub(crate) ended: Option<HostNs>,
}

impl ThreadTime {
    /// A thread that is followed from `since` on.
    pub(crate) fn new(
        name: Arc<str>,
        since: HostNs,
        reports_switches: bool,
        reports_faults: bool,
        running: Option<bool>,
    ) -> Self {
        Self {
            name,
            since,
            first: running.map(|runs| if runs { SwitchedTo::Runs } else { SwitchedTo::Waits }),
            reports_switches,
            reports_faults,
            switches: VecDeque::new(),
            faults: VecDeque::new(),
            forgotten: (since, 0),
            gaps: VecDeque::new(),
            paused: None,
            latest: since,
            ended: None,
        }
    }

    /// Takes an event; they come in order of time.
    pub(crate) fn take(&mut self, at: HostNs, change: &ThreadChange) {
        match change {
            ThreadChange::On => self.switch(at, SwitchedTo::Runs),
            ThreadChange::Off { preempted: true } => self.switch(at, SwitchedTo::IsPreempted),
            ThreadChange::Off { preempted: false } => self.switch(at, SwitchedTo::Waits),
            ThreadChange::PageFaults(pages) => {
                self.faulted(at, u64::from(*pages));
            }
            ThreadChange::Paused => self.paused = Some(at),
            // What was recorded before a pause is read after it.
            ThreadChange::Lost if self.paused.is_some() => {}
            ThreadChange::Lost => self.lost(at),
            ThreadChange::Resumed => {
                self.lost(at);
                // What is counted from now on was not before.
                self.faulted(at, 0);
            }
            ThreadChange::Detached => self.ended = Some(at),
            ThreadChange::Attached { .. } => {}
        }
        self.latest = self.latest.max(at);
    }

    /// So many pages were provided since the last time that this was told, the last of them at this time.
    fn faulted(&mut self, at: HostNs, pages: u64) {
        let before = self.faults.back().map_or(self.forgotten.1, |(_, pages)| *pages);
        self.faults.push_back((at, before + pages));
        if self.faults.len() > MOST_REMEMBERED {
            self.forget_fault();
            self.forget_before(self.faults.front().map_or(at, |(at, _)| *at));
        }
    }

    fn switch(&mut self, at: HostNs, does: SwitchedTo) {
        let runs = does == SwitchedTo::Runs;
        let last = self.switches.back().copied();
        let before = match last {
            Some(last) => {
                if (last.does == SwitchedTo::Runs) == runs {
                    // A switch between these two was lost.
                    self.gap(last.at, at);
                }
                spent_until(&last, at)
            }
            // It did the opposite of what it does now.
            None => {
                let first = *self.first.get_or_insert(if runs { SwitchedTo::Waits } else { SwitchedTo::Runs });
                if (first == SwitchedTo::Runs) == runs {
                    self.gap(self.since, at);
                }
                spent_until(&Switch { at: self.since, before: SpentTime::default(), does: first }, at)
            }
        };
        self.switches.push_back(Switch { at, before, does });
        if self.switches.len() > MOST_REMEMBERED {
            self.switches.pop_front();
            self.forget_before(self.switches.front().map_or(at, |switch| switch.at));
        }
    }

    /// Events were lost since the last one.
    fn lost(&mut self, at: HostNs) {
        let from = self.paused.take().unwrap_or(self.latest);
        self.gap(from, at);
        // Who enters intervals runs then; if the thread does not, its next switch shows it, and is a gap.
        if let Some(last) = self.switches.back().copied() {
            let before = spent_until(&last, at);
            self.switches.push_back(Switch { at, before, does: SwitchedTo::Runs });
        }
    }

    fn gap(&mut self, from: HostNs, to: HostNs) {
        self.gaps.push_back((from, to));
        if self.gaps.len() > MOST_GAPS
            && let (Some(oldest), Some(next)) = (self.gaps.pop_front(), self.gaps.front_mut())
        {
            next.0 = next.0.min(oldest.0);
        }
    }

    fn forget_fault(&mut self) {
        if let Some(oldest) = self.faults.pop_front() {
            self.forgotten = oldest;
        }
    }

    /// What is before is not known any more.
    fn forget_before(&mut self, at: HostNs) {
        self.since = self.since.max(at);
    }

    /// Forgets what is not needed for times from `at` on.
    pub(crate) fn prune(&mut self, at: HostNs) {
        while self.switches.get(1).is_some_and(|second| second.at <= at) {
            self.switches.pop_front();
            self.forget_before(self.switches.front().map_or(at, |first| first.at));
        }
        while self.faults.get(1).is_some_and(|(second, _)| *second <= at) {
            self.forget_fault();
        }
        while self.gaps.front().is_some_and(|(_, to)| *to < at) {
            self.gaps.pop_front();
        }
    }

    /// What the thread did from `start` to `end`; `None` where that is not known.
    ///
    /// The thread enters and leaves intervals itself, so it runs at both times: of a thread without a switch since it is
    /// followed, that is known too.
    pub(crate) fn between(&self, start: HostNs, end: HostNs) -> Option<SpentTime> {
        if !self.reports_switches || !self.is_followed(start, end) {
            return None;
        }
        let (from, to) = (self.spent_at(start), self.spent_at(end));
        Some(SpentTime {
            cpu_ns: to.cpu_ns.saturating_sub(from.cpu_ns),
            preempted_ns: to.preempted_ns.saturating_sub(from.preempted_ns),
            blocked_ns: to.blocked_ns.saturating_sub(from.blocked_ns),
        })
    }

    /// Pages that were provided from `start` to `end`; `None` where that is not known.
    pub(crate) fn page_faults(&self, start: HostNs, end: HostNs) -> Option<u64> {
        if !self.reports_faults || !self.is_followed(start, end) {
            return None;
        }
        let until = |time: HostNs| {
            let after = self.faults.partition_point(|(at, _)| *at < time);
            let (from, before) = after.checked_sub(1).and_then(|last| self.faults.get(last)).unwrap_or(&self.forgotten);
            // One record stands for several: all but the last came at times that are not known, evenly as far as that goes.
            let next = self.faults.get(after).filter(|(at, pages)| at > from && pages - before > 1);
            let part = next.map_or(0.0, |(at, pages)| (pages - before - 1) as f64 * self.part(*from, time, *at));
            before + part.round() as u64
        };
        Some(until(end).saturating_sub(until(start)))
    }

    /// How much of the time between two has passed at `time`: of the thread's time on a CPU where that is known,
    /// because it faults nowhere else.
    fn part(&self, from: HostNs, time: HostNs, to: HostNs) -> f64 {
        if time <= from {
            return 0.0;
        }
        if self.reports_switches && from >= self.since {
            let [before, then, all] = [from, time, to].map(|at| self.spent_at(at).cpu_ns);
            if all > before {
                return (then.saturating_sub(before) as f64 / (all - before) as f64).min(1.0);
            }
        }
        (time.0 - from.0) as f64 / (to.0 - from.0) as f64
    }

    fn is_followed(&self, start: HostNs, end: HostNs) -> bool {
        start >= self.since
            && self.ended.is_none_or(|ended| end <= ended)
            && self.paused.is_none_or(|paused| end <= paused)
            && !self.gaps.iter().any(|(from, to)| *from < end && *to > start)
    }

    /// What the thread did at a time; `None` where that is not known.
    pub(crate) fn does_at(&self, time: HostNs) -> Option<SwitchedTo> {
        if !self.reports_switches || !self.is_followed(time, time) {
            return None;
        }
        let after = self.switches.partition_point(|switch| switch.at <= time);
        after.checked_sub(1).and_then(|last| self.switches.get(last)).map_or(self.first, |switch| Some(switch.does))
    }

    fn spent_at(&self, time: HostNs) -> SpentTime {
        let after = self.switches.partition_point(|switch| switch.at <= time);
        let first =
            Switch { at: self.since, before: SpentTime::default(), does: self.first.unwrap_or(SwitchedTo::Runs) };
        match after.checked_sub(1).and_then(|last| self.switches.get(last)) {
            Some(last) => spent_until(last, time),
            None => spent_until(&first, time),
        }
    }
}

fn spent_until(switch: &Switch, time: HostNs) -> SpentTime {
    let mut spent = switch.before;
    let ns = time.since(switch.at);
    match switch.does {
        SwitchedTo::Runs => spent.cpu_ns += ns,
        SwitchedTo::Waits => spent.blocked_ns += ns,
        SwitchedTo::IsPreempted => spent.preempted_ns += ns,
    }
    spent
}

#[cfg(test)]
mod tests {
    use super::*;

    const ON: ThreadChange = ThreadChange::On;
    const BLOCKED: ThreadChange = ThreadChange::Off { preempted: false };
    const PREEMPTED: ThreadChange = ThreadChange::Off { preempted: true };

    fn thread(running: Option<bool>, events: &[(i64, ThreadChange)]) -> ThreadTime {
        let mut thread = ThreadTime::new("one".into(), HostNs(100), true, true, running);
        events.iter().for_each(|(at, change)| thread.take(HostNs(*at), change));
        thread
    }

    fn spent(thread: &ThreadTime, from: i64, to: i64) -> Option<[u64; 3]> {
        thread.between(HostNs(from), HostNs(to)).map(|s| [s.cpu_ns, s.preempted_ns, s.blocked_ns])
    }

    #[test]
    fn time_is_split_at_switches() {
        let events = [(200, BLOCKED), (250, ON), (300, PREEMPTED), (330, ON)];
        let thread = thread(None, &events);
        assert_eq!(spent(&thread, 150, 400), Some([50 + 50 + 70, 30, 50]));
        assert_eq!(spent(&thread, 220, 310), Some([50, 10, 30]));
        assert_eq!(spent(&thread, 150, 180), Some([30, 0, 0]), "what it did before its first switch is known then");
        assert_eq!(spent(&thread, 50, 180), None, "it was not followed");
        assert_eq!(thread.does_at(HostNs(210)), Some(SwitchedTo::Waits));
    }

    #[test]
    fn a_thread_without_switches_ran_in_its_intervals() {
        let mut thread = thread(None, &[]);
        assert_eq!(spent(&thread, 100, 400), Some([300, 0, 0]));
        thread.take(HostNs(500), &ON);
        assert_eq!(spent(&thread, 450, 600), Some([100, 0, 50]), "it came onto a CPU, so it had been off");
    }

    #[test]
    fn what_was_lost_is_not_known() {
        let events = [(200, BLOCKED), (250, ON), (300, ThreadChange::Lost), (350, BLOCKED), (360, BLOCKED), (400, ON)];
        let thread = thread(Some(true), &events);
        assert_eq!(spent(&thread, 150, 245), Some([50, 0, 45]));
        assert_eq!(spent(&thread, 240, 320), None, "a loss");
        assert_eq!(spent(&thread, 340, 370), None, "two switches of one kind");
        assert_eq!(spent(&thread, 400, 420), Some([20, 0, 0]));
    }

    #[test]
    fn while_nothing_is_reported_nothing_is_known() {
        let events = [(200, BLOCKED), (250, ON), (300, ThreadChange::Paused)];
        let mut thread = thread(Some(true), &events);
        assert_eq!(spent(&thread, 210, 290), Some([40, 0, 40]));
        assert_eq!(spent(&thread, 280, 400), None, "nobody tells");
        assert_eq!(spent(&thread, 400, 500), None);
        thread.take(HostNs(580), &ThreadChange::Lost);
        assert_eq!(spent(&thread, 585, 590), None, "of what was read before");
        thread.take(HostNs(600), &ThreadChange::Resumed);
        thread.take(HostNs(700), &PREEMPTED);
        assert_eq!(spent(&thread, 550, 650), None);
        assert_eq!(spent(&thread, 650, 720), Some([50, 20, 0]));
    }

    #[test]
    fn forgetting_keeps_what_is_needed() {
        let events = [(200, BLOCKED), (250, ON), (300, PREEMPTED), (330, ON)];
        let mut thread = thread(Some(true), &events);
        thread.prune(HostNs(310));
        assert_eq!(spent(&thread, 310, 340), Some([10, 20, 0]));
        assert_eq!(spent(&thread, 240, 340), None);
    }

    #[test]
    fn page_faults_are_counted_between() {
        let page = ThreadChange::PageFaults(1);
        let events = [(200, page.clone()), (250, page.clone()), (300, ThreadChange::PageFaults(5)), (310, page)];
        let mut thread = thread(Some(true), &events);
        let faults = |thread: &ThreadTime, from, to| thread.page_faults(HostNs(from), HostNs(to));
        assert_eq!(faults(&thread, 100, 400), Some(8));
        assert_eq!(faults(&thread, 220, 310), Some(6));
        thread.prune(HostNs(260));
        // Four of the five are spread over the 50 ns before.
        assert_eq!(
            (faults(&thread, 260, 275), faults(&thread, 275, 301), faults(&thread, 260, 400)),
            (Some(1), Some(3), Some(5))
        );
    }

    #[test]
    fn page_faults_that_are_told_together_are_those_of_all_steps_since() {
        let events = [(400, ThreadChange::PageFaults(301)), (500, ThreadChange::PageFaults(1))];
        let thread = thread(Some(true), &events);
        let faults = |from, to| thread.page_faults(HostNs(from), HostNs(to)).unwrap();
        // The thread is followed from 100 on.
        assert_eq!((faults(100, 200), faults(200, 300), faults(300, 401)), (100, 100, 101));
        assert_eq!(faults(401, 500), 0);
    }

    #[test]
    fn page_faults_come_while_a_thread_runs_and_not_before_a_count_of_none() {
        let events = [
            (200, ThreadChange::Off { preempted: false }),
            (300, ThreadChange::On),
            // It ran from 100 to 200, and from 300 on.
            (400, ThreadChange::PageFaults(201)),
            (900, ThreadChange::PageFaults(0)),
            (1_000, ThreadChange::PageFaults(101)),
        ];
        let thread = thread(Some(true), &events);
        let faults = |from, to| thread.page_faults(HostNs(from), HostNs(to)).unwrap();
        assert_eq!((faults(100, 200), faults(200, 300), faults(300, 401)), (100, 0, 101));
        assert_eq!((faults(401, 900), faults(900, 950), faults(950, 1_001)), (0, 50, 51));
    }

    #[test]
    fn what_was_not_counted_in_a_pause_is_nobody_s() {
        let events = [
            (200, ThreadChange::PageFaults(1)),
            (250, ThreadChange::Paused),
            (600, ThreadChange::Resumed),
            (700, ThreadChange::PageFaults(101)),
        ];
        let thread = thread(Some(true), &events);
        let faults = |from, to| thread.page_faults(HostNs(from), HostNs(to));
        assert_eq!((faults(240, 300), faults(300, 610)), (None, None));
        assert_eq!((faults(600, 650), faults(650, 701)), (Some(50), Some(51)));
    }
}
