//! What is refused for its quality, and what an undecided trial says.

use super::search_state::{SMALLEST, needed};
use super::*;
use crate::goal::{Aim, Goal};
use crate::lookup_facts::Lookup;
use crate::percentiles::{Level, LimitCheck};
use crate::program::Program;
use crate::remedies::NoPromise;
use crate::summary::markdown;
use candlescope_compare::{
    ChangeEstimate, CompareOptions, GoodputChange, KindFacts, Outcome, RunFacts, RunFigure, Side, compare,
};
use candlescope_figures::advice::Diagnosis;
use candlescope_work::slo::Slo;
use serde_json::json;
use std::collections::BTreeMap;

/// A search for the latency of what `program` runs, whose answers may move by `most_kl`.
fn options(program: PathBuf, out: &Path, most_kl: f64) -> OptimiseOptions {
    let program = Program { program, words: Vec::new(), private: Vec::new() };
    let baseline = Setting::default().with(&Change::default().option("model", "m.gguf"));
    let mut options = OptimiseOptions::new(program, baseline, out);
    options.goal = Goal::new(Aim::Latency, Slo::default(), Some(most_kl));
    options
}

/// The same once it has begun.
fn search<'a>(options: &'a OptimiseOptions, cancel: &'a Cancel, observe: &'a mut dyn FnMut(Course)) -> Search<'a> {
    let setting = options.baseline.clone();
    Search {
        options,
        cancel,
        observe,
        began: Instant::now(),
        before: Duration::ZERO,
        account: Account { baseline: setting.clone(), setting, ..Account::default() },
        on_gpu: Some(false),
        trial_took: Duration::ZERO,
        trial_folder: String::new(),
        starts: Starts::default(),
        again: Vec::new(),
        lacked_time: false,
        least_limit: LEAST_LIMIT,
    }
}

/// A run as a program may write it, recorded on a CPU that is called AMD EPYC.
fn recorded_run() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../cli/tests/recorded/busy/short")
}

/// A command that takes so long and then writes a run.
fn taking(seconds: f64) -> String {
    format!("sleep {seconds}; cp -r '{}' {{out}}", recorded_run().display())
}

/// A program that stands for `candlescope profile`: a start takes so long, writes a run where `--out`, the last option,
/// says, and is a line of `calls`.
fn recording(dir: &Path, seconds: f64) -> PathBuf {
    use std::os::unix::fs::PermissionsExt;
    let program = dir.join("candlescope");
    let called = format!("echo \"$*\" >> '{}/calls'\nfor last; do :; done\n", dir.display());
    let written = format!("sleep {seconds}\ncp -r '{}' \"$last\"\n", recorded_run().display());
    std::fs::write(&program, format!("#!/bin/sh\n{called}{written}")).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    program
}

/// How often it was started.
fn starts(dir: &Path) -> usize {
    std::fs::read_to_string(dir.join("calls")).unwrap_or_default().lines().count()
}

/// A run on a CPU of a model that was trained, with weights of 32 bits, in which nothing was found.
fn trained() -> DiagnosedState {
    let mut manifest = RunManifest::default();
    for (key, value) in [("parameters", json!(1_000)), ("weight_bytes", json!(4_000)), ("quantization", json!("f32"))] {
        manifest.model.insert(key.into(), value);
    }
    manifest.model.insert("engine".into(), json!("instrumented"));
    manifest.options.insert("model".into(), json!("m.gguf"));
    let facts = Facts::of(&manifest);
    DiagnosedState { facts, diagnosis: Diagnosis::default(), simulation: None, took: Duration::from_secs(1) }
}

/// Candidates that change answers.
fn changing_answers(search: &Search<'_>, state: &DiagnosedState) -> Vec<Candidate> {
    let (all, ..) = search.candidates(state);
    all.into_iter().filter(|candidate| matches!(candidate.attempt.answers, Answers::Variant(_))).collect()
}

/// A program that stands for `candlescope bench variants`: whichever variant is asked for moves answers by 0.074, and a line of
/// `calls` says what was asked.
fn measuring(dir: &Path) -> PathBuf {
    use std::os::unix::fs::PermissionsExt;
    let of = |variant: &str| {
        let share = |value: f64, error: f64| json!({ "value": value, "error": error });
        let quality = json!({ "kl": { "mean": share(0.074, 0.003) }, "same_top": share(0.91, 0.01), "positions": 512 });
        json!({ "variant": variant, "quality": quality })
    };
    let variants = ["f32", "f16", "q8_0", "q4_0", "kv_q8"].map(of);
    let said = json!({ "variants": variants });
    std::fs::write(dir.join("said.json"), said.to_string()).unwrap();
    let program = dir.join("candlescope");
    let calls = format!("echo \"$*\" >> '{0}/calls'\ncat '{0}/said.json'\n", dir.display());
    std::fs::write(&program, format!("#!/bin/sh\n{calls}")).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    program
}

