//! `study.json`.

use super::begun_elsewhere::begun_elsewhere;
use super::journal::Records;
use crate::method::{CaseEnd, CaseId, Method};
use candlescope_compare::Fingerprint;
use candlescope_core::HostNs;
use candlescope_core::run::{CANDLE_VERSION, RunManifest, env_key, option_key};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Whether a study is complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// It is being measured, or the process that did so was killed.
    #[default]
    Running,
    /// All cases of the plan ended, those that failed or did not fit into memory included.
    Done,
    /// It was stopped before that; `--resume` goes on with it.
    Cancelled,
    /// It ended with an error; `--resume` goes on with it.
    Failed,
}

/// One start of a process that measured a part of the study.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProcessStart {
    /// Number of the start, from 0: the column `process`.
    pub process: u32,
    /// Round of the plan: see [`Method::round`].
    pub round: u32,
    /// Whether it took the recorded repetitions rather than plain ones.
    pub profiled: bool,
    /// When, in nanoseconds since the Unix epoch.
    pub started_ns: i64,
    /// Whether it ended as it should.
    pub ended: bool,
}

/// What a study is: `study.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Manifest {
    /// Version of the directory's form.
    pub schema_version: u32,
    /// Name of the study: the column `study`.
    pub study: String,
    /// Whether it is complete.
    pub state: State,
    /// When it began, in nanoseconds since the Unix epoch.
    pub started_ns: i64,
    /// When measuring last ended, in nanoseconds since the Unix epoch; `None` before the first time.
    pub ended_ns: Option<i64>,
    /// Options of the suites: a study is gone on with only with the same ones.
    pub options: Map<String, Value>,
    /// How cases are measured.
    pub method: Method,
    /// The cases, in the order of the plan.
    pub cases: Vec<CaseId>,
    /// Facts about the model, if one is measured.
    pub model: Map<String, Value>,
    /// Facts about the machine.
    pub environment: Map<String, Value>,
    /// Where clocks, temperature and throttling were read.
    pub surroundings: String,
    /// What disturbed the machine before anything was measured, by process start.
    pub disturbances: Vec<String>,
    /// Every process start that measured a part of it, in order, also one that was cut off.
    pub processes: Vec<ProcessStart>,
    /// Why each case stopped, by process start.
    pub stops: Vec<CaseEnd>,
    /// Process starts that were planned for plain samples: with fewer than planned the study is not complete.
    pub rounds: u32,
    /// Further facts of a suite.
    pub facts: Map<String, Value>,
}

impl Default for Manifest {
    fn default() -> Self {
        Self {
            schema_version: 1,
            study: String::new(),
            state: State::Running,
            started_ns: 0,
            ended_ns: None,
            options: Map::new(),
            method: Method::default(),
            cases: Vec::new(),
            model: Map::new(),
            environment: Map::new(),
            surroundings: String::new(),
            disturbances: Vec::new(),
            processes: Vec::new(),
            stops: Vec::new(),
            rounds: 1,
            facts: Map::new(),
        }
    }
}

impl Manifest {
    /// A study called `name` of `cases`, measured by `method`. It begins now.
    pub fn new(name: impl Into<String>, cases: Vec<CaseId>, method: &Method) -> Self {
        let mut environment = Map::new();
        environment.insert(env_key::CANDLESCOPE.name().into(), env!("CARGO_PKG_VERSION").into());
        environment.insert(env_key::CANDLE.name().into(), CANDLE_VERSION.into());
        Self {
            study: name.into(),
            started_ns: HostNs::now().0,
            rounds: method.processes.max(1),
            method: method.clone(),
            cases,
            environment,
            ..Self::default()
        }
    }

    /// Adds an option of the suite.
    #[must_use]
    pub fn option(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.options.insert(key.into(), value.into());
        self
    }

    /// What is different in the plan `other`; `None` if it is the same.
    pub(super) fn differs(&self, other: &Self) -> Option<String> {
        let keys: std::collections::BTreeSet<&String> = self.options.keys().chain(other.options.keys()).collect();
        for key in keys {
            let (here, there) = (self.options.get(key), other.options.get(key));
            if here != there {
                let shown = |value: Option<&Value>| value.map_or_else(|| "nothing".to_string(), Value::to_string);
                return Some(format!("{key} was {}, and now is {}", shown(here), shown(there)));
            }
        }
        if self.method != other.method {
            return Some("how cases are measured".into());
        }
        (self.cases != other.cases).then(|| "its cases".to_string())
    }

    /// What of the machine, the GPU or the build is different where the plan `here` was made; `None` if nothing is.
    pub(super) fn begun_elsewhere(&self, records: &Records, here: &Self) -> Option<String> {
        let mut known = self.environment.clone();
        known.extend(records.facts.environment.clone());
        begun_elsewhere(&known, &here.environment)
    }

    /// Whether it is of a GPU, by the option `device`.
    pub fn is_on_gpu(&self) -> bool {
        option_key::DEVICE.of(&self.options).is_some_and(|device| device.starts_with("cuda"))
    }

    /// How many threads computed and where that number comes from, `Threads: 2 (default)`; `None` on a GPU, or where the
    /// study does not say.
    pub fn threads(&self) -> Option<String> {
        let number = env_key::COMPUTE_THREADS.of(&self.environment).filter(|_| !self.is_on_gpu())?;
        let from = env_key::COMPUTE_THREADS_FROM.of(&self.environment);
        let from = from.map(|from| if from == "option" { "--threads" } else { from });
        Some(format!("Threads: {number}{}", from.map_or(String::new(), |from| format!(" ({from})"))))
    }

    /// Who measured what where, as a run's manifest would say it.
    pub fn fingerprint(&self) -> Fingerprint {
        let facts = |map: &Map<String, Value>| map.clone().into_iter().collect();
        let mut like_a_run = RunManifest {
            environment: facts(&self.environment),
            model: facts(&self.model),
            options: facts(&self.options),
            ..RunManifest::default()
        };
        // How much of it was measured is not what was measured.
        for key in ["suites", "memory-limit", "memory_limit", "seed"] {
            like_a_run.options.remove(key);
        }
        Fingerprint::of(&like_a_run)
    }

    pub(super) fn end(&mut self, state: State, records: &Records) {
        self.state = state;
        self.ended_ns = Some(HostNs::now().0);
        self.stops = records.stopped.clone();
        self.disturbances = records.disturbances.clone();
        // Suites in one process write them beforehand.
        if !records.facts.model.is_empty() {
            self.model = records.facts.model.clone();
        }
        self.environment.extend(records.facts.environment.clone());
        if !records.facts.surroundings.is_empty() {
            self.surroundings = records.facts.surroundings.clone();
        }
    }
}
