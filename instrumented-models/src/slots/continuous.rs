//! Requests one after the other through a [`Batcher`]: so many are under way at any time, and each that ends makes room for the next.

use super::batcher::{Batcher, Job, Receive};
use crate::generate::{Context, FinishReason, GenerateError, GenerateOptions, GenerationOutput, Sequence};
use crate::load::LoadedModel;
use crate::tokenizer::DecodeStream;
use candlescope_core::llm::Request;
use std::cell::RefCell;
use std::ops::ControlFlow;
use std::rc::Rc;
use std::time::Instant;

/// A request of [`generate_continuously`].
#[derive(Debug, Clone, PartialEq)]
pub struct ContinuousRequest {
    /// Tokens of its prompt.
    pub prompt: Vec<u32>,
    /// How to generate; the cache is always used.
    pub options: GenerateOptions,
}

/// What a request has got so far.
#[derive(Default)]
struct RequestOutput {
    tokens: Vec<u32>,
    text: String,
    times: Vec<Instant>,
    ended: Option<(Instant, Result<FinishReason, GenerateError>)>,
}

/// A request that was handed over.
struct SubmittedRequest {
    started: Instant,
    prompt_tokens: usize,
    of: Rc<RefCell<RequestOutput>>,
}

/// What came since it was looked at last.
#[derive(Default)]
struct News {
    /// The request's place among all, and its token.
    tokens: Vec<(usize, u32)>,
    failed: bool,
}

/// Takes the tokens of one request.
struct OutputReceiver<'a> {
    request: usize,
    of: Rc<RefCell<RequestOutput>>,
    news: Rc<RefCell<News>>,
    stream: Option<DecodeStream<'a>>,
}

impl Receive for OutputReceiver<'_> {
    fn token(&mut self, token: u32) -> Result<ControlFlow<()>, GenerateError> {
        let mut of = self.of.borrow_mut();
        of.times.push(Instant::now());
        of.tokens.push(token);
        if let Some(stream) = &mut self.stream {
            of.text.push_str(&stream.push(token)?.unwrap_or_default());
        }
        self.news.borrow_mut().tokens.push((self.request, token));
        Ok(ControlFlow::Continue(()))
    }

    fn ended(&mut self, outcome: Result<FinishReason, GenerateError>) {
        let mut of = self.of.borrow_mut();
        let rest = self.stream.as_mut().map(DecodeStream::finish).transpose();
        let outcome = outcome.and_then(|finish| {
            of.text.push_str(&rest?.flatten().unwrap_or_default());
            Ok(finish)
        });
        self.news.borrow_mut().failed |= outcome.is_err();
        of.ended = Some((Instant::now(), outcome));
    }
}

/// Generates for all `requests`, in their order: `at_once` of them are under way at any time, at least one, and the next is asked for
/// when one ends; once there is none, what is under way goes on to its end. Those beyond the slots wait for one. `on_token` gets
/// each token with its request's place among all, from 0, after the turn that made it; a break ends what is under way with
/// [`FinishReason::Cancelled`], and nothing more begins.
///
/// The answer has one output for each request that began, with one sequence, in their order. A request starts when it is handed
/// over, so that its wait for a slot is part of it.
///
/// # Errors
/// The first failure of a request; the others that are under way are cancelled then.
pub fn generate_continuously<'a>(
    batcher: &mut Batcher<'a>,
    loaded: &'a LoadedModel,
    requests: impl IntoIterator<Item = ContinuousRequest>,
    at_once: usize,
    on_token: &mut dyn FnMut(usize, u32) -> ControlFlow<()>,
) -> Result<Vec<GenerationOutput>, GenerateError> {
    let news: Rc<RefCell<News>> = Rc::default();
    let mut all: Vec<SubmittedRequest> = Vec::new();
    let mut requests = requests.into_iter().fuse();
    let (mut ended, mut cancelled) = (false, false);
    loop {
        // One that is refused ends at once: nothing more is asked for then.
        let has_room = |batcher: &Batcher<'_>| batcher.running() + batcher.waiting() < at_once.max(1);
        while !(ended || cancelled || news.borrow().failed) && has_room(batcher) {
            let Some(next) = requests.next() else {
                ended = true;
                break;
            };
            let of: Rc<RefCell<RequestOutput>> = Rc::default();
            let stream = loaded.tokenizer.as_ref().map(|tokenizer| tokenizer.stream());
            let receive = OutputReceiver { request: all.len(), of: of.clone(), news: news.clone(), stream };
            all.push(SubmittedRequest { started: Instant::now(), prompt_tokens: next.prompt.len(), of });
            batcher.submit(Job {
                request: Request::new(&next.options.operation, &loaded.info.name),
                prompt: next.prompt,
                stop: Context::of(&loaded.info, None, &next.options).stop,
                options: next.options,
                receive: Box::new(receive),
            });
        }
        if batcher.is_idle() && (cancelled || ended) {
            break;
        }
        batcher.turn();
        let fresh = std::mem::take(&mut *news.borrow_mut());
        let goes_on = fresh.tokens.into_iter().all(|(request, token)| on_token(request, token).is_continue());
        if fresh.failed || !goes_on {
            batcher.cancel_all();
            cancelled = true;
        }
    }
    all.iter().map(output).collect()
}

/// What a request that has ended comes to.
fn output(begun: &SubmittedRequest) -> Result<GenerationOutput, GenerateError> {
    let (started, prompt_tokens) = (begun.started, begun.prompt_tokens);
    let RequestOutput { tokens, text, times, ended } = begun.of.take();
    let (ended, outcome) = ended.unwrap_or_else(|| (Instant::now(), Ok(FinishReason::Cancelled)));
    let sequences = vec![Sequence { tokens, text, finish: outcome? }];
    Ok(GenerationOutput { sequences, prompt_tokens, started, token_times: times, ended })
}