#[test]
fn what_moves_answers_too_far_is_refused_and_the_account_says_by_how_much() {
    let dir = tempfile::tempdir().unwrap();
    let (program, out, state) = (measuring(dir.path()), dir.path().join("study"), trained());
    let calls = || std::fs::read_to_string(dir.path().join("calls")).unwrap();
    let (strict, cancel, mut observe) = (options(program.clone(), &out, 0.05), Cancel::default(), |_: Course| ());
    let mut first = search(&strict, &cancel, &mut observe);
    // Nothing that changes answers is within the limit; what was refused is not tried once more.
    let mut refused = Vec::new();
    while let Some(candidate) = changing_answers(&first, &state).into_iter().next() {
        assert!(refused.len() < 3, "{refused:?}");
        refused.push(candidate.attempt.answers.clone());
        assert_eq!(first.attempt(&state, candidate, LEAST_PAIRS, state.took).unwrap(), Some(false));
    }
    assert_eq!(refused, ["f16", "q8_0", "q4_0"].map(|name| Answers::Variant(name.into())));
    let why = "the mean KL divergence is 0.0740, above the limit of 0.05";
    assert_eq!(first.account.phases.len(), 3);
    for phase in &first.account.phases {
        assert_eq!((phase.verdict, phase.why.as_str()), (Verdict::Refused, why), "{phase:?}");
        assert_eq!(phase.quality.as_ref().map(|found| (found.kl, found.positions)), Some((0.074, 512)));
        // No run was made of it.
        assert!(phase.obtained.is_none() && phase.samples_ns.is_empty() && phase.runs.is_none(), "{phase:?}");
    }
    assert!(!out.join("trials").exists());
    assert_eq!(first.account.setting, first.account.baseline);
    let asked: Vec<String> = calls().lines().map(str::to_string).collect();
    assert_eq!(asked.len(), 3, "{asked:?}");
    assert!(asked[1].contains("--model m.gguf --device cpu --variants q8_0 "), "{asked:?}");
    // The account, for people and for programs.
    let page = markdown(&first.account);
    assert!(page.contains("**Nothing was kept: nothing that was tried makes it faster.**"), "{page}");
    let row = page.lines().find(|line| line.contains("--quantize=q8_0")).unwrap_or_default();
    assert!(row.contains("| KL 0.0740 ± 0.0030, same top token 91.0 % |"), "{page}");
    assert!(row.contains(&format!("| **refused**: {why} |")), "{page}");
    let object = serde_json::to_value(&first.account).unwrap();
    assert_eq!((&object["phases"][1]["verdict"], &object["phases"][1]["why"]), (&json!("refused"), &json!(why)));

    // A limit above it lets the same be tried, and what was measured is not measured again.
    let (loose, mut observe) = (options(program, &out, 0.08), |_: Course| ());
    let mut second = search(&loose, &cancel, &mut observe);
    let candidate = changing_answers(&second, &state).into_iter().next_back().unwrap();
    second.account.phases = first.account.phases;
    let mut phase = candidate.phase();
    assert_eq!(second.forbidden(&state, &candidate.attempt, &mut phase, state.took), None);
    assert_eq!(phase.quality, second.account.phases[2].quality);
    assert_eq!(calls().lines().count(), 3);
    // Without a limit, or without a quality that could be measured, it is not tried, and is not refused for good.
    let said =
        json!({ "variants": [{ "variant": "q4_0", "quality": null, "quality_absent": "the text is too short" }] });
    std::fs::write(dir.path().join("said.json"), said.to_string()).unwrap();
    second.account.phases.clear();
    let unknown = second.forbidden(&state, &candidate.attempt, &mut phase, state.took);
    assert_eq!(unknown.as_deref(), Some("quality is not known: the text is too short"));
    assert_eq!(phase.verdict, Verdict::NotTried);
}

