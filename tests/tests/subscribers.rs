//! The subscribers that programs have: each records a model's spans, or the run says at once what hides them and what to
//! change.
#![allow(missing_docs, reason = "a test")]

mod common;

use candlescope::{CandlescopeLayer, Scope, llm};
use candlescope_core::run::{Code, RunManifest, Severity};
use std::path::Path;
use std::process::Command;
use tracing_subscriber::filter::{LevelFilter, filter_fn};
use tracing_subscriber::layer::{Context, Layer};
use tracing_subscriber::{EnvFilter, fmt, prelude::*, registry};

/// Set in the process that is the program: its subscriber, and where its run goes.
const ROLE: &str = "CANDLESCOPE_TEST_SUBSCRIBER";
const RUN: &str = "CANDLESCOPE_TEST_RUN";

fn info() -> EnvFilter {
    EnvFilter::new("info")
}

/// What `console_subscriber::spawn()` adds, as of 0.5: a layer that wants all that passes its filter, behind that
/// filter. The crate itself is not run: its layer panics unless the whole build has `--cfg tokio_unstable`, or a flag
/// of its own in its place, with which all that stands on tokio would be built anew; and it brings tonic's server.
struct Console;

impl<S: tracing::Subscriber> Layer<S> for Console {
    fn register_callsite(&self, _: &'static tracing::Metadata<'static>) -> tracing::subscriber::Interest {
        tracing::subscriber::Interest::always()
    }

    fn on_enter(&self, _: &tracing::span::Id, _: Context<'_, S>) {}
}

/// Its filter, word for word.
fn console(meta: &tracing::Metadata<'_>) -> bool {
    if meta.is_event() {
        return meta.target().starts_with("runtime") || meta.target().starts_with("tokio");
    }
    meta.name().starts_with("runtime.") || meta.target().starts_with("tokio")
}

/// Spans as OpenTelemetry sees them.
fn otel<S>() -> impl Layer<S> + Send + Sync
where
    S: tracing::Subscriber + for<'a> tracing_subscriber::registry::LookupSpan<'a> + Send + Sync,
{
    use opentelemetry::trace::TracerProvider as _;
    let provider = opentelemetry_sdk::trace::SdkTracerProvider::builder().build();
    tracing_opentelemetry::layer().with_tracer(provider.tracer("test"))
}

/// The program's own lines.
fn err<S>() -> impl Layer<S> + Send + Sync
where
    S: tracing::Subscriber + for<'a> tracing_subscriber::registry::LookupSpan<'a>,
{
    fmt::layer().with_writer(std::io::stderr)
}

fn layer() -> (CandlescopeLayer, Scope) {
    candlescope::builder().host(false).parquet(std::env::var_os(RUN).expect("a run")).layer().expect("starts")
}

/// Installs the subscriber.
fn install(role: &str) -> Scope {
    let (ours, scope) = layer();
    match role {
        "filter above" => registry().with(info()).with(ours).with(err()).init(),
        "filter below" => registry().with(ours).with(err()).with(info()).init(),
        "level above" => registry().with(LevelFilter::INFO).with(ours).with(err()).init(),
        "filter around ours" => registry().with(ours.with_filter(info())).with(err()).init(),
        "fmt's filter" => {
            fmt().with_env_filter(info()).with_writer(std::io::stderr).finish().with(ours).init();
        }
        "one line" => registry().with(candlescope::with_filter(ours, info(), err())).init(),
        "filter on fmt" => registry().with(ours).with(err().with_filter(info())).init(),
        "directives" => {
            let all = EnvFilter::new("info,candle_transformers=trace,candle_nn=trace,candlescope=trace");
            registry().with(all).with(ours).with(err()).init();
        }
        "directives without phases" => {
            registry().with(EnvFilter::new("warn,candle_transformers=trace")).with(ours).with(err()).init();
        }
        "otel" => registry().with(ours).with(otel()).with(err().with_filter(info())).init(),
        "otel below a filter" => registry().with(info()).with(ours).with(otel()).with(err()).init(),
        "console" => {
            let console = Console.with_filter(filter_fn(console));
            registry().with(console).with(ours).with(err().with_filter(info())).init();
        }
        other => panic!("{other}?"),
    }
    scope
}

/// The program: a plain model of candle, three steps.
#[test]
fn program() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let scope = install(&role);
    tracing::debug!("a line of level debug");
    tracing::info!("a line of level info");
    let (model, mut cache) = common::llama();
    for position in 0..3 {
        let _step = llm::decode(llm::Tokens::new(1).context(position + 1));
        model.forward(&common::tokens(1), position, &mut cache).expect("a step");
    }
    scope.finish();
}

