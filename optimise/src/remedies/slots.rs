//! Keys and values in memory that is allocated at the start, written in place, and tokens chosen on the device.

use super::remedy::{Answers, Attempt, Remedy, State};
use crate::setting::Change;
use candlescope_figures::advice::AdviceCode;

pub(super) const REMEDY: Remedy = Remedy {
    name: "slots",
    title: "KV cache allocated at the start, tokens chosen on the device",
    cost: "memory for the longest context of every sequence",
    attempts,
};

fn attempts(state: &State<'_>) -> Result<Vec<Attempt>, &'static str> {
    let facts = state.facts;
    match () {
        () if facts.has_slots => Err("sequences are in slots already"),
        () if !facts.is_ours => Err("only our layers decode from slots"),
        () if facts.speculates => Err("tokens that are looked up are checked in a cache that grows"),
        () => {
            let change = Change::default().option("max-num-seqs", facts.batch);
            // On a CPU, a token is chosen where it was before.
            let obtains: &[AdviceCode] = match facts.on_gpu() {
                true => &[AdviceCode::CacheCopied, AdviceCode::HostSampling],
                false => &[AdviceCode::CacheCopied],
            };
            let attempt = Attempt::new(change).obtains(obtains);
            Ok(vec![attempt.answers(rounding(state))])
        }
    }
}

/// One sequence is computed by the same kernels as before; several are multiplied together, in another order of sums.
fn rounding(state: &State<'_>) -> Answers {
    let is_f32 = state.facts.dtype.as_deref() == Some("f32");
    if is_f32 || state.facts.batch == 1 { Answers::Same } else { Answers::Rounded }
}
