//! Whether two sides may be compared at all: what differs between them, and what follows.

use super::fingerprint::{Facts, Fingerprint, OUTPUT_TOKENS};
use super::options::CompareOptions;
use super::run_facts::RunFacts;
use candlescope_schema::run::env_key;
use serde::Serialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Clocks that differ by more than this share are another machine's, as far as times are concerned.
const CLOCKS: f64 = 0.03;
/// Lengths that differ by less than this share are the same work.
const TOKENS: f64 = 0.01;

/// What follows from a difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// Worth knowing; versions are often what is compared.
    Note,
    /// Comparing needs a word from the user: `--allow`.
    Warning,
    /// Never: the two have nothing to be compared by.
    Refused,
}

/// A fact in which the two sides differ.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Difference {
    /// What: a name that `--allow` takes if its class is a warning.
    pub what: &'static str,
    /// Whether it stops the comparison, needs a word, or is only told.
    pub class: Class,
    /// Whether the user allowed it.
    pub allowed: bool,
    /// The fact's name in its part of the fingerprint, such as `rayon_num_threads` of `threads`.
    pub key: String,
    /// On side A; null if it is not known there.
    pub a: Value,
    /// On side B; null if it is not known there.
    pub b: Value,
}

impl Difference {
    /// Whether it stands in the way of a comparison.
    pub fn stops(&self) -> bool {
        match self.class {
            Class::Refused => true,
            Class::Warning => !self.allowed,
            Class::Note => false,
        }
    }
}

/// A fact in words: `tokens context`, and `batch of decode` alone, which names its kind itself.
pub fn named(what: &str, key: &str) -> String {
    let says_itself = key.split([' ', '_']).any(|word| word == what || what.strip_suffix('s') == Some(word));
    if says_itself { key.to_string() } else { format!("{what} {key}") }
}

/// Sequences at once: sides that differ in them are compared by what one sequence takes.
pub(super) const BATCH: &str = "batch";

/// How many compute, what says so, and what they run on.
const THREADS: &str = "threads";

/// Facts of these that are the number itself. What processors there are is part of the machine.
const NUMBER_OF_THREADS: [&str; 4] = [
    env_key::RAYON_NUM_THREADS.name(),
    env_key::CANDLE_NUM_THREADS.name(),
    env_key::COMPUTE_THREADS.name(),
    env_key::CALLER_COMPUTES.name(),
];

/// Names that `--allow` takes.
pub const ALLOWABLE: [&str; 9] =
    [BATCH, "clocks", "damage", "dtype", "machine", "options", "recording", THREADS, "tokens"];

/// The two cannot be compared.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "its messages say what the fields are")]
pub enum CompareError {
    /// A side has no runs.
    #[error("{0} has no run to compare: give a run, or a folder of runs")]
    Nothing(String),
    /// A side has no measured steps.
    #[error("{0} has no measured step: record one that goes on past its warm-up (fewer --warmup, more --repeats)")]
    NoSteps(String),
    /// The sides have no kind of step in common.
    #[error(
        "the two have no kind of step in common, and no case: A has {a}, B has {b}. Compare what the same program did"
    )]
    NothingInCommon { a: String, b: String },
    /// Runs of one side differ among themselves.
    #[error("the runs of {side} are not alike: {key} is {first}, and {second}. Give runs of one thing")]
    Mixed {
        side: &'static str,
        /// The fact in which its runs differ.
        key: String,
        /// One value, and the run with it.
        first: String,
        /// The other value, and the run with that.
        second: String,
    },
    /// They differ in something that must not.
    #[error("these cannot be compared: {} is {a} in A, and {b} in B.{remedy}", named(.what, .key))]
    Different {
        /// The part of the fingerprint, by the name that `--allow` takes.
        what: &'static str,
        /// The fact's name in that part.
        key: String,
        /// Its value on side A, in words.
        a: String,
        /// Its value on side B, in words.
        b: String,
        /// A sentence, with a space before it: what makes them comparable, or that nothing does.
        remedy: String,
    },
}

