//! A variant as a case of the measuring engine.

use super::host::VariantHost;
use super::runner::Runner;
use super::variant::Variant;
use crate::method::{Case, CaseError, CaseId, Measurement, Mode};
use std::cell::RefCell;
use std::rc::Rc;

/// The cases of all variants of `host`.
pub fn cases(host: &Rc<RefCell<VariantHost>>) -> Vec<Box<dyn Case>> {
    let (options, host) = (host.borrow().options.clone(), host);
    let case = |variant: &Variant| -> Box<dyn Case> {
        Box::new(VariantCase {
            id: options.case_id(*variant),
            variant: *variant,
            host: host.clone(),
            runner: None,
            prompt: Vec::new(),
        })
    };
    options.variants.iter().map(case).collect()
}

struct VariantCase {
    id: CaseId,
    variant: Variant,
    host: Rc<RefCell<VariantHost>>,
    runner: Option<Box<dyn Runner>>,
    prompt: Vec<u32>,
}

impl Case for VariantCase {
    fn id(&self) -> &CaseId {
        &self.id
    }

    fn prepare(&mut self) -> Result<(), CaseError> {
        let host = self.host.borrow();
        self.prompt = host.prompt()?;
        let mut runner = host.build(self.variant)?;
        // A way that this device does not have at all shows here: that is a result, and no failure of the study.
        runner.generate(&self.prompt, 1, &host.cancel).map_err(|error| match error {
            CaseError::Failed(message) => CaseError::Refused(format!("it does not run here: {message}")),
            other => other,
        })?;
        self.runner = Some(runner);
        Ok(())
    }

    fn begin_recording(&mut self, repetitions: u32) -> Result<(), CaseError> {
        let slug = self.id.slug();
        let mut host = self.host.borrow_mut();
        let output = host.options.output_tokens as u64;
        match &mut host.recorder {
            // A step is a token.
            Some(recorder) => recorder.begin(&slug, u64::from(repetitions) * output),
            None => Err(CaseError::Failed("nothing records".into())),
        }
    }

    fn end_recording(&mut self) -> Result<(), CaseError> {
        self.host.borrow_mut().recorder.as_mut().map_or(Ok(()), |recorder| recorder.end())
    }

    fn run(&mut self, mode: Mode) -> Result<Measurement, CaseError> {
        let host = self.host.borrow();
        let Some(runner) = &mut self.runner else { return Err(CaseError::Failed("it was not prepared".into())) };
        let run = host.recorder.as_ref().filter(|_| mode == Mode::Profiled).and_then(|recorder| recorder.folder());
        let generated = runner.generate(&self.prompt, host.options.output_tokens, &host.cancel)?;
        if host.cancel.is_cancelled() {
            return Err(CaseError::Cancelled);
        }
        Ok(Measurement { run, ..generated.measurement() })
    }

    fn release(&mut self) {
        self.runner = None;
        self.prompt = Vec::new();
    }
}
