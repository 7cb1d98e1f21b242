//! The number of threads that answers a request fastest: counts tried in turns, in processes of their own, because a pool
//! has its size for good.

use candlescope_figures::stats::Distribution;
use serde::Serialize;
use std::collections::BTreeMap;

/// Above this many processors not every count is tried.
const EACH_UP_TO: usize = 4;

/// The counts that are tried unless told otherwise: each of few; of many, powers of two, the physical cores, and all.
pub fn thread_counts(physical: usize, available: usize) -> Vec<usize> {
    let available = available.max(1);
    let mut counts: Vec<usize> = match available {
        n if n <= EACH_UP_TO => (1..=n).collect(),
        n => std::iter::successors(Some(1), |c| Some(c * 2)).take_while(|c| *c <= n).chain([physical, n]).collect(),
    };
    counts.retain(|count| (1..=available).contains(count));
    counts.sort_unstable();
    counts.dedup();
    counts
}

/// A count of threads, and what a request took with it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ThreadsPoint {
    /// Threads in the pool of the process that was timed.
    pub threads: usize,
    /// The median request of each round, in nanoseconds, in the order of the rounds.
    pub rounds_ns: Vec<f64>,
    /// Median of the rounds, in nanoseconds.
    pub median_ns: f64,
    /// Its 95 % interval, from six rounds on.
    pub median_ci95_ns: Option<(f64, f64)>,
    /// Output tokens a second of the median.
    #[serde(rename = "output_tps")]
    pub output_tokens_per_s: f64,
    /// Its time ÷ that of the fastest, round by round: the median.
    pub ratio: f64,
    /// The 95 % interval of that ratio.
    pub ratio_ci95: Option<(f64, f64)>,
}

impl ThreadsPoint {
    /// Whether it is known to be slower than the fastest.
    fn is_slower(&self) -> bool {
        self.ratio_ci95.is_some_and(|(low, _)| low > 1.0)
    }
}

/// What the rounds tell: the best count, those that may be as fast, and every count with its times.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ThreadsTuned {
    /// Every count that was tried, in ascending order, with its times in the whole rounds.
    pub points: Vec<ThreadsPoint>,
    /// The count with the shortest median.
    pub fastest: usize,
    /// The smallest of those that are not known to be slower than that; the fastest where there are too few rounds to know.
    pub best: usize,
    /// The others that are not known to be slower.
    pub undecided: Vec<usize>,
    /// Rounds in which every count was measured.
    pub rounds: usize,
}

impl ThreadsTuned {
    /// Compares rounds, each with a time in nanoseconds for every count; `tokens` are those of an output. Rounds that lack a
    /// count are left out. `None` if no round is whole.
    pub fn of(rounds: &[BTreeMap<usize, f64>], tokens: usize) -> Option<Self> {
        let counts: Vec<usize> = rounds.iter().flat_map(|round| round.keys().copied()).collect();
        let counts: std::collections::BTreeSet<usize> = counts.into_iter().collect();
        let whole: Vec<_> =
            rounds.iter().filter(|round| counts.iter().all(|count| round.contains_key(count))).collect();
        let times = |count: usize| whole.iter().map(|round| round[&count]).collect::<Vec<f64>>();
        let medians = counts.iter().map(|count| Some((*count, Distribution::of(times(*count))?)));
        let medians = medians.collect::<Option<Vec<_>>>()?;
        let fastest = medians.iter().min_by(|a, b| a.1.median.total_cmp(&b.1.median))?.0;
        let points = medians.iter().map(|(count, all)| {
            let ratios = whole.iter().map(|round| round[count] / round[&fastest]).collect();
            let ratio = Distribution::of(ratios)?;
            Some(ThreadsPoint {
                threads: *count,
                rounds_ns: all.samples.clone(),
                median_ns: all.median,
                median_ci95_ns: all.median_ci95,
                output_tokens_per_s: tokens as f64 / all.median * 1e9,
                ratio: ratio.median,
                ratio_ci95: ratio.median_ci95,
            })
        });
        let points = points.collect::<Option<Vec<_>>>()?;
        let close: Vec<usize> = points.iter().filter(|point| !point.is_slower()).map(|point| point.threads).collect();
        let is_known = points.iter().any(|point| point.ratio_ci95.is_some());
        let best = if is_known { *close.first()? } else { fastest };
        let undecided = close.into_iter().filter(|count| *count != best).collect();
        Some(Self { points, fastest, best, undecided, rounds: whole.len() })
    }

