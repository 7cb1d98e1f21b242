//! The server under load with everything on, while Jaeger and Prometheus are killed and restarted, the run reaches its
//! disk budget and the clock is set: what it costs, whether memory stays flat, and whether the account adds up.
//!
//! `CANDLESCOPE_SOAK_SECONDS` is how long the observed server is under load in total: 32 by default, 1800 for a
//! measurement (`make soak-server`). `CANDLESCOPE_SOAK_MODEL` is the model, `embedded` by default. A model computes on
//! one thread, unless `RAYON_NUM_THREADS` says otherwise.
#![allow(missing_docs, reason = "a test")]

mod common;

use candlescope_core::run::RunManifest;
use candlescope_reader::Run;
use candlescope_testkit::services::{Jaeger, Prometheus, free_addresses, get};
use candlescope_testkit::wait_until;
use common::{Server, median, spread};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

const BUDGET_MB: u64 = 8;

fn page(address: SocketAddr, target: &str) -> String {
    get(address, target).unwrap_or_else(|error| panic!("{address}{target}: {error}"))
}

/// Sum of a metric's samples on a page.
fn metric(page: &str, name: &str) -> f64 {
    let value = |line: &str| line.rsplit(' ').next().and_then(|v| v.parse::<f64>().ok());
    page.lines().filter(|line| line.starts_with(name)).filter_map(value).sum()
}

fn dir_mb(dir: &Path) -> f64 {
    let entries = std::fs::read_dir(dir).into_iter().flatten().map_while(Result::ok);
    entries
        .map(|e| match e.metadata() {
            Ok(m) if m.is_dir() => dir_mb(&e.path()),
            Ok(m) => m.len() as f64 / 1e6,
            Err(_) => 0.0,
        })
        .sum()
}

