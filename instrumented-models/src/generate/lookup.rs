//! Tokens that a text is likely to go on with, looked up in the text itself (n-gram speculation, prompt lookup
//! decoding), and how they are checked.
//!
//! Where the last tokens of a text stood before in it, what followed there is proposed. One pass over the proposal says
//! what the model itself would have chosen behind each of its tokens: the proposal is taken as far as it is that, and
//! one token more comes with it. So the text is the one that greedy decoding writes, in fewer passes where it repeats
//! itself or its prompt.

use super::GenerateError;
use crate::causal_lm::CausalLm;
use crate::sampling;
use candle_core::Tensor;
use candlescope_core::llm;

/// Tokens at the end of a text that are looked for, the most first: fewer say too little of what follows.
const LENGTHS: [usize; 2] = [3, 2];

/// What followed where the last tokens of `text` stood before, at the latest such place: `most` tokens or fewer, none where
/// there is no such place.
pub(super) fn proposed(text: &[u32], most: usize) -> &[u32] {
    let Some((_, before)) = text.split_last() else { return &[] };
    for length in LENGTHS {
        let Some(end) = text.len().checked_sub(length).map(|start| &text[start..]) else { continue };
        if let Some(at) = before.windows(length).rposition(|window| window == end) {
            let from = at + length;
            return &text[from..text.len().min(from.saturating_add(most))];
        }
    }
    &[]
}

/// Decoding steps that a text takes where up to `lookahead` tokens are looked up for each: `output`, which was decoded
/// greedily behind `prompt`, has one token from the prompt's own step, and one a step without looking ahead.
pub fn lookup_steps(prompt: &[u32], output: &[u32], lookahead: usize) -> usize {
    looked_up(prompt, output, lookahead).0
}

/// Those of [`lookup_steps`] that check tokens: where none are found, a step passes one token as any other does.
pub fn lookup_checks(prompt: &[u32], output: &[u32], lookahead: usize) -> usize {
    looked_up(prompt, output, lookahead).1
}

/// Steps, and those of them that check tokens.
fn looked_up(prompt: &[u32], output: &[u32], lookahead: usize) -> (usize, usize) {
    let text = [prompt, output].concat();
    let (mut at, mut steps, mut checks) = (prompt.len() + 1, 0, 0);
    while at < text.len() {
        let ahead = proposed(&text[..at], lookahead.min(text.len() - at - 1));
        at += ahead.iter().zip(&text[at..]).take_while(|(a, b)| a == b).count() + 1;
        steps += 1;
        checks += usize::from(!ahead.is_empty());
    }
    (steps, checks)
}

/// Why tokens are looked up for no model that does not [check](CausalLm::checks_tokens) them.
pub(super) fn cannot_check() -> GenerateError {
    let why = "this model cannot check tokens that were looked up: its cache does not go back; use our layers, without slots, or leave \
               lookahead at 0";
    GenerateError::Options(why.into())
}

/// Passes the last token of `text` and those of `ahead` behind it, and returns what the model chooses after each token
/// that is its own choice: one token at least, and one more than `ahead` has if all of them are.
pub(super) fn checked(
    model: &mut dyn CausalLm,
    text: &[u32],
    ahead: &[u32],
    failed: impl Fn(candle_core::Error) -> GenerateError,
) -> Result<Vec<u32>, GenerateError> {
    let position = text.len() - 1;
    let tokens: Vec<u32> = text[position..].iter().chain(ahead).copied().collect();
    let tokens = Tensor::new(tokens, model.device()).and_then(|tokens| tokens.unsqueeze(0)).map_err(&failed)?;
    let Some(logits) = model.forward_each(&tokens, position) else {
        return Err(cannot_check());
    };
    let mut chosen = {
        let _sampling = llm::sample();
        logits.and_then(|logits| sampling::most_likely(&logits)).map_err(&failed)?
    };
    let right = ahead.iter().zip(&chosen).take_while(|(proposed, chosen)| proposed == chosen).count();
    chosen.truncate(right + 1);
    Ok(chosen)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_followed_the_latest_place_is_proposed() {
        //          0  1  2  3  4  5  6  7  8  9
        let text = [5, 1, 2, 3, 7, 1, 2, 3, 8, 9, 1, 2, 3];
        assert_eq!(proposed(&text, 3), [8, 9, 1]);
        assert_eq!(proposed(&text, 1), [8]);
        assert_eq!(proposed(&text, 0), [0u32; 0]);
        // Two tokens where three are nowhere; one is too little.
        assert_eq!(proposed(&[1, 2, 9, 4, 1, 2], 8), [9, 4, 1, 2]);
        assert_eq!(proposed(&[1, 9, 4, 1], 8), [0u32; 0]);
        // A text that repeats a token goes on with it, as far as there is one.
        assert_eq!(proposed(&[6, 6, 6, 6], 8), [6]);
        for short in [&[][..], &[1], &[1, 1]] {
            assert_eq!(proposed(short, 4), [0u32; 0], "{short:?}");
        }
    }

    #[test]
    fn steps_are_counted_as_the_loop_takes_them() {
        // The prompt's step gives 1, and the next one 2. Behind 1 2 stand 3 9 8, which come at once with 7, and 4 comes
        // alone.
        let (prompt, output) = ([1, 2, 3, 9, 8, 7], [1, 2, 3, 9, 8, 7, 4]);
        assert_eq!(lookup_steps(&prompt, &output, 0), 6, "one a token");
        assert_eq!(lookup_steps(&prompt, &output, 3), 3);
        // Behind the prompt's last token and 1 there is nothing to look up, nor for the last token.
        assert_eq!((lookup_checks(&prompt, &output, 3), lookup_checks(&prompt, &output, 0)), (1, 0));
        assert_eq!(lookup_steps(&prompt, &output[..1], 3), 0);
        assert_eq!(lookup_steps(&prompt, &[], 3), 0);
    }
}
