//! The mask of causal attention.

use candle_core::{Device, Result, Tensor};

/// Makes masks, and keeps the last one: a prompt's is the same at each repetition.
#[derive(Debug, Clone, Default)]
pub(crate) struct CausalMask {
    /// Mask of the last prompt pass: (tokens, position, mask).
    last: Option<(usize, usize, Tensor)>,
}

impl CausalMask {
    /// The additive causal mask, (tokens, position + tokens), in f32. A single token attends to all positions and needs
    /// no mask.
    pub(crate) fn of(&mut self, tokens: usize, position: usize, device: &Device) -> Result<Option<Tensor>> {
        if tokens == 1 {
            return Ok(None);
        }
        if let Some((t, p, mask)) = &self.last
            && (*t, *p) == (tokens, position)
        {
            return Ok(Some(mask.clone()));
        }
        let context = position + tokens;
        let mut values = vec![0f32; tokens * context];
        for (i, row) in values.chunks_mut(context).enumerate() {
            row[position + i + 1..].fill(f32::NEG_INFINITY);
        }
        let mask = Tensor::from_vec(values, (tokens, context), device)?;
        self.last = Some((tokens, position, mask.clone()));
        Ok(Some(mask))
    }
}
