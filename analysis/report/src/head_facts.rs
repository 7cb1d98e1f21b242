//! The head of every report: which model, which machine. Keys are those that the collectors, the session and the
//! instrumented models write; what is missing is left out.

use super::format::{bytes, count, duration, json, percent, plural, printable, significant};
use candlescope_figures::recording_overhead::{Background, cores};
use candlescope_schema::run::keys::Key;
use candlescope_schema::run::{BudgetKept, RunManifest, env_key, model_key};
use serde_json::Value;
use std::collections::BTreeMap;

type Map = BTreeMap<String, Value>;

/// A fact as a text.
fn text<T: ?Sized>(map: &Map, key: Key<T>) -> Option<String> {
    also(map, key.name())
}

/// The same under a name that other programs give it.
fn also(map: &Map, key: &str) -> Option<String> {
    map.get(key).filter(|value| !value.is_null()).map(|value| printable(&json(value)))
}

/// The model's name, if the run has it.
pub(super) fn model_name(manifest: &RunManifest) -> Option<String> {
    text(&manifest.model, model_key::NAME)
}

/// The model without its name: architecture, element types, size.
pub(super) fn model(manifest: &RunManifest) -> Vec<String> {
    let map = &manifest.model;
    let mut facts = Vec::new();
    facts.extend(text(map, model_key::ARCHITECTURE));
    let (weights, activations) = (text(map, model_key::QUANTIZATION), text(map, model_key::DTYPE));
    match (weights, activations) {
        (Some(weights), Some(activations)) if weights != activations => {
            facts.push(format!("{weights} weights, {activations} activations"));
        }
        (weights, activations) => facts.extend(weights.or(activations)),
    }
    if let Some(n) = model_key::PARAMETERS.of(map) {
        facts.push(format!("{} M parameters", significant(n as f64 / 1e6)));
    }
    if let Some(n) = model_key::WEIGHT_BYTES.of(map) {
        facts.push(format!("{} of weights", bytes(n as f64)));
    }
    facts.extend(text(map, model_key::ENGINE).map(|engine| format!("{engine} engine")));
    facts
}

/// The machine: processor, memory, GPU, system.
pub(super) fn machine(manifest: &RunManifest) -> Vec<String> {
    let map = &manifest.environment;
    let mut facts = Vec::new();
    facts.extend(processor(manifest));
    facts.extend(cores(manifest).map(|n| plural(n, "core")));
    if let Some(n) = env_key::MEMORY_TOTAL.of(map) {
        facts.push(format!("{} memory", bytes(n)));
    }
    facts.extend(gpu_names(manifest));
    let system: Vec<String> = [text(map, env_key::OS), text(map, env_key::KERNEL)].into_iter().flatten().collect();
    if !system.is_empty() {
        facts.push(system.join(" "));
    }
    facts.extend(
        also(map, "candle_version").or_else(|| text(map, env_key::CANDLE)).map(|version| format!("candle {version}")),
    );
    let threads = env_key::COMPUTE_THREADS.of(map);
    facts.extend(threads.map(|n| format!("{} to compute", plural(n, "thread"))));
    // Of a manifest that was never begun nothing is said.
    facts.extend((manifest.started_ns > 0).then(|| others(manifest)));
    facts
}

/// Whether others used the processors while the run's steps ran.
fn others(manifest: &RunManifest) -> String {
    let machine = manifest.machine.unwrap_or_default();
    match (machine.others_cores(), machine.processors, machine.overload()) {
        (Some(others), Some(processors), _) => {
            format!("others used {others:.1} of {processors:.0} processors meanwhile")
        }
        (_, Some(processors), Some(load)) => {
            format!("load {load:.1} on {processors:.0} processors, too short to tell what others took")
        }
        _ if machine.others_s.is_some() => "others: too short to tell".to_string(),
        _ => "others: not sampled".to_string(),
    }
}

/// The processor's name.
pub(super) fn processor(manifest: &RunManifest) -> Option<String> {
    text(&manifest.environment, env_key::CPU_MODEL).or_else(|| also(&manifest.environment, "cpu"))
}

/// The GPUs' names.
pub(super) fn gpu_names(manifest: &RunManifest) -> Option<String> {
    let map = &manifest.environment;
    gpus(manifest.gpus()).or_else(|| also(map, "gpu_name")).or_else(|| also(map, "gpu"))
}

/// Names of the GPUs that were sampled, with a count for equal names.
fn gpus(gpus: &[Value]) -> Option<String> {
    let names = gpus.iter().filter_map(|gpu| gpu.get("name")?.as_str());
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    names.for_each(|name| *counts.entry(name).or_default() += 1);
    let texts = counts.into_iter().map(|(name, n)| {
        let name = printable(name);
        if n > 1 { format!("{n} × {name}") } else { name }
    });
    let text = texts.collect::<Vec<_>>().join(", ");
    (!text.is_empty()).then_some(text)
}

