//! The same account of what was tried by hand: from studies, comparisons and load tests that exist, in the order in which
//! they are given. Each is held against the best before it.

use crate::account::{Account, BeforeAfter, MeasuredGain, OptimiseEnd, Phase, Verdict};
use crate::error::OptimiseError;
use crate::goal::Aim;
use crate::remedies::Answers;
use crate::search::blank;
use crate::setting::Change;
use crate::trial::ALLOWED;
use crate::words::GOODPUT;
use crate::words::signed;
use crate::write;
use candlescope_compare::{CasesSide, CompareOptions, Outcome, compare_cases};
use candlescope_core::files::read_text_limited;
use candlescope_core::load_results;
use candlescope_core::numbers::significant;
use candlescope_core::study_files::MANIFEST_FILE;
use candlescope_lab::compare::{Target, cases_of};
use candlescope_reader::ReadLimits;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The largest file that is read.
const MOST_BYTES: u64 = 1 << 30;
/// Without an interval, less than this is no gain.
const LEAST: f64 = 0.02;

/// A study, a comparison, or the results of a load test, and what it is called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Station {
    /// Directory of a study, a comparison or a load test, or a file with the results of a load test.
    pub path: PathBuf,
    /// What it is called: the flags that were changed, for example.
    pub label: String,
}

impl Station {
    /// Reads `PATH` or `PATH=LABEL`; without a label it is called as the file or directory is, and a path that exists
    /// is not split.
    pub fn parse(text: &str) -> Self {
        let whole = Path::new(text);
        let split = text.split_once('=').filter(|_| !whole.exists());
        let (path, label) = split.unwrap_or((text, ""));
        let path = PathBuf::from(path);
        let name = path.file_name().map_or_else(|| text.to_string(), |name| name.to_string_lossy().into_owned());
        Self { label: if label.is_empty() { name } else { label.to_string() }, path }
    }
}

/// What a station is.
enum StationKind {
    /// An optimisation, whose phases are taken over as they are.
    Account(Box<Account>),
    /// Two sides compared, with `compare --run`.
    Comparison(Box<Phase>),
    /// One state of something.
    State(Box<State>),
}

/// Figures of one state.
#[derive(Default)]
struct State {
    label: String,
    /// Medians of times in nanoseconds, `output_tps`, and `goodput` in requests a second.
    figures: BTreeMap<String, f64>,
    /// Of a study, values by process start.
    cases: Option<CasesSide>,
    model: String,
    hardware: String,
}

/// The account of stations in this order.
///
/// # Errors
/// One of them is nothing that can be read.
pub fn journey(stations: &[Station], aim: Aim, limits: &ReadLimits) -> Result<Account, OptimiseError> {
    let mut account = Account { aim, ended: OptimiseEnd::AllTried, ..Account::default() };
    let mut best: Option<Box<State>> = None;
    for station in stations {
        match find(station, aim, limits)? {
            StationKind::Account(found) => {
                name(&mut account, &found.model, &found.hardware);
                account.phases.extend(found.phases);
                // What follows cannot be held against what was before it.
                best = None;
            }
            StationKind::Comparison(phase) => {
                account.phases.push(*phase);
                best = None;
            }
            StationKind::State(state) => {
                name(&mut account, &state.model, &state.hardware);
                let Some(before) = &best else {
                    best = Some(state);
                    continue;
                };
                let phase = held_against(before, &state, aim);
                // What has no goodput is nothing that others can be held against.
                let has = |state: &State| state.figures.contains_key(GOODPUT);
                let is_first = aim == Aim::Goodput && !has(before) && has(&state);
                if phase.verdict == Verdict::Kept || is_first {
                    best = Some(state);
                }
                account.phases.push(phase);
            }
        }
    }
    Ok(account)
}

/// The account's files, in a directory.
///
/// # Errors
/// They cannot be written.
pub fn write_journey(account: &Account, out: &Path) -> Result<(), OptimiseError> {
    write::all(account, out)
}

fn name(account: &mut Account, model: &str, hardware: &str) {
    for (own, of) in [(&mut account.model, model), (&mut account.hardware, hardware)] {
        if own.is_empty() {
            *own = of.to_string();
        }
    }
}

