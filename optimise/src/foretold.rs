//! What tokens that are looked up gain requests, foretold by a run without them.
//!
//! Without them a text takes a step for each token. With them it takes the steps that the run's texts say, of which
//! those that check tokens pass up to `ahead` more than one. Such a step takes what a
//! [replay](candlescope_predict::simulation) of a decoding step with as many rows says: on a CPU what the run's own
//! prompts take, on a GPU what its kernels take, with a host that does for each step what it does for a prompt. Nothing
//! else of a request becomes shorter:
//!
//! gain = decoding's share of a request · (1 − (steps + checks · (longer − 1)) / tokens)
//!
//! Wrong guesses are among the checks. Each bound takes what is worst, or best, of both shares. It is of all requests
//! together, as the mean request and tokens a second are.

use crate::account::Promise;
use crate::facts::Facts;
use crate::lookup_facts::{Lookup, StepsLeft};
use crate::promise::{ByKind, PromisedGain};
use crate::remedies::{NoPromise, State};
use crate::time_shares::of_share;
use crate::words::gain as in_words;
use candlescope_core::Phase;
use candlescope_core::numbers::significant;
use candlescope_findings::STREAMED_BYTES;
use candlescope_predict::simulation::{Change, Simulation, StepGroup};
use candlescope_work::estimate::Estimate;

/// What a promise is called that rests on the texts of a run.
pub(crate) const CODE: &str = "ngram_lookup";
/// Times that a step of one token reads its weights, which a product of several rows takes beyond that on a CPU: it copies floats
/// into panels, so that they are read, written and read again (`gemm` 0.19). A replay has them by what a prompt takes for each of
/// its rows, of which there are many.
const PANELS: f64 = 2.0;

/// What looking tokens up gains the time of requests.
///
/// # Errors
/// Why nothing is promised: a figure is missing, or it may be a loss.
pub(crate) fn foretold(state: &State<'_>, simulation: Option<&Simulation>) -> Result<PromisedGain, NoPromise> {
    let unknown = |why: &str| NoPromise { why: format!("nothing was promised: {why}"), is_loss: false };
    let Some(Lookup { ahead, left: Some(left), .. }) = state.facts.lookup else {
        return Err(unknown("the run does not say how many steps would check tokens"));
    };
    let Some(decoding) = state.facts.decoding else {
        return Err(unknown("no request of the run says when its tokens came"));
    };
    if !state.facts.on_gpu() && state.facts.weight_bytes.is_none_or(|bytes| bytes < STREAMED_BYTES) {
        return Err(unknown(
            "weights stay in the processor's caches, and a prompt does not tell what a few tokens take",
        ));
    }
    let longer = longer(state, simulation, ahead).map_err(|why| unknown(&why))?;
    // What is a loss by a run of a busy machine is tried.
    let is_disturbed = state.facts.is_disturbed;
    let promised =
        judged(decoding, left, longer).map_err(|told| NoPromise { is_loss: told.is_loss && !is_disturbed, ..told })?;
    if is_disturbed {
        // Threads of a step with several tokens wait for the one that lost its processor, and those of a step with one do not.
        let Promise { low, high, .. } = promised.promise;
        let [low, high] = [low, high].map(in_words);
        return Err(unknown(&format!(
            "the machine was busy while the run was recorded, by which it would gain {low} to {high}"
        )));
    }
    Ok(promised)
}

/// The promise that follows, if it cannot be a loss.
fn judged(decoding: Estimate, left: StepsLeft, longer: Estimate) -> Result<PromisedGain, NoPromise> {
    let gain = gained(decoding, left, longer);
    let StepsLeft { steps, checks } = left;
    if gain.low > 0.0 {
        // A step of the usual kind is longer by the share of those that check.
        let of_step = |longer: f64| checks * (1.0 - longer) / steps;
        let step = Estimate { low: of_step(longer.high), mid: of_step(longer.mid), high: of_step(longer.low) };
        let by_kind = ByKind::from([(Phase::Decode.as_str().to_string(), step)]);
        return Ok(PromisedGain { promise: Promise::of(gain, CODE, None), by_kind, changes: Vec::new() });
    }
    let [low, high] = [longer.low, longer.high].map(significant);
    let why = format!(
        "{} steps for 100 tokens, {} of which take {low} to {high} times as long, gain requests {} to {}",
        significant(100.0 * steps),
        significant(100.0 * checks),
        in_words(gain.low),
        in_words(gain.high)
    );
    Err(NoPromise::for_a_loss(gain.high <= 0.0, &why))
}

