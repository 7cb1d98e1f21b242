//! How far prompts begin as prompts before them do.

/// Tokens of `prompts` that need not be computed if slots hold what they computed last, with `at_once` requests in
/// slots: the beginning that a prompt shares with the one that lies in the free slot when it comes, of `least` tokens
/// or more. A prompt's last token is always computed.
///
/// Requests are taken to end in the order in which they came, so that the slot which one gets holds the prompt of
/// `at_once` places before. Further slots are free as well and hold nothing: each of them would add a row to every
/// step.
pub(crate) fn shared_tokens(prompts: &[&[u32]], at_once: usize, least: usize) -> u64 {
    let at_once = at_once.max(1);
    let shared = |(n, prompt): (usize, &&[u32])| {
        let held = n.checked_sub(at_once).map_or(&[][..], |before| prompts[before]);
        let same = held.iter().zip(*prompt).take_while(|(a, b)| a == b).count();
        same.min(prompt.len().saturating_sub(1))
    };
    prompts.iter().enumerate().map(shared).filter(|same| *same >= least).map(|same| same as u64).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Twenty tokens that all have, then four of its own.
    fn asked(own: u32) -> Vec<u32> {
        (0..20).chain([100 + own, 1, 2, 3]).collect()
    }

    #[test]
    fn a_prompt_shares_with_what_a_free_slot_can_hold() {
        let all: Vec<Vec<u32>> = (0..6).map(asked).collect();
        let prompts: Vec<&[u32]> = all.iter().map(Vec::as_slice).collect();
        assert_eq!(shared_tokens(&prompts, 1, 16), 5 * 20, "all but the first");
        assert_eq!(shared_tokens(&prompts, 2, 16), 4 * 20, "the first two come into empty slots");
        assert_eq!(shared_tokens(&prompts, 6, 16), 0);
        assert_eq!(shared_tokens(&prompts, 1, 21), 0, "too little is shared");
    }

    #[test]
    fn the_same_prompt_again_computes_its_last_token() {
        let (a, b) = (asked(0), asked(1));
        assert_eq!(shared_tokens(&[&a, &a], 1, 16), 23);
        // A slot holds the prompt before alone; two hold both, each for the one after the next.
        assert_eq!(shared_tokens(&[&a, &b, &a], 1, 16), 20 + 20);
        assert_eq!(shared_tokens(&[&a, &b, &a, &b], 2, 16), 23 + 23);
    }
}
