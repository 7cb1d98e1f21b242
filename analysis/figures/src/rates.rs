//! The error of a rate that was measured in windows of a longer time.
//!
//! Where steps are sampled (a schedule, a window, a probe), a rate is work ÷ time over the windows in which every step
//! has a record: an estimate of the rate over all time. The variation from window to window gives its error. The
//! ratio's error is taken by leaving out one window at a time (delete-one jackknife of a ratio estimator [Cochran,
//! Sampling Techniques, 3rd ed., 6.17]), its 95 % interval by Student's t with one degree of freedom less than there
//! are windows. Windows lie far apart, so they count as independent.

use super::covered::{CoveredTime, Part};
use super::stats::{Distribution, two_sided_quantile};
use super::step_rows::StepRow;
use candlescope_schema::stretches::Stretch;

/// Fewest windows for an interval; with fewer, the spread would be too uncertain.
const FEWEST_WINDOWS: usize = 6;

/// Half widths of 95 % intervals of the rates of one kind of step, each ÷ its rate. `None` for what the steps do not
/// state.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct RateErrors {
    /// Windows with such steps.
    pub windows: u64,
    /// Of tokens/s, of the tokens that count for throughput.
    pub tokens: Option<f64>,
    /// Of FLOP/s that the model needs, without masked work.
    pub flops: Option<f64>,
    /// Of executed FLOP/s, masked work included.
    pub flops_executed: Option<f64>,
    /// Of bytes/s of weights and KV cache.
    pub bytes: Option<f64>,
    /// Of bytes/s with activations.
    pub io_bytes: Option<f64>,
    /// By how much longer the recorded steps took, which none of the intervals holds.
    pub longer: Option<RecordedLonger>,
}

/// How much longer recorded steps take than steps without a record, from the last step of each row and the one right
/// after it, of the same kind: these differ in nothing but that. Rates are those of recorded steps.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RecordedLonger {
    /// Pairs of steps.
    pub pairs: usize,
    /// Median of the pairs' shares by which the recorded step took longer; negative if it was the shorter one.
    pub share: f64,
    /// 95 % interval of the median.
    pub interval: (f64, f64),
}

impl RecordedLonger {
    /// From `pairs` of times, recorded and not; `None` for too few of them for an interval.
    fn of(pairs: impl Iterator<Item = (u64, u64)>) -> Option<Self> {
        let shares = pairs.filter(|(_, plain)| *plain > 0).map(|(own, plain)| own as f64 / plain as f64 - 1.0);
        let spread = Distribution::of(shares.collect())?;
        Some(Self { pairs: spread.n, share: spread.median, interval: spread.median_ci95? })
    }
}

impl RateErrors {
    /// The errors for `steps`, of `group`, which were open during `open` (only the time that counts, ordered and disjoint) and have
    /// `parts` in windows; `tokens` gives the tokens that count. `None` if all steps have a record, so that nothing is
    /// estimated.
    pub fn of(
        covered: &CoveredTime,
        group: &str,
        open: &[Stretch],
        steps: &[&StepRow],
        parts: &[Vec<Part>],
        tokens: fn(&StepRow) -> Option<u64>,
    ) -> Option<Self> {
        let windows = covered.windows()?;
        let mut times = vec![0.0; windows.len()];
        for (start, end) in open {
            // Time that counts lies within one window.
            let at = windows.partition_point(|window| window.1 <= *start);
            if let Some(time) = times.get_mut(at) {
                *time += end.abs_diff(*start) as f64;
            }
        }
        let error = |work: fn(&StepRow) -> Option<u64>| {
            let mut amounts = vec![0.0; windows.len()];
            for (step, parts) in steps.iter().zip(parts) {
                let work = work(step)? as f64;
                for part in parts {
                    if let Some(amount) = amounts.get_mut(part.window) {
                        *amount += work * part.share;
                    }
                }
            }
            relative_error(amounts.into_iter().zip(times.iter().copied()).filter(|(_, time)| *time > 0.0).collect())
        };
        Some(Self {
            windows: times.iter().filter(|time| **time > 0.0).count() as u64,
            tokens: error(tokens),
            flops: error(|s| s.work.flops),
            flops_executed: error(|s| s.work.flops_executed),
            bytes: error(|s| s.work.bytes),
            io_bytes: error(|s| s.work.io_bytes),
            longer: RecordedLonger::of(
                steps.iter().filter_map(|step| Some((step.dur_ns, covered.right_after(group, step.step)?))),
            ),
        })
    }
}