/// The share of requests' time that is gained where decoding takes this share of it, these steps are left, and those
/// that check tokens take so many times as long.
fn gained(decoding: Estimate, left: StepsLeft, longer: Estimate) -> Estimate {
    let saved = |longer: f64| 1.0 - (left.steps + left.checks * (longer - 1.0));
    let saved = Estimate { low: saved(longer.high), mid: saved(longer.mid), high: saved(longer.low) };
    of_share(saved, decoding)
}

/// What a decoding step takes that checks up to `ahead` tokens, in times of one that passes a token alone.
///
/// # Errors
/// Why that is not known, in words.
fn longer(state: &State<'_>, simulation: Option<&Simulation>, ahead: u32) -> Result<Estimate, String> {
    let groups = simulation.map_or(&[][..], Simulation::groups);
    let group = |phase: Phase| groups.iter().find(|group| group.name() == phase.as_str());
    let decode = group(Phase::Decode).ok_or("no decoding step of the run can be replayed")?;
    let times = |changes: &[Change]| {
        let saved = decode.simulate(changes).map_err(|why| why.to_string())?.share_of_step;
        Ok::<_, String>(Estimate { low: 1.0 - saved.high, mid: 1.0 - saved.mid, high: 1.0 - saved.low })
    };
    // Rows of one sequence read its keys and values once; a replay of as many sequences reads them for each, which makes
    // a step no shorter.
    let rows = |sequences: u32| Change::Batch { sequences };
    let most = rows(ahead.saturating_add(1));
    // A text may have fewer tokens to look up.
    let least = times(&[rows(2)])?.low.min(times(std::slice::from_ref(&most))?.low);
    let on_device = decode.models().iter().any(|model| model.works() > 0);
    let taken = match on_device {
        false => {
            let replayed = times(&[most])?;
            let typical = |group: &StepGroup| Some(group.typical().ok()?.unobserved.seconds);
            // A prompt of more tokens takes longer than a few of them.
            let has_more = state.facts.prompt_rows.is_some_and(|rows| rows > f64::from(ahead));
            let of_prompt = group(Phase::Prefill).filter(|_| has_more).and_then(typical).zip(typical(decode));
            with_panels(replayed, state.facts, of_prompt.map(|(prompt, own)| prompt.high / own.low))
        }
        true => {
            // Several tokens of a sequence need a mask and copies, which a step of several sequences does not launch.
            let host = |group: &StepGroup| group.host_ns().filter(|ns| *ns > 0.0);
            let of_prompt = group(Phase::Prefill).and_then(host).zip(host(decode));
            let (of_prompt, own) = of_prompt
                .ok_or("no step of a prompt can be replayed, which says what the host does for several tokens")?;
            times(&[most, Change::Host { factor: (of_prompt / own).max(1.0) }])?
        }
    };
    Ok(Estimate { low: least.min(taken.low), ..taken })
}

