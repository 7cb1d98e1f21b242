//! Decode steps of a request in at most 64 groups of equal size, however many there are. Pure.

use candlescope_core::estimate::MeasuredBySource;
use candlescope_core::{HostNs, StepRecord};

/// Most groups: together with as many entries of threads they fit into the 128 events that a span may have.
pub(super) const MAX_GROUPS: usize = 64;

/// Consecutive decode steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Group {
    /// Number of the first, from 0.
    pub(super) first: u64,
    pub(super) steps: u64,
    pub(super) start: HostNs,
    pub(super) total_ns: u64,
    pub(super) max_ns: u64,
    /// GPU times of the measured steps, by source.
    pub(super) gpu: MeasuredBySource,
}

impl Group {
    fn absorb(&mut self, next: Group) {
        self.steps += next.steps;
        self.total_ns = self.total_ns.saturating_add(next.total_ns);
        self.max_ns = self.max_ns.max(next.max_ns);
        self.gpu.absorb(next.gpu);
    }
}

/// The course of a request's decoding. When there is no room for another group, each two are merged.
#[derive(Debug, Default)]
pub(super) struct Decodes {
    groups: Vec<Group>,
    seen: u64,
    /// How often groups were merged: a group holds two to the power of this steps.
    doubled: u32,
}

impl Decodes {
    pub(super) fn add(&mut self, step: &StepRecord) {
        let mut gpu = MeasuredBySource::default();
        if let Some(time) = step.gpu {
            gpu.of_mut(time.source).add(time.dur_ns);
        }
        let one = Group {
            first: self.seen,
            steps: 1,
            start: step.host_start,
            total_ns: step.host_dur_ns,
            max_ns: step.host_dur_ns,
            gpu,
        };
        self.seen += 1;
        if let Some(last) = self.groups.last_mut()
            && last.steps < 1 << self.doubled
        {
            return last.absorb(one);
        }
        if self.groups.len() == MAX_GROUPS {
            for pair in 0..MAX_GROUPS / 2 {
                let mut both = self.groups[2 * pair];
                both.absorb(self.groups[2 * pair + 1]);
                self.groups[pair] = both;
            }
            self.groups.truncate(MAX_GROUPS / 2);
            self.doubled += 1;
        }
        self.groups.push(one);
    }

    pub(super) fn groups(&self) -> &[Group] {
        &self.groups
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use candlescope_testkit::Decoder;

    #[test]
    fn groups_are_few_and_hold_every_step() {
        let mut source = Decoder::new(1);
        let mut step = source.decode().steps.remove(0);
        for n in [1u64, 63, 64, 65, 128, 129, 1_000, 4_097] {
            let mut decodes = Decodes::default();
            for i in 0..n {
                (step.host_start, step.host_dur_ns) = (HostNs(i as i64 * 10), i + 1);
                decodes.add(&step);
            }
            let groups = decodes.groups();
            assert!(groups.len() <= MAX_GROUPS && (n < 32 || groups.len() >= MAX_GROUPS / 2), "{n}: {}", groups.len());
            let mut next = 0;
            for group in groups {
                assert_eq!((group.first, group.start), (next, HostNs(next as i64 * 10)));
                next += group.steps;
                assert_eq!(group.max_ns, next, "the last step of a group takes the longest here");
                assert!(group.steps == groups[0].steps || next == n, "{group:?}");
            }
            assert_eq!(next, n);
            assert_eq!(groups.iter().map(|g| g.total_ns).sum::<u64>(), n * (n + 1) / 2);
        }
    }
}
