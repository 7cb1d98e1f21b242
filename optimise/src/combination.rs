//! Remedies whose gains do not add up, as findings or the replay of a step say: several that gain more together than each by itself are
//! tried as one, and of those that gain no more together than the larger alone, no sum is promised.
//!
//! What findings gain together is simulated and never added up ([`JointGain`], and the stages of a [`Roadmap`]); where a replay
//! knows the remedies' own changes, it is asked for both at once.
//!
//! [`JointGain`]: candlescope_figures::advice::JointGain
//! [`Roadmap`]: candlescope_figures::advice::Roadmap

use crate::account::{Interaction, Promise};
use crate::promise::{ByKind, PromisedGain, TOGETHER, of_replay, of_run};
use crate::quantised_prompts::with_prompts;
use crate::remedies::{Answers, Attempt, Remedy, State};
use crate::request_gain::of_requests;
use crate::setting::Change;
use candlescope_figures::advice::{AdviceCode, Diagnosis, LEAST_GAIN};
use candlescope_predict::simulation::{Change as Simulated, Simulation};
use candlescope_work::estimate::Estimate;
use std::collections::{BTreeMap, BTreeSet};

/// A share of the run's step time by which a sum has to be surpassed: a trial cannot tell less.
const MARGIN: f64 = 0.02;

/// An attempt of a remedy, with what it promises by itself.
#[derive(Debug, Clone)]
pub(crate) struct Single {
    pub(crate) remedy: &'static Remedy,
    pub(crate) attempt: Attempt,
    pub(crate) promised: Option<PromisedGain>,
}

impl Single {
    fn gain(&self) -> f64 {
        self.promised.as_ref().map_or(0.0, |promised| promised.promise.mid)
    }

    /// Whether its gain is that of a replay, and not of findings.
    fn is_replayed(&self) -> bool {
        self.promised.as_ref().is_some_and(|promised| !promised.changes.is_empty())
    }
}

/// Several of them as one: more than their sum is promised.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Combination {
    /// Their places among the singles.
    pub(crate) members: Vec<usize>,
    pub(crate) attempt: Attempt,
    pub(crate) promised: PromisedGain,
}

/// What these attempts gain together, where that is not what they gain by themselves: those to be tried as one, and all of
/// them for the account.
pub(crate) fn combinations(
    state: &State<'_>,
    simulation: Option<&Simulation>,
    singles: &[Single],
) -> (Vec<Combination>, Vec<Interaction>) {
    let told = told(state.diagnosis, singles);
    let sets: BTreeSet<&Vec<usize>> = told.iter().map(|told| &told.members).collect();
    let (mut found, mut interactions) = (Vec::new(), Vec::new());
    // What each gains by itself is of the same source as what they gain together: a replay's gain is not the finding's.
    let mut judge = |members: &[usize], attempt: Attempt, promised: PromisedGain, alone: &[f64]| {
        let (gain, sum) = (promised.promise.mid, alone.iter().sum::<f64>());
        let largest = alone.iter().copied().fold(0.0, f64::max);
        let none_is_told = alone.iter().all(|gain| *gain < LEAST_GAIN);
        let is_more = gain >= sum + MARGIN || (none_is_told && gain >= LEAST_GAIN);
        // What nobody promises anything of does not add up either, and there is nothing to say of it.
        let is_no_more = largest >= LEAST_GAIN && gain < largest + LEAST_GAIN;
        let together = (promised.promise.low, gain, promised.promise.high);
        // Of what prompts take with quantised weights findings know nothing, together as little as each by itself.
        let of_member = |promised, at: &usize| with_prompts(state, &singles[*at].attempt, promised);
        let promised = members.iter().try_fold(promised, of_member);
        // Where requests decide of one, they decide of all.
        let promised = promised.and_then(|promised| of_requests(state, &attempt, promised)).ok().filter(|_| is_more);
        let is_more = promised.is_some();
        if is_more || is_no_more {
            interactions.push(Interaction {
                members: members.iter().map(|at| singles[*at].remedy.name.to_string()).collect(),
                change: attempt.change.clone(),
                alone: alone.to_vec(),
                together,
                tried_as_one: is_more,
            });
        }
        if let Some(promised) = promised {
            found.push(Combination { members: members.to_vec(), attempt, promised });
        }
    };
    for members in sets {
        let Some(attempt) = merged(state, singles, members) else { continue };
        let Some(promised) = of_findings(state, singles, members, &told) else { continue };
        // A replay that promises more of one knows more than the findings of all.
        if members.iter().any(|at| singles[*at].is_replayed() && singles[*at].gain() > promised.promise.mid) {
            continue;
        }
        let alone: Vec<f64> = members.iter().map(|at| alone(state.diagnosis, &singles[*at].attempt)).collect();
        judge(members, attempt, promised, &alone);
    }
    for members in pairs(singles) {
        let both: Option<Vec<Simulated>> = members.iter().map(|at| singles[*at].attempt.simulated.clone()).collect();
        let Some((changes, simulation)) = both.zip(simulation) else { continue };
        let Some(attempt) = merged(state, singles, &members) else { continue };
        let Some(replayed) = of_replay(state, simulation, changes) else { continue };
        let Some(promised) = completed(state, singles, &members, replayed) else { continue };
        judge(&members, attempt, promised, &members.map(|at| singles[at].gain()));
    }
    (found, interactions)
}

