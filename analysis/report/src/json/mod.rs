//! `metrics.json`: every figure under a stable key, for dashboards and for comparing runs.
//!
//! Times are nanoseconds, rates per second, work in FLOPs and bytes. Keys are added, never renamed, within one format
//! version.

mod gpu_sections;
mod host_figures;
mod spread;

pub use host_figures::host;

use super::headline_figures::{FigureValue, figures};
use candlescope_figures::definitions::{DEFINITIONS, STATISTICS};
use candlescope_figures::peaks::{of_operators, utilisation};
use candlescope_figures::{Analysis, Background, usd_per_million_output_tokens};
use candlescope_schema::run::RunManifest;
use serde_json::{Value, json};
use spread::{MOST_SAMPLES, spread};
use std::collections::BTreeMap;

/// Functions of the whole run, those with the most time in themselves.
const MOST_FUNCTIONS: usize = 500;

/// Version of this layout.
pub const FORMAT_VERSION: u32 = 1;

/// The whole of `metrics.json`.
pub fn metrics(analysis: &Analysis) -> Value {
    let manifest = &analysis.manifest;
    let mut figure_map = serde_json::Map::new();
    for figure in figures(analysis) {
        let d = figure.definition;
        let mut object = match figure.value {
            FigureValue::Spread(distribution) => spread(distribution, true),
            FigureValue::Single(value, n) => json!({ "value": value, "n": n }),
        };
        if let Value::Object(object) = &mut object {
            object.insert("unit".into(), d.unit.into());
            object.insert("label".into(), d.label.into());
            if let Some(remark) = figure.remark {
                object.insert("source".into(), remark.into());
            }
        }
        figure_map.insert(d.key.to_string(), object);
    }
    let mut whole = json!({
        "format": "candlescope-metrics",
        "format_version": FORMAT_VERSION,
        "schema_version": manifest.schema_version,
        "run": {
            "run_id": manifest.run_id,
            "host": manifest.host,
            "rank": manifest.rank,
            "started_ns": manifest.started_ns,
            "ended_ns": manifest.ended_ns,
            "complete": manifest.complete,
            "rows": analysis.rows,
            "file_bytes": analysis.file_bytes,
        },
        "verdict": analysis.verdict,
        "figures": figure_map,
        "requests": requests(analysis),
        "slow_requests": super::slow_requests::slow_json(analysis),
        "phases": phases(analysis),
        "operators": operators(analysis),
        "host": host(analysis.host.as_ref(), MOST_FUNCTIONS),
        "nsys": super::nsys_table::json(analysis),
        "tree": tree(analysis),
        "tokens": tokens(analysis),
        "utilisation": utilisation(analysis).iter().map(|u| json!({
            "phase": u.phase,
            "over": u.over.name(),
            "metric": u.metric.name().to_lowercase(),
            "devices": u.devices,
            "value": u.ratio,
            "relative_error_95": u.error,
            "peak": u.peak.value,
            "dtype": u.peak.dtype,
            "label": u.peak.label,
            "source": u.peak.source,
        })).collect::<Vec<_>>(),
        "warmup": warmup(analysis),
        "sampling": json!({
            "counts": analysis.sampling.counts,
            "share": analysis.sampling.share,
            "is_sampled": analysis.sampling.is_sampled(),
        }),
        "samples": samples(analysis),
        "cost": cost(analysis),
        "overhead": overhead(manifest),
        "loss": manifest.loss,
        "exporters": manifest.exporters,
        "clock": { "source": manifest.clock.source, "ticks_per_second": manifest.clock.ticks_per_second, "read_ns": manifest.clock.read_ns },
        "model": manifest.model,
        "environment": manifest.environment,
        "options": manifest.options,
        "results": manifest.results,
        "definitions": DEFINITIONS,
        "statistics": STATISTICS,
    });
    for (key, value) in gpu_sections::sections(analysis) {
        whole[key] = value;
    }
    if !analysis.sensitivity.is_empty() {
        whole["sensitivity"] = super::sensitivity::json(&analysis.sensitivity);
    }
    if let Some(diagnosis) = &analysis.diagnosis {
        whole["diagnosis"] = super::advice::json(diagnosis);
    }
    whole
}