#[test]
fn fewer_bits_of_weights_and_of_keys_and_values_are_not_kept_both_for_what_each_costs_alone() {
    let dir = tempfile::tempdir().unwrap();
    let (program, out, state) = (measuring(dir.path()), dir.path().join("study"), trained());
    let (loose, cancel, mut observe) = (options(program, &out, 0.08), Cancel::default(), |_: Course| ());
    let mut search = search(&loose, &cancel, &mut observe);
    let of = |change: Change, variant: &str| Attempt::new(change).answers(Answers::Variant(variant.into()));
    let cache = of(Change::default().option("kv-cache-dtype", "q8"), "kv_q8");
    let eight = of(Change::default().option("quantize", "q8_0").without("dtype"), "q8_0");
    let four = of(Change::default().option("quantize", "q4_0").without("dtype"), "q4_0");
    let phase = |attempt: &Attempt| blank("one", "One", &attempt.change, attempt.answers.clone());
    for (kept, next, why) in [
        (&eight, &cache, Some("q8_0 is kept, and the quality of kv_q8 is measured without it")),
        (&cache, &four, Some("kv_q8 is kept, and the quality of q4_0 is measured without it")),
        // These take the place of the others.
        (&eight, &four, None),
    ] {
        search.account.phases = vec![Phase { verdict: Verdict::Kept, ..phase(kept) }];
        let mut row = phase(next);
        let said = search.forbidden(&state, next, &mut row, state.took);
        assert_eq!(said.as_deref().and_then(|said| said.strip_suffix(": nobody knows that of both")), why, "{said:?}");
        // What was not kept is no matter.
        search.account.phases[0].verdict = Verdict::Rejected;
        assert_eq!(search.forbidden(&state, next, &mut row, state.took), None);
    }
    // Where quality has no meaning, both are tried.
    let random = Facts { is_random: true, ..state.facts.clone() };
    search.account.phases = vec![Phase { verdict: Verdict::Kept, ..phase(&eight) }];
    let (took, state) = (state.took, DiagnosedState { facts: random, ..state });
    assert_eq!(search.forbidden(&state, &cache, &mut phase(&cache), took), None);
}

/// A trial of eight pairs whose runs take `middle` of the time before, some more and some less: by the logarithm, `wide` more at
/// most, and nearly as much less. Half of them are above the middle one.
fn uneven(middle: f64, wide: f64) -> Trial {
    let off = [-0.95 * wide, 0.83 * wide, -0.01 * wide, wide, 0.01 * wide, 0.7 * wide, -0.9 * wide, -0.6 * wide];
    of_pairs(off.iter().map(|off| [1e7, 1e7 * middle * off.exp()]).collect())
}

fn of_pairs(samples_ns: Vec<[f64; 2]>) -> Trial {
    let (mut a, mut b) = (Side::default(), Side::default());
    // In turns, a second apart.
    let mut started_ns = 0;
    for times in &samples_ns {
        for (side, ns) in [&mut a, &mut b].into_iter().zip(times) {
            started_ns += 1_000_000_000;
            let kind = KindFacts { steps: 64, host_ns: RunFigure::whole(*ns), ..KindFacts::default() };
            side.runs.push(RunFacts {
                started_ns,
                kinds: BTreeMap::from([("decode".to_string(), kind)]),
                step_ns: Some(RunFigure::whole(*ns)),
                ..RunFacts::default()
            });
        }
    }
    let comparison = compare(&a, &b, &CompareOptions::default()).expect("comparable");
    Trial {
        comparison,
        samples_ns,
        other_steps: false,
        same_tokens: Some(true),
        tokens_vary: false,
        goodput: None,
        percentiles: Default::default(),
    }
}

#[test]
fn a_trial_on_a_noisy_machine_says_how_many_pairs_would_decide_it() {
    // From −32.9 to +52.2 %: half of that, ±42.5 %, is 21.3 times the smallest change that is looked for.
    let pairs = 8;
    let noisy = uneven(1.0, 0.42);
    assert_eq!(noisy.outcome(), Outcome::Undecided);
    assert_eq!(needed(&noisy, pairs), Some((3_621, SMALLEST)));
    // With half of the noise a quarter of the pairs do, and a larger change takes fewer: some 18 %, within ±35 %.
    let (fewer, _) = needed(&uneven(1.0, 0.21), pairs).unwrap();
    assert!((3.5..5.0).contains(&(3_621.0 / fewer as f64)), "{fewer}");
    let (fewest, share) = needed(&uneven(f64::exp(-0.2), 0.42), pairs).unwrap();
    assert!((27..=35).contains(&fewest) && (0.16..0.2).contains(&share), "{fewest} {share}");
    // Where it is decided, none are needed; beyond all reason, no number is named.
    assert_eq!(needed(&uneven(0.8, 0.005), pairs), None);
    assert_eq!(needed(&uneven(1.0, 2.9), pairs), None);
}

