//! Continuous batching: requests join and leave between steps.
//!
//! Each turn passes at most one piece of a prompt, and then one token of every sequence that generates, so that a long
//! prompt holds nobody up for longer than a piece takes. Requests are served in the order in which they came. A slot keeps
//! the keys and values of its last sequence: a prompt that begins like it is computed from where they differ.
//!
//! A step computes all slots up to its last sequence's. Once fewer would do, that one moves to a free slot below: a
//! request that is left alone pays for itself only.
//!
//! Steps are not begun under a request: each says for which requests it worked ([`llm::serves`]), so that every request has
//! its queue time, time to first token, gaps between tokens, and its share of the steps' time.

use super::buckets;
use super::decoder::SlotDecoder;
use crate::generate::{FinishReason, GenerateError, GenerateOptions, check_options, check_tokens};
use crate::load::PromptTooLong;
use crate::sampling::{NO_NUMBERS, Rule, Sampler, all_chosen};
use candle_core::{Result, Tensor, bail};
use candlescope_core::llm::{self, Request, Tokens};
use candlescope_core::{Annotation, Outcome, annotate};
use std::collections::VecDeque;
use std::ops::ControlFlow;

/// Steps in each of which fewer rows would have done, before a sequence moves for it: a client that asks again takes
/// the free slot meanwhile.
const SETTLED: usize = 4;

/// Tokens that have to be to come of one of the sequences that stand too high, at least, for moves to be worth it: no
/// graph may have been captured of a step of fewer rows, and the first steps of a shape run call by call.
const LEAST_TO_COME: usize = 16;

/// How a [`Batcher`] works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatcherOptions {
    /// Most tokens of a prompt that pass between two steps of the sequences that generate.
    pub prompt_piece: usize,
    /// Least number of tokens that a prompt has to share with what a slot holds, for them not to be computed again.
    pub least_shared: usize,
}

impl Default for BatcherOptions {
    fn default() -> Self {
        Self { prompt_piece: 256, least_shared: 16 }
    }
}

/// Whoever waits for a request's tokens.
pub trait Receive {
    /// The request has a slot, which holds so many tokens of its prompt already: these are not computed again.
    fn admitted(&mut self, _shared: usize) {}

    /// A token; a break ends the sequence with [`FinishReason::Cancelled`].
    ///
    /// # Errors
    /// If it cannot be handed on, as where it is no text: the request fails.
    fn token(&mut self, token: u32) -> std::result::Result<ControlFlow<()>, GenerateError>;

    /// Whether anybody still waits. Asked at each turn while the prompt passes or waits for those before it, and before a
    /// sequence moves to another slot.
    fn is_wanted(&self) -> bool {
        true
    }

    /// The end: after the last token, or in place of the first.
    fn ended(&mut self, outcome: std::result::Result<FinishReason, GenerateError>);
}

/// A request for a [`Batcher`].
pub struct Job<'a> {
    /// The request, made when it arrived, so that its wait is part of it.
    pub request: Request,
    /// Tokens of the prompt.
    pub prompt: Vec<u32>,
    /// How to generate; the cache is always used.
    pub options: GenerateOptions,
    /// Tokens that end the sequence.
    pub stop: Vec<u32>,
    /// Who gets the tokens.
    pub receive: Box<dyn Receive + 'a>,
}

impl std::fmt::Debug for Job<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The prompt is the client's.
        f.debug_struct("Job")
            .field("request", &self.request)
            .field("tokens", &self.prompt.len())
            .finish_non_exhaustive()
    }
}

/// A request in a slot.
struct SlotRequest<'a> {
    job: Job<'a>,
    /// Prompt and generated tokens. All but the last have been passed, or wait to be.
    text: Vec<u32>,
    sampler: Sampler,
    /// Whether the prompt has been passed.
    generates: bool,
    /// When it came into its slot, among all: the first goes first.
    number: u64,
}

