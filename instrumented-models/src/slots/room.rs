//! Whether keys and values fit into memory, said before they are allocated.

use crate::free_memory::free_memory;
use candle_core::{Device, Result, bail};

/// Fails if slots do not fit into nine tenths of what is free, and says what would: the rest is for logits, activations and
/// whatever else runs. Where nobody tells what is free, all fits.
pub(super) fn check_memory(device: &Device, bytes_per_token: u64, slots: usize, context: usize) -> Result<()> {
    let Some(free) = free_memory(device) else { return Ok(()) };
    match what_fits(free / 10 * 9, bytes_per_token, slots, context) {
        Ok(()) => Ok(()),
        Err(text) => bail!("{text}"),
    }
}

fn what_fits(free: u64, bytes_per_token: u64, slots: usize, context: usize) -> std::result::Result<(), String> {
    let tokens = (slots as u64).checked_mul(context as u64);
    let needed = tokens.and_then(|tokens| tokens.checked_mul(bytes_per_token));
    if needed.is_some_and(|needed| needed <= free) {
        return Ok(());
    }
    let tokens = free / bytes_per_token.max(1);
    let needed = needed.map_or_else(|| "more bytes than can be counted".to_string(), |n| format!("{} MiB", n >> 20));
    Err(format!(
        "keys and values of {slots} slots of {context} tokens take {needed}, and {} MiB may be taken: {} slots of {context} tokens \
         would fit, or {slots} of {}",
        free >> 20,
        tokens / context as u64,
        tokens / slots as u64
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_fit_is_said() {
        assert_eq!(what_fits(1 << 30, 1 << 10, 16, 1 << 16), Ok(()), "to the byte");
        let text = what_fits(1 << 30, 1 << 10, 17, 1 << 16).unwrap_err();
        assert!(
            text.contains(
                "take 1088 MiB, and 1024 MiB may be taken: 16 slots of 65536 tokens would fit, or 17 of 61680"
            ),
            "{text}"
        );
        assert!(what_fits(1 << 30, 1 << 40, usize::MAX, 2).unwrap_err().contains("more bytes than can be counted"));
    }
}
