//! What a comparison needs to know of one run: who measured what where, what was counted, and what it took.
//!
//! A run becomes a few hundred numbers here. Baselines keep them as JSON, so that the runs themselves can be deleted.

use super::disturbed::disturbances_of;
use super::fingerprint::{Fingerprint, OUTPUT_TOKENS};
use super::function_facts::HostFacts;
use super::path_times::{PathFacts, PathTimes};
use super::requests_within::goodput;
use super::sampled::RunFigure;
use super::step_times::{DeviceCounts, KindFacts, StepTimes, by_kind, kind_facts, step_times};
use candlescope_figures::figures::Figures;
use candlescope_figures::flame::collapsed;
use candlescope_figures::known::RunContents;
use candlescope_figures::{Analysis, Distribution, StepRow, Warmup};
use candlescope_reader::Run;
use candlescope_schema::run::{Code, Finding, Severity};
use candlescope_schema::{Phase, metric};
use candlescope_work::slo::Slo;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// Samples of the clock of a GPU's multiprocessors.
const SM_CLOCK: &str = metric::GPU_CLOCK_SM;
/// Samples that are 1 while a GPU is slowed down; the reason follows.
const THROTTLED: &str = metric::GPU_THROTTLED_BY;
/// Memory of a GPU in use.
const GPU_MEMORY: &str = metric::GPU_MEMORY_USED;

/// One run as a comparison sees it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RunFacts {
    /// Directory that it was read from.
    pub dir: String,
    /// Name of the run.
    pub run_id: String,
    /// When it started, Unix nanoseconds; 0 if it does not say.
    pub started_ns: i64,
    /// Who measured what where.
    pub fingerprint: Fingerprint,
    /// Codes of findings that make its figures doubtful.
    pub damage: Vec<String>,
    /// What is wrong with the run's files, to be told; a baseline does not keep it.
    #[serde(skip)]
    pub noticed: Vec<Finding>,
    /// What else used the machine meanwhile.
    pub disturbed: Vec<String>,
    /// Its steps by kind.
    pub kinds: BTreeMap<String, KindFacts>,
    /// Time of a typical step in nanoseconds, all kinds shared out among the steps of the most frequent one: Σ steps ×
    /// median ÷ steps of that kind. What is judged.
    pub step_ns: Option<RunFigure>,
    /// Further figures by name; the unit and the better direction follow from the name.
    pub figures: BTreeMap<String, RunFigure>,
    /// Requests a second that kept all limits; `None` where no limits were given, or no request was measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub goodput: Option<f64>,
    /// Steps for each request, all kinds but those that only choose a token; `None` without requests. A baseline does
    /// not keep it.
    #[serde(skip)]
    pub steps_per_request: Option<f64>,
    /// Time of each path.
    pub paths: Vec<PathFacts>,
    /// Collapsed stacks with their nanoseconds for each step.
    pub stacks: Vec<(String, f64)>,
    /// The functions that took the time, if call stacks were sampled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<HostFacts>,
}

impl RunFacts {
    /// Reads a run; steps and requests of the warm-up are left out of times, counts and tokens.
    pub fn of(run: &Run) -> Self {
        Self::within(run, None)
    }

