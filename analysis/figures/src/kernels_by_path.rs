//! The kernels of an Nsight Systems profile by path: which interval launched which kernels.
//!
//! Every interval of the run was an NVTX range whose payload is its span id. A kernel belongs to the innermost range
//! open on the launching thread when its launch call began, and so to that interval's path; every range around it
//! contains it. The time is the sum of kernels' durations ("projected" in Nsight's terms), so kernels that overlap all
//! count.

use super::warmup::Warmup;
use crate::nsys::{Kernel, Profile, Range};
use candlescope_reader::Run;
use candlescope_schema::{GpuSource, RecordKind, SpanRecord};
use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::path::PathBuf;

/// A number of kernels and the sum of their durations.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct KernelSum {
    /// Kernels of the profile that were summed up; a CUDA graph that was traced as a whole counts once per launch.
    pub kernels: u64,
    /// Sum of their durations in nanoseconds.
    pub ns: u64,
}

impl KernelSum {
    fn add(&mut self, ns: u64) {
        self.kernels += 1;
        self.ns = self.ns.saturating_add(ns);
    }

    fn less(self, part: &KernelSum) -> Self {
        Self { kernels: self.kernels.saturating_sub(part.kernels), ns: self.ns.saturating_sub(part.ns) }
    }
}

/// The kernels of one path without ordinals.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathKernels {
    /// Rollup path that the run gives these intervals: from the step down, without ordinals.
    pub path: String,
    /// Intervals of the path that are in the profile.
    pub intervals: u64,
    /// Kernels launched by these intervals themselves.
    pub own: KernelSum,
    /// The same, plus those launched by intervals inside them.
    pub all: KernelSum,
    /// The kernel that takes most of the path's own time, and that time.
    pub top: Option<(String, u64)>,
    /// The run's own device time for comparison, if it has any.
    pub gpu: Option<Comparison>,
}

/// Device time of the same intervals from two sources.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Comparison {
    /// Intervals that have device time of their own and are in the profile.
    pub intervals: u64,
    /// Sum of the run's device time in nanoseconds.
    pub run_ns: u64,
    /// Sum of the kernels inside these intervals according to the profile.
    pub nsys_ns: u64,
    /// What measured the run's device time.
    pub source: GpuSource,
}

/// A profile's kernels by path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelsByPath {
    /// SQLite export of Nsight Systems that the profile was read from.
    pub file: PathBuf,
    /// Version of Nsight Systems.
    pub version: Option<String>,
    /// One row for each path whose intervals are in the profile, sorted by the time of its own kernels.
    pub rows: Vec<PathKernels>,
    /// All kernels of the profile.
    pub all: KernelSum,
    /// Kernels launched outside every interval of this run.
    pub outside: KernelSum,
    /// Kernels whose launch was not recorded.
    pub unlaunched: KernelSum,
    /// Kernels launched in warm-up intervals, which are in none of the other sums.
    pub warmup: KernelSum,
    /// Ranges of ours in the profile.
    pub ranges: u64,
    /// How many of these are intervals of this run.
    pub matched: u64,
}

/// What is known about one interval of the run that is in the profile.
#[derive(Debug)]
struct RecordedInterval {
    path: usize,
    gpu: Option<(u64, GpuSource)>,
    kernels_ns: u64,
}

impl KernelsByPath {
    /// Joins a profile with the run it was made of.
    pub fn of(run: &Run, profile: &Profile, warmup: &Warmup) -> Self {
        let mut join = Join::new(profile);
        for batch in run.table(RecordKind::Span) {
            batch.spans.iter().for_each(|span| join.span(span, warmup));
        }
        join.finish(profile)
    }
}

/// The join while the run's intervals are read.
#[derive(Debug)]
struct Join {
    /// `None` until the interval is read from the run.
    spans: HashMap<u64, Option<RecordedInterval>>,
    /// Rows by the number of their rollup.
    rows: HashMap<u32, usize>,
    paths: Vec<PathKernels>,
    /// Intervals of the warm-up.
    warmup: HashSet<u64>,
}

impl Join {
    fn new(profile: &Profile) -> Self {
        let spans = profile.ranges.iter().map(|range| (range.span, None)).collect();
        Self { spans, rows: HashMap::new(), paths: Vec::new(), warmup: HashSet::new() }
    }

