//! A worker that generates several requests at once: they join and leave between steps.

use crate::engine::{Event, Failure, Job, Prompt, Usage, unless_it_panics};
use crate::queue::Queue;
use candlescope::Outcome;
use candlescope_models::slots::{Batcher, Job as BatchJob, Receive};
use candlescope_models::tokenizer::DecodeStream;
use candlescope_models::{FinishReason, GenerateError, LoadedModel, PromptError};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::mpsc;

/// Works until the queue is closed. `model` has given its slots to `batcher`.
pub(crate) fn work(model: &LoadedModel, mut batcher: Batcher<'_>, jobs: &Queue<Job>, stopping: &AtomicBool) {
    loop {
        while batcher.has_room() {
            // Whoever works looks whether somebody came, who has nothing to do waits.
            let next = if batcher.is_idle() { jobs.next() } else { jobs.try_next() };
            match next {
                Some(job) => begin(model, &mut batcher, job),
                None if batcher.is_idle() => return,
                None => break,
            }
        }
        if stopping.load(Ordering::Relaxed) {
            batcher.cancel_all();
            continue;
        }
        // A panic says nothing of whose request it was: all that were under way end, and later ones begin anew.
        if let Err(failure) = unless_it_panics(|| {
            batcher.turn();
            Ok(())
        }) {
            if let Failure::Model(message) = &failure {
                eprintln!("requests failed: {message}");
            }
            batcher.fail_all(&format!("{failure:?}"));
        }
    }
}

fn begin<'a>(model: &'a LoadedModel, batcher: &mut Batcher<'a>, job: Job) {
    let Job { request, prompt, options, events } = job;
    // If the prompt cannot be processed; otherwise the batcher says.
    request.outcome(Outcome::Failed);
    let tokens: Result<Vec<u32>, PromptError> = match prompt {
        Prompt::Text(text) => model.encode_prompt(&text),
        Prompt::Tokens(tokens) => Ok(tokens),
        Prompt::Chat(messages) => model.encode_chat(&messages),
    };
    let prompt = match tokens {
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
        tokens: 0,
        failed: None,
    };
    batcher.submit(BatchJob { request, prompt, options, stop, receive: Box::new(client) });
}

/// A client that waits for its tokens.
struct Client<'a> {
    events: mpsc::Sender<Event>,
    /// A named configuration has the shape of a model but no vocabulary: the numbers of tokens are used instead of text.
    words: Option<DecodeStream<'a>>,
    prompt_tokens: usize,
    tokens: usize,
    /// The tokenizer's error, by which the sequence ends.
    failed: Option<GenerateError>,
}

impl Receive for Client<'_> {
    fn token(&mut self, token: u32) -> ControlFlow<()> {
        self.tokens += 1;
        let text = match &mut self.words {
            None => Ok(format!("{token} ")),
            Some(words) => words.push(token).map(Option::unwrap_or_default),
        };
        let sent = match text {
            Ok(text) => self.events.try_send(Event::Token(text)).is_ok(),
            Err(error) => {
                self.failed = Some(error.into());
                false
            }
        };
        if sent { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }

    fn is_wanted(&self) -> bool {
        !self.events.is_closed()
    }

    fn ended(&mut self, outcome: Result<FinishReason, GenerateError>) {
        let outcome = self.failed.take().map_or(outcome, Err);
        // A character that was never completed is held back until the end.
        let rest = self.words.as_mut().and_then(|words| words.finish().ok().flatten());
        if let (Some(rest), Ok(_)) = (rest, &outcome) {
            let _ = self.events.try_send(Event::Token(rest));
        }
        let (prompt_tokens, completion_tokens) = (self.prompt_tokens, self.tokens);
        let _ = self.events.try_send(match outcome {
            Ok(finish) => Event::Done(Usage { prompt_tokens, completion_tokens, finish }),
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