impl SlotRequest<'_> {
    /// Tokens that it may still get.
    fn to_come(&self) -> usize {
        let made = self.text.len() - self.job.prompt.len();
        self.job.options.max_new_tokens.saturating_sub(made)
    }
}

/// Several requests on one model, a step at a time, on one thread.
pub struct Batcher<'a> {
    decoder: SlotDecoder,
    options: BatcherOptions,
    waiting: VecDeque<Job<'a>>,
    running: Vec<Option<SlotRequest<'a>>>,
    /// The tokens whose keys and values each slot holds.
    held: Vec<Vec<u32>>,
    admitted: u64,
    shared: u64,
    /// Requests in slots at each of the last steps.
    recent: [usize; SETTLED],
    moved: u64,
}

impl std::fmt::Debug for Batcher<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Batcher")
            .field("decoder", &self.decoder)
            .field("waiting", &self.waiting.len())
            .field("running", &self.running())
            .finish_non_exhaustive()
    }
}

impl<'a> Batcher<'a> {
    /// A batcher on these slots.
    pub fn new(decoder: SlotDecoder, options: BatcherOptions) -> Self {
        let slots = decoder.slots();
        Self {
            decoder,
            options: BatcherOptions { prompt_piece: options.prompt_piece.max(1), ..options },
            waiting: VecDeque::new(),
            running: (0..slots).map(|_| None).collect(),
            held: vec![Vec::new(); slots],
            admitted: 0,
            shared: 0,
            recent: [slots; SETTLED],
            moved: 0,
        }
    }

    /// Its slots, for another one. Requests that are under way end unheard.
    pub fn into_decoder(self) -> SlotDecoder {
        self.decoder
    }

    /// The slots, and how the last step ran.
    pub fn decoder(&self) -> &SlotDecoder {
        &self.decoder
    }

    /// Requests in slots: their prompts pass, or they generate.
    pub fn running(&self) -> usize {
        self.running.iter().flatten().count()
    }

    /// Requests without a slot.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Whether another request would get a slot at the next turn.
    pub fn has_room(&self) -> bool {
        self.running() + self.waiting.len() < self.running.len()
    }

