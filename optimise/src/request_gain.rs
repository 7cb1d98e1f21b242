//! What steps gain, as a gain of requests.
//!
//! A remedy that cuts the work into other steps is judged by requests, so its promise is of what they are judged by: of the
//! mean request's time, or of the time that a token takes of all requests together.
//!
//! gain = Σ gain of a kind of step · share of that time that such steps take
//!
//! What steps gain that neither pass prompts nor decode is left out.

use crate::goal::Aim;
use crate::promise::PromisedGain;
use crate::remedies::{Attempt, NoPromise, State};
use crate::time_shares::of_share;
use crate::words::gain as in_words;
use candlescope_core::Phase;
use candlescope_work::estimate::Estimate;

/// The promise of an attempt by which requests decide, as a share of their time; as it is where steps decide.
///
/// # Errors
/// Why nothing is promised: the run does not say what prompts take of its requests' time, or it may be a loss.
pub(crate) fn of_requests(
    state: &State<'_>,
    attempt: &Attempt,
    promised: PromisedGain,
) -> Result<PromisedGain, NoPromise> {
    if !attempt.other_steps {
        return Ok(promised);
    }
    let shares = match state.goal.aim {
        Aim::Throughput => state.facts.of_wall,
        // Goodput is judged by no share of time.
        Aim::Latency | Aim::Goodput => state.facts.of_requests,
    };
    let Some(shares) = shares else {
        let why = "nothing was promised: the run does not say how much of its requests' time prompts take".to_string();
        return Err(NoPromise { why, is_loss: false });
    };
    let PromisedGain { mut promise, by_kind, changes } = promised;
    let (mut sum, mut most) = (Estimate::default(), 0.0_f64);
    for (phase, share) in [(Phase::Prefill, shares.prompts), (Phase::Decode, shares.decoding)] {
        let of_steps = by_kind.get(phase.as_str()).copied().unwrap_or_default();
        let gain = of_share(of_steps, share);
        most = most.max(of_steps.high);
        sum = Estimate { low: sum.low + gain.low, mid: sum.mid + gain.mid, high: sum.high + gain.high };
    }
    // The most of both shares may be more than all of the time, of which no part gains more than its steps.
    sum.high = sum.high.min(most).max(sum.mid);
    if sum.low < 0.0 {
        let figures = format!("requests gain {} to {}", in_words(sum.low), in_words(sum.high));
        return Err(NoPromise::for_a_loss(sum.high <= 0.0, &figures));
    }
    (promise.low, promise.mid, promise.high) = (sum.low, sum.mid, sum.high);
    Ok(PromisedGain { promise, by_kind, changes })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::account::Promise;
    use crate::facts::Facts;
    use crate::goal::Goal;
    use crate::promise::ByKind;
    use crate::setting::Change;
    use crate::time_shares::TimeShares;
    use candlescope_core::run::RunManifest;
    use candlescope_figures::advice::Diagnosis;

    fn gain(by_kind: &[(&str, f64)], aim: Aim, facts: &Facts, other_steps: bool) -> Result<Estimate, NoPromise> {
        let (goal, diagnosis) = (Goal { aim, ..Goal::default() }, Diagnosis::default());
        let state = State { facts, goal: &goal, diagnosis: &diagnosis };
        let by_kind: ByKind = by_kind.iter().map(|(kind, gain)| (kind.to_string(), Estimate::exact(*gain))).collect();
        let promise = Promise::of(Estimate::exact(0.7), "prefix_recomputed", None);
        let attempt = Attempt { other_steps, ..Attempt::new(Change::default()) };
        let promised = of_requests(&state, &attempt, PromisedGain { promise, by_kind, changes: Vec::new() })?;
        let Promise { low, mid, high, code, .. } = promised.promise;
        assert_eq!(code, "prefix_recomputed");
        Ok(Estimate { low, mid, high })
    }

    fn facts() -> Facts {
        let prompts = Estimate { low: 0.5, mid: 0.5, high: 0.6 };
        let of_requests = Some(TimeShares { prompts, decoding: Estimate::exact(0.25) });
        let of_wall = Some(TimeShares { prompts: Estimate::exact(0.3), decoding: Estimate::exact(0.6) });
        Facts { of_requests, of_wall, ..Facts::of(&RunManifest::default()) }
    }

    #[test]
    fn what_a_prompt_gains_is_a_share_of_what_requests_are_judged_by() {
        let of = |aim| gain(&[("prefill", 0.8)], aim, &facts(), true).unwrap();
        let near = |is: Estimate, low: f64, mid: f64, high: f64| {
            for (is, right) in [(is.low, low), (is.mid, mid), (is.high, high)] {
                assert!((is - right).abs() < 1e-12, "{is} is not {right}");
            }
        };
        near(of(Aim::Latency), 0.4, 0.4, 0.48);
        near(of(Aim::Goodput), 0.4, 0.4, 0.48);
        near(of(Aim::Throughput), 0.24, 0.24, 0.24);
        // Other kinds of steps at once.
        let several = [("decode", 0.4), ("prefill", 0.8), ("sample", 0.9)];
        near(gain(&several, Aim::Latency, &facts(), true).unwrap(), 0.5, 0.5, 0.58);
        // Of which both may take nearly all, but not both at once.
        let most = Estimate { low: 0.2, mid: 0.5, high: 0.9 };
        let shares = Some(TimeShares { prompts: most, decoding: most });
        let both = [("decode", 0.8), ("prefill", 0.8)];
        let wide = Facts { of_requests: shares, ..facts() };
        near(gain(&both, Aim::Latency, &wide, true).unwrap(), 0.32, 0.8, 0.8);
        // Where steps decide, it stays a share of theirs.
        near(gain(&[("prefill", 0.8)], Aim::Latency, &facts(), false).unwrap(), 0.7, 0.7, 0.7);
    }

    #[test]
    fn what_requests_do_not_say_or_may_lose_is_not_promised() {
        let unknown = Facts { of_requests: None, ..facts() };
        let why = gain(&[("prefill", 0.8)], Aim::Latency, &unknown, true).unwrap_err();
        assert!(!why.is_loss && why.why.contains("does not say how much"), "{why:?}");
        assert!(gain(&[("prefill", 0.8)], Aim::Throughput, &unknown, true).is_ok());
        let may_be = gain(&[("decode", 0.9), ("prefill", -0.4)], Aim::Latency, &facts(), true).unwrap_err();
        assert!(!may_be.is_loss && may_be.why.contains("requests gain −1.5 % to 2.5 %"), "{may_be:?}");
        assert!(gain(&[("decode", 0.1), ("prefill", -0.4)], Aim::Latency, &facts(), true).unwrap_err().is_loss);
    }
}
