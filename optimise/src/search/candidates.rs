//! What is left to be tried, and what is not.

use super::search_state::{DiagnosedState, Search, blank, key, of_remedy};
use crate::account::{Interaction, Phase, Verdict};
use crate::combination::{Single, combinations};
use crate::foretold::foretold;
use crate::promise::{PromisedGain, promise};
use crate::quantised_prompts::with_prompts;
use crate::remedies::{self, Answers, Attempt, Remedy, State};
use crate::request_gain::of_requests;
use crate::setting::Change;
use candlescope_figures::advice::LEAST_GAIN;

/// An attempt in the list of those to be tried: of one remedy, or of several at once.
pub(super) struct Candidate {
    /// Several, where they are tried as one.
    pub(super) remedies: Vec<&'static Remedy>,
    pub(super) attempt: Attempt,
    pub(super) promised: Option<PromisedGain>,
}

impl Candidate {
    /// What its phase is called.
    pub(super) fn name(&self) -> String {
        self.remedies.iter().map(|remedy| remedy.name).collect::<Vec<_>>().join("+")
    }

    /// Its phase, about which nothing is known yet but what it promises.
    pub(super) fn phase(&self) -> Phase {
        let all = |of: fn(&Remedy) -> &str, between: &str| {
            self.remedies.iter().map(|remedy| of(remedy)).collect::<Vec<_>>().join(between)
        };
        let (title, cost) = (all(|remedy| remedy.title, " + "), all(|remedy| remedy.cost, "; "));
        let mut phase = blank(&self.name(), &title, &self.attempt.change, self.attempt.answers.clone());
        phase.cost = cost;
        phase.other_steps = self.attempt.other_steps;
        if self.remedies.len() > 1 {
            phase.members = self.remedies.iter().map(|remedy| remedy.name.to_string()).collect();
        }
        phase.promised = self.promised.as_ref().map(|promised| promised.promise.clone());
        phase.why = self.attempt.unpromised.as_ref().map_or_else(String::new, |unpromised| unpromised.why.clone());
        phase
    }
}

