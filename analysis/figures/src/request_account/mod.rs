//! Why one request took longer than others: its time against the median request's, and that of its steps against steps like
//! them.
//!
//! A request's time is that before its first step, that of its steps and that between them. Each step is held against
//! what is usual for the steps like it: of its phase, its batch, about its tokens and its context. What its steps
//! usually take is the request's work, which differs from that of others where prompts or outputs are longer. What they
//! took beyond that divides into what their threads did. All of this is computed for the other requests, too: what a
//! part has beyond its median is its share of the difference. What is left over, because medians of parts do not add up
//! to the median of the whole and steps may overlap, is a part of its own.

mod alike;
mod beside;
mod no_request;
mod paths;
mod split;

pub use alike::{LENGTHS_APART, of_a_length};
pub use beside::FigureBeside;
pub use no_request::NoRequest;
pub use paths::LongerPath;
pub use split::{Part, PartKind, StepExcess};

use crate::application::Application;
use crate::known::RunContents;
use crate::latency::{self, Latency, RequestFigures};
use crate::sampling::Sampling;
use crate::stats::percentile_of;
use crate::step_rows::{StepRow, outermost};
use crate::step_threads::step_threads;
use alike::{AlikeSteps, StepWithThread};
use beside::beside;
use candlescope_reader::Run;
use candlescope_reader::limits::Limit;
use candlescope_schema::run::Finding;
use candlescope_schema::{Phase, RequestRecord};
use no_request::unknown;
use paths::PathPass;
use split::{Split, Times, parts};
use std::collections::{BTreeMap, BTreeSet};

/// Requests whose steps are looked at for what is usual, evenly spread over those like it in order of duration.
const MOST_LIKE: usize = 64;
/// Paths and steps that are named.
const MOST_PATHS: usize = 5;
const MOST_STEPS: usize = 10;

/// One request, taken apart.
#[derive(Debug, Clone)]
pub struct RequestAccount {
    /// Its latency, tokens and rates, also if it is of the warm-up.
    pub figures: RequestFigures,
    /// Measured requests of its kind (model, operation, batch and phases), itself among them unless it warmed up.
    pub like: usize,
    /// Its figures beside medians of these.
    pub beside: Vec<FigureBeside>,
    /// Median of their durations in nanoseconds; `None` without another one.
    pub usual_ns: Option<f64>,
    /// Where the difference comes from; the parts add up to it. Empty without another request of its kind.
    pub parts: Vec<Part>,
    /// Its recorded steps, without those inside another one of the same thread.
    pub steps: u64,
    /// Those without others like them.
    pub without_like: u64,
    /// Those of which it is not known when their thread was on a CPU.
    pub without_states: u64,
    /// Whether all of its steps have records.
    pub whole: bool,
    /// Pages that the system had to provide in its steps beyond what is usual; `None` if they were not counted.
    pub page_faults: Option<f64>,
    /// What its steps took beyond what is usual, nanoseconds.
    pub steps_more_ns: f64,
    /// The paths that took longer in its steps than in those like them, most first; `None` if there were too many intervals
    /// to say.
    pub paths: Option<Vec<LongerPath>>,
    /// The steps that exceed by most what is usual, most first.
    pub slowest: Vec<StepExcess>,
    /// What is wrong with the run's files: damage and limits.
    pub noticed: Vec<Finding>,
}

impl RequestAccount {
    /// Takes a request of a run apart.
    ///
    /// # Errors
    /// If the run has no request of this number.
    pub fn of(run: &Run, request: u64) -> Result<Self, NoRequest> {
        let (known, rows) = RunContents::read(run);
        let Some(record) = known.requests.iter().find(|one| one.request == request) else {
            return Err(unknown(request, &known.requests));
        };
        let application = Application::of(&known.steps);
        let steps = application.without(&known.steps);
        let warmup = known.warmup();
        let whole = !Sampling::of(&known.manifest, &known.steps).is_sampled();
        let every = latency::every_step_recorded(&known.manifest) && whole;
        let figures = Latency::of(&known.requests, &steps, warmup.requests(), every).requests;
        let threads = step_threads(run, |_| true);
        let measured = steps.iter().filter(|step| step.is_measured(warmup.requests()));
        let alike = AlikeSteps::of(measured.map(|step| StepWithThread::of(step, &threads)));
        let by_request = steps_by_request(&steps);
        let split_of = |number: u64| -> Vec<Split<'_>> {
            let steps = by_request.get(&number).map_or(&[][..], Vec::as_slice);
            let told = outermost(steps.iter().copied()).into_iter().map(|step| StepWithThread::of(step, &threads));
            told.map(|step| Split::of(step, alike.usual(&step))).collect()
        };

        let split = split_of(request);
        let compared: Vec<StepWithThread<'_>> =
            split.iter().filter(|one| one.usual.has_like).map(|one| one.step).collect();
        let room = usize::try_from(run.limits().get(Limit::OpenIntervals)).unwrap_or(usize::MAX);
        let mut paths = PathPass::of(&compared, &alike, room);
        let noticed = rows.to(&mut [&mut paths]).findings;

