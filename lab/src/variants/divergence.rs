//! Where a variant begins to differ: the first token that it would write otherwise, and the error after each block.

use super::quality::{Estimate, mean, top};
use candlescope_figures::stats::percentile_of;
use serde::{Deserialize, Serialize};

/// Relative error from which a layer counts as diverged.
pub const DIVERGED: f64 = 0.01;

/// The first token that differs from the base's greedy continuation, over several prompts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FirstToken {
    /// Tokens of each continuation: a prompt whose continuation is the same to its end counts with this many.
    pub tokens: usize,
    /// The number of the first different token of each prompt, from 1; `None` where all are the same.
    pub first: Vec<Option<usize>>,
    /// Share of prompts whose continuations differ.
    pub differ: Estimate,
    /// Median over prompts of the tokens that are the same.
    pub same_median: f64,
    /// Mean over prompts of the tokens that are the same, with its standard error.
    pub same_mean: Estimate,
}

/// The number of the first token, from 1, at which greedy generation would leave `continuation`, by a variant's logits
/// over prompt and continuation (one row a position, the first for the token after the prompt). Up to that token both
/// have read the same text, so a single pass finds what generating would find.
pub fn first_different<'a>(rows: impl Iterator<Item = &'a [f32]>, continuation: &[u32]) -> Option<usize> {
    let differs = |(row, token): (&[f32], &u32)| top(row) != usize::try_from(*token).ok();
    rows.zip(continuation).position(differs).map(|at| at + 1)
}

/// The figures over prompts; `None` without any.
pub fn first_token(first: Vec<Option<usize>>, tokens: usize) -> Option<FirstToken> {
    let same: Vec<f64> = first.iter().map(|first| first.map_or(tokens, |at| at - 1) as f64).collect();
    let n = first.len();
    let share = first.iter().flatten().count() as f64 / n as f64;
    let error = (n > 1).then(|| (share * (1.0 - share) / (n - 1) as f64).sqrt());
    Some(FirstToken {
        tokens,
        differ: Estimate { value: share, error },
        same_median: percentile_of(&same, 0.5)?,
        same_mean: mean(same)?,
        first,
    })
}

/// The error after one block.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LayerError {
    /// Number of the block.
    pub layer: usize,
    /// ‖variant − base‖ ÷ ‖base‖ of the block's output, over all positions of a piece of text: mean over pieces.
    pub relative: Estimate,
}

/// ‖a − b‖ ÷ ‖b‖; `None` if they differ in length or `b` is zero.
pub fn relative_error(a: &[f32], b: &[f32]) -> Option<f64> {
    if a.len() != b.len() {
        return None;
    }
    let square = |x: f64| x * x;
    let difference: f64 = a.iter().zip(b).map(|(a, b)| square(f64::from(*a) - f64::from(*b))).sum();
    let size: f64 = b.iter().map(|b| square(f64::from(*b))).sum();
    Some((difference / size).sqrt()).filter(|error| error.is_finite())
}

/// The errors of each layer from those of each piece of text: `pieces[piece][layer]`.
pub fn layer_errors(pieces: &[Vec<f64>]) -> Vec<LayerError> {
    let layers = pieces.iter().map(Vec::len).min().unwrap_or(0);
    let error =
        |layer: usize| mean(pieces.iter().map(|piece| piece[layer])).map(|relative| LayerError { layer, relative });
    (0..layers).filter_map(error).collect()
}

/// The first layer whose error is above [`DIVERGED`].
pub fn diverges_at(layers: &[LayerError]) -> Option<usize> {
    layers.iter().find(|layer| layer.relative.value > DIVERGED).map(|layer| layer.layer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_different_token_by_hand() {
        let rows: [&[f32]; 3] = [&[0.0, 1.0, 0.0], &[3.0, 1.0, 2.0], &[0.0, 0.0, 9.0]];
        assert_eq!(first_different(rows.into_iter(), &[1, 0, 2]), None);
        assert_eq!(first_different(rows.into_iter(), &[1, 2, 2]), Some(2));
        let found = first_token(vec![Some(1), None, Some(3), None], 4).unwrap();
        // 0, 4, 2 and 4 tokens are the same.
        assert_eq!((found.differ.value, found.same_median, found.same_mean.value), (0.5, 3.0, 2.5));
        assert_eq!(first_token(Vec::new(), 4), None);
    }

    #[test]
    fn errors_by_hand() {
        assert_eq!(relative_error(&[3.0, 4.0], &[3.0, 4.0]), Some(0.0));
        assert_eq!(relative_error(&[3.0, 0.0], &[3.0, 4.0]), Some(0.8));
        assert_eq!((relative_error(&[1.0], &[0.0]), relative_error(&[1.0], &[])), (None, None));
        let layers = layer_errors(&[vec![0.001, 0.02, 0.5], vec![0.003, 0.02, 0.7]]);
        assert_eq!(layers.len(), 3);
        assert!((layers[0].relative.value - 0.002).abs() < 1e-12);
        assert!((layers[0].relative.error.unwrap() - 0.001).abs() < 1e-12, "half the difference of two");
        assert_eq!(diverges_at(&layers), Some(1));
        assert_eq!(diverges_at(&layers[..1]), None);
    }
}
