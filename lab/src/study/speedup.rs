//! How much more of something one case gives than another, start by start.

use super::summary::{CaseSummary, IntervalOf};
use crate::method::Sample;
use candlescope_figures::stats::{Distribution, INTERVAL_FROM, percentile_of};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde::Serialize;
use std::collections::BTreeMap;

/// Resamples of a single process start.
const RESAMPLES: usize = 2_000;

/// A figure of one case ÷ that of another: of how long one takes, or of what it gives in a second.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Speedup {
    /// Median over process starts of the ratio of their medians; 1 for a case beside itself.
    pub ratio: f64,
    /// Its 95 % interval.
    pub ci95: Option<(f64, f64)>,
    /// Smallest and largest ratio, where there is too little for an interval.
    pub range: Option<(f64, f64)>,
    /// What the interval is over.
    pub interval_of: IntervalOf,
    /// Process starts in which both were measured.
    pub processes: usize,
}

impl Speedup {
    /// Whether its interval, or its range, is on one side of 1: a single ratio shows neither.
    pub fn is_clear(&self) -> bool {
        self.ci95.or(self.range).is_some_and(|(low, high)| low > 1.0 || high < 1.0)
    }
}

/// How many times as fast `case` is as `base`; `None` if they were never measured in one process start.
///
/// Both are measured in each process start, interleaved, so that each start gives a ratio of its own of medians, and the
/// interval of their median comes from these. Of a single start it comes from its samples, resampled, and says nothing
/// about another start.
pub fn speedup(base: &CaseSummary, case: &CaseSummary) -> Option<Speedup> {
    ratio(base, case, &|sample| Some(sample.measurement.host_ns as f64))
}

/// `figure` of one case ÷ that of another, as for [`speedup`].
pub(crate) fn ratio(
    base: &CaseSummary,
    case: &CaseSummary,
    figure: &dyn Fn(&Sample) -> Option<f64>,
) -> Option<Speedup> {
    if base.case == case.case && !case.plain.is_empty() {
        // Itself: its samples differ from each other, and it does not from itself.
        let processes = by_process(&case.plain, figure).len();
        let interval_of = if processes == 1 { IntervalOf::OneProcess } else { IntervalOf::Processes };
        return Some(Speedup { ratio: 1.0, ci95: None, range: None, interval_of, processes });
    }
    let (before, after) = (by_process(&base.plain, figure), by_process(&case.plain, figure));
    let pairs: Vec<(&Vec<f64>, &Vec<f64>)> =
        before.iter().filter_map(|(process, times)| Some((times, after.get(process)?))).collect();
    let ratio = |pair: &(&Vec<f64>, &Vec<f64>)| Some(percentile_of(pair.0, 0.5)? / percentile_of(pair.1, 0.5)?);
    let ratios = pairs.iter().map(ratio).collect::<Option<Vec<f64>>>()?;
    if let [(before, after)] = pairs.as_slice() {
        let ratio = ratios[0];
        let enough = before.len().min(after.len()) >= INTERVAL_FROM;
        let ends = |values: &[f64]| {
            values.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(*v), high.max(*v)))
        };
        let ((slow, slowest), (fast, fastest)) = (ends(before), ends(after));
        // Two samples have one ratio, and no range.
        let several = before.len().min(after.len()) > 1;
        let range = (!enough && several).then_some((slow / fastest, slowest / fast));
        let ci95 = if enough { resampled(before, after) } else { None };
        return Some(Speedup { ratio, ci95, range, interval_of: IntervalOf::OneProcess, processes: 1 });
    }
    let all = Distribution::of(ratios)?;
    Some(Speedup {
        ratio: all.median,
        ci95: all.median_ci95,
        range: all.range.map(|range| (range.low, range.high)),
        interval_of: IntervalOf::Processes,
        processes: pairs.len(),
    })
}

fn by_process(samples: &[Sample], figure: &dyn Fn(&Sample) -> Option<f64>) -> BTreeMap<u32, Vec<f64>> {
    let mut all: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
    for sample in samples {
        if let Some(value) = figure(sample) {
            all.entry(sample.process).or_default().push(value);
        }
    }
    all
}

