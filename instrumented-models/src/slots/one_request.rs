//! Slots as a model that continues one text, or a batch of equal length.

use super::SlotDecoder;
use crate::causal_lm::CausalLm;
use candle_core::{Device, Result, Tensor, bail};

/// One request at a time in the first slots.
pub(crate) struct OneRequest {
    /// `None` once they are taken.
    slots: Option<SlotDecoder>,
    context: usize,
    vocabulary: usize,
    device: Device,
}

impl OneRequest {
    pub(crate) fn new(slots: SlotDecoder) -> Self {
        let (context, vocabulary, device) = (slots.context(), slots.vocabulary(), slots.device().clone());
        Self { slots: Some(slots), context, vocabulary, device }
    }

    /// The slots, without which it can do nothing.
    pub(crate) const fn take(&mut self) -> Option<SlotDecoder> {
        self.slots.take()
    }
}

impl CausalLm for OneRequest {
    fn forward(&mut self, tokens: &Tensor, position: usize) -> Result<Tensor> {
        let Some(slots) = &mut self.slots else { bail!("this model's slots were taken") };
        let (batch, count) = tokens.dims2()?;
        let goes_on = count == 1 && position > 0 && batch <= slots.slots();
        if goes_on && (0..batch).all(|slot| slots.held(slot) == position) {
            return slots.step(tokens, &(0..batch).collect::<Vec<_>>());
        }
        slots.prefill(0, tokens, position)
    }

    fn reset(&mut self) {
        if let Some(slots) = &mut self.slots {
            (0..slots.slots()).for_each(|slot| slots.truncate(slot, 0));
        }
    }

    fn max_context(&self) -> usize {
        self.context
    }

    fn vocab_size(&self) -> usize {
        self.vocabulary
    }

    fn device(&self) -> &Device {
        &self.device
    }
}
