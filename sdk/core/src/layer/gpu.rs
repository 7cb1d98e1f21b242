//! GPU marks on the application's thread: which intervals get them, when two may share one, and what they may cost.

use super::thread::Frame;
use crate::clock::{TickSource, Ticks};
use crate::gpu::{GpuLane, GpuLanes, GpuTiming, MarkId, NoMark};
use crate::raw::flag;
use crate::shared::Shared;
use crate::vocabulary::GpuTier;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// How much of a step is marked; the low bits of a frame's `gpu`.
pub(super) mod detail {
    pub(crate) const NONE: u8 = 0;
    pub(crate) const STEP: u8 = 1;
    pub(crate) const BLOCKS: u8 = 2;
    pub(crate) const ALL: u8 = 3;
    pub(crate) const MASK: u8 = 3;
    /// The frame is, or is inside, a block that repeats: nothing further in is marked in the blocks tier.
    pub(crate) const INSIDE_BLOCK: u8 = 4;
    /// The frame is marked.
    pub(crate) const MARKED: u8 = 8;
}

/// Marks needed before their cost is known well enough to share any.
const SHARE_AFTER: u32 = 16;

/// Steps nested in one another whose cost is followed; deeper ones are counted to the outermost.
const MAX_OPEN: usize = 16;

/// A step in full at least once in so many, however dear it is.
const MAX_WAIT: f64 = 100_000.0;

/// What the session's threads share about GPU time.
pub(crate) struct GpuShared {
    pub(crate) lanes: Arc<dyn GpuLanes>,
    pub(crate) timing: GpuTiming,
    pub(crate) counts: GpuCounts,
    /// What an interval costs on the host, in ticks: part of what the adaptive tier may spend.
    pub(crate) interval_ticks: AtomicU64,
}

/// What became of marks, over all threads.
#[derive(Debug, Default)]
pub(crate) struct GpuCounts {
    pub(crate) recorded: AtomicU64,
    pub(crate) shared: AtomicU64,
    pub(crate) no_context: AtomicU64,
    pub(crate) capturing: AtomicU64,
    pub(crate) full: AtomicU64,
    pub(crate) failed: AtomicU64,
    /// Ticks that recorded marks took.
    pub(crate) ticks: AtomicU64,
    pub(crate) steps_full: AtomicU64,
    pub(crate) steps_partial: AtomicU64,
    pub(crate) steps_unmarked: AtomicU64,
}

/// What one thread keeps about GPU time.
pub(super) struct GpuThread {
    lane: Box<dyn GpuLane>,
    timing: GpuTiming,
    /// The latest mark, and the time when it had been made.
    last: Option<(MarkId, u64)>,
    /// Least time a mark ever took here.
    cheapest: u64,
    made: u32,
    /// Ticks spent in marks so far.
    spent: u64,
    /// Intervals entered so far.
    entered: u64,
    names: Vec<NameState>,
    open: Vec<OpenStep>,
}

/// What was learnt about intervals of one name.
#[derive(Debug, Clone, Copy, Default)]
struct NameState {
    /// Others stand inside it.
    container: bool,
    /// Several stand side by side.
    repeats: bool,
    /// `seq` of the parent it was last seen under.
    last_parent: u64,
    plan: Plan,
}

/// The adaptive tier's knowledge of one kind of step, in ticks.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Plan {
    /// What a step's marks may cost.
    allowance: f64,
    full: f64,
    /// Cost of the step's own marks; 0 until seen.
    partial: f64,
    /// Steps until the next one in full.
    wait: u32,
    /// Whether the steps between are marked at all.
    between: bool,
}

struct OpenStep {
    seq: u64,
    name: u32,
    start: u64,
    spent_before: u64,
    entered_before: u64,
    detail: u8,
}

impl Plan {
    /// Detail of the next step.
    fn next(&mut self) -> u8 {
        if self.wait > 0 {
            self.wait -= 1;
            return if self.between { detail::STEP } else { detail::NONE };
        }
        detail::ALL
    }