    /// The same with its [`goodput`](Self::goodput), if there are limits.
    pub fn within(run: &Run, limits: Option<&Slo>) -> Self {
        let (known, rows) = RunContents::read(run);
        let mut pass = Figures::of(&known);
        let (mut paths, mut counts) = {
            // Which steps are outermost is known with the figures: the others are left out then.
            let all = measured_steps(&known, &pass.warmup, |_| true);
            let kinds = by_kind(&all);
            (PathTimes::of(&kinds), DeviceCounts::of(&kinds))
        };
        let noticed = rows.to(&mut [&mut pass, &mut paths, &mut counts]);
        let analysis = Analysis::finish(pass, &noticed);
        let outermost: Vec<&str> =
            analysis.phases.rows.iter().filter(|row| row.inside.is_none()).map(|row| row.name.as_str()).collect();
        let steps = measured_steps(&known, &analysis.warmup, |row| outermost.contains(&row.group()));
        let StepTimes { step_ns, parts, kinds } = step_times(&steps);
        let per_step = kinds.values().map(|kind| kind.steps.len()).max().unwrap_or(0) as f64;
        let stacks = match per_step > 0.0 {
            true => collapsed(&analysis.tree).iter().filter_map(|line| stack(line, per_step)).collect(),
            false => Vec::new(),
        };
        // Too low a peak does not make times doubtful.
        let doubtful =
            |finding: &&Finding| finding.severity == Severity::Error && finding.code != Code::UtilisationAboveOne;
        let damage = analysis.verdict.findings.iter().filter(doubtful);
        Self {
            dir: run.dir().display().to_string(),
            run_id: analysis.manifest.run_id.clone(),
            started_ns: analysis.manifest.started_ns,
            fingerprint: fingerprint(&analysis, &steps),
            disturbed: disturbances_of(&analysis),
            damage: damage.map(|finding| finding.code.as_str().to_string()).collect(),
            noticed: analysis.noticed.clone(),
            paths: paths.finish(|kind| kinds.contains_key(kind), &parts),
            kinds: kind_facts(&counts, &kinds, &parts),
            step_ns,
            figures: figures(&analysis),
            goodput: limits.and_then(|limits| goodput(&analysis.latency, limits)),
            steps_per_request: steps_per_request(&analysis, &steps),
            stacks,
            host: analysis.host.as_ref().and_then(|host| HostFacts::of(host, per_step)),
        }
    }
}

impl RunFacts {
    /// The same for one of `n` sequences that every step had: times and counts of steps are divided. Figures of requests
    /// and of the whole run stay.
    #[must_use]
    pub(super) fn for_one_of(mut self, n: f64) -> Self {
        let divide = |sampled: &mut RunFigure| {
            sampled.value /= n;
            sampled.parts.iter_mut().for_each(|part| *part /= n);
        };
        self.step_ns.iter_mut().for_each(divide);
        for kind in self.kinds.values_mut() {
            divide(&mut kind.host_ns);
            kind.gpu_ns.iter_mut().for_each(divide);
            kind.counts.values_mut().for_each(|count| *count /= n);
        }
        for path in &mut self.paths {
            divide(&mut path.host_ns);
            path.gpu_ns.iter_mut().for_each(divide);
        }
        self.stacks.iter_mut().for_each(|(_, ns)| *ns /= n);
        self.host.iter_mut().for_each(|host| host.divide(n));
        self
    }
}

/// Steps without warm-up: phases where any are marked, else those that are outermost.
fn measured_steps(known: &RunContents<'_>, warmup: &Warmup, is_outermost: impl Fn(&StepRow) -> bool) -> Vec<StepRow> {
    let mut rows: Vec<StepRow> = known.steps.iter().filter(|step| !warmup.has_step(Some(step.step))).cloned().collect();
    if rows.iter().any(|row| row.phase.is_some()) {
        rows.retain(|row| row.phase.is_some());
    } else {
        rows.retain(is_outermost);
    }
    rows
}

/// Steps of a run for each of its requests, those without a record among them; what only chooses a token is none.
/// `rows` are recorded ones. `None` where the run does not count its steps, or has no requests.
fn steps_per_request(analysis: &Analysis, rows: &[StepRow]) -> Option<f64> {
    let (counts, requests) = (analysis.manifest.steps?, analysis.latency.requests.len());
    let passes = rows.iter().filter(|row| row.phase != Some(Phase::Sample)).count();
    let steps = counts.begun.saturating_sub(counts.perturbed) as f64 * passes as f64 / rows.len().max(1) as f64;
    (steps > 0.0 && requests > 0).then(|| steps / requests as f64)
}