/// What recording took from the application's threads: its share of step time and the source of that figure.
pub(super) fn overhead(manifest: &RunManifest) -> Option<String> {
    if let Some(in_place) = manifest.overhead.in_place.as_ref().filter(|in_place| in_place.n_plain > 0) {
        let interval = match in_place.low.zip(in_place.high) {
            Some((low, high)) => format!("95 %: {} – {}", percent(low), percent(high)),
            None => "too few steps for an interval".to_string(),
        };
        return Some(format!(
            "{} of step time, {interval} (measured in place, alternating steps: {} recorded against {} plain){}",
            percent(in_place.ratio),
            count(in_place.n_recorded),
            count(in_place.n_plain),
            manifest.overhead.budget.as_ref().map(budget).unwrap_or_default()
        ));
    }
    let overhead = &manifest.overhead;
    let budgeted = overhead.budget.as_ref().map(budget).unwrap_or_default();
    let each = duration(overhead.per_interval_ns);
    match overhead.ratio {
        Some(ratio) => Some(format!(
            "{} of step time (estimate: registry and layer in a warm loop, {each} an interval, × {} intervals; in place it is two to three times that, and up to nine beside other programs){budgeted}",
            percent(ratio),
            count(manifest.loss.emitted)
        )),
        None if overhead.per_interval_ns > 0.0 => Some(format!(
            "{each} an interval (estimate: registry and layer in a warm loop; in place it is two to three times that, and up to nine beside other programs){budgeted}"
        )),
        None => None,
    }
}

/// What became of a budget, after the cost of a recorded step.
fn budget(kept: &BudgetKept) -> String {
    let interval = kept.low.zip(kept.high).map(|(low, high)| format!(", 95 %: {} – {}", percent(low), percent(high)));
    let taken = kept.ratio.map_or("not measured".to_string(), percent);
    let held = match kept.held {
        Some(true) => "held",
        Some(false) => "exceeded",
        None => "neither shown to be held nor exceeded",
    };
    format!(
        "; budget {} of all steps' time, {held}: {taken}{}, with {} of the steps recorded",
        percent(kept.target),
        interval.unwrap_or_default(),
        percent(kept.kept)
    )
}

/// The CPU time of candlescope's own threads.
pub(super) fn background(manifest: &RunManifest) -> Option<String> {
    let background = Background::of(manifest)?;
    let share = background.share().zip(background.whole).map(|(share, whole)| {
        let whole_time = duration(whole.wall_ns as f64);
        format!(", {} of {whole_time} × {}", percent(share), plural(whole.cores, "core"))
    });
    let cpu = duration(background.cpu_ns as f64);
    Some(format!("{cpu} CPU time of the background threads (measured){}", share.unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use candlescope_schema::run::InPlaceOverhead;
    use serde_json::json;

    #[test]
    fn overhead_says_which_estimate_it_is() {
        let mut manifest = RunManifest::default();
        assert_eq!(overhead(&manifest), None);
        manifest.overhead.per_interval_ns = 59.0;
        assert!(overhead(&manifest).is_some_and(|text| text.contains("ns an interval (estimate: ")));
        let measured = InPlaceOverhead { n_plain: 40, n_recorded: 41, ratio: 0.021, ..InPlaceOverhead::default() };
        manifest.overhead.in_place = Some(measured.clone());
        let text = overhead(&manifest).unwrap();
        assert!(text.starts_with("2.1 % of step time, too few steps for an interval (measured in place"), "{text}");
        manifest.overhead.in_place = Some(InPlaceOverhead { low: Some(0.01), high: Some(0.05), ..measured });
        assert!(
            overhead(&manifest)
                .is_some_and(|text| text.contains("95 %: 1.0 % – 5.0 % (") && text.contains("41 recorded"))
        );
    }

    #[test]
    fn only_what_is_known_is_said() {
        let mut manifest = RunManifest::default();
        assert!(model(&manifest).is_empty() && machine(&manifest).is_empty() && model_name(&manifest).is_none());
        let put = |map: &mut Map, key: &str, value: Value| map.insert(key.to_string(), value);
        put(&mut manifest.model, "quantization", json!("q4_1"));
        put(&mut manifest.model, "dtype", json!("f32"));
        put(&mut manifest.model, "parameters", json!(134_515_008));
        put(&mut manifest.environment, "cpu_cores", json!(1));
        put(&mut manifest.environment, "os", json!("linux"));
        assert_eq!(model(&manifest), ["q4_1 weights, f32 activations", "135 M parameters"]);
        assert_eq!(machine(&manifest), ["1 core", "linux"]);
    }
}
