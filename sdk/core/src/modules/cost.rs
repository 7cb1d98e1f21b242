//! What a module does in a step: FLOPs and bytes, from its weights and the rows it computes.
//!
//! The formulas are those of the wrapped models (`candlescope_models::cost`): matrix products count 2·M·N·K, norms and
//! look-ups no FLOPs; bytes are weights read and keys and values moved, I/O bytes have the activations besides.

use super::{Attention, Module, Operation, Over, Rows, Weight};
use crate::annotation::Annotation;
use crate::vocabulary::DType;

/// What a step passes through the model, as its phase says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StepWork {
    /// Tokens of all sequences together.
    pub(crate) tokens: u64,
    pub(crate) sequences: u64,
    /// Tokens that each sequence has after the step.
    pub(crate) context: Option<u64>,
    /// Positions of the source, of all sequences together.
    pub(crate) source: Option<u64>,
    /// Whether keys and values of the source are needed for the first time: later they could have been kept.
    pub(crate) begins: bool,
}

impl StepWork {
    /// `None` where the annotation does not tell.
    pub(crate) fn of(annotation: &Annotation) -> Option<Self> {
        let tokens = annotation.get_tokens()?.into();
        let sequences = annotation.get_batch().unwrap_or(1).max(1).into();
        let context = annotation.get_context_len().map(u64::from);
        Some(Self { tokens, sequences, context, source: None, begins: false })
    }
}

impl Module {
    /// What an interval of the module does. Element type and dimensions of the weight are known in any case; work is
    /// left out where the rows are not.
    pub(crate) fn annotation(&self, step: Option<StepWork>) -> Annotation {
        let Some(matrix) = self.weights.first() else { return Annotation::new() };
        let said = Annotation::new().dtype(matrix.dtype).shape(&matrix.dims);
        let Some(rows) = step.and_then(|step| self.rows(step)) else { return said };
        let recomputed = self.rows == Rows::EachSourcePosition && step.is_some_and(|step| !step.begins);
        self.work(matrix, rows).map_or(said, |work| {
            let mut said = said;
            said.merge(&work);
            // What is made anew though it could have been kept is executed, and not needed.
            if recomputed { said.flops(0) } else { said }
        })
    }

    /// Whether it multiplies by its weights, so that a step without its work is told too small.
    pub(crate) fn has_work(&self) -> bool {
        matches!(self.operation, Operation::Linear | Operation::Convolution) && !self.weights.is_empty()
    }

    /// Whether the rows that it computes in a step are known.
    pub(crate) fn knows_rows(&self, step: StepWork) -> bool {
        let is_conv1d =
            self.operation == Operation::Convolution && self.weights.first().is_some_and(|w| w.dims.len() == 3);
        self.rows(step).is_some() && (self.operation == Operation::Linear || is_conv1d)
    }

    fn rows(&self, step: StepWork) -> Option<u64> {
        match self.rows {
            Rows::EachToken(n) => step.tokens.checked_mul(n.into()),
            Rows::EachSequence => Some(step.sequences),
            Rows::EachSourcePosition => step.source,
            Rows::Unknown => None,
        }
    }

    fn work(&self, matrix: &Weight, rows: u64) -> Option<Annotation> {
        let width = activation_width(matrix)?;
        let weights = self.weights.iter().fold(0u64, |sum, weight| sum.saturating_add(weight.bytes));
        let all = |factors: &[u64]| factors.iter().fold(1u64, |product, n| product.saturating_mul(*n));
        let (flops, bytes, activations) = match (self.operation, &*matrix.dims) {
            (Operation::Linear, &[out, features]) => {
                let (out, features) = (out as u64, features as u64);
                // A bias is added by an operation of its own, which reads and writes what the product made.
                let bias = if self.weights.len() > 1 { out.saturating_mul(2) } else { 0 };
                let activations = all(&[rows, features.saturating_add(out).saturating_add(bias), width]);
                (Some(all(&[2, rows, features, out])), weights, activations)
            }
            (Operation::Norm, &[features]) => (None, weights, all(&[rows, features as u64, 2, width])),
            (Operation::Embedding, &[words, features]) => {
                let row = matrix.bytes / (words as u64).max(1);
                (None, all(&[rows, row]), all(&[rows, (features as u64).saturating_mul(width).saturating_add(4)]))
            }
            // Along one dimension; what it moves besides its weights depends on its stride.
            (Operation::Convolution, &[out, features, window]) => {
                let flops = all(&[2, rows, features as u64, out as u64, window as u64]);
                return Some(Annotation::new().bytes(weights).flops(flops).flops_executed(flops));
            }
            _ => return None,
        };
        let work = Annotation::new().bytes(bytes).io_bytes(bytes.saturating_add(activations));
        Some(match flops {
            Some(flops) => work.flops(flops).flops_executed(flops),
            None => work,
        })
    }
}

