//! A worker that generates several requests at once: they join and leave between steps.

use crate::job::{Event, Failure, Job, Usage, unless_it_panics};
use crate::queue::Queue;
use candlescope::Outcome;
use candlescope_models::slots::{Batcher, Job as BatchJob, Receive};
use candlescope_models::tokenizer::DecodeStream;
use candlescope_models::{FinishReason, GenerateError, LoadedModel};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::mpsc;

/// Works until the queue is closed. `model` has given its slots to `batcher`.
pub(crate) fn work<'a>(model: &'a LoadedModel, mut batcher: Batcher<'a>, jobs: &Queue<Job>, stopping: &AtomicBool) {
    loop {
        // Whoever works looks whether somebody came, who has nothing to do waits. One at a time: making tokens of a prompt
        // takes a while, and the others wait for it.
        let next = match batcher.is_idle() {
            true => match jobs.next() {
                Some(job) => Some(job),
                None => return,
            },
            false if batcher.has_room() => jobs.try_next(),
            false => None,
        };
        // A panic says nothing of whose request it was: all that were under way end, and later ones begin anew.
        if let Some(job) = next {
            let events = job.events.clone();
            let begun = unless_it_panics(|| {
                begin(model, &mut batcher, job);
                Ok(())
            });
            if let Err(failure) = begun {
                let _ = events.try_send(Event::Failed(failure));
            }
        }
        let turned = unless_it_panics(|| {
            if stopping.load(Ordering::Relaxed) {
                batcher.cancel_all();
            }
            batcher.turn();
            Ok(())
        });
        if let Err(Failure::Model(message)) = turned {
            batcher.fail_all(&message);
        }
    }
}

fn begin<'a>(model: &'a LoadedModel, batcher: &mut Batcher<'a>, job: Job) {
    let Job { request, prompt, options, events } = job;
    // If the prompt cannot be processed; otherwise the batcher says.
    request.outcome(Outcome::Failed);
    let prompt = match prompt.tokens(model) {
        Ok(tokens) => tokens,
        Err(error) => {
            let _ = events.try_send(Event::Failed(error.into()));
            return;
        }
    };
    let stop = if options.ignore_eos { Vec::new() } else { model.info.eos_tokens.clone() };
    let client = Client {
        events,
        words: model.tokenizer.as_ref().map(|tokenizer| tokenizer.stream()),
        prompt_tokens: prompt.len(),
        cached_tokens: 0,
        tokens: 0,
    };
    batcher.submit(BatchJob { request, prompt, options, stop, receive: Box::new(client) });
}

/// A client that waits for its tokens.
struct Client<'a> {
    events: mpsc::Sender<Event>,
    /// A named configuration has the shape of a model but no vocabulary: the numbers of tokens are used instead of text.
    words: Option<DecodeStream<'a>>,
    prompt_tokens: usize,
    /// Of these, those that its slot held already.
    cached_tokens: usize,
    tokens: usize,
}

impl Receive for Client<'_> {
    fn admitted(&mut self, shared: usize) {
        self.cached_tokens = shared;
    }

    fn token(&mut self, token: u32) -> Result<ControlFlow<()>, GenerateError> {
        self.tokens += 1;
        let text = match &mut self.words {
            None => format!("{token} "),
            Some(words) => words.push(token)?.unwrap_or_default(),
        };
        let sent = self.events.try_send(Event::Token(text)).is_ok();
        Ok(if sent { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
    }

    fn is_wanted(&self) -> bool {
        !self.events.is_closed()
    }

    fn ended(&mut self, outcome: Result<FinishReason, GenerateError>) {
        // A character that was never completed is held back until the end.
        let rest = self.words.as_mut().and_then(|words| words.finish().ok().flatten());
        if let (Some(rest), Ok(_)) = (rest, &outcome) {
            let _ = self.events.try_send(Event::Token(rest));
        }
        let (prompt_tokens, cached_tokens, completion_tokens) = (self.prompt_tokens, self.cached_tokens, self.tokens);
        let _ = self.events.try_send(match outcome {
            Ok(finish) => Event::Done(Usage { prompt_tokens, cached_tokens, completion_tokens, finish }),
            Err(error) => {
                let failure = Failure::from(error);
                if let Failure::Model(message) = &failure {
                    eprintln!("a request failed: {message}");
                }
                Event::Failed(failure)
            }
        });
    }
}
