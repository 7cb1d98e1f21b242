//! Slots as a model that continues one text, or a batch of equal length.

use super::SlotDecoder;
use crate::causal_lm::CausalLm;
use crate::sampling::{Sampler, all_chosen, pass};
use candle_core::{Device, Result, Tensor, bail};

impl SlotDecoder {
    /// Whether the first `batch` slots go on from `position`.
    fn go_on(&self, position: usize, batch: usize) -> bool {
        position > 0 && batch <= self.slots() && (0..batch).all(|slot| self.held(slot) == position)
    }
}

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
        if count == 1 && slots.go_on(position, batch) {
            return slots.step(tokens, &(0..batch).collect::<Vec<_>>());
        }
        slots.prefill(0, tokens, position)
    }

    fn advance(&mut self, texts: &[Vec<u32>], position: usize, sampler: &Sampler) -> Result<Vec<u32>> {
        let one = |text: &Vec<u32>| text.get(position..).and_then(|new| <[u32; 1]>::try_from(new).ok());
        let last: Option<Vec<[u32; 1]>> = texts.iter().map(one).collect();
        if let (Some(slots), Some(last), Some(rules)) = (&mut self.slots, last, sampler.rules())
            && rules.len() == texts.len()
            && slots.go_on(position, texts.len())
        {
            let next = last.iter().zip(rules).enumerate().map(|(slot, ([token], rule))| (slot, *token, *rule));
            return all_chosen(slots.advance(&next.collect::<Vec<_>>())?.0);
        }
        let device = self.device.clone();
        pass(|tokens| self.forward(tokens, position), &device, sampler, texts, position)
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