/// What findings of a kind of step gain together, all of which singles obtain.
struct CombinedGain {
    kind: String,
    /// In ascending order, each once.
    members: Vec<usize>,
    gain: Estimate,
}

fn told(diagnosis: &Diagnosis, singles: &[Single]) -> Vec<CombinedGain> {
    let together = diagnosis.together.iter().map(|one| (&one.phase, one.codes.clone(), one.gain));
    let stages = diagnosis.roadmaps.iter().flat_map(|roadmap| {
        let codes = |n: usize| roadmap.stages[..n].iter().map(|stage| stage.code).collect::<Vec<_>>();
        (2..=roadmap.stages.len()).map(move |n| (&roadmap.phase, codes(n), roadmap.stages[n - 1].so_far))
    });
    let one = |(kind, codes, gain): (&String, Vec<AdviceCode>, Estimate)| {
        // What another program may have done is nobody's to obtain.
        let is_disturbed = diagnosis
            .findings
            .iter()
            .any(|advice| advice.disturbed && advice.place.phase == *kind && codes.contains(&advice.code));
        let members: Option<BTreeSet<usize>> = codes.iter().map(|code| obtaining(*code, singles)).collect();
        let members = members.filter(|members| members.len() > 1 && !is_disturbed)?;
        Some(CombinedGain { kind: kind.clone(), members: members.into_iter().collect(), gain })
    };
    together.chain(stages).filter_map(one).collect()
}

/// The single that obtains a finding: of several the one that promises most, and of these the first.
fn obtaining(code: AdviceCode, singles: &[Single]) -> Option<usize> {
    let of_code = singles.iter().enumerate().filter(|(_, single)| single.attempt.obtains.contains(&code));
    of_code.rev().max_by(|(_, a), (_, b)| a.gain().total_cmp(&b.gain())).map(|(at, _)| at)
}

/// What the findings that an attempt obtains gain the run, all of them added up: together they gain no more by themselves.
fn alone(diagnosis: &Diagnosis, attempt: &Attempt) -> f64 {
    let of_kind = |kind: &str| -> f64 {
        let findings = diagnosis.findings.iter().filter(|advice| advice.place.phase == kind && !advice.disturbed);
        let mut sums: BTreeMap<AdviceCode, f64> = BTreeMap::new();
        findings.for_each(|advice| *sums.entry(advice.code).or_default() += advice.gain.mid);
        // Stages know what was too little to be a finding.
        let stages = diagnosis.roadmaps.iter().filter(|roadmap| roadmap.phase == kind).flat_map(|map| &map.stages);
        let mut of_stages: BTreeMap<AdviceCode, f64> = BTreeMap::new();
        stages.for_each(|stage| *of_stages.entry(stage.code).or_default() += stage.alone);
        let gain = |code: &AdviceCode| {
            let of = |all: &BTreeMap<AdviceCode, f64>| all.get(code).copied().unwrap_or(0.0);
            of(&sums).max(of(&of_stages))
        };
        attempt.obtains.iter().map(gain).sum()
    };
    diagnosis.steps.iter().map(|step| step.share_of_time * of_kind(&step.phase)).sum()
}