/// `env.json`: the machine and the programs that a run was made with.
pub fn environment(manifest: &RunManifest) -> Value {
    json!({
        "format": "candlescope-env",
        "format_version": FORMAT_VERSION,
        "run_id": manifest.run_id,
        "host": manifest.host,
        "rank": manifest.rank,
        "started_ns": manifest.started_ns,
        "environment": manifest.environment,
        "gpus_used": manifest.gpu.as_ref().map(|gpu| &gpu.devices),
        "clock": { "source": manifest.clock.source, "ticks_per_second": manifest.clock.ticks_per_second },
    })
}

/// What tokens cost; null, with the reason, without a price.
fn cost(analysis: &Analysis) -> Value {
    let usd = usd_per_million_output_tokens(analysis);
    let absent = match (analysis.price, usd) {
        (None, _) => Some("no price per hour was given"),
        (Some(_), None) => Some("the output throughput is not known"),
        (Some(_), Some(_)) => None,
    };
    json!({
        "usd_per_hour": analysis.price.map(|price| price.usd_per_hour),
        "given_for_report": analysis.price.map(|price| price.given_for_report),
        "usd_per_million_output_tokens": usd,
        "label": "derived",
        "absent_because": absent,
    })
}

/// The session's account, and the share of the machine that its background threads took.
fn overhead(manifest: &RunManifest) -> Value {
    let mut value = json!(manifest.overhead);
    let background = Background::of(manifest);
    value["background_cpu_share"] = json!(background.and_then(|b| b.share()));
    value["wall_ns"] = json!(background.and_then(|b| b.whole).map(|whole| whole.wall_ns));
    value["cores"] = json!(background.and_then(|b| b.whole).map(|whole| whole.cores));
    value
}

fn requests(analysis: &Analysis) -> Value {
    let rows = analysis.latency.requests.iter().take(MOST_SAMPLES).map(|r| {
        let share = analysis.shares.of_request(r.request);
        json!({
            "request": r.request,
            "model": r.model,
            "warmup": r.warmup,
            "batch": r.batch,
            "prompt_tokens": r.prompt_tokens,
            "output_tokens": r.output_tokens,
            "queue_ns": r.queue_ns,
            "ttft_ns": r.ttft_ns,
            "e2e_ns": r.e2e_ns,
            "tpot_ns": r.tpot_ns,
            "prefill_tps": r.prefill_tokens_per_s,
            "decode_tps": r.decode_tokens_per_s,
            "dur_ns": r.dur_ns,
            "steps_ns": r.steps_ns,
            "step_share_ns": share.map(|share| share.step_ns),
            "device_share_ns": share.and_then(|share| share.device_ns),
            "joules": share.filter(|share| share.is_covered).and_then(|share| share.joules),
            "joules_low": share.and_then(|share| share.bound).map(|bound| bound.0),
            "joules_high": share.and_then(|share| share.bound).map(|bound| bound.1),
            "below_resolution": share.map(|share| share.below_resolution),
            "parts": super::slow_requests::parts_json(r.parts.as_ref()),
            "outcome": r.outcome.map(|outcome| outcome.as_str()),
        })
    });
    let outcomes = analysis.latency.outcomes.iter();
    let outcomes: BTreeMap<&str, usize> =
        outcomes.map(|(outcome, n)| (outcome.map_or("unstated", |outcome| outcome.as_str()), *n)).collect();
    json!({
        "n": analysis.latency.requests.len(),
        "warmup": analysis.latency.warmup,
        "outcomes": outcomes,
        "rows": rows.collect::<Vec<_>>(),
    })
}

/// The warm-up, listed apart: it is in no other figure.
fn warmup(analysis: &Analysis) -> Value {
    let warmup = &analysis.warmup;
    let rows = warmup.rows.iter().map(|row| {
        json!({
            "name": row.name,
            "steps": row.steps,
            "total_ns": row.total_ns,
            "duration_ns": row.duration.as_ref().map(|d| spread(d, false)),
        })
    });
    json!({
        "requests": warmup.requests().len(),
        "steps": warmup.steps(),
        "intervals": warmup.intervals,
        "kernels": warmup.kernels,
        "rows": rows.collect::<Vec<_>>(),
    })
}

