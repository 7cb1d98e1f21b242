//! The model behind the server: a bounded queue, and threads that each work for one request at a time.

use anyhow::{Context, Result};
use candlescope::llm::Request;
use candlescope_models::chat::Message;
use candlescope_models::{FinishReason, GenerateOptions, LoadOptions, LoadedModel, ModelSource, generate_for};
use crossbeam_channel::{Receiver, Sender, unbounded};
use serde_json::Value;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use tokio::sync::mpsc;

/// What a client wants to have continued.
#[derive(Debug)]
pub(crate) enum Prompt {
    Text(String),
    Tokens(Vec<u32>),
    Chat(Vec<Message>),
}

/// What becomes of a request, in this order: tokens, then one of the others.
#[derive(Debug)]
pub(crate) enum Event {
    Token(String),
    Done(Usage),
    Failed(String),
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Usage {
    pub(crate) prompt_tokens: usize,
    pub(crate) completion_tokens: usize,
    pub(crate) finish: FinishReason,
}

/// A place in the queue, free again when a worker has come to it.
pub(crate) struct Place(Arc<AtomicUsize>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// One request on its way to a worker. Its span was made when it arrived, so the wait is part of it.
pub(crate) struct Job {
    pub(crate) place: Place,
    pub(crate) request: Request,
    pub(crate) prompt: Prompt,
    pub(crate) options: GenerateOptions,
    /// Roomy enough for all there will be to say, so that a slow client holds up nobody. Closed when the client has gone.
    pub(crate) events: mpsc::Sender<Event>,
}

/// What is known of the model.
#[derive(Debug)]
pub(crate) struct Model {
    pub(crate) name: String,
    pub(crate) chats: bool,
    pub(crate) facts: Vec<(String, Value)>,
}

#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) model: Model,
    queue: Mutex<Option<Sender<Job>>>,
    capacity: usize,
    waiting: Arc<AtomicUsize>,
    refusing: Arc<AtomicBool>,
    stopping: Arc<AtomicBool>,
    workers: Mutex<Vec<JoinHandle<()>>>,
}

/// Why a job is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    Full(usize),
    Stopping,
}

impl Engine {
    pub(crate) fn start(
        source: &ModelSource,
        options: &LoadOptions,
        workers: usize,
        capacity: usize,
    ) -> Result<Arc<Self>> {
        // What bounds it is the number of places.
        let (queue, jobs) = unbounded();
        let (refusing, stopping) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let mut model = None;
        let mut threads = Vec::new();
        for worker in 0..workers {
            let loaded = LoadedModel::load(source, options)?;
            model.get_or_insert_with(|| Model {
                name: loaded.info.name.clone(),
                chats: loaded.chat.is_some(),
                facts: loaded.info.to_map().into_iter().collect(),
            });
            let (jobs, refusing, stopping) = (jobs.clone(), refusing.clone(), stopping.clone());
            let thread = std::thread::Builder::new()
                .name(format!("model-{worker}"))
                .spawn(move || work(loaded, &jobs, &refusing, &stopping))
                .context("cannot start a worker")?;
            threads.push(thread);
        }
        let model = model.context("no workers")?;
        let (queue, waiting) = (Mutex::new(Some(queue)), Arc::default());
        Ok(Arc::new(Self { model, queue, capacity, waiting, refusing, stopping, workers: Mutex::new(threads) }))
    }

    /// A place in the queue. Taken before anything else, so that a request that is refused never was one.
    pub(crate) fn place(&self) -> Result<Place, Refused> {
        let one_more = |waiting| (waiting < self.capacity).then_some(waiting + 1);
        match self.waiting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more) {
            Ok(_) => Ok(Place(self.waiting.clone())),
            Err(_) => Err(Refused::Full(self.capacity)),
        }
    }

    pub(crate) fn submit(&self, job: Job) -> Result<(), Refused> {
        let queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        queue.as_ref().and_then(|queue| queue.send(job).ok()).ok_or(Refused::Stopping)
    }

    /// Ends every answer at the token it is at.
    pub(crate) fn hurry(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }

    /// Takes no more requests, and lets go of those that wait.
    pub(crate) fn refuse(&self) {
        self.refusing.store(true, Ordering::Relaxed);
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    /// Ends the workers after the token they are at.
    pub(crate) fn stop(&self) {
        self.hurry();
        self.refuse();
        for thread in std::mem::take(&mut *self.workers.lock().unwrap_or_else(PoisonError::into_inner)) {
            let _ = thread.join();
        }
    }
}

fn work(mut model: LoadedModel, jobs: &Receiver<Job>, refusing: &AtomicBool, stopping: &AtomicBool) {
    for job in jobs {
        // Whoever waited too long has gone; and a server that stops answers what it has begun, and no more.
        if job.events.is_closed() || refusing.load(Ordering::Relaxed) {
            continue;
        }
        let events = job.events.clone();
        let outcome = answer(&mut model, job, stopping);
        // The channel holds every event there can be; it is closed where nobody listens any more.
        let _ = events.try_send(match outcome {
            Ok(usage) => Event::Done(usage),
            Err(error) => Event::Failed(format!("{error:#}")),
        });
    }
}

fn answer(model: &mut LoadedModel, job: Job, stopping: &AtomicBool) -> Result<Usage> {
    let Job { place, request, prompt, options, events } = job;
    drop(place);
    let prompt = match prompt {
        Prompt::Text(text) => model.encode_prompt(&text)?,
        Prompt::Tokens(tokens) => tokens,
        Prompt::Chat(messages) => model.encode_chat(&messages)?,
    };
    // A named configuration has the shape of a model and no words: its tokens' numbers stand in for them.
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
    let sequence = output.sequences.first().context("no sequence")?;
    // A character that was never completed is held back until the end.
    if let Some(rest) = sequence.text.get(told..).filter(|rest| has_words && !rest.is_empty()) {
        let _ = events.try_send(Event::Token(rest.to_string()));
    }
    Ok(Usage { prompt_tokens: output.prompt_tokens, completion_tokens: sequence.tokens.len(), finish: sequence.finish })
}