#[test]
fn goodput_decides_whatever_a_step_does_and_where_there_is_none_the_step() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = options("candlescope".into(), dir.path(), 0.05);
    options.goal = Goal::new(Aim::Goodput, "tpot=1ms".parse().unwrap(), None);
    let (cancel, mut observe) = (Cancel::default(), |_: Course| ());
    let search = search(&options, &cancel, &mut observe);
    let said = |middle: f64, before: f64, after: f64, outcome: Outcome| {
        let by = after - before;
        let goodput = GoodputChange { before, after, interval: Some((by - 0.1, by + 0.1)), outcome, pairs: 8 };
        search.judge(&Trial { goodput: Some(goodput), ..uneven(middle, 0.005) }, &Answers::Rounded, false)
    };
    // Steps take a quarter more, and more requests keep the limits; and the other way round.
    let (verdict, why) = said(1.25, 2.0, 3.0, Outcome::Better);
    assert!(
        verdict == Verdict::Kept && why.starts_with("2.00 requests a second kept all limits, and 3.00 do"),
        "{why}"
    );
    let (verdict, why) = said(0.8, 3.0, 2.0, Outcome::Worse);
    assert!(verdict == Verdict::Rejected && why.starts_with("goodput is lower"), "{why}");
    let (verdict, why) = said(0.8, 3.0, 3.0, Outcome::Equivalent);
    assert!(verdict == Verdict::Rejected && why.starts_with("goodput stays"), "{why}");
    // No request keeps them before or after: shorter steps are kept, longer ones are not.
    let none = "; no request keeps all limits, neither before nor after";
    let (verdict, why) = said(0.8, 0.0, 0.0, Outcome::Equivalent);
    assert!(verdict == Verdict::Kept && why.starts_with("a step changes by −20.") && why.ends_with(none), "{why}");
    let (verdict, why) = said(1.25, 0.0, 0.0, Outcome::Equivalent);
    assert!(verdict == Verdict::Rejected && why.starts_with("it is slower") && why.ends_with(none), "{why}");
    // Of steps that are others than before, shorter ones are no gain.
    let change = GoodputChange { before: 0.0, after: 0.0, interval: None, outcome: Outcome::Equivalent, pairs: 8 };
    let trial = Trial { goodput: Some(change), ..uneven(0.8, 0.005) };
    let (verdict, why) = search.judge(&trial, &Answers::Rounded, true);
    assert!(verdict == Verdict::Rejected && why.ends_with("steps are others than before"), "{why}");
}

#[test]
fn requests_decide_where_steps_are_others_than_before() {
    let dir = tempfile::tempdir().unwrap();
    let options = options("candlescope".into(), dir.path(), 0.05);
    let (cancel, mut observe) = (Cancel::default(), |_: Course| ());
    let search = search(&options, &cancel, &mut observe);
    // Steps take twice as long, and there are fewer of them: a request takes a fifth less, or more, or says nothing.
    let of = |by: f64, outcome: Outcome| {
        let mut trial = uneven(2.0, 0.005);
        let mut figure = trial.comparison.step.clone().unwrap();
        figure.name = "e2e_mean_ns".into();
        figure.outcome = Some(outcome);
        figure.estimate = figure.estimate.map(|estimate| ChangeEstimate {
            change: by,
            low: Some(by - 0.01),
            high: Some(by + 0.01),
            ..estimate
        });
        trial.comparison.figures.retain(|known| known.name != "e2e_mean_ns");
        trial.comparison.figures.push(figure);
        trial
    };
    let (verdict, why) = search.judge(&of(-0.2, Outcome::Better), &Answers::Same, true);
    assert!(verdict == Verdict::Kept && why.starts_with("the mean request changes by −21.0 % to −19.0 %"), "{why}");
    let (verdict, why) = search.judge(&of(0.2, Outcome::Worse), &Answers::Same, true);
    assert!(verdict == Verdict::Rejected && why.starts_with("it is slower: the mean request changes by +"), "{why}");
    let (verdict, why) = search.judge(&uneven(0.5, 0.005), &Answers::Same, true);
    assert_eq!((verdict, why.as_str()), (Verdict::Rejected, "requests tell nothing"), "shorter steps are no gain");
    // What is obtained is of requests, too.
    let mut phase = Phase { other_steps: true, ..blank("ngram_speculation", "", &Change::default(), Answers::Same) };
    fill(&mut phase, &of(-0.2, Outcome::Better), &options.goal);
    let obtained = phase.obtained.unwrap();
    assert!(
        (obtained.gain - 0.2).abs() < 1e-9 && obtained.low.zip(obtained.high).is_some_and(|(low, high)| low < high)
    );
}

