//! How far a model's predictions are from those of another one, position by position, on a text that is given.
//!
//! The definitions are those of llama.cpp's `llama-perplexity --kl-divergence` (`tools/perplexity/perplexity.cpp` and
//! the `README.md` beside it): with p the base's and q the variant's distribution after the same text,
//!
//! - KL divergence of a position: Σ p·ln(p/q) over the vocabulary; its mean, median and percentiles over positions;
//! - same top token: the share of positions at which both find the same token most likely;
//! - perplexity: exp of the mean of −ln of the probability of the token that follows in the text, and the ratio of the
//!   variant's to the base's;
//! - Δp: q − p of the token that follows in the text; its mean and its root mean square.
//!
//! As there, the error of a mean is its standard error with positions taken as independent, that of a share √(s(1 − s)/(n
//! − 1)), and that of the ratio comes from the differences at each position, because both models read the same text.
//! Other than there, the base's logits are f32 and are kept in memory, not rounded to 16 bits.

use serde::{Deserialize, Serialize};

/// Positions from which a 99.9th percentile is given: below, it would be the largest value.
const P99_9_FROM: usize = 1_000;
/// The same for the 99th, as for all statistics here.
const P99_FROM: usize = candlescope_figures::stats::P99_FROM;

/// A figure and its standard error.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// The figure: a mean or share over observations, or what is computed of one.
    pub value: f64,
    /// Its standard error; `None` for a single observation.
    pub error: Option<f64>,
}

/// Percentiles of the KL divergence over positions, in nats.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Divergence {
    /// Mean over all positions, with its standard error.
    pub mean: Estimate,
    /// Largest value of a single position.
    pub max: f64,
    /// 99.9th percentile; from 1,000 positions on.
    pub p99_9: Option<f64>,
    /// 99th percentile; from 100 positions on.
    pub p99: Option<f64>,
    /// 95th percentile, between the two nearest values; given for any number of positions.
    pub p95: f64,
    /// 90th percentile, between the two nearest values.
    pub p90: f64,
    /// Median; of an even number of positions, the mean of the middle two.
    pub median: f64,
    /// 10th percentile, between the two nearest values.
    pub p10: f64,
    /// Smallest. Below zero by rounding only.
    pub min: f64,
}

/// A variant's predictions held against the base's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Quality {
    /// Positions that were scored: the second half of every piece, but for its last token.
    pub positions: usize,
    /// KL divergence from the base.
    pub kl: Divergence,
    /// Share of positions with the same most likely token.
    pub same_top: Estimate,
    /// Perplexity of the base on this text.
    pub base_perplexity: Estimate,
    /// Perplexity of the variant.
    pub perplexity: Estimate,
    /// The variant's ÷ the base's.
    pub perplexity_ratio: Estimate,
    /// Mean change of the probability of the token that follows.
    pub delta_p_mean: Estimate,
    /// Root mean square of that change.
    pub delta_p_rms: Estimate,
}

/// What both models make of one position of a text.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Position {
    kl: f64,
    same_top: bool,
    base_nll: f64,
    nll: f64,
}

impl Position {
    /// The position after which `next` follows, by the logits of both models there, which have equal lengths.
    /// `None` if `next` is none of the vocabulary or a logit is no number.
    pub fn of(base: &[f32], other: &[f32], next: u32) -> Option<Self> {
        let next = usize::try_from(next).ok().filter(|next| *next < base.len() && base.len() == other.len())?;
        let (base_sum, other_sum) = (log_sum_exp(base)?, log_sum_exp(other)?);
        let kl = base.iter().zip(other).map(|(b, o)| {
            let (b, o) = (f64::from(*b) - base_sum, f64::from(*o) - other_sum);
            // A token without probability adds nothing, whatever the other one says.
            if b == f64::NEG_INFINITY { 0.0 } else { b.exp() * (b - o) }
        });
        Some(Self {
            kl: kl.sum(),
            same_top: top(base) == top(other),
            base_nll: base_sum - f64::from(base[next]),
            nll: other_sum - f64::from(other[next]),
        })
    }
}

/// ln Σ exp, of the largest first so that nothing overflows.
fn log_sum_exp(logits: &[f32]) -> Option<f64> {
    let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = logits.iter().map(|logit| f64::from(logit - most).exp()).sum();
    Some(f64::from(most) + sum.ln()).filter(|sum| sum.is_finite())
}

/// The most likely token: the first of equal ones.
pub fn top(logits: &[f32]) -> Option<usize> {
    let better = |best: Option<(usize, f32)>, (at, logit): (usize, &f32)| match best {
        Some((_, most)) if *logit <= most || logit.is_nan() => best,
        _ => Some((at, *logit)),
    };
    logits.iter().enumerate().fold(None, better).map(|(at, _)| at)
}

/// A mean and its standard error.
pub fn mean(values: impl IntoIterator<Item = f64>) -> Option<Estimate> {
    let values: Vec<f64> = values.into_iter().collect();
    let n = values.len() as f64;
    let value = values.iter().sum::<f64>() / n;
    let squares: f64 = values.iter().map(|v| (v - value).powi(2)).sum();
    let error = (values.len() > 1).then(|| (squares / (n - 1.0) / n).sqrt());
    (!values.is_empty()).then_some(Estimate { value, error })
}

