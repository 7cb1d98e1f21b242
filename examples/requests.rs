//! Requests: two workers answer from one queue, each request with its own times, joined to its caller's trace.

use candlescope::llm::{self, Request, Tokens};
use candlescope::sdk::MemoryExporter;
use std::sync::{Mutex, mpsc};
use std::thread;

/// An item of the queue. The request is made where it arrives, so that its time in the queue counts.
struct Job {
    request: Request,
    prompt: usize,
    most_tokens: usize,
}

/// Stands for a model; a real one makes the spans of its layers here.
fn forward(tokens: usize) {
    tracing::trace_span!("linear").in_scope(|| std::hint::black_box((0..tokens as u64 * 2_000).sum::<u64>()));
}

fn work(queue: &Mutex<mpsc::Receiver<Job>>) {
    loop {
        let next = queue.lock().map(|queue| queue.recv());
        let Ok(Ok(Job { request, prompt, most_tokens })) = next else { return };
        // Steps begun on this thread under the guard are this request's.
        let _in_request = request.enter();
        for token in 0..most_tokens {
            let context = prompt + token;
            let _step = match token {
                0 => llm::prefill(Tokens::new(prompt).context(prompt)),
                _ => llm::decode(Tokens::new(1).context(context)),
            };
            forward(if token == 0 { prompt } else { 1 });
            // The token exists on the host: time to first token ends at the first call, and throughput counts all
            // calls.
            request.token();
        }
    }
}

fn main() -> anyhow::Result<()> {
    let memory = MemoryExporter::new();
    let scope = candlescope::builder().exporter(memory.clone()).install()?;
    let (sender, queue) = mpsc::channel();
    let queue = Mutex::new(queue);
    thread::scope(|threads| -> anyhow::Result<()> {
        for _ in 0..2 {
            threads.spawn(|| work(&queue));
        }
        for number in 1..=6 {
            let mut request = Request::new("chat", "a-model").prompt_tokens(10 * number);
            if number == 6 {
                // From the caller's HTTP headers: its trace then shows this request below its own span.
                request = request.traceparent("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
            }
            sender.send(Job { request, prompt: 10 * number, most_tokens: 4 })?;
        }
        drop(sender);
        Ok(())
    })?;
    scope.finish();

    let requests = memory.batch().requests;
    println!("{:>6} {:>9} {:>9} {:>9} {:>6}", "prompt", "queued µs", "TTFT µs", "total µs", "tokens");
    for r in &requests {
        let micros = |ns: Option<u64>| ns.map_or("-".to_string(), |ns| (ns / 1_000).to_string());
        let (prompt, tokens) = (r.prompt_tokens.unwrap_or(0), r.output_tokens.unwrap_or(0));
        let total = micros(Some(r.host_dur_ns));
        println!("{prompt:>6} {:>9} {:>9} {total:>9} {tokens:>6}", micros(r.queue_ns), micros(r.ttft_ns));
    }
    let caller = requests.iter().find(|r| r.prompt_tokens == Some(60)).map(|r| r.trace_id.to_string());
    anyhow::ensure!(
        caller.as_deref() == Some("0af7651916cd43dd8448eb211c80319c"),
        "not in its caller's trace: {caller:?}"
    );
    Ok(())
}
