//! How the machine was used, from the rows of samples, for a run whose manifest does not say it: the program was
//! killed, or an older release recorded it.

use candlescope_schema::SampleRecord;
use candlescope_schema::metric::HOST;
use candlescope_schema::run::{MachineMeter, MachineUse};
use candlescope_schema::stretches::Stretch;

/// Adds up rounds of samples of the host, as they were written: in order of time.
#[derive(Debug, Default)]
pub(super) struct MachinePass {
    meter: MachineMeter,
    /// The round that is being read.
    round: Vec<SampleRecord>,
    /// When the round before was taken.
    last: Option<i64>,
    /// When steps ran, in order.
    steps: Vec<Stretch>,
    /// The first of these that had not ended at that time.
    next: usize,
}

impl MachinePass {
    /// A pass over the samples of a run whose steps ran in these times.
    pub(super) fn beside_steps(steps: Vec<Stretch>) -> Self {
        Self { steps, ..Self::default() }
    }

    pub(super) fn add(&mut self, sample: &SampleRecord) {
        if &*sample.device != HOST {
            return;
        }
        if self.round.first().is_some_and(|first| first.time != sample.time) {
            self.end_round();
        }
        self.round.push(sample.clone());
    }

    fn end_round(&mut self) {
        let Some(now) = self.round.first().map(|first| first.time.0) else { return };
        let steps_ran = self.last.is_some_and(|last| {
            while self.steps.get(self.next).is_some_and(|(_, end)| *end <= last) {
                self.next += 1;
            }
            self.steps.get(self.next).is_some_and(|(start, _)| *start < now)
        });
        self.meter.add(&self.round, steps_ran);
        self.round.clear();
        self.last = Some(now);
    }

    pub(super) fn finish(mut self) -> Option<MachineUse> {
        self.end_round();
        self.meter.result()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use candlescope_schema::{HostNs, host_metric};

    #[test]
    fn rounds_without_steps_do_not_count() {
        let mut pass = MachinePass::beside_steps(vec![(250, 350), (700, 720)]);
        for n in 0..5i64 {
            let sample = |metric, value| SampleRecord::new(HostNs(n * 200), HOST, metric, value, "seconds");
            pass.add(&sample(host_metric::CPU_USER_SECONDS, n as f64 * 1e-7));
            pass.add(&sample(host_metric::CPU_SYSTEM_SECONDS, 0.0));
            pass.add(&SampleRecord::new(HostNs(n * 200 + 1), "GPU-1", "hw_power_watts", 1.0, "watts"));
        }
        // Steps ran between the second and third sample, and between the fourth and fifth.
        let machine = pass.finish().expect("sampled");
        assert!((machine.sampled_s - 4e-7).abs() < 1e-12 && (machine.user_s - 2e-7).abs() < 1e-12, "{machine:?}");
        assert_eq!(machine.others_s, None, "nobody told");
        assert_eq!(MachinePass::default().finish(), None);
    }
}
