//! What each dashboard must have.

use super::dashboards::{FLEET, all, read};

/// The contents of each dashboard: kinds of panels, and a part of a query in one of them.
const CONTENTS: &[(&str, &[(&str, &str)])] = &[
    (
        "llm-inference",
        &[
            ("timeseries", "(rate(gen_ai_server_request_duration_seconds_count{"),
            ("timeseries", "(candlescope_requests_active{"),
            ("timeseries", "sum by (outcome) (rate(candlescope_requests_total{"),
            ("timeseries", "histogram_quantile(0.99, sum by (le) (rate(candlescope_request_queue_time_seconds_bucket{"),
            (
                "timeseries",
                "histogram_quantile(0.5, sum by (le) (rate(gen_ai_server_time_to_first_token_seconds_bucket{",
            ),
            (
                "timeseries",
                "histogram_quantile(0.9, sum by (le) (rate(gen_ai_server_time_to_first_token_seconds_bucket{",
            ),
            (
                "timeseries",
                "histogram_quantile(0.99, sum by (le) (rate(gen_ai_server_time_to_first_token_seconds_bucket{",
            ),
            (
                "timeseries",
                "histogram_quantile(0.99, sum by (le) (rate(gen_ai_server_time_per_output_token_seconds_bucket{",
            ),
            (
                "timeseries",
                "histogram_quantile(0.99, sum by (le) (rate(candlescope_inter_token_latency_seconds_bucket{",
            ),
            ("timeseries", "histogram_quantile(0.99, sum by (le) (rate(gen_ai_server_request_duration_seconds_bucket{"),
            ("heatmap", "sum by (le) (increase(gen_ai_server_time_to_first_token_seconds_bucket{"),
            ("heatmap", "sum by (le) (increase(gen_ai_server_time_per_output_token_seconds_bucket{"),
            ("heatmap", "sum by (le) (increase(candlescope_inter_token_latency_seconds_bucket{"),
            ("timeseries", "sum by (phase) (rate(candlescope_step_tokens_total{"),
            ("timeseries", "sum by (phase, clock) (rate(candlescope_phase_seconds_total{"),
            ("timeseries", "(candlescope_tokens_in_flight{"),
            ("timeseries", "by (phase, peak) (candlescope_mfu_ratio{"),
            ("timeseries", "by (phase, peak) (candlescope_mbu_ratio{"),
            ("timeseries", "sum by (phase) (candlescope_tokens_per_second{"),
            ("timeseries", "avg by (phase) (candlescope_step_concurrency{"),
            ("timeseries", "sum by (outcome) (rate(candlescope_steps_begun_total{"),
            ("timeseries", "sum by (phase, ran) (rate(candlescope_step_runs_total{"),
            ("timeseries", "sum by (instance, phase, source) (rate(candlescope_gpu_steps_total{"),
        ],
    ),
    (
        "gpu",
        &[
            ("timeseries", "(hw_power_watts{"),
            ("timeseries", "sum by (instance) (rate(hw_energy_joules_total{"),
            ("timeseries", "sum by (instance, of) (rate(candlescope_energy_joules_total{"),
            ("timeseries", "(hw_gpu_memory_usage_bytes{"),
            ("timeseries", "(hw_gpu_memory_limit_bytes{"),
            ("timeseries", "(candlescope_gpu_clock_hertz{"),
            ("state-timeline", "(candlescope_gpu_throttled{"),
            ("timeseries", "(hw_temperature_celsius{"),
            ("timeseries", "(hw_gpu_utilization_ratio{"),
            ("timeseries", "(candlescope_gpu_busy_ratio{"),
        ],
    ),
    (
        "layers",
        &[
            ("timeseries", "topk(15, sum by (path) (rate(candlescope_span_duration_seconds_sum{"),
            (
                "timeseries",
                "topk(15, sum by (path, source) (sum by (instance, path, source) (rate(candlescope_span_duration_seconds_sum{",
            ),
            ("table", "clock=\"host\""),
            ("table", "clock=\"gpu\""),
            ("timeseries", "candlescope_kernel_seconds_total{"),
        ],
    ),
    (
        "profiler-health",
        &[
            ("stat", "candlescope_intervals_total{"),
            ("timeseries", "sum by (exporter, outcome) (rate(candlescope_records_total{"),
            ("timeseries", "(candlescope_records_pending{"),
            ("stat", "(candlescope_overhead_ratio{"),
        ],
    ),
    (
        "deploy",
        &[
            ("state-timeline", "sum by (instance, run_id, version) (candlescope_run_info{"),
            ("table", "(increase(gen_ai_server_time_to_first_token_seconds_bucket{"),
            ("table", "(increase(candlescope_inter_token_latency_seconds_sum{"),
            ("table", "(increase(candlescope_tokens_total{"),
            ("stat", "(candlescope_tokens_per_second{"),
            ("stat", "(increase(hw_energy_joules_total{"),
            ("table", ",clock=\"host\"}[$__range] offset $__range)"),
            ("table", ",clock=\"gpu\"}[$__range] offset $__range)"),
            ("timeseries", "* on (job, instance) group_left (run_id) candlescope_run_info{"),
            ("stat", "(increase(candlescope_kernel_seconds_total{"),
            ("stat", "(hw_gpu_memory_usage_bytes{"),
        ],
    ),
    (
        FLEET,
        &[
            ("timeseries", "(candlescope_fleet_ttft_seconds{"),
            ("timeseries", "(candlescope_fleet_tpot_seconds{"),
            ("timeseries", "(candlescope_fleet_energy_joules_per_token{"),
            ("timeseries", "(candlescope_fleet_level_change_ratio{"),
        ],
    ),
];

/// Every dashboard has the contents that it must have.
pub(crate) fn check_contents() {
    assert!(CONTENTS.iter().map(|(name, _)| *name).eq(all()), "every dashboard is listed");
    for (name, contents) in CONTENTS {
        let dashboard = read(name);
        for (kind, part) in *contents {
            let panels = dashboard["panels"].as_array().expect("panels").iter().filter(|panel| panel["type"] == *kind);
            let mut targets = panels.flat_map(|panel| panel["targets"].as_array().expect("targets"));
            let has = targets.any(|target| target["expr"].as_str().is_some_and(|expr| expr.contains(part)));
            assert!(has, "{name} has no {kind} with {part}");
        }
    }
}
