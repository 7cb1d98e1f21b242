//! A step within a sequence of values, where neighbours may hang together and the whole may drift.
//!
//! Runs of A and then runs of B, or days of a history: what changed on the machine meanwhile looks like a change of the
//! program. Student's t takes values to be independent and finds steps that are none. Here the values are a level, a
//! step, a straight trend where one is asked for, and noise that is in part passed on from one value to the next:
//! correlation ρ to the power of the time between two values, in multiples of the usual time. How much is passed on is
//! not known. Each ρ, and each share of noise that is not passed on, counts as much as the values make it likely (its
//! restricted likelihood [Harville, *Bayesian inference for variance components using only error contrasts*, Biometrika
//! 61 (1974)]), and the answer is the mixture over all of them. Where values show nothing of the sort, the interval is
//! little wider than Student's; where a few values cannot tell, it is wide.

use candlescope_figures::stats::{two_sided_p, two_sided_quantile};

/// Correlations of neighbours that are considered, each as likely as the others before the values are seen.
const CORRELATIONS: [f64; 6] = [0.0, 0.4, 0.6, 0.8, 0.9, 0.97];
/// Shares of noise that is not passed on.
const FRESH: [f64; 3] = [0.0, 0.35, 0.7];
/// Most values; more are put together in neighbours of one side. Time grows with the cube.
const MOST: usize = 48;

/// A value of a sequence.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct TimedValue {
    /// When, in any unit; values are ordered by it.
    pub(super) time: f64,
    /// Whether it is after the step.
    pub(super) after: bool,
    pub(super) value: f64,
}

/// How high a step is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Step {
    pub(super) height: f64,
    pub(super) low: f64,
    pub(super) high: f64,
    /// Probability of a step at least as clear without any.
    pub(super) p: f64,
    /// The correlation of neighbours that the values make most likely.
    pub(super) correlation: f64,
    /// The change by the trend alone from the middle of what is before to the middle of what is after.
    pub(super) trend: f64,
}

/// What one assumption about the noise says.
struct Answer {
    weight: f64,
    height: f64,
    error: f64,
    correlation: f64,
    slope: f64,
}

/// The step of a sequence in order of time; `None` where there are too few values to tell it from a level, a trend if
/// `trend` says so, and noise.
pub(super) fn step(values: &[TimedValue], trend: bool, alpha: f64) -> Option<Step> {
    let values = thinned(values);
    let n = values.len();
    let columns = columns(&values, trend);
    let freedom = n.checked_sub(columns.len()).filter(|freedom| *freedom > 0)? as f64;
    let y: Vec<f64> = values.iter().map(|at| at.value).collect();
    let gaps = gaps(&values);
    let mut answers: Vec<Answer> = Vec::new();
    for correlation in CORRELATIONS {
        for fresh in FRESH.into_iter().filter(|fresh| correlation > 0.0 || *fresh == 0.0) {
            // Without correlation, all noise is fresh: it stands for as many assumptions as another correlation has.
            let prior = if correlation > 0.0 { 1.0 } else { FRESH.len() as f64 };
            answers.extend(answer(&y, &columns, &gaps, (correlation, fresh), prior, freedom));
        }
    }
    let best = answers.iter().map(|answer| answer.weight).fold(f64::NEG_INFINITY, f64::max);
    if !best.is_finite() {
        return flat(&y, &values);
    }
    answers.iter_mut().for_each(|answer| answer.weight = (answer.weight - best).exp());
    let sum: f64 = answers.iter().map(|answer| answer.weight).sum();
    answers.iter_mut().for_each(|answer| answer.weight /= sum);
    answers.retain(|answer| answer.weight > 1e-7);
    let mean = |of: &dyn Fn(&Answer) -> f64| answers.iter().map(|answer| answer.weight * of(answer)).sum::<f64>();
    let height = mean(&|answer| answer.height);
    // Probability that the step is at most `x`.
    let below = |x: f64| {
        mean(&|answer| {
            let t = (x - answer.height) / answer.error;
            let tail = two_sided_p(t, freedom) / 2.0;
            if t < 0.0 { tail } else { 1.0 - tail }
        })
    };
    let widest = answers.iter().map(|answer| answer.error).fold(0.0, f64::max);
    let reach = two_sided_quantile(alpha / 100.0, freedom) * widest;
    let end = |wanted: f64| {
        let (mut low, mut high) = (height - reach, height + reach);
        for _ in 0..40 {
            let middle = (low + high) / 2.0;
            if below(middle) < wanted { low = middle } else { high = middle }
        }
        (low + high) / 2.0
    };
    let under = below(0.0);
    let (before, after) = (center(&values, false), center(&values, true));
    Some(Step {
        height,
        low: end(alpha / 2.0),
        high: end(1.0 - alpha / 2.0),
        p: (2.0 * under.min(1.0 - under)).clamp(0.0, 1.0),
        correlation: mean(&|answer| answer.correlation),
        trend: mean(&|answer| answer.slope) * (after - before),
    })
}

