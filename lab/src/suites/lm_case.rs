//! A request to a language model as a case.

use super::continuous;
use super::generate_error::case_error;
use super::lm_options::{ContinuousOptions, LmOptions, SuiteName};
use super::machine_memory::{PeakResident, RequestMemory, shown};
use super::model_host::ModelHost;
use crate::hardware::{self, DeviceTimer, PeakAllocated};
use crate::method::{Case, CaseError, CaseId, Measurement, Mode};
use candlescope_collectors::host::give_back_freed;
use candlescope_models::{FinishReason, GenerateOptions, GenerationOutput, generate_for};
use candlescope_work::estimate::median;
use std::cell::RefCell;
use std::ops::ControlFlow;
use std::rc::Rc;

/// The cases that `options` ask for, all on the model of `host`.
pub fn cases(options: &LmOptions, host: &Rc<RefCell<ModelHost>>) -> Vec<Box<dyn Case>> {
    let case = |id: CaseId| -> Box<dyn Case> {
        let size = |name: &str| id.int(name).and_then(|value| usize::try_from(value).ok());
        Box::new(LmCase {
            batch: size("batch").unwrap_or(1),
            prompt: size("prompt_tokens"),
            output: size("output_tokens").unwrap_or(1),
            prompts: Vec::new(),
            need: String::new(),
            memory: Memory::NotRead,
            host: host.clone(),
            continuous: options.continuous.filter(|_| id.suite() == SuiteName::Throughput.as_str()),
            id,
        })
    };
    options.case_ids().into_iter().map(case).collect()
}

/// Tokens of a request of this case, of all its sequences; those of a prompt in a file are not known.
pub fn request_size(case: &CaseId) -> u64 {
    let of = |name: &str| case.int(name).and_then(|value| u64::try_from(value).ok()).unwrap_or_default();
    (of("prompt_tokens") + of("output_tokens")) * of("batch").max(1)
}

/// Requests of one shape.
struct LmCase {
    id: CaseId,
    batch: usize,
    /// Tokens of the prompt; `None` if it is a file.
    prompt: Option<usize>,
    output: usize,
    prompts: Vec<Vec<u32>>,
    /// What it was predicted to need, for the message if memory ends.
    need: String,
    memory: Memory,
    host: Rc<RefCell<ModelHost>>,
    /// Whether its requests join and leave between steps, `batch` of them at once.
    continuous: Option<ContinuousOptions>,
}

/// The most memory that the process had resident, on a CPU. It is read once, in the first repetition, before which freed
/// memory is given back where the C library can: later repetitions lie between those of other cases, and what these freed
/// would count; and giving it back before each would make each take longer.
#[derive(Debug, Clone, Copy)]
enum Memory {
    NotRead,
    /// Read in a warm-up repetition, for the next sample.
    Read(Option<u64>),
    /// In a sample. Another one with it would be no further observation.
    Told,
}

impl Case for LmCase {
    fn id(&self) -> &CaseId {
        &self.id
    }

    fn size(&self) -> u64 {
        request_size(&self.id)
    }

    fn prepare(&mut self) -> Result<(), CaseError> {
        let mut host = self.host.borrow_mut();
        let context = host.loaded()?.info.context_length;
        let each = self.continuous.map_or(1, |continuous| continuous.requests_each.max(1));
        let mut prompts = host.prompts(self.batch * each, self.prompt)?;
        if let (Some(continuous), Some((first, others))) = (self.continuous, prompts.split_first_mut()) {
            let shared = &first[..continuous.shared_tokens.min(first.len())];
            others.iter_mut().for_each(|prompt| prompt[..shared.len()].copy_from_slice(shared));
        }
        let prompt = prompts.first().map_or(0, Vec::len);
        if prompt + self.output > context {
            return Err(CaseError::Refused(format!(
                "a prompt of {prompt} tokens and {} of output do not fit the model's context of {context}",
                self.output
            )));
        }
        let info = &host.loaded()?.info;
        let need = RequestMemory::of(info, self.batch, prompt, self.output);
        self.need = format!(
            "{} predicted: {} keys and values, {} activations, beside {} of weights",
            shown(need.total()),
            shown(need.cache),
            shown(need.activations),
            shown(info.weight_bytes)
        );
        if let Some(limit) = host.memory_limit().filter(|limit| need.total() > *limit) {
            return Err(CaseError::Refused(format!("{}; {} are available", self.need, shown(limit))));
        }
        self.prompts = prompts;
        self.memory = Memory::NotRead;
        Ok(())
    }

    fn begin_recording(&mut self, repetitions: u32) -> Result<(), CaseError> {
        let slug = self.id.slug();
        let mut host = self.host.borrow_mut();
        let prompt = self.prompts.first().map_or(0, Vec::len);
        let steps = match self.continuous {
            // At most: every request passes its prompt by itself, and its tokens beside nobody.
            Some(continuous) => self.prompts.len() * (prompt.div_ceil(continuous.prompt_piece.max(1)) + self.output),
            None => {
                // Otherwise the step that makes the cache would be recorded.
                host.make_cache(self.batch, prompt + self.output - 1)?;
                // A step is a token.
                self.output
            }
        };
        match &mut host.recorder {
            Some(recorder) => recorder.begin(&slug, u64::from(repetitions) * steps as u64),
            None => Err(CaseError::Failed("nothing records".into())),
        }
    }

