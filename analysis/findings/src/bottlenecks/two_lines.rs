//! What a relief does to a step of which only sums are known: how long its two lines are, the host's and the device's.
//!
//! Where every kernel and call of a step is known, it is replayed instead ([`crate::simulation`]): that says the same of a
//! device that waits, and more of the order of things. These lines are for steps without kernels, for reliefs that are of
//! the host's operations alone, and for all reliefs together.
//!
//! A step takes as long as the longer of two lines, and what neither of them explains: the host, which works and
//! launches, and the device, which runs what was launched [`docs/findings.md`]. Changes act on the lines; then the step
//! is computed again. So two changes of the same kernels do not count twice, and one that only relieves the shorter
//! line gains nothing.

use candlescope_figures::advice::{RATES, gain_at_rates};
use candlescope_work::estimate::Estimate;
use std::collections::BTreeMap;

/// A step's two lines. Times are nanoseconds a step, as it runs unobserved.
#[derive(Debug, Clone, Default)]
pub(super) struct TwoLines {
    /// Wall time of the whole step.
    pub(super) t: f64,
    /// The host's work and launches, without waiting for the device.
    pub(super) host: f64,
    /// Part of it before the first launch and after the device's last work, which no graph takes over.
    pub(super) host_outside: f64,
    /// Kernels, copies and memsets, by the row of the step's work they stand in.
    pub(super) rows: Vec<RowTime>,
    /// Time in which the device is busy ÷ the sum of all rows: below 1 if kernels overlap.
    pub(super) overlap: f64,
    /// Time in which the device is busy with steps of other threads.
    pub(super) others: f64,
    /// Time between two pieces of work that are in the queue.
    pub(super) gap: f64,
    /// What launching one kernel costs the host.
    pub(super) launch: f64,
    /// On a CPU: what each operation that states its work needs at its roof. No changes together make the step shorter
    /// than all of these.
    pub(super) floors: Vec<(String, f64)>,
}

/// The work of one row in one step.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RowTime {
    pub(super) ns: f64,
    pub(super) launches: f64,
    /// Those of the launches that come right after a kernel which could be one with it.
    pub(super) follows: f64,
}

/// What relieves a step.
#[derive(Debug, Clone)]
pub(super) enum Relief {
    /// One graph launches all that the step's kernels now launch; they reach this part of what is possible.
    Graph(f64),
    /// These rows take this share of their time.
    Scale(Vec<usize>, f64),
    /// This share of these rows is gone, launches and all.
    Remove(Vec<usize>, f64),
    /// What follows in these rows becomes one with the kernels before, and they take `ns` together; of both this part is
    /// reached.
    Fuse { rows: Vec<usize>, ns: f64, rate: f64 },
    /// So much of all that follows is launched no more; the kernels' time stays.
    Launches(f64),
    /// This much less work on the host.
    Host(f64),
    /// This much less work on the host in this operation: of two changes of it, the larger one counts.
    Operation(String, f64),
    /// The same, because it has less to do: its roof is another one then.
    Fewer(String, f64),
    /// This share of all work is not done.
    Undone(f64),
    /// This share of what is left of the host's work is gone.
    HostShare(f64),
    /// This much less on the device.
    Device(f64),
    /// This much less waiting of both, at this path, with that of the paths inside it.
    Wait(String, f64),
}

