//! The same work with and without a schedule: metrics of requests are the same, and steps are counted by what became of
//! them.
#![allow(missing_docs, reason = "a test")]

use candlescope::sdk::MemoryExporter;
use candlescope::{Schedule, llm};
use candlescope_exporters::prometheus::exposition::parse;
use candlescope_testkit::services::{free_addresses, get};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;
use tracing_subscriber::prelude::*;

const WORKERS: u64 = 2;
const REQUESTS: u64 = 10;
const TOKENS: u64 = 20;
const BATCH: u64 = 3;
const PROMPT: u64 = 5;
/// Minimum duration of a step.
const STEP: Duration = Duration::from_micros(200);

fn serve() {
    let request = llm::Request::new("chat", "m").prompt_tokens(PROMPT as usize).batch(BATCH as usize);
    let _in_request = request.enter();
    for token in 0..TOKENS as usize {
        let context = PROMPT as usize + token;
        let batch = BATCH as usize;
        let _step = match token {
            0 => llm::prefill(llm::Tokens::new(context * batch).context(context).batch(batch)),
            _ => llm::decode(llm::Tokens::new(batch).context(context).batch(batch)),
        };
        tracing::trace_span!("linear").in_scope(|| std::thread::sleep(STEP));
        request.record_tokens(batch);
    }
}

/// Values of a page's series, by name.
fn scrape(address: SocketAddr) -> BTreeMap<String, f64> {
    parse(&get(address, "/metrics").expect("metrics"))
}

#[test]
fn what_is_served_of_requests_does_not_depend_on_the_schedule() {
    let ten_in_a_hundred = Schedule { skip_first: 0, wait: 90, warmup: 0, active: 10, repeat: 0 };
    for schedule in [None, Some(ten_in_a_hundred)] {
        let [address] = free_addresses();
        let (memory, dir) = (MemoryExporter::new(), tempfile::tempdir().expect("a directory"));
        let run = dir.path().join("run");
        let mut builder = candlescope::builder().prometheus(address.to_string()).parquet(&run).exporter(memory.clone());
        if let Some(schedule) = schedule {
            builder = builder.schedule(schedule);
        }
        let (layer, scope) = builder.layer().expect("starts");
        let dispatch = tracing::Dispatch::new(tracing_subscriber::registry().with(layer));
        let flush = || {
            // Twice, because the account is read while the last records are still on their way.
            (0..2).for_each(|_| scope.flush(Duration::from_secs(5)).expect("flushes"));
            scrape(address)
        };
        std::thread::scope(|threads| {
            for _ in 0..WORKERS {
                threads.spawn(|| tracing::dispatcher::with_default(&dispatch, || (0..REQUESTS).for_each(|_| serve())));
            }
        });
        let open = tracing::dispatcher::with_default(&dispatch, || {
            let open = llm::Request::new("chat", "open").batch(2);
            open.span().in_scope(|| drop(llm::prefill(llm::Tokens::new(8).context(4).batch(2))));
            open
        });
        let page = flush();
        assert_eq!(page["candlescope_requests_active"], 1.0, "the one that is open, recorded step or not");
        assert_eq!(page["candlescope_tokens_in_flight"], 8.0);
        tracing::dispatcher::with_default(&dispatch, || drop(open));
        let page = flush();
        assert_eq!((page["candlescope_requests_active"], page["candlescope_tokens_in_flight"]), (0.0, 0.0));

        let requests = (WORKERS * REQUESTS) as f64;
        let of_model = |name: &str, what: &str| page[&format!("{name}_seconds_{what}{{gen_ai_request_model=\"m\"}}")];
        for name in ["time_to_first_token", "time_per_output_token", "request_duration"] {
            assert_eq!(of_model(&format!("gen_ai_server_{name}"), "count"), requests, "{name}");
        }
        let tpot = of_model("gen_ai_server_time_per_output_token", "sum") / requests;
        assert!(tpot >= STEP.as_secs_f64(), "no token came quicker than its step: {tpot}");
        let prompts = (WORKERS * REQUESTS * PROMPT * BATCH) as f64;
        assert_eq!(page["candlescope_tokens_total{type=\"input\"}"], prompts);
        assert_eq!(page["candlescope_tokens_total{type=\"output\"}"], (WORKERS * REQUESTS * TOKENS * BATCH) as f64);

        let begun = WORKERS * REQUESTS * TOKENS + 1;
        let recorded = schedule.map_or(begun, |_| (begun / 100) * 10);
        let outcome = |what: &str| page[&format!("candlescope_steps_begun_total{{outcome=\"{what}\"}}")] as u64;
        assert_eq!((outcome("recorded"), outcome("scheduled_out")), (recorded, begun - recorded));
        assert_eq!(["captured", "paused", "lost"].map(outcome), [0, 0, 0]);

        // Gaps between tokens are measured between recorded steps that follow each other.
        let mut contexts: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
        for step in memory.batch().steps {
            contexts.entry(step.request.expect("of a request")).or_default().extend(step.context_len);
        }
        let adjacent = |of: &Vec<u32>| {
            let mut sorted = of.clone();
            sorted.sort_unstable();
            sorted.windows(2).filter(|w| w[1] == w[0] + 1).count()
        };
        let gaps: usize = contexts.values().map(adjacent).sum();
        assert_eq!(page["candlescope_inter_token_latency_seconds_count"], gaps as f64);
        let itl = page["candlescope_inter_token_latency_seconds_sum"] / gaps as f64;
        assert!(itl >= STEP.as_secs_f64(), "{itl}");

        let m = scope.finish().expect("was on");
        assert!(m.verdict.ok, "{:?}", m.verdict);
        let steps = m.steps.expect("told");
        assert_eq!((steps.begun, steps.recorded, steps.schedule), (begun, recorded, schedule));
        let on_disk = std::fs::read_to_string(run.join("run.json")).expect("written");
        assert!(on_disk.contains(&format!("\"scheduled_out\": {}", begun - recorded)), "{on_disk}");
        assert_eq!(on_disk.contains("\"skip_first\": 0"), schedule.is_some());
    }
}