    fn span(&mut self, span: &SpanRecord, warmup: &Warmup) {
        let Some(seen) = self.spans.get_mut(&span.span_id.0) else { return };
        if warmup.has_step(span.step) {
            self.warmup.insert(span.span_id.0);
            return;
        }
        let path = *self.rows.entry(span.path.rollup_id).or_insert_with(|| {
            let path = span.path.rollup.clone();
            let (own, all) = (KernelSum::default(), KernelSum::default());
            self.paths.push(PathKernels { path, intervals: 0, own, all, top: None, gpu: None });
            self.paths.len() - 1
        });
        self.paths[path].intervals += 1;
        *seen = Some(RecordedInterval { path, gpu: span.gpu.map(|g| (g.dur_ns, g.source)), kernels_ns: 0 });
    }

    fn finish(mut self, profile: &Profile) -> KernelsByPath {
        let [mut all, mut outside, mut unlaunched, mut warmup] = [KernelSum::default(); 4];
        let mut by_name: HashMap<(usize, u32), u64> = HashMap::new();
        let (spans, paths) = (&mut self.spans, &mut self.paths);
        profile.kernels.iter().for_each(|kernel| all.add(kernel.dur_ns));
        let without = profile.kernels.iter().filter(|kernel| kernel.launch.is_none());
        without.for_each(|kernel| unlaunched.add(kernel.dur_ns));
        around_launches(&profile.ranges, &profile.kernels, |kernel, open| {
            if open.iter().any(|range| self.warmup.contains(&range.span)) {
                warmup.add(kernel.dur_ns);
                return;
            }
            let mut innermost = true;
            for range in open.iter().rev() {
                let Some(Some(seen)) = spans.get_mut(&range.span) else { continue };
                let row = &mut paths[seen.path];
                seen.kernels_ns = seen.kernels_ns.saturating_add(kernel.dur_ns);
                row.all.add(kernel.dur_ns);
                if std::mem::take(&mut innermost) {
                    row.own.add(kernel.dur_ns);
                    let ns = by_name.entry((seen.path, kernel.name)).or_default();
                    *ns = ns.saturating_add(kernel.dur_ns);
                }
            }
            if innermost {
                outside.add(kernel.dur_ns);
            }
        });
        for ((path, name), ns) in by_name {
            let name = profile.names.get(name as usize).map_or("(unnamed)", String::as_str);
            let top = &mut paths[path].top;
            // Equal times are ordered by name, so that the report of a run is always the same.
            if top.as_ref().is_none_or(|(top, most)| (ns, Reverse(name)) > (*most, Reverse(top))) {
                *top = Some((name.to_string(), ns));
            }
        }
        let matched = spans.values().flatten().count() as u64 + self.warmup.len() as u64;
        let all = all.less(&warmup);
        for seen in spans.values().flatten() {
            let Some((ns, source)) = seen.gpu else { continue };
            let empty = Comparison { intervals: 0, run_ns: 0, nsys_ns: 0, source };
            let gpu = paths[seen.path].gpu.get_or_insert(empty);
            gpu.intervals += 1;
            gpu.run_ns = gpu.run_ns.saturating_add(ns);
            gpu.nsys_ns = gpu.nsys_ns.saturating_add(seen.kernels_ns);
        }
        let mut rows = self.paths;
        rows.sort_by(|a, b| {
            (Reverse(a.own.ns), Reverse(a.all.ns), &a.path).cmp(&(Reverse(b.own.ns), Reverse(b.all.ns), &b.path))
        });
        KernelsByPath {
            file: profile.file.clone(),
            version: profile.version.clone(),
            rows,
            all,
            outside,
            unlaunched,
            warmup,
            ranges: profile.ranges.len() as u64,
            matched,
        }
    }
}