impl TwoLines {
    /// The step after these reliefs, in nanoseconds.
    pub(super) fn after(&self, reliefs: &[Relief]) -> f64 {
        let before = self.t;
        let (host, device) = (self.host, self.device(&self.rows));
        // What neither line explains, such as the device's lag at the step's end, stays unless a change removes it.
        let rest = (before - host.max(device)).max(0.0);
        let mut rows = self.rows.clone();
        // Of what follows in each row, the share that is launched no more: two changes may save the same launches.
        let mut saved = vec![0.0_f64; rows.len()];
        let (mut saved_host, mut saved_device, mut waits, mut graph) = (0.0, 0.0, Vec::new(), None);
        let (mut operations, mut kept_host, mut done) = (BTreeMap::<&str, f64>::new(), 1.0_f64, 1.0_f64);
        let mut fewer_bytes: Vec<&str> = Vec::new();
        for relief in reliefs {
            match relief {
                Relief::Graph(rate) => graph = Some(*rate),
                Relief::Scale(list, share) => {
                    for at in list {
                        if let Some(row) = rows.get_mut(*at) {
                            row.ns *= share;
                        }
                    }
                }
                Relief::Remove(list, share) => {
                    for at in list {
                        if let Some(row) = rows.get_mut(*at) {
                            row.ns *= 1.0 - share;
                            row.launches *= 1.0 - share;
                            row.follows *= 1.0 - share;
                        }
                    }
                }
                Relief::Fuse { rows: list, ns, rate } => {
                    fuse(&mut rows, list, ns / rate);
                    for at in list {
                        if let Some(saved) = saved.get_mut(*at) {
                            *saved = saved.max(*rate);
                        }
                    }
                }
                Relief::Launches(rate) => saved.iter_mut().for_each(|saved| *saved = saved.max(*rate)),
                Relief::Host(ns) => saved_host += ns,
                Relief::Operation(place, ns) | Relief::Fewer(place, ns) => {
                    let saved = operations.entry(place).or_default();
                    *saved = saved.max(*ns);
                    if matches!(relief, Relief::Fewer(..)) {
                        fewer_bytes.push(place);
                    }
                }
                Relief::Undone(share) => done *= 1.0 - share.clamp(0.0, 1.0),
                Relief::HostShare(share) => kept_host *= 1.0 - share.clamp(0.0, 1.0),
                Relief::Device(ns) => saved_device += ns,
                Relief::Wait(place, ns) => waits.push((place.as_str(), *ns)),
            }
        }
        for (row, saved) in rows.iter_mut().zip(&saved) {
            row.launches = (row.launches - row.follows * saved).max(0.0);
        }
        let fewer = (launches(&self.rows) - launches(&rows)).max(0.0);
        let floors = self.floors.iter().filter(|(place, _)| !fewer_bytes.contains(&place.as_str()));
        let least = self.host_outside.max(floors.map(|(_, ns)| ns).sum()).min(host);
        let saved_host = saved_host + operations.values().sum::<f64>();
        let host = ((host - saved_host - fewer * self.launch) * kept_host).max(least) * done;
        let device = (self.device(&rows) - saved_device).max(0.0);
        match graph {
            // A graph takes what its kernels take together, those of other threads that run meanwhile, and the gaps
            // between its own.
            Some(rate) => ((self.device(&rows) + self.others) / rate).max(self.host_outside),
            None => (host.max(device) + rest - waited(waits)).max(device),
        }
    }

    /// Kernels and the gaps between them.
    fn device(&self, rows: &[RowTime]) -> f64 {
        self.kernels(rows) + launches(rows) * self.gap
    }

    /// Kernels, overlapping ones once.
    fn kernels(&self, rows: &[RowTime]) -> f64 {
        rows.iter().map(|row| row.ns).sum::<f64>() * self.overlap
    }

    /// The device's line as it is.
    pub(super) fn device_ns(&self) -> f64 {
        self.device(&self.rows)
    }

    /// What reliefs gain, given what they are at each part of the attainable rate.
    pub(super) fn gain(&self, reliefs: &[Vec<Relief>; 3]) -> Estimate {
        gain_at_rates(|rate| {
            let at = RATES.iter().position(|known| *known == rate).unwrap_or(0);
            if self.t > 0.0 { 1.0 - self.after(&reliefs[at]) / self.t } else { 0.0 }
        })
    }
}

fn launches(rows: &[RowTime]) -> f64 {
    rows.iter().map(|row| row.launches).sum()
}

/// The kernels of these rows take `ns` together, if that is less. Each keeps its share, so that a change of one of them
/// changes as much.
fn fuse(rows: &mut [RowTime], list: &[usize], ns: f64) {
    let before: f64 = list.iter().filter_map(|at| rows.get(*at)).map(|row| row.ns).sum();
    let share = if before > 0.0 { (ns / before).min(1.0) } else { 1.0 };
    for at in list {
        if let Some(row) = rows.get_mut(*at) {
            row.ns *= share;
        }
    }
}

