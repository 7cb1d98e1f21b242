//! What each exporter costs the server, one at a time and all together, compared with a server without candlescope.
//!
//! `CANDLESCOPE_COST_ROUNDS` and `CANDLESCOPE_COST_SECONDS` are how often and how long each server is under load: three
//! times half a second by default, eight times twelve seconds for a measurement (`make bench-server`).
//! `CANDLESCOPE_COST_MODEL` is the model, `embedded` by default; it computes on one thread, unless `RAYON_NUM_THREADS`
//! says otherwise.
#![allow(missing_docs, reason = "a test")]

mod common;

use candlescope_testkit::services::Jaeger;
use common::{Server, median, spread};
use serde_json::{Value, json};
use std::time::Duration;

/// Spans wait up to a second to be sent together with others.
const SETTLES: Duration = Duration::from_millis(1_200);

fn setting<T: std::str::FromStr>(name: &str, otherwise: T) -> T {
    std::env::var(name).map_or(otherwise, |text| text.parse().unwrap_or_else(|_| panic!("{name}: {text}?")))
}

/// One server and its measurements.
struct Case {
    name: &'static str,
    server: Server,
    tokens_per_second: Vec<f64>,
    cpu_us: Vec<f64>,
    collector_cpu_us: Vec<f64>,
}

#[test]
fn each_exporter_costs_what_it_costs() {
    let rounds: usize = setting("CANDLESCOPE_COST_ROUNDS", 3);
    let seconds: f64 = setting("CANDLESCOPE_COST_SECONDS", 0.5);
    let model: String = setting("CANDLESCOPE_COST_MODEL", "embedded".to_string());
    let jaeger = Jaeger::start();
    let dir = tempfile::tempdir().expect("a directory");
    let otlp = ["--otlp".to_string(), format!("http://{}", jaeger.http)];
    let prometheus = ["--prometheus".to_string(), "127.0.0.1:0".to_string()];
    let parquet = |name: &str| {
        let run = dir.path().join(name);
        ["--parquet", run.to_str().expect("UTF-8"), "--disk-budget-mb", "8"].map(str::to_string)
    };
    let bare = ["--unobserved".to_string()];
    let all = [&prometheus[..], &otlp, &parquet("all")].concat();
    let cases: [(&str, &[String]); 7] = [
        ("without candlescope", &bare),
        ("the same again", &bare),
        ("no exporter", &[]),
        ("prometheus", &prometheus),
        ("parquet", &parquet("alone")),
        ("otlp", &otlp),
        ("all three", &all),
    ];
    let mut cases = cases.map(|(name, arguments)| {
        let server = Server::start(&[&["--model".to_string(), model.clone()], arguments].concat());
        server.load(seconds, 2);
        Case { name, server, tokens_per_second: Vec::new(), cpu_us: Vec::new(), collector_cpu_us: Vec::new() }
    });

    let (count, mut last) = (cases.len(), cases[cases.len() - 1].name);
    let has_work_left = |name: &str| ["parquet", "otlp", "all three"].contains(&name);
    for round in 0..rounds {
        // Each case takes every place in the order, after different predecessors.
        for at in 0..count {
            let at = if round % 2 == 0 { at } else { count - 1 - at };
            // Lets the previous server finish its remaining work, such as sending spans.
            if has_work_left(last) {
                std::thread::sleep(SETTLES);
            }
            let case = &mut cases[(round + at) % count];
            last = case.name;
            let cpu = || (case.server.cpu(), jaeger.service.cpu().expect("Jaeger runs"));
            let before = cpu();
            let seen = case.server.load(seconds, 2);
            let after = cpu();
            assert_eq!(seen["failed"], 0, "{}: {seen}", case.name);
            let tokens = seen["output_tokens"].as_f64().expect("a count");
            case.tokens_per_second.push(seen["tokens_per_second"].as_f64().expect("a rate"));
            case.cpu_us.push((after.0 - before.0).as_secs_f64() * 1e6 / tokens);
            case.collector_cpu_us.push((after.1 - before.1).as_secs_f64() * 1e6 / tokens);
        }
    }

    let base = cases[0].tokens_per_second.clone();
    for case in &cases {
        let ratios: Vec<f64> = case.tokens_per_second.iter().zip(&base).map(|(ours, bare)| ours / bare).collect();
        println!(
            "{}",
            json!({
                "server": case.name,
                "tokens_per_second": median(&case.tokens_per_second),
                "over_bare": spread(&ratios),
                "cpu_us_a_token": median(&case.cpu_us),
                "jaeger_cpu_us_a_token": median(&case.collector_cpu_us),
            })
        );
    }
    // A server without an exporter has no thread for it, and one without candlescope has none of our threads.
    let ours = |case: &Case| case.server.threads().into_iter().filter(|t| t.starts_with("cs-")).collect::<Vec<_>>();
    for case in &cases {
        let threads = ours(case);
        let has = |name: &str| threads.iter().any(|t| t == name);
        let expected: Value = match case.name {
            "without candlescope" | "the same again" => json!([false, false, false, false]),
            "no exporter" => json!([true, false, false, false]),
            "prometheus" => json!([true, true, false, false]),
            "parquet" => json!([true, false, true, false]),
            "otlp" => json!([true, false, false, true]),
            _ => json!([true, true, true, true]),
        };
        let found = ["cs-drain", "cs-prometheus", "cs-parquet", "cs-otlp"].map(has);
        assert_eq!(json!(found), expected, "{}: {threads:?}", case.name);
    }
    // Far above the measured figure, and far below the cost of a tracer that writes each interval separately.
    let ratio = median(&cases[count - 1].cpu_us) / median(&cases[0].cpu_us);
    assert!(ratio < 3.0, "with everything on a token takes {ratio} times the CPU time");
    for case in cases {
        case.server.stop();
    }
}