/// The run's manifest, and what the program said on standard error.
fn run(role: &str) -> (RunManifest, String) {
    let dir = tempfile::tempdir().expect("a folder");
    let run = dir.path().join("run");
    let output = Command::new(std::env::current_exe().expect("this test"))
        .args(["--exact", "program", "--nocapture", "--quiet"])
        .env(ROLE, role)
        .env(RUN, &run)
        .env_remove("RUST_LOG")
        .env("NO_COLOR", "1")
        .output()
        .expect("starts");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{role}: {said}");
    (manifest(&run), said)
}

fn manifest(run: &Path) -> RunManifest {
    let text = std::fs::read_to_string(run.join("run.json")).expect("run.json");
    serde_json::from_str(&text).expect("a manifest")
}

/// Three steps of llama: a phase, blocks, attention, layers.
const ALL: u64 = 3 * (1 + 14 * common::LAYERS as u64 + 2);

#[test]
fn models_are_recorded_where_nothing_hides_their_spans() {
    for role in ["one line", "filter on fmt", "directives", "otel", "console"] {
        let (manifest, said) = run(role);
        assert_eq!(manifest.counts["spans"], ALL, "{role}");
        assert!(manifest.verdict.ok, "{role}: {:?}", manifest.verdict);
        assert!(!said.contains("level debug"), "{role}: what is printed is filtered:\n{said}");
        assert_eq!(said.matches("level info").count(), 1, "{role}:\n{said}");
    }
}

#[test]
fn a_filter_that_hides_them_is_told_with_the_remedy() {
    let roles =
        ["filter above", "filter below", "level above", "filter around ours", "fmt's filter", "otel below a filter"];
    for role in roles {
        let (manifest, said) = run(role);
        let findings = &manifest.verdict.findings;
        let told: Vec<&str> = findings.iter().map(|f| f.code.as_str()).collect();
        let found = findings.iter().find(|f| f.code == Code::SpansFiltered);
        let found = found.unwrap_or_else(|| panic!("{role}: {told:?}"));
        assert_eq!((found.severity, manifest.verdict.ok), (Severity::Error, false), "{role}");
        assert!(found.message().contains("candle's models"), "{role}: {}", found.message());
        assert!(found.remedy().contains("candlescope::with_filter("), "{role}: {}", found.remedy());
        for wrong in [Code::NoSpans, Code::NoModelSpans, Code::WeightsUnowned] {
            assert!(findings.iter().all(|f| f.code != wrong), "{role}: {told:?}");
        }
        // At once, where the program's own lines are.
        assert!(said.contains("candlescope::diagnostics") && said.contains("with_filter("), "{role}:\n{said}");
    }
    let (manifest, _) = run("directives without phases");
    let found = manifest.verdict.findings.iter().find(|f| f.code == Code::SpansFiltered).expect("phases are missing");
    assert_eq!(found.severity, Severity::Warning, "the model is there");
    assert!(found.message().contains("phases and requests"), "{}", found.message());
}

/// A program whose subscriber is global before candlescope comes.
#[test]
fn late() {
    if std::env::var(ROLE).as_deref() != Ok("late") {
        return;
    }
    fmt().with_env_filter(info()).with_writer(std::io::stderr).init();
    let said = candlescope::builder().install().expect_err("one is global").to_string();
    assert!(said.contains("with_filter(layer") && said.contains("in place of fmt().with_env_filter"), "{said}");
    // `None` passes everything that the filter passes.
    drop(candlescope::with_filter::<tracing_subscriber::Registry, _, _>(
        None::<CandlescopeLayer>,
        info(),
        fmt::layer(),
    ));
}

/// A program that records nothing has its lines all the same.
#[test]
fn without() {
    if std::env::var(ROLE).as_deref() != Ok("without") {
        return;
    }
    let (ours, scope) = candlescope::layer_from_env();
    assert!(!scope.is_enabled());
    let err = fmt::layer().with_writer(std::io::stderr);
    registry().with(candlescope::with_filter(ours, info(), err)).init();
    tracing::debug!("a line of level debug");
    tracing::info!("a line of level info");
    assert!(!tracing::span_enabled!(tracing::Level::TRACE), "nobody wants spans");
}

#[test]
fn subscribers_that_are_there_first_and_those_that_record_nothing() {
    for test in ["late", "without"] {
        let output = Command::new(std::env::current_exe().expect("this test"))
            .args(["--exact", test, "--nocapture", "--quiet"])
            .env(ROLE, test)
            .env_remove("CANDLESCOPE")
            .output()
            .expect("starts");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{test}: {said}{}", String::from_utf8_lossy(&output.stdout));
        if test == "without" {
            assert!(said.contains("level info") && !said.contains("level debug"), "{said}");
        }
    }
}
