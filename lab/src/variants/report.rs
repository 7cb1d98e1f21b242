//! `profiling_report.md`, the same as `report.html`, and what a terminal shows.

use super::closing::{VariantFacts, VariantsSummary};
use super::divergence::DIVERGED;
use super::quality::Estimate;
use super::row::VariantRow;
use super::variant::Variant;
use super::variant_options::VariantOptions;
use crate::study::pages::method;
use crate::study::{IntervalOf, Manifest, Speedup};
use crate::suites::{ms, shown};
use candlescope_core::run::{model_key, option_key};
use candlescope_document::text::code;
use candlescope_document::{Block, Document, Picture, Section, Table};
use candlescope_models::weights::Form;
use std::path::PathBuf;

/// A line for each variant.
pub fn variant_lines(rows: &[VariantRow]) -> Vec<String> {
    rows.iter().map(line).collect()
}

fn line(row: &VariantRow) -> String {
    let title = row.variant.title();
    if let Some(why) = row.absent() {
        return format!("{title}: absent; {why}");
    }
    let median = row.summary.host_ns().map(|d| d.median);
    let faster = row.over_no_cache.as_ref().map_or(String::new(), |s| format!(", {}", times(s)));
    let closed = row.closed.as_ref();
    let size = closed.and_then(|closed| closed.weight_bytes).map_or(String::new(), |b| format!(", {}", shown(b)));
    let quality = closed.and_then(|closed| closed.quality.as_ref()).map_or(String::new(), |quality| {
        format!(", KL {}, same top {}", scientific(quality.kl.mean), percent(quality.same_top))
    });
    format!("{title}: {}{faster}{size}{quality}", ms(median))
}

fn times(speedup: &Speedup) -> String {
    let word = match speedup.interval_of {
        IntervalOf::Processes => "",
        IntervalOf::OneProcess => " in this process",
    };
    match (speedup.ci95, speedup.range) {
        (Some((low, high)), _) => format!("{:.2}x [{low:.2} to {high:.2}{word}]", speedup.ratio),
        (None, Some((low, high))) => format!("{:.2}x (range {low:.2} to {high:.2})", speedup.ratio),
        // The base itself, or one sample of each.
        (None, None) if (speedup.ratio - 1.0).abs() < f64::EPSILON => "1.00x".to_string(),
        (None, None) => format!("{:.2}x (one sample of each, so not clear)", speedup.ratio),
    }
}

fn plus_minus(estimate: Estimate, digits: usize) -> String {
    match estimate.error {
        Some(error) => format!("{:.digits$} ± {error:.digits$}", estimate.value),
        None => format!("{:.digits$}", estimate.value),
    }
}

fn percent(estimate: Estimate) -> String {
    let scaled = Estimate { value: estimate.value * 100.0, error: estimate.error.map(|error| error * 100.0) };
    format!("{} %", plus_minus(scaled, 1))
}

/// The report.
pub(super) fn document(
    manifest: &Manifest,
    options: &VariantOptions,
    rows: &[VariantRow],
    closing: Option<&VariantsSummary>,
    recorded: Section,
    traces: &[PathBuf],
    chart: Option<Picture>,
) -> Document {
    let fact = |map: &serde_json::Map<String, serde_json::Value>, key: &str| {
        map.get(key).map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_string))
    };
    let model = fact(&manifest.model, model_key::NAME.name()).unwrap_or_else(|| options.model.clone());
    let stored = fact(&manifest.model, model_key::STORED_AS.name()).filter(|stored| stored != "null");
    let asked = format!(
        "{model} on `{}`: {} tokens of prompt, {} tokens generated one by one, batch 1.{}",
        options.device,
        options.prompt_tokens,
        options.output_tokens,
        stored.map_or(String::new(), |stored| format!(
            " The model is stored as {stored}; its base here is those weights widened to f32."
        ))
    );
    let missing = rows.iter().filter_map(|row| Some(format!("{}: {}", row.variant.title(), row.absent()?)));
    let of_traces = "Open them at ui.perfetto.dev or chrome://tracing: each layer of each step.";
    let traces = traces.iter().map(|trace| code(&trace.display().to_string())).collect();
    let mut sections = vec![latency(rows, manifest, chart)];
    if let Some(closing) = closing {
        sections.extend([quality(rows, closing, options), layers(rows, closing)]);
    }
    sections.extend([
        recorded,
        Section::new("absent", "Absent", "").list(missing.collect()),
        Section::new("traces", "Traces", of_traces).list(traces),
        method(manifest, vec![in_turn(manifest, closing)], &manifest.disturbances),
    ]);
    Document { title: manifest.study.clone(), before: vec![asked], sections, ..Document::default() }
}

