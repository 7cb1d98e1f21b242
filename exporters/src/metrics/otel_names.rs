//! Converts Prometheus' names to OpenTelemetry's, in which units and kinds are not part of the name. Pure.
//!
//! OpenTelemetry collectors translate them back to the names of the catalogue, so dashboards and rules work whichever
//! way metrics come.

use candlescope_core::metric;

/// Suffixes of names that are units, with the unit in UCUM.
const UNITS: &[(&str, &str)] = &[
    ("_bytes_per_second", "By/s"),
    ("_seconds", "s"),
    ("_bytes", "By"),
    ("_ratio", "1"),
    ("_hertz", "Hz"),
    ("_watts", "W"),
    ("_joules", "J"),
    ("_celsius", "Cel"),
];

/// What is counted, for metrics without a unit: UCUM annotations, which names do not contain.
const COUNTED: &[(&str, &str)] = &[
    ("tokens", "{token}"),
    ("requests", "{request}"),
    ("records", "{record}"),
    ("intervals", "{interval}"),
    ("steps", "{step}"),
    ("kernels", "{kernel}"),
    ("paths", "{path}"),
    ("flops", "{flop}"),
];

/// Namespaces, the longer first.
const NAMESPACES: &[&str] =
    &["gen_ai.server.", "hw.gpu.memory.", "hw.gpu.", "hw.", "candlescope.gpu.", "candlescope.", "process.", "system."];

/// Names to which the rules do not apply: those of the GenAI conventions, and those that would be empty without their
/// unit.
const OTHERS: &[(&str, &str)] = &[
    ("gen_ai_server_request_duration_seconds", "gen_ai.server.request.duration"),
    ("candlescope_span_duration_seconds", "candlescope.span.duration"),
    ("candlescope_phase_seconds_total", "candlescope.phase.seconds"),
    ("candlescope_kernel_seconds_total", "candlescope.kernel.seconds"),
    ("candlescope_moved_bytes_total", "candlescope.moved_bytes"),
    (metric::CPU_SECONDS, "process.cpu.seconds"),
    (metric::CPU_RATIO, "process.cpu.ratio"),
];

/// Name and unit of the metric that Prometheus knows as `name`.
pub(crate) fn otel_name(name: &str) -> (String, &'static str) {
    let bare = name.strip_suffix("_total").unwrap_or(name);
    let (bare, unit) =
        UNITS.iter().find_map(|(end, unit)| Some((bare.strip_suffix(end)?, *unit))).unwrap_or_else(|| {
            let counted = COUNTED.iter().find(|(word, _)| bare.split('_').any(|part| part == *word));
            match counted {
                Some(("tokens", _)) if bare.ends_with("_per_second") => (bare, "{token}/s"),
                Some((_, unit)) => (bare, *unit),
                None => (bare, ""),
            }
        });
    if let Some((_, other)) = OTHERS.iter().find(|(known, _)| *known == name) {
        return (other.to_string(), unit);
    }
    let dotted = NAMESPACES.iter().find_map(|space| {
        let rest = bare.strip_prefix(&space.replace('.', "_"))?;
        (!rest.is_empty()).then(|| format!("{space}{rest}"))
    });
    (dotted.unwrap_or_else(|| bare.to_string()), unit)
}

/// The attribute that Prometheus knows as `label`.
pub(crate) fn attribute(label: &str) -> &str {
    match label {
        "gen_ai_request_model" => "gen_ai.request.model",
        "hw_id" => "hw.id",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::{Kind, METRICS, SAMPLES};
    use std::collections::BTreeSet;

    /// The name that an OpenTelemetry collector makes of this, as `pkg/translator/prometheus` of the OpenTelemetry
    /// Collector does.
    fn translated(name: &str, unit: &str, kind: Kind) -> String {
        let mut words: Vec<String> =
            name.split(|c: char| !c.is_ascii_alphanumeric()).map(str::to_string).filter(|w| !w.is_empty()).collect();
        let (main, per) = unit.split_once('/').unwrap_or((unit, ""));
        let word = match main {
            "s" => "seconds",
            "By" => "bytes",
            "Hz" => "hertz",
            "W" => "watts",
            "J" => "joules",
            "Cel" => "celsius",
            _ => "",
        };
        if !word.is_empty() && !words.iter().any(|w| w == word) {
            words.push(word.into());
        }
        if per == "s" && !words.iter().any(|w| w == "second") {
            words.extend(["per".into(), "second".into()]);
        }
        let mut last = |word: &str| {
            words.retain(|w| w != word);
            words.push(word.into());
        };
        if kind == Kind::Counter {
            last("total");
        }
        if kind == Kind::Gauge && unit == "1" {
            last("ratio");
        }
        words.join("_")
    }

    #[test]
    fn a_collector_translates_every_name_back() {
        let mut names = BTreeSet::new();
        for metric in METRICS.iter().chain(SAMPLES) {
            let (name, unit) = otel_name(metric.name);
            assert_eq!(translated(&name, unit, metric.kind), metric.name, "{name} in `{unit}`");
            assert!(names.insert(name.clone()), "{name} is two metrics");
        }
    }

    #[test]
    fn names_are_those_of_the_conventions_where_there_are_any() {
        for (prometheus, name, unit) in [
            ("gen_ai_server_time_to_first_token_seconds", "gen_ai.server.time_to_first_token", "s"),
            ("gen_ai_server_time_per_output_token_seconds", "gen_ai.server.time_per_output_token", "s"),
            ("gen_ai_server_request_duration_seconds", "gen_ai.server.request.duration", "s"),
            ("hw_gpu_utilization_ratio", "hw.gpu.utilization", "1"),
            ("hw_gpu_memory_usage_bytes", "hw.gpu.memory.usage", "By"),
            ("hw_energy_joules_total", "hw.energy", "J"),
            ("hw_temperature_celsius", "hw.temperature", "Cel"),
            ("candlescope_tokens_total", "candlescope.tokens", "{token}"),
            ("candlescope_tokens_per_second", "candlescope.tokens_per_second", "{token}/s"),
            ("candlescope_gpu_pcie_throughput_bytes_per_second", "candlescope.gpu.pcie_throughput", "By/s"),
            ("of_somebody_else_seconds_total", "of_somebody_else", "s"),
        ] {
            assert_eq!(otel_name(prometheus), (name.to_string(), unit));
        }
    }
}
