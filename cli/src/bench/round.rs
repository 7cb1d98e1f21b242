//! One round of a study: a process start of its own, because what differs between process starts is more than what
//! differs within one.

use super::bar::Bar;
use super::bench_args::RoundArgs;
use super::estimate::Estimate;
use super::operations::{cancel_on_interrupt, method_of, recording, surroundings_and_journal};
use super::started_by::StartedBy;
use crate::at_work::AtWork;
use crate::output::say;
use anyhow::{Context, Result};
use candlescope::Scope;
use candlescope_lab::method::{Engine, MeasurementEnd};
use candlescope_lab::study::Study;
use candlescope_lab::suites::{LmOptions, ModelHost, cases};
use candlescope_models::LoadOptions;
use serde_json::{Value, json};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

/// Measures, and says on standard output how it ended: the command that started this process reads it.
pub(super) fn run(args: &RoundArgs) -> Result<u8> {
    let outcome = match measure(args) {
        Ok(MeasurementEnd::Done) => json!({ "ended": "done" }),
        Ok(MeasurementEnd::Cancelled) => json!({ "ended": "cancelled" }),
        Err(error) => json!({ "error": format!("{error:#}") }),
    };
    say(&outcome.to_string())?;
    Ok(u8::from(outcome.get("error").is_some()))
}

fn measure(args: &RoundArgs) -> Result<MeasurementEnd> {
    let started_by = StartedBy::now();
    let study = Study::open(&args.study)?;
    let manifest = study.manifest();
    let threads = manifest.options.get(super::common_args::THREADS).and_then(Value::as_u64);
    crate::threads::settle(threads.and_then(|n| usize::try_from(n).ok()), None)?;
    if manifest.options.contains_key(candlescope_lab::variants::SUITE) {
        return super::variants_round::measure(args, &study, started_by);
    }
    let options: LmOptions = serde_json::from_value(Value::Object(manifest.options.clone()))
        .with_context(|| format!("the options in {} cannot be read", args.study.display()))?;
    let slots = options.slots();
    let captures = slots.is_some_and(|slots| slots.cuda_graph);
    let load = LoadOptions {
        slots,
        device: match captures {
            true => crate::device::with_own_stream(&options.device)?,
            false => crate::device::device(&options.device)?,
        },
        dtype: options.dtype.as_deref().map(crate::device::dtype).transpose()?,
        dequantize: options.dequantize,
        quantize: None,
        seed: options.seed,
        engine: crate::device::engine(&options.engine)?,
        kv_cache_dtype: crate::device::kv_cache_dtype_or_auto(options.kv_cache_dtype.as_deref())?,
    };
    let cancel = cancel_on_interrupt(|| ());
    crate::threads::start_pool()?;
    let starts = manifest.rounds + u32::from(manifest.method.profiled_runs > 0);
    let mut work = AtWork::on_round(study.manifest(), args.round, args.recorded);
    let bar = Bar::new(!args.no_progress, args.round, starts, Duration::from_millis(args.since_ms));
    bar.loading(&options.model);
    let records = study.records()?;
    let method = method_of(manifest, args.round, args.recorded);
    let own_stream = captures.then_some(&load.device);
    let (scope, recorder) = recording(&study, &options.device, own_stream, args.recorded)?;
    let mut host = ModelHost::new(&options, load)?.cancel(&cancel).recorder(recorder);
    host.load()?;
    let (mut surroundings, mut journal) =
        surroundings_and_journal(&study, &options.device, host.facts(), scope.as_ref())?;
    let host = Rc::new(RefCell::new(host));
    let mut estimate = (args.round == 0 && !args.recorded && !args.no_progress).then(|| Estimate::new(manifest));
    let ended = Engine::new(method, surroundings.as_mut())
        .place(args.process, args.round)
        .cancel(&cancel)
        .observe(|event| {
            bar.show(event);
            if let Some(words) = estimate.as_mut().and_then(|estimate| estimate.learn(event)) {
                bar.say(&words);
            }
            work.show(event);
            if started_by.is_gone() {
                cancel.cancel();
            }
        })
        .skip(records.done(args.round, args.recorded, args.first))
        .run(&mut cases(&options, &host), &mut journal);
    bar.clear();
    drop(host);
    drop(scope.map(Scope::finish));
    Ok(ended?)
}