fn latency(rows: &[VariantRow], manifest: &Manifest, chart: Option<Picture>) -> Section {
    let there = || rows.iter().filter(|row| row.absent().is_none());
    let cells = |row: &VariantRow| {
        let median = |name: &str| ms(row.summary.figure(name).map(|d| d.median));
        let closed = row.closed.as_ref();
        let bytes = |of: fn(&VariantFacts) -> Option<u64>| closed.and_then(of).map_or("–".to_string(), shown);
        let over = |speedup: &Option<Speedup>| speedup.as_ref().map_or("–".to_string(), times);
        let energy = closed.and_then(|closed| closed.energy_mj);
        vec![
            row.variant.title().to_string(),
            ms(row.summary.host_ns().map(|d| d.median)),
            median("ttft_ns"),
            median("tpot_ns"),
            over(&row.over_no_cache),
            over(&row.over_kv_cache),
            bytes(|closed| closed.weight_bytes),
            bytes(|closed| closed.disk_bytes),
            energy.map_or("–".to_string(), |mj| format!("{:.2} J", mj / 1e3)),
        ]
    };
    let heads = [
        "variant",
        "latency",
        "to first token",
        "each further",
        "over no cache",
        "over f32 with cache",
        "weights in memory",
        "file",
        "energy",
    ];
    let brackets = match manifest.method.processes {
        0 | 1 => {
            "Brackets hold the 95 % interval over the samples of one process start, which says nothing about another"
        }
        _ => "Brackets hold the 95 % interval over process starts, in each of which all variants were measured",
    };
    let note = format!(
        "Medians, measured. {brackets}; a range is the smallest and the largest ratio, where there are too few for an \
         interval. Sizes of weights are derived from types and shapes. See `charts/final_comparison.svg`."
    );
    let mut said: Vec<String> = there()
        .filter_map(|row| {
            Some(format!("{} is run by {}.", row.variant.title(), row.closed.as_ref()?.runs_on.as_ref()?))
        })
        .collect();
    said.extend(threads_that_wait(rows, manifest).map(str::to_string));
    if there().any(|row| matches!(row.variant, Variant::F16 | Variant::Bf16)) && fact_is_cpu(manifest) {
        said.push(
            "16-bit floats are for devices that compute with them: on a CPU, candle widens them for most operations, so that \
             they save memory and rarely time."
                .to_string(),
        );
    }
    Section::new("speed", "Speed and size", note)
        .picture(chart)
        .with(Table::of_texts(&heads, there().map(cells).collect()))
        .list(said)
}

/// Why quantised variants may be slow in this study, where they may be.
fn threads_that_wait(rows: &[VariantRow], manifest: &Manifest) -> Option<&'static str> {
    let quantised = |row: &VariantRow| matches!(row.variant.form(), Form::Quantized(_)) && row.absent().is_none();
    // A single thread waits for no other.
    let threads = option_key::THREADS.of(&manifest.options);
    let shared = fact_is_cpu(manifest) && threads != Some(1) && !manifest.disturbances.is_empty();
    (shared && rows.iter().any(quantised)).then_some(
        "Other programs used this machine meanwhile, which slows quantised variants down more than others: candle gives \
         each of its threads a part of every quantised product and waits for all of them, so that one that has to wait \
         for its core holds up the others. `--threads 1` measures without that.",
    )
}

fn fact_is_cpu(manifest: &Manifest) -> bool {
    option_key::DEVICE.of(&manifest.options) == Some("cpu")
}

