//! What a module does in a step: FLOPs and bytes, from its weights and the rows it computes.
//!
//! The formulas are those of [`candlescope_work::operation`], which the wrapped models have too.

use super::{Attention, AttentionScope, Module, Operation, Rows, Weight};
use crate::annotation::Annotation;
use crate::vocabulary::{DType, Phase};
use candlescope_work::operation::{Cost, bias, convolution, linear, lookup, norm, product_flops};
use candlescope_work::windows::{attended, multiplied, needed};

/// What a step passes through the model, as its phase says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StepWork {
    /// Tokens of all sequences together.
    pub(crate) tokens: u64,
    /// Those of them that are new. Where a model keeps nothing of the text, all of it passes again for each token:
    /// that is executed, and not needed.
    pub(crate) needed: u64,
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
    pub(crate) fn of(annotation: &Annotation, phase: Option<Phase>) -> Option<Self> {
        let tokens = annotation.get_tokens()?.into();
        let sequences = annotation.get_batch().unwrap_or(1).max(1).into();
        let context = annotation.get_context_len().map(u64::from);
        let decodes = phase == Some(Phase::Decode);
        let passed_again = if decodes { new_in_decode(annotation, tokens, sequences, context) } else { None };
        let needed = passed_again.unwrap_or(tokens);
        Some(Self { tokens, needed, sequences, context, source: None, begins: !decodes })
    }
}

/// New tokens of all sequences of a decoding step, those that have ended included: what is computed for them is no
/// token passed again. `None` where all are new, or it is not known.
///
/// Only in decoding: in other phases, fewer new tokens than tokens are padding, which the formulas here do not tell
/// from tokens, nor do those of the wrapped models.
fn new_in_decode(annotation: &Annotation, tokens: u64, sequences: u64, context: Option<u64>) -> Option<u64> {
    let each = match annotation.get_new_tokens().map(u64::from) {
        Some(new) => {
            let going_on = annotation.get_sequences().map_or(sequences, u64::from);
            new.checked_div(going_on).filter(|each| each * going_on == new && *each > 0)?
        }
        // A decoding step has one new token for each sequence, and this one passes the whole text.
        None => (context?.checked_mul(sequences) == Some(tokens)).then_some(1)?,
    };
    each.checked_mul(sequences).filter(|needed| *needed < tokens)
}

impl Module {
    /// What an interval of the module does. Element type and dimensions of the weight are known in any case; work is
    /// left out where the rows are not.
    pub(crate) fn annotation(&self, step: Option<StepWork>) -> Annotation {
        let Some(matrix) = self.weights.first() else { return Annotation::new() };
        let said = Annotation::new().dtype(matrix.dtype).shape(&matrix.dims);
        let work = step.and_then(|step| self.work(matrix, self.rows(step)?));
        work.map_or(said, |work| {
            let mut said = said;
            said.merge(&work);
            said
        })
    }

    /// Whether it multiplies by its weights, so that a step without its work is told too small.
    pub(crate) fn has_work(&self) -> bool {
        self.operation.multiplies() && !self.weights.is_empty()
    }

    /// Rows that it computes in a step, and those of them that are needed.
    fn rows(&self, step: StepWork) -> Option<(u64, u64)> {
        match self.rows {
            Rows::EachToken(n) => Some((step.tokens.checked_mul(n.into())?, step.needed.checked_mul(n.into())?)),
            Rows::EachSequence => Some((step.sequences, step.sequences)),
            // What is made anew though it could have been kept is executed, and not needed.
            Rows::EachSourcePosition => step.source.map(|rows| (rows, if step.begins { rows } else { 0 })),
            Rows::Unknown => None,
        }
    }

    fn work(&self, matrix: &Weight, (rows, needed): (u64, u64)) -> Option<Annotation> {
        let width = activation_width(matrix)?;
        let weights = self.weights.iter().fold(0u64, |sum, weight| sum.saturating_add(weight.bytes));
        let of = |rows: u64| {
            Some(match (self.operation, &*matrix.dims) {
                (Operation::Linear, &[out, features]) => {
                    let added = if self.weights.len() > 1 { bias(rows as f64 * out as f64, width) } else { Cost::ZERO };
                    linear(rows, features, out, weights, width) + added
                }
                (Operation::Norm, &[features]) => norm(rows as f64 * features as f64, weights, width),
                (Operation::Embedding, &[words, features]) => {
                    lookup(rows, features, matrix.bytes / (words as u64).max(1), width)
                }
                // Along one dimension.
                (Operation::Convolution, &[out, features, window]) => {
                    convolution(0, rows as f64 * out as f64, features as f64 * window as f64, weights, width)
                }
                _ => return None,
            })
        };
        // What need not be computed need not be read.
        let needed = if needed == 0 && rows > 0 { Cost::ZERO } else { of(needed)? };
        let mut cost = of(rows)?.needing(needed);
        if self.operation == Operation::Convolution {
            // What it moves besides its weights depends on its stride.
            cost.activation_bytes = 0.0;
        }
        Some(Annotation::from(cost).bytes(cost.bytes() as u64))
    }
}