fn resampled(before: &[f64], after: &[f64]) -> Option<(f64, f64)> {
    let mut random = StdRng::seed_from_u64(42);
    let mut drawn = |values: &[f64]| {
        let drawn: Vec<f64> = (0..values.len()).map(|_| values[random.random_range(0..values.len())]).collect();
        percentile_of(&drawn, 0.5)
    };
    let ratios = (0..RESAMPLES).map(|_| Some(drawn(before)? / drawn(after)?)).collect::<Option<Vec<f64>>>()?;
    Some((percentile_of(&ratios, 0.025)?, percentile_of(&ratios, 0.975)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::method::{CaseId, Measurement, Mode, Reading, SampleVerdict};

    fn case(variant: &str, times: &[(u32, u64)]) -> CaseSummary {
        let case = CaseId::new("variants").param("variant", variant);
        let sample = |(process, ns): &(u32, u64)| Sample {
            case: case.clone(),
            process: *process,
            repetition: 0,
            mode: Mode::Plain,
            ended_ns: 0,
            measurement: Measurement::new(*ns),
            reading: Reading::default(),
            verdict: SampleVerdict::Ok,
        };
        CaseSummary {
            plain: times.iter().map(sample).collect(),
            case,
            profiled: Vec::new(),
            retaken: 0,
            processes: 0,
            stops: Vec::new(),
            detail: None,
        }
    }

    #[test]
    fn starts_are_paired() {
        // Twice as fast in each start, although starts differ by a factor of 6.
        let base: Vec<(u32, u64)> = (0..6).map(|p| (p, 2_000 * u64::from(p + 1))).collect();
        let fast: Vec<(u32, u64)> = (0..7).map(|p| (p, 1_000 * u64::from(p + 1))).collect();
        let found = speedup(&case("a", &base), &case("b", &fast)).unwrap();
        assert_eq!((found.ratio, found.ci95, found.processes), (2.0, Some((2.0, 2.0)), 6));
        assert_eq!(found.interval_of, IntervalOf::Processes);
        let few = speedup(&case("a", &base[..2]), &case("b", &fast)).unwrap();
        assert_eq!((few.ci95, few.range), (None, Some((2.0, 2.0))));
        assert_eq!(speedup(&case("a", &base), &case("b", &[(9, 1)])), None, "never in one start");
        let itself = speedup(&case("a", &base), &case("a", &base)).unwrap();
        assert_eq!((itself.ratio, itself.ci95, itself.range, itself.processes), (1.0, None, None, 6));
    }

    #[test]
    fn one_start_gives_an_interval_of_its_own_samples() {
        let base: Vec<(u32, u64)> = (0..9).map(|n| (0, 300 + n)).collect();
        let fast: Vec<(u32, u64)> = (0..9).map(|n| (0, 100 + n)).collect();
        let found = speedup(&case("a", &base), &case("b", &fast)).unwrap();
        let (low, high) = found.ci95.unwrap();
        assert_eq!((found.ratio, found.interval_of), (304.0 / 104.0, IntervalOf::OneProcess));
        assert!(low > 2.7 && low < found.ratio && found.ratio < high && high < 3.1, "{found:?}");
        let few = speedup(&case("a", &base[..3]), &case("b", &fast[..3])).unwrap();
        let itself = speedup(&case("a", &base[..3]), &case("a", &base[..3])).unwrap();
        assert_eq!((itself.ratio, itself.range), (1.0, None), "and not from 300/302 to 302/300");
        assert_eq!((few.ci95, few.range), (None, Some((300.0 / 102.0, 302.0 / 100.0))));
        assert!(found.is_clear() && few.is_clear() && !itself.is_clear());
        // A single slow sample is a ratio of 241 that nothing bears out.
        let one = speedup(&case("a", &[(0, 24_150)]), &case("b", &[(0, 100)])).unwrap();
        assert_eq!((one.ratio, one.ci95, one.range, one.is_clear()), (241.5, None, None, false));
    }
}
