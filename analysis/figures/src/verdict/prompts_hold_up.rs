//! Requests that generate wait long for prompts of others.

use crate::{Analysis, HeldUp};
use candlescope_schema::Phase;
use candlescope_schema::run::{Code, Finding};

/// Shares of the time between first and last tokens from which on the waits are told.
const TELLING: f64 = 0.05;
/// And from so many decoding steps on, which the longest of them takes.
const STEPS: f64 = 2.0;

pub(super) fn find(run: &Analysis) -> Vec<Finding> {
    let decodes = run.phases.rows.iter().find(|row| row.is_phase && row.name == Phase::Decode.as_str());
    let step = decodes.and_then(|row| row.duration.as_ref()).map(|duration| duration.median);
    run.latency.held_up.zip(step).and_then(|(held_up, step)| judged(held_up, step)).into_iter().collect()
}

/// What is said where a decoding step takes `step` nanoseconds.
fn judged(held_up: HeldUp, step: f64) -> Option<Finding> {
    let share = held_up.waited_ns as f64 / held_up.generating_ns as f64;
    if share < TELLING || (held_up.longest_ns as f64) < STEPS * step {
        return None;
    }
    let message = "Requests that generate waited for prompts of others in {waited} of the time between their first and \
                   last tokens, {waits} times and up to {longest_ns}, while a step of theirs takes {step_ns}";
    let remedy = "Pass prompts in smaller pieces between steps (chunked prefill: `--prompt-piece`): each wait is shorter \
                  then, and the prompt takes longer";
    let finding = Finding::new(Code::PromptsHoldUp, message, remedy);
    Some(
        finding
            .ratio("waited", share)
            .count("waits", held_up.waits)
            .ns("longest_ns", held_up.longest_ns)
            .ns("step_ns", step as u64),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_waits_and_rare_ones_are_not_told() {
        let of = |waited_ns, longest_ns| {
            judged(HeldUp { generating_ns: 1_000_000, waited_ns, longest_ns, waits: 3 }, 10_000.0)
        };
        assert_eq!(of(200_000, 19_000), None, "no longer than steps");
        assert_eq!(of(40_000, 40_000), None, "rare");
        let finding = of(200_000, 90_000).unwrap();
        assert_eq!((finding.code.as_str(), finding.figure("waited")), ("prompts_hold_up", Some(0.2)));
        assert!(finding.message().contains("20") && finding.message().contains("3 times"), "{}", finding.message());
    }
}
