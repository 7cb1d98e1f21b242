//! The load generator of candlescope's lab against this server: its figures beside those of the server's own run.
#![allow(missing_docs, reason = "a test")]

mod common;

use candlescope_figures::Analysis;
use candlescope_load::{
    Amount, End, Endpoint, Level, LoadOptions, LoadResults, NoWatch, PromptSource, Stop, TokensBy, run,
};
use candlescope_reader::Run;
use candlescope_testkit::services::free_addresses;
use common::{Server, median};
use std::time::Duration;

fn load(options: &LoadOptions) -> LoadResults {
    run(options, &Stop::new(), &NoWatch).expect("the load begins")
}

#[test]
fn clients_see_what_the_run_recorded() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("run");
    let [metrics] = free_addresses();
    let path_text = path.to_str().expect("UTF-8");
    let server = Server::start(&["--parquet", path_text, "--prometheus", &metrics.to_string()]);
    let options = LoadOptions::new(server.url.as_str())
        .levels([Level::Concurrency(2), Level::Rate(20.0)])
        .amount(Amount::Requests(20))
        .prompts(PromptSource::Tokens(24))
        .max_tokens(16)
        .ignore_eos(true)
        // How many tokens its words make depends on the prompt.
        .seed(42)
        .metrics(format!("http://{metrics}/metrics"))
        .timeout(Duration::from_secs(60));
    let results = load(&options);
    assert_eq!(results.end, End::Complete);
    // The embedded model has no chat template, so that chat is refused.
    assert_eq!((results.target.endpoint, results.target.counts_tokens), (Endpoint::Completions, true));
    for stage in &results.stages {
        let f = stage.figures.as_ref().expect("figures");
        assert_eq!((f.measured, f.ok, f.output_tokens_by), (20, 20, Some(TokensBy::Usage)));
        let tokens = |s: &Option<candlescope_load::Spread>| s.as_ref().expect("counted").median;
        assert_eq!(tokens(&f.output_tokens), 16.0);
        assert!((tokens(&f.prompt_tokens) - 24.0).abs() <= 3.0, "{:?}", f.prompt_tokens);
        assert!(f.ttft_ns.is_some() && f.tpot_ns.is_some() && f.output_tokens_per_s.is_some_and(|n| n > 0.0));
    }
    let seen = results.server_metrics.as_ref().expect("looked for");
    assert_eq!(seen.absent, None);
    let mean = |name: &str| seen.means.iter().find(|(series, _)| series.starts_with(name)).map(|(_, mean)| *mean);
    assert!(mean("gen_ai_server_time_to_first_token_seconds").is_some_and(|s| s > 0.0), "{:?}", seen.means);

    server.stop();
    let run = Run::open(&path).expect("the server's run");
    assert_eq!(seen.run.as_deref(), run.manifest().map(|m| m.run_id.as_str()), "the run is named");
    // Every request that was answered, first ones included, is in it; a client sees no less than the server took.
    let analysis = Analysis::of(&run);
    let answered = results.requests.iter().filter(|r| r.is_ok()).count();
    assert!(analysis.latency.requests.len() >= answered, "{} {answered}", analysis.latency.requests.len());
    let mut theirs: Vec<f64> = analysis.latency.requests.iter().filter_map(|r| Some(r.e2e_ns? as f64)).collect();
    theirs.retain(|ns| *ns > 0.0);
    let ours: Vec<f64> = results.requests.iter().filter_map(|r| Some(r.e2e_ns()? as f64)).collect();
    let (ours, theirs) = (median(&ours), median(&theirs));
    assert!(ours > 0.8 * theirs && ours < 5.0 * theirs + 20e6, "client {ours}, server {theirs}");
}

#[test]
fn a_full_queue_is_told_as_such() {
    let server = Server::start(&["--queue", "1", "--workers", "1"]);
    let options = LoadOptions::new(server.url.as_str())
        .levels([Level::Rate(400.0)])
        .amount(Amount::Requests(60))
        .prompts(PromptSource::Text("Hello".to_string()))
        .max_tokens(48)
        .ignore_eos(true);
    let results = load(&options);
    let f = results.stages[0].figures.as_ref().expect("figures");
    assert!(f.failed.get("status_429").is_some_and(|n| *n > 10), "{:?}", f.failed);
    assert_eq!((f.saturation.saturated, f.saturation.signs.contains(&"refuses")), (Some(true), true));
    assert!(results.summary().contains("does not keep up"), "{}", results.summary());
}