#[test]
#[ignore = "takes minutes: make test-slow"]
fn everything_on_and_everything_going_wrong() {
    let total: f64 = std::env::var("CANDLESCOPE_SOAK_SECONDS").map_or(32.0, |s| s.parse().expect("seconds"));
    let model = std::env::var("CANDLESCOPE_SOAK_MODEL").unwrap_or_else(|_| "embedded".to_string());
    let dir = tempfile::tempdir().expect("a directory");
    let run = dir.path().join("run");
    let jaeger = Jaeger::start();
    let (otlp, query) = (jaeger.http, jaeger.query);
    let [metrics_at] = free_addresses();
    let mut prometheus = Prometheus::start(&[metrics_at]);
    let jaeger = Mutex::new(jaeger.service);
    let clock = dir.path().join("clock");
    std::fs::write(&clock, "+0").expect("written");
    let strings = |list: &[&str]| list.iter().map(|s| s.to_string()).collect::<Vec<_>>();
    let observed = Server::start_with_clock(
        &[
            strings(&["--model", &model, "--prometheus", &metrics_at.to_string()]),
            strings(&["--otlp", &format!("http://{otlp}"), "--parquet", run.to_str().expect("UTF-8")]),
            strings(&["--disk-budget-mb", &BUDGET_MB.to_string()]),
        ]
        .concat(),
        &clock,
    );
    let bare = Server::start_with_clock(&["--model", &model, "--unobserved"], &clock);
    observed.load(2.0, 2);
    bare.load(2.0, 2);
    let before = metric(&page(metrics_at, "/metrics"), "candlescope_tokens_total{");

    // In rounds, so that other work on the machine affects both; the bare server runs for less time, as it is only the
    // reference.
    let (round, bare_round) = if total > 300.0 { (12.0, 6.0) } else { (4.0, 4.0) };
    let rounds = (total / round).ceil() as usize;
    let ends = rounds as f64 * (round + bare_round);
    let begun = Instant::now();
    let (mut ratios, mut cpu_ratios, mut memory) = (Vec::new(), Vec::new(), Vec::new());
    let (mut tokens, mut requests, mut failed) = (0, 0, 0);
    let scraper = Mutex::new(&mut prometheus.service);
    std::thread::scope(|scope| {
        let trouble = scope.spawn(|| {
            type Act<'a> = (f64, &'a str, Box<dyn Fn() + Send + 'a>);
            let clock = |text: &'static str| {
                let file = clock.clone();
                Box::new(move || std::fs::write(&file, text).expect("written")) as Box<dyn Fn() + Send>
            };
            let acts: Vec<Act<'_>> = vec![
                (0.15, "Jaeger is killed", Box::new(|| jaeger.lock().expect("no panic").kill())),
                (0.30, "Jaeger is back", Box::new(|| jaeger.lock().expect("no panic").restart())),
                (0.35, "Prometheus is killed", Box::new(|| scraper.lock().expect("no panic").kill())),
                (0.45, "Prometheus is back", Box::new(|| scraper.lock().expect("no panic").restart())),
                (0.50, "the clock goes an hour ahead", clock("+3600")),
                (0.60, "the clock goes back by more", clock("-1800")),
                (0.70, "the clock is right again", clock("+0")),
            ];
            for (at, what, act) in acts {
                std::thread::sleep(Duration::from_secs_f64(at * ends).saturating_sub(begun.elapsed()));
                eprintln!("{:6.1} s: {what}", begun.elapsed().as_secs_f64());
                act();
            }
        });
        for i in 0..rounds {
            // What clients measured, and the server's CPU time per token.
            let measured = |server: &Server, seconds| {
                let before = server.cpu();
                let seen = server.load(seconds, 2);
                let tokens = seen["output_tokens"].as_u64().expect("a count");
                (seen, (server.cpu() - before).as_secs_f64() / tokens as f64)
            };
            let (ours, theirs) = if i % 2 == 0 {
                (measured(&observed, round), measured(&bare, bare_round))
            } else {
                let theirs = measured(&bare, bare_round);
                (measured(&observed, round), theirs)
            };
            cpu_ratios.push(ours.1 / theirs.1);
            let (ours, theirs) = (ours.0, theirs.0);
            let rate = |seen: &Value| seen["tokens_per_second"].as_f64().expect("a rate");
            ratios.push(rate(&ours) / rate(&theirs));
            tokens += ours["output_tokens"].as_u64().expect("a count");
            requests += ours["requests"].as_u64().expect("a count");
            failed += ours["failed"].as_u64().expect("a count") + theirs["failed"].as_u64().expect("a count");
            memory.push(observed.memory());
        }
        trouble.join().expect("no act fails");
    });
    assert_eq!(failed, 0, "requests that failed");

    // The metrics page counts every token that clients got, and Prometheus, although it was killed, has the same count.
    let all_known = || {
        let counted = metric(&page(metrics_at, "/metrics"), "candlescope_tokens_total{type=\"output\"");
        let known = prometheus
            .query("sum(candlescope_tokens_total)")
            .is_ok_and(|values| values.iter().any(|(_, known)| *known > before && *known >= counted));
        counted >= tokens as f64 && known
    };
    wait_until(all_known, &format!("the page and Prometheus count the {tokens} tokens that clients saw"));
    // The restarted Jaeger, whose memory was empty, has traces again. Querying the traces themselves would take long.
    wait_until(|| page(query, "/api/services").contains("candlescope-soak"), "there are traces since Jaeger is back");

    observed.stop();
    drop(bare);
    let opened = Run::open(&run).expect("the run is readable");
    let m: RunManifest = opened.manifest().expect("its manifest").clone();
    let mut rows = 0;
    let mut batches = opened.batches();
    batches.by_ref().for_each(|batch| rows += batch.spans.len());
    assert!(rows > 0 && m.complete);
    // Every interval is a record or counted as lost, which happens if the machine has no CPU time left for the drain.
    assert_eq!(m.loss.emitted, m.counts["spans"] + m.loss.lost());
    let names: Vec<&str> = m.exporters.iter().map(|e| e.name.as_str()).collect();
    assert_eq!(names, ["prometheus", "otlp", "parquet"]);
    for exporter in &m.exporters {
        assert!(exporter.conserved(), "{exporter:?}");
        assert_eq!(exporter.received["spans"], m.counts["spans"]);
    }
    let finding = |code: &str| m.verdict.findings.iter().find(|f| f.code == code);
    assert!(finding("clock_set").is_some(), "{:?}", m.verdict);
    let removed = m.exporters[2].dropped.get("spans").and_then(|r| r.get("disk_budget")).copied().unwrap_or(0);
    let disk = dir_mb(&run);
    let lost_traces = m.exporters[1].dropped.get("spans").and_then(|r| r.get("io")).copied().unwrap_or(0);

    let fifth = (memory.len() / 5).max(1);
    let (early, late) = (median(&memory[fifth..2 * fifth]), median(&memory[memory.len() - fifth..]));
    println!(
        "{}",
        json!({
            "model": model,
            "observed_seconds": round * rounds as f64,
            "requests": requests,
            "output_tokens": tokens,
            "intervals": m.counts["spans"],
            "intervals_lost": m.loss.lost(),
            "throughput_observed_over_bare": spread(&ratios),
            "cpu_time_of_a_token_observed_over_bare": spread(&cpu_ratios),
            "memory_mib": { "second_fifth": early, "last_fifth": late, "most": memory.iter().copied().fold(0.0, f64::max) },
            "disk_mb": disk,
            "spans_removed_for_the_disk_budget": removed,
            "spans_lost_while_jaeger_was_dead": lost_traces,
            "own_cost_of_step_time": m.overhead.ratio,
            "background_cpu_share": m.overhead.background_cpu_ns.map(|ns| {
                ns as f64 / (m.ended_ns.unwrap_or(m.started_ns) - m.started_ns) as f64
            }),
            "findings": m.verdict.findings.iter().map(|f| f.message()).collect::<Vec<_>>(),
        })
    );
    assert!(m.loss.lost() * 20 < m.loss.emitted, "more than 5 % lost: {:?}", m.loss);
    assert!(disk <= BUDGET_MB as f64 * 1.25, "{disk} MB on disk");
    let long = total >= 600.0;
    // In a short run, most of the growth is the queue that fills while Jaeger is down.
    assert!(late - early < if long { 24.0 } else { 96.0 }, "memory grew from {early} to {late} MiB: {memory:?}");
    if long {
        assert!(removed > 0, "the disk budget was never reached");
    }
    // Jaeger, Prometheus and the load may share two cores with the server and other work.
    let ratio = median(&ratios);
    assert!(ratio > if long { 0.7 } else { 0.5 }, "throughput {ratio} of the bare server's");
}
