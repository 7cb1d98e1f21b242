//! What is asked of Prometheus. Pure.

/// Label that tells figures of one answer apart.
pub(super) const FIGURE: &str = "figure";
/// Names of figures that decide, as comparisons have them.
pub(super) const FIGURES: [&str; 5] = ["ttft_ns", "tpot_ns", "itl_ns", "working_tps", "energy_per_token_j"];
/// Names of what is asked of the server.
pub(super) const TRAFFIC: [&str; 3] = ["requests_per_s", "prompt_tokens", "output_tokens"];

const TTFT: &str = "gen_ai_server_time_to_first_token_seconds";
const TPOT: &str = "gen_ai_server_time_per_output_token_seconds";
const ITL: &str = "candlescope_inter_token_latency_seconds";
const REQUESTS: &str = "gen_ai_server_request_duration_seconds_count";
const TOKENS: &str = "candlescope_tokens_total";
const ENERGY: &str = "hw_energy_joules_total";
const RATE: &str = "candlescope_tokens_per_second";
const SPAN: &str = "candlescope_span_duration_seconds";
const RUN: &str = "candlescope_run_info";

/// Matchers in braces, with some more.
pub(super) fn braces(select: &str, more: &str) -> String {
    let both: Vec<&str> =
        [select.trim().trim_end_matches(','), more].into_iter().filter(|part| !part.is_empty()).collect();
    format!("{{{}}}", both.join(","))
}

/// Every figure over the `every` seconds before each point, told apart by [`FIGURE`].
pub(super) fn figures(select: &str, every: i64) -> String {
    let rate = |metric: &str, more: &str| format!("sum(rate({metric}{}[{every}s]))", braces(select, more));
    let over = |top: String, bottom: String| format!("{top} / ({bottom} > 0)");
    let mean_ns = |metric: &str| {
        over(format!("1e9 * {}", rate(&format!("{metric}_sum"), "")), rate(&format!("{metric}_count"), ""))
    };
    let tokens = |kind: &str| rate(TOKENS, &format!("type=\"{kind}\""));
    let of = |name: &str| match name {
        "ttft_ns" => mean_ns(TTFT),
        "tpot_ns" => mean_ns(TPOT),
        "itl_ns" => mean_ns(ITL),
        "working_tps" => format!("avg(avg_over_time({RATE}{}[{every}s]))", braces(select, "phase=\"decode\"")),
        "energy_per_token_j" => over(rate(ENERGY, ""), tokens("output")),
        "prompt_tokens" => over(tokens("input"), rate(REQUESTS, "")),
        "output_tokens" => over(tokens("output"), rate(REQUESTS, "")),
        _ => rate(REQUESTS, ""),
    };
    let named = |name: &&str| format!("label_replace({}, \"{FIGURE}\", \"{name}\", \"\", \"\")", of(name));
    FIGURES.iter().chain(&TRAFFIC).map(named).collect::<Vec<_>>().join(" or ")
}

/// The share of each path in its step on the host, over the `length` seconds before.
pub(super) fn layers(select: &str, length: i64) -> String {
    let time = |more: &str| {
        let labels = braces(select, &format!("clock=\"host\"{more}"));
        let time = format!("sum by (path) (increase({SPAN}_sum{labels}[{length}s]))");
        format!("label_replace({time}, \"root\", \"$1\", \"path\", \"([^/]+).*\")")
    };
    // The root of a path is the interval of its step.
    let (paths, steps) = (time(""), time(",path=~\"[^/]+\""));
    format!("{paths} / on (root) group_left () ({steps} > 0)")
}

/// When each run was seen first in the `length` seconds before.
pub(super) fn starts(select: &str, length: i64) -> String {
    format!("min by (instance, run_id) (min_over_time(timestamp({RUN}{})[{length}s:1m]))", braces(select, ""))
}

/// Runs that are observed.
pub(super) fn runs(select: &str) -> String {
    format!("count({RUN}{})", braces(select, ""))
}

#[cfg(test)]
mod tests {
    use super::*;
    use candlescope_exporters::prometheus::{Kind, METRICS, SAMPLES};

    #[test]
    fn matchers_are_joined() {
        assert_eq!(braces("", ""), "{}");
        assert_eq!(braces(" job=\"a\", ", "type=\"input\""), "{job=\"a\",type=\"input\"}");
        assert!(figures("job=\"a\"", 60).contains("candlescope_tokens_total{job=\"a\",type=\"output\"}[60s]"));
    }

    /// A query for a metric that nothing writes is empty for ever.
    #[test]
    fn every_metric_is_one_that_is_exported() {
        let exported: Vec<String> = METRICS
            .iter()
            .chain(SAMPLES)
            .flat_map(|metric| match metric.kind {
                Kind::Histogram => ["_sum", "_count"].map(|end| format!("{}{end}", metric.name)).to_vec(),
                _ => vec![metric.name.to_string()],
            })
            .collect();
        let mut seen = 0;
        for query in [figures("", 60), layers("", 60), starts("", 60), runs("")] {
            for name in query.split(|c: char| !c.is_ascii_alphanumeric() && c != '_') {
                let ours = ["candlescope_", "hw_", "gen_ai_"].iter().any(|start| name.starts_with(start));
                assert!(!ours || exported.iter().any(|known| known == name), "{name}: {query}");
                seen += usize::from(ours);
            }
        }
        assert!(seen > 15, "{seen}");
    }
}