/// What the findings of these gain the run together: of each kind of step the largest set that is known, else the largest of
/// the members' own.
fn of_findings(
    state: &State<'_>,
    singles: &[Single],
    members: &[usize],
    told: &[CombinedGain],
) -> Option<PromisedGain> {
    let mut by_kind = ByKind::new();
    for step in &state.diagnosis.steps {
        let of_kind = told.iter().filter(|told| told.kind == step.phase);
        let known = of_kind.filter(|told| told.members.iter().all(|member| members.contains(member)));
        // Of several estimates of a set, the first: that of all findings together.
        if let Some(told) = known.rev().max_by_key(|told| told.members.len()) {
            by_kind.insert(step.phase.clone(), told.gain);
        }
    }
    let rests =
        PromisedGain { promise: Promise::of(Estimate::default(), TOGETHER, None), by_kind, changes: Vec::new() };
    completed(state, singles, members, rests)
}

/// With the largest of the members' own gains for kinds of steps of which nothing is known of all of them.
fn completed(state: &State<'_>, singles: &[Single], members: &[usize], promised: PromisedGain) -> Option<PromisedGain> {
    let PromisedGain { mut promise, mut by_kind, changes } = promised;
    // To gains of findings no gain of a replay is added.
    let members =
        || members.iter().map(|at| &singles[*at]).filter(|single| !(changes.is_empty() && single.is_replayed()));
    for (kind, gain) in members().flat_map(|single| &single.promised).flat_map(|promised| &promised.by_kind) {
        if !by_kind.contains_key(kind) {
            let own = members().filter_map(|single| single.promised.as_ref()?.by_kind.get(kind));
            let largest = own.max_by(|a, b| a.mid.total_cmp(&b.mid)).unwrap_or(gain);
            by_kind.insert(kind.clone(), *largest);
        }
    }
    let gain = of_run(state, &by_kind)?;
    (promise.low, promise.mid, promise.high) = (gain.low, gain.mid, gain.high);
    Some(PromisedGain { promise, by_kind, changes })
}

/// Each two of different remedies.
fn pairs(singles: &[Single]) -> impl Iterator<Item = [usize; 2]> + '_ {
    let all = 0..singles.len();
    all.flat_map(move |a| (a + 1..singles.len()).map(move |b| [a, b]))
        .filter(|[a, b]| singles[*a].remedy.name != singles[*b].remedy.name)
}

/// All of them as one attempt; `None` if one of them is not possible once the others are made.
fn merged(state: &State<'_>, singles: &[Single], members: &[usize]) -> Option<Attempt> {
    let backwards: Vec<usize> = members.iter().rev().copied().collect();
    // What a remedy changes may depend on what is there: as many slots as sequences.
    in_order(state, singles, members).or_else(|| in_order(state, singles, &backwards))
}

fn in_order(state: &State<'_>, singles: &[Single], members: &[usize]) -> Option<Attempt> {
    let (mut facts, mut change, mut answers) = (state.facts.clone(), Change::default(), Answers::Same);
    let mut other_steps = false;
    for at in members {
        let single = &singles[*at];
        let known = State { facts: &facts, goal: state.goal, diagnosis: state.diagnosis };
        let attempts = (single.remedy.attempts)(&known).ok()?;
        let attempt = same(&attempts, &single.attempt)?;
        change = change.and(&attempt.change)?;
        answers = weaker(answers, attempt.answers.clone())?;
        other_steps |= attempt.other_steps;
        facts = facts.with(&attempt.change);
    }
    Some(Attempt { other_steps, ..Attempt::new(change).answers(answers) })
}

/// The attempt that was meant, among those of its remedy as they are now: the same change, or the only one of the same options.
fn same<'a>(attempts: &'a [Attempt], meant: &Attempt) -> Option<&'a Attempt> {
    if let Some(equal) = attempts.iter().find(|attempt| attempt.change == meant.change) {
        return Some(equal);
    }
    let names =
        |change: &Change| -> Vec<String> { change.options.keys().chain(change.environment.keys()).cloned().collect() };
    let mut alike = attempts.iter().filter(|attempt| names(&attempt.change) == names(&meant.change));
    alike.next().filter(|_| alike.next().is_none())
}