impl Attention {
    /// The work of an attention without weights: both products over the positions attended to, and keys and values kept,
    /// read and written. What its activations move depends on how it is done, and is not said.
    ///
    /// Needed are 4·q FLOPs for each position attended to: Σ(min(c, W)) of each sequence, c from C − T + 1 to C, with T
    /// new tokens, C after the step and a window of W; T·C − T(T−1)/2 without one. Without a mask, as many as executed.
    /// Executed are 4·q·T·C, or what candle keeps in place of C. Of the keys and values, those that any of the new tokens
    /// attends to have to be read, min(C, W + T − 1), and the new ones written; an encoder keeps none. Over a source of
    /// S positions FLOPs are 4·q·T·S, and the keys and values of the source are read by whoever has the queries and
    /// written by whoever makes them.
    pub(crate) fn annotation(&self, step: StepWork, width: u64) -> Option<Annotation> {
        let each = step.tokens / step.sequences;
        let of_all = |positions: f64| (2.0 * product_flops(self.queries, positions * step.sequences as f64)) as u64;
        match self.over {
            AttentionScope::Source => self.over_source(step, width),
            AttentionScope::All => {
                // What is encoded passes as a whole, and is attended to as a whole.
                let flops = of_all(each as f64 * step.context.unwrap_or(each) as f64);
                Some(Annotation::new().flops(flops).flops_executed(flops))
            }
            AttentionScope::Before => {
                let new = step.needed / step.sequences;
                let context = step.context.filter(|context| new <= *context)?;
                let read = step.sequences as f64 * needed(new, context, self.window) as f64;
                let moved = 2.0 * self.keys as f64 * width as f64 * (read + step.needed as f64);
                let flops = of_all(attended(new, context, self.window));
                let executed = of_all(each as f64 * multiplied(each, context, self.window) as f64);
                Some(Annotation::new().flops(flops).flops_executed(executed).bytes(moved as u64))
            }
            AttentionScope::Unknown => None,
        }
    }