/// Calls `visit` for every kernel whose launch is known, with the ranges open on the launching thread when the launch
/// call began, outermost first.
pub fn around_launches(ranges: &[Range], kernels: &[Kernel], mut visit: impl FnMut(&Kernel, &[Range])) {
    let mut ranges: Vec<&Range> = ranges.iter().collect();
    // If two start together, the longer one is around the other; the sort keeps the order of those that also end
    // together.
    ranges.sort_by_key(|r| (r.thread, r.start, Reverse(r.end.unwrap_or(i64::MAX))));
    let mut launches: Vec<_> =
        kernels.iter().filter_map(|kernel| kernel.launch.map(|launch| (launch, kernel))).collect();
    launches.sort_by_key(|(launch, _)| (launch.thread, launch.at));
    let mut open: Vec<Range> = Vec::new();
    let mut coming = ranges.into_iter().peekable();
    let ended = |range: &Range, thread: i64, at: i64| range.thread != thread || range.end.is_some_and(|end| end <= at);
    for (launch, kernel) in launches {
        while let Some(range) = coming.next_if(|r| (r.thread, r.start) <= (launch.thread, launch.at)) {
            while open.pop_if(|top| ended(top, range.thread, range.start)).is_some() {}
            open.push(*range);
        }
        while open.pop_if(|top| ended(top, launch.thread, launch.at)).is_some() {}
        visit(kernel, &open);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nsys::Launch;

    fn range(thread: i64, start: i64, end: impl Into<Option<i64>>, span: u64) -> Range {
        Range { thread, start, end: end.into(), span }
    }

    fn kernel(thread: i64, at: i64) -> Kernel {
        Kernel { name: 0, dur_ns: 1, launch: Some(Launch { thread, at }) }
    }

    /// Spans open around each launch, in the order of `kernels`.
    fn open(ranges: &[Range], kernels: &[Kernel]) -> Vec<Vec<u64>> {
        let mut found = Vec::new();
        around_launches(ranges, kernels, |k, open| {
            found.push((k.launch.unwrap(), open.iter().map(|r| r.span).collect::<Vec<_>>()));
        });
        let all = kernels.iter().filter_map(|k| k.launch);
        all.map(|l| found.iter().find(|(at, _)| *at == l).unwrap().1.clone()).collect()
    }

    #[test]
    fn a_launch_is_in_the_ranges_open_on_its_thread() {
        let ranges = [range(1, 0, 100, 1), range(1, 10, 40, 2), range(1, 20, 30, 3), range(1, 50, 60, 4)];
        let at = [5, 10, 25, 29, 30, 40, 55, 60, 99, 100, 200].map(|at| kernel(1, at));
        let want: [&[u64]; 11] = [&[1], &[1, 2], &[1, 2, 3], &[1, 2, 3], &[1, 2], &[1], &[1, 4], &[1], &[1], &[], &[]];
        assert_eq!(open(&ranges, &at), want);
        assert_eq!(open(&ranges, &[kernel(2, 25)]), [[0u64; 0]], "another thread's ranges are not around it");
    }

    #[test]
    fn threads_do_not_mix_whatever_the_order_of_rows() {
        // An open range of thread 1 must not reach into thread 2.
        let ranges = [range(2, 0, 10, 21), range(1, 0, None, 11), range(1, 5, 6, 12), range(2, 20, 30, 22)];
        let kernels = [kernel(2, 5), kernel(1, 1_000), kernel(2, 15), kernel(2, 25), kernel(1, 5), kernel(0, 5)];
        let want: [&[u64]; 6] = [&[21], &[11], &[], &[22], &[11, 12], &[]];
        assert_eq!(open(&ranges, &kernels), want);
    }

    #[test]
    fn ranges_that_share_an_edge_nest_as_they_were_pushed() {
        let ranges = [range(1, 0, 10, 1), range(1, 0, 5, 2), range(1, 0, 5, 3), range(1, 10, 20, 4)];
        assert_eq!(open(&ranges, &[kernel(1, 0), kernel(1, 5), kernel(1, 10)]), [vec![1, 2, 3], vec![1], vec![4]]);
    }

    #[test]
    fn kernels_without_a_launch_are_left_to_the_caller() {
        let lost = Kernel { name: 0, dur_ns: 1, launch: None };
        let mut calls = 0;
        around_launches(&[range(1, 0, 10, 1)], &[lost, kernel(1, 1)], |_, _| calls += 1);
        assert_eq!(calls, 1);
    }
}