fn phases(analysis: &Analysis) -> Value {
    let phases = &analysis.phases;
    let rows = phases.rows.iter().map(|row| {
        json!({
            "name": row.name,
            "is_phase": row.is_phase,
            "inside": row.inside,
            "steps": row.steps,
            "total_ns": row.total_ns,
            "share": row.share,
            "union_ns": row.union_ns,
            "steps_at_once": row.steps_at_once,
            "intervals": row.intervals,
            "tokens": row.tokens,
            "tokens_per_s": row.tokens_per_s,
            "rate_errors_95": row.rate_errors.map(|e| json!({
                "windows": e.windows,
                "tokens_per_s": e.tokens,
                "gflops": e.flops,
                "gflops_executed": e.flops_executed,
                "gbytes": e.bytes,
                "io_gbytes": e.io_bytes,
                "recorded_longer": e.longer.map(|longer| json!({
                    "pairs": longer.pairs,
                    "share": longer.share,
                    "low": longer.interval.0,
                    "high": longer.interval.1,
                })),
            })),
            "flops": row.work.flops,
            "flops_executed": row.work.flops_executed,
            "bytes": row.work.bytes,
            "io_bytes": row.work.io_bytes,
            "gflops": row.gflops,
            "gflops_executed": row.gflops_executed,
            "gbytes": row.gbytes,
            "io_gbytes": row.io_gbytes,
            "intensity": row.work.intensity(),
            "gpu_total_ns": row.gpu.map(|g| g.total_ns),
            "gpu_steps": row.gpu.map(|g| g.steps),
            "gpu_source": row.gpu.map(|g| g.source.as_str()),
            "duration_ns": row.duration.as_ref().map(|d| spread(d, false)),
        })
    });
    json!({
        "wall_ns": phases.wall_ns,
        "in_steps_ns": phases.in_steps_ns,
        "outside_ns": phases.outside_ns(),
        "rows": rows.collect::<Vec<_>>(),
    })
}

fn operators(analysis: &Analysis) -> Value {
    let rows = analysis.operators.iter().zip(of_operators(analysis)).map(|(o, used)| {
        let used = used.into_iter().filter(|used| used.mfu.is_some() || used.mbu.is_some());
        let mut row = json!({
            "path": o.path,
            "target": o.target,
            "calls": o.calls,
            "self_ns": o.self_ns,
            "total_ns": o.total_ns,
            "min_ns": o.min_ns,
            "max_ns": o.max_ns,
            "self_share": o.self_share,
            "total_share": o.total_share,
            "flops": o.work.flops,
            "flops_executed": o.work.flops_executed,
            "bytes": o.work.bytes,
            "io_bytes": o.work.io_bytes,
            "gflops": o.gflops,
            "gbytes": o.gbytes,
            "intensity": o.work.intensity(),
            "dtypes": o.dtypes,
            "utilisation": used.map(|used| json!({ "label": used.label, "mfu": used.mfu, "mbu": used.mbu }))
                .collect::<Vec<_>>(),
        });
        if let Value::Object(row) = &mut row {
            row.extend(gpu_sections::operator(o));
        }
        row
    });
    rows.collect()
}

fn tree(analysis: &Analysis) -> Value {
    let rows = analysis.tree.rows.iter().map(|row| {
        json!({
            "path": row.rollup,
            "group": row.path.is_none(),
            "label": row.label,
            "depth": row.depth,
            "parent": row.parent,
            "calls": row.calls,
            "total_ns": row.total_ns,
            "self_ns": row.self_ns,
            "share": row.share,
        })
    });
    json!({
        "total_ns": analysis.tree.total_ns,
        "unaccounted_ns": analysis.tree.unaccounted_ns(),
        "rows": rows.collect::<Vec<_>>(),
    })
}

fn tokens(analysis: &Analysis) -> Value {
    json!({
        "n": analysis.tokens.points.len(),
        "trend": analysis.tokens.trend.map(|t| json!({
            "n": t.n,
            "slope_ns_per_token": t.slope_ns,
            "slope_ci95_ns": t.slope_ci95_ns,
            "intercept_ns": t.intercept_ns,
            "context_min": t.context.0,
            "context_max": t.context.1,
            "label": "derived",
        })),
    })
}

fn samples(analysis: &Analysis) -> Value {
    let rows = analysis.memory.series.iter().map(|s| {
        json!({
            "device": s.device,
            "metric": s.metric,
            "unit": s.unit,
            "n": s.n,
            "min": s.min,
            "mean": s.mean,
            "max": s.max,
            "n_in_steps": s.in_steps.map_or(0, |within| within.n),
            "mean_in_steps": s.in_steps.map(|within| within.mean),
            "first": s.first,
            "last": s.last,
            "resolution_ns": s.period_ns,
            "label": "measured",
        })
    });
    rows.collect()
}
