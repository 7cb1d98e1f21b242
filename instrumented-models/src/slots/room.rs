//! Whether keys and values fit into memory, said before they are allocated.

use super::slot_options::SlotOptions;
use crate::free_memory::{Memory, memory};
use candle_core::{Device, Result, bail};

/// What slots take from a memory, of all models that take theirs from it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Need {
    /// Bytes of a token.
    pub(super) token: u64,
    /// Tokens of a slot.
    pub(super) context: usize,
    /// Models with as many slots each: one whose weights are there, and those that load after it.
    pub(super) models: usize,
    /// Bytes of the weights of one.
    pub(super) weights: u64,
}

impl Need {
    /// Bytes of weights that are not there yet.
    fn to_come(self) -> u64 {
        self.weights.saturating_mul(self.models.saturating_sub(1) as u64)
    }

    /// Tokens that a slot of each model may have in `bytes`, or slots of so many tokens.
    fn share(&self, bytes: u64, each: usize) -> u64 {
        bytes / self.token.max(1) / each.max(1) as u64 / self.models.max(1) as u64
    }
}

/// How many slots there are to be: as many as are asked for, or, if a share of the device's memory may be used, as many of
/// them as fit. Where nobody tells what is free, all fit.
pub(super) fn slots(device: &Device, options: &SlotOptions, need: Need) -> Result<usize> {
    let Some(memory) = memory(device) else { return Ok(options.slots) };
    let slots = match options.memory {
        None => what_fits(memory.free, options.slots, need).map(|()| options.slots),
        Some(share) => within(memory, share, need).map(|slots| slots.min(options.slots)),
    };
    slots.or_else(|text| bail!("{text}"))
}

/// The slots that fit if `share` of all memory is in use with them: those of each model, if all have as many.
fn within(memory: Memory, share: f64, need: Need) -> std::result::Result<usize, String> {
    let may = (memory.total as f64 * share) as u64;
    let used = memory.total.saturating_sub(memory.free).saturating_add(need.to_come());
    let left = may.saturating_sub(used);
    let context = need.context;
    match usize::try_from(need.share(left, context)).unwrap_or(usize::MAX) {
        0 => {
            let (each, kept) = match need.models {
                0 | 1 => (String::new(), ""),
                models => (format!(" for each of {models} models"), ", or kept for weights to come"),
            };
            Err(format!(
                "no slot of {context} tokens ({} MiB){each} fits: {} of {} MiB are in use{kept}, and {} may be ({share} of \
                 all); allow more, or ask for at most {} tokens",
                need.token.saturating_mul(context as u64) >> 20,
                used >> 20,
                memory.total >> 20,
                may >> 20,
                need.share(left, 1)
            ))
        }
        slots => Ok(slots),
    }
}

/// Fails if slots do not fit into nine tenths of what is free, and says what would: the rest is for logits, activations
/// and whatever else runs. The slots of models that load later count, because what is allocated is not always taken
/// before it is used: each of them would find the same memory free.
fn what_fits(free: u64, slots: usize, need: Need) -> std::result::Result<(), String> {
    let (may, context) = (free.saturating_sub(need.to_come()) / 10 * 9, need.context);
    let tokens = (slots as u64).checked_mul(context as u64).and_then(|n| n.checked_mul(need.models.max(1) as u64));
    let needed = tokens.and_then(|tokens| tokens.checked_mul(need.token));
    if needed.is_some_and(|needed| needed <= may) {
        return Ok(());
    }
    let needed = needed.map_or_else(|| "more bytes than can be counted".to_string(), |n| format!("{} MiB", n >> 20));
    let (of, each, beside) = match need.models {
        0 | 1 => (String::new(), "", ""),
        models => (format!("{models} models with "), " each", " beside weights to come"),
    };
    // So many slots may leave no room for a token in each.
    let shorter = match need.share(may, slots) {
        0 => String::new(),
        tokens => format!(", or {slots} of {tokens}"),
    };
    Err(format!(
        "keys and values of {of}{slots} slots of {context} tokens{each} take {needed}, and {} MiB may be taken{beside}: {} \
         slots of {context} tokens{each} would fit{shorter}",
        may >> 20,
        need.share(may, context)
    ))
}

/// What graphs of steps take of a device's memory, which is known once they are captured.
#[derive(Debug, Default)]
pub(super) struct GraphMemory {
    captured: usize,
    /// Bytes of the largest.
    most: u64,
    told: bool,
}