    /// Whether there is nothing to do.
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.running() == 0
    }

    /// Tokens of prompts that were not computed, because a slot held their keys and values.
    pub fn shared_tokens(&self) -> u64 {
        self.shared
    }

    /// Sequences that went on in a lower slot, so that steps computed fewer rows.
    pub fn moved_sequences(&self) -> u64 {
        self.moved
    }

    /// Takes a request. One that cannot be fulfilled ends at once.
    pub fn submit(&mut self, mut job: Job<'a>) {
        job.request = job.request.prompt_tokens(job.prompt.len()).batch(1);
        match self.check(&job) {
            Ok(()) => self.waiting.push_back(job),
            Err(error) => {
                job.request.outcome(Outcome::Failed);
                job.receive.ended(Err(error));
            }
        }
    }

    fn check(&self, job: &Job<'_>) -> std::result::Result<(), GenerateError> {
        if job.prompt.is_empty() {
            return Err(GenerateError::EmptyPrompt);
        }
        PromptTooLong::check(job.prompt.len(), self.decoder.context())?;
        check_tokens(&job.prompt, self.decoder.vocabulary())?;
        check_options(&job.options)?;
        if job.options.lookahead > 0 {
            let why = "a step of several requests passes one token of each: leave lookahead at 0";
            return Err(GenerateError::Options(why.into()));
        }
        Ok(())
    }

    /// One turn: requests get the slots that are free, a piece of the oldest prompt passes, then one token of each sequence
    /// that generates, of which one may move to a lower slot first. A failure of the model ends the requests that it
    /// concerns, and nothing else.
    pub fn turn(&mut self) {
        self.let_go();
        self.admit();
        if let Some(slot) = self.next_prompt() {
            self.pass_prompt(slot);
        }
        self.step();
    }

    /// Forgets what slots hold that no request is in: prompts to come are computed from their first token.
    pub fn forget(&mut self) {
        for slot in 0..self.running.len() {
            if self.running[slot].is_none() {
                self.decoder.truncate(slot, 0);
                self.held[slot].clear();
            }
        }
    }

    /// Ends every request, those that wait too.
    pub fn cancel_all(&mut self) {
        let waiting = self.waiting.drain(..);
        let running = self.running.iter_mut().filter_map(Option::take).map(|running| running.job);
        for job in waiting.chain(running) {
            end(job, Ok(FinishReason::Cancelled));
        }
    }

    /// Ends every request that is in a slot because of `message`, as after a panic: what the slots hold is not trusted.
    pub fn fail_all(&mut self, message: &str) {
        for slot in 0..self.running.len() {
            let cause = candle_core::Error::Msg(message.to_string());
            self.leave(slot, Err(failed("a step of several sequences".into(), cause)));
        }
    }

    /// Gives free slots to the requests that came first: that one which makes least work. A slot that holds the beginning of
    /// the prompt saves as many tokens; one beyond those in use adds a row to each step for as long as the request lasts. Of
    /// equal ones that which holds nothing, whose beginning nobody shares.
    fn admit(&mut self) {
        while let Some(mut job) = self.waiting.pop_front() {
            if !job.receive.is_wanted() {
                end(job, Ok(FinishReason::Cancelled));
                continue;
            }
            let slots = self.running.len();
            let rows = |used: usize| if used == 0 { 0 } else { buckets::slots(used, slots) };
            let used = self.running.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
            let free = (0..slots).filter(|slot| self.running[*slot].is_none());
            let rank = |slot: &usize| {
                let more_rows = rows(slot + 1).saturating_sub(rows(used));
                let work = more_rows.saturating_mul(job.options.max_new_tokens) as i128;
                (work - self.shared_with(*slot, &job.prompt) as i128, !self.held[*slot].is_empty(), *slot)
            };
            let Some(slot) = free.min_by_key(rank) else {
                self.waiting.push_front(job);
                return;
            };
            let shared = self.shared_with(slot, &job.prompt);
            self.decoder.truncate(slot, shared);
            self.held[slot].truncate(shared);
            self.shared += shared as u64;
            self.admitted += 1;
            job.receive.admitted(shared);
            let sampler = Sampler::new(&job.options.sampling, job.options.seed, 1);
            let (text, number) = (job.prompt.clone(), self.admitted);
            self.running[slot] = Some(SlotRequest { job, text, sampler, generates: false, number });
        }
    }

    /// How many tokens of a prompt a slot holds that need not be computed again. The last one always is: its logits are
    /// wanted.
    fn shared_with(&self, slot: usize, prompt: &[u32]) -> usize {
        let held = &self.held[slot];
        let same = held.iter().zip(prompt).take_while(|(a, b)| a == b).count().min(prompt.len() - 1);
        if same >= self.options.least_shared { same } else { 0 }
    }

    /// Slots whose prompts have not been passed and that nobody waits for are free again, also those whose turn has not come: a
    /// long prompt before them may take a while.
    fn let_go(&mut self) {
        for slot in 0..self.running.len() {
            let unwanted = |running: &SlotRequest<'_>| !running.generates && !running.job.receive.is_wanted();
            if self.running[slot].as_ref().is_some_and(unwanted) {
                self.leave(slot, Ok(FinishReason::Cancelled));
            }
        }
    }

    /// The slot whose prompt came first of those that have not been passed.
    fn next_prompt(&self) -> Option<usize> {
        let prompts = self.running.iter().enumerate();
        let prompts = prompts.filter_map(|(slot, r)| r.as_ref().filter(|r| !r.generates).map(|r| (r.number, slot)));
        prompts.min().map(|(_, slot)| slot)
    }

    fn pass_prompt(&mut self, slot: usize) {
        let Some(running) = &mut self.running[slot] else { return };
        let from = self.held[slot].len();
        let to = running.text.len().min(from + self.options.prompt_piece);
        let (piece, is_last) = (&running.text[from..to], to == running.text.len());
        let outcome = {
            let _step = llm::prefill(Tokens::new(to - from).context(to));
            annotate(Annotation::new().new_tokens(to - from).sequences(1).context_sum(to as u64));
            let device = self.decoder.device().clone();
            let next = Tensor::new(piece, &device)
                .and_then(|tokens| self.decoder.prefill(slot, &tokens.unsqueeze(0)?, from))
                .and_then(|logits| match is_last {
                    true => {
                        let _sampling = llm::sample();
                        running
                            .sampler
                            .next(&logits, std::slice::from_ref(&running.text))
                            .and_then(all_chosen)
                            .map(|next| next.first().copied())
                    }
                    false => Ok(None),
                });
            llm::serves(
                &running.job.request,
                Tokens::new(to - from).context(to),
                usize::from(matches!(next, Ok(Some(_)))),
            );
            next
        };
        match outcome {
            Ok(next) => {
                self.held[slot].extend_from_slice(piece);
                running.generates = is_last;
                if let Some(next) = next {
                    self.take(slot, next);
                }
            }
            Err(cause) => self.leave(slot, Err(failed(format!("prefill of {to} tokens"), cause))),
        }
    }

    /// The slots whose sequences generate, in order.
    fn generating(&self) -> Vec<usize> {
        let generates = |slot: &usize| self.running[*slot].as_ref().is_some_and(|running| running.generates);
        (0..self.running.len()).filter(generates).collect()
    }

    /// Positions that a step of these slots attends to, of each.
    fn contexts(&self, slots: &[usize]) -> impl Iterator<Item = usize> {
        slots.iter().map(move |slot| self.held[*slot].len() + 1)
    }

    /// Rows to compare by what a step takes: on a GPU it is the power of two that counts, whether steps are captured or
    /// not, because a row more or less is no launch more or less.
    fn rows(&self, used: usize) -> usize {
        if self.decoder.device().is_cpu() { used } else { buckets::slots(used, self.running.len()) }
    }

    /// The slot of the last sequence that generates, and a free one below, if steps compute fewer rows once all have
    /// closed up, have for a while, and these rows read more than is copied. One a turn: many moves hold nobody up at
    /// once. A sequence that nobody waits for leaves instead.
    fn worthwhile_move(&mut self) -> Option<(usize, usize)> {
        let slots = self.generating();
        let last = *slots.last()?;
        self.recent.rotate_left(1);
        self.recent[SETTLED - 1] = self.running();
        let needed = self.recent.iter().max().map_or(last + 1, |most| self.rows(*most));
        let spared = self.rows(last + 1).checked_sub(needed).filter(|spared| *spared > 0)?;
        // What holds nothing is copied faster, and none is better than the lowest.
        let free = (0..needed).filter(|slot| self.running[*slot].is_none());
        let to = free.min_by_key(|slot| (self.held[*slot].len(), *slot))?;
        let above = slots.iter().filter(|slot| **slot >= needed).filter_map(|slot| self.running[*slot].as_ref());
        let above: Vec<&SlotRequest<'_>> = above.collect();
        let to_come = above.iter().map(|running| running.to_come()).max()?;
        // A row reads as many positions in each step as the longest sequence has; a move reads and writes each of both
        // sequences twice.
        let read = spared.saturating_mul(to_come).saturating_mul(self.contexts(&slots).max()?);
        let copied = 4 * above.len() * (self.held[last].len() + self.held[to].len());
        if to_come < LEAST_TO_COME || read < copied {
            return None;
        }
        if self.running[last].as_ref().is_some_and(|running| !running.job.receive.is_wanted()) {
            self.leave(last, Ok(FinishReason::Cancelled));
            return None;
        }
        Some((last, to))
    }

    /// The sequence in slot `from` goes on in the free slot `to`. What that held for prompts to come stands in `from`
    /// then.
    fn move_sequence(&mut self, (from, to): (usize, usize)) -> Result<()> {
        // If it fails, the one in `from` ends with the others of its step.
        self.decoder.move_sequence(from, to).inspect_err(|_| self.held[to].clear())?;
        self.running.swap(from, to);
        self.held.swap(from, to);
        self.moved += 1;
        Ok(())
    }

    fn step(&mut self) {
        let moves = self.worthwhile_move();
        let mut slots = self.generating();
        if slots.is_empty() {
            return;
        }
        let outcome = {
            let longest = self.contexts(&slots).max().unwrap_or(0);
            let _step = llm::decode(Tokens::new(slots.len()).context(longest).batch(slots.len()));
            let sum: usize = self.contexts(&slots).sum();
            annotate(Annotation::new().new_tokens(slots.len()).sequences(slots.len()).context_sum(sum as u64));
            // Within the step, so that its time is somebody's.
            let moved = moves.map_or(Ok(()), |moves| self.move_sequence(moves));
            slots = self.generating();
            let next = moved.and_then(|()| self.advance(&slots));
            for (at, slot) in slots.iter().enumerate() {
                if let Some(running) = &self.running[*slot] {
                    let context = self.held[*slot].len() + 1;
                    let chosen = next.as_ref().is_ok_and(|next| matches!(next.get(at), Some(Ok(_))));
                    llm::serves(&running.job.request, Tokens::new(1).context(context), usize::from(chosen));
                }
            }
            next
        };
        match outcome {
            Ok(next) => {
                for (slot, next) in slots.into_iter().zip(next) {
                    if let Some(running) = &self.running[slot] {
                        self.held[slot].extend(running.text.last());
                    }
                    match next {
                        Ok(next) => self.take(slot, next),
                        Err(cause) => self.leave(slot, Err(failed("the choice of a token".into(), cause))),
                    }
                }
            }
            Err(cause) => {
                let message = crate::candle_message(&cause);
                for slot in slots {
                    let cause = candle_core::Error::Msg(message.clone());
                    self.leave(slot, Err(failed("a step of several sequences".into(), cause)));
                }
            }
        }
    }

    /// The next token of each of the sequences in `slots`. Choosing one may fail alone, as where its logits are no numbers.
    fn advance(&mut self, slots: &[usize]) -> Result<Vec<Result<u32>>> {
        let running = |slot: &usize| self.running[*slot].as_ref().filter(|running| running.generates);
        let next = |slot: &usize| {
            let rule = running(slot).and_then(|r| r.sampler.rules()?.first().copied());
            let last = running(slot).and_then(|r| r.text.last().copied()).unwrap_or(0);
            (*slot, last, rule.unwrap_or(Rule::GREEDY))
        };
        let (chosen, logits) = self.decoder.advance(&slots.iter().map(next).collect::<Vec<_>>())?;
        let choose = |(slot, chosen): (&usize, Option<u32>)| {
            let token = match running(slot) {
                // What depends on the text so far is chosen on the host.
                Some(running) if running.sampler.rules().is_none() => {
                    let _sampling = llm::sample();
                    let row = logits.narrow(0, *slot, 1)?;
                    running.sampler.next(&row, std::slice::from_ref(&running.text))?.first().copied().flatten()
                }
                _ => chosen,
            };
            token.map_or_else(|| bail!("{NO_NUMBERS}"), Ok)
        };
        Ok(slots.iter().zip(chosen).map(choose).collect())
    }

    /// Hands a token on, and ends the sequence if it was the last.
    fn take(&mut self, slot: usize, token: u32) {
        let Some(running) = &mut self.running[slot] else { return };
        running.text.push(token);
        let made = running.text.len() - running.job.prompt.len();
        let wanted = match running.job.receive.token(token) {
            Ok(wanted) => wanted,
            Err(error) => return self.leave(slot, Err(error)),
        };
        let finish = if running.job.stop.contains(&token) {
            FinishReason::Stop
        } else if wanted.is_break() {
            FinishReason::Cancelled
        } else if made >= running.job.options.max_new_tokens {
            FinishReason::Length
        } else if running.text.len() >= self.decoder.context() {
            FinishReason::Context
        } else {
            return;
        };
        self.leave(slot, Ok(finish));
    }

    /// Frees a slot. What it holds stays, unless the model failed on it.
    fn leave(&mut self, slot: usize, outcome: std::result::Result<FinishReason, GenerateError>) {
        if outcome.is_err() {
            self.decoder.truncate(slot, 0);
            self.held[slot].clear();
        }
        if let Some(running) = self.running[slot].take() {
            end(running.job, outcome);
        }
    }
}