    fn end_recording(&mut self) -> Result<(), CaseError> {
        self.host.borrow_mut().recorder.as_mut().map_or(Ok(()), |recorder| recorder.end())
    }

    fn run(&mut self, mode: Mode) -> Result<Measurement, CaseError> {
        let mut host = self.host.borrow_mut();
        let prompt = self.prompts.first().map_or(0, Vec::len);
        if self.continuous.is_none() {
            host.make_cache(self.batch, prompt + self.output - 1).map_err(|error| self.with_need(error))?;
        }
        let (cancel, seed, device) = (host.cancel.clone(), host.options.seed, host.device().clone());
        let run = host.recorder.as_ref().filter(|_| mode == Mode::Profiled).and_then(|recorder| recorder.folder());
        let how = GenerateOptions { max_new_tokens: self.output, ignore_eos: true, seed, ..GenerateOptions::default() };
        let resident = (device.is_cpu() && matches!(self.memory, Memory::NotRead)).then(|| {
            give_back_freed();
            PeakResident::begin()
        });
        let device_memory = PeakAllocated::begin(&device);
        let timer = DeviceTimer::new(&device).map_err(|error| hardware::case_error(&error))?;
        if let Some(timer) = &timer {
            timer.begin().map_err(|error| hardware::case_error(&error))?;
        }
        let figures = match self.continuous {
            Some(options) => {
                let outputs = continuous::generate(&mut host, &self.prompts, self.batch, (options, &how))
                    .map_err(|error| self.with_need(error))?;
                continuous::measured(&outputs)
            }
            None => {
                let loaded = host.loaded()?;
                let request = candlescope::llm::Request::new("text_completion", &loaded.info.name);
                let output = generate_for(loaded, request, &self.prompts, &how, &mut |_| match cancel.is_cancelled() {
                    true => ControlFlow::Break(()),
                    false => ControlFlow::Continue(()),
                })
                .map_err(|error| self.with_need(case_error(&error)))?;
                if output.sequences.iter().any(|sequence| sequence.finish == FinishReason::Cancelled) {
                    return Err(CaseError::Cancelled);
                }
                measured(&output)
            }
        };
        let device_ns = match &timer {
            Some(timer) => {
                Some(timer.end().and_then(|()| timer.elapsed_ns()).map_err(|error| hardware::case_error(&error))?)
            }
            None => None,
        };
        if let Some(resident) = resident {
            self.memory = Memory::Read(resident.bytes());
        }
        let memory = match self.memory {
            Memory::Read(bytes) if device.is_cpu() => {
                if mode != Mode::WarmUp {
                    self.memory = Memory::Told;
                }
                bytes
            }
            _ => device_memory.and_then(|memory| memory.bytes()),
        };
        let mut measurement = figures.device_ns(device_ns).memory_bytes(memory);
        measurement.run = run;
        Ok(measurement)
    }

    fn release(&mut self) {
        self.prompts = Vec::new();
    }
}

impl LmCase {
    fn with_need(&self, error: CaseError) -> CaseError {
        match error {
            CaseError::OutOfMemory(message) => CaseError::OutOfMemory(format!("{message}; {}", self.need)),
            other => other,
        }
    }
}

/// The figures of a request: `docs/definitions.md` says what each means.
fn measured(output: &GenerationOutput) -> Measurement {
    let ns = |time: std::time::Duration| time.as_nanos() as f64;
    let e2e = output.ended - output.started;
    let ttft = output.ttft();
    let steps = output.token_times.len().saturating_sub(1) as f64;
    let batch = output.sequences.len() as f64;
    let after_first = ttft.map(|ttft| (e2e - ttft).as_secs_f64()).filter(|time| *time > 0.0 && steps > 0.0);
    let gaps: Vec<f64> = output.itl().into_iter().map(ns).collect();
    let longest = gaps.iter().copied().max_by(f64::total_cmp);
    let prefill = ttft.map(|ttft| batch * output.prompt_tokens as f64 / ttft.as_secs_f64());
    Measurement::new(e2e.as_nanos() as u64)
        .figure("ttft_ns", ttft.map(ns))
        .figure("tpot_ns", output.tpot().map(ns))
        .figure("itl_median_ns", median(gaps))
        .figure("itl_max_ns", longest)
        .figure("prefill_tps", prefill)
        .figure("decode_tps", after_first.map(|time| batch * steps / time))
        .figure("output_tps", output.output_tokens() as f64 / e2e.as_secs_f64())
        .figure("request_prompt_tokens", output.prompt_tokens as f64)
}
