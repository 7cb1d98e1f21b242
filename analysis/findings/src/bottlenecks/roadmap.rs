//! The order of remedies: each time the one that gains the most once those before it are had.
//!
//! What one finding leaves is another's to take: kernels that gain nothing while the device waits for launches are the limit
//! once a graph launches them. So findings that gain nothing by themselves are looked at, too.

use super::draft::{Candidate, each_once, replayed_gain};
use super::scene::StepScene;
use super::two_lines::Relief;
use candlescope_figures::advice::{LEAST_GAIN, Roadmap, RoadmapStage};
use candlescope_predict::simulation::Change;
use candlescope_work::estimate::Estimate;

/// Most stages: further ones rest on too many guesses.
const STAGES: usize = 6;

/// The order of remedies for a kind of step; `None` with less than two of them.
pub(super) fn of(step: &StepScene<'_>, found: &[Candidate]) -> Option<Roadmap> {
    let is_own = |candidate: &&Candidate| {
        let advice = &candidate.advice;
        advice.place.phase == step.name && !advice.disturbed && !advice.code.is_of_figures()
    };
    let mut left: Vec<&Candidate> = found.iter().filter(is_own).filter(|found| !found.reliefs[0].is_empty()).collect();
    let (mut had, mut stages, mut before) = (Vec::new(), Vec::<RoadmapStage>::new(), Estimate::default());
    while stages.len() < STAGES {
        // The lines tell which is next: a replay of every choice would take minutes.
        let so_far = lines(step, &had).mid;
        let gains = |with: &Candidate| lines(step, &[&had[..], &[with]].concat()).mid - so_far;
        let Some((at, _)) = left
            .iter()
            .enumerate()
            .map(|(at, candidate)| (at, gains(candidate)))
            .filter(|(_, gain)| *gain >= LEAST_GAIN)
            .max_by(|a, b| a.1.total_cmp(&b.1))
        else {
            break;
        };
        let next = left.remove(at);
        had.push(next);
        let after = match replayed(step, &had) {
            Some(after) => after,
            // What a replay does not know adds what the lines say of it: two estimators are never subtracted.
            None => {
                let (with, without) = (lines(step, &had), lines(step, &had[..had.len() - 1]));
                let add = |of: fn(&Estimate) -> f64| (of(&before) + of(&with) - of(&without)).clamp(0.0, 1.0);
                let (low, mid, high) = (add(|e| e.low), add(|e| e.mid), add(|e| e.high));
                Estimate { low: low.min(mid), mid, high: high.max(mid) }
            }
        };
        // What a replay does not gain is no stage, whatever the lines say.
        if after.mid - before.mid < LEAST_GAIN {
            had.pop();
            continue;
        }
        let gain = after.mid - before.mid;
        before = after;
        let place = &next.advice.place;
        stages.push(RoadmapStage {
            code: next.advice.code,
            path: place.path.clone(),
            kernel: place.kernel.clone(),
            alone: next.advice.gain.mid,
            gain,
            so_far: after,
        });
    }
    (stages.len() > 1).then(|| Roadmap { phase: step.name.to_string(), stages })
}

/// What these gain by the step's two lines.
fn lines(step: &StepScene<'_>, had: &[&Candidate]) -> Estimate {
    let reliefs = [0, 1, 2].map(|at| had.iter().flat_map(|found| found.reliefs[at].clone()).collect::<Vec<Relief>>());
    step.lines.gain(&reliefs)
}

/// The same by replaying the step, if a replay knows all of them.
fn replayed(step: &StepScene<'_>, had: &[&Candidate]) -> Option<Estimate> {
    let known: Vec<_> = had.iter().map(|found| found.replay.as_ref()).collect::<Option<_>>()?;
    let replay: [Vec<Change>; 3] = [0, 1, 2].map(|at| each_once(known.iter().flat_map(|replay| replay[at].clone())));
    replayed_gain(step, &replay)
}