/// The same on a CPU where weights are copied into panels, by half of that or all of it; no longer than a step of a prompt, which
/// takes `of_prompt` times as long as one of a token.
fn with_panels(replayed: Estimate, facts: &Facts, of_prompt: Option<f64>) -> Estimate {
    let panels = if facts.in_blocks() { 0.0 } else { PANELS };
    let most = of_prompt.unwrap_or(f64::INFINITY);
    let [mid, high] = [replayed.mid + panels / 2.0, replayed.high + panels].map(|longer| longer.min(most));
    Estimate::around(mid, [replayed.low, high])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::goal::{Aim, Goal};
    use candlescope_core::run::RunManifest;
    use candlescope_figures::advice::Diagnosis;

    const fn left(steps: f64, checks: f64) -> StepsLeft {
        StepsLeft { steps, checks }
    }

    fn near(is: Estimate, low: f64, mid: f64, high: f64) {
        for (is, right) in [(is.low, low), (is.mid, mid), (is.high, high)] {
            assert!((is - right).abs() < 1e-12, "{is} is not {right}");
        }
    }

    #[test]
    fn checks_take_longer_and_the_prompt_takes_what_it_took() {
        // 40 steps for 100 tokens, 30 of which check: 10 + 30 · 1.5 = 55 % of what decoding took.
        let decoding = Estimate { low: 0.7, mid: 0.8, high: 0.9 };
        let longer = Estimate { low: 0.9, mid: 1.5, high: 2.0 };
        near(gained(decoding, left(0.4, 0.3), longer), 0.7 * 0.3, 0.8 * 0.45, 0.9 * 0.63);
        let promised = judged(decoding, left(0.4, 0.3), longer).unwrap();
        assert_eq!((promised.promise.code.as_str(), promised.promise.simulated.as_deref()), (CODE, None));
        // What a step takes itself is told as well: by the mean of the 40 it is longer by 30 / 40 of a half.
        near(promised.by_kind["decode"], -0.75, -0.375, 0.075);
        // A text that saves nothing loses all that checks take longer, and most where decoding takes most.
        near(gained(decoding, left(1.0, 0.5), longer), -0.9 * 0.5, -0.8 * 0.25, 0.9 * 0.05);
    }

    #[test]
    fn what_may_be_a_loss_is_not_promised_and_what_is_one_is_not_tried() {
        let of = |checks: f64, low: f64, high: f64| {
            let longer = Estimate { low, mid: f64::midpoint(low, high), high };
            judged(Estimate::exact(0.9), left(0.8, checks), longer).unwrap_err()
        };
        let may_be = of(0.6, 0.7, 2.2);
        assert!(!may_be.is_loss, "{may_be:?}");
        let words =
            "80.0 steps for 100 tokens, 60.0 of which take 0.70 to 2.20 times as long, gain requests −46.8 % to 34.2 %";
        assert!(may_be.why.starts_with("nothing was promised") && may_be.why.ends_with(words), "{}", may_be.why);
        let is = of(0.8, 1.5, 2.0);
        assert!(is.is_loss && is.why.starts_with("it is a loss by what the run says"), "{}", is.why);
    }

    #[test]
    fn floats_of_several_rows_are_copied_and_blocks_are_not() {
        // SmolLM2 in f32 on two cores: 30.6 ms a token, 165 ms a prompt of 32 tokens. Five rows took 77 to 106 ms, two 79 to 86, and
        // the replay alone says 31 to 72 for five.
        let replayed = Estimate { low: 1.0, mid: 1.68, high: 2.35 };
        let of = |weights: Option<&str>, of_prompt: Option<f64>| {
            let facts = Facts { weights: weights.map(str::to_string), ..Facts::of(&RunManifest::default()) };
            with_panels(replayed, &facts, of_prompt)
        };
        let floats = of(Some("f32"), Some(165.0 / 30.6));
        near(floats, 1.0, 2.68, 4.35);
        for took in [77.0, 79.0, 86.0, 106.0] {
            assert!(floats.low < took / 30.6 && took / 30.6 < floats.high, "{took} ms of {floats:?}");
        }
        near(of(None, None), 1.0, 2.68, 4.35);
        near(of(Some("q8_0"), None), 1.0, 1.68, 2.35);
        // A short prompt is the most that it can be.
        near(of(Some("f32"), Some(3.0)), 1.0, 2.68, 3.0);
    }

    #[test]
    fn what_is_missing_is_named() {
        let (goal, diagnosis) = (Goal { aim: Aim::Throughput, ..Goal::default() }, Diagnosis::default());
        let of = |facts: &Facts| {
            let state = State { facts, goal: &goal, diagnosis: &diagnosis };
            let unpromised = foretold(&state, None).unwrap_err();
            assert!(!unpromised.is_loss, "{unpromised:?}");
            unpromised.why
        };
        let mut facts = Facts::of(&RunManifest::default());
        assert!(of(&facts).contains("how many steps would check tokens"));
        facts.lookup = Some(Lookup { ahead: 4, saved: 0.6, left: Some(left(0.4, 0.3)) });
        assert!(of(&facts).contains("when its tokens came"));
        facts.decoding = Some(Estimate::exact(0.9));
        facts.weight_bytes = Some(STREAMED_BYTES - 1);
        assert!(of(&facts).contains("stay in the processor's caches"));
        let missing = "no decoding step of the run can be replayed";
        let on_gpu = Facts { device: "cuda:0".into(), ..facts.clone() };
        facts.weight_bytes = Some(STREAMED_BYTES);
        assert!(of(&facts).contains(missing) && of(&on_gpu).contains(missing));
    }
}
