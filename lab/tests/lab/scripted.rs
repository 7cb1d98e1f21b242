//! Cases whose times are written down.

use candlescope_lab::method::*;
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

/// What was called, in order: `prepare a`, `run a`, `release a`.
pub type Log = Rc<RefCell<Vec<String>>>;

/// A case that gives the times of `script`, the last one again and again.
pub struct Scripted {
    pub id: CaseId,
    pub script: Vec<Result<u64, CaseError>>,
    pub at: usize,
    pub log: Log,
    /// Set when the repetition with this number begins.
    pub cancels: Option<(usize, Cancel)>,
}

pub fn case(name: &str, log: &Log, script: &[Result<u64, CaseError>]) -> Box<dyn Case> {
    let id = CaseId::new("scripted").param("name", name);
    Box::new(Scripted { id, script: script.to_vec(), at: 0, log: log.clone(), cancels: None })
}

impl Scripted {
    fn told(&self, what: &str) {
        self.log.borrow_mut().push(format!("{what} {}", self.id.get("name").unwrap()));
    }
}

impl Case for Scripted {
    fn id(&self) -> &CaseId {
        &self.id
    }

    fn prepare(&mut self) -> Result<(), CaseError> {
        self.told("prepare");
        Ok(())
    }

    fn begin_recording(&mut self, repetitions: u32) -> Result<(), CaseError> {
        self.told(&format!("record {repetitions}"));
        Ok(())
    }

    fn end_recording(&mut self) -> Result<(), CaseError> {
        self.told("recorded");
        Ok(())
    }

    fn run(&mut self, mode: Mode) -> Result<Measurement, CaseError> {
        self.told(if mode == Mode::WarmUp { "warm" } else { "run" });
        if let Some((_, cancel)) = self.cancels.as_ref().filter(|(at, _)| *at == self.at) {
            cancel.cancel();
        }
        let next = self.script[self.at.min(self.script.len() - 1)].clone();
        self.at += 1;
        next.map(|ns| Measurement::new(ns).figure("half_ns", ns as f64 / 2.0))
    }

    fn release(&mut self) {
        self.told("release");
    }
}

/// Surroundings that are throttled for the samples with these numbers.
pub struct Throttling {
    pub samples: Vec<usize>,
    pub at: usize,
    pub recovered: usize,
}

impl Surroundings for Throttling {
    fn disturbances(&mut self) -> Vec<String> {
        vec!["somebody else is here".into()]
    }

    fn after(&mut self) -> Reading {
        self.at += 1;
        let throttled = self.samples.contains(&(self.at - 1));
        Reading { throttled: Some(throttled), clock_mhz: Some(1_000.0), ..Reading::default() }
    }

    fn recover(&mut self, _: Duration) {
        self.recovered += 1;
    }

    fn source(&self) -> String {
        "a script".into()
    }
}