    /// Marks of a step took `cost` ticks, and should take `allowance` on average.
    fn learn(&mut self, taken: u8, cost: f64, allowance: f64) {
        // Half of the newest: the first step of a kind is often many times as long as the rest. At most four times the old, because
        // a thread that was interrupted within a mark has learnt nothing about marks.
        let blend = |old: f64, new: f64| if old == 0.0 { new } else { (old + new.min(4.0 * old)) / 2.0 };
        match taken {
            detail::ALL => self.full = blend(self.full, cost),
            detail::STEP => self.partial = blend(self.partial, cost),
            _ => {}
        }
        self.allowance = blend(self.allowance, allowance.max(0.0));
        if taken != detail::ALL {
            return;
        }
        // One step in full and the n-1 after it in part must together stay within n times the allowance.
        let allowance = self.allowance;
        self.between = self.partial * 2.0 <= allowance;
        let partial = if self.between { self.partial } else { 0.0 };
        let n = ((self.full - partial) / (allowance - partial)).ceil();
        self.wait = if n > 1.0 { (n.min(MAX_WAIT) - 1.0) as u32 } else { 0 };
    }
}

impl GpuThread {
    pub(super) fn new(shared: &GpuShared, thread: u32) -> Self {
        Self {
            lane: shared.lanes.lane(thread),
            timing: shared.timing,
            last: None,
            cheapest: u64::MAX,
            made: 0,
            spent: 0,
            entered: 0,
            names: vec![NameState::default(); 256],
            open: Vec::with_capacity(MAX_OPEN),
        }
    }

    /// An interval is about to begin: marks it if it is to be marked.
    pub(super) fn enter(&mut self, session: &Shared, shared: &GpuShared, frame: &mut Frame, parent: Option<&Frame>) {
        self.entered += 1;
        let name = frame.name as usize;
        if name >= self.names.len() {
            // Grows when a span with a new name was made, never once warm.
            self.names.resize(name + 64, NameState::default());
        }
        let is_root = frame.flags & flag::STEP_ROOT != 0;
        let mut own = if is_root {
            self.begin_step(shared, &session.ticks, frame, session.control.in_full(frame.step))
        } else {
            parent.map_or(detail::NONE, |p| p.gpu & (detail::MASK | detail::INSIDE_BLOCK))
        };
        let marked = match own & detail::MASK {
            detail::NONE => false,
            detail::STEP => is_root,
            detail::BLOCKS => is_root || self.is_block(frame, parent, &mut own),
            _ => true,
        };
        if marked {
            own |= detail::MARKED;
            frame.marks[0] = self.mark(shared, &session.ticks);
        }
        frame.gpu = own;
    }

    /// An interval has ended at `end`.
    pub(super) fn exit(&mut self, shared: &GpuShared, ticks: &TickSource, frame: &mut Frame, end: Ticks) {
        if frame.gpu & detail::MARKED != 0 {
            frame.marks[1] = self.mark(shared, ticks);
        }
        if frame.flags & flag::STEP_ROOT != 0 {
            self.end_step(shared, frame, end);
        }
    }

    fn begin_step(&mut self, shared: &GpuShared, ticks: &TickSource, frame: &Frame, in_full: bool) -> u8 {
        let chosen = match self.timing.tier {
            GpuTier::Off => detail::NONE,
            _ if in_full => detail::ALL,
            GpuTier::Steps => detail::STEP,
            GpuTier::Blocks => detail::BLOCKS,
            GpuTier::All => detail::ALL,
            GpuTier::Adaptive => self.names[frame.name as usize].plan.next(),
        };
        let counter = match chosen {
            detail::NONE => &shared.counts.steps_unmarked,
            detail::ALL => &shared.counts.steps_full,
            _ => &shared.counts.steps_partial,
        };
        counter.fetch_add(1, Relaxed);
        if self.timing.tier == GpuTier::Adaptive && self.open.len() < MAX_OPEN {
            self.open.push(OpenStep {
                seq: frame.seq,
                name: frame.name,
                start: ticks.now().0,
                spent_before: self.spent,
                entered_before: self.entered,
                detail: chosen,
            });
        }
        chosen
    }

    fn end_step(&mut self, shared: &GpuShared, frame: &Frame, end: Ticks) {
        // Steps end in the reverse order of their beginning in all but odd code; one that does not takes those inside along.
        let Some(at) = self.open.iter().rposition(|open| open.seq == frame.seq) else { return };
        let Some(open) = self.open.drain(at..).next() else { return };
        let plan = &mut self.names[open.name as usize].plan;
        let cost = self.spent - open.spent_before;
        let step = end.0.saturating_sub(open.start) as f64;
        let host = (self.entered - open.entered_before) * shared.interval_ticks.load(Relaxed);
        plan.learn(open.detail, cost as f64, self.timing.budget * step - host as f64);
    }