fn find(station: &Station, aim: Aim, limits: &ReadLimits) -> Result<StationKind, OptimiseError> {
    let path = &station.path;
    let failed = |why: String| OptimiseError::Station { path: path.clone(), why };
    let json = |file: &Path| -> Result<Value, OptimiseError> {
        let text = read_text_limited(file, MOST_BYTES).map_err(|error| failed(error.to_string()))?;
        // Some programs write a line for each result: the last one counts.
        let last = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
        serde_json::from_str(&text).or_else(|_| serde_json::from_str(last)).map_err(|error| failed(error.to_string()))
    };
    if path.is_file() {
        return of_results(&json(path)?, station, aim).map(|state| StationKind::State(Box::new(state))).map_err(failed);
    }
    if let Ok(account) = write::read_account(&path.join(MANIFEST_FILE)) {
        return Ok(StationKind::Account(Box::new(account)));
    }
    let (compared, load) = (path.join("compare.json"), path.join(load_results::FILE));
    if compared.is_file() {
        return of_comparison(&json(&compared)?, station, aim)
            .map(|phase| StationKind::Comparison(Box::new(phase)))
            .map_err(failed);
    }
    if load.is_file() {
        return of_results(&json(&load)?, station, aim)
            .map(|state| StationKind::State(Box::new(state)))
            .map_err(failed);
    }
    match Target::find(path)? {
        Target::Studies(studies) => {
            let cases = cases_of(&station.label, &studies, limits)?;
            let hardware = cases.fingerprint.machine_name();
            let state = State { label: station.label.clone(), hardware, cases: Some(cases), ..State::default() };
            Ok(StationKind::State(Box::new(state)))
        }
        Target::Runs(_) => {
            Err(failed("it holds runs: give two of them to `candlescope compare`, and its --out here".into()))
        }
    }
}

/// Results of a load: `candlescope load`'s, or those that vLLM's and SGLang's benchmarks of servers write.
fn of_results(json: &Value, station: &Station, aim: Aim) -> Result<State, String> {
    let mut state = State { label: station.label.clone(), ..State::default() };
    let number = |value: &Value| value.as_f64().filter(|value| value.is_finite() && *value > 0.0);
    // No request a second that keeps the limits is a result, too.
    let good = |value: &Value| value.as_f64().filter(|value| value.is_finite() && *value >= 0.0);
    let mut put = |name: &str, value: Option<f64>| {
        if let Some(value) = value {
            state.figures.insert(name.to_string(), value);
        }
    };
    if let Some(stages) = json["stages"].as_array() {
        let rate = |stage: &Value| number(&stage["figures"]["output_tokens_per_s"]).unwrap_or(0.0);
        let good_rate = |stage: &Value| good(&stage["figures"]["goodput"]["requests_per_s"]);
        // The stage that is best by the goal; where no stage has it, or several the same, by its tokens.
        let by_goal = |stage: &Value| (aim == Aim::Goodput).then(|| good_rate(stage)).flatten().unwrap_or(-1.0);
        let order = |a: &&Value, b: &&Value| by_goal(a).total_cmp(&by_goal(b)).then(rate(a).total_cmp(&rate(b)));
        let best = stages.iter().max_by(order).ok_or("no stage has figures")?;
        put(GOODPUT, good_rate(best));
        let figures = &best["figures"];
        put("output_tps", number(&figures["output_tokens_per_s"]));
        for (name, key) in [("ttft_ns", "ttft_ns"), ("tpot_ns", "tpot_ns"), ("e2e_ns", "e2e_ns")] {
            put(name, number(&figures[key]["median"]));
        }
        state.model = json["target"]["model"].as_str().unwrap_or_default().to_string();
    } else {
        put("output_tps", number(&json["output_throughput"]));
        // Earlier versions of vLLM write the name with a colon.
        put(GOODPUT, good(&json["request_goodput"]).or_else(|| good(&json["request_goodput:"])));
        for (name, key) in [("ttft_ns", "median_ttft_ms"), ("tpot_ns", "median_tpot_ms"), ("e2e_ns", "median_e2el_ms")]
        {
            put(name, number(&json[key]).map(|ms| ms * 1e6));
        }
        state.model = json["model_id"].as_str().unwrap_or_default().to_string();
    }
    if state.figures.is_empty() {
        return Err(
            "it is neither the results of `candlescope load` nor those of vLLM's or SGLang's benchmark of servers \
                    (output_throughput, median_tpot_ms)"
                .into(),
        );
    }
    Ok(state)
}

