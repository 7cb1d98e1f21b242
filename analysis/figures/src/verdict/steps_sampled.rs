//! Steps without a record.

use crate::{Analysis, Sampling};
use candlescope_schema::run::{Code, Finding};

pub(super) fn find(run: &Analysis) -> Vec<Finding> {
    run.sampling.finding().into_iter().collect()
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
