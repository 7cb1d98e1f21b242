//! A run from its first request to its results.

use crate::address::Address;
use crate::clock::Clock;
use crate::drive::{LoadContext, StageEnd, StageRecords, run_stage};
use crate::error::LoadError;
use crate::figures::Figures;
use crate::level::{Level, Plan};
use crate::options::LoadOptions;
use crate::prepare::prepare;
use crate::results::{End, LoadResults, SCHEMA_VERSION, Stage};
use crate::server_metrics::MetricsBefore;
use crate::sweep::{StageResult, bounds, next};
use crate::watch::{Stop, Watch};
use candlescope_collectors::host::HostCollector;
use candlescope_core::Collector;
use std::sync::Arc;

/// Puts load on a server, as `options` say, and returns what was seen. `stop` ends it early; what there is by then is
/// returned like the rest, and so is what there is when the server no longer answers.
///
/// # Errors
/// If the load cannot begin: the options cannot be followed, there are no prompts, the server is not there, or it
/// refuses first requests.
pub fn run(options: &LoadOptions, stop: &Stop, watch: &dyn Watch) -> Result<LoadResults, LoadError> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        // Receiving must not take the cores of a server on the same machine.
        .worker_threads((cores / 2).clamp(1, 4))
        .thread_name("cs-load")
        .enable_all()
        .build()?;
    let results = runtime.block_on(all(options, stop, watch));
    // Answers that nobody waits for any more.
    runtime.shutdown_background();
    results
}

async fn all(options: &LoadOptions, stop: &Stop, watch: &dyn Watch) -> Result<LoadResults, LoadError> {
    let clock = Clock::start();
    let (shared, target) = prepare(options, clock, stop).await?;
    let shared = Arc::new(shared);
    let ca_file = options.ca_file.as_deref();
    let metrics = options.metrics.clone().map_or_else(|| Address::parse(&options.url).map(|a| a.metrics()), Ok)?;
    let before = MetricsBefore::read(metrics, ca_file, clock).await;
    let mut results = LoadResults {
        schema_version: SCHEMA_VERSION,
        candlescope: env!("CARGO_PKG_VERSION"),
        began_unix_ns: clock.unix_ns(),
        took_ns: 0,
        end: End::UnderWay,
        target,
        options: options.clone(),
        machine: HostCollector::new().describe(),
        stages: Vec::new(),
        carried_per_s: None,
        saturated_per_s: None,
        server_metrics: None,
        requests: Vec::new(),
    };
    let mut tried = Vec::new();
    let end = loop {
        let (level, stages) = match &options.plan {
            Plan::Levels(levels) => (levels.get(results.stages.len()).copied(), Some(levels.len())),
            Plan::Sweep => (next(&tried), None),
        };
        let Some(level) = level else { break End::Complete };
        let number = results.stages.len();
        let records = run_stage(&shared, number, stages, level, stop, watch).await?;
        let ended = records.ended.clone();
        add(&mut results, &mut tried, &shared, level, records);
        results.took_ns = clock.now();
        watch.stage_ended(&results);
        match ended {
            StageEnd::Complete => {}
            StageEnd::Stopped => break End::Stopped,
            StageEnd::OutOfRoom => break End::OutOfRoom { limit_bytes: shared.client.budget.most() },
            StageEnd::ServerGone(since_ns, why) => {
                let since = i64::try_from(since_ns).unwrap_or(i64::MAX);
                break End::ServerGone { since_ns, since_unix_ns: clock.unix_ns().saturating_add(since), why };
            }
        }
    };
    results.end = end;
    results.server_metrics = Some(before.after(ca_file, clock).await);
    results.took_ns = clock.now();
    Ok(results)
}

fn add(
    results: &mut LoadResults,
    tried: &mut Vec<StageResult>,
    shared: &LoadContext,
    level: Level,
    stage: StageRecords,
) {
    let StageRecords { records, window, beats, .. } = stage;
    let options = &shared.options;
    let figures = window.map(|window| Figures::of(&records, window, level, options.slo, &beats));
    let figures = figures.map(|figures| figures.priced(options.price_per_hour));
    if let Some(figures) = &figures {
        let requests_per_s = figures.requests_per_s;
        tried.push(StageResult { level, requests_per_s, saturated: figures.saturation.saturated });
    }
    (results.carried_per_s, results.saturated_per_s) = bounds(tried);
    results.stages.push(Stage { level, window_ns: window, requests: records.len() as u64, figures });
    results.requests.extend(records);
}