#[test]
fn where_nothing_is_promised_the_row_says_why_and_a_loss_is_not_tried() {
    let dir = tempfile::tempdir().unwrap();
    let options = options("candlescope".into(), dir.path(), 0.05);
    let (cancel, mut observe) = (Cancel::default(), |_: Course| ());
    let mut search = search(&options, &cancel, &mut observe);
    let mut state = trained();
    state.facts.lookup = Some(Lookup { ahead: 4, saved: 0.5, left: None });
    let (candidates, ..) = search.candidates(&state);
    let mut candidate = candidates.into_iter().find(|candidate| candidate.name() == "ngram_speculation").unwrap();
    let phase = candidate.phase();
    assert!(
        phase.promised.is_none() && phase.why.starts_with("nothing was promised: the run does not say"),
        "{phase:?}"
    );
    // Whatever a loss would take to be run, it is not.
    candidate.attempt.unpromised = Some(NoPromise { why: "it is a loss".into(), is_loss: true });
    assert_eq!(search.attempt(&state, candidate, LEAST_PAIRS, state.took).unwrap(), Some(false));
    let [row] = &search.account.phases[..] else { panic!("{:?}", search.account.phases) };
    assert_eq!((row.verdict, row.why.as_str(), row.obtained), (Verdict::NotTried, "it is a loss", None));
    assert!(!dir.path().join("trials").exists());
    let (candidates, ..) = search.candidates(&state);
    assert!(candidates.iter().all(|candidate| candidate.name() != "ngram_speculation"), "it is a row already");
    // Once something was kept, it may be a gain; where nothing promises that, the row stands.
    let change = search.account.phases[0].change.clone();
    let kept = Change::default().option("quantize", "q8_0");
    search
        .account
        .phases
        .push(Phase { verdict: Verdict::Kept, ..blank("weight_bits", "Fewer bits", &kept, Answers::Same) });
    let was_tried = |promises| search.was_tried("ngram_speculation", &change, promises);
    assert!(was_tried(false) && !was_tried(true));
}

#[test]
fn nothing_is_kept_whose_percentiles_are_above_their_limits() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = options("candlescope".into(), dir.path(), 0.05);
    options.goal = Goal::new(Aim::Throughput, "ttft_p99=300ms".parse().unwrap(), None);
    let (cancel, mut observe) = (Cancel::default(), |_: Course| ());
    let search = search(&options, &cancel, &mut observe);
    let words = "ttft_p99 of 48 requests is 412 ms, above the limit of 300 ms";
    let above = LimitCheck { level: Level::HardlyAbove, above: Some(words.to_string()), unread: 0 };
    let percentiles = [LimitCheck::default(), above.clone()];
    let judged = search.judge(&Trial { percentiles, ..uneven(0.8, 0.005) }, &Answers::Rounded, false);
    assert_eq!(judged, (Verdict::Rejected, words.to_string()));
    // What they were before breaks nothing; runs that could not be read are told.
    let percentiles = [above.clone(), LimitCheck { unread: 2, ..LimitCheck::default() }];
    let (verdict, why) = search.judge(&Trial { percentiles, ..uneven(0.8, 0.005) }, &Answers::Rounded, false);
    assert!(
        verdict == Verdict::Kept && why.ends_with("2 runs cannot be read any more, and are in no percentile"),
        "{why}"
    );
    // Neither does what makes more requests keep the other limits, or steps shorter where none does.
    let change =
        |before: f64, after: f64, outcome: Outcome| GoodputChange { before, after, interval: None, outcome, pairs: 8 };
    for change in [change(2.0, 3.0, Outcome::Better), change(0.0, 0.0, Outcome::Equivalent)] {
        let of = |percentiles: [LimitCheck; 2]| {
            let trial = Trial { goodput: Some(change), percentiles, ..uneven(0.8, 0.005) };
            search.judge(&trial, &Answers::Rounded, false)
        };
        let (verdict, why) = of([LimitCheck::default(), above.clone()]);
        assert!(verdict == Verdict::Rejected && why.ends_with(words), "{why}");
        let (verdict, why) = of([above.clone(), above.clone()]);
        assert!(verdict == Verdict::Kept && why.contains("both sides are above the limit of a percentile"), "{why}");
    }
}

