//! Which steps the adaptive tier marks in full: a steady sample over the run, on each thread, within a budget.

use crate::gpu::StepKind;
use std::sync::atomic::Ordering::Relaxed;

/// How much of a step is marked; stored in the low bits of a frame's `gpu`.
pub(crate) mod detail {
    pub(crate) const NONE: u8 = 0;
    pub(crate) const STEP: u8 = 1;
    pub(crate) const BLOCKS: u8 = 2;
    pub(crate) const ALL: u8 = 3;
    pub(crate) const MASK: u8 = 3;
    /// The frame is a block that repeats, or inside one: in the blocks tier nothing inside it is marked.
    pub(crate) const INSIDE_BLOCK: u8 = 4;
    /// The frame is marked.
    pub(crate) const MARKED: u8 = 8;
}

/// At least one step in this many is in full, however expensive it is.
const MAX_WAIT: u32 = 100_000;

/// Share of the budget that is the marks' in any case.
const MARKS_OWN: f64 = 0.05;

/// Ticks that the marks of a step may take, which took `step` with its intervals' `host`: what the intervals leave of the
/// budget, and a little of it where they take it all. A token of SmolLM2 takes 5 ms and its intervals 2 % of that: by what is
/// left alone, no step had a GPU time, however long the run. A twentieth of 2 % pays for one step in full of a hundred or so.
pub(super) fn allowance(budget: f64, step: f64, host: f64) -> f64 {
    (budget * step - host).max(MARKS_OWN * budget * step)
}

/// If threads live for only a step or two, each step is the first of its thread. One in this many of them, over all
/// threads, is nevertheless in full.
const FIRSTS: u32 = 16;

/// What was chosen for a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ChosenMarks {
    pub(super) detail: u8,
    /// The step's times are not those of a warm step.
    pub(super) cold: bool,
}

/// What the adaptive tier knows about one kind of step on one thread, in ticks.
///
/// Steps earn their share of the budget, and marks spend it. A step in full leaves a debt, and the next one is in full
/// when the steps in between have paid it off: one in N, where N follows the current costs of steps and marks. Each
/// debt is varied by up to a half, so that steps in full are not in step with anything that the program does at regular
/// intervals, or with those of other threads.
///
/// **Cold steps are left out.** The first step of a kind on a thread loads modules, picks algorithms and makes pools,
/// and the first one after a pause finds the device's clocks lowered: the times of their layers say nothing about the
/// run and must not be scaled up. A cold step has only its own marks, and the next step is in full. There are two
/// exceptions, so that there is always some detail. The very first step of a kind in a session is marked in full *in
/// case no other comes*; if another one comes, the pipeline removes the times of its parts, and otherwise it lists the
/// step in `run.json`'s `gpu.cold_steps`. And if every step of a kind comes after a pause, every second one is in full;
/// if every step is the first of its thread, one in 16 is.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Plan {
    /// What a step's marks may cost.
    allowance: f64,
    /// Cost of the marks of a step in full, and (`partial`) of the step's own marks; 0 until seen.
    full: f64,
    partial: f64,
    /// What the following steps have to earn before the next one in full.
    debt: f64,
    /// Steps since the last one in full.
    since: u32,
    seen: bool,
    /// The last step was not in full, because it came after a pause.
    passed_over: bool,
    /// When the last step ended.
    ended: u64,
    random: u32,
}

impl Plan {
    /// Detail of the next step, which begins at `now`.
    pub(super) fn next(&mut self, kind: Option<&StepKind>, thread: u32, now: u64, pause: u64) -> ChosenMarks {
        let partly = ChosenMarks { detail: detail::STEP, cold: true };
        if !self.seen {
            self.seen = true;
            self.random = thread.wrapping_mul(0x9e37_79b9) | 1;
            let Some(kind) = kind else { return partly };
            if !kind.seen.swap(true, Relaxed) {
                return ChosenMarks { detail: detail::ALL, cold: true };
            }
            if kind.firsts.fetch_add(1, Relaxed) + 1 >= FIRSTS {
                kind.firsts.store(0, Relaxed);
                return ChosenMarks { detail: detail::ALL, cold: false };
            }
            return partly;
        }
        let after_pause = self.ended > 0 && now.saturating_sub(self.ended) > pause;
        if after_pause && !self.passed_over {
            self.passed_over = true;
            self.since = self.since.saturating_add(1);
            return partly;
        }
        self.passed_over = false;
        let detail = if self.debt <= 0.0 || self.since >= MAX_WAIT {
            self.since = 0;
            if let Some(kind) = kind {
                kind.firsts.store(0, Relaxed);
            }
            detail::ALL
        } else {
            self.since += 1;
            // Overload policy: if even a step's own marks cost more than half of what may be spent, the step gets none.
            if self.partial * 2.0 <= self.allowance { detail::STEP } else { detail::NONE }
        };
        ChosenMarks { detail, cold: false }
    }

