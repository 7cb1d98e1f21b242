//! The model behind the server: a bounded queue, and threads that each work for one request at a time, or for as many as they
//! have slots.

use crate::queue::{Queue, Refused, Waiting};
use anyhow::{Context, Result};
use candlescope::Outcome;
use candlescope::llm::Request;
use candlescope_models::chat::{ChatError, Message};
use candlescope_models::slots::{Batcher, BatcherOptions};
use candlescope_models::{
    FinishReason, GenerateError, GenerateOptions, LoadOptions, LoadedModel, ModelSource, PromptError, generate_for,
};
use serde_json::Value;
use std::ops::ControlFlow;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::mpsc;

/// The prompt of a client.
#[derive(Debug)]
pub(crate) enum Prompt {
    Text(String),
    Tokens(Vec<u32>),
    Chat(Vec<Message>),
}

/// The events of a request, in this order: tokens, then one of the others.
#[derive(Debug)]
pub(crate) enum Event {
    Token(String),
    Done(Usage),
    Failed(Failure),
}

/// Why a request failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The request cannot be fulfilled: the client's error.
    Request(String),
    /// The model failed.
    Model(String),
    /// It took longer than this.
    Late(Duration),
}

impl From<PromptError> for Failure {
    fn from(error: PromptError) -> Self {
        let at_the_model = matches!(error, PromptError::Tokenizer(_) | PromptError::Chat(ChatError::Host(_)));
        let message = format!("{:#}", anyhow::Error::from(error));
        if at_the_model { Self::Model(message) } else { Self::Request(message) }
    }
}

impl From<GenerateError> for Failure {
    fn from(error: GenerateError) -> Self {
        let at_the_model = matches!(error, GenerateError::Step { .. } | GenerateError::Tokenizer(_));
        let message = format!("{:#}", anyhow::Error::from(error));
        if at_the_model { Self::Model(message) } else { Self::Request(message) }
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Usage {
    pub(crate) prompt_tokens: usize,
    pub(crate) completion_tokens: usize,
    pub(crate) finish: FinishReason,
}

/// One request on its way to a worker. Its span was made when it arrived, so the wait is part of it.
pub(crate) struct Job {
    pub(crate) request: Request,
    pub(crate) prompt: Prompt,
    pub(crate) options: GenerateOptions,
    /// Large enough for all events of the request, so that a slow client holds up nobody. Closed when the client has
    /// gone.
    pub(crate) events: mpsc::Sender<Event>,
}

/// The model and what is known about it.
#[derive(Debug)]
pub(crate) struct Model {
    pub(crate) name: String,
    pub(crate) chats: bool,
    pub(crate) facts: Vec<(String, Value)>,
}

/// The capacity of the server.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Size {
    pub(crate) workers: usize,
    /// Threads that compute for each of them.
    pub(crate) threads: usize,
    /// Requests that may wait.
    pub(crate) queue: usize,
}

pub(crate) struct Engine {
    pub(crate) model: Model,
    queue: Arc<Queue<Job>>,
    stopping: Arc<AtomicBool>,
    workers: Mutex<Vec<JoinHandle<()>>>,
}

impl Engine {
    pub(crate) fn start(source: &ModelSource, options: &LoadOptions, size: Size) -> Result<Arc<Self>> {
        let queue = Arc::new(Queue::new(size.queue));
        let stopping = Arc::new(AtomicBool::new(false));
        let mut model = None;
        let mut threads = Vec::new();
        for worker in 0..size.workers {
            let mut loaded = LoadedModel::load(source, options)?;
            model.get_or_insert_with(|| Model {
                name: loaded.info.name.clone(),
                chats: loaded.chat.is_some(),
                facts: loaded.info.to_map().into_iter().collect(),
            });
            let (queue, stopping) = (queue.clone(), stopping.clone());
            let thread = std::thread::Builder::new()
                .name(format!("model-{worker}"))
                .spawn(move || {
                    // On failure the worker goes on without a pool: candle then computes on rayon's global threads.
                    let _pool = computing(worker, size.threads).inspect_err(|e| eprintln!("model-{worker}: {e}"));
                    let slots = loaded.model.take_slots();
                    match slots {
                        Some(slots) => {
                            let batcher = Batcher::new(slots, BatcherOptions::default());
                            crate::batched::work(&loaded, batcher, &queue, &stopping);
                        }
                        None => work(loaded, &queue, &stopping),
                    }
                })
                .context("cannot start a worker")?;
            threads.push(thread);
        }
        let model = model.context("no workers")?;
        Ok(Arc::new(Self { model, queue, stopping, workers: Mutex::new(threads) }))
    }