/// The receiver is told, and the request's span ends.
fn end(mut job: Job<'_>, outcome: std::result::Result<FinishReason, GenerateError>) {
    job.request.outcome(match outcome {
        Ok(FinishReason::Cancelled) => Outcome::Cancelled,
        Ok(_) => Outcome::Done,
        Err(_) => Outcome::Failed,
    });
    job.receive.ended(outcome);
}

fn failed(step: String, cause: candle_core::Error) -> GenerateError {
    GenerateError::Step { step, cause }
}

#[cfg(all(test, feature = "cuda"))]
mod tests {
    use super::super::{SlotOptions, SlotStepRun, capturable_device};
    use super::*;
    use crate::config::ModelConfig;
    use crate::llama::Llama;
    use crate::weights::random::RandomWeights;
    use candle_core::DType;
    use std::cell::RefCell;
    use std::rc::Rc;

    struct Keep(Rc<RefCell<Vec<u32>>>);

    impl Receive for Keep {
        fn token(&mut self, token: u32) -> std::result::Result<ControlFlow<()>, GenerateError> {
            self.0.borrow_mut().push(token);
            Ok(ControlFlow::Continue(()))
        }

        fn ended(&mut self, outcome: std::result::Result<FinishReason, GenerateError>) {
            assert_eq!(outcome.unwrap(), FinishReason::Length);
        }
    }