    /// Called when a step ended.
    pub(super) fn ended(&mut self, at: u64) {
        self.ended = at;
    }

    /// Notes that the marks of a step took `cost` ticks, and may take `allowance` on average.
    pub(super) fn learn(&mut self, taken: u8, cost: f64, allowance: f64) {
        // Half of the result is the new value, limited to four times the old one: a thread that was interrupted says
        // nothing about the cost of marks.
        let blend = |old: f64, new: f64| if old == 0.0 { new } else { (old + new.min(4.0 * old)) / 2.0 };
        let bounded = |old: f64| if old == 0.0 { cost } else { cost.min(4.0 * old) };
        let allowance = allowance.max(0.0);
        let spent = match taken {
            detail::ALL => {
                let spent = bounded(self.full);
                self.full = blend(self.full, cost);
                // If there is budget for every step in full, every step is.
                if spent > allowance { spent * (0.5 + self.uniform()) } else { spent }
            }
            detail::STEP => {
                let spent = bounded(self.partial);
                self.partial = blend(self.partial, cost);
                spent
            }
            _ => 0.0,
        };
        self.allowance = blend(self.allowance, allowance);
        // Only one step's share is saved up beyond the debt, so that a long pause is not followed by many steps in
        // full.
        let earned = allowance.min(4.0 * self.allowance);
        self.debt = (self.debt - earned).max(-self.allowance) + spent;
    }

