//! What prompts take once a processor's weights are quantised, which findings of decoding say nothing of.
//!
//! candle's product of quantised weights on a CPU computes a row at a time, where that of floats computes many rows at once. So a step
//! that passes `n` tokens of a prompt takes a share of what `n` decoding steps of one token take, whatever it took with floats:
//!
//! `gain = 1 − n · share · (decoding step after) ÷ (prompt's step now)`, which is often a loss.
//!
//! Of decoding steps that pass `m` tokens, `n ÷ m` are as many rows.

use crate::promise::{ByKind, PromisedGain, of_run};
use crate::remedies::{Attempt, NoPromise, State};
use crate::words::gain as in_words;
use candlescope_core::Phase;
use candlescope_core::numbers::significant;
use candlescope_figures::advice::AdviceCode;
use candlescope_findings::STREAMED_BYTES;
use candlescope_work::estimate::Estimate;

/// A row of a prompt ÷ a decoding step, with the same quantised weights: SmolLM2 took 0.47 (Q8_0, 32 rows) and 0.68 (Q4_1, 75 rows) on
/// two cores of an AMD EPYC, and 0.58 (Q4_1, 131 rows) on two of an Intel Xeon with AMX.
const ROW: Estimate = Estimate { low: 0.4, mid: 0.6, high: 0.8 };
/// The most that a row of a prompt takes of what each row of a decoding step with several takes, which computes them one by one, too.
const ROW_OF_SEVERAL: f64 = 1.0;

/// The promise of quantised weights on a CPU with what prompts then take; as it is where the run does not say how many tokens a prompt's
/// step passes or what a token takes, and where the attempt is another one.
///
/// # Errors
/// Why nothing is promised: with what prompts take, it may be a loss.
pub(crate) fn with_prompts(
    state: &State<'_>,
    attempt: &Attempt,
    promised: PromisedGain,
) -> Result<PromisedGain, NoPromise> {
    if state.facts.on_gpu() || !attempt.obtains.contains(&AdviceCode::WeightStreaming) {
        return Ok(promised);
    }
    let Some((rows, of_prompts)) = of_prompts(state, &promised.by_kind) else { return Ok(promised) };
    let mut by_kind = promised.by_kind.clone();
    by_kind.insert(Phase::Prefill.as_str().to_string(), of_prompts);
    let Some(gain) = of_run(state, &by_kind) else { return Ok(promised) };
    if gain.low > 0.0 {
        let mut promise = promised.promise;
        (promise.low, promise.mid, promise.high) = (gain.low, gain.mid, gain.high);
        return Ok(PromisedGain { promise, by_kind, changes: promised.changes });
    }
    // A step of small weights takes what it takes for other things than rows, and a busy machine says little of any.
    let is_told = state.facts.weight_bytes.is_some_and(|bytes| bytes >= STREAMED_BYTES) && !state.facts.is_disturbed;
    let is_loss = gain.high <= 0.0 && is_told;
    let [of_prompts, of_run] =
        [of_prompts, gain].map(|gain| format!("{} to {}", in_words(gain.low), in_words(gain.high)));
    let rows = significant(rows);
    let why = format!("a prompt's step of {rows} tokens gains {of_prompts}, a token at a time, and the run {of_run}");
    Err(NoPromise::for_a_loss(is_loss, &why))
}

