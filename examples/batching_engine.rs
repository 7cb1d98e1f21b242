//! Steps for several requests: an engine that batches continuously, and its own count of what each request got.
//!
//! Each step takes one token of every request that generates and a chunk of the prompt of the next one. The step says
//! whom it serves; queue time, time to first token, inter-token latency and shares of the steps follow from that.

use candlescope::Outcome;
use candlescope::llm::{self, Request, Tokens};
use candlescope::sdk::MemoryExporter;
use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

/// Requests that are served at once, and prompt tokens that a step takes.
const AT_ONCE: usize = 4;
const CHUNK: usize = 16;

/// A request with what the engine knows of it.
struct Sequence {
    request: Request,
    prompt: usize,
    /// Tokens that have been passed through the model.
    passed: usize,
    most_tokens: usize,
    /// A client that hangs up is noticed after this many tokens.
    leaves_after: Option<usize>,
    /// The engine's own count: when each output token was there.
    tokens: Vec<Instant>,
}

impl Sequence {
    /// The number is a prompt's length here, by which the record is found again.
    fn arrives(number: usize) -> Self {
        let prompt = 10 + 3 * number;
        let request = Request::new("chat", "a-model").prompt_tokens(prompt);
        // What holds if the engine never says anything else, as for a client that leaves.
        request.outcome(Outcome::Cancelled);
        let (leaves_after, most_tokens) = ((number == 5).then_some(3), 4 + number % 4);
        Self { request, prompt, passed: 0, most_tokens, leaves_after, tokens: Vec::new() }
    }

    /// Tokens that the next step passes through the model.
    fn next(&self) -> usize {
        (self.prompt - self.passed.min(self.prompt)).clamp(1, CHUNK)
    }
}

/// Stands for a model; a real one makes the spans of its layers here.
fn forward(tokens: usize) {
    tracing::trace_span!("linear").in_scope(|| std::hint::black_box((0..tokens as u64 * 20_000).sum::<u64>()));
}

/// One step for all of `running`.
fn step(running: &mut [Sequence]) {
    let tokens: usize = running.iter().map(Sequence::next).sum();
    let step = llm::decode(Tokens::new(tokens).batch(running.len()));
    forward(tokens);
    for sequence in running.iter_mut() {
        let passed = sequence.next();
        sequence.passed += passed;
        // The chunk of a prompt that is not its last yields no token.
        let output = usize::from(sequence.passed >= sequence.prompt);
        llm::serves(&sequence.request, Tokens::new(passed).context(sequence.passed), output);
    }
    drop(step);
    let now = Instant::now();
    for sequence in running.iter_mut().filter(|sequence| sequence.passed >= sequence.prompt) {
        sequence.tokens.push(now);
    }
}

fn main() -> anyhow::Result<()> {
    let memory = MemoryExporter::new();
    let builder = candlescope::builder().exporter(memory.clone());
    let scope = match std::env::args().nth(1) {
        Some(run) => builder.parquet(run).install()?,
        None => builder.install()?,
    };
    let mut waiting: VecDeque<Sequence> = (0..12).map(Sequence::arrives).collect();
    let mut running: Vec<Sequence> = Vec::new();
    let mut own: BTreeMap<u64, Vec<Instant>> = BTreeMap::new();
    while !waiting.is_empty() || !running.is_empty() {
        while running.len() < AT_ONCE
            && let Some(next) = waiting.pop_front()
        {
            running.push(next);
        }
        step(&mut running);
        running.retain_mut(|sequence| {
            let done = sequence.tokens.len() >= sequence.most_tokens;
            if done {
                sequence.request.outcome(Outcome::Done);
            }
            let left = sequence.leaves_after.is_some_and(|after| sequence.tokens.len() >= after);
            if done || left {
                own.insert(sequence.prompt as u64, std::mem::take(&mut sequence.tokens));
            }
            // A request that leaves the batch is dropped, which is its end.
            !done && !left
        });
    }
    scope.finish();

    let batch = memory.batch();
    println!(
        "{:>6} {:>9} {:>9} {:>6} {:>11} {:>9}",
        "prompt", "queued µs", "TTFT µs", "tokens", "mean ITL µs", "outcome"
    );
    let mut agree = 0;
    for r in &batch.requests {
        let prompt = r.prompt_tokens.unwrap_or(0);
        // The ends of the steps in which the request got a token.
        let steps = batch
            .steps
            .iter()
            .filter(|step| step.serves.iter().any(|served| served.request == r.request && served.output_tokens > 0));
        let mut ends: Vec<i64> = steps.map(|step| step.host_start.plus_ns(step.host_dur_ns).0).collect();
        ends.sort_unstable();
        let mean = |first: i64, last: i64, n: usize| (last - first) as f64 / 1e3 / (n as f64 - 1.0);
        let itl = mean(ends[0], ends[ends.len() - 1], ends.len());
        let micros = |ns: Option<u64>| ns.map_or("-".to_string(), |ns| (ns / 1_000).to_string());
        let (tokens, outcome) = (r.output_tokens.unwrap_or(0), r.outcome.map_or("-", |outcome| outcome.as_str()));
        println!("{prompt:>6} {:>9} {:>9} {tokens:>6} {itl:>11.1} {outcome:>9}", micros(r.queue_ns), micros(r.ttft_ns));

        let counted = &own[&prompt];
        anyhow::ensure!(counted.len() == ends.len() && counted.len() as u64 == tokens, "tokens of {prompt}: {tokens}");
        let span = counted[counted.len() - 1] - counted[0];
        let counted = span.as_secs_f64() * 1e6 / (counted.len() as f64 - 1.0);
        agree += usize::from((itl - counted).abs() < 0.2 * counted + 20.0);
        anyhow::ensure!(r.queue_ns < r.ttft_ns, "request {prompt} waited longer than for its first token");
    }
    // Between the end of a step and the engine's look at its clock the system may have run something else.
    anyhow::ensure!(2 * agree > batch.requests.len(), "the inter-token latencies of only {agree} requests agree");
    let ended = |outcome| batch.requests.iter().filter(|r| r.outcome == Some(outcome)).count();
    println!("{} requests done, {} cancelled, as the engine counted", ended(Outcome::Done), ended(Outcome::Cancelled));
    Ok(())
}
