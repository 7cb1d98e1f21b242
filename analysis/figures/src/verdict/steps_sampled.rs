//! Steps without a record.

use crate::sampling::InStep;
use crate::{Analysis, Sampling};
use candlescope_schema::run::{Code, Finding};

pub(super) fn find(run: &Analysis) -> Vec<Finding> {
    run.sampling.finding().into_iter().chain(run.sampling.in_step.map(in_step)).collect()
}

/// A schedule that records the same part of each request.
fn in_step(InStep { steps, requests, part: (from, to) }: InStep) -> Finding {
    Finding::new(
        Code::ScheduleInStep,
        "the schedule keeps step with the requests: all {steps} recorded decoding steps of {requests} requests are between \
         {from} and {to} of their request's output, and figures of steps and layers are of that part alone",
        "record N steps in EVERY where EVERY is no multiple and no part of the steps of a request, such as 10/97",
    )
    .count("steps", steps)
    .count("requests", requests)
    .ratio("from", from)
    .ratio("to", to)
}

impl Sampling {
    /// The finding that some steps have no record, if that is so.
    pub fn finding(&self) -> Option<Finding> {
        let remedy = if self.is_sampled() {
            "Figures of requests cover all requests that have a row; figures of steps and layers cover the recorded \
             ones, and figures that need every step are left out. Record all steps to have them"
        } else {
            "Nothing is missing among the steps that were recorded"
        };
        let missing = self.missing;
        match &self.counts {
            Some(counts) if counts.without_record() > 0 => {
                let finding = Finding::new(Code::StepsSampled, "{account}", remedy).text("account", counts.to_string());
                Some(finding.count("begun", counts.begun).count("recorded", counts.with_record()))
            }
            // A run without step counts, or one that has lost some of its files since.
            _ if missing > 0 => {
                let message = "{missing} steps between the first and the last that were recorded have no record";
                Some(Finding::new(Code::StepsSampled, message, remedy).count("missing", missing))
            }
            _ => None,
        }
    }
}
