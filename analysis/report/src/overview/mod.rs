//! A run in short, for a screen, a script, or a program that reads little: at most eight thousand bytes of JSON, whatever
//! the run. Every figure is one that reports have.

mod folder_overview;
mod next_commands;
mod overview_figures;
mod overview_findings;
mod overview_parts;
mod overview_size;
mod overview_text;
mod short_text;

pub use folder_overview::{FolderOf, FolderOverview};
pub use overview_parts::{
    LeftOut, NextCommand, Overview, OverviewFigure, OverviewFinding, OverviewPath, Rows, RunIdentity, Trust,
    TrustReason,
};
pub use overview_text::document;

use super::conclusion::title;
use super::head_facts::{gpu_names, model_name, processor};
use super::report::stakeholder::work;
use candlescope_document::terminal::{Layout, draw};
use candlescope_figures::{Analysis, ChosenDevice};
use candlescope_schema::run::{env_key, model_key, option_key};
use short_text::{name, sentence};

/// The overview of a run.
pub fn overview(analysis: &Analysis) -> Overview {
    let mut whole = Overview {
        schema: 1,
        kind: "run",
        run: name(&analysis.dir.display().to_string()),
        what: what(analysis),
        trust: overview_findings::trust(analysis),
        figures: overview_figures::all(analysis),
        findings: overview_findings::findings(analysis),
        paths: overview_findings::paths(analysis),
        next: next_commands::of_run(analysis),
        left_out: LeftOut {
            not_judged: analysis.diagnosis.as_ref().map_or(0, |diagnosis| diagnosis.abstained.len()),
            ..LeftOut::default()
        },
    };
    overview_size::fit(&mut whole);
    whole
}

/// The same for people, as wide as given, and in colour or not.
pub fn text(overview: &Overview, width: usize, color: bool) -> String {
    draw(&document(overview), Layout { width, color })
}

fn what(analysis: &Analysis) -> RunIdentity {
    let manifest = &analysis.manifest;
    let (model, environment) = (&manifest.model, &manifest.environment);
    let some = |text: &str| Some(name(text)).filter(|text| !text.is_empty());
    let rows = |table: &str| analysis.rows.get(table).copied().unwrap_or(0);
    let on_gpu = analysis.ran_on_gpu() || ChosenDevice::of(manifest) == ChosenDevice::Gpu;
    let device = gpu_names(manifest).filter(|_| on_gpu).or_else(|| processor(manifest));
    RunIdentity {
        title: sentence(&title(analysis)),
        run_id: some(&manifest.run_id),
        host: some(&manifest.host),
        started_ns: (manifest.started_ns > 0).then_some(manifest.started_ns),
        model: model_name(manifest).as_deref().and_then(some),
        architecture: model_key::ARCHITECTURE.of(model).and_then(some),
        dtype: model_key::DTYPE.of(model).and_then(some),
        quantization: model_key::QUANTIZATION.of(model).and_then(some),
        parameters: model_key::PARAMETERS.of(model),
        engine: model_key::ENGINE.of(model).and_then(some),
        device: option_key::DEVICE.of(&manifest.options).and_then(some),
        device_name: device.as_deref().and_then(some),
        candlescope: env_key::CANDLESCOPE.of(environment).and_then(some),
        candle: env_key::CANDLE.of(environment).and_then(some),
        work: sentence(&work(analysis)),
        complete: manifest.complete,
        rows: Rows { steps: rows("steps"), spans: rows("spans"), kernels: rows("kernels") },
    }
}