impl Search<'_> {
    /// What is left to be tried, the largest promise first, and what cannot be.
    pub(super) fn candidates(
        &self,
        state: &DiagnosedState,
    ) -> (Vec<Candidate>, Vec<(&'static Remedy, String)>, Vec<Interaction>) {
        let known = State { facts: &state.facts, goal: &self.options.goal, diagnosis: &state.diagnosis };
        let (mut singles, mut impossible) = (Vec::new(), Vec::new());
        for remedy in remedies::ALL {
            match (remedy.attempts)(&known) {
                Err(why) => impossible.push((*remedy, why.to_string())),
                Ok(attempts) => {
                    for mut attempt in attempts {
                        let simulation = state.simulation.as_ref();
                        let promised = match attempt.looks_up {
                            false => promise(&known, simulation, &attempt)
                                .map(|found| with_prompts(&known, &attempt, found))
                                .map(|found| found.and_then(|found| of_requests(&known, &attempt, found)))
                                .transpose(),
                            true => foretold(&known, simulation).map(Some),
                        };
                        let promised = promised.unwrap_or_else(|why| {
                            attempt.unpromised = Some(why);
                            None
                        });
                        if !self.was_there(&attempt.change) {
                            singles.push(Single { remedy, attempt, promised });
                        }
                    }
                }
            }
        }
        // What failed or must not be done is no part of anything; what gained too little by itself may be.
        let is_open = |single: &Single| !self.is_excluded(single.remedy.name, &single.attempt.change);
        singles.retain(is_open);
        let (together, interactions) = combinations(&known, state.simulation.as_ref(), &singles);
        let of_several = together.into_iter().map(|one| Candidate {
            remedies: one.members.iter().map(|at| singles[*at].remedy).collect(),
            attempt: one.attempt,
            promised: Some(one.promised),
        });
        let mut found: Vec<Candidate> = of_several.collect();
        found.extend(singles.into_iter().map(|Single { remedy, attempt, promised }| Candidate {
            remedies: vec![remedy],
            attempt,
            promised,
        }));
        let gain = |candidate: &Candidate| candidate.promised.as_ref().map_or(0.0, |promised| promised.promise.mid);
        found.retain(|candidate| {
            let promises = candidate.promised.is_some() && gain(candidate) >= LEAST_GAIN;
            !self.was_tried(&candidate.name(), &candidate.attempt.change, promises)
                && !self.was_there(&candidate.attempt.change)
        });
        // Those without a promise keep the order of the list, behind those with one.
        found.sort_by(|a, b| gain(b).total_cmp(&gain(a)));
        (found, impossible, interactions)
    }

    /// Whether a change failed, or must not be made.
    fn is_excluded(&self, name: &str, change: &Change) -> bool {
        let is_out = |phase: &Phase| matches!(phase.verdict, Verdict::Failed | Verdict::Refused);
        self.account.phases.iter().any(|phase| phase.remedy == name && phase.change == *change && is_out(phase))
    }

    /// A change that was tried is not tried again, unless something was kept since, it had failed for its gain or for a
    /// limit of time alone, and something promises that it gains now.
    pub(super) fn was_tried(&self, name: &str, change: &Change, promises: bool) -> bool {
        let kept = self.account.phases.iter().rposition(|phase| phase.verdict == Verdict::Kept);
        self.account.phases.iter().enumerate().any(|(at, phase)| {
            let is_old = kept.is_some_and(|kept| at < kept) && promises;
            // Little, or nothing: what was a loss before may be a gain now.
            let promised_little = phase.promised.as_ref().is_none_or(|promised| promised.mid < LEAST_GAIN);
            let is_settled = match phase.verdict {
                Verdict::Kept | Verdict::Failed | Verdict::Refused => true,
                Verdict::Rejected => !is_old,
                Verdict::NotTried => !(is_old && promised_little),
            };
            // One that an earlier call left undecided, and that has time for more pairs now.
            let is_open = phase.undecided && self.again.contains(&key(phase));
            phase.remedy == name && phase.change == *change && is_settled && !is_open
        })
    }

    /// Whether a change leads back to a setting that there was before.
    fn was_there(&self, change: &Change) -> bool {
        let next = self.account.setting.with(change);
        let kept = self.account.phases.iter().filter(|phase| phase.verdict == Verdict::Kept);
        let mut setting = self.account.baseline.clone();
        let mut there = setting == next;
        for phase in kept {
            setting = setting.with(&phase.change);
            there |= setting == next;
        }
        there
    }

    /// Notes what is not tried for lack of time.
    pub(super) fn leave(&mut self, candidate: Candidate, why: &str) {
        let mut phase = candidate.phase();
        // What was said of it before stands behind.
        let said = Some(phase.why).filter(|said| !said.is_empty()).map_or_else(String::new, |said| format!("; {said}"));
        (phase.verdict, phase.why) = (Verdict::NotTried, format!("{why}{said}"));
        self.put(phase);
    }

    /// Notes what is not possible here, once for each remedy that was never tried.
    pub(super) fn note_impossible(&mut self, impossible: Vec<(&'static Remedy, String)>) {
        for (remedy, why) in impossible {
            let is_of_it =
                |phase: &Phase| phase.remedy == remedy.name || phase.members.iter().any(|member| member == remedy.name);
            if self.account.phases.iter().any(is_of_it) {
                continue;
            }
            let mut phase = of_remedy(remedy, &Change::default(), Answers::Same);
            (phase.verdict, phase.why) = (Verdict::NotTried, format!("not possible here: {why}"));
            self.account.phases.push(phase);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(names: &[&str]) -> Candidate {
        let remedies = remedies::ALL.iter().copied().filter(|remedy| names.contains(&remedy.name)).collect();
        let change = Change::default().option("max-num-seqs", 1).option("quantize", "q8_0");
        Candidate { remedies, attempt: Attempt::new(change), promised: None }
    }

    #[test]
    fn several_remedies_are_one_row_that_names_them() {
        let phase = candidate(&["slots", "weight_bits"]).phase();
        assert_eq!(
            (phase.remedy.as_str(), &phase.members[..]),
            ("slots+weight_bits", &["slots", "weight_bits"].map(String::from)[..])
        );
        assert!(phase.title.contains(" + Weights of 8 or 4 bits") && phase.cost.contains("; the quality"), "{phase:?}");
        let single = candidate(&["slots"]).phase();
        assert_eq!((single.remedy.as_str(), single.members.len()), ("slots", 0));
    }
}
