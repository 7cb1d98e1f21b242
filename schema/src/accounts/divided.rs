//! What was counted while steps ran, divided among them.

use crate::stretches::Stretch;
use std::collections::BTreeMap;

/// What was counted, divided.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Division {
    /// Of each stretch, in their order.
    pub each: Vec<f64>,
    /// While none was open.
    pub outside: f64,
}

/// Divides what was counted in the time `over`: evenly among the stretches that were open, at each moment. `counted`
/// gives what was counted between two times within `over`.
pub fn divided(stretches: &[Stretch], over: Stretch, counted: impl Fn(i64, i64) -> f64) -> Division {
    // When a stretch begins or ends. One that ends when another begins is not open with it.
    let mut turns: Vec<(i64, bool, usize)> = Vec::with_capacity(2 * stretches.len());
    // One without duration has nothing, and would seem to end before it begins.
    for (at, (start, end)) in stretches.iter().enumerate().filter(|(_, (start, end))| start < end) {
        turns.extend([(*start, true, at), (*end, false, at)]);
    }
    turns.sort_unstable();
    let mut all = Division { each: vec![0.0; stretches.len()], outside: 0.0 };
    // Evenly among those that are open: what each of them has had since the beginning, of which a stretch has what came
    // while it was open.
    let (mut open, mut each, mut last) = (0u64, 0.0, over.0);
    for (time, begins, at) in turns {
        let until = time.clamp(over.0, over.1);
        let amount = counted(last, until);
        last = until.max(last);
        match open {
            0 => all.outside += amount,
            open => each += amount / open as f64,
        }
        open = if begins { open + 1 } else { open.saturating_sub(1) };
        all.each[at] += if begins { -each } else { each };
    }
    all.outside += counted(last, over.1);
    all
}

/// Finds the steps that are not inside another one of the same thread.
#[derive(Debug, Default)]
pub struct Outermost {
    /// When the latest step of each thread ends.
    ends: BTreeMap<u32, i64>,
}

impl Outermost {
    /// Whether the next step, by the number of its thread and its end, is not inside an earlier one. Steps come in
    /// order of start, of those that begin together the longest first.
    pub fn is(&mut self, thread: u32, end: i64) -> bool {
        let last = self.ends.entry(thread).or_insert(i64::MIN);
        let before = std::mem::replace(last, (*last).max(end));
        end > before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_open_together_has_the_same_and_nothing_is_lost() {
        // One unit a nanosecond; the last one goes on, and one has no duration.
        let stretches = [(10, 30), (20, 40), (50, 50), (90, 200)];
        let found = divided(&stretches, (0, 100), |from, to| (to - from) as f64);
        assert_eq!(found.each, [15.0, 15.0, 0.0, 10.0]);
        assert_eq!(found.outside, 60.0);
        let before = divided(&[(-20, -10), (-5, 10)], (0, 100), |from, to| (to - from) as f64);
        assert_eq!((before.each, before.outside), (vec![0.0, 10.0], 90.0));
    }

    #[test]
    fn a_step_inside_another_of_its_thread_is_found() {
        let mut outermost = Outermost::default();
        let found = [(1, 100), (1, 50), (2, 50), (1, 200)].map(|(thread, end)| outermost.is(thread, end));
        assert_eq!(found, [true, false, true, true]);
    }
}