fn quality(rows: &[VariantRow], closing: &VariantsSummary, options: &VariantOptions) -> Section {
    if let Some(why) = &closing.no_quality {
        return Section::new("quality", "Quality", "").with(Block::Text(format!("Not measured: {why}.")));
    }
    let some = |value: Option<f64>| value.map_or("–".to_string(), number);
    let cells = |row: &VariantRow| {
        let closed = row.closed.as_ref()?;
        let q = closed.quality.as_ref()?;
        let first = closed.first_token.as_ref().map_or("–".to_string(), |first| {
            format!(
                "{} of {} prompts differ; {} tokens the same",
                first.first.iter().flatten().count(),
                first.first.len(),
                plus_minus(first.same_mean, 1)
            )
        });
        Some(vec![
            row.variant.title().to_string(),
            scientific(q.kl.mean),
            number(q.kl.median),
            some(q.kl.p99),
            some(q.kl.p99_9),
            number(q.kl.max),
            percent(q.same_top),
            plus_minus(q.perplexity_ratio, 4),
            percent(q.delta_p_rms),
            first,
        ])
    };
    let heads = [
        "variant",
        "KL mean",
        "median",
        "99 %",
        "99.9 %",
        "max",
        "same top token",
        "perplexity ratio",
        "Δp RMS",
        "first other token",
    ];
    let positions = rows.iter().find_map(|row| Some(row.closed.as_ref()?.quality.as_ref()?.positions)).unwrap_or(0);
    let base = rows.iter().find_map(|row| Some(row.closed.as_ref()?.quality.as_ref()?.base_perplexity));
    let random = match closing.random_weights {
        true => "The weights are random: these figures show that the measurement works, and nothing about a model. ",
        false => "",
    };
    let note = format!(
        "{random}Against f32 with KV cache (perplexity {}), on {} pieces of {} tokens of {}, of which the second halves are \
         scored: {positions} positions. Figures with ± have their standard error, with positions taken as independent. KL \
         divergence in nats, below zero by rounding only; definitions are those of llama.cpp's perplexity tool. First other \
         token: of the greedy continuation of the pieces' first {} tokens by {}.",
        base.map_or("–".to_string(), |base| plus_minus(base, 3)),
        closing.pieces,
        closing.chunk,
        code(&closing.text.as_deref().map_or(String::new(), |path| path.display().to_string())),
        options.prompt_tokens,
        options.output_tokens,
    );
    let without = rows.iter().filter(|row| row.absent().is_none() && !row.variant.is_base());
    let without = without.filter_map(|row| {
        let why = row.closed.as_ref()?.no_quality.as_ref()?;
        Some(format!("{}: no figures of quality, because {why}.", row.variant.title()))
    });
    Section::new("quality", "Quality", note)
        .with(Table::of_texts(&heads, rows.iter().filter_map(cells).collect()))
        .list(without.collect())
}

fn layers(rows: &[VariantRow], closing: &VariantsSummary) -> Section {
    let with =
        rows.iter().filter_map(|row| Some((row, row.closed.as_ref().filter(|closed| !closed.layers.is_empty())?)));
    let cells = with.map(|(row, closed)| {
        let last = closed.layers.len() - 1;
        let largest = closed.layers.iter().max_by(|a, b| a.relative.value.total_cmp(&b.relative.value));
        let at = |layer: usize| scientific(closed.layers[layer].relative);
        vec![
            row.variant.title().to_string(),
            closed.diverges_at.map_or("none".to_string(), |layer| layer.to_string()),
            at(0),
            at(last / 2),
            at(last),
            largest.map_or(String::new(), |l| format!("{} at {}", scientific(l.relative), l.layer)),
        ]
    });
    let first = format!("first layer above {:.0} %", DIVERGED * 100.0);
    let heads = ["variant", &first, "error after the first layer", "middle", "last", "largest"];
    let on = match closing.text {
        Some(_) => "the same text",
        None => "seeded random tokens, because there is no text",
    };
    let note = format!(
        "Error of a layer: ‖variant − f32‖ ÷ ‖f32‖ of the block's output over all positions of a piece, mean over {} pieces \
         of {on}. Layers count from 0.",
        closing.pieces
    );
    Section::new("layers", "Where it begins to differ", note).with(Table::of_texts(&heads, cells.collect()))
}

/// A number that may be very small.
fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 1e-3 || size == 0.0 => format!("{value:.4}"),
        _ => format!("{value:.1e}"),
    }
}

fn scientific(estimate: Estimate) -> String {
    match (estimate.value, estimate.error) {
        (value, Some(error)) if value.abs() < 1e-3 => format!("{} ± {error:.1e}", number(value)),
        (value, None) if value.abs() < 1e-3 => number(value),
        _ => plus_minus(estimate, 4),
    }
}

fn in_turn(manifest: &Manifest, closing: Option<&VariantsSummary>) -> String {
    let processes = manifest.method.processes;
    let energy = closing.map_or(String::new(), |closing| format!(" Energy: {}.", closing.energy));
    format!(
        "All variants were made of the same weights and repeated in turn, in random order, in each of {processes} process \
         start{}. Warm-up is in no figure.{energy} Every sample is in `results.parquet`; what is not known is absent, never \
         zero.",
        if processes == 1 { "" } else { "s" }
    )
}
