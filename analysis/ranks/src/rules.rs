//! What is told of ranks, and when.

use super::facts::{Judged, RankAnalysis, longest, mean, median};
use super::rank_finding::{RankCode, RankFinding};
use candlescope_schema::numbers::{duration, percent};

/// A rank is a straggler if its own time is the longest in more than this share of steps.
const MOST_STEPS: f64 = 0.6;
/// And if chance makes that, where each rank is as likely, less often than this.
const CHANCE: f64 = 0.001;
/// What is less than this share of a step is not told.
const WORTH: f64 = 0.03;
/// A link that carries less than this share of what it can is told of.
const SLOW_LINK: f64 = 0.5;
/// Fewest steps to judge.
pub(crate) const LEAST_STEPS: usize = 8;

/// The findings, the largest first.
pub(crate) fn findings(analysis: &RankAnalysis, judged: &[Judged]) -> Vec<RankFinding> {
    let mut found: Vec<RankFinding> = Vec::new();
    // Without anything that ranks do together nobody waits for another.
    if judged.len() >= LEAST_STEPS && analysis.matched > 0 {
        found.extend(straggler(analysis, judged).or_else(|| imbalance(judged)));
        found.extend(exposed(analysis, judged));
    }
    found.extend(slow_links(analysis));
    found.sort_by(|a, b| b.gain.unwrap_or(0.0).total_cmp(&a.gain.unwrap_or(0.0)));
    found
}

/// A sum over steps as a share of all steps' time on a mean rank.
fn share(judged: &[Judged], of: impl Fn(&Judged) -> f64) -> f64 {
    let all: f64 = judged.iter().map(|step| mean(step.step.iter().copied())).sum();
    if all > 0.0 { judged.iter().map(of).sum::<f64>() / all } else { 0.0 }
}

fn straggler(analysis: &RankAnalysis, judged: &[Judged]) -> Option<RankFinding> {
    let (at, slow) = analysis.ranks.iter().enumerate().max_by_key(|(_, rank)| rank.longest)?;
    let steps = judged.len();
    if slow.longest as f64 <= MOST_STEPS * steps as f64 || by_chance(slow.longest, steps, analysis.ranks.len()) > CHANCE
    {
        return None;
    }
    let others = |step: &Judged| {
        step.own.iter().enumerate().filter(|(rank, _)| *rank != at).map(|(_, own)| *own).fold(0.0, f64::max)
    };
    let gain = share(judged, |step| (step.own[at] - others(step)).max(0.0));
    if gain <= WORTH {
        return None;
    }
    let beside = median(analysis.ranks.iter().filter(|rank| rank.rank != slow.rank).map(|rank| rank.own_ns).collect());
    Some(RankFinding {
        code: RankCode::StragglerRank,
        text: format!(
            "Rank {} takes {} of its own a step, the others {} (medians): it was the slowest in {} of {} steps, and the others wait for \
             it.",
            slow.rank,
            duration(slow.own_ns),
            duration(beside),
            slow.longest,
            steps
        ),
        remedy: format!(
            "Compare rank {} with another (`candlescope compare`): its device, its clocks and its share of the work",
            slow.rank
        ),
        gain: Some(gain),
        rank: Some(slow.rank),
    })
}

/// How often chance makes one of `ranks` the longest in at least so many of these steps.
fn by_chance(longest: usize, steps: usize, ranks: usize) -> f64 {
    let p = 1.0 / ranks as f64;
    // log of the binomial's terms, from the largest number down.
    let log = |n: usize| (1..=n).map(|k| (k as f64).ln()).sum::<f64>();
    let all = log(steps);
    let term =
        |k: usize| (all - log(k) - log(steps - k) + k as f64 * p.ln() + (steps - k) as f64 * (1.0 - p).ln()).exp();
    (ranks as f64 * (longest..=steps).map(term).sum::<f64>()).min(1.0)
}

fn imbalance(judged: &[Judged]) -> Option<RankFinding> {
    let most = |step: &Judged| step.own.iter().copied().fold(0.0, f64::max);
    let lost = share(judged, |step| most(step) - mean(step.own.iter().copied()));
    let at_all = judged.iter().any(|step| longest(&step.own).is_some());
    (at_all && lost > WORTH).then(|| RankFinding {
        code: RankCode::RankImbalance,
        text: format!(
            "The slowest rank of a step takes {} of a step longer than the mean, and it is not always the same one.",
            percent(lost)
        ),
        remedy: "Give ranks equal shares of each step; look for what else runs on their machines".to_string(),
        gain: Some(lost),
        rank: None,
    })
}

fn exposed(analysis: &RankAnalysis, judged: &[Judged]) -> Option<RankFinding> {
    let share = share(judged, |step| mean(step.exposed_transfer.iter().copied()));
    let what = match analysis.source {
        super::Source::Host => "the host does nothing else",
        super::Source::Kernels => "the device computes nothing",
        // What else the device did is only known from its kernels.
        super::Source::DeviceTime | super::Source::Unknown => return None,
    };
    (share > WORTH).then(|| RankFinding {
        code: RankCode::ExposedCommunication,
        text: format!("Transfers of collectives take {} of a step, in which {what}.", percent(share)),
        remedy: "Overlap them with computing of another part, send fewer bytes (16 bits, a part of the layers in parallel), or larger \
                 pieces"
            .to_string(),
        gain: Some(share),
        rank: None,
    })
}

fn slow_links(analysis: &RankAnalysis) -> impl Iterator<Item = RankFinding> + '_ {
    analysis.collectives.iter().filter_map(|of| {
        let (bus, link) = (of.bus_bytes_per_s?, of.link_bytes_per_s?);
        (bus < SLOW_LINK * link).then(|| RankFinding {
            code: RankCode::BusBandwidth,
            text: format!(
                "`{}` of 8 MiB and more reaches {:.0} GB/s on the bus (measured); the link carries {:.0} GB/s in one direction \
                 (datasheet).",
                of.kind.name(),
                bus / 1e9,
                link / 1e9
            ),
            remedy: "Look at NCCL_DEBUG=INFO for the transport that was chosen, and at `nvidia-smi topo -m`".to_string(),
            gain: None,
            rank: None,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chance_makes_one_of_two_the_slowest_often() {
        // Of 8 steps, at least 5 by one of two: 0.363 for each.
        assert!((by_chance(5, 8, 2) - 0.7266).abs() < 1e-3);
        assert!(by_chance(30, 30, 2) < 1e-8 && by_chance(20, 30, 8) < 1e-9);
    }
}