/// Half width of the 95 % interval of Σ amounts ÷ Σ times, as a share of it.
fn relative_error(windows: Vec<(f64, f64)>) -> Option<f64> {
    let n = windows.len();
    let (amount, time) = windows.iter().fold((0.0, 0.0), |sum, window| (sum.0 + window.0, sum.1 + window.1));
    if n < FEWEST_WINDOWS || amount <= 0.0 {
        return None;
    }
    let without: Vec<f64> = windows.iter().map(|(a, t)| (amount - a) / (time - t)).collect();
    let mean = without.iter().sum::<f64>() / n as f64;
    let squares: f64 = without.iter().map(|rate| (rate - mean).powi(2)).sum();
    let error = (squares * (n - 1) as f64 / n as f64).sqrt();
    Some(two_sided_quantile(0.05, (n - 1) as f64) * error * time / amount).filter(|error| error.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    #[test]
    fn windows_that_agree_have_no_error_and_few_say_nothing() {
        assert_eq!(relative_error(vec![(2.0, 1.0); 8]), Some(0.0));
        assert_eq!(relative_error(vec![(2.0, 1.0); 5]), None);
        // Two kinds of window of equal length, at 1 and 3: mean 2, standard error 1 × √(8/7) / √8, t(7) = 2.365.
        let mixed: Vec<(f64, f64)> = (0..8).map(|n| (if n % 2 == 0 { 1.0 } else { 3.0 }, 1.0)).collect();
        let error = relative_error(mixed).expect("an interval");
        assert!((error - 2.365 / 7f64.sqrt() / 2.0).abs() < 2e-3, "{error}");
    }

    /// A recorded step takes a tenth longer than the one after it, whatever the two of them take.
    #[test]
    fn recorded_steps_beside_the_ones_after_them() {
        let pairs = |n: u64| (1..=n).map(|i| (1_100 * i, 1_000 * i)).chain([(5, 0)]);
        let longer = RecordedLonger::of(pairs(8)).expect("an interval");
        assert_eq!(longer.pairs, 8, "a step without a time says nothing");
        for share in [longer.share, longer.interval.0, longer.interval.1] {
            assert!((share - 0.1).abs() < 1e-9, "{longer:?}");
        }
        assert_eq!(RecordedLonger::of(pairs(5)), None);
    }

    /// Windows of ten steps each, whose time varies by a third from window to window and by a tenth within: the true
    /// rate lies in the interval in 95 of 100 runs.
    #[test]
    fn the_true_rate_lies_in_the_interval() {
        let mut random = StdRng::seed_from_u64(7);
        let mut uniform = move || random.random::<f64>();
        // Mean 1 each, so 10 tokens take 10 on average: 1 a unit of time.
        let mut within = [0.0f64; 2];
        for (n, found) in [8, 40].into_iter().zip(&mut within) {
            for _ in 0..2_000 {
                let windows: Vec<(f64, f64)> = (0..n)
                    .map(|_| {
                        let slow = 0.5 + uniform();
                        (10.0, (0..10).map(|_| slow * (0.85 + 0.3 * uniform())).sum())
                    })
                    .collect();
                let (amount, time) = windows.iter().fold((0.0, 0.0), |sum, w| (sum.0 + w.0, sum.1 + w.1));
                let (rate, error) = (amount / time, relative_error(windows).expect("an interval"));
                *found += f64::from(u8::from((rate - 1.0).abs() <= rate * error)) / 2_000.0;
            }
        }
        assert!(within.iter().all(|share| (0.925..0.97).contains(share)), "{within:?}");
    }
}