#[test]
fn what_was_tried_with_others_is_not_called_impossible() {
    let dir = tempfile::tempdir().unwrap();
    let options = options("candlescope".into(), dir.path(), 0.05);
    let (cancel, mut observe) = (Cancel::default(), |_: Course| ());
    let mut search = search(&options, &cancel, &mut observe);
    let mut both = blank("slots+weight_bits", "Both", &Change::default().option("quantize", "q8_0"), Answers::Same);
    (both.verdict, both.members) = (Verdict::Kept, ["slots", "weight_bits"].map(String::from).to_vec());
    search.account.phases.push(both);
    let of = |name: &str| {
        (*crate::remedies::ALL.iter().find(|remedy| remedy.name == name).unwrap(), "there are slots".to_string())
    };
    search.note_impossible(vec![of("slots"), of("cuda_graph")]);
    let rows: Vec<&str> = search.account.phases.iter().map(|phase| phase.remedy.as_str()).collect();
    assert_eq!(rows, ["slots+weight_bits", "cuda_graph"]);
}

#[test]
fn an_undecided_trial_is_rejected_in_words() {
    let dir = tempfile::tempdir().unwrap();
    let options = options("candlescope".into(), dir.path(), 0.05);
    let (cancel, mut observe) = (Cancel::default(), |_: Course| ());
    let search = search(&options, &cancel, &mut observe);
    let said = |trial: &Trial| search.judge(trial, &Answers::Same, false);
    let words = "undecided after 8 pairs: a step changes by −32.9 % to +52.2 %; to tell 2.0 % takes about 3621 pairs as uneven as \
                 these";
    assert_eq!(said(&uneven(1.0, 0.42)), (Verdict::Rejected, words.to_string()));
    let (verdict, why) = said(&uneven(1.0, 2.9));
    assert!(
        verdict == Verdict::Rejected && why.starts_with("undecided after 8 pairs") && !why.contains("to tell"),
        "{why}"
    );
    let (verdict, why) = said(&uneven(0.8, 0.005));
    assert!(verdict == Verdict::Kept && why.starts_with("a step changes by −20."), "{why}");
    // A graph of the 8B shape on an H200 with an uneven host, in ms: each pair is a gain, and starts of the program
    // before differ by half.
    let before = [7.97, 7.97, 8.46, 7.98, 11.94, 7.91, 9.90, 8.28];
    let after = [6.14, 6.01, 6.13, 6.05, 6.15, 6.03, 6.05, 6.24];
    let (verdict, why) = said(&of_pairs(before.iter().zip(after).map(|(a, b)| [a * 1e6, b * 1e6]).collect()));
    let words = "undecided after 8 pairs: a step changes by −48.5 % to −23.0 %; but the program before, compared with itself \
                 in as many pairs, would differ by up to 25.9 %, and a change has to exceed that";
    assert_eq!((verdict, why.as_str()), (Verdict::Rejected, words));
}

/// What a trial of a row comes to.
fn settled(search: &mut Search<'_>, phase: Phase, trial: Trial) -> Phase {
    let expected = Expectation { state: &trained(), promised: None, commands: None };
    search.settle(phase, Ok(Some(trial)), expected).expect("it was not interrupted");
    search.account.phases.last().expect("a row").clone()
}