/// What differs between two studies, of which only the fingerprints are known. A run's threads may be what its program
/// chose anew at this start, and are told; a study states with how many it measured, so that on a CPU others need a word
/// (`--allow threads`).
///
/// # Errors
/// When something stands in the way of comparing them.
pub fn comparable(a: &Fingerprint, b: &Fingerprint, options: &CompareOptions) -> Result<Vec<Difference>, CompareError> {
    let side = |fingerprint: &Fingerprint| [RunFacts { fingerprint: fingerprint.clone(), ..RunFacts::default() }];
    let mut found = differences(&side(a), &side(b), &options.allow);
    let on_cpu = |of: &Fingerprint| of.device.get("device").is_none_or(|device| device == "cpu");
    let decides = |difference: &&mut Difference| {
        difference.what == THREADS && NUMBER_OF_THREADS.contains(&&*difference.key) && on_cpu(a) && on_cpu(b)
    };
    for difference in found.iter_mut().filter(decides) {
        difference.class = Class::Warning;
        difference.allowed = is_allowed(THREADS, &options.allow);
    }
    stop(&found).map_or(Ok(found), Err)
}

/// Whether the user let this pass, or everything.
fn is_allowed(what: &str, allow: &[String]) -> bool {
    allow.iter().any(|name| name == what || name == "all")
}

/// Everything that differs between two sides; `allow` names what the user lets pass, or `all`.
pub(super) fn differences(a: &[RunFacts], b: &[RunFacts], allow: &[String]) -> Vec<Difference> {
    let mut found = Vec::new();
    let (Some(one), Some(other)) = (a.first(), b.first()) else { return found };
    let (one, other) = (&one.fingerprint, &other.fingerprint);
    // What only one side knows, such as a run of a later release, is no difference.
    let known = |of: &Facts, to: &Facts| -> Facts {
        of.iter().filter(|(key, _)| to.contains_key(*key)).map(|(key, value)| (key.clone(), value.clone())).collect()
    };
    let threads = (known(&one.threads, &other.threads), known(&other.threads, &one.threads));
    let build = (known(&one.build, &other.build), known(&other.build, &one.build));
    let mut add = |what, class, facts: (&Facts, &Facts), close: f64| {
        found.extend(differing(facts, close).into_iter().map(|(key, a, b)| {
            let allowed = class == Class::Warning && is_allowed(what, allow);
            Difference { what, class, allowed, key, a, b }
        }));
    };
    // First what makes the same program several times as fast or as slow.
    add(THREADS, Class::Note, (&threads.0, &threads.1), 0.0);
    add("build", Class::Note, (&build.0, &build.1), 0.0);
    add("model", Class::Refused, (&one.model, &other.model), 0.0);
    add("device", Class::Refused, (&one.device, &other.device), 0.0);
    let (batches, shapes) = shapes(&one.shapes, &other.shapes);
    add("shapes", Class::Refused, (&shapes.0, &shapes.1), 0.0);
    add(BATCH, Class::Warning, (&batches.0, &batches.1), 0.0);
    add("machine", Class::Warning, (&one.machine, &other.machine), 0.0);
    add("dtype", Class::Warning, (&one.dtype, &other.dtype), 0.0);
    let another_batch = batches.0 != batches.1;
    let tokens = |of: &Fingerprint| if another_batch { tokens_of_one(of) } else { of.tokens.clone() };
    add("tokens", Class::Warning, (&tokens(one), &tokens(other)), TOKENS);
    // The batch is that of the steps where they say it.
    let known_of_steps = !one.shapes.is_empty() && !other.shapes.is_empty();
    let options = |of: &Facts| -> Facts {
        let others = of.iter().filter(|(key, _)| !known_of_steps || *key != BATCH);
        others.map(|(key, value)| (key.clone(), value.clone())).collect()
    };
    add("options", Class::Warning, (&options(&one.options), &options(&other.options)), 0.0);
    add("recording", Class::Warning, (&one.recording, &other.recording), 0.0);
    add("clocks", Class::Warning, (&clocks(a), &clocks(b)), CLOCKS);
    add("damage", Class::Warning, (&damage(a, b), &damage(b, a)), 0.0);
    add("versions", Class::Note, (&one.versions, &other.versions), 0.0);
    found
}

/// The shapes of both sides, first those that one sequence can be told by: a number of sequences in each kind of step, and
/// the same one in all kinds of a side.
fn shapes(one: &Facts, other: &Facts) -> ((Facts, Facts), (Facts, Facts)) {
    let sides = (one.clone(), other.clone());
    let nothing = || (Facts::new(), Facts::new());
    let same_kinds = one.keys().eq(other.keys());
    match same_kinds && sequences(one).is_some() && sequences(other).is_some() {
        true => (sides, nothing()),
        false => (nothing(), sides),
    }
}