fn stack(line: &str, per_step: f64) -> Option<(String, f64)> {
    let (names, ns) = line.rsplit_once(' ')?;
    Some((names.to_string(), ns.parse::<f64>().ok()? / per_step))
}

fn fingerprint(analysis: &Analysis, steps: &[StepRow]) -> Fingerprint {
    let mut fingerprint = Fingerprint::of(&analysis.manifest);
    let requests: Vec<_> = analysis.latency.requests.iter().filter(|request| !request.warmup).collect();
    let mean = |values: Vec<f64>| (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64);
    let work = [
        ("prompt_tokens", mean(requests.iter().filter_map(|r| r.prompt_tokens.map(|n| n as f64)).collect())),
        (OUTPUT_TOKENS, mean(requests.iter().filter_map(|r| r.output_tokens.map(|n| n as f64)).collect())),
        ("context", mean(steps.iter().filter_map(|s| s.context_len.map(f64::from)).collect())),
    ];
    fingerprint.tokens = work.into_iter().filter_map(|(key, value)| Some((key.to_string(), value?.into()))).collect();
    let mut groups: BTreeMap<String, Value> = BTreeMap::new();
    for step in steps {
        let batch = step.batch.map_or(Value::Null, Value::from);
        let known = groups.entry(format!("batch of {}", step.group())).or_insert_with(|| batch.clone());
        if *known != batch {
            *known = Value::from("varies");
        }
    }
    fingerprint.shapes = groups.into_iter().filter(|(_, value)| !value.is_null()).collect();
    // A GPU that the program does not use rests at any clock.
    for series in analysis.memory.series.iter().filter(|series| analysis.may_have_run_on(&series.device)) {
        let Some(inside) = series.in_steps else { continue };
        if series.metric == SM_CLOCK {
            fingerprint.clocks.insert(format!("sm_hertz {}", series.device), inside.mean);
        } else if let Some(reason) = series.metric.strip_prefix(THROTTLED).filter(|reason| *reason != metric::GPU_IDLE)
        {
            fingerprint.clocks.insert(format!("throttled {reason} {}", series.device), inside.mean);
        }
    }
    fingerprint
}

fn figures(analysis: &Analysis) -> BTreeMap<String, RunFigure> {
    let mut figures = BTreeMap::new();
    let mut add = |name: &str, value: Option<f64>| {
        if let Some(value) = value.filter(|value| value.is_finite()) {
            figures.insert(name.to_string(), RunFigure::whole(value));
        }
    };
    let latency = &analysis.latency;
    let median = |of: &Option<Distribution>| of.as_ref().map(|d| d.median);
    add("ttft_ns", median(&latency.ttft));
    add("tpot_ns", median(&latency.tpot));
    add("itl_ns", median(&latency.itl));
    add("e2e_ns", median(&latency.e2e));
    // Where requests are unlike, a change may be one of some of them, of which a median says all or nothing.
    add("e2e_mean_ns", latency.e2e.as_ref().map(|d| d.mean));
    add("output_tps", latency.output_tokens_per_s);
    add("energy_per_token_j", analysis.energy.per_output_token().map(|(gross, _)| gross));
    add("peak_memory_bytes", analysis.memory.peak_resident().map(|peak| peak.bytes));
    let used = |device: &str| analysis.may_have_run_on(device);
    let on_gpus = analysis.memory.series.iter().filter(|series| series.metric == GPU_MEMORY && used(&series.device));
    let gpu_memory = on_gpus.filter_map(|series| series.in_steps.map(|inside| inside.max)).reduce(|a, b| a + b);
    add("gpu_memory_bytes", gpu_memory);
    // What the program itself measured of its answers.
    for (name, value) in &analysis.manifest.results {
        if super::figure::is_quality(name) {
            add(name, value.as_f64());
        }
    }
    figures
}
