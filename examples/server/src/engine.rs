//! The model behind the server: a bounded queue, and threads that each work for one request at a time, or for as many as they
//! have slots.

use crate::job::{Event, Failure, Job, Usage, unless_it_panics};
use crate::queue::{Queue, QueueError, QueuePlace};
use anyhow::{Context, Result};
use candlescope::Outcome;
use candlescope_models::slots::{Batcher, BatcherOptions, SlotOptions};
use candlescope_models::{LoadOptions, LoadedModel, ModelSource, generate_for};
use serde_json::Value;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

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
    /// How those in slots take turns.
    pub(crate) batcher: BatcherOptions,
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
        let mut slots = options.slots;
        for worker in 0..size.workers {
            // Each leaves room for those after it, and has no more slots than the first got: memory that the others
            // have not used yet is not theirs.
            let slots_of_one = slots.map(|slots| SlotOptions { models: size.workers - worker, ..slots });
            let mut loaded = LoadedModel::load(source, &LoadOptions { slots: slots_of_one, ..options.clone() })?;
            let decoder = loaded.model.take_slots();
            if let (Some(slots), Some(decoder)) = (&mut slots, &decoder) {
                slots.slots = decoder.slots();
            }
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
                    match decoder {
                        Some(decoder) => {
                            let (count, context, mib) = (decoder.slots(), decoder.context(), decoder.kv_bytes() >> 20);
                            eprintln!(
                                "model-{worker}: {count} slots of {context} tokens, {mib} MiB of keys and values"
                            );
                            let batcher = Batcher::new(decoder, size.batcher);
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
    pub(crate) fn submit(&self, job: impl FnOnce() -> Job) -> Result<QueuePlace<Job>, QueueError> {
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

fn answer(model: &mut LoadedModel, job: Job, stopping: &AtomicBool) -> Result<Usage, Failure> {
    let Job { request, prompt, options, events } = job;
    // If the prompt cannot be processed; otherwise the generation says.
    request.outcome(Outcome::Failed);
    let prompt = prompt.tokens(model)?;
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
    Ok(Usage {
        prompt_tokens: output.prompt_tokens,
        cached_tokens: 0,
        completion_tokens: sequence.tokens.len(),
        finish: sequence.finish,
    })
}