/// What `compare --run` wrote.
fn of_comparison(json: &Value, station: &Station, aim: Aim) -> Result<Phase, String> {
    let estimate = &json["step"]["estimate"];
    let change = estimate["change"].as_f64().ok_or("its step has no estimate: it is no comparison of runs")?;
    let mut phase = blank("compare", &station.label, &Change::default(), Answers::Rounded);
    let (low, high) = (estimate["low"].as_f64(), estimate["high"].as_f64());
    phase.obtained = Some(MeasuredGain { gain: -change, low: high.map(|high| -high), high: low.map(|low| -low) });
    let outcome = json["outcome"].as_str().unwrap_or_default();
    phase.verdict = if outcome == Outcome::Better.as_str() { Verdict::Kept } else { Verdict::Rejected };
    phase.why = format!("{outcome}: a step changes by {}", signed(change));
    if aim == Aim::Goodput {
        (phase.verdict, phase.why) = (
            Verdict::NotTried,
            format!("nothing was judged: comparisons have no goodput; a step changes by {}", signed(change)),
        );
    }
    let figures = json["figures"].as_array().into_iter().flatten().chain([&json["step"]]);
    phase.figures = figures
        .filter_map(|figure| {
            let of = &figure["estimate"];
            Some(BeforeAfter {
                name: figure["name"].as_str()?.to_string(),
                before: figure["a"].as_f64()?,
                after: figure["b"].as_f64()?,
                change: of["change"].as_f64().map(|change| (change, of["low"].as_f64(), of["high"].as_f64())),
            })
        })
        .collect();
    Ok(phase)
}

/// A state held against the best before it.
fn held_against(before: &State, after: &State, aim: Aim) -> Phase {
    let mut phase = blank("by_hand", &after.label, &Change::default(), Answers::Rounded);
    if let (Some(a), Some(b)) = (&before.cases, &after.cases) {
        of_cases(&mut phase, a, b);
        if aim == Aim::Goodput {
            phase.verdict = Verdict::NotTried;
            phase.why = format!("nothing was judged: studies have no goodput; by their times: {}", phase.why);
        }
        return phase;
    }
    phase.figures = before
        .figures
        .iter()
        .filter_map(|(name, value)| {
            let after = *after.figures.get(name)?;
            Some(BeforeAfter {
                name: name.clone(),
                before: *value,
                after,
                // A share of nothing is none.
                change: (*value > 0.0).then(|| (after / value - 1.0, None, None)),
            })
        })
        .collect();
    if aim == Aim::Goodput {
        of_goodput(&mut phase, before, after);
        return phase;
    }
    let wanted = if aim == Aim::Latency { ["tpot_ns", "output_tps"] } else { ["output_tps", "tpot_ns"] };
    let Some(figure) = wanted.iter().find_map(|name| phase.figure(name)) else {
        (phase.verdict, phase.why) = (Verdict::NotTried, format!("it has no figure in common with {}", before.label));
        return phase;
    };
    // Of tokens a second, more is better: a token takes the reciprocal.
    let ratio = figure.after / figure.before;
    let gain = if figure.name == "output_tps" { 1.0 - 1.0 / ratio } else { 1.0 - ratio };
    phase.why = format!("{} changes by {}; one measurement of each has no interval", figure.name, signed(ratio - 1.0));
    phase.obtained = Some(MeasuredGain { gain, low: None, high: None });
    phase.verdict = if gain > LEAST { Verdict::Kept } else { Verdict::Rejected };
    phase
}

/// By requests a second that kept all limits.
fn of_goodput(phase: &mut Phase, before: &State, after: &State) {
    let of = |state: &State| state.figures.get(GOODPUT).copied();
    let (a, b) = match (of(before), of(after)) {
        (Some(a), Some(b)) if a > 0.0 || b > 0.0 => (a, b),
        (Some(_), Some(_)) => {
            phase.why = "nothing was judged: no request kept the limits, neither before nor after".into();
            return;
        }
        (a, _) => {
            let lacks = if a.is_none() { &before.label } else { &after.label };
            phase.why = format!("nothing was judged: {lacks} has no goodput, which is that of a load with limits");
            return;
        }
    };
    phase.why = format!(
        "{} requests a second kept all limits, and {} do; one measurement of each has no interval",
        significant(a),
        significant(b)
    );
    // Of more requests a second, each takes the reciprocal; from nothing or to nothing, that is no share.
    let gain = 1.0 - a / b;
    if a > 0.0 && b > 0.0 {
        phase.obtained = Some(MeasuredGain { gain, low: None, high: None });
    }
    phase.verdict = if gain > LEAST { Verdict::Kept } else { Verdict::Rejected };
}