#[test]
fn what_is_undecided_is_tried_again_where_more_pairs_are_possible() {
    let dir = tempfile::tempdir().unwrap();
    let options = options("candlescope".into(), dir.path(), 0.05);
    let (cancel, mut observe) = (Cancel::default(), |_: Course| ());
    let mut search = search(&options, &cancel, &mut observe);
    let change = Change::default().option("threads", 1);
    let row = || blank("threads", "Threads", &change, Answers::Same);
    let undecided = settled(&mut search, row(), uneven(1.0, 0.42));
    assert!(undecided.verdict == Verdict::Rejected && undecided.undecided, "{undecided:?}");
    assert!(undecided.why.contains("there was no time for more pairs: `--resume` with a larger"), "{undecided:?}");
    assert_eq!(serde_json::to_value(&undecided).unwrap()["undecided"], json!(true));
    // What is clear, or breaks a limit whatever it gains, is not.
    for clear in [uneven(0.8, 0.005), uneven(1.25, 0.005)] {
        let other = blank("allocator", "Allocator", &Change::default(), Answers::Same);
        assert!(!settled(&mut search, other, clear).undecided);
    }
    let above = LimitCheck { level: Level::HardlyAbove, above: Some("above".into()), unread: 0 };
    let breaks = Trial { percentiles: [LimitCheck::default(), above], ..uneven(1.0, 0.42) };
    assert!(!settled(&mut search, blank("batch", "Batch", &Change::default(), Answers::Same), breaks).undecided);

    // A later call with no more time lets it stand, and one with more tries it once.
    let mut rows = search.account.phases.clone();
    rows.retain(|phase| phase.verdict != Verdict::Kept);
    search.account.phases.clone_from(&rows);
    assert!(search.was_tried("threads", &change, false));
    search.try_again(8);
    assert!(search.was_tried("threads", &change, false), "as many as it had");
    search.try_again(9);
    assert!(!search.was_tried("threads", &change, false));
    assert_eq!(search.pairs_before(&key(&undecided)), Some(8));
    // Where there is no time after all, the row stands.
    search.put(row());
    assert_eq!((&search.account.phases, search.was_tried("threads", &change, false)), (&rows, true));
    search.try_again(9);
    let kept = settled(&mut search, row(), uneven(0.8, 0.005));
    assert_eq!(kept.verdict, Verdict::Kept);
    let of_it: Vec<&Phase> = search.account.phases.iter().filter(|phase| phase.remedy == "threads").collect();
    assert_eq!(of_it, [&kept], "one row of the same change");
    assert!(search.was_tried("threads", &change, false));
}

#[test]
fn a_row_says_when_the_program_itself_writes_other_tokens_each_time() {
    let dir = tempfile::tempdir().unwrap();
    let options = options("candlescope".into(), dir.path(), 0.05);
    let (cancel, mut observe) = (Cancel::default(), |_: Course| ());
    let mut search = search(&options, &cancel, &mut observe);
    let trial = Trial { same_tokens: None, tokens_vary: true, ..uneven(0.8, 0.005) };
    let row = settled(&mut search, blank("threads", "Threads", &Change::default(), Answers::Same), trial);
    assert!(row.verdict == Verdict::Kept && row.why.ends_with("so that tokens tell nothing"), "{row:?}");
}

/// A program that stands for `candlescope bench variants` and does not end.
fn endless(dir: &Path) -> PathBuf {
    use std::os::unix::fs::PermissionsExt;
    let program = dir.join("candlescope");
    std::fs::write(&program, "#!/bin/sh\nsleep 120\n").unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    program
}

#[test]
fn quality_takes_no_more_than_what_is_left_of_the_time() {
    let dir = tempfile::tempdir().unwrap();
    let mut loose = options(endless(dir.path()), &dir.path().join("study"), 0.08);
    loose.budget = Duration::from_secs(2);
    let (cancel, mut observe) = (Cancel::default(), |_: Course| ());
    let mut search = search(&loose, &cancel, &mut observe);
    let (state, took) = (trained(), Duration::from_millis(10));
    let candidate = changing_answers(&search, &state).remove(0);
    assert_eq!(search.attempt(&state, candidate, LEAST_PAIRS, took).unwrap(), Some(false));
    // It waits for what it interrupted to end.
    assert!(search.began.elapsed() < Duration::from_secs(30), "{:?}", search.began.elapsed());
    let [row] = &search.account.phases[..] else { panic!("{:?}", search.account.phases) };
    let why =
        (row.why.contains("was not measured within the"), row.why.contains("`--resume` with a larger `--budget`"));
    assert_eq!((row.verdict, why), (Verdict::NotTried, (true, true)), "{row:?}");
    assert!(!dir.path().join("study/trials").exists(), "no run was made of it");
}

#[test]
fn an_interrupt_ends_the_measurement_of_quality() {
    let dir = tempfile::tempdir().unwrap();
    let loose = options(endless(dir.path()), &dir.path().join("study"), 0.08);
    let (cancel, mut observe) = (Cancel::default(), |_: Course| ());
    let mut search = search(&loose, &cancel, &mut observe);
    let state = trained();
    let candidate = changing_answers(&search, &state).remove(0);
    let printed = dir.path().join("study/quality/f16.json");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Once it has begun.
            (0..1_000).take_while(|_| !printed.exists()).for_each(|_| std::thread::sleep(Duration::from_millis(10)));
            cancel.cancel();
        });
        assert_eq!(search.attempt(&state, candidate, LEAST_PAIRS, state.took).unwrap(), None);
    });
    assert!(search.began.elapsed() < Duration::from_secs(60), "{:?}", search.began.elapsed());
    assert!(search.account.phases.is_empty(), "whoever goes on measures it: {:?}", search.account.phases);
}

