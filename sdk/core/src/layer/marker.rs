//! GPU marks on the application's thread: which intervals get them, when two may share one, and what they may cost.

use super::frame::Frame;
use super::mark_plan::{Plan, allowance, detail};
use crate::clock::{TickSource, Ticks};
use crate::gpu::{GpuLane, GpuTiming, MarkId, MarkingState, NoMark};
use crate::raw::flag;
use crate::vocabulary::GpuTier;
use std::sync::atomic::Ordering::Relaxed;

/// Marks made before the cost of one is known well enough to share any.
const SHARE_AFTER: u32 = 16;

/// Nested steps whose costs are followed separately; the costs of deeper ones count for those around them.
const MAX_OPEN: usize = 16;

/// The cost of a mark is judged by blocks of this many marks: the longest time among the quickest eighth is taken.
const BLOCK: usize = 32;
const TELLING: usize = BLOCK / 8;

/// Beyond this many times the usual cost, a mark's time counts as waiting: otherwise the times of marks vary less, with
/// the state of the caches.
const WAITED: u64 = 2;

/// One thread's state about GPU time.
pub(super) struct Marker {
    thread: u32,
    lane: Box<dyn GpuLane>,
    timing: GpuTiming,
    /// The latest mark, and the time at which it had been made.
    last: Option<(MarkId, u64)>,
    /// The shortest time that a mark ever took on this thread.
    cheapest: u64,
    made: u32,
    /// Times that the latest marks took.
    took: [u64; BLOCK],
    /// Ticks that marks cost so far, without waiting.
    spent: u64,
    /// Intervals entered so far.
    entered: u64,
    names: Vec<NameState>,
    open: Vec<OpenStep>,
}

/// What was learnt about the intervals of one name.
#[derive(Debug, Clone, Copy, Default)]
struct NameState {
    /// Other intervals stand inside them.
    container: bool,
    /// Several of them stand side by side.
    repeats: bool,
    /// `seq` of the parent it was last seen under.
    last_parent: u64,
    plan: Plan,
}

struct OpenStep {
    seq: u64,
    name: u32,
    start: u64,
    spent_before: u64,
    entered_before: u64,
    detail: u8,
    cold: bool,
}

impl Marker {
    pub(super) fn new(shared: &MarkingState, thread: u32) -> Self {
        Self {
            thread,
            lane: shared.lanes.lane(thread),
            timing: shared.timing,
            last: None,
            cheapest: u64::MAX,
            made: 0,
            took: [0; BLOCK],
            spent: 0,
            entered: 0,
            names: vec![NameState::default(); 256],
            open: Vec::with_capacity(MAX_OPEN),
        }
    }

    /// An interval is about to begin: marks it if the tier asks for that. With `in_full` it is a step that gets every
    /// mark, whatever the tier.
    pub(super) fn enter(
        &mut self,
        shared: &MarkingState,
        ticks: &TickSource,
        frame: &mut Frame,
        parent: Option<&Frame>,
        in_full: bool,
    ) {
        self.entered += 1;
        let name = frame.name as usize;
        if name >= self.names.len() {
            // Grows only after a span with a new name was made.
            self.names.resize(name + 64, NameState::default());
        }
        let is_root = frame.is_step();
        let mut own = if is_root {
            self.begin_step(shared, ticks, frame, in_full)
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
            frame.marks[0] = self.mark(shared, ticks);
        }
        frame.gpu = own;
    }

    /// An interval has ended at `end`.
    pub(super) fn exit(&mut self, shared: &MarkingState, ticks: &TickSource, frame: &mut Frame, end: Ticks) {
        if frame.gpu & detail::MARKED != 0 {
            frame.marks[1] = self.mark(shared, ticks);
        }
        if frame.is_step() {
            self.end_step(shared, frame, end);
        }
    }

    /// Keeps the device waiting behind what was launched so far; see [`GpuLane::wait`].
    pub(super) fn wait(&mut self, ns: u64) -> Result<(), NoMark> {
        self.lane.wait(ns)
    }