    /// A random number from 0 to 1.
    fn uniform(&mut self) -> f64 {
        // Xorshift (Marsaglia 2003).
        self.random |= u32::from(self.random == 0);
        self.random ^= self.random << 13;
        self.random ^= self.random >> 17;
        self.random ^= self.random << 5;
        f64::from(self.random >> 8) / f64::from(1u32 << 24)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs `n` steps of `step` ticks in which full detail costs `full` and a step's own marks `partial`. Returns the
    /// share that marks took, and which steps were in full.
    fn play(plan: &mut Plan, n: u32, step: f64, full: f64, partial: f64, budget: f64) -> (f64, Vec<u32>) {
        let kind = StepKind::default();
        kind.seen.store(true, Relaxed);
        let (mut cost_sum, mut fulls) = (0.0, Vec::new());
        for i in 0..n {
            let taken = plan.next(Some(&kind), 1, 0, u64::MAX);
            let cost = match taken.detail {
                detail::ALL => full,
                detail::STEP => partial,
                _ => 0.0,
            };
            if taken.detail == detail::ALL {
                fulls.push(i);
            }
            cost_sum += cost;
            if !taken.cold {
                plan.learn(taken.detail, cost, step * budget);
            }
        }
        (cost_sum / (f64::from(n) * step), fulls)
    }

    #[test]
    fn the_budget_holds_and_is_used() {
        for (full, partial) in [(600.0, 5.0), (3000.0, 20.0), (100.0, 1.0), (7000.0, 100.0)] {
            let mut plan = Plan::default();
            play(&mut plan, 50, 7000.0, full, partial, 0.02);
            let (share, fulls) = play(&mut plan, 10_000, 7000.0, full, partial, 0.02);
            assert!(share <= 0.0205, "{full} {partial}: {share}");
            let most = f64::min(0.02, full / 7000.0);
            assert!(share >= 0.75 * most, "{full} {partial}: full detail {} times uses only {share}", fulls.len());
        }
    }

    #[test]
    fn steps_too_short_for_their_own_marks_are_left_out() {
        let mut plan = Plan::default();
        play(&mut plan, 50, 100.0, 3.0, 3.0, 0.02);
        let (share, fulls) = play(&mut plan, 10_000, 100.0, 3.0, 3.0, 0.02);
        assert!(share <= 0.0205 && fulls.len() > 1000, "{share} {}", fulls.len());
    }

    #[test]
    fn steps_in_full_are_spread_over_the_run_and_keep_no_time() {
        let mut plan = Plan::default();
        // 600 of 7,000 ticks at 2 %: about one in five.
        let (_, fulls) = play(&mut plan, 2_000, 7000.0, 600.0, 5.0, 0.02);
        for tenth in 0..10 {
            let there = fulls.iter().filter(|i| **i / 200 == tenth).count();
            assert!((30..60).contains(&there), "{there} of 200 in the {tenth}th tenth");
        }
        // Every seventh step of the program is of another sort: these are in full as often as the others.
        let sevenths = fulls.iter().filter(|i| *i % 7 == 3).count() as f64 / fulls.len() as f64;
        assert!((0.08..0.21).contains(&sevenths), "{sevenths}");
        let gaps: std::collections::BTreeSet<u32> = fulls.windows(2).map(|w| w[1] - w[0]).collect();
        assert!(gaps.len() >= 3, "{gaps:?}");
    }

    #[test]
    fn one_long_or_dear_step_does_not_set_the_pace_for_long() {
        let mut plan = Plan::default();
        play(&mut plan, 100, 7000.0, 600.0, 5.0, 0.02);
        // A thread interrupted in the middle of a mark, and a step that took almost no time.
        plan.learn(detail::ALL, 5_000_000.0, 0.0);
        let (_, fulls) = play(&mut plan, 200, 7000.0, 600.0, 5.0, 0.02);
        assert!(fulls.len() > 20, "{fulls:?}");
        // A step of a thousand times the length must not be followed by many steps in full.
        plan.learn(detail::STEP, 5.0, 7_000_000.0 * 0.02);
        let (share, _) = play(&mut plan, 500, 7000.0, 600.0, 5.0, 0.02);
        assert!(share <= 0.022, "{share}");
    }

    #[test]
    fn intervals_that_take_the_budget_leave_marks_a_little() {
        // SmolLM2 on an H200, in microseconds: a step of 5,000, whose intervals take 120 and marks in full 650.
        let own = allowance(0.02, 5000.0, 120.0);
        assert!(own > 0.0, "{own}");
        let mut plan = Plan::default();
        let (share, fulls) = play(&mut plan, 3_000, 5000.0, 650.0, 1.3, own / 5000.0);
        assert!(share <= 0.0012, "{share}");
        for third in 0..3 {
            let there = fulls.iter().filter(|i| **i / 1_000 == third).count();
            assert!(there >= 3, "{there} of 1,000 in the {third}th third: {fulls:?}");
        }
        // Its own marks fit as well: no step is without a GPU time.
        let kind = StepKind::default();
        let taken = (0..1_000).filter(|_| plan.next(Some(&kind), 1, 0, u64::MAX).detail == detail::NONE).count();
        assert_eq!(taken, 0);
        // What intervals leave is the marks', and nothing where there is no budget.
        assert_eq!((allowance(0.02, 5000.0, 40.0), allowance(0.0, 5000.0, 40.0)), (60.0, 0.0));
    }

    #[test]
    fn no_budget_is_no_marks_but_the_first() {
        let mut plan = Plan::default();
        let (_, fulls) = play(&mut plan, 1000, 7000.0, 600.0, 5.0, 0.0);
        assert_eq!(fulls, [1], "the first warm one");
    }

    #[test]
    fn the_first_step_of_a_kind_and_those_after_a_pause_are_cold() {
        let kind = StepKind::default();
        let mut plans = [Plan::default(); 3];
        let mut next = |plan: usize, now| plans[plan].next(Some(&kind), plan as u32, now, 1_000);
        let (all, step) = (detail::ALL, detail::STEP);
        assert_eq!(next(0, 0), ChosenMarks { detail: all, cold: true }, "in case no other comes");
        assert_eq!(next(1, 0), ChosenMarks { detail: step, cold: true }, "other threads need not");
        assert_eq!(next(0, 10), ChosenMarks { detail: all, cold: false });
        assert_eq!(next(1, 10), ChosenMarks { detail: all, cold: false });
        plans[0].ended(20);
        let mut next = |now| plans[0].next(Some(&kind), 0, now, 1_000);
        assert_eq!(next(2_000), ChosenMarks { detail: step, cold: true });
        plans[0].ended(2_010);
        let mut next = |now| plans[0].next(Some(&kind), 0, now, 1_000);
        assert_eq!(next(2_020), ChosenMarks { detail: all, cold: false });
        // If every step comes after a pause, every second one is in full.
        let mut now = 2_020;
        let taken: Vec<u8> = (0..6)
            .map(|_| {
                plans[0].ended(now + 1);
                now += 5_000;
                plans[0].next(Some(&kind), 0, now, 1_000).detail
            })
            .collect();
        assert_eq!(taken, [step, all, step, all, step, all]);
    }

    #[test]
    fn threads_that_live_for_one_step_are_sampled_too() {
        let kind = StepKind::default();
        let firsts: Vec<ChosenMarks> = (0..200).map(|t| Plan::default().next(Some(&kind), t, 0, u64::MAX)).collect();
        let warm = firsts.iter().filter(|n| n.detail == detail::ALL && !n.cold).count();
        assert_eq!(warm, 199 / FIRSTS as usize);
    }
}
