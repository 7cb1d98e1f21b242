//! What a change does to a step: the one place where gains are computed.
//!
//! A step takes as long as the longer of two lines, and what neither of them explains: the host, which works and
//! launches, and the device, which runs what was launched [`docs/findings.md`]. Changes act on the lines; then the step
//! is computed again. So two changes of the same kernels do not count twice, and one that only relieves the shorter
//! line gains nothing.

use crate::advice::{Gain, RATES};

/// A step's two lines. Times are nanoseconds a step, as it runs unobserved.
#[derive(Debug, Clone, Default)]
pub(super) struct StepModel {
    /// The step.
    pub(super) t: f64,
    /// The host's work and launches, without waiting for the device.
    pub(super) host: f64,
    /// Part of it before the first launch and after the device's last work, which no graph takes over.
    pub(super) host_outside: f64,
    /// Kernels, copies and memsets, by the row of the step's work they stand in.
    pub(super) rows: Vec<RowTime>,
    /// Time in which the device is busy ÷ the sum of all rows: below 1 if kernels overlap.
    pub(super) overlap: f64,
    /// Time between two pieces of work that are in the queue.
    pub(super) gap: f64,
    /// What launching one kernel costs the host.
    pub(super) launch: f64,
}

/// The work of one row in one step.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RowTime {
    pub(super) ns: f64,
    pub(super) launches: f64,
}

/// A change of a step.
#[derive(Debug, Clone)]
pub(super) enum Change {
    /// One graph launches all that the step's kernels now launch; they reach this part of what is possible.
    Graph(f64),
    /// These rows take this share of their time.
    Scale(Vec<usize>, f64),
    /// This share of these rows is gone, launches and all.
    Remove(Vec<usize>, f64),
    /// These rows become `calls` kernels that take `ns` together, of which this part of the attainable rate is reached.
    Fuse { rows: Vec<usize>, calls: f64, ns: f64, rate: f64 },
    /// This many launches less; the kernels' time stays.
    Launches(f64),
    /// This much less work on the host.
    Host(f64),
    /// This much less on the device.
    Device(f64),
    /// This much less waiting of both.
    Wait(f64),
}

impl StepModel {
    /// The step after these changes, in nanoseconds.
    pub(super) fn after(&self, changes: &[Change]) -> f64 {
        let before = self.t;
        let (host, device) = (self.host, self.device(&self.rows, 0.0));
        // What neither line explains, such as the device's lag at the step's end, stays unless a change removes it.
        let rest = (before - host.max(device)).max(0.0);
        let mut rows = self.rows.clone();
        let (mut saved_host, mut saved_device, mut saved_wait, mut fewer, mut graph) = (0.0, 0.0, 0.0, 0.0, None);
        for change in changes {
            match change {
                Change::Graph(rate) => graph = Some(*rate),
                Change::Scale(list, share) => {
                    for at in list {
                        if let Some(row) = rows.get_mut(*at) {
                            row.ns *= share;
                        }
                    }
                }
                Change::Remove(list, share) => {
                    for at in list {
                        if let Some(row) = rows.get_mut(*at) {
                            row.ns *= 1.0 - share;
                            row.launches *= 1.0 - share;
                        }
                    }
                }
                Change::Fuse { rows: list, calls, ns, rate } => fuse(&mut rows, list, (*calls, *ns, *rate)),
                Change::Launches(n) => fewer += n,
                Change::Host(ns) => saved_host += ns,
                Change::Device(ns) => saved_device += ns,
                Change::Wait(ns) => saved_wait += ns,
            }
        }
        let launches = |rows: &[RowTime]| rows.iter().map(|row| row.launches).sum::<f64>();
        let fewer_in_all = (launches(&self.rows) - launches(&rows) + fewer).max(0.0);
        let host = (host - saved_host - fewer_in_all * self.launch).max(self.host_outside.min(host));
        let device = (self.device(&rows, fewer) - saved_device).max(0.0);
        match graph {
            // Between kernels of a graph hardly any time passes: a graph took what its kernels take together.
            Some(rate) => (self.kernels(&rows) / rate).max(self.host_outside),
            None => (host.max(device) + rest - saved_wait).max(device),
        }
    }

    /// Kernels and the gaps between them.
    fn device(&self, rows: &[RowTime], fewer: f64) -> f64 {
        let launches: f64 = rows.iter().map(|row| row.launches).sum();
        self.kernels(rows) + (launches - fewer).max(0.0) * self.gap
    }

    /// Kernels, overlapping ones once.
    fn kernels(&self, rows: &[RowTime]) -> f64 {
        rows.iter().map(|row| row.ns).sum::<f64>() * self.overlap
    }

    /// The device's line as it is.
    pub(super) fn device_ns(&self) -> f64 {
        self.device(&self.rows, 0.0)
    }

    /// What changes gain, given what they are at each part of the attainable rate.
    pub(super) fn gain(&self, changes: &[Vec<Change>; 3]) -> Gain {
        Gain::at_rates(|rate| {
            let at = RATES.iter().position(|known| *known == rate).unwrap_or(0);
            if self.t > 0.0 { 1.0 - self.after(&changes[at]) / self.t } else { 0.0 }
        })
    }
}

/// The first of the rows becomes the fused kernel.
fn fuse(rows: &mut [RowTime], list: &[usize], (calls, ns, rate): (f64, f64, f64)) {
    let of = |rows: &[RowTime], value: fn(&RowTime) -> f64| list.iter().filter_map(|at| rows.get(*at)).map(value).sum();
    let (before, launched): (f64, f64) = (of(rows, |row| row.ns), of(rows, |row| row.launches));
    let fewer = (launched - calls).max(0.0) * rate;
    let fused = RowTime { ns: (ns / rate).min(before), launches: launched - fewer };
    for (nth, at) in list.iter().enumerate() {
        if let Some(row) = rows.get_mut(*at) {
            *row = if nth == 0 { fused } else { RowTime::default() };
        }
    }
}
