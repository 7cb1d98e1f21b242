//! Whether keys and values fit into memory, said before they are allocated.

use super::slot_options::SlotOptions;
use crate::free_memory::{Memory, memory};
use candle_core::{Device, Result, bail};

/// Fails if slots do not fit into nine tenths of what is free, and says what would: the rest is for logits, activations and
/// whatever else runs. Where nobody tells what is free, all fits.
fn check_memory(memory: Memory, bytes_per_token: u64, slots: usize, context: usize) -> Result<()> {
    match what_fits(memory.free / 10 * 9, bytes_per_token, slots, context) {
        Ok(()) => Ok(()),
        Err(text) => bail!("{text}"),
    }
}

/// How many slots there are to be: as many as are asked for, or, if a share of the device's memory may be used, as many of
/// them as fit.
pub(super) fn slots(device: &Device, bytes_per_token: u64, options: &SlotOptions, context: usize) -> Result<usize> {
    let Some(memory) = memory(device) else { return Ok(options.slots) };
    match options.memory {
        None => check_memory(memory, bytes_per_token, options.slots, context).map(|()| options.slots),
        Some(share) => match within(memory, share, bytes_per_token, context) {
            Ok(slots) => Ok(slots.min(options.slots)),
            Err(text) => bail!("{text}"),
        },
    }
}

/// The slots that fit if `share` of all memory is in use with them.
fn within(memory: Memory, share: f64, bytes_per_token: u64, context: usize) -> std::result::Result<usize, String> {
    let may = (memory.total as f64 * share) as u64;
    let used = memory.total.saturating_sub(memory.free);
    let (left, slot) = (may.saturating_sub(used), bytes_per_token.max(1).saturating_mul(context as u64));
    match usize::try_from(left / slot).unwrap_or(usize::MAX) {
        0 => Err(format!(
            "no slot of {context} tokens ({} MiB) fits: {} of {} MiB are in use, and {} may be ({share} of all); allow more, \
             or ask for at most {} tokens",
            slot >> 20,
            used >> 20,
            memory.total >> 20,
            may >> 20,
            left / bytes_per_token.max(1)
        )),
        slots => Ok(slots),
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
    fn a_share_of_the_memory_says_how_many_slots_there_are() {
        let memory = Memory { total: 100 << 30, free: 40 << 30 };
        // 60 GiB are in use and 90 may be: thirty slots of one GiB.
        assert_eq!(within(memory, 0.9, 1 << 20, 1 << 10), Ok(30));
        assert_eq!(within(memory, 1.0, 1 << 20, 1 << 10), Ok(40));
        let none = within(memory, 0.6, 1 << 20, 1 << 10).unwrap_err();
        assert!(none.contains("61440 of 102400 MiB are in use, and 61440 may be"), "{none}");
        let few = within(memory, 0.605, 1 << 20, 1 << 10).unwrap_err();
        assert!(few.contains("ask for at most 511 tokens") || few.contains("ask for at most 512 tokens"), "{few}");
    }

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
