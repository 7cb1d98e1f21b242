//! One process start of a study of variants.

use super::bar::Bar;
use super::bench_args::RoundArgs;
use super::operations::{cancel_on_interrupt, method_of, recording, surroundings_and_journal};
use super::started_by::StartedBy;
use super::variants::FILES;
use anyhow::{Context, Result};
use candlescope::Scope;
use candlescope_lab::hardware::EnergyCounter;
use candlescope_lab::method::{Engine, MeasurementEnd};
use candlescope_lab::study::Study;
use candlescope_lab::variants::{CLOSING_FILE, Variant, VariantHost, VariantOptions, cases, close};
use candlescope_models::LoadOptions;
use serde_json::Value;
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

/// Measures one round, or records and measures what is measured once.
pub(super) fn measure(args: &RoundArgs, study: &Study, started_by: StartedBy) -> Result<MeasurementEnd> {
    let manifest = study.manifest();
    let options: VariantOptions = serde_json::from_value(Value::Object(manifest.options.clone()))
        .with_context(|| format!("the options in {} cannot be read", args.study.display()))?;
    let device = crate::device::device(&options.device)?;
    let load = LoadOptions { device, seed: options.seed, ..LoadOptions::default() };
    let cancel = cancel_on_interrupt(|| ());
    crate::threads::start_pool()?;
    let mut work = crate::at_work::AtWork::on_round(manifest, args.round, args.recorded);
    let bar = Bar::new(!args.no_progress, args.round, manifest.rounds + 1, Duration::from_millis(args.since_ms));
    bar.loading(&options.model);
    let records = study.records()?;
    let recorded = args.recorded && manifest.method.profiled_runs > 0;
    let (scope, recorder) = recording(study, &options.device, None, recorded)?;
    let host = VariantHost::load(&options, load, &study.dir().join(FILES))?.cancel(&cancel).recorder(recorder);
    let (mut surroundings, mut journal) =
        surroundings_and_journal(study, &options.device, host.facts(), scope.as_ref())?;
    let method = method_of(manifest, args.round, args.recorded);
    let host = Rc::new(RefCell::new(host));
    let mut all = cases(&host);
    if args.recorded {
        let base = [Variant::NoCache, Variant::KvCache].map(|variant| options.case_id(variant));
        all.retain(|case| recorded && base.contains(case.id()));
    }
    let ended = Engine::new(method, surroundings.as_mut())
        .place(args.process, args.round)
        .cancel(&cancel)
        .observe(|event| {
            bar.show(event);
            work.show(event);
            if started_by.is_gone() {
                cancel.cancel();
            }
        })
        .skip(records.done(args.round, args.recorded, args.first))
        .run(&mut all, &mut journal)?;
    drop(all);
    drop(scope.map(Scope::finish));
    if args.recorded && ended == MeasurementEnd::Done {
        let host = host.borrow();
        let show = &mut |variant: Variant| bar.loading(&format!("{variant}: size and quality"));
        let closing = close(&host, energy(&options.device), &cancel, show).map_err(|error| anyhow::anyhow!(error))?;
        if cancel.is_cancelled() {
            bar.clear();
            return Ok(MeasurementEnd::Cancelled);
        }
        study.write(CLOSING_FILE, &serde_json::to_vec_pretty(&closing)?)?;
    }
    bar.clear();
    Ok(ended)
}

#[cfg(feature = "gpu")]
fn energy(device: &str) -> Result<EnergyCounter, String> {
    match candlescope_lab::peaks::DeviceIdentity::of(device) {
        Ok(gpu) if device != "cpu" => EnergyCounter::of_gpu(gpu.id.as_str()),
        Err(error) if device != "cpu" => Err(error.to_string()),
        _ => EnergyCounter::of_processors(),
    }
}
#[cfg(not(feature = "gpu"))]
fn energy(_: &str) -> Result<EnergyCounter, String> {
    EnergyCounter::of_processors()
}