    /// The texts of requests of so many tokens, how the last step ran, and how many sequences moved.
    fn texts(of: &[usize], slots: usize) -> (Vec<Vec<u32>>, Option<SlotStepRun>, u64) {
        let (config, device) = (ModelConfig::named("embedded").unwrap(), capturable_device(0).expect("a CUDA device"));
        let mut weights = RandomWeights::new(&config, 7, DType::F32, &device);
        let model = Llama::load(&config, &mut weights, DType::F32, &device).unwrap();
        let options = SlotOptions { slots, context: Some(256), ..SlotOptions::default() };
        let decoder = SlotDecoder::new(Box::new(model), &options).unwrap();
        let mut batcher = Batcher::new(decoder, BatcherOptions::default());
        let submit = |(n, tokens): (usize, &usize)| {
            let text = Rc::<RefCell<Vec<u32>>>::default();
            let options = GenerateOptions { max_new_tokens: *tokens, ignore_eos: true, ..GenerateOptions::default() };
            let prompt = (0..7).map(|i| (3 + 31 * n as u32 + i) % 200).collect();
            let (request, receive) = (Request::new("text_completion", "embedded"), Box::new(Keep(text.clone())));
            batcher.submit(Job { request, prompt, options, stop: Vec::new(), receive });
            text
        };
        let got: Vec<_> = of.iter().enumerate().map(submit).collect();
        while !batcher.is_idle() {
            batcher.turn();
        }
        let texts = got.into_iter().map(|text| text.take()).collect();
        (texts, batcher.decoder().last_ran(), batcher.moved_sequences())
    }

    #[test]
    #[ignore = "needs a CUDA device"]
    fn a_request_that_is_left_alone_goes_on_as_the_graph_of_one_slot() {
        let tokens = [1, 1, 1, 1, 1, 1, 1, 90];
        let (together, ran, moved) = texts(&tokens, 8);
        assert_eq!((ran, moved), (Some(SlotStepRun::Replay { slots: 1, context: 256 }), 1));
        // The same requests, one after the other in one slot.
        let (apart, _, none) = texts(&tokens, 1);
        assert_eq!((together, none), (apart, 0));
    }
}