    fn over_source(&self, step: StepWork, width: u64) -> Option<Annotation> {
        let source = step.source?;
        // Each sequence's tokens attend to the positions of its own source.
        let each = (source / step.sequences) as f64;
        let [needed, executed] =
            [step.needed, step.tokens].map(|tokens| (2.0 * product_flops(self.queries, tokens as f64 * each)) as u64);
        // Neither of the models read here shares keys between heads: there are as many features as of queries.
        let written = if step.begins { self.keys } else { 0 };
        let features = self.queries.checked_add(written)?;
        let moved = source.checked_mul(2)?.checked_mul(features)?.checked_mul(width)?;
        Some(Annotation::new().flops(needed).flops_executed(executed).bytes(moved))
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
    use candlescope_work::windows::Window;

    fn weight(dims: &[usize]) -> Weight {
        let bytes = dims.iter().product::<usize>() as u64 * 2;
        Weight { name: "m.weight".into(), dims: dims.into(), dtype: DType::BF16, bytes }
    }

    fn module(operation: Operation, rows: Rows, weights: &[&[usize]]) -> Module {
        let weights = weights.iter().map(|dims| weight(dims)).collect();
        Module { name: "m".into(), operation, weights, rows, attention: None }
    }

    const STEP: StepWork =
        StepWork { tokens: 6, needed: 6, sequences: 2, context: Some(10), source: Some(14), begins: true };

    fn attention(over: AttentionScope, queries: u64, keys: u64, window: Option<Window>) -> Attention {
        Attention { queries, keys, over, window }
    }

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
    fn what_could_have_been_kept_is_executed_and_not_needed() {
        let keys = module(Operation::Linear, Rows::EachSourcePosition, &[&[8, 4]]);
        let first = keys.annotation(Some(STEP));
        assert_eq!((first.get_flops(), first.get_bytes()), (Some(2 * 14 * 8 * 4), Some(2 * 8 * 4)));
        let later = keys.annotation(Some(StepWork { begins: false, ..STEP }));
        assert_eq!((later.get_flops(), later.get_bytes()), (Some(0), Some(0)));
        assert_eq!((later.get_flops_executed(), later.get_io_bytes()), (first.get_flops(), first.get_io_bytes()));
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
        let causal = attention(AttentionScope::Before, 4, 2, None);
        let said = causal.annotation(STEP, 2).unwrap();
        assert_eq!(said.get_flops(), Some(4 * 4 * 2 * 27));
        assert_eq!(said.get_flops_executed(), Some(4 * 4 * 2 * 30));
        assert_eq!(said.get_bytes(), Some(2 * 2 * 2 * (2 * 10 + 6)));
        assert_eq!(causal.annotation(StepWork { context: None, ..STEP }, 2), None);
    }

    #[test]
    fn an_encoder_keeps_no_keys() {
        let both = attention(AttentionScope::All, 4, 2, None);
        let said = both.annotation(STEP, 2).unwrap();
        assert_eq!((said.get_flops(), said.get_flops_executed()), (Some(4 * 4 * 2 * 30), Some(4 * 4 * 2 * 30)));
        assert_eq!(said.get_bytes(), None, "they live within the layer");
        let untold = both.annotation(StepWork { context: None, ..STEP }, 2).unwrap();
        assert_eq!(untold.get_flops(), Some(4 * 4 * 2 * 3 * 3), "three tokens attend to each other");
    }

    #[test]
    fn a_window_ends_what_is_attended_to_and_read() {
        let within = |positions, kept| attention(AttentionScope::Before, 4, 2, Some(Window { positions, kept }));
        let all = |said: Annotation| (said.get_flops(), said.get_flops_executed(), said.get_bytes());
        // Tokens 8, 9 and 10 see four positions each: 5 to 10 have to be read.
        let masked = within(4, false).annotation(STEP, 2).unwrap();
        assert_eq!(all(masked), (Some(4 * 4 * 2 * 12), Some(4 * 4 * 2 * 30), Some(2 * 2 * 2 * (2 * 6 + 6))));
        let kept = within(4, true).annotation(STEP, 2).unwrap();
        assert_eq!(kept.get_flops_executed(), Some(4 * 4 * 2 * 3 * 4));
        let prompt = StepWork { context: Some(3), ..STEP };
        let longer_than_the_window = within(2, true).annotation(prompt, 2).unwrap();
        assert_eq!(longer_than_the_window.get_flops_executed(), Some(4 * 4 * 2 * 3 * 3));
        assert_eq!(
            within(10, true).annotation(STEP, 2),
            attention(AttentionScope::Before, 4, 2, None).annotation(STEP, 2)
        );
        assert_eq!(attention(AttentionScope::Unknown, 4, 2, None).annotation(STEP, 2), None);
    }

    #[test]
    fn a_text_that_passes_again_is_executed_and_needed_once() {
        let told = Annotation::new().tokens(20).context_len(10).batch(2);
        let step = |annotation: Annotation, phase| StepWork::of(&annotation, Some(phase)).unwrap();
        // One of two sequences goes on, and both pass.
        let again = step(told.new_tokens(1).sequences(1), Phase::Decode);
        assert_eq!((again.tokens, again.needed), (20, 2));
        assert_eq!(step(told, Phase::Decode).needed, 2, "the whole text, for a token each");
        assert_eq!(step(told, Phase::Prefill).needed, 20);
        assert_eq!(step(told.new_tokens(15), Phase::Prefill).needed, 20, "padding");
        assert_eq!(step(told.new_tokens(3).sequences(2), Phase::Decode).needed, 20, "not known");
        let one = Annotation::new().tokens(4).context_len(10).batch(4);
        assert_eq!(step(one.new_tokens(1).sequences(1), Phase::Decode).needed, 4, "three sequences have ended");
        assert_eq!(step(one.tokens(8), Phase::Decode).needed, 8, "two tokens at once");

        let linear = module(Operation::Linear, Rows::EachToken(1), &[&[8, 4]]).annotation(Some(again));
        assert_eq!((linear.get_flops(), linear.get_flops_executed()), (Some(2 * 2 * 32), Some(2 * 20 * 32)));
        let table = module(Operation::Embedding, Rows::EachToken(1), &[&[100, 4]]).annotation(Some(again));
        assert_eq!((table.get_bytes(), table.get_io_bytes()), (Some(2 * 8), Some(20 * (8 + 4 + 8))));
        let causal = attention(AttentionScope::Before, 4, 2, None).annotation(again, 2).unwrap();
        assert_eq!((causal.get_flops(), causal.get_flops_executed()), (Some(4 * 4 * 20), Some(4 * 4 * 2 * 100)));
        assert_eq!(causal.get_bytes(), Some(2 * 2 * 2 * (2 * 10 + 2)));
        let source = attention(AttentionScope::Source, 8, 0, None);
        let source = source.annotation(StepWork { source: Some(14), ..again }, 2).unwrap();
        assert_eq!((source.get_flops(), source.get_flops_executed()), (Some(4 * 8 * 2 * 7), Some(4 * 8 * 20 * 7)));
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
        // Seven positions of the source for each of the three tokens of two sequences.
        let queries = attention(AttentionScope::Source, 8, 0, None);
        let said = queries.annotation(STEP, 2).unwrap();
        assert_eq!((said.get_flops(), said.get_bytes()), (Some(4 * 8 * 6 * 7), Some(2 * 14 * 8 * 2)));
        assert_eq!(queries.annotation(unknown, 2), None);
    }

    #[test]
    fn a_convolution_along_one_dimension() {
        let conv = module(Operation::Convolution, Rows::EachToken(2), &[&[8, 4, 3], &[8]]).annotation(Some(STEP));
        assert_eq!((conv.get_flops(), conv.get_io_bytes()), (Some(2 * 12 * 8 * 4 * 3), None));
    }
}