/// Values without any noise.
fn flat(y: &[f64], values: &[TimedValue]) -> Option<Step> {
    let side = |after: bool| values.iter().zip(y).filter(move |(at, _)| at.after == after).map(|(_, y)| *y);
    let (before, after) = (side(false).next()?, side(true).next()?);
    let steady = side(false).all(|y| y == before) && side(true).all(|y| y == after);
    let height = after - before;
    let p = if height == 0.0 { 1.0 } else { 0.0 };
    steady.then_some(Step { height, low: height, high: height, p, correlation: 0.0, trend: 0.0 })
}

/// The middle of the times of one side, in the unit of the trend.
fn center(values: &[TimedValue], after: bool) -> f64 {
    let times: Vec<f64> = values.iter().filter(|at| at.after == after).map(|at| at.time).collect();
    let (begin, span) = extent(values);
    times.iter().map(|time| (time - begin) / span - 0.5).sum::<f64>() / times.len().max(1) as f64
}

fn extent(values: &[TimedValue]) -> (f64, f64) {
    let (first, last) = (values[0].time, values[values.len() - 1].time);
    (first, if last > first { last - first } else { 1.0 })
}

/// Neighbours of one side put together where there are too many.
fn thinned(values: &[TimedValue]) -> Vec<TimedValue> {
    let size = values.len().div_ceil(MOST);
    let mut out: Vec<TimedValue> = Vec::new();
    for side in values.chunk_by(|a, b| a.after == b.after) {
        for chunk in side.chunks(size.max(1)) {
            let mean = |of: &dyn Fn(&TimedValue) -> f64| chunk.iter().map(of).sum::<f64>() / chunk.len() as f64;
            out.push(TimedValue { time: mean(&|at| at.time), value: mean(&|at| at.value), ..chunk[0] });
        }
    }
    out
}

/// The columns of the model: level, step, and the trend over the time, from −½ to ½.
fn columns(values: &[TimedValue], trend: bool) -> Vec<Vec<f64>> {
    let mut columns = vec![vec![1.0; values.len()], values.iter().map(|at| if at.after { 1.0 } else { 0.0 }).collect()];
    if trend && !values.is_empty() {
        let (begin, span) = extent(values);
        columns.push(values.iter().map(|at| (at.time - begin) / span - 0.5).collect());
    }
    columns
}

/// Time from each value to the next one, in multiples of the usual one.
fn gaps(values: &[TimedValue]) -> Vec<f64> {
    let gaps: Vec<f64> = values.windows(2).map(|pair| (pair[1].time - pair[0].time).max(0.0)).collect();
    let mut sorted = gaps.clone();
    sorted.sort_by(f64::total_cmp);
    let usual = sorted.get(sorted.len() / 2).copied().unwrap_or(1.0);
    // Two values at one time are one value twice; the usual gap is never 0, and none is taken for less than a fifth.
    gaps.into_iter().map(|gap| if usual > 0.0 { (gap / usual).max(0.2) } else { 1.0 }).collect()
}

/// Generalised least squares under one assumption. Its weight is a logarithm.
fn answer(
    y: &[f64],
    columns: &[Vec<f64>],
    gaps: &[f64],
    (correlation, fresh): (f64, f64),
    prior: f64,
    freedom: f64,
) -> Option<Answer> {
    let n = y.len();
    let mut covariance = vec![vec![0.0; n]; n];
    #[expect(clippy::needless_range_loop, reason = "two places of the matrix at a time")]
    for i in 0..n {
        covariance[i][i] = 1.0;
        let mut apart = 0.0;
        for j in i + 1..n {
            apart += gaps[j - 1];
            let shared = if correlation > 0.0 { (1.0 - fresh) * correlation.powf(apart) } else { 0.0 };
            (covariance[i][j], covariance[j][i]) = (shared, shared);
        }
    }
    let root = cholesky(covariance)?;
    let of_covariance: f64 = (0..n).map(|i| root[i][i].ln()).sum();
    let x: Vec<Vec<f64>> = columns.iter().map(|column| forward(&root, column)).collect();
    let y = forward(&root, y);
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let normal: Vec<Vec<f64>> = x.iter().map(|a| x.iter().map(|b| dot(a, b)).collect()).collect();
    let inner = cholesky(normal)?;
    let of_normal: f64 = (0..x.len()).map(|i| inner[i][i].ln()).sum();
    let right: Vec<f64> = x.iter().map(|column| dot(column, &y)).collect();
    let beta = backward(&inner, &forward(&inner, &right));
    let rest: f64 = (0..n).map(|i| (y[i] - (0..x.len()).map(|k| x[k][i] * beta[k]).sum::<f64>()).powi(2)).sum();
    // What is left by rounding is no noise.
    let size: f64 = y.iter().map(|y| y * y).sum();
    if rest <= size * 1e-24 {
        return None;
    }
    let unit: Vec<f64> = (0..x.len()).map(|k| if k == 1 { 1.0 } else { 0.0 }).collect();
    let variance = backward(&inner, &forward(&inner, &unit))[1] * rest / freedom;
    Some(Answer {
        weight: prior.ln() - of_covariance - of_normal - freedom / 2.0 * rest.ln(),
        height: beta[1],
        error: variance.sqrt(),
        correlation: correlation * (1.0 - fresh),
        slope: beta.get(2).copied().unwrap_or(0.0),
    })
}