        let kind = kind(record, &by_request);
        let numbers: BTreeSet<u64> = known
            .requests
            .iter()
            .filter(|one| !warmup.requests().contains(&one.request) && self::kind(one, &by_request) == kind)
            .map(|one| one.request)
            .collect();
        let like: Vec<RequestFigures> = figures.iter().filter(|one| numbers.contains(&one.request)).cloned().collect();
        let figures = figures.into_iter().find(|one| one.request == request).unwrap_or_default();
        let others = like.iter().filter(|one| one.request != request).count();
        let durations: Vec<f64> = like.iter().map(|one| one.dur_ns as f64).collect();
        let usual_ns = percentile_of(&durations, 0.5).filter(|_| others > 0);
        let mut ordered: Vec<&RequestFigures> = like.iter().collect();
        ordered.sort_by_key(|one| (one.dur_ns, one.request));
        let usual: Vec<Times> = ordered
            .iter()
            .step_by(ordered.len().div_ceil(MOST_LIKE).max(1))
            .map(|one| Times::of(one, &split_of(one.request), whole))
            .collect();
        let times = Times::of(&figures, &split, whole);
        let more_ns = usual_ns.map(|usual| figures.dur_ns as f64 - usual);
        let parts = more_ns.map_or(Vec::new(), |more| parts(&times, &usual, &split, more, whole));
        let faults = split.iter().filter_map(|one| Some(one.step.thread.page_faults? as f64 - one.usual.page_faults?));
        let page_faults = faults.reduce(|sum, more| sum + more);
        let start_ns = record.host_start.0;
        let mut slowest: Vec<StepExcess> = split.iter().map(|one| StepExcess::of(one, start_ns)).collect();
        slowest.sort_by(|a, b| b.more_ns.total_cmp(&a.more_ns).then_with(|| b.dur_ns.cmp(&a.dur_ns)));
        slowest.truncate(MOST_STEPS);
        let mut paths = paths.finish();
        if let Some(paths) = &mut paths {
            paths.retain(|path| path.more_ns > 0.0);
            paths.truncate(MOST_PATHS);
        }
        let count = |of: fn(&Split<'_>) -> bool| split.iter().filter(|one| of(one)).count() as u64;
        Ok(Self {
            usual_ns,
            parts,
            steps: split.len() as u64,
            without_like: count(|one| !one.usual.has_like),
            without_states: count(|one| one.states.is_none()),
            whole,
            page_faults,
            steps_more_ns: split.iter().map(Split::more_ns).sum(),
            paths,
            slowest,
            noticed,
            like: like.len(),
            beside: beside(&figures, &like),
            figures,
        })
    }

    /// By how much it took longer than the median request, nanoseconds.
    pub fn more_ns(&self) -> Option<f64> {
        Some(self.figures.dur_ns as f64 - self.usual_ns?)
    }

    /// The part that makes up most of the difference: the largest of a request that took longer, the smallest of one that
    /// took less.
    pub fn main_part(&self) -> Option<&Part> {
        let sign = if self.more_ns()? < 0.0 { -1.0 } else { 1.0 };
        let known = self.parts.iter().filter_map(|part| Some((part, part.ns? * sign)));
        known.max_by(|a, b| a.1.total_cmp(&b.1)).map(|(part, _)| part)
    }

    /// SQL over the views of `docs/sql.md` that finds the rows of the slowest steps; `None` without steps.
    pub fn query(&self) -> Option<String> {
        if self.slowest.is_empty() {
            return None;
        }
        let steps: Vec<String> = self.slowest.iter().map(|step| step.step.to_string()).collect();
        Some(format!(
            "SELECT run, step, coalesce(phase, operator) AS kind, host_dur_ns, cpu_ns, preempted_ns, blocked_ns, \
             page_faults FROM steps WHERE step IN ({}) ORDER BY host_dur_ns DESC",
            steps.join(", ")
        ))
    }
}

/// The steps of each request, in order of start.
fn steps_by_request(steps: &[StepRow]) -> BTreeMap<u64, Vec<&StepRow>> {
    let mut by_request: BTreeMap<u64, Vec<&StepRow>> = BTreeMap::new();
    for step in steps {
        let served = step.serves.iter().map(|served| served.request);
        for request in served.chain(step.request.filter(|_| step.serves.is_empty())) {
            by_request.entry(request).or_default().push(step);
        }
    }
    by_request
}

/// What requests of a kind have in common: model, operation, batch, and the phases of their steps, if these are theirs
/// alone.
type Kind<'a> = (&'a str, &'a str, Option<u32>, BTreeSet<Option<Phase>>);

fn kind<'a>(request: &'a RequestRecord, by_request: &BTreeMap<u64, Vec<&StepRow>>) -> Kind<'a> {
    let steps = by_request.get(&request.request).into_iter().flatten();
    // Which phases a step for several requests is called by depends on the others.
    let phases = steps.filter(|step| step.serves.is_empty()).map(|step| step.phase).collect();
    (&request.model, &request.operation, request.batch, phases)
}
