//! GPU time of a path: what was measured, on how many of its intervals, and the estimate for all of them.
//!
//! GPU time is *sampled*: in the adaptive tier only one step in N has marks on every interval, and kernels are recorded
//! in windows of steps. [`estimate`] is the one place where samples become totals:
//!
//! - at the top, mean of the measured intervals × number of all intervals;
//! - below, a parent's total is divided as it was divided in those of its intervals whose children were all measured.
//!   So children never exceed their parent, and shares of self time add up to 1, however unevenly steps were sampled.
//!
//! What was not measured stays unknown, never zero.

use super::stats::two_sided_quantile;
use candlescope_schema::GpuSource;

pub use candlescope_schema::estimate::extrapolated;

/// Number of groups into which steps are dealt; leaving out one group at a time shows how certain a total is
/// (delete-a-group jackknife, Kott 2001).
pub const GROUPS: usize = 16;

/// With fewer measured groups the spread cannot be estimated.
const FEWEST_GROUPS: usize = 6;

/// GPU time of one path's intervals from one source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GpuSums {
    /// Intervals with GPU time.
    pub calls: u64,
    /// Sum of it in nanoseconds.
    pub total_ns: u64,
    /// How many of these have known GPU times of all children.
    pub self_calls: u64,
    /// Sum of GPU time of these intervals, in nanoseconds.
    pub detail_ns: u64,
    /// Sum of their children's GPU time, in nanoseconds.
    pub inside_ns: u64,
}

impl GpuSums {
    /// GPU time of the intervals whose children are known, less their children's, in nanoseconds.
    pub fn self_ns(&self) -> u64 {
        self.detail_ns.saturating_sub(self.inside_ns)
    }

    fn without(&self, part: &GpuSums) -> Self {
        Self {
            calls: self.calls.saturating_sub(part.calls),
            total_ns: self.total_ns.saturating_sub(part.total_ns),
            self_calls: self.self_calls.saturating_sub(part.self_calls),
            detail_ns: self.detail_ns.saturating_sub(part.detail_ns),
            inside_ns: self.inside_ns.saturating_sub(part.inside_ns),
        }
    }
}

/// GPU time of one path's intervals. An interval has one source: kernels if they were recorded, else marks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GpuBySource {
    /// Between two marks on the stream, queue gaps included: "stream elapsed".
    pub event: GpuSums,
    /// Sum of the kernels launched inside.
    pub cupti: GpuSums,
    /// Intervals in steps whose kernels were recorded; those of them without GPU time launched none.
    pub recorded_calls: u64,
}

impl GpuBySource {
    /// What one source measured.
    pub fn of(&self, source: GpuSource) -> &GpuSums {
        match source {
            GpuSource::Event => &self.event,
            GpuSource::Cupti => &self.cupti,
        }
    }

    /// What one source measured, mutably.
    pub fn of_mut(&mut self, source: GpuSource) -> &mut GpuSums {
        match source {
            GpuSource::Event => &mut self.event,
            GpuSource::Cupti => &mut self.cupti,
        }
    }

    /// Number of intervals that a mean is over. In a step with recorded kernels, an interval without GPU time launched
    /// no kernel: that is a measurement of zero.
    pub fn measured(&self, source: GpuSource) -> u64 {
        match source {
            GpuSource::Event => self.event.calls,
            GpuSource::Cupti => self.cupti.calls.max(self.recorded_calls),
        }
    }
}

/// What reports call a source's time.
pub fn source_name(source: GpuSource) -> &'static str {
    match source {
        GpuSource::Event => "stream elapsed",
        GpuSource::Cupti => "kernels",
    }
}

/// One path of a tree, parents before children.
#[derive(Debug, Clone, Copy)]
pub struct SampledPath<'a> {
    /// Index of its parent.
    pub parent: Option<usize>,
    /// All its intervals, measured or not: what the measured ones are raised to.
    pub calls: u64,
    /// What was measured for them.
    pub sums: &'a GpuBySource,
    /// The same by group of steps; empty or [`GROUPS`] long.
    pub groups: &'a [GpuBySource],
}

/// GPU time of all intervals of a path.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PathGpuTime {
    /// Of all its intervals, children included, in nanoseconds.
    pub total_ns: f64,
    /// The same less their children's; `None` if there is no interval whose children were all measured.
    pub self_ns: Option<f64>,
    /// 95 % interval of `total_ns`, from leaving out groups of steps; `None` if all intervals were measured, or too few
    /// groups.
    pub total_ci95_ns: Option<(f64, f64)>,
}

