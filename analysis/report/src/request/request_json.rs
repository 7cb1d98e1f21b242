//! The account of a request for programs.

use super::request_words;
use candlescope_figures::RequestAccount;
use candlescope_reader::Run;
use serde_json::{Map, Value, json};

/// Times are nanoseconds; null is not known.
pub(super) fn account(run: &Run, account: &RequestAccount) -> Value {
    let figures: Map<String, Value> = account
        .beside
        .iter()
        .map(|figure| (figure.name.to_string(), json!({ "own": figure.own, "median": figure.median })))
        .collect();
    let states = |states: Option<[f64; 3]>| {
        let at = |at: usize| states.map(|states| states[at]);
        [at(0), at(1), at(2)]
    };
    let paths = account.paths.as_ref().map(|paths| {
        let path = |path: &candlescope_figures::request_account::LongerPath| {
            let [cpu, preempted, blocked] = states(path.states);
            json!({
                "path": path.path, "more_ns": path.more_ns, "cpu_ns": cpu, "preempted_ns": preempted, "blocked_ns": blocked,
            })
        };
        paths.iter().map(path).collect::<Vec<_>>()
    });
    let slowest = account.slowest.iter().map(|step| {
        let [cpu, preempted, blocked] = states(step.states.map(|states| states.map(|ns| ns as f64)));
        json!({
            "step": step.step,
            "name": step.name,
            "at_ns": step.at_ns,
            "dur_ns": step.dur_ns,
            "more_ns": step.has_like.then_some(step.more_ns),
            "cpu_ns": cpu,
            "preempted_ns": preempted,
            "blocked_ns": blocked,
            "page_faults": step.page_faults,
            "gpu_ns": step.gpu_ns,
        })
    });
    json!({
        "format": "candlescope-request",
        "format_version": 1,
        "run": run.manifest().map(|manifest| manifest.run_id.as_str()),
        "request": account.figures.request,
        "warmup": account.figures.warmup,
        "conclusion": request_words::conclusion(account),
        "dur_ns": account.figures.dur_ns,
        "median_ns": account.usual_ns,
        "requests_like_it": account.like,
        "difference_ns": account.more_ns(),
        "figures": figures,
        "parts": account.parts.iter().map(|part| {
            json!({ "part": part.kind.name(), "ns": part.ns, "steps": part.steps })
        }).collect::<Vec<_>>(),
        "page_faults_more": account.page_faults,
        "steps": account.steps,
        "steps_more_ns": account.steps_more_ns,
        "steps_without_like": account.without_like,
        "steps_without_states": account.without_states,
        "every_step_recorded": account.whole,
        "paths": paths,
        "slowest_steps": slowest.collect::<Vec<_>>(),
        "query": account.query(),
    })
}