    fn begin_step(&mut self, shared: &MarkingState, ticks: &TickSource, frame: &mut Frame, in_full: bool) -> u8 {
        let mut cold = false;
        let chosen = match self.timing.tier {
            GpuTier::Off => detail::NONE,
            _ if in_full => detail::ALL,
            GpuTier::Steps => detail::STEP,
            GpuTier::Blocks => detail::BLOCKS,
            GpuTier::All => detail::ALL,
            GpuTier::Adaptive => {
                let plan = &mut self.names[frame.name as usize].plan;
                let kind = shared.kinds.get(frame.name);
                let next = plan.next(kind, self.thread, ticks.now().0, shared.pause_ticks.load(Relaxed));
                cold = next.cold;
                if cold && next.detail == detail::ALL {
                    frame.flags |= flag::COLD;
                }
                next.detail
            }
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
                cold,
            });
        }
        chosen
    }

    fn end_step(&mut self, shared: &MarkingState, frame: &Frame, end: Ticks) {
        // Steps nearly always end in the reverse order of their beginning; a step that does not also ends those inside
        // it.
        let Some(at) = self.open.iter().rposition(|open| open.seq == frame.seq) else { return };
        let Some(open) = self.open.drain(at..).next() else { return };
        let plan = &mut self.names[open.name as usize].plan;
        let cost = self.spent - open.spent_before;
        let step = end.0.saturating_sub(open.start) as f64;
        let host = (self.entered - open.entered_before) * shared.interval_ticks.load(Relaxed);
        plan.ended(end.0);
        // A cold step says neither what marks cost nor how long a step is.
        if !open.cold {
            plan.learn(open.detail, cost as f64, allowance(self.timing.budget, step, host as f64));
        }
    }

    /// Whether the interval is a block: one that has others inside, down to the first kind that repeats side by side.
    /// Both are learnt as intervals come, so the first few of a kind are not recognised.
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

    /// Number of the mark that is made here; 0 for none.
    ///
    /// Two marks in quick succession are one. Recording a mark is the cheapest call that puts anything into a stream (a
    /// launch takes two to three times as long), so nothing can have been launched between two marks that are less than
    /// the shortest recording time apart. If layers follow one another directly, with the end of one at the start of
    /// the next, that saves nearly half of the marks.
    fn mark(&mut self, shared: &MarkingState, ticks: &TickSource) -> u32 {
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
                let cost = self.cost(shared, took);
                self.spent += cost;
                self.last = Some((id, after));
                counts.recorded.fetch_add(1, Relaxed);
                counts.ticks.fetch_add(cost, Relaxed);
                if took > cost {
                    counts.wait_ticks.fetch_add(took - cost, Relaxed);
                }
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

    /// The cost of a mark that `took` this long; the rest of the time it waited.
    ///
    /// Recording waits if the launch queue is full, as the next launch would have done in its place, and for the
    /// driver's lock if other threads launch. That is not a cost of marks: counted as one, it would starve the adaptive
    /// tier just when the device is busy. So the longest time among the quickest eighth of each block of marks is
    /// taken. The lowest such value over all blocks and threads is the usual cost of a mark, and what a mark took
    /// beyond twice that was waiting.
    fn cost(&mut self, shared: &MarkingState, took: u64) -> u64 {
        let at = (self.made as usize).wrapping_sub(1) % BLOCK;
        self.took[at] = took;
        if at == BLOCK - 1 {
            let mut block = self.took;
            let (_, telling, _) = block.select_nth_unstable(TELLING);
            shared.cost_ticks.fetch_min(*telling, Relaxed);
        }
        // Before the first block is full, the quickest mark is the best estimate.
        let usual = match shared.cost_ticks.load(Relaxed) {
            u64::MAX => self.cheapest,
            usual => usual,
        };
        took.min(usual.saturating_mul(WAITED))
    }
}