/// Lengths of one sequence: a request's output is that of all its sequences.
fn tokens_of_one(of: &Fingerprint) -> Facts {
    let n = sequences(&of.shapes).unwrap_or(1.0);
    let each = |(key, value): (&String, &Value)| {
        let all = value.as_f64().filter(|_| key == OUTPUT_TOKENS);
        (key.clone(), all.map_or_else(|| value.clone(), |all| (all / n).into()))
    };
    of.tokens.iter().map(each).collect()
}

/// Sequences in every step of a side, if they are as many in all kinds of step.
pub(super) fn sequences(shapes: &Facts) -> Option<f64> {
    let mut all = shapes.values().map(Value::as_f64);
    let first = all.next()??;
    (first > 0.0 && all.all(|n| n == Some(first))).then_some(first)
}

/// The first difference that stands in the way, as an error.
pub(super) fn stop(differences: &[Difference]) -> Option<CompareError> {
    let difference = differences.iter().filter(|difference| difference.stops()).max_by_key(|d| d.class)?;
    let shown = |value: &Value| match value {
        Value::Null => "not known".to_string(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let remedy = match (difference.class, difference.what) {
        (Class::Refused, "shapes") => {
            " Nothing allows this: the number of sequences is another one from step to step or from kind to kind, so that \
             nothing tells what one of them takes. What a batch costs and gains for each token: candlescope tune batch, or \
             candlescope bench throughput with several batches."
                .into()
        }
        (Class::Refused, _) => {
            " Nothing allows this: compare runs of the same model, on the same kind of device.".into()
        }
        (_, "clocks") => {
            " Measure again when both are as cool and as free, or say --allow clocks to compare as they are.".into()
        }
        (_, BATCH) => " A step for more sequences does more work: make them the same, or say --allow batch to compare what \
                        one sequence takes."
            .into(),
        (_, "damage") => " Record it again, or say --allow damage to compare what is there.".into(),
        (_, what) => format!(" Make them the same, or say --allow {what} if that is the change you are looking at."),
    };
    Some(CompareError::Different {
        what: difference.what,
        key: difference.key.clone(),
        a: shown(&difference.a),
        b: shown(&difference.b),
        remedy,
    })
}

/// Runs of one side have to agree in everything that stands in the way between sides, but for clocks.
pub(super) fn alike(side: &'static str, runs: &[RunFacts]) -> Result<(), CompareError> {
    let Some((first, others)) = runs.split_first() else { return Ok(()) };
    let parts = |of: &Fingerprint| {
        // How many compute decides the time; a run of an earlier release does not know it, which is no difference.
        let all_know = |key: &str| runs.iter().all(|run| run.fingerprint.threads.contains_key(key));
        let deciding = [env_key::COMPUTE_THREADS.name(), env_key::RAYON_NUM_THREADS.name()]
            .into_iter()
            .filter(|key| all_know(key));
        let threads = deciding.filter_map(|key| Some((key.to_owned(), of.threads.get(key)?.clone()))).collect();
        [of.model.clone(), of.device.clone(), of.shapes.clone(), of.machine.clone(), of.dtype.clone(), threads]
    };
    for other in others {
        for (one, two) in parts(&first.fingerprint).iter().zip(&parts(&other.fingerprint)) {
            if let Some((key, a, b)) = differing((one, two), 0.0).into_iter().next() {
                let of = |value: Value, run: &RunFacts| format!("{value} in `{}`", run.dir);
                return Err(CompareError::Mixed { side, key, first: of(a, first), second: of(b, other) });
            }
        }
    }
    Ok(())
}

/// Facts of two programs that differ, of those that both know: numbers by more than the share `close`.
pub(super) fn differing_facts(
    what: &'static str,
    (a, b): (&Facts, &Facts),
    close: f64,
    is_refused: bool,
    allow: &[String],
) -> Vec<Difference> {
    let class = if is_refused { Class::Refused } else { Class::Warning };
    let allowed = !is_refused && is_allowed(what, allow);
    let known = differing((a, b), close).into_iter().filter(|(_, a, b)| !a.is_null() && !b.is_null());
    known.map(|(key, a, b)| Difference { what, class, allowed, key, a, b }).collect()
}

/// Facts that differ: numbers by more than the share `close`.
fn differing((a, b): (&Facts, &Facts), close: f64) -> Vec<(String, Value, Value)> {
    let keys: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
    let value = |side: &Facts, key: &String| side.get(key).cloned().unwrap_or(Value::Null);
    let differ = |a: &Value, b: &Value| match (a.as_f64(), b.as_f64()) {
        (Some(a), Some(b)) => (a - b).abs() > close * a.abs().max(b.abs()),
        _ => a != b,
    };
    let pairs = keys.into_iter().map(|key| (key.clone(), value(a, key), value(b, key)));
    pairs.filter(|(_, a, b)| differ(a, b)).collect()
}

/// Means of the clocks over the runs of a side, and whether GPUs were slowed down.
fn clocks(side: &[RunFacts]) -> Facts {
    let mut sums: BTreeMap<&str, (f64, f64)> = BTreeMap::new();
    for (key, value) in side.iter().flat_map(|run| &run.fingerprint.clocks) {
        let sum = sums.entry(key).or_default();
        *sum = (sum.0 + value, sum.1 + 1.0);
    }
    let facts = sums.into_iter().map(|(key, (sum, n))| {
        let mean = sum / n;
        let slowed = || Value::from(if mean > 0.05 { "slowed down" } else { "free" });
        let value = if key.starts_with("throttled") { slowed() } else { mean.into() };
        // GPUs are compared by place: another one of the same kind is the same machine.
        (key.rsplit_once(' ').map_or(key, |(what, _)| what).to_string(), value)
    });
    facts.collect()
}

/// What makes figures of a side doubtful, of all that makes those of either so.
fn damage(side: &[RunFacts], other: &[RunFacts]) -> Facts {
    let has = |code: &String| side.iter().any(|run| run.damage.contains(code));
    side.iter().chain(other).flat_map(|run| &run.damage).map(|code| (code.clone(), Value::Bool(has(code)))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(change: impl Fn(&mut Fingerprint)) -> RunFacts {
        let mut run = RunFacts::default();
        run.fingerprint.model.insert("layers".into(), 4.into());
        run.fingerprint.dtype.insert("dtype".into(), "f32".into());
        run.fingerprint.tokens.insert("output_tokens".into(), 64.into());
        change(&mut run.fingerprint);
        run
    }

    #[test]
    fn classes_decide_what_follows() {
        let a = [run(|_| ())];
        assert!(differences(&a, &a, &[]).is_empty());
        let other = [run(|f| drop(f.model.insert("layers".into(), 8.into())))];
        let found = differences(&a, &other, &["all".to_string()]);
        let error = stop(&found).expect("another model is refused whatever is allowed");
        assert!(error.to_string().contains("model layers is 4 in A, and 8 in B"), "{error}");
        let form = [run(|f| drop(f.dtype.insert("dtype".into(), "q8_0".into())))];
        let error = stop(&differences(&a, &form, &[])).unwrap();
        assert!(error.to_string().contains("--allow dtype"), "{error}");
        assert!(stop(&differences(&a, &form, &["dtype".to_string()])).is_none());
        let newer = [run(|f| drop(f.versions.insert("candle".into(), "0.12".into())))];
        let found = differences(&a, &newer, &[]);
        assert!(stop(&found).is_none() && found.len() == 1, "versions are a note");
    }

    #[test]
    fn threads_and_the_build_are_named_first() {
        let with = |threads: &str, build: &str| {
            [run(|f| {
                f.threads.insert("rayon_num_threads".into(), threads.into());
                f.build.insert("build_profile".into(), build.into());
                f.versions.insert("candle".into(), build.into());
            })]
        };
        let found = differences(&with("not set", "debug"), &with("2", "release"), &[]);
        let whats: Vec<_> = found.iter().map(|difference| difference.what).collect();
        assert_eq!(whats, ["threads", "build", "versions"]);
        assert_eq!((found[0].a.as_str(), found[0].b.as_str()), (Some("not set"), Some("2")));
        assert!(stop(&found).is_none());
        // An older run does not know.
        let found = differences(&[run(|_| ())], &with("2", "release"), &[]);
        assert!(found.iter().all(|difference| difference.what == "versions"), "{found:?}");
    }

    #[test]
    fn studies_with_other_threads_need_a_word() {
        let with =
            |threads: &str| run(|f| drop(f.threads.insert("rayon_num_threads".into(), threads.into()))).fingerprint;
        let error = comparable(&with("1"), &with("2"), &CompareOptions::default()).unwrap_err().to_string();
        assert!(error.contains("rayon_num_threads is 1 in A, and 2 in B"), "{error}");
        assert!(error.contains("--allow threads"), "{error}");
        for allow in ["threads", "all"] {
            let found =
                comparable(&with("1"), &with("2"), &CompareOptions::default().allow(vec![allow.into()])).unwrap();
            assert!(found[0].allowed && found[0].class == Class::Warning, "{found:?}");
        }
        assert!(comparable(&with("2"), &with("2"), &CompareOptions::default()).unwrap().is_empty());
        let pinned = |cpus: &str| run(|f| drop(f.threads.insert("cpu_affinity".into(), cpus.into()))).fingerprint;
        let told = comparable(&pinned("0"), &pinned("1"), &CompareOptions::default()).unwrap();
        assert_eq!(told.iter().map(|of| of.class).collect::<Vec<_>>(), [Class::Note], "as many threads elsewhere");
        let on_gpu = |threads: &str| {
            let mut fingerprint = with(threads);
            fingerprint.device.insert("device".into(), "gpu".into());
            fingerprint
        };
        assert!(comparable(&on_gpu("1"), &on_gpu("2"), &CompareOptions::default()).is_ok(), "the device computes");
    }

    #[test]
    fn another_batch_is_allowed_where_one_sequence_can_be_told() {
        let with = |batch: Value| {
            [run(|f| {
                f.shapes.insert("batch of decode".into(), batch.clone());
                f.options.insert("batch".into(), batch.clone());
                f.tokens.insert(OUTPUT_TOKENS.into(), (64.0 * batch.as_f64().unwrap_or(1.0)).into());
            })]
        };
        let error = stop(&differences(&with(1.into()), &with(8.into()), &[])).unwrap().to_string();
        assert!(error.contains("--allow batch"), "{error}");
        assert!(error.contains("cannot be compared: batch of decode is 1 in A, and 8 in B."), "{error}");
        for allow in ["batch", "all"] {
            let found = differences(&with(1.into()), &with(8.into()), &[allow.to_string()]);
            assert!(stop(&found).is_none() && found.len() == 1, "{found:?}");
        }
        let varies = differences(&with(1.into()), &with("varies".into()), &["all".to_string()]);
        let error = stop(&varies).unwrap().to_string();
        assert!(error.contains("Nothing allows this") && error.contains("tune batch"), "{error}");
    }

    #[test]
    fn a_fact_that_names_its_kind_is_told_once() {
        let all =
            [("batch", "batch of decode"), ("dtype", "dtype"), ("threads", "compute_threads"), ("threads", "rayon")];
        assert_eq!(
            all.map(|(what, key)| named(what, key)),
            ["batch of decode", "dtype", "compute_threads", "threads rayon"]
        );
        assert_eq!(named("model", "layers"), "model layers");
        assert_eq!(named("shapes", "batch of decode"), "shapes batch of decode");
    }

    #[test]
    fn lengths_may_differ_by_a_rounding() {
        let with = |tokens: f64| [run(|f| drop(f.tokens.insert("output_tokens".into(), tokens.into())))];
        assert!(differences(&with(64.0), &with(64.01), &[]).is_empty());
        assert_eq!(differences(&with(64.0), &with(63.0), &[]).len(), 1);
    }

    #[test]
    fn runs_of_a_side_are_of_one_thing() {
        let runs = [run(|_| ()), run(|f| drop(f.model.insert("layers".into(), 5.into())))];
        assert!(alike("A", &runs).unwrap_err().to_string().contains("layers is 4"));
        assert!(alike("A", &runs[..1]).is_ok());

        let of = |threads: u64| run(|f| drop(f.threads.insert(env_key::COMPUTE_THREADS.name().into(), threads.into())));
        let mixed = alike("A", &[of(2), of(1)]).unwrap_err().to_string();
        assert!(mixed.contains("compute_threads is 2") && mixed.contains("and 1"), "{mixed}");
        assert!(alike("A", &[of(2), run(|_| ())]).is_ok(), "the other does not say");
    }

    #[test]
    fn a_gpu_that_was_slowed_down_is_told() {
        let with = |key: &str, value: f64| [run(|f| _ = f.clocks.insert(key.to_string(), value))];
        let key = "throttled sw_power_cap GPU-1";
        let found = differences(&with(key, 0.0), &with(key, 0.4), &[]);
        assert_eq!((found[0].what, found[0].b.as_str()), ("clocks", Some("slowed down")));
        let key = "sm_hertz GPU-1";
        assert!(differences(&with(key, 1.98e9), &with(key, 1.95e9), &[]).is_empty());
        assert_eq!(differences(&with(key, 1.98e9), &with(key, 1.5e9), &[]).len(), 1);
    }
}