    /// Queues a job, which is made only if there is room for it: a refused request is not recorded.
    pub(crate) fn submit(&self, job: impl FnOnce() -> Job) -> Result<Waiting<Job>, Refused> {
        self.queue.push(job)
    }

    /// Ends every response at the current token.
    pub(crate) fn hurry(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }

    /// Takes no more requests and drops those that wait: a server that stops only finishes what it has begun.
    pub(crate) fn refuse(&self) {
        self.queue.close();
    }

    /// Ends the workers after the current token.
    pub(crate) fn stop(&self) {
        self.hurry();
        self.refuse();
        for thread in std::mem::take(&mut *self.workers.lock().unwrap_or_else(PoisonError::into_inner)) {
            let _ = thread.join();
        }
    }
}

/// Makes the calling thread the first of the `threads` of its own rayon pool. Otherwise candle hands operations to
/// rayon's global threads and waits for them: with small models, switching threads back and forth takes much of a
/// step's time.
fn computing(worker: usize, threads: usize) -> Result<rayon::ThreadPool, rayon::ThreadPoolBuildError> {
    let name = move |thread| format!("model-{worker}-{thread}");
    rayon::ThreadPoolBuilder::new().num_threads(threads).use_current_thread().thread_name(name).build()
}

fn work(mut model: LoadedModel, jobs: &Queue<Job>, stopping: &AtomicBool) {
    while let Some(job) = jobs.next() {
        let events = job.events.clone();
        let outcome = unless_it_panics(|| answer(&mut model, job, stopping));
        if let Err(Failure::Model(message)) = &outcome {
            eprintln!("a request failed: {message}");
        }
        // The channel has room for every possible event; it is closed if nobody listens any more.
        let _ = events.try_send(outcome.map_or_else(Event::Failed, Event::Done));
    }
}

/// A request that makes the model panic must not end the worker: the next one begins with an empty cache. (A panic on
/// one of candle's own threads may leave candle in a bad state; further requests then get candle's errors.)
pub(crate) fn unless_it_panics<T>(work: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    std::panic::catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let message = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
        Err(Failure::Model(format!("the model panicked: {}", message.unwrap_or("the server's log says more"))))
    })
}

fn answer(model: &mut LoadedModel, job: Job, stopping: &AtomicBool) -> Result<Usage, Failure> {
    let Job { request, prompt, options, events } = job;
    // If the prompt cannot be processed; otherwise the generation says.
    request.outcome(Outcome::Failed);
    let prompt = match prompt {
        Prompt::Text(text) => model.encode_prompt(&text)?,
        Prompt::Tokens(tokens) => tokens,
        Prompt::Chat(messages) => model.encode_chat(&messages)?,
    };
    // A named configuration has the shape of a model but no vocabulary: the numbers of tokens are used instead of text.
    let has_words = model.tokenizer.is_some();
    let mut told = 0;
    let output = generate_for(model, request, &[prompt], &options, &mut |token| {
        let text = if has_words { token.text.to_string() } else { format!("{} ", token.token) };
        told += token.text.len();
        let sent = events.try_send(Event::Token(text));
        if sent.is_err() || stopping.load(Ordering::Relaxed) {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    })?;
    let sequence = output.sequences.first().ok_or_else(|| Failure::Model("no sequence".to_string()))?;
    // A character that was never completed is held back until the end.
    if let Some(rest) = sequence.text.get(told..).filter(|rest| has_words && !rest.is_empty()) {
        let _ = events.try_send(Event::Token(rest.to_string()));
    }
    Ok(Usage { prompt_tokens: output.prompt_tokens, completion_tokens: sequence.tokens.len(), finish: sequence.finish })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_of_the_model_is_a_failure_of_one_request() {
        let failed = unless_it_panics::<()>(|| panic!("index {} out of bounds", 3));
        assert_eq!(failed, Err(Failure::Model("the model panicked: index 3 out of bounds".to_string())));
        assert_eq!(unless_it_panics(|| Ok(1)), Ok(1));
    }

    #[test]
    fn whose_mistake_it_is() {
        assert!(matches!(GenerateError::EmptyPrompt.into(), Failure::Request(_)));
        assert!(matches!(PromptError::Empty.into(), Failure::Request(_)));
        let cause = candle_core::Error::Msg("out of memory".to_string());
        let step = GenerateError::Step { step: "output token 3".to_string(), cause };
        assert_eq!(
            Failure::from(step),
            Failure::Model("generation failed at output token 3: out of memory".to_string())
        );
    }
}
