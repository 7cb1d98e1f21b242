//! A GPU whose answers a test scripts.

use super::gpu_metrics::{Answer, Query};
use super::gpu_source::{Failure, Gpu, GpuFacts, Machine};
use std::sync::{Arc, Mutex};

/// How it answers, and the queries that it got.
#[derive(Debug, Clone, Default)]
pub(super) struct Script(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    failures: Vec<(Query, Failure)>,
    lost: bool,
    asked: Vec<Query>,
    energy: f64,
}

impl Script {
    pub(super) fn missing(self, query: Query, why: &str) -> Self {
        self.fails(query, Failure::Missing(why.into()));
        self
    }

    /// From now on `query` fails in this way.
    pub(super) fn fails(&self, query: Query, failure: Failure) {
        self.0.lock().expect("whole").failures.push((query, failure));
    }

    /// Everything works again.
    pub(super) fn recovers(&self) {
        self.0.lock().expect("whole").failures.clear();
    }

    /// From now on it is off the bus.
    pub(super) fn falls_off(&self) {
        self.0.lock().expect("whole").lost = true;
    }

    /// How often `query` was asked so far.
    pub(super) fn asked(&self, query: Query) -> usize {
        self.0.lock().expect("whole").asked.iter().filter(|asked| **asked == query).count()
    }
}

impl Gpu for Script {
    fn ask(&self, query: Query) -> Result<Answer, Failure> {
        let mut state = self.0.lock().expect("whole");
        state.asked.push(query);
        if state.lost {
            return Err(Failure::Lost("fell off the bus".into()));
        }
        if let Some((_, failure)) = state.failures.iter().find(|(failing, _)| *failing == query) {
            return Err(failure.clone());
        }
        Ok(match query {
            Query::Energy => {
                state.energy += 1_000.0;
                Answer::Number(state.energy)
            }
            Query::PowerInstant => Answer::Number(300_000.0),
            Query::PowerUsage => Answer::Number(250_000.0),
            Query::Memory => Answer::Memory { used: 10, free: 20, reserved: 1, total: 31 },
            Query::Utilization => Answer::Utilization { gpu: 50, memory: 25 },
            Query::Throttle => Answer::Throttle { active: 0x4, supported: Some(0xff) },
            _ => Answer::Number(1.0),
        })
    }
}

/// A machine with these GPUs, `GPU-0`, `GPU-1` and so on.
pub(super) fn machine(gpus: impl IntoIterator<Item = Script>) -> Machine {
    let gpus = gpus.into_iter().zip(0..).map(|(script, index)| {
        let name = Some("NVIDIA H200".to_string());
        let facts = GpuFacts { uuid: format!("GPU-{index}"), index, name, mig: Some(false), ..GpuFacts::default() };
        (facts, Box::new(script) as Box<dyn Gpu>)
    });
    Machine {
        driver: Some("580.82.07".into()),
        cuda_driver: Some("13.0".into()),
        gpus: gpus.collect(),
        unreachable: Vec::new(),
    }
}
