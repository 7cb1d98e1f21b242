//! What is asked of Prometheus. Pure.

use crate::metric_names::{COUNT, ITL, REQUEST, RUN, SPAN, SUM, TOKEN_RATE, TOKENS, TPOT, TTFT};
use candlescope_core::metric::GPU_ENERGY;

/// Label that tells figures of one answer apart.
pub(super) const FIGURE: &str = "figure";
/// Names of figures that decide, as comparisons have them.
pub(super) const FIGURES: [&str; 5] = ["ttft_ns", "tpot_ns", "itl_ns", "working_tps", "energy_per_token_j"];
/// Names of what is asked of the server.
pub(super) const TRAFFIC: [&str; 3] = ["requests_per_s", "prompt_tokens", "output_tokens"];

/// Matchers in braces, with some more.
pub(super) fn braces(select: &str, more: &str) -> String {
    let both: Vec<&str> =
        [select.trim().trim_end_matches(','), more].into_iter().filter(|part| !part.is_empty()).collect();
    format!("{{{}}}", both.join(","))
}

/// The programs that matchers choose, as messages name them.
pub(super) fn programs(select: &str) -> String {
    match braces(select, "") {
        all if all == "{}" => "candlescope programs".to_string(),
        matchers => matchers,
    }
}

/// Every figure over the `every` seconds before each point, told apart by [`FIGURE`].
pub(super) fn figures(select: &str, every: i64) -> String {
    let rate = |metric: &str, more: &str| format!("sum(rate({metric}{}[{every}s]))", braces(select, more));
    let over = |top: String, bottom: String| format!("{top} / ({bottom} > 0)");
    let mean_ns = |metric: &str| {
        over(format!("1e9 * {}", rate(&format!("{metric}{SUM}"), "")), rate(&format!("{metric}{COUNT}"), ""))
    };
    // Every process that samples a GPU counts all of its energy.
    let energy = || format!("sum(max by (hw_id) (rate({GPU_ENERGY}{}[{every}s])))", braces(select, ""));
    let requests = || rate(&format!("{REQUEST}{COUNT}"), "");
    let tokens = |kind: &str| rate(TOKENS, &format!("type=\"{kind}\""));
    let of = |name: &str| match name {
        "ttft_ns" => mean_ns(TTFT),
        "tpot_ns" => mean_ns(TPOT),
        "itl_ns" => mean_ns(ITL),
        "working_tps" => format!("avg(avg_over_time({TOKEN_RATE}{}[{every}s]))", braces(select, "phase=\"decode\"")),
        "energy_per_token_j" => over(energy(), tokens("output")),
        "prompt_tokens" => over(tokens("input"), requests()),
        "output_tokens" => over(tokens("output"), requests()),
        _ => requests(),
    };
    let named = |name: &&str| format!("label_replace({}, \"{FIGURE}\", \"{name}\", \"\", \"\")", of(name));
    FIGURES.iter().chain(&TRAFFIC).map(named).collect::<Vec<_>>().join(" or ")
}

/// The share of each path in its step on the host, over the `length` seconds before.
pub(super) fn layers(select: &str, length: i64) -> String {
    let time = |more: &str| {
        let labels = braces(select, &format!("clock=\"host\"{more}"));
        let time = format!("sum by (path) (increase({SPAN}{SUM}{labels}[{length}s]))");
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
    use crate::metric_names::{MEANS, WANTED};
    use candlescope_exporters::prometheus::{Kind, METRICS, SAMPLES};

    #[test]
    fn matchers_are_joined() {
        assert_eq!(braces("", ""), "{}");
        assert_eq!((programs(" "), programs("job=\"a\"")), ("candlescope programs".into(), "{job=\"a\"}".into()));
        assert_eq!(braces(" job=\"a\", ", "type=\"input\""), "{job=\"a\",type=\"input\"}");
        assert!(figures("job=\"a\"", 60).contains("candlescope_tokens_total{job=\"a\",type=\"output\"}[60s]"));
    }

    #[test]
    fn energy_of_a_gpu_is_counted_once_however_many_processes_sample_it() {
        let asked = figures("job=\"a\"", 60);
        let energy =
            "sum(max by (hw_id) (rate(hw_energy_joules_total{job=\"a\"}[60s]))) / (sum(rate(candlescope_tokens";
        assert!(asked.contains(energy), "{asked}");
    }

    /// A query for a metric that nothing writes is empty for ever, and such a metric is never read.
    #[test]
    fn every_metric_is_one_that_is_exported() {
        let exported: Vec<String> = METRICS
            .iter()
            .chain(SAMPLES)
            .flat_map(|metric| match metric.kind {
                Kind::Histogram => [SUM, COUNT].map(|end| format!("{}{end}", metric.name)).to_vec(),
                _ => vec![metric.name.to_string()],
            })
            .collect();
        let queries = [figures("", 60), layers("", 60), starts("", 60), runs("")];
        let asked = queries.iter().flat_map(|query| query.split(|c: char| !c.is_ascii_alphanumeric() && c != '_'));
        // A label has the beginning of a metric.
        let is_ours = |name: &&str| {
            *name != "hw_id" && ["candlescope_", "hw_", "gen_ai_"].iter().any(|start| name.starts_with(start))
        };
        let asked: Vec<&str> = asked.filter(is_ours).collect();
        assert!(asked.len() > 15, "{asked:?}");
        let sums = MEANS.map(|name| [SUM, COUNT].map(|end| format!("{name}{end}"))).concat();
        for name in asked.into_iter().chain(WANTED).chain(sums.iter().map(String::as_str)) {
            assert!(exported.iter().any(|known| known == name), "{name}");
        }
    }
}