/// Studies held against each other: the case that both have, or what all of them show together.
fn of_cases(phase: &mut Phase, a: &CasesSide, b: &CasesSide) {
    let allowed = ALLOWED.map(str::to_string).to_vec();
    let compared = match compare_cases(a, b, &CompareOptions::default().allow(allowed)) {
        Ok(compared) => compared,
        Err(error) => {
            (phase.verdict, phase.why) = (Verdict::NotTried, error.to_string());
            return;
        }
    };
    let decisive: Vec<_> = compared.cases.iter().filter_map(|case| case.decisive.as_ref()).collect();
    phase.figures = compared
        .cases
        .iter()
        .flat_map(|case| {
            let all = case.decisive.iter().chain(&case.figures);
            all.map(move |figure| BeforeAfter {
                name: format!("{} {}", case.case, figure.name),
                before: figure.a,
                after: figure.b,
                change: figure.estimate.map(|estimate| (estimate.change, estimate.low, estimate.high)),
            })
        })
        .collect();
    // Of several cases, the one in the middle.
    let mut estimates: Vec<_> = decisive.iter().filter_map(|figure| figure.estimate).collect();
    estimates.sort_by(|x, y| x.change.total_cmp(&y.change));
    if let Some(middle) = estimates.get(estimates.len() / 2) {
        phase.obtained = Some(MeasuredGain {
            gain: -middle.change,
            low: middle.high.map(|high| -high),
            high: middle.low.map(|low| -low),
        });
    }
    phase.verdict = if compared.outcome == Outcome::Better { Verdict::Kept } else { Verdict::Rejected };
    let cases = compared.cases.len();
    phase.why = match cases {
        1 => compared.outcome.as_str().to_string(),
        _ => format!("{}, of {cases} cases the middle one is shown", compared.outcome.as_str()),
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn station(dir: &Path, name: &str, content: &Value) -> Station {
        std::fs::write(dir.join(name), content.to_string()).unwrap();
        Station::parse(&format!("{}=--{name}", dir.join(name).display()))
    }

    #[test]
    fn results_of_other_servers_are_held_against_the_best_before() {
        let dir = tempfile::tempdir().unwrap();
        let of = |name: &str, tps: f64, tpot: f64| {
            station(
                dir.path(),
                name,
                &json!({ "model_id": "m", "output_throughput": tps, "median_tpot_ms": tpot, "date": "x" }),
            )
        };
        let stations = [of("a", 1000.0, 10.0), of("b", 2000.0, 12.0), of("c", 1900.0, 11.0), of("d", 4000.0, 20.0)];
        let account = journey(&stations, Aim::Throughput, &ReadLimits::default()).unwrap();
        let gains: Vec<f64> = account.phases.iter().map(|phase| phase.obtained.unwrap().gain).collect();
        assert!((gains[0] - 0.5).abs() < 1e-9 && (gains[1] + 1.0 / 19.0).abs() < 1e-9 && (gains[2] - 0.5).abs() < 1e-9);
        let verdicts: Vec<Verdict> = account.phases.iter().map(|phase| phase.verdict).collect();
        assert_eq!(verdicts, [Verdict::Kept, Verdict::Rejected, Verdict::Kept]);
        assert_eq!((account.model.as_str(), account.phases[0].title.as_str()), ("m", "--b"));
        assert!((account.total().unwrap() - 0.75).abs() < 1e-9, "twice as fast, and twice again");
        // For the time of a token, more of them a second are no gain.
        let account = journey(&stations, Aim::Latency, &ReadLimits::default()).unwrap();
        assert!(account.phases.iter().all(|phase| phase.verdict == Verdict::Rejected), "{account:?}");
    }

    #[test]
    fn goodput_is_judged_by_requests_that_kept_the_limits() {
        let dir = tempfile::tempdir().unwrap();
        let judged = |stations: &[Station]| journey(stations, Aim::Goodput, &ReadLimits::default()).unwrap();
        // More tokens a second, of which fewer requests keep the limits.
        let vllm = |name: &str, key: &str, tps: f64, good: Value| {
            station(dir.path(), name, &json!({ "output_throughput": tps, "median_tpot_ms": 10.0, key: good }))
        };
        let (key, old_key) = ("request_goodput", "request_goodput:");
        let stations = [
            vllm("a", key, 1000.0, json!(4.0)),
            vllm("b", key, 2000.0, json!(2.0)),
            vllm("c", old_key, 900.0, json!(8.0)),
            vllm("d", key, 3000.0, json!(0.0)),
            vllm("e", key, 3000.0, Value::Null),
        ];
        let account = judged(&stations);
        let verdicts: Vec<Verdict> = account.phases.iter().map(|phase| phase.verdict).collect();
        assert_eq!(verdicts, [Verdict::Rejected, Verdict::Kept, Verdict::Rejected, Verdict::NotTried]);
        assert_eq!(account.phases[1].obtained.unwrap().gain, 0.5);
        assert_eq!((account.phases[2].obtained, account.goodput()), (None, Some((4.0, 8.0))));
        assert!(account.phases[3].why.contains("nothing was judged: --e has no goodput"), "{account:?}");
        let page = crate::summary::markdown(&account);
        assert!(
            page.contains("**4.00 requests a second kept all limits, and 8.00 do (2.00 times as many)**"),
            "{page}"
        );
        assert!(!page.contains("step time is gone") && !page.contains("The step time gains"), "{page}");
        // Without any, nothing is judged by something else; from nothing to something has no share.
        let without = judged(&[vllm("f", key, 1.0, Value::Null), vllm("g", key, 2.0, Value::Null)]);
        assert_eq!((without.phases[0].verdict, without.phases[0].obtained), (Verdict::NotTried, None));
        assert!(crate::summary::markdown(&without).contains("**Nothing was kept: nothing was judged.**"));
        let later = judged(&[
            vllm("l", key, 1.0, Value::Null),
            vllm("m", key, 1.0, json!(1.0)),
            vllm("n", key, 1.0, json!(2.0)),
        ]);
        assert_eq!((later.phases[0].verdict, later.phases[1].verdict), (Verdict::NotTried, Verdict::Kept));
        let none = judged(&[vllm("h", key, 1.0, json!(0.0)), vllm("i", key, 2.0, json!(0.0))]);
        assert!(none.phases[0].verdict == Verdict::NotTried && none.phases[0].why.contains("no request kept"));
        let first = judged(&[vllm("j", key, 1.0, json!(0.0)), vllm("k", key, 1.0, json!(2.0))]);
        assert_eq!((first.phases[0].verdict, first.phases[0].obtained), (Verdict::Kept, None));
        assert_eq!(first.phases[0].figure(GOODPUT).unwrap().change, None);
    }

    #[test]
    fn of_a_load_the_stage_with_the_most_goodput_counts() {
        let dir = tempfile::tempdir().unwrap();
        let stage = |tps: f64, good: f64| json!({ "figures": { "output_tokens_per_s": tps, "goodput": { "requests_per_s": good } } });
        let load = |name: &str, stages: [Value; 2]| station(dir.path(), name, &json!({ "stages": stages }));
        let stations =
            [load("a", [stage(10.0, 3.0), stage(20.0, 1.0)]), load("b", [stage(10.0, 6.0), stage(40.0, 2.0)])];
        let of = |aim| journey(&stations, aim, &ReadLimits::default()).unwrap().phases.remove(0);
        let good = of(Aim::Goodput);
        let figure = good.figure(GOODPUT).unwrap();
        assert_eq!((good.verdict, figure.before, figure.after), (Verdict::Kept, 3.0, 6.0));
        assert_eq!(of(Aim::Throughput).figure("output_tps").unwrap().after, 40.0);
    }

    #[test]
    fn what_is_nothing_of_the_kind_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let error =
            |station: Station| journey(&[station], Aim::Latency, &ReadLimits::default()).unwrap_err().to_string();
        let other = error(station(dir.path(), "other.json", &json!({ "a": 1 })));
        assert!(other.contains("other.json") && other.contains("output_throughput"), "{other}");
        std::fs::write(dir.path().join("broken"), "{").unwrap();
        assert!(error(Station::parse(dir.path().join("broken").to_str().unwrap())).contains("broken"));
        assert!(error(Station::parse("/no/such/study")).contains("/no/such/study"));
    }

    #[test]
    fn a_comparison_is_a_step_of_the_journey() {
        let dir = tempfile::tempdir().unwrap();
        let compared = json!({
            "outcome": "better", "figures": [],
            "step": { "name": "step_ns", "a": 10.0, "b": 8.0, "estimate": { "change": -0.2, "low": -0.22, "high": -0.18 } },
        });
        std::fs::write(dir.path().join("compare.json"), compared.to_string()).unwrap();
        let station = Station::parse(dir.path().to_str().unwrap());
        let account = journey(&[station], Aim::Latency, &ReadLimits::default()).unwrap();
        let phase = &account.phases[0];
        assert_eq!((phase.verdict, phase.obtained.unwrap().low), (Verdict::Kept, Some(0.18)));
        assert_eq!(phase.figure("step_ns").unwrap().after, 8.0);
        // It says nothing of goodput.
        let account =
            journey(&[Station::parse(dir.path().to_str().unwrap())], Aim::Goodput, &ReadLimits::default()).unwrap();
        assert!(account.phases[0].verdict == Verdict::NotTried && account.phases[0].why.contains("nothing was judged"));
    }
}