/// The lower root of a symmetric positive matrix; `None` if it is not positive.
fn cholesky(mut a: Vec<Vec<f64>>) -> Option<Vec<Vec<f64>>> {
    let n = a.len();
    for j in 0..n {
        let own = a[j][j] - (0..j).map(|k| a[j][k] * a[j][k]).sum::<f64>();
        if !own.is_finite() || own <= 1e-12 * a[j][j].abs() {
            return None;
        }
        a[j][j] = own.sqrt();
        for i in j + 1..n {
            let sum: f64 = (0..j).map(|k| a[i][k] * a[j][k]).sum();
            a[i][j] = (a[i][j] - sum) / a[j][j];
        }
    }
    Some(a)
}

/// Solves `root · x = b`.
fn forward(root: &[Vec<f64>], b: &[f64]) -> Vec<f64> {
    let mut x = b.to_vec();
    for (i, row) in root.iter().enumerate() {
        let known: f64 = row[..i].iter().zip(&x).map(|(row, x)| row * x).sum();
        x[i] = (x[i] - known) / row[i];
    }
    x
}

/// Solves `rootᵀ · x = b`.
fn backward(root: &[Vec<f64>], b: &[f64]) -> Vec<f64> {
    let mut x = b.to_vec();
    for i in (0..x.len()).rev() {
        let known: f64 = (i + 1..x.len()).map(|k| root[k][i] * x[k]).sum();
        x[i] = (x[i] - known) / root[i][i];
    }
    x
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    /// About normal, with a standard deviation of 1.
    fn normal(random: &mut StdRng) -> f64 {
        (0..12).map(|_| random.random::<f64>() - 0.5).sum()
    }

    fn ordered(values: &[f64], after: usize) -> Vec<TimedValue> {
        let at = |(i, value): (usize, &f64)| TimedValue { time: i as f64, after: i >= after, value: *value };
        values.iter().enumerate().map(at).collect()
    }

    #[test]
    fn values_without_correlation_are_judged_about_as_student_would() {
        let mut random = StdRng::seed_from_u64(1);
        let noise: Vec<f64> = (0..24).map(|i| 0.01 * normal(&mut random) + if i < 12 { 0.0 } else { 0.05 }).collect();
        let found = step(&ordered(&noise, 12), false, 0.02).unwrap();
        // Student's is 0.05 ± 0.0102.
        assert!((found.height - 0.05).abs() < 0.01 && found.low > 0.025 && found.high < 0.075, "{found:?}");
        assert!(found.p < 1e-3, "{found:?}");
    }

    #[test]
    fn a_trend_is_no_step() {
        let mut random = StdRng::seed_from_u64(2);
        let drift: Vec<f64> = (0..16).map(|i| 0.01 * normal(&mut random) + 0.1 * f64::from(i) / 15.0).collect();
        let found = step(&ordered(&drift, 8), true, 0.02).unwrap();
        assert!(found.low < 0.0 && found.high > 0.0, "{found:?}");
        assert!((found.trend - 0.053).abs() < 0.03, "{found:?}");
        let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
        assert!(mean(&drift[8..]) - mean(&drift[..8]) > 0.04, "what the means alone say");
    }

    #[test]
    fn the_interval_holds_the_truth_whatever_lasts() {
        let mut random = StdRng::seed_from_u64(3);
        for (passed_on, fresh, most) in [(0.0, 0.0, 9), (0.9, 0.0, 12), (0.9, 1.0, 9), (0.5, 0.5, 9)] {
            let mut missed = 0;
            for _ in 0..250 {
                let mut load = normal(&mut random);
                let value = |_| {
                    load = passed_on * load + (1.0f64 - passed_on * passed_on).sqrt() * normal(&mut random);
                    load + fresh * normal(&mut random)
                };
                let values: Vec<f64> = (0..16).map(value).collect();
                let found = step(&ordered(&values, 8), true, 0.01).unwrap();
                missed += usize::from(found.low > 0.0 || found.high < 0.0);
            }
            assert!(missed <= most, "{missed} of 250 with {passed_on} passed on");
        }
    }

    #[test]
    fn few_equal_and_many_values() {
        assert_eq!(step(&ordered(&[1.0, 2.0], 1), false, 0.02), None);
        assert_eq!(step(&[], true, 0.02), None);
        let flat = step(&ordered(&[1.0, 1.0, 1.0, 3.0, 3.0, 3.0], 3), true, 0.02).unwrap();
        assert_eq!((flat.low, flat.height, flat.high, flat.p), (2.0, 2.0, 2.0, 0.0));
        let values: Vec<f64> = (0..600).map(|i| f64::from(i % 7) + if i < 300 { 0.0 } else { 5.0 }).collect();
        let many = step(&ordered(&values, 300), true, 0.02).unwrap();
        assert!((many.height - 5.0).abs() < 0.5, "{many:?}");
        assert_eq!(step(&ordered(&[1.0, f64::NAN, 1.0, 2.0, 2.0, 2.0], 3), true, 0.02), None);
    }
}