impl Attention {
    /// The work of an attention without weights: both products over the positions attended to, keys and values read and
    /// written. What its activations move depends on how it is done, and is not said.
    ///
    /// Needed are 4·q·(T·C − T(T−1)/2) FLOPs for each sequence with T new tokens and C after the step, executed 4·q·T·C;
    /// without a mask both are the latter. Over a source of S positions both are 4·q·T·S, and the keys and values of the
    /// source are read by whoever has the queries and written by whoever makes them.
    pub(crate) fn annotation(&self, step: StepWork, width: u64) -> Option<Annotation> {
        if self.over == Over::Source {
            return self.over_source(step, width);
        }
        let context = step.context?;
        let each = step.tokens / step.sequences;
        let pairs = step.tokens.checked_mul(context)?;
        let masked =
            if self.over == Over::Before { step.sequences.checked_mul(each * each.saturating_sub(1) / 2)? } else { 0 };
        let factor = self.queries.checked_mul(4)?;
        let executed = factor.checked_mul(pairs)?;
        let needed = factor.checked_mul(pairs.checked_sub(masked)?)?;
        // All are read; the new ones were written.
        let positions = step.sequences.checked_mul(context)?.checked_add(step.tokens)?;
        let moved = positions.checked_mul(2)?.checked_mul(self.keys)?.checked_mul(width)?;
        Some(Annotation::new().flops(needed).flops_executed(executed).bytes(moved))
    }

    fn over_source(&self, step: StepWork, width: u64) -> Option<Annotation> {
        let source = step.source?;
        // Each sequence's tokens attend to the positions of its own source.
        let pairs = step.tokens.checked_mul(source / step.sequences)?;
        let flops = self.queries.checked_mul(4)?.checked_mul(pairs)?;
        // Neither of the models read here shares keys between heads: there are as many features as of queries.
        let written = if step.begins { self.keys } else { 0 };
        let features = self.queries.checked_add(written)?;
        let moved = source.checked_mul(2)?.checked_mul(features)?.checked_mul(width)?;
        Some(Annotation::new().flops(flops).flops_executed(flops).bytes(moved))
    }
}

