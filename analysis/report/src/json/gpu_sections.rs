//! The GPU's part of `metrics.json`. Times are nanoseconds, energy joules; what is not known is null.

use super::spread::spread;
use candlescope_figures::busy::Busy;
use candlescope_figures::gaps::GapSum;
use candlescope_figures::gpu_of_steps::SourceTime;
use candlescope_figures::gpu_time::{GpuSums, source_name};
use candlescope_figures::sensor::{IdleFrom, Joules};
use candlescope_figures::{Analysis, Operator, Shares};
use serde_json::{Map, Value, json};

/// `gpu`, `kernels`, `energy` and `devices`; the first two null without GPU time and kernels, the last two without
/// samples.
pub(super) fn sections(analysis: &Analysis) -> [(&'static str, Value); 4] {
    [
        ("gpu", gpu(analysis)),
        ("kernels", kernels(analysis)),
        ("energy", energy(analysis)),
        ("devices", devices(analysis)),
    ]
}

/// The GPU part of an operator's row. `gpu_total_ns` and `gpu_self_ns` are sums over the measured intervals; values
/// ending in `_estimate_ns` are extrapolated to all intervals.
pub(super) fn operator(operator: &Operator) -> Map<String, Value> {
    let gpu = operator.gpu;
    let values = [
        ("gpu_calls", json!(gpu.map_or(0, |g| g.measured))),
        ("gpu_total_ns", json!(gpu.map(|g| g.measured_ns))),
        ("gpu_self_ns", json!(gpu.filter(|g| g.self_measured > 0).map(|g| g.self_measured_ns))),
        ("gpu_source", json!(gpu.map(|g| g.source.as_str()))),
        ("gpu_mean_ns", json!(gpu.map(|g| g.mean_ns))),
        ("gpu_total_estimate_ns", json!(gpu.map(|g| g.total_ns))),
        ("gpu_total_ci95_ns", json!(gpu.and_then(|g| g.total_ci95_ns))),
        ("gpu_self_calls", json!(gpu.map_or(0, |g| g.self_measured))),
        ("gpu_self_estimate_ns", json!(gpu.and_then(|g| g.self_ns))),
        ("gpu_self_share", json!(gpu.and_then(|g| g.self_share))),
        ("gpu_total_share", json!(gpu.and_then(|g| g.total_share))),
        ("gpu_tflops", json!(gpu.and_then(|g| g.tflops))),
        ("gpu_gbytes", json!(gpu.and_then(|g| g.gbytes))),
        ("launches_per_call", json!(operator.launches_per_call)),
        ("launch_calls", json!(operator.launch_calls)),
        ("host_wait_estimate_ns", json!(operator.host_wait_ns)),
    ];
    values.into_iter().map(|(key, value)| (key.to_string(), value)).collect()
}

fn gpu(analysis: &Analysis) -> Value {
    let gpu = &analysis.gpu;
    if gpu.kinds.is_empty() && gpu.busy.is_none() {
        return Value::Null;
    }
    let kinds = gpu.kinds.iter().map(|kind| {
        json!({
            "name": kind.name,
            "is_phase": kind.is_phase,
            "steps": kind.steps,
            "wall_ns": kind.wall_ns,
            "elapsed": kind.elapsed.iter().map(elapsed).collect::<Vec<_>>(),
            "kernels": kind.busy.as_ref().map(busy),
        })
    });
    let sums = |sums: &GpuSums| json!({ "calls": sums.calls, "total_ns": sums.total_ns, "self_calls": sums.self_calls, "self_ns": sums.self_ns() });
    // Both sources, as measured: the operator table shows only one.
    let paths = analysis.intervals.paths.iter().filter(|p| p.gpu.event.calls + p.gpu.cupti.calls > 0).map(|p| {
        json!({
            "path": p.rollup,
            "calls": p.calls,
            "recorded_calls": p.gpu.recorded_calls,
            "event": sums(&p.gpu.event),
            "cupti": sums(&p.gpu.cupti),
        })
    });
    json!({
        "account": analysis.manifest.gpu,
        "steps": kinds.collect::<Vec<_>>(),
        "all": gpu.busy.as_ref().map(busy),
        "paths": paths.collect::<Vec<_>>(),
        "devices": gpu.devices.iter().map(|(uuid, b)| json!({ "uuid": &**uuid, "kernels": busy(b) })).collect::<Vec<_>>(),
        "clock_bound_ns": gpu.clock_bound_ns,
        "records_without_step": gpu.without_step,
    })
}

fn elapsed(e: &SourceTime) -> Value {
    json!({
        "source": e.source.as_str(),
        "meaning": source_name(e.source),
        "measured": e.measured,
        "measured_ns": e.measured_ns,
        "merged_ns": e.merged_ns,
        "measured_wall_ns": e.wall_ns,
        "total_estimate_ns": e.total_ns,
        "of_wall": e.of_wall(),
        "duration_ns": e.duration.as_ref().map(|d| spread(d, false)),
        "tflops": e.tflops,
        "tflops_executed": e.tflops_executed,
        "gbytes": e.gbytes,
        "io_gbytes": e.io_gbytes,
        "label": "measured",
    })
}

fn busy(b: &Busy) -> Value {
    let gap = |sum: GapSum| json!({ "n": sum.n, "ns": sum.ns });
    json!({
        "steps": b.steps,
        "devices": b.devices,
        "wall_ns": b.wall_ns,
        "busy_ns": b.busy_ns,
        "idle_ns": b.idle_ns(),
        "unattributed_ns": b.unattributed_ns,
        "own_ns": b.own_ns,
        "after_steps_ns": b.after_ns,
        "steps_at_once": b.steps_at_once(),
        "streams_at_once": b.streams_at_once(),
        "busy_share": b.busy_share(),
        "launch_bound_share": b.launch_bound_share(),
        "unattributed_share": b.unattributed_share(),
        "host_bound": gap(b.host_bound),
        "launch_latency": gap(b.launch_latency),
        "launch_overhead": gap(b.launch_overhead),
        "uncertain": gap(b.uncertain),
        "other": gap(b.other),
        "launches": b.launches,
        "launches_per_step": b.launches_per_step(),
        "copies": b.copies,
        "queue_delay_ns": b.queue_delay.as_ref().map(|d| spread(d, false)),
        "label": "derived",
    })
}

fn kernels(analysis: &Analysis) -> Value {
    let kernels = &analysis.kernels;
    if kernels.records == 0 {
        return Value::Null;
    }
    let by_name = kernels.by_name.iter().map(|k| {
        json!({
            "name": &*k.name, "short_name": super::super::kernel_name::short(&k.name), "count": k.count, "total_ns": k.total_ns,
            "mean_ns": k.mean_ns, "p50_ns": k.p50_ns, "p95_ns": k.p95_ns, "share": k.share,
        })
    });
    let by_path = kernels.by_path.iter().map(|row| {
        json!({
            "path": row.path, "calls": row.calls, "kernels": row.kernels, "copies": row.copies,
            "launches_per_call": row.launches_per_call, "total_ns": row.total_ns, "share": row.share,
            "top": row.top.as_ref().map(|(name, ns)| json!({ "name": &**name, "total_ns": ns })),
        })
    });
    let copies = kernels.copies.iter().map(|row| {
        json!({
            "direction": &*row.direction, "count": row.count, "bytes": row.bytes, "total_ns": row.total_ns,
            "gbytes": row.gbytes, "share": row.share,
        })
    });
    json!({
        "records": kernels.records,
        "total_ns": kernels.total_ns,
        "unattributed": { "n": kernels.unattributed.0, "ns": kernels.unattributed.1 },
        "by_name": by_name.collect::<Vec<_>>(),
        "by_path": by_path.collect::<Vec<_>>(),
        "copies": copies.collect::<Vec<_>>(),
    })
}

fn joules(e: &Joules) -> Value {
    json!({
        "joules": e.joules,
        "low": e.low,
        "high": e.high,
        "by_period": e.by_period,
        "by_accuracy": e.by_accuracy,
        "accuracy_label": "datasheet",
        "net_joules": e.net,
        "idle_above_mean": e.idle_above_mean,
        "time_ns": e.time_ns,
        "watts": e.watts(),
        "below_resolution": e.below_resolution,
        "label": "derived",
    })
}

fn energy(analysis: &Analysis) -> Value {
    let energy = &analysis.energy;
    if energy.sensors.is_empty() {
        return Value::Null;
    }
    let sensors = energy.sensors.iter().zip(&energy.run_by_device).map(|((uuid, s), run)| {
        json!({
            "device": uuid,
            "run": run.as_ref().map(joules),
            "has_counter": s.has_counter,
            "period_ns": s.period_ns,
            "idle_watts": s.idle.map(|idle| idle.watts),
            "idle_from": s.idle.map(|idle| idle.from.as_str()),
            "idle_samples": s.idle.map(|idle| match idle.from {
                IdleFrom::Between(n) => n,
                IdleFrom::Lowest => 0,
            }),
            "check": s.check.map(|check| json!({
                "counter_joules": check.counter_joules,
                "power_joules": check.power_joules,
                "time_ns": check.time_ns,
                "ratio": check.ratio(),
            })),
        })
    });
    let phases = energy.phases.iter().map(|phase| {
        let mut value = joules(&phase.energy);
        value["name"] = json!(phase.name);
        value["tokens"] = json!(phase.tokens);
        value["joules_per_token"] = json!(phase.joules_per_token());
        value
    });
    json!({
        "run": energy.run.as_ref().map(joules),
        "loading": energy.loading.as_ref().map(joules),
        "warmup": energy.warmup.as_ref().map(joules),
        "requests": energy.requests.as_ref().map(joules),
        "measured_requests": energy.measured_requests,
        "output_tokens": energy.output_tokens,
        "joules_per_output_token": energy.per_output_token().map(|(gross, _)| gross),
        "net_joules_per_output_token": energy.per_output_token().and_then(|(_, net)| net),
        "accounts": accounts(&analysis.shares),
        "phases": phases.collect::<Vec<_>>(),
        "sensors": sensors.collect::<Vec<_>>(),
    })
}

/// What all shares add up to: `requests` has each by itself.
fn accounts(shares: &Shares) -> Value {
    json!({
        "requests_joules": shares.of_requests(),
        "other_steps_joules": shares.other_steps,
        "outside_steps_joules": shares.outside,
        "sum_joules": shares.sum(),
        "counted": shares.counted.as_ref().map(joules),
    })
}

fn devices(analysis: &Analysis) -> Value {
    if analysis.devices.is_empty() {
        return Value::Null;
    }
    let rows = analysis.devices.iter().map(|d| {
        json!({
            "uuid": d.uuid,
            "name": d.name,
            "over": if d.whole_run { "whole_run" } else { "measured_steps" },
            "power_samples": d.power_samples,
            "utilisation_mean": d.utilisation.map(|v| v.0),
            "utilisation_max": d.utilisation.map(|v| v.1),
            "power_watts_mean": d.power_watts.map(|v| v.0),
            "power_watts_max": d.power_watts.map(|v| v.1),
            "power_limit_watts": d.power_limit_watts,
            "memory_bytes_max": d.memory_bytes,
            "memory_limit_bytes": d.memory_limit_bytes,
            "pool_used_bytes_max": d.pool_bytes.0,
            "pool_reserved_bytes_max": d.pool_bytes.1,
            "clock_hertz_min": d.clock_hertz.map(|v| v.0),
            "clock_hertz_mean": d.clock_hertz.map(|v| v.1),
            "clock_hertz_max": d.clock_hertz.map(|v| v.2),
            "memory_clock_hertz_mean": d.memory_clock_hertz,
            "celsius_mean": d.celsius.map(|v| v.0),
            "celsius_max": d.celsius.map(|v| v.1),
            "throttled": d.throttling_known.then(|| {
                d.throttled.iter().map(|(reason, share)| (reason.clone(), json!(share))).collect::<Map<_, _>>()
            }),
            "power_resolution_ns": d.period_ns,
            "label": "measured",
        })
    });
    rows.collect()
}