/// What may become of answers with both; `None` where nobody has measured the quality of both at once.
fn weaker(a: Answers, b: Answers) -> Option<Answers> {
    match (a, b) {
        (Answers::Variant(a), Answers::Variant(b)) => (a == b).then_some(Answers::Variant(a)),
        (Answers::Variant(variant), _) | (_, Answers::Variant(variant)) => Some(Answers::Variant(variant)),
        (Answers::Same, Answers::Same) => Some(Answers::Same),
        _ => Some(Answers::Rounded),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::Facts;
    use crate::goal::Goal;
    use crate::promise::promise;
    use crate::remedies::ALL;
    use candlescope_core::run::RunManifest;
    use candlescope_figures::advice::{
        Advice, AdvicePlace, AdviceSeverity, Confidence, ConfidenceLevel, Coverage, JointGain, Roadmap, RoadmapStage,
        UnobservedStep,
    };

    fn facts() -> Facts {
        let facts = Facts::of(&RunManifest::default());
        Facts {
            is_ours: true,
            weights: Some("f32".into()),
            weight_bits: Some(32.0),
            dtype: Some("f32".into()),
            ..facts
        }
    }

    fn around(mid: f64) -> Estimate {
        Estimate { low: mid / 2.0, mid, high: mid * 1.5 }
    }

    fn finding(code: AdviceCode, gain: f64) -> Advice {
        Advice {
            code,
            severity: AdviceSeverity::Low,
            place: AdvicePlace::of("decode"),
            evidence: Vec::new(),
            query: String::new(),
            coverage: Coverage { steps: 20, share_of_time: 0.8 },
            gain: around(gain),
            confidence: Confidence { level: ConfidenceLevel::High, reason: "made" },
            disturbed: false,
            record: None,
        }
    }

    /// Decode takes 80 % of the time; what its findings gain, and all of them together.
    fn diagnosis(findings: &[(AdviceCode, f64)], together: f64) -> Diagnosis {
        let step = |phase: &str, share_of_time: f64| UnobservedStep {
            phase: phase.to_string(),
            n: 20,
            observed_ns: 1e6,
            unobserved_ns: 1e6,
            bound_ns: None,
            range_ns: None,
            basis: "made",
            device_ns: None,
            share_of_time,
        };
        let codes = findings.iter().map(|(code, _)| *code).collect();
        Diagnosis {
            steps: vec![step("decode", 0.8), step("prefill", 0.2)],
            findings: findings.iter().map(|(code, gain)| finding(*code, *gain)).collect(),
            together: vec![JointGain { phase: "decode".into(), codes, gain: around(together) }],
            ..Diagnosis::default()
        }
    }

    fn found(facts: &Facts, diagnosis: &Diagnosis) -> (Vec<Combination>, Vec<Interaction>) {
        let goal = Goal::default();
        let state = State { facts, goal: &goal, diagnosis };
        let mut singles = Vec::new();
        for remedy in ALL {
            for attempt in (remedy.attempts)(&state).unwrap_or_default() {
                let promised = promise(&state, None, &attempt);
                singles.push(Single { remedy, attempt, promised });
            }
        }
        combinations(&state, None, &singles)
    }

    use AdviceCode::{CacheCopied, DataMovement, PageFaults, SerialPart, WeightStreaming};

    #[test]
    fn what_gains_more_together_is_one_attempt_with_all_settings() {
        let (found, interactions) = found(&facts(), &diagnosis(&[(CacheCopied, 0.05), (WeightStreaming, 0.10)], 0.25));
        let [one] = &found[..] else { panic!("{found:?}") };
        assert_eq!(one.attempt.change.words(), "without --dtype --max-num-seqs=1 --quantize=q8_0");
        assert_eq!(one.attempt.answers, Answers::Variant("q8_0".into()), "the weaker of both");
        // By the share that decode has of the time, and not 12 %, the sum.
        assert!((one.promised.promise.mid - 0.8 * 0.25).abs() < 1e-12, "{one:?}");
        assert_eq!((one.promised.promise.code.as_str(), one.promised.by_kind["decode"]), ("together", around(0.25)));
        let [told] = &interactions[..] else { panic!("{interactions:?}") };
        assert_eq!(told.members, ["slots", "weight_bits"]);
        assert!(told.tried_as_one && (told.alone[1] - 0.08).abs() < 1e-12, "{told:?}");
    }

    #[test]
    fn what_prompts_take_with_quantised_weights_is_in_the_promise_of_several() {
        let findings = [(CacheCopied, 0.05), (WeightStreaming, 0.10)];
        let of = |prompt_ns: f64| {
            let mut diagnosis = diagnosis(&findings, 0.25);
            diagnosis.steps[1].unobserved_ns = prompt_ns;
            // What prompts gain together by findings is no gain with quantised weights.
            let codes = findings.iter().map(|(code, _)| *code).collect();
            diagnosis.together.push(JointGain { phase: "prefill".into(), codes, gain: around(0.3) });
            found(&Facts { prompt_rows: Some(10.0), ..facts() }, &diagnosis)
        };
        // Ten rows of a step of 0.75 ms, each six tenths of it: 4.5 ms, where a prompt takes 5 ms.
        let (found, interactions) = of(5e6);
        let [one] = &found[..] else { panic!("{found:?}") };
        assert!((one.promised.by_kind["prefill"].mid - 0.1).abs() < 1e-12, "{one:?}");
        assert!((one.promised.promise.mid - (0.8 * 0.25 + 0.2 * 0.1)).abs() < 1e-12, "{one:?}");
        // What findings say is told as they say it.
        assert!((interactions[0].together.1 - (0.8 * 0.25 + 0.2 * 0.3)).abs() < 1e-12, "{interactions:?}");
        // Where a prompt takes 1 ms now, it may be a loss of the run, and is no candidate.
        let (found, interactions) = of(1e6);
        assert!(found.is_empty() && interactions.iter().all(|told| !told.tried_as_one), "{found:?} {interactions:?}");
    }

    #[test]
    fn what_adds_up_is_tried_one_after_the_other() {
        let (found, interactions) = found(&facts(), &diagnosis(&[(CacheCopied, 0.05), (WeightStreaming, 0.10)], 0.15));
        assert!(found.is_empty() && interactions.is_empty(), "{interactions:?}");
    }

    #[test]
    fn where_the_larger_is_all_that_both_gain_it_is_said() {
        let (found, interactions) = found(&facts(), &diagnosis(&[(CacheCopied, 0.05), (WeightStreaming, 0.10)], 0.101));
        assert!(found.is_empty(), "no sum is promised: {found:?}");
        let [told] = &interactions[..] else { panic!("{interactions:?}") };
        assert!(!told.tried_as_one && (told.together.1 - 0.8 * 0.101).abs() < 1e-12, "{told:?}");
    }

    #[test]
    fn gains_of_findings_are_not_held_against_those_of_a_replay() {
        let of = |replayed: f64, together: f64| {
            let (facts, goal) = (facts(), Goal::default());
            let diagnosis = diagnosis(&[(CacheCopied, 0.05), (WeightStreaming, 0.10)], together);
            let state = State { facts: &facts, goal: &goal, diagnosis: &diagnosis };
            let single = |name: &str| {
                let remedy = ALL.iter().find(|remedy| remedy.name == name).expect("a remedy");
                let attempt = (remedy.attempts)(&state).expect("possible").remove(0);
                Single { remedy, promised: promise(&state, None, &attempt), attempt }
            };
            let mut singles = [single("slots"), single("weight_bits")];
            // As a simulation would have it, of both kinds of steps: not the finding's 8 %.
            let changes = candlescope_predict::simulation::parse_changes("host×0.5").expect("a change");
            let by_kind = ["decode", "prefill"].map(|kind| (kind.to_string(), around(replayed))).into();
            let promise = Promise::of(around(replayed), "what_if", Some("host×0.5".into()));
            singles[1].promised = Some(PromisedGain { promise, by_kind, changes });
            combinations(&state, None, &singles)
        };
        // Together 20 %, by themselves 4 and 8 %: the replay's 15 % are of another scale, and so are its 15 % of a prefill.
        let (found, interactions) = of(0.15, 0.25);
        let ([one], [told]) = (&found[..], &interactions[..]) else { panic!("{interactions:?}") };
        assert!((one.promised.promise.mid - 0.8 * 0.25).abs() < 1e-12 && told.tried_as_one, "{one:?}");
        assert!((told.alone[0] - 0.04).abs() < 1e-12 && (told.alone[1] - 0.08).abs() < 1e-12, "{told:?}");
        // They add up to 12 %, and that one of them has 11.8 % in a replay makes them no more than the larger.
        let (found, interactions) = of(0.118, 0.15);
        assert!(found.is_empty() && interactions.is_empty(), "{interactions:?}");
        // A replay that promises more of one than findings of both says that they know too little.
        let (found, interactions) = of(0.21, 0.25);
        assert!(found.is_empty() && interactions.is_empty(), "{interactions:?}");
    }

    #[test]
    fn what_is_too_little_by_itself_is_found_by_the_stages_of_a_roadmap() {
        let stage = |code, gain: f64, so_far: f64| RoadmapStage {
            code,
            path: None,
            kernel: None,
            alone: 0.001,
            gain,
            so_far: around(so_far),
        };
        let stages = vec![stage(CacheCopied, 0.006, 0.006), stage(WeightStreaming, 0.01, 0.016)];
        let mut diagnosis = diagnosis(&[], 0.0);
        diagnosis.together.clear();
        diagnosis.roadmaps = vec![Roadmap { phase: "decode".into(), stages }];
        let (combined, _) = found(&facts(), &diagnosis);
        let [one] = &combined[..] else { panic!("{combined:?}") };
        assert!((one.promised.promise.mid - 0.8 * 0.016).abs() < 1e-12, "{one:?}");
    }

    #[test]
    fn findings_that_nothing_here_answers_make_no_combination() {
        let findings = [(CacheCopied, 0.05), (WeightStreaming, 0.10), (DataMovement, 0.05)];
        assert!(found(&facts(), &diagnosis(&findings, 0.5)).0.is_empty(), "what the three gain is not what two gain");
        let mut disturbed = diagnosis(&findings[..2], 0.25);
        disturbed.findings[0].disturbed = true;
        assert!(found(&facts(), &disturbed).0.is_empty(), "a neighbour may have done it");
    }

    #[test]
    fn several_findings_of_one_remedy_are_no_combination() {
        // Both are what fewer bits obtain on a CPU.
        let both = [(WeightStreaming, 0.05), (SerialPart, 0.05)];
        assert!(found(&facts(), &diagnosis(&both, 0.3)).0.is_empty());
        // Three places of one kind: what they come to is no interaction with the other.
        let places = [(WeightStreaming, 0.1), (WeightStreaming, 0.1), (WeightStreaming, 0.1), (CacheCopied, 0.05)];
        let (combined, interactions) = found(&facts(), &diagnosis(&places, 0.35));
        assert!(combined.is_empty() && interactions.is_empty(), "{interactions:?}");
    }

    #[test]
    fn what_is_not_possible_together_is_not_combined() {
        // Sequences are in slots already.
        let facts = Facts { has_slots: true, ..facts() };
        assert!(found(&facts, &diagnosis(&[(CacheCopied, 0.05), (WeightStreaming, 0.10)], 0.25)).0.is_empty());
    }

    #[test]
    fn as_many_slots_as_sequences_whichever_comes_first() {
        let (facts, goal) = (facts(), Goal { aim: crate::goal::Aim::Throughput, ..Goal::default() });
        let diagnosis = diagnosis(&[(CacheCopied, 0.05), (PageFaults, 0.02)], 0.1);
        let state = State { facts: &facts, goal: &goal, diagnosis: &diagnosis };
        let single = |name: &str| {
            let remedy = ALL.iter().find(|remedy| remedy.name == name).expect("a remedy");
            let attempt = (remedy.attempts)(&state).expect("possible").remove(0);
            Single { remedy, attempt, promised: None }
        };
        let singles = [single("slots"), single("batch")];
        let both = merged(&state, &singles, &[0, 1]).expect("both");
        assert_eq!(both.change.words(), "--batch=4 --max-num-seqs=4");
        // Products of fewer bits cannot be captured, in neither order.
        let on_gpu = Facts { device: "cuda:0".into(), ..facts.clone() };
        let state = State { facts: &on_gpu, goal: &goal, diagnosis: &diagnosis };
        let single = |name: &str| {
            let remedy = ALL.iter().find(|remedy| remedy.name == name).expect("a remedy");
            Single { remedy, attempt: (remedy.attempts)(&state).expect("possible").remove(0), promised: None }
        };
        let singles = [single("cuda_graph"), single("weight_bits"), single("half_precision")];
        assert_eq!(merged(&state, &singles, &[0, 1]), None);
        assert_eq!(merged(&state, &singles, &[1, 2]), None, "16 bits and 8 bits at once");
        let words = merged(&state, &singles, &[0, 2]).expect("both").change.words();
        assert_eq!(words, "--cuda-graph=true --dtype=bf16");
    }
}