    /// Whether the interval is a block: one that has others inside, down to the first kind that repeats side by side. Both are
    /// learnt as intervals come by, so the first few of a kind go without.
    fn is_block(&mut self, frame: &Frame, parent: Option<&Frame>, own: &mut u8) -> bool {
        if let Some(parent) = parent.filter(|p| p.seq != 0)
            && let Some(state) = self.names.get_mut(parent.name as usize)
        {
            state.container = true;
        }
        let state = &mut self.names[frame.name as usize];
        state.repeats |= frame.parent != 0 && state.last_parent == frame.parent;
        state.last_parent = frame.parent;
        if *own & detail::INSIDE_BLOCK != 0 || !state.container {
            return false;
        }
        if state.repeats {
            *own |= detail::INSIDE_BLOCK;
        }
        true
    }

    /// Number of the mark that stands here; 0 for none.
    ///
    /// Two marks in quick succession are one: recording a mark is the cheapest call that puts anything into a stream (a launch
    /// takes two to three times as long), so nothing can have been launched between two that are less than the quickest
    /// recording ever seen apart. With layers back to back, where one's end is the next one's start, that saves nearly half of them.
    fn mark(&mut self, shared: &GpuShared, ticks: &TickSource) -> u32 {
        let before = ticks.now().0;
        if let Some((id, made)) = self.last
            && self.made >= SHARE_AFTER
            && before.saturating_sub(made) < self.cheapest
        {
            shared.counts.shared.fetch_add(1, Relaxed);
            return id.0.get();
        }
        let counts = &shared.counts;
        match self.lane.mark() {
            Ok(id) => {
                let after = ticks.now().0;
                let took = after.saturating_sub(before);
                self.made = self.made.saturating_add(1);
                self.cheapest = self.cheapest.min(took);
                self.spent += took;
                self.last = Some((id, after));
                counts.recorded.fetch_add(1, Relaxed);
                counts.ticks.fetch_add(took, Relaxed);
                id.0.get()
            }
            Err(reason) => {
                self.last = None;
                let counter = match reason {
                    NoMark::NoContext => &counts.no_context,
                    NoMark::Capturing => &counts.capturing,
                    NoMark::Full => &counts.full,
                    NoMark::Failed => &counts.failed,
                };
                counter.fetch_add(1, Relaxed);
                0
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Plays `n` steps of `step` ticks where full detail costs `full` and a step's own marks `partial`; the share marks took.
    fn play(plan: &mut Plan, n: u32, step: f64, full: f64, partial: f64, budget: f64) -> (f64, u32) {
        let (mut cost_sum, mut fulls) = (0.0, 0);
        for _ in 0..n {
            let taken = plan.next();
            let cost = match taken {
                detail::ALL => full,
                detail::STEP => partial,
                _ => 0.0,
            };
            fulls += u32::from(taken == detail::ALL);
            cost_sum += cost;
            plan.learn(taken, cost, step * budget);
        }
        (cost_sum / (f64::from(n) * step), fulls)
    }

    #[test]
    fn the_budget_holds_and_is_used() {
        for (full, partial) in [(600.0, 5.0), (3000.0, 20.0), (100.0, 1.0), (7000.0, 100.0)] {
            let mut plan = Plan::default();
            play(&mut plan, 50, 7000.0, full, partial, 0.02);
            let (share, fulls) = play(&mut plan, 10_000, 7000.0, full, partial, 0.02);
            assert!(share <= 0.0201, "{full} {partial}: {share}");
            assert!(share >= 0.008, "{full} {partial}: full detail {fulls} times uses only {share}");
        }
    }

    #[test]
    fn steps_too_short_for_their_own_marks_are_left_out() {
        let mut plan = Plan::default();
        play(&mut plan, 50, 100.0, 3.0, 3.0, 0.02);
        let (share, fulls) = play(&mut plan, 10_000, 100.0, 3.0, 3.0, 0.02);
        assert!(share <= 0.0201 && fulls > 1000, "{share} {fulls}");
    }

    #[test]
    fn a_cold_first_step_does_not_set_the_pace() {
        let mut plan = Plan::default();
        // Loading kernels took a thousand times as long as a step.
        let taken = plan.next();
        plan.learn(taken, 5_000.0, 7_000_000.0 * 0.02);
        play(&mut plan, 40, 7000.0, 600.0, 5.0, 0.02);
        let (share, _) = play(&mut plan, 1000, 7000.0, 600.0, 5.0, 0.02);
        assert!(share <= 0.0201, "{share}");
    }

    #[test]
    fn no_budget_is_no_marks_but_the_first() {
        let mut plan = Plan::default();
        let (_, fulls) = play(&mut plan, 1000, 7000.0, 600.0, 5.0, 0.0);
        assert_eq!(fulls, 1);
    }
}