/// Totals of every path from what `source` measured; `None` if it measured nothing.
pub fn estimate(tree: &[SampledPath<'_>], source: GpuSource) -> Vec<Option<PathGpuTime>> {
    let whole: Vec<GpuBySource> = tree.iter().map(|path| *path.sums).collect();
    let mut all = point(tree, &whole, source);
    let sampled: Vec<bool> = tree.iter().map(|path| path.sums.measured(source) < path.calls).collect();
    let with_measurements =
        |group: usize| tree.iter().any(|path| path.groups.get(group).is_some_and(|sums| sums.of(source).calls > 0));
    let groups: Vec<usize> = (0..GROUPS).filter(|group| with_measurements(*group)).collect();
    if groups.len() < FEWEST_GROUPS || !sampled.contains(&true) {
        return all;
    }
    let left_out: Vec<Vec<Option<PathGpuTime>>> = groups
        .iter()
        .map(|group| {
            let rest: Vec<GpuBySource> = tree
                .iter()
                .map(|path| path.groups.get(*group).map_or(*path.sums, |part| path.sums.without(part)))
                .collect();
            point(tree, &rest, source)
        })
        .collect();
    for (i, estimate) in all.iter_mut().enumerate() {
        let Some(estimate) = estimate.as_mut().filter(|_| sampled[i]) else { continue };
        let totals: Vec<f64> = left_out.iter().filter_map(|out| Some(out[i]?.total_ns)).collect();
        // A path that occurs in one group only has nothing to leave out.
        if totals.len() < groups.len() {
            continue;
        }
        let n = totals.len() as f64;
        let mean = totals.iter().sum::<f64>() / n;
        let variance = (n - 1.0) / n * totals.iter().map(|total| (total - mean).powi(2)).sum::<f64>();
        let half = two_sided_quantile(0.05, (groups.len() - 1) as f64) * variance.sqrt();
        estimate.total_ci95_ns = Some(((estimate.total_ns - half).max(0.0), estimate.total_ns + half));
    }
    all
}

impl GpuBySource {
    fn without(&self, part: &GpuBySource) -> Self {
        Self {
            event: self.event.without(&part.event),
            cupti: self.cupti.without(&part.cupti),
            recorded_calls: self.recorded_calls.saturating_sub(part.recorded_calls),
        }
    }
}

fn point(tree: &[SampledPath<'_>], sums: &[GpuBySource], source: GpuSource) -> Vec<Option<PathGpuTime>> {
    // Each path by itself: mean × number.
    let alone: Vec<Option<f64>> = tree
        .iter()
        .zip(sums)
        .map(|(path, sums)| {
            let own = sums.of(source);
            (own.calls > 0).then(|| extrapolated(own.total_ns, sums.measured(source), path.calls)).flatten()
        })
        .collect();
    // A parent that was not measured is part of one that was, and so are its children: the innermost one that is known.
    let known_parent = |path: &SampledPath<'_>| {
        let mut above = path.parent;
        while let Some(at) = above.filter(|at| alone[*at].is_none()) {
            above = tree[at].parent.filter(|next| *next < at);
        }
        above
    };
    let mut children = vec![0.0; tree.len()];
    for (path, alone) in tree.iter().zip(&alone) {
        if let (Some(parent), Some(alone)) = (known_parent(path), alone) {
            children[parent] += alone;
        }
    }
    // The share of a path's time that is its children's, if measured.
    let inside: Vec<Option<f64>> = sums
        .iter()
        .map(|sums| {
            let own = sums.of(source);
            (own.detail_ns > 0).then(|| (own.inside_ns as f64 / own.detail_ns as f64).min(1.0))
        })
        .collect();
    let mut out: Vec<Option<PathGpuTime>> = Vec::with_capacity(tree.len());
    for (i, path) in tree.iter().enumerate() {
        let total = alone[i].map(|alone| {
            let parent = known_parent(path).and_then(|parent| Some((parent, out[parent]?.total_ns)));
            match parent {
                None => alone,
                Some((parent, whole)) => match inside[parent] {
                    Some(inside) if children[parent] > 0.0 => whole * inside * alone / children[parent],
                    // Only some of the parent's children were measured: their time is known, but must not exceed the
                    // parent's.
                    _ if children[parent] > whole => whole * alone / children[parent],
                    _ => alone,
                },
            }
        });
        out.push(total.map(|total_ns| PathGpuTime {
            total_ns,
            self_ns: inside[i].map(|inside| total_ns * (1.0 - inside)),
            total_ci95_ns: None,
        }));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    /// `calls` intervals measured at `ns` each, of which `inside` per interval is their children's, known for `detail`
    /// of them.
    fn event(calls: u64, ns: u64, detail: u64, inside: u64) -> GpuBySource {
        let event = GpuSums {
            calls,
            total_ns: calls * ns,
            self_calls: detail,
            detail_ns: detail * ns,
            inside_ns: detail * inside,
        };
        GpuBySource { event, ..GpuBySource::default() }
    }

    #[test]
    fn cold_children_do_not_exceed_their_parent() {
        // 120 encodes of 7 µs, all measured. In the 4 cold ones, the only ones that were measured in full, the encode
        // took 70 µs and its only child 60 µs: mean × number would give the child 7.2 ms of the encodes' 0.84 + 0.25
        // ms.
        let cold = GpuSums {
            calls: 120,
            total_ns: 116 * 7_000 + 4 * 70_000,
            self_calls: 4,
            detail_ns: 280_000,
            inside_ns: 240_000,
        };
        let root = GpuBySource { event: cold, ..GpuBySource::default() };
        let child = event(4, 60_000, 4, 0);
        let tree = [
            SampledPath { parent: None, calls: 120, sums: &root, groups: &[] },
            SampledPath { parent: Some(0), calls: 120, sums: &child, groups: &[] },
        ];
        let out = estimate(&tree, GpuSource::Event);
        let (root, child) = (out[0].expect("measured"), out[1].expect("measured"));
        assert_eq!(root.total_ns, 1_092_000.0);
        assert!((child.total_ns - 1_092_000.0 * 6.0 / 7.0).abs() < 1e-6, "{child:?}");
        assert!((root.self_ns.unwrap() + child.self_ns.unwrap() - root.total_ns).abs() < 1e-6);
    }

    #[test]
    fn children_that_were_measured_alone_are_held_to_their_parent_too() {
        let (root, a, b) = (event(10, 100, 0, 0), event(2, 90, 2, 0), event(3, 60, 3, 0));
        let tree = [
            SampledPath { parent: None, calls: 10, sums: &root, groups: &[] },
            SampledPath { parent: Some(0), calls: 10, sums: &a, groups: &[] },
            SampledPath { parent: Some(0), calls: 10, sums: &b, groups: &[] },
        ];
        let out = estimate(&tree, GpuSource::Event);
        let total = |i: usize| out[i].unwrap().total_ns;
        assert_eq!((total(0), out[0].unwrap().self_ns), (1000.0, None));
        assert!((total(1) - 600.0).abs() < 1e-9 && (total(2) - 400.0).abs() < 1e-9, "{out:?}");
    }

    #[test]
    fn children_of_an_interval_without_a_mark_are_part_of_what_is_around_it() {
        // A worker's prefill had no mark, as there was no context yet; its parts had. The decoding steps took the rest.
        let (worker, none, norm, decode) =
            (event(4, 1_000, 3, 800), GpuBySource::default(), event(4, 90, 4, 0), event(40, 80, 40, 0));
        let tree = [
            SampledPath { parent: None, calls: 4, sums: &worker, groups: &[] },
            SampledPath { parent: Some(0), calls: 4, sums: &none, groups: &[] },
            SampledPath { parent: Some(1), calls: 4, sums: &norm, groups: &[] },
            SampledPath { parent: Some(0), calls: 40, sums: &decode, groups: &[] },
        ];
        let out = estimate(&tree, GpuSource::Event);
        assert_eq!(out[1], None, "what was not measured stays unknown");
        let own: f64 = out.iter().flatten().filter_map(|estimate| estimate.self_ns).sum();
        assert!((own - 4_000.0).abs() < 1e-6, "self times add up to the worker's time: {own}");
    }

    #[test]
    fn the_interval_covers_the_truth_about_as_often_as_it_says() {
        // A root measured in all of 1,600 steps, a child in one of ten. The child takes 40 to 80 % of each step, evenly
        // spread.
        let mut random = StdRng::seed_from_u64(0x5eed);
        let mut uniform = || random.random::<f64>();
        let (mut covered, rounds) = (0, 400);
        for _ in 0..rounds {
            let mut sums = [GpuBySource::default(); 2];
            let mut groups = [[GpuBySource::default(); GROUPS]; 2];
            let mut truth = 0.0;
            for step in 0..1_600u64 {
                let ns = 1_000_000 + (uniform() * 500_000.0) as u64;
                let inside = (ns as f64 * (0.4 + 0.4 * uniform())) as u64;
                truth += inside as f64;
                let full = uniform() < 0.1;
                let group = step as usize % GROUPS;
                for (path, part) in [(0, group), (1, group)] {
                    for into in [&mut sums[path], &mut groups[path][part]] {
                        let event = &mut into.event;
                        if path == 0 || full {
                            event.calls += 1;
                            event.total_ns += if path == 0 { ns } else { inside };
                        }
                        if full {
                            event.self_calls += 1;
                            event.detail_ns += if path == 0 { ns } else { inside };
                            event.inside_ns += if path == 0 { inside } else { 0 };
                        }
                    }
                }
            }
            let tree = [
                SampledPath { parent: None, calls: 1_600, sums: &sums[0], groups: &groups[0] },
                SampledPath { parent: Some(0), calls: 1_600, sums: &sums[1], groups: &groups[1] },
            ];
            let out = estimate(&tree, GpuSource::Event);
            assert_eq!(out[0].unwrap().total_ci95_ns, None, "all of it was measured");
            let (low, high) = out[1].unwrap().total_ci95_ns.expect("sampled in many steps");
            covered += u32::from((low..=high).contains(&truth));
        }
        let coverage = f64::from(covered) / f64::from(rounds);
        assert!((0.92..=0.985).contains(&coverage), "{coverage}");
    }
}