/// Bytes of an element of the activations: that of the weights, or of an `f32` where these are quantised.
pub(crate) fn activation_width(weight: &Weight) -> Option<u64> {
    if weight.dtype.is_quantised() {
        return Some(4);
    }
    weight.bytes.checked_div(weight.elements()).filter(|width| *width > 0 && weight.dtype != DType::Other)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn weight(dims: &[usize]) -> Weight {
        let bytes = dims.iter().product::<usize>() as u64 * 2;
        Weight { name: "m.weight".into(), dims: dims.into(), dtype: DType::BF16, bytes }
    }

    fn module(operation: Operation, rows: Rows, weights: &[&[usize]]) -> Module {
        let weights = weights.iter().map(|dims| weight(dims)).collect();
        Module { name: "m".into(), operation, weights, rows, attention: None }
    }

    const STEP: StepWork = StepWork { tokens: 6, sequences: 2, context: Some(10), source: Some(14), begins: true };

    #[test]
    fn products_norms_and_look_ups() {
        let linear = module(Operation::Linear, Rows::EachToken(1), &[&[8, 4], &[8]]).annotation(Some(STEP));
        assert_eq!(linear.get_flops(), Some(2 * 6 * 8 * 4));
        assert_eq!(linear.get_bytes(), Some(2 * (8 * 4 + 8)));
        assert_eq!(linear.get_io_bytes(), Some(2 * (8 * 4 + 8) + 6 * (4 + 8 + 16) * 2));
        assert_eq!(linear.get_shape().unwrap().dims(), [8, 4]);
        let head = module(Operation::Linear, Rows::EachSequence, &[&[8, 4]]).annotation(Some(STEP));
        assert_eq!(head.get_flops(), Some(2 * 2 * 8 * 4));
        let norm = module(Operation::Norm, Rows::EachToken(1), &[&[4]]).annotation(Some(STEP));
        assert_eq!((norm.get_flops(), norm.get_io_bytes()), (None, Some(2 * 4 + 6 * 4 * 2 * 2)));
        let table = module(Operation::Embedding, Rows::EachToken(1), &[&[100, 4]]).annotation(Some(STEP));
        assert_eq!((table.get_bytes(), table.get_io_bytes()), (Some(6 * 8), Some(6 * (8 + 4 + 8))));
    }

    #[test]
    fn what_is_not_known_is_not_said() {
        let linear = module(Operation::Linear, Rows::Unknown, &[&[8, 4]]);
        let said = linear.annotation(Some(STEP));
        assert_eq!((said.get_flops(), said.get_bytes(), said.get_dtype()), (None, None, Some(DType::BF16)));
        assert_eq!(module(Operation::Linear, Rows::EachToken(1), &[&[8, 4]]).annotation(None).get_flops(), None);
        let image = module(Operation::Convolution, Rows::EachToken(1), &[&[8, 4, 3, 3]]);
        assert_eq!(image.annotation(Some(STEP)).get_flops(), None);
        assert!(module(Operation::Group, Rows::Unknown, &[]).annotation(Some(STEP)).is_empty());
    }

    #[test]
    fn attention_needs_less_than_is_executed() {
        // Two sequences of three new tokens, ten each after the step: 3·10 − 3 of 30 pairs.
        let attention = Attention { queries: 4, keys: 2, over: Over::Before }.annotation(STEP, 2).unwrap();
        assert_eq!(attention.get_flops(), Some(4 * 4 * 2 * 27));
        assert_eq!(attention.get_flops_executed(), Some(4 * 4 * 2 * 30));
        assert_eq!(attention.get_bytes(), Some(2 * 2 * 2 * (2 * 10 + 6)));
        let both = Attention { queries: 4, keys: 2, over: Over::All }.annotation(STEP, 2).unwrap();
        assert_eq!(both.get_flops(), both.get_flops_executed());
        assert_eq!(
            Attention { queries: 4, keys: 2, over: Over::Before }.annotation(StepWork { context: None, ..STEP }, 2),
            None
        );
    }

    #[test]
    fn keys_of_the_source_are_needed_once_and_read_at_each_step() {
        let keys = module(Operation::Linear, Rows::EachSourcePosition, &[&[8, 4]]);
        let first = keys.annotation(Some(STEP));
        assert_eq!((first.get_flops(), first.get_flops_executed()), (Some(2 * 14 * 8 * 4), Some(2 * 14 * 8 * 4)));
        let later = StepWork { begins: false, ..STEP };
        let again = keys.annotation(Some(later));
        assert_eq!((again.get_flops(), again.get_flops_executed()), (Some(0), Some(2 * 14 * 8 * 4)));
        let unknown = StepWork { source: None, ..STEP };
        assert_eq!(keys.annotation(Some(unknown)).get_flops(), None);
        assert!(keys.knows_rows(STEP) && !keys.knows_rows(unknown));
        // Seven positions of the source for each of the three tokens of two sequences.
        let queries = Attention { queries: 8, keys: 0, over: Over::Source };
        let attention = queries.annotation(STEP, 2).unwrap();
        assert_eq!((attention.get_flops(), attention.get_bytes()), (Some(4 * 8 * 6 * 7), Some(2 * 14 * 8 * 2)));
        assert_eq!(queries.annotation(unknown, 2), None);
    }

    #[test]
    fn a_convolution_along_one_dimension() {
        let conv = module(Operation::Convolution, Rows::EachToken(2), &[&[8, 4, 3], &[8]]).annotation(Some(STEP));
        assert_eq!((conv.get_flops(), conv.get_io_bytes()), (Some(2 * 12 * 8 * 4 * 3), None));
    }
}
