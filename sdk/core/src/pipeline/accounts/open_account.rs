//! What is known of a request while its steps come, and what is known around the batches they come in.

use candlescope_schema::accounts::energy_curve::{ACCURACY, SENSOR_PERIOD_NS};
use std::time::Instant;

/// What a request has had so far.
#[derive(Debug, Default)]
pub(super) struct Account {
    pub(super) steps: u64,
    pub(super) step_ns: f64,
    /// Of those steps, the ones whose time on the device is known.
    pub(super) device_steps: u64,
    pub(super) device_ns: f64,
    pub(super) energy: RequestEnergy,
}

/// What a request has had of the energy, and what bounds it.
#[derive(Debug, Default)]
pub(super) struct RequestEnergy {
    pub(super) joules: f64,
    /// Its share of the time of its steps, once for each device, and that time undivided; nanoseconds.
    own_ns: f64,
    pub(super) whole_ns: f64,
    /// Least and most, by the power that was sampled × its share of the time.
    by_power: (f64, f64),
    /// First start and last end of its steps, Unix nanoseconds.
    pub(super) extent: Option<(i64, i64)>,
    /// Stretches of its steps with more than a period of the sensors between them.
    stretches: u32,
    /// A step of it came when its time was settled.
    pub(super) is_incomplete: bool,
}

impl RequestEnergy {
    /// It has a step, from and to.
    pub(super) fn step(&mut self, (start, end): (i64, i64)) {
        let (first, last) = self.extent.unwrap_or((start, i64::MIN));
        let apart = i64::try_from(SENSOR_PERIOD_NS).unwrap_or(i64::MAX);
        self.stretches += u32::from(last == i64::MIN || start > last.saturating_add(apart));
        self.extent = Some((first.min(start), last.max(end)));
    }

    /// When its last step ended, Unix nanoseconds.
    pub(super) fn last_end(&self) -> i64 {
        self.extent.map_or(i64::MIN, |(_, end)| end)
    }

    pub(super) fn charge(&mut self, joules: f64, whole_ns: f64, share: f64, (least, most): (f64, f64)) {
        let own_ns = whole_ns * share;
        self.joules += joules * share;
        self.own_ns += own_ns;
        self.whole_ns += whole_ns;
        self.by_power.0 += least * own_ns / 1e9;
        self.by_power.1 += most * own_ns / 1e9;
    }

    /// Both terms of a report's bound: a reading may be a period late at each end of a stretch of its steps, but power was
    /// never outside what was sampled; and the sensor's accuracy. `most`: the highest power of all devices together.
    pub(super) fn bound(&self, most: f64) -> (f64, f64) {
        let share = if self.whole_ns > 0.0 { self.own_ns / self.whole_ns } else { 0.0 };
        let misplaced = f64::from(self.stretches) * most * SENSOR_PERIOD_NS as f64 / 1e9 * share;
        let low = self.by_power.0.max(self.joules - misplaced).min(self.joules);
        let high = self.by_power.1.min(self.joules + misplaced).max(self.joules);
        let by_accuracy = ACCURACY * self.joules;
        ((low - by_accuracy).max(0.0), high + by_accuracy)
    }
}

/// What is known around the batches that have passed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BatchTime {
    /// Every step that began before has come, Unix nanoseconds.
    pub(crate) known_until: i64,
    /// Now, on the run's time line and on the machine's.
    pub(crate) now: i64,
    pub(crate) at: Instant,
    /// How often so far a step that has no record began, or ended.
    pub(crate) without_record: u64,
    /// One of them is open.
    pub(crate) in_unrecorded: bool,
    /// Nothing more comes.
    pub(crate) is_last: bool,
}
