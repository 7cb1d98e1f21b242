//! How much more a rank has to do for its steps to take a share longer: found while it runs, as no figure of another machine says it.

use std::time::Duration;

/// Blocks into which the steps for finding it are divided: one that is not looked at, one as it is, two far beyond what other ranks
/// hide, and three that come close.
const BLOCKS: usize = 7;

/// Finds how many repeats of a piece of work make a step longer by a share. Ranks that wait for each other take equal times: it is
/// the program's step that becomes longer, so that a rank that was the faster one first does what it was faster by.
#[derive(Debug, Clone)]
pub struct Slowing {
    share: f64,
    /// Steps of a block, and pieces of a step that can be repeated.
    block: usize,
    pieces: usize,
    repeats: usize,
    took: Vec<f64>,
    at: usize,
    plain: Option<f64>,
    /// Repeats of the last block and what its steps took, milliseconds.
    last: Option<(f64, f64)>,
    /// What a repeat takes, milliseconds.
    each: Option<f64>,
}

impl Slowing {
    /// `share` of a step, by repeating some of its `pieces`; found within so many steps.
    pub fn new(share: f64, pieces: usize, steps: usize) -> Self {
        Self {
            share,
            block: (steps / BLOCKS).max(1),
            pieces: pieces.max(1),
            repeats: 0,
            took: Vec::new(),
            at: 0,
            plain: None,
            last: None,
            each: None,
        }
    }

    /// How often the next step is to do a piece, 0 the first: once, and what is repeated.
    pub fn times(&self, piece: usize) -> usize {
        // Spread over the step.
        1 + (piece + 1) * self.repeats / self.pieces - piece * self.repeats / self.pieces
    }

    /// A step took so long.
    pub fn step(&mut self, took: Duration) {
        if self.at == BLOCKS {
            return;
        }
        self.took.push(took.as_secs_f64() * 1e3);
        if self.took.len() < self.block {
            return;
        }
        self.took.sort_by(f64::total_cmp);
        let median = self.took[self.took.len() / 2];
        self.took.clear();
        match (self.at, self.plain) {
            (0, _) => {}
            (_, None) => (self.plain, self.repeats) = (Some(median), 2 * self.pieces),
            (_, Some(plain)) => {
                let next = self.next(plain, median);
                self.last = Some((self.repeats as f64, median));
                if self.at + 1 < BLOCKS {
                    self.repeats = (next.round() as usize).max(1);
                }
            }
        }
        self.at += 1;
    }

    /// How many repeats are to come closer, after steps with as many as now took `took`.
    fn next(&mut self, plain: f64, took: f64) -> f64 {
        let now = self.repeats as f64;
        if let Some((before, took_before)) =
            self.last.filter(|(before, _)| 2.0 * (now - before).abs() >= self.pieces as f64)
        {
            let each = (took - took_before) / (now - before);
            self.each = Some(each).filter(|each| *each > 0.0).or(self.each);
        }
        let next = self.each.map_or(2.0 * now, |each| now + ((1.0 + self.share) * plain - took) / each);
        next.clamp(now / 8.0, 2.0 * now)
    }

    /// What was found: repeats of a step, and milliseconds of a step without any and with so many; `None` before.
    pub fn found(&self) -> Option<(usize, f64, f64)> {
        let times = self.plain.zip(self.last).filter(|_| self.at == BLOCKS);
        times.map(|(plain, (_, slowed))| (self.repeats, plain, slowed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A step of this rank beside another one's, whichever takes longer.
    fn found(share: f64, own: f64, a_piece: f64, other: f64) -> (f64, usize) {
        let mut slowing = Slowing::new(share, 32, 128);
        let step = |slowing: &Slowing| {
            let repeats: usize = (0..32).map(|piece| slowing.times(piece) - 1).sum();
            (own + a_piece * repeats as f64).max(other)
        };
        // The first ones are slow.
        (0..8).for_each(|_| slowing.step(Duration::from_millis(80)));
        for _ in 0..120 {
            let took = step(&slowing);
            slowing.step(Duration::from_secs_f64(took / 1e3));
        }
        let (repeats, plain, slowed) = slowing.found().unwrap();
        assert!((plain - own.max(other)).abs() < 1e-5 && (slowed - step(&slowing)).abs() < 1e-5);
        (slowed / plain - 1.0, repeats)
    }

    #[test]
    fn a_step_becomes_longer_by_the_share() {
        // Of the second and the last it takes repeats to be as slow as the other rank.
        for (share, own, a_piece, other) in
            [(0.2, 15.0, 0.1, 15.0), (0.2, 10.0, 0.1, 15.0), (0.05, 15.0, 0.04, 10.0), (0.2, 12.0, 0.03, 15.0)]
        {
            let (longer, repeats) = found(share, own, a_piece, other);
            assert!((longer - share).abs() < a_piece / own, "{share}: {longer} with {repeats}");
        }
    }

    #[test]
    fn repeats_are_spread_over_the_step() {
        let slowing = |repeats| Slowing { repeats, ..Slowing::new(0.2, 4, 60) };
        let times = |repeats| (0..4).map(|piece| slowing(repeats).times(piece)).collect::<Vec<_>>();
        assert_eq!((times(0), times(2), times(6)), (vec![1; 4], vec![1, 2, 1, 2], vec![2, 3, 2, 3]));
        assert_eq!(slowing(2).found(), None);
    }
}