/// The figures over all positions; `None` without any.
pub fn quality(positions: &[Position]) -> Option<Quality> {
    let n = positions.len();
    let of = |figure: fn(&Position) -> f64| mean(positions.iter().map(figure));
    let exp = |e: Estimate| Estimate { value: e.value.exp(), error: e.error.map(|error| error * e.value.exp()) };
    let delta = |p: &Position| (-p.nll).exp() - (-p.base_nll).exp();
    let share = positions.iter().filter(|p| p.same_top).count() as f64 / n as f64;
    let square = mean(positions.iter().map(|p| delta(p).powi(2)))?;
    let rms = square.value.sqrt();
    Some(Quality {
        positions: n,
        kl: divergence(positions.iter().map(|p| p.kl).collect())?,
        same_top: Estimate { value: share, error: (n > 1).then(|| (share * (1.0 - share) / (n - 1) as f64).sqrt()) },
        base_perplexity: exp(of(|p| p.base_nll)?),
        perplexity: exp(of(|p| p.nll)?),
        perplexity_ratio: exp(of(|p| p.nll - p.base_nll)?),
        delta_p_mean: mean(positions.iter().map(delta))?,
        // The error of a root: half of the relative error.
        delta_p_rms: Estimate {
            value: rms,
            error: square.error.map(|error| if rms > 0.0 { error / (2.0 * rms) } else { 0.0 }),
        },
    })
}

fn divergence(mut values: Vec<f64>) -> Option<Divergence> {
    values.sort_by(f64::total_cmp);
    let n = values.len();
    // Between the two nearest values, as everywhere in this project's statistics.
    let at = |p: f64| {
        let place = p * (n - 1) as f64;
        let (low, share) = (place.floor() as usize, place.fract());
        values[low] + (values[(low + 1).min(n - 1)] - values[low]) * share
    };
    Some(Divergence {
        mean: mean(values.iter().copied())?,
        max: at(1.0),
        p99_9: (n >= P99_9_FROM).then(|| at(0.999)),
        p99: (n >= P99_FROM).then(|| at(0.99)),
        p95: at(0.95),
        p90: at(0.9),
        median: at(0.5),
        p10: at(0.1),
        min: at(0.0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-6
    }

    #[test]
    fn a_position_by_hand() {
        // p = (1/2, 1/4, 1/4), q = (1/4, 1/2, 1/4): Σ p·ln(p/q) = ½·ln 2 − ¼·ln 2 = ¼·ln 2.
        let ln = f32::ln;
        let p = [ln(0.5) + 7.0, ln(0.25) + 7.0, ln(0.25) + 7.0];
        let q = [ln(0.25) - 3.0, ln(0.5) - 3.0, ln(0.25) - 3.0];
        let position = Position::of(&p, &q, 1).unwrap();
        assert!(close(position.kl, 0.25 * 2f64.ln()), "{position:?}");
        assert!(close(position.base_nll, 4f64.ln()) && close(position.nll, 2f64.ln()) && !position.same_top);
        let same = Position::of(&p, &p, 0).unwrap();
        assert!(close(same.kl, 0.0) && same.same_top);
        // A token without probability; one that there is not; no numbers.
        let never = [0.0, f32::NEG_INFINITY];
        assert!(close(Position::of(&never, &[0.0, 0.0], 0).unwrap().kl, 2f64.ln()));
        assert_eq!(Position::of(&p, &q, 3), None);
        assert_eq!(Position::of(&p, &[f32::NAN; 3], 0), None);
    }

    #[test]
    fn figures_over_positions_by_hand() {
        let at = |kl: f64, same_top: bool, p: f64, q: f64| Position { kl, same_top, base_nll: -p.ln(), nll: -q.ln() };
        let all =
            [at(0.1, true, 0.5, 0.25), at(0.3, false, 0.5, 0.5), at(0.2, true, 0.5, 0.5), at(0.4, true, 0.5, 0.5)];
        let found = quality(&all).unwrap();
        assert_eq!(found.positions, 4);
        assert!(close(found.kl.mean.value, 0.25) && close(found.kl.median, 0.25) && close(found.kl.max, 0.4));
        // Deviations ±0.05, ±0.15: Σ² = 0.05, so √(0.05/3/4).
        assert!(close(found.kl.mean.error.unwrap(), (0.05f64 / 12.0).sqrt()), "{found:?}");
        assert_eq!((found.kl.p99, found.kl.p99_9), (None, None), "four positions have no such percentiles");
        assert!(close(found.same_top.value, 0.75) && close(found.same_top.error.unwrap(), 0.25));
        assert!(close(found.base_perplexity.value, 2.0) && close(found.base_perplexity.error.unwrap(), 0.0));
        // ln ratios ln 2, 0, 0, 0: mean ¼·ln 2, error √(¾·ln²2 / 3 / 4) = ¼·ln 2.
        let (ratio, quarter) = (found.perplexity_ratio, 0.25 * 2f64.ln());
        assert!(close(ratio.value, quarter.exp()) && close(ratio.error.unwrap(), quarter * quarter.exp()), "{ratio:?}");
        assert!(close(found.perplexity.value, 2.0 * ratio.value));
        // Δp −¼, 0, 0, 0.
        assert!(close(found.delta_p_mean.value, -0.0625) && close(found.delta_p_rms.value, 0.125));
        assert_eq!(quality(&[]), None);
        let one = quality(&all[..1]).unwrap();
        assert_eq!((one.kl.mean.error, one.same_top.error), (None, None), "one position has no error");
    }

    #[test]
    fn percentiles_lie_between_values() {
        let found = divergence((0..=1_000).map(f64::from).collect()).unwrap();
        assert_eq!((found.p99_9, found.p99, found.p95, found.p10), (Some(999.0), Some(990.0), 950.0, 100.0));
    }

    #[test]
    fn the_first_of_equal_tokens_is_on_top() {
        assert_eq!((top(&[1.0, 3.0, 3.0, 2.0]), top(&[f32::NAN, 1.0]), top(&[])), (Some(1), Some(1), None));
    }
}