#[test]
fn a_command_into_whose_time_no_pair_fits_is_a_row_and_the_next_one_is_tried() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = options("candlescope".into(), &dir.path().join("study"), 0.05);
    options.budget = Duration::from_secs(600);
    let (cancel, mut observe) = (Cancel::default(), |_: Course| ());
    let mut search = search(&options, &cancel, &mut observe);
    let state = trained();
    let quick = taking(0.0);
    let mut row_of = |command: &str, name: &str, lasts: Duration| {
        let bounds = TrialBounds { most: LEAST_PAIRS, lasts, other_steps: None };
        let tried = search.trial((&quick, command), name, &bounds, Duration::from_millis(10));
        let phase = blank("command", name, &Change::default(), Answers::Same);
        let verdict = search.settle(phase, tried, Expectation { state: &state, promised: None, commands: None });
        assert!(verdict.is_some(), "nobody interrupted it");
        (search.account.phases.last().expect("a row").clone(), search.lacked_time)
    };
    // The first run of it, before the first pair, takes longer than all of its time.
    let (slow, lacked_time) = row_of(&taking(1.5), "slow", Duration::from_secs(1));
    assert!(slow.verdict == Verdict::NotTried && slow.samples_ns.is_empty() && slow.runs.is_none(), "{slow:?}");
    let why = &slow.why;
    assert!(
        why.starts_with("no pair of runs fitted into its time: it had ") && why.contains("8 pairs with one"),
        "{why}"
    );
    assert!(why.ends_with("`--resume` with a larger `--budget` tries it again"), "{why}");
    assert!(lacked_time, "it is still to be tried");
    let (next, _) = row_of(&taking(0.01), "next", Duration::from_secs(300));
    assert!(next.verdict != Verdict::NotTried && !next.samples_ns.is_empty(), "{next:?}");
}

#[test]
fn no_run_goes_on_for_longer_than_what_is_left_of_the_time() {
    // The second start does not end in time; and it does, but a third one would not.
    for seconds in [2.4, 1.6] {
        let dir = tempfile::tempdir().unwrap();
        let mut options = options(recording(dir.path(), seconds), &dir.path().join("study"), 0.05);
        options.budget = Duration::from_secs(4);
        let (cancel, mut observe) = (Cancel::default(), |_: Course| ());
        let mut search = search(&options, &cancel, &mut observe);
        search.least_limit = Duration::from_millis(100);
        assert_eq!(search.remedies().unwrap(), OptimiseEnd::Budget, "{seconds} s");
        assert_eq!(starts(dir.path()), 2, "{seconds} s");
        let why = search.account.error.clone().unwrap_or_default();
        assert!(why.contains("had not ended after") || why.ends_with("are left of the time"), "{why}");
        assert!(search.began.elapsed() < Duration::from_secs(30), "{:?}", search.began.elapsed());
    }
}

#[test]
fn what_another_machine_measured_is_not_gone_on_with() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("study");
    let remedies = options(recording(dir.path(), 0.0), &out, 0.05);
    let mut by_hand = options("candlescope".into(), &out, 0.05);
    (by_hand.run, by_hand.tries) = (Some(taking(0.0)), vec![taking(0.0)]);
    let begun = Account { hardware: "Another CPU".into(), ..Account::default() };
    write::all(&begun, &out).unwrap();
    let study = || std::fs::read_to_string(out.join("study.json")).unwrap();
    let (before, cancel) = (study(), Cancel::default());
    for asked in [&remedies, &by_hand] {
        let error = optimise(asked, Some(begun.clone()), &cancel, &mut |_| ()).unwrap_err().to_string();
        assert!(error.contains("study.json was measured on Another CPU, and this is AMD EPYC"), "{error}");
        assert_eq!(study(), before, "what stands there stays");
    }
    assert_eq!(starts(dir.path()), 1, "the first start says it");
    // The same hardware is gone on with, and one that a run does not name.
    let mut observe = |_: Course| ();
    let mut search = search(&remedies, &cancel, &mut observe);
    for (then, now) in [("", "AMD EPYC"), ("AMD EPYC", "AMD EPYC"), ("a GPU", "NVIDIA H200"), ("AMD EPYC", "a CPU")] {
        search.account.hardware = then.into();
        assert!(search.must_be_on(now).is_ok(), "{then}, then {now}");
    }
}