impl GraphMemory {
    /// One more was captured and took so many bytes, of which `free` are left, and steps have so many `shapes`. The
    /// answer is to be said: that the others do not fit, if they take as much as the largest so far. Once.
    pub(super) fn captured(&mut self, took: u64, free: u64, shapes: usize) -> Option<String> {
        self.captured += 1;
        self.most = self.most.max(took);
        let left = shapes.saturating_sub(self.captured);
        let needed = self.most.saturating_mul(left as u64);
        if self.told || needed <= free {
            return None;
        }
        self.told = true;
        Some(format!(
            "a CUDA graph of a step took {} MiB of the device's memory, and {} MiB are free: {left} of {shapes} shapes that \
             steps have are not captured yet, and would take {} MiB. Fewer slots (--max-num-seqs), less context \
             (--max-model-len) or a smaller share of the memory (--gpu-memory-utilization) leave room; what cannot be \
             captured goes on call by call",
            self.most >> 20,
            free >> 20,
            needed >> 20
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Slots of a GiB.
    fn of_a_gib(models: usize) -> Need {
        Need { token: 1 << 20, context: 1 << 10, models, weights: 0 }
    }

    #[test]
    fn a_share_of_the_memory_says_how_many_slots_there_are() {
        let memory = Memory { total: 100 << 30, free: 40 << 30 };
        // 60 GiB are in use and 90 may be: thirty slots of one GiB.
        assert_eq!(within(memory, 0.9, of_a_gib(1)), Ok(30));
        assert_eq!(within(memory, 1.0, of_a_gib(1)), Ok(40));
        let none = within(memory, 0.6, of_a_gib(1)).unwrap_err();
        assert!(none.contains("61440 of 102400 MiB are in use, and 61440 may be"), "{none}");
        let few = within(memory, 0.605, of_a_gib(1)).unwrap_err();
        assert!(few.contains("ask for at most 511 tokens") || few.contains("ask for at most 512 tokens"), "{few}");
    }

    #[test]
    fn what_would_fit_is_said() {
        // Nine tenths of it are a GiB.
        let (free, need) =
            ((1 << 30) / 9 * 10 + 10, Need { token: 1 << 10, context: 1 << 16, models: 1, weights: 7 << 30 });
        assert_eq!(what_fits(free, 16, need), Ok(()), "to a few bytes");
        let text = what_fits(free, 17, need).unwrap_err();
        assert!(
            text.contains(
                "take 1088 MiB, and 1024 MiB may be taken: 16 slots of 65536 tokens would fit, or 17 of 61680"
            ),
            "{text}"
        );
        // A token in each of as many slots as there are tokens, and in no more.
        let tokens = (1 << 20) as usize;
        let most = what_fits(free, tokens, need).unwrap_err();
        assert!(most.ends_with("16 slots of 65536 tokens would fit, or 1048576 of 1"), "{most}");
        for slots in [tokens + 1, 100_000_000] {
            let text = what_fits(free, slots, need).unwrap_err();
            assert!(text.ends_with("may be taken: 16 slots of 65536 tokens would fit"), "{text}");
        }
        let huge = Need { token: 1 << 40, context: 2, ..need };
        assert!(what_fits(free, usize::MAX, huge).unwrap_err().contains("more bytes than can be counted"));
    }

    #[test]
    fn models_that_load_later_have_their_part() {
        let memory = Memory { total: 100 << 30, free: 60 << 30 };
        // Of 50 GiB that may be taken, two models to come have weights of five each, and each of the three gets a
        // third.
        let three = Need { weights: 5 << 30, ..of_a_gib(3) };
        assert_eq!(within(memory, 0.9, three), Ok(13));
        let none = within(memory, 0.52, three).unwrap_err();
        assert!(
            none.contains("for each of 3 models fits: 51200 of 102400 MiB are in use, or kept for weights to come"),
            "{none}"
        );
        // Of 50 GiB that will be free, nine tenths.
        assert_eq!(what_fits(60 << 30, 15, three), Ok(()));
        let text = what_fits(60 << 30, 16, three).unwrap_err();
        let said = "keys and values of 3 models with 16 slots of 1024 tokens each take 49152 MiB, and 46080 MiB may be \
                    taken beside weights to come: 15 slots of 1024 tokens each would fit, or 16 of 960";
        assert_eq!(text, said);
        // The last one has no weights to wait for.
        assert_eq!(what_fits(60 << 30, 54, Need { weights: 50 << 30, ..of_a_gib(1) }), Ok(()));
    }

    #[test]
    fn graphs_that_will_not_fit_are_told_once() {
        let (mut graphs, mib) = (GraphMemory::default(), 1 << 20);
        assert_eq!(graphs.captured(10 * mib, 110 * mib, 12), None, "eleven more of ten each");
        let text = graphs.captured(20 * mib, 150 * mib, 12).expect("ten more of twenty each");
        assert!(text.contains("took 20 MiB") && text.contains("150 MiB are free: 10 of 12 shapes"), "{text}");
        assert!(text.contains("would take 200 MiB"), "{text}");
        assert_eq!(graphs.captured(20 * mib, mib, 12), None);
        assert_eq!(GraphMemory::default().captured(10 * mib, 0, 1), None, "there are no others");
    }
}