    /// The lines of a terminal: what is best, how sure that is, and every count.
    pub fn lines(&self) -> Vec<String> {
        let ms = |ns: f64| candlescope_core::numbers::duration(ns);
        let mut lines = Vec::new();
        if let Some(point) = self.points.iter().find(|point| point.threads == self.best) {
            let median = ms(point.median_ns);
            let of = count(self.best);
            lines.push(match (self.undecided.is_empty(), self.best == self.fastest) {
                (true, _) => format!("Best: {of} (a request takes {median})"),
                (false, true) => format!("Undecided; fastest so far: {of} (a request takes {median})"),
                (false, false) => format!("Undecided; the fewest that may be as fast: {of} (a request takes {median})"),
            });
        }
        if !self.undecided.is_empty() {
            let close = self.undecided.iter().chain([&self.best]).filter(|count| **count != self.fastest);
            let others: Vec<String> = close.map(usize::to_string).collect();
            let why = match self.points.iter().any(|point| point.threads != self.fastest && point.ratio_ci95.is_some())
            {
                true => "the interval of their ratio contains 1",
                false => "there are too few rounds for an interval, which takes 6 (--rounds 6)",
            };
            lines.push(format!("Not to be told from the fastest, {}: {}; {why}.", self.fastest, others.join(", ")));
        }
        for point in &self.points {
            let interval = |ends: Option<(f64, f64)>, shown: &dyn Fn(f64) -> String| match ends {
                Some((low, high)) => format!(" ({} to {})", shown(low), shown(high)),
                None => String::new(),
            };
            lines.push(format!(
                "  {:>9}  {}{}  {:.0} tokens/s  takes {:.2}{} times as long as the fastest",
                count(point.threads),
                ms(point.median_ns),
                interval(point.median_ci95_ns, &ms),
                point.output_tokens_per_s,
                point.ratio,
                interval(point.ratio_ci95.filter(|_| point.threads != self.fastest), &|ratio| format!("{ratio:.2}")),
            ));
        }
        lines
    }
}

fn count(threads: usize) -> String {
    format!("{threads} thread{}", if threads == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rounds(times: &[&[(usize, f64)]]) -> Vec<BTreeMap<usize, f64>> {
        times.iter().map(|round| round.iter().copied().collect()).collect()
    }

    #[test]
    fn counts_fit_the_machine() {
        assert_eq!((thread_counts(1, 2), thread_counts(2, 4)), (vec![1, 2], vec![1, 2, 3, 4]));
        assert_eq!(thread_counts(12, 24), [1, 2, 4, 8, 12, 16, 24]);
        assert_eq!(thread_counts(64, 6), [1, 2, 4, 6], "a quota leaves six");
    }

    #[test]
    fn a_clear_difference_is_decided_by_rounds() {
        // The machine gets slower from round to round, both alike.
        let drifting: Vec<Vec<(usize, f64)>> =
            (0..6).map(|n| vec![(1, 1e6 * f64::from(10 + n)), (2, 6e5 * f64::from(10 + n))]).collect();
        let slices: Vec<&[(usize, f64)]> = drifting.iter().map(Vec::as_slice).collect();
        let tuned = ThreadsTuned::of(&rounds(&slices), 64).unwrap();
        assert_eq!((tuned.best, tuned.fastest, tuned.undecided.as_slice()), (2, 2, &[][..]));
        assert!(tuned.lines()[0].starts_with("Best: 2 threads (a request takes 7.5"), "{:?}", tuned.lines());
        let one = &tuned.points[0];
        assert!((one.ratio - 1.0 / 0.6).abs() < 1e-9 && one.ratio_ci95.is_some());
    }

    #[test]
    fn what_cannot_be_told_apart_is_said_and_the_fewest_are_taken() {
        let noisy: Vec<Vec<(usize, f64)>> =
            (0..6).map(|n| vec![(1, 1e6 + f64::from(n)), (2, if n % 2 == 0 { 9e5 } else { 1.1e6 })]).collect();
        let slices: Vec<&[(usize, f64)]> = noisy.iter().map(Vec::as_slice).collect();
        let tuned = ThreadsTuned::of(&rounds(&slices), 64).unwrap();
        assert_eq!((tuned.best, tuned.undecided.as_slice()), (1, &[2][..]));
        assert!(tuned.lines()[0].contains("the fewest that may be as fast: 1 thread"), "{:?}", tuned.lines());
        // Two rounds decide nothing, however clear they look.
        let few = ThreadsTuned::of(&rounds(&[&[(1, 9e6), (2, 1e6)], &[(1, 9e6), (2, 1e6)]]), 64).unwrap();
        assert_eq!((few.best, few.undecided.as_slice()), (2, &[1][..]));
        assert!(few.lines()[1].contains("takes 6 (--rounds 6)"), "{:?}", few.lines());
    }
}