/// Waits that are gone. Of two at one place the longer counts; what is inside a place is part of its time.
fn waited(mut waits: Vec<(&str, f64)>) -> f64 {
    waits.sort_by(|a, b| a.0.cmp(b.0).then_with(|| b.1.total_cmp(&a.1)));
    waits.dedup_by(|next, kept| next.0 == kept.0);
    let is_inside = |path: &str, around: &str| path.strip_prefix(around).is_some_and(|rest| rest.starts_with('/'));
    let outermost = waits.iter().filter(|one| !waits.iter().any(|other| is_inside(one.0, other.0)));
    let each = outermost.map(|one| {
        let inside = waits.iter().filter(|other| is_inside(other.0, one.0)).map(|other| other.1);
        one.1.max(inside.sum())
    });
    each.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 1 ms, which the host takes to launch 40 kernels of 2 µs and 40 that follow them.
    fn launching() -> TwoLines {
        let row = |follows| RowTime { ns: 80e3, launches: 40.0, follows };
        let rows = vec![row(0.0), row(40.0)];
        TwoLines { t: 1e6, host: 1e6, overlap: 1.0, launch: 10e3, rows, ..TwoLines::default() }
    }

    /// 1 ms of two kernels on a busy device.
    fn busy() -> TwoLines {
        let row = |ns| RowTime { ns, launches: 10.0, follows: 5.0 };
        TwoLines { t: 1e6, host: 0.0, overlap: 1.0, rows: vec![row(400e3), row(600e3)], ..TwoLines::default() }
    }

    #[test]
    fn launches_are_saved_once() {
        let fuse = Relief::Fuse { rows: vec![0, 1], ns: 100e3, rate: 1.0 };
        let one = launching().after(&[Relief::Launches(1.0)]);
        assert!((one - 600e3).abs() < 1.0, "{one}");
        for both in [vec![fuse.clone(), Relief::Launches(1.0)], vec![Relief::Launches(1.0), fuse.clone(), fuse]] {
            assert!((launching().after(&both) - one).abs() < 1.0, "{both:?}");
        }
    }

    #[test]
    fn what_is_fused_is_not_removed_with_one_of_its_rows() {
        let fuse = Relief::Fuse { rows: vec![0, 1], ns: 500e3, rate: 1.0 };
        let after = busy().after(&[fuse, Relief::Remove(vec![0], 1.0)]);
        assert!((after - 300e3).abs() < 1.0, "{after}");
    }

    #[test]
    fn changes_of_one_operation_count_once_and_none_goes_below_the_roofs() {
        let host = TwoLines {
            t: 1e6,
            host: 1e6,
            overlap: 1.0,
            floors: vec![("decode/q_proj".to_string(), 150e3)],
            ..TwoLines::default()
        };
        let of = |place: &str, ns| Relief::Operation(place.to_string(), ns);
        let both = host.after(&[of("decode/q_proj", 300e3), of("decode/q_proj", 200e3), of("decode/softmax", 100e3)]);
        assert!((both - 600e3).abs() < 1.0, "{both}");
        let shared = host.after(&[of("decode/q_proj", 500e3), Relief::HostShare(0.5)]);
        assert!((shared - 250e3).abs() < 1.0, "a share of what is left: {shared}");
        let all = host.after(&[of("decode/q_proj", 900e3), of("decode/softmax", 400e3), Relief::HostShare(0.9)]);
        assert!((all - 150e3).abs() < 1.0, "{all}");
        let fewer = host.after(&[Relief::Fewer("decode/q_proj".to_string(), 900e3), Relief::Undone(0.5)]);
        assert!((fewer - 50e3).abs() < 1.0, "fewer bytes have another roof: {fewer}");
    }

    #[test]
    fn waits_at_one_place_are_one() {
        let wait = |place: &str, ns| Relief::Wait(place.to_string(), ns);
        let idle = TwoLines { t: 1e6, host: 100e3, overlap: 1.0, ..TwoLines::default() };
        let after = |list: &[Relief]| idle.after(list);
        let (route, sample) = (wait("decode/route", 100e3), wait("decode/sample", 200e3));
        assert!((after(&[route.clone(), sample.clone()]) - 700e3).abs() < 1.0, "two places");
        assert!((after(&[sample.clone(), wait("decode/sample", 150e3)]) - 800e3).abs() < 1.0, "one place");
        assert!((after(&[route, sample, wait("decode", 250e3)]) - 700e3).abs() < 1.0, "inside another");
    }

    #[test]
    fn a_graph_has_gaps_and_shares_the_device() {
        let alone = TwoLines { gap: 1e3, ..launching() };
        assert!((alone.after(&[Relief::Graph(1.0)]) - 240e3).abs() < 1.0);
        let shared = TwoLines { others: 300e3, ..launching() };
        assert!((shared.after(&[Relief::Graph(1.0)]) - 460e3).abs() < 1.0);
    }
}
