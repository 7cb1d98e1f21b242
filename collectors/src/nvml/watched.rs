//! One GPU under observation: what it reports, what it does not, and why. Uses no device, only the traits of
//! `gpu_source.rs`.

use super::gpu_metrics::{Answer, METRICS, Query, of_query};
use super::gpu_source::{Failure, Gpu, GpuFacts};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The longest wait before a question that failed is asked again.
const LONGEST_WAIT: Duration = Duration::from_secs(10);
/// The wait after the first failure; it doubles with each that follows.
const FIRST_WAIT: Duration = Duration::from_millis(20);

/// The state of a query.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
enum State {
    #[default]
    Asked,
    /// Failed lately. It is made again at this time, so that a GPU in trouble gets few queries.
    Waits { until: Duration, failures: u32 },
    /// Never to be asked again.
    Missing(String),
}

/// The outcome of a query.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Outcome {
    Answered(Answer),
    /// No answer, for this reason.
    Nothing(String),
    /// There was no point in asking.
    Skipped,
}

/// A GPU and the state of each question to it.
#[derive(Debug)]
pub(super) struct WatchedGpu {
    pub(super) facts: GpuFacts,
    /// The UUID, as samples carry it.
    pub(super) device: Arc<str>,
    gpu: Box<dyn Gpu>,
    states: [State; Query::ALL.len()],
    lost: bool,
    /// Why it is lost, until that has been reported.
    news: Option<String>,
}

impl WatchedGpu {
    pub(super) fn new(facts: GpuFacts, gpu: Box<dyn Gpu>) -> Self {
        Self { device: facts.uuid.as_str().into(), facts, gpu, states: Default::default(), lost: false, news: None }
    }

    /// Whether it has been found to be gone.
    pub(super) fn is_lost(&self) -> bool {
        self.lost
    }

    /// Why it is gone, once.
    pub(super) fn news(&mut self) -> Option<String> {
        self.news.take()
    }

    /// Makes the query, unless it cannot succeed, and remembers the outcome.
    pub(super) fn ask(&mut self, query: Query, now: Duration) -> Outcome {
        let failures = match &self.states[query as usize] {
            _ if self.lost || !self.is_needed(query) => return Outcome::Skipped,
            State::Missing(_) => return Outcome::Skipped,
            State::Waits { until, .. } if now < *until => return Outcome::Skipped,
            State::Waits { failures, .. } => *failures,
            State::Asked => 0,
        };
        let (state, outcome) = match self.gpu.ask(query) {
            Ok(answer) => (State::Asked, Outcome::Answered(answer)),
            Err(Failure::Missing(why)) => (State::Missing(why.clone()), Outcome::Nothing(why)),
            Err(Failure::Transient(why)) => {
                let wait = FIRST_WAIT.saturating_mul(1 << failures.min(16)).min(LONGEST_WAIT);
                (
                    State::Waits { until: now.saturating_add(wait), failures: failures.saturating_add(1) },
                    Outcome::Nothing(why),
                )
            }
            Err(Failure::Lost(why)) => {
                self.lost = true;
                self.news = Some(why.clone());
                (State::Asked, Outcome::Nothing(why))
            }
        };
        self.states[query as usize] = state;
        outcome
    }

    /// The plain power call replaces the instantaneous field if that is missing: both give the same metric.
    fn is_needed(&self, query: Query) -> bool {
        query != Query::PowerUsage || matches!(self.states[Query::PowerInstant as usize], State::Missing(_))
    }

    /// Makes every query once, including those that block, and says of each metric whether it is available, or why not.
    /// Takes some fifty milliseconds.
    pub(super) fn survey(&mut self, now: Duration) -> Survey {
        let mut found: BTreeMap<&'static str, Result<(), String>> = BTreeMap::new();
        for query in Query::ALL {
            let outcome = self.ask(query, now);
            for metric in of_query(query) {
                let verdict = match (&outcome, &self.states[query as usize]) {
                    (Outcome::Answered(answer), _) if metric.of(answer).is_some() => Ok(()),
                    (Outcome::Answered(_), _) => Err("this GPU does not have it".to_string()),
                    (Outcome::Nothing(why), _) | (_, State::Missing(why)) => Err(why.clone()),
                    (Outcome::Skipped, _) if self.lost => Err("the GPU is lost".to_string()),
                    (Outcome::Skipped, State::Waits { .. }) => Err("failed a moment ago, is asked again".to_string()),
                    // Not needed: another source gives the metric.
                    (Outcome::Skipped, State::Asked) => continue,
                };
                let known = found.entry(metric.name).or_insert_with(|| verdict.clone());
                if verdict.is_ok() {
                    *known = verdict;
                }
            }
        }
        let mut survey = Survey::default();
        let mut names: Vec<&'static str> = METRICS.iter().map(|m| m.name).collect();
        names.dedup();
        for name in names {
            match found.remove(name) {
                Some(Ok(())) => survey.available.push(name),
                Some(Err(why)) => survey.missing.push((name, why)),
                None => {}
            }
        }
        survey
    }
}

/// Which metrics a GPU reports.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Survey {
    pub(super) available: Vec<&'static str>,
    pub(super) missing: Vec<(&'static str, String)>,
}
