//! Keys and values in 8 bits: more sequences in the same memory, and a step that takes longer for each.
//!
//! **Nothing is promised.** candle multiplies keys and values of the model's type, so those in 8 bits are read and widened
//! by operations of their own. For each value in bf16 a step moves 1 + 4/d bytes (d features a head) and 10 more in a
//! cast, a difference and a product with the scale, and the product of attention still reads 2, as it did before. Memory
//! is saved, and no traffic. [`Heads::kv_read_in_8_bits`](candlescope_work::operation::Heads::kv_read_in_8_bits) is the
//! formula; a test here fails once it says otherwise. What more sequences are worth is measured.

use super::remedy::{Answers, Attempt, NoPromise, Remedy, State};
use crate::setting::Change;

pub(super) const REMEDY: Remedy = Remedy {
    name: "kv_cache_8bit",
    title: "Keys and values in 8 bits",
    cost: "the quality of fewer bits, and time to widen what is read",
    attempts,
};

fn attempts(state: &State<'_>) -> Result<Vec<Attempt>, &'static str> {
    let facts = state.facts;
    match () {
        () if facts.caches_in_8_bits => Err("keys and values are held in 8 bits already"),
        () if !facts.is_ours => Err("only our layers hold keys and values in 8 bits"),
        () if state.goal.is_latency() => Err(
            "keys and values in 8 bits are widened before they are multiplied, so that a step moves more bytes, not \
             fewer: the goals `throughput` and `goodput` try it, where room for more sequences may be worth that",
        ),
        () => {
            let change = Change::default().option("kv-cache-dtype", "q8");
            let attempt = Attempt::new(change).answers(Answers::Variant("kv_q8".into()));
            Ok(vec![Attempt { unpromised: Some(nothing()), ..attempt }])
        }
    }
}

/// Why nothing is promised.
fn nothing() -> NoPromise {
    let why = "nothing is promised: 8 bits save memory, and a step widens what it reads, which takes time";
    NoPromise { why: why.into(), is_loss: false }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::Facts;
    use crate::goal::{Aim, Goal};
    use candlescope_core::run::RunManifest;
    use candlescope_figures::advice::Diagnosis;
    use candlescope_work::input::Input;
    use candlescope_work::operation::Heads;
    use serde_json::json;

    /// The attempt's words and what it promises, or why there is none.
    fn of(facts: &Facts, aim: Aim) -> Result<Vec<(String, usize)>, &'static str> {
        let (goal, diagnosis) = (Goal { aim, ..Goal::default() }, Diagnosis::default());
        let all = attempts(&State { facts, goal: &goal, diagnosis: &diagnosis })?;
        let one = |attempt: &Attempt| {
            assert!(attempt.simulated.is_none() && attempt.answers == Answers::Variant("kv_q8".into()), "{attempt:?}");
            assert!(attempt.unpromised.as_ref().is_some_and(|why| !why.is_loss), "it is tried: {attempt:?}");
            (attempt.change.words(), attempt.obtains.len())
        };
        Ok(all.iter().map(one).collect())
    }

    #[test]
    fn it_is_tried_where_sequences_share_memory_and_promises_nothing() {
        let facts = Facts { is_ours: true, ..Facts::of(&RunManifest::default()) };
        for aim in [Aim::Throughput, Aim::Goodput] {
            assert_eq!(of(&facts, aim), Ok(vec![("--kv-cache-dtype=q8".to_string(), 0)]));
        }
        assert!(of(&facts, Aim::Latency).is_err_and(|why| why.contains("widened before they are multiplied")));
        let candles = Facts { is_ours: false, ..facts.clone() };
        assert!(of(&candles, Aim::Throughput).is_err_and(|why| why.contains("only our layers")));
        // Once it is kept, and in a run that began with it.
        let kept = facts.with(&Change::default().option("kv-cache-dtype", "q8"));
        let mut manifest = RunManifest::default();
        manifest.options.insert("kv-cache-dtype".into(), json!("q8"));
        let begun = Facts { is_ours: true, ..Facts::of(&manifest) };
        // However the option was written.
        let mut manifest = RunManifest::default();
        manifest.options.insert("kv-cache-dtype".into(), json!("Q8"));
        manifest.model.insert("kv_cache_dtype".into(), json!("q8"));
        let told = Facts { is_ours: true, ..Facts::of(&manifest) };
        for facts in [&kept, &begun, &told] {
            assert!(of(facts, Aim::Throughput).is_err_and(|why| why.contains("already")), "{facts:?}");
        }
        let taken_out = kept.with(&Change::default().without("kv-cache-dtype"));
        assert!(of(&taken_out, Aim::Throughput).is_ok());
    }

    #[test]
    fn a_step_reads_more_with_8_bits_than_without_whatever_the_model_computes_in() {
        for (width, features) in [(2.0, 64.0), (2.0, 256.0), (4.0, 32.0), (4.0, 128.0)] {
            let (heads, step) = (Heads::new(8, 8, features), Input::token(4, 1_000));
            let values = 2.0 * 4.0 * 1_000.0 * 8.0 * features;
            let as_they_are = values * width;
            let in_8_bits = heads.kv_read_in_8_bits(step, width).io_bytes() + values * width;
            assert!(in_8_bits > 2.0 * as_they_are, "promise what is saved now: {in_8_bits} and {as_they_are} bytes");
        }
    }
}