/// How many tokens a prompt's step passes, and what it gains. A decoding step of which nothing is said takes what it takes now.
fn of_prompts(state: &State<'_>, by_kind: &ByKind) -> Option<(f64, Estimate)> {
    let passed = state.facts.prompt_rows.filter(|rows| *rows > 1.0)?;
    let ns = |phase: Phase| {
        let step = state.diagnosis.steps.iter().find(|step| step.phase == phase.as_str())?;
        Some(step.unobserved_ns).filter(|ns| *ns > 0.0)
    };
    let (prompt, decode) = (ns(Phase::Prefill)?, ns(Phase::Decode)?);
    let at_once = state.facts.decode_rows.unwrap_or(1.0).max(1.0);
    let most = if at_once > 1.0 { ROW_OF_SEVERAL } else { ROW.high };
    let gain = by_kind.get(Phase::Decode.as_str()).copied().unwrap_or_default();
    let after = |share: f64, gain: f64| 1.0 - passed / at_once * share * decode * (1.0 - gain) / prompt;
    Some((
        passed,
        Estimate { low: after(most, gain.low), mid: after(ROW.mid, gain.mid), high: after(ROW.low, gain.high) },
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::account::Promise;
    use crate::facts::Facts;
    use crate::goal::Goal;
    use crate::setting::Change;
    use candlescope_core::run::RunManifest;
    use candlescope_figures::advice::{Diagnosis, UnobservedStep};

    fn step(phase: Phase, ns: f64, share_of_time: f64) -> UnobservedStep {
        UnobservedStep {
            phase: phase.as_str().into(),
            n: 8,
            observed_ns: ns,
            unobserved_ns: ns,
            bound_ns: None,
            range_ns: None,
            basis: "made",
            device_ns: None,
            share_of_time,
        }
    }

    /// SmolLM2 in f32 on two cores, as it was recorded: 87.3 ms for 32 tokens of a prompt, 24.2 ms for a token.
    #[test]
    fn a_prompt_that_gets_slower_is_part_of_the_promise() {
        let steps = vec![step(Phase::Decode, 24.2e6, 0.896), step(Phase::Prefill, 87.3e6, 0.104)];
        let (diagnosis, goal) = (Diagnosis { steps, ..Diagnosis::default() }, Goal::default());
        let facts = Facts { prompt_rows: Some(32.0), ..Facts::of(&RunManifest::default()) };
        let of_decode = Estimate { low: 0.587, mid: 0.645, high: 0.776 };
        let by_kind = ByKind::from([("decode".to_string(), of_decode)]);
        let promise = Promise::of(of_decode.times(0.896), "weight_streaming", None);
        let before = PromisedGain { promise, by_kind, changes: Vec::new() };
        let attempt = Attempt::new(Change::default()).obtains(&[AdviceCode::WeightStreaming]);
        let of = |facts: &Facts, attempt: &Attempt| {
            with_prompts(&State { facts, goal: &goal, diagnosis: &diagnosis }, attempt, before.clone()).unwrap()
        };
        let promised = of(&facts, &attempt);
        // 32 rows at 0.6 of 8.6 ms take 165 ms, 89 % more than now; 133 ms were measured, and 50.4 % obtained.
        assert!((promised.by_kind["prefill"].mid + 0.89).abs() < 0.01, "{promised:?}");
        assert!((promised.promise.mid - 0.485).abs() < 0.005, "{promised:?}");
        assert!(promised.promise.low < 0.504 && promised.promise.high > 0.504, "{promised:?}");
        assert!((before.promise.mid - 0.578).abs() < 0.001, "before: {before:?}");
        // Who does not know how many tokens a prompt has says nothing of it, nor is another attempt's promise changed.
        assert_eq!(of(&Facts { prompt_rows: None, ..facts.clone() }, &attempt), before);
        assert_eq!(of(&facts, &Attempt::new(Change::default())), before);
        // Four sequences at once pass four times as many tokens of prompts and of answers: as many rows to each step of decoding.
        let four = Facts { prompt_rows: Some(128.0), decode_rows: Some(4.0), ..facts.clone() };
        let of_four = of(&four, &attempt);
        assert!((of_four.promise.mid - promised.promise.mid).abs() < 1e-12, "{of_four:?}");
        assert!(of_four.promise.low < promised.promise.low, "a row takes all that one of them takes: {of_four:?}");
    }

    #[test]
    fn what_prompts_may_make_a_loss_is_not_promised() {
        let goal = Goal::default();
        let attempt = Attempt::new(Change::default()).obtains(&[AdviceCode::WeightStreaming, AdviceCode::SerialPart]);
        let of = |share_of_decode: f64, is_disturbed: bool, weight_bytes: u64, found: (&str, Estimate)| {
            let steps =
                vec![step(Phase::Decode, 24.2e6, share_of_decode), step(Phase::Prefill, 87.3e6, 1.0 - share_of_decode)];
            let diagnosis = Diagnosis { steps, ..Diagnosis::default() };
            let weight_bytes = Some(weight_bytes);
            let facts = Facts::of(&RunManifest::default());
            let facts = Facts { prompt_rows: Some(32.0), is_disturbed, weight_bytes, ..facts };
            let by_kind = ByKind::from([(found.0.to_string(), found.1)]);
            let promise = Promise::of(found.1, "weight_streaming", None);
            let state = State { facts: &facts, goal: &goal, diagnosis: &diagnosis };
            with_prompts(&state, &attempt, PromisedGain { promise, by_kind, changes: Vec::new() })
        };
        let of_decode = ("decode", Estimate { low: 0.587, mid: 0.645, high: 0.776 });
        // Seven tenths of the time in decoding: from a loss of 17 % to a gain of more than half.
        let may_be = of(0.7, false, STREAMED_BYTES, of_decode).unwrap_err();
        assert!(
            !may_be.is_loss && may_be.why.starts_with("nothing was promised, because it may be a loss"),
            "{may_be:?}"
        );
        assert!(may_be.why.contains("a prompt's step of 32.0 tokens gains −193.1 % to 20.5 %"), "{may_be:?}");
        // Nearly all in prompts, and nothing that decoding gains: what one thread computes of a prompt is no gain any more.
        let of_prefill = ("prefill", Estimate::exact(0.3));
        let is = of(0.05, false, STREAMED_BYTES, of_prefill).unwrap_err();
        assert!(is.is_loss && is.why.starts_with("it is a loss by what the run says"), "{is:?}");
        // It is tried where a few rows may take hardly longer than one, and by a run of a busy machine.
        assert!(!of(0.05, false, STREAMED_BYTES - 1, of_prefill).unwrap_err().is_loss);
        assert!(!of(0.05, true, STREAMED_BYTES, of_prefill).unwrap_err().is_loss);
    }
}
