//! Puts load on the server and prints what its clients measured: streaming clients that each send one request after
//! another.
//!
//! ```text
//! cargo run -p candlescope-server --bin load -- --server http://127.0.0.1:8080 --clients 4 --seconds 30
//! ```

use anyhow::{Context, Result};
use clap::Parser;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::sync::Mutex;
use std::time::{Duration, Instant};

#[derive(Debug, Parser)]
#[command(about = "Puts load on the example server and prints what its clients measured")]
struct Args {
    /// The server
    #[arg(long, default_value = "http://127.0.0.1:8080", value_name = "URL")]
    server: String,
    /// Clients at the same time
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=256))]
    clients: u16,
    /// How long
    #[arg(long, default_value_t = 10.0, value_name = "SECONDS")]
    seconds: f64,
    /// Tokens of an answer
    #[arg(long, default_value_t = 32)]
    max_tokens: u32,
    /// Tokens of a prompt
    #[arg(long, default_value_t = 16)]
    prompt_tokens: u32,
    /// Every Nth request goes away after its first token; 0 for none
    #[arg(long, default_value_t = 0)]
    cancel_every: u64,
}

/// What one client measured.
#[derive(Debug, Default)]
struct Client {
    requests: u64,
    cancelled: u64,
    refused: u64,
    failed: u64,
    tokens: u64,
    prompt_tokens: u64,
    ttft: Vec<f64>,
    duration: Vec<f64>,
}

fn main() -> Result<()> {
    let args = Args::parse();
    let all = Mutex::new(Client::default());
    let begun = Instant::now();
    let until = begun + Duration::from_secs_f64(args.seconds);
    std::thread::scope(|scope| {
        for client in 0..args.clients {
            let (args, all) = (&args, &all);
            scope.spawn(move || {
                let mut seen = Client::default();
                let agent = ureq::AgentBuilder::new().timeout(Duration::from_secs(120)).build();
                let mut number = 0;
                while Instant::now() < until {
                    number += 1;
                    if let Err(error) = request(&agent, args, u64::from(client), number, &mut seen) {
                        seen.failed += 1;
                        eprintln!("client {client}: {error:#}");
                        std::thread::sleep(Duration::from_millis(200));
                    }
                }
                let mut all = all.lock().expect("no client panics");
                all.requests += seen.requests;
                all.cancelled += seen.cancelled;
                all.refused += seen.refused;
                all.failed += seen.failed;
                all.tokens += seen.tokens;
                all.prompt_tokens += seen.prompt_tokens;
                all.ttft.extend(seen.ttft);
                all.duration.extend(seen.duration);
            });
        }
    });
    let mut seen = all.into_inner().expect("no client panics");
    let seconds = begun.elapsed().as_secs_f64();
    println!(
        "{}",
        json!({
            "seconds": seconds,
            "requests": seen.requests,
            "cancelled": seen.cancelled,
            "refused": seen.refused,
            "failed": seen.failed,
            "prompt_tokens": seen.prompt_tokens,
            "output_tokens": seen.tokens,
            "tokens_per_second": seen.tokens as f64 / seconds,
            "ttft_seconds": quantiles(&mut seen.ttft),
            "duration_seconds": quantiles(&mut seen.duration),
        })
    );
    Ok(())
}

fn request(agent: &ureq::Agent, args: &Args, client: u64, number: u64, seen: &mut Client) -> Result<()> {
    // Words that any vocabulary has: the first few hundred tokens.
    let prompt: Vec<u64> =
        (0..u64::from(args.prompt_tokens)).map(|i| 3 + (client * 31 + number * 7 + i) % 200).collect();
    let body = json!({
        "prompt": prompt,
        "max_tokens": args.max_tokens,
        "temperature": 0,
        "ignore_eos": true,
        "stream": true,
        "stream_options": { "include_usage": true },
    });
    let begun = Instant::now();
    let response = match agent.post(&format!("{}/v1/completions", args.server)).send_json(body) {
        Ok(response) => response,
        Err(ureq::Error::Status(429, _)) => {
            seen.refused += 1;
            std::thread::sleep(Duration::from_millis(50));
            return Ok(());
        }
        Err(ureq::Error::Status(status, response)) => {
            anyhow::bail!("status {status}: {}", response.into_string().unwrap_or_default())
        }
        Err(error) => return Err(error).context("no answer"),
    };
    let gives_up = args.cancel_every > 0 && number.is_multiple_of(args.cancel_every);
    let mut first = true;
    for line in BufReader::new(response.into_reader()).lines() {
        let line = line.context("the answer broke off")?;
        let Some(data) = line.strip_prefix("data: ") else { continue };
        if data == "[DONE]" {
            seen.requests += 1;
            seen.duration.push(begun.elapsed().as_secs_f64());
            return Ok(());
        }
        let chunk: Value = serde_json::from_str(data).context("a chunk is no JSON")?;
        if let Some(usage) = chunk.get("usage") {
            seen.tokens += usage["completion_tokens"].as_u64().unwrap_or(0);
            seen.prompt_tokens += usage["prompt_tokens"].as_u64().unwrap_or(0);
        } else if first {
            first = false;
            seen.ttft.push(begun.elapsed().as_secs_f64());
            if gives_up {
                seen.cancelled += 1;
                return Ok(());
            }
        }
    }
    anyhow::bail!("the answer ended without [DONE]")
}

fn quantiles(values: &mut [f64]) -> Value {
    values.sort_by(f64::total_cmp);
    let at = |q: f64| values.get(((values.len() as f64 * q) as usize).min(values.len().saturating_sub(1)));
    json!({ "n": values.len(), "p50": at(0.5), "p95": at(0.95), "p99": at(0.99) })
}
