//! The GPU in each of the reports: GPU time of steps, how the device's time divides, kernels, copies, energy, devices.

use super::format::{bytes, count, duration, head, joules, percent, printable, significant, watts};
use super::kernel_name::short;
use super::sheet::{Cell, Row, Sheet, cell, column, maybe, missing, wide};
use crate::passes::gpu::{Busy, Elapsed};
use crate::passes::gpu_time::source_name;
use crate::passes::sensor::Joules;
use crate::passes::{Analysis, Device};
use candlescope_core::GpuSource;

/// Every table about the GPU that has rows, in the order of the reports.
pub(super) fn sheets(analysis: &Analysis) -> Vec<Sheet> {
    let all = [
        steps(analysis),
        busy(analysis),
        kernels(analysis),
        paths(analysis),
        copies(analysis),
        energy(analysis),
        devices(analysis),
    ];
    all.into_iter().filter(|sheet| !sheet.rows.is_empty()).collect()
}

fn time(ns: Option<f64>) -> Cell {
    maybe(ns, duration)
}

fn number(n: u64) -> Cell {
    cell(count(n), n as f64)
}

fn share(value: Option<f64>) -> Cell {
    maybe(value, percent)
}

fn rate(value: Option<f64>) -> Cell {
    maybe(value, significant)
}

fn named(name: &str, cells: Vec<Cell>) -> Row {
    Row { name: name.to_string(), whole: None, cells, bar: None }
}

/// `12 of 48`, sorted by the first.
fn of(measured: u64, all: u64) -> Cell {
    cell(format!("{} of {}", count(measured), count(all)), measured as f64)
}

fn steps(analysis: &Analysis) -> Sheet {
    let rows = analysis.gpu.kinds.iter().flat_map(|kind| {
        kind.elapsed.iter().map(|e: &Elapsed| {
            let d = e.duration.as_ref();
            named(
                &kind.name,
                vec![
                    cell(source_name(e.source).to_string(), e.source as u8 as f64),
                    of(e.measured, kind.steps),
                    time(d.map(|d| d.median)),
                    time(d.map(|d| d.p95)),
                    time(d.map(|d| d.mean)),
                    time(Some(e.total_ns)),
                    share(e.of_wall()),
                    rate(e.tflops),
                    rate(e.gbytes),
                ],
            )
        })
    });
    Sheet {
        id: "gpu-steps",
        title: "GPU time of steps",
        note: "Stream elapsed is the time between two marks on the stream, queue gaps included: over wall time it is no busy share. \
               Kernels is the sum of the kernels launched inside. Totals are the mean of the measured steps × all steps."
            .to_string(),
        first: "steps",
        columns: vec![
            column("source", "what measured it"),
            column("measured", "steps with GPU time from this source, of all"),
            column("median", "GPU time of one step"),
            column("p95", ""),
            wide("mean", ""),
            column("total", "mean × all steps: extrapolated where not all were measured"),
            column("of wall", "GPU time ÷ duration on the host, of the measured steps"),
            column("TFLOP/s", "analytic FLOPs ÷ GPU time, of the measured steps"),
            column("GB/s", "analytic bytes ÷ GPU time, of the measured steps"),
        ],
        rows: rows.collect(),
        what: "kinds of step",
        terminal_rows: 8,
    }
}

fn busy(analysis: &Analysis) -> Sheet {
    let row = |name: &str, busy: &Busy| {
        let part = |ns: u64| share(busy.of_wall(ns as f64));
        let delay = busy.queue_delay.as_ref();
        named(
            name,
            vec![
                number(busy.steps),
                share(busy.busy_share()),
                part(busy.host_bound.ns),
                part(busy.launch_overhead.ns),
                part(busy.other.ns),
                share(busy.unattributed_share()),
                rate(busy.launches_per_step()),
                rate((busy.steps > 0).then(|| busy.copies as f64 / busy.steps as f64)),
                time((busy.steps > 0).then(|| busy.wall_ns as f64 / busy.steps as f64)),
                time(delay.map(|d| d.median)),
                time(delay.map(|d| d.p95)),
            ],
        )
    };
    let kinds = analysis.gpu.kinds.iter().filter_map(|kind| Some((kind.name.as_str(), kind.busy.as_ref()?)));
    let mut rows: Vec<Row> = kinds.map(|(name, busy)| row(name, busy)).collect();
    if let Some(busy) = analysis.gpu.busy.as_ref().filter(|_| rows.len() > 1) {
        rows.push(row("all recorded steps", busy));
    }
    let left_out = match analysis.gpu.around_others {
        0 => String::new(),
        n => format!(" {} launched by steps around other recorded steps are left out.", count(n)),
    };
    Sheet {
        id: "gpu-busy",
        title: "How the GPU's time divides",
        note: format!(
            "Shares of the recorded steps' wall time, which they add up to. Kernels, copies and memsets are merged first. A gap is \
             host-bound if what follows was launched after the GPU had run dry, launch overhead if it is under 1.5 µs. \
             Unattributed is before a step's first kernel and after its last; negative where kernels outlast the step.{left_out}"
        ),
        first: "steps",
        columns: vec![
            column("recorded", "steps whose kernels were recorded"),
            column("busy", "something ran"),
            column("host-bound", "gaps that the host caused: launch-bound share"),
            column("overhead", "gaps under 1.5 µs"),
            column("other", "all other gaps"),
            column("unattr.", "wall time before the first kernel and after the last"),
            column("launches", "kernels a step"),
            wide("copies", "copies and memsets a step"),
            wide("wall a step", "mean duration on the host"),
            column("queue", "median time from the end of the launching call to the start on the device"),
            wide("queue p95", ""),
        ],
        rows,
        what: "kinds of step",
        terminal_rows: 6,
    }
}

fn kernels(analysis: &Analysis) -> Sheet {
    let kernels = &analysis.kernels;
    let largest = kernels.by_name.first().map_or(1.0, |k| k.share.max(1e-9));
    let rows = kernels.by_name.iter().map(|k| {
        let name = short(&k.name);
        Row {
            whole: (name != *k.name).then(|| k.name.to_string()),
            name,
            bar: Some(k.share / largest),
            cells: vec![
                number(k.count),
                time(Some(k.total_ns as f64)),
                share(Some(k.share)),
                time(Some(k.mean_ns)),
                time(Some(k.p50_ns)),
                time(Some(k.p95_ns)),
            ],
        }
    });
    Sheet {
        id: "kernels",
        title: "Kernels",
        note: format!(
            "{} kernels, copies and memsets of the recorded steps, {} on the device; shares are of that. {}",
            count(kernels.records),
            duration(kernels.total_ns as f64),
            unattributed(analysis)
        ),
        first: "kernel",
        columns: vec![
            column("count", "how often it ran"),
            column("total", ""),
            column("share", "of all recorded device time"),
            column("mean", ""),
            column("p50", ""),
            column("p95", ""),
        ],
        rows: rows.collect(),
        what: "kernels",
        terminal_rows: 8,
    }
}

fn unattributed(analysis: &Analysis) -> String {
    match analysis.kernels.unattributed {
        (0, _) => "All were launched inside recorded intervals.".to_string(),
        (n, ns) => format!("{} ({}) were launched outside every recorded interval.", count(n), duration(ns as f64)),
    }
}

fn paths(analysis: &Analysis) -> Sheet {
    let largest = analysis.kernels.by_path.first().map_or(1.0, |row| row.share.max(1e-9));
    let rows = analysis.kernels.by_path.iter().map(|row| Row {
        name: row.path.clone().unwrap_or_else(|| "(outside every interval)".to_string()),
        whole: None,
        bar: Some(row.share / largest),
        cells: vec![
            if row.path.is_some() { number(row.calls) } else { missing() },
            number(row.kernels),
            rate(row.launches_per_call),
            number(row.copies),
            time(Some(row.total_ns as f64)),
            share(Some(row.share)),
            row.top.as_ref().map_or(missing(), |(name, ns)| {
                cell(format!("{} {}", head(&short(name), 48), duration(*ns as f64)), *ns as f64)
            }),
        ],
    });
    Sheet {
        id: "kernel-paths",
        title: "Kernels by path",
        note: "By the innermost interval open at the launch; what intervals inside launched stands with them."
            .to_string(),
        first: "path",
        columns: vec![
            column("calls", "intervals in recorded steps"),
            column("kernels", ""),
            column("a call", "kernels for each of these intervals"),
            wide("copies", "copies and memsets"),
            column("total", "time on the device"),
            column("share", "of all recorded device time"),
            wide("top", "the kernel, copy or memset with most of it"),
        ],
        rows: rows.collect(),
        what: "paths",
        terminal_rows: 8,
    }
}

fn copies(analysis: &Analysis) -> Sheet {
    let rows = analysis.kernels.copies.iter().map(|row| {
        named(
            &row.direction,
            vec![
                number(row.count),
                maybe(row.bytes.map(|n| n as f64), bytes),
                time(Some(row.total_ns as f64)),
                rate(row.gbytes),
                share(Some(row.share)),
            ],
        )
    });
    Sheet {
        id: "copies",
        title: "Copies",
        note: "Copies by direction, and memsets, of the recorded steps.".to_string(),
        first: "direction",
        columns: vec![
            column("count", ""),
            column("bytes", ""),
            column("total", "time on the device"),
            column("GB/s", "bytes ÷ that time"),
            column("share", "of all recorded device time"),
        ],
        rows: rows.collect(),
        what: "directions",
        terminal_rows: 6,
    }
}

fn energy(analysis: &Analysis) -> Sheet {
    let energy = &analysis.energy;
    let row = |name: &str, e: &Joules, tokens: Option<u64>| {
        let per_token = tokens.filter(|&n| n > 0 && !e.below_resolution).map(|n| e.joules / n as f64);
        named(
            name,
            vec![
                maybe(Some(e.joules), |v| if e.below_resolution { format!("~{}", joules(v)) } else { joules(v) }),
                cell(format!("{} – {}", joules(e.low), joules(e.high)), e.high - e.low),
                maybe(e.net.filter(|_| !e.below_resolution), joules),
                maybe(e.watts(), watts),
                maybe(per_token, joules),
                time(Some(e.time_ns as f64)),
                cell(
                    if e.below_resolution { "below" } else { "resolved" }.to_string(),
                    f64::from(u8::from(!e.below_resolution)),
                ),
            ],
        )
    };
    let mut rows: Vec<Row> = Vec::new();
    rows.extend(energy.run.as_ref().map(|e| row("run", e, None)));
    rows.extend(energy.requests.as_ref().map(|e| row("measured requests", e, energy.output_tokens)));
    rows.extend(energy.phases.iter().map(|phase| row(&phase.name, &phase.energy, phase.tokens)));
    let gpus = energy.sensors.len();
    let idle = energy.sensors.iter().filter_map(|(_, s)| s.idle).map(|idle| match idle.outside_steps {
        0 => format!("{} idle (smallest sample)", watts(idle.watts)),
        n => format!("{} idle (median of {} samples outside steps)", watts(idle.watts), count(n as u64)),
    });
    let checks =
        energy.sensors.iter().filter_map(|(_, s)| s.check?.ratio()).map(|r| format!("{} of the counter", percent(r)));
    let (idle, checks) = (idle.collect::<Vec<_>>().join(", "), checks.collect::<Vec<_>>().join(", "));
    let idle = if idle.is_empty() { idle } else { format!(" Net is less {idle}.") };
    let from = match (energy.sensors.iter().any(|(_, s)| s.has_counter), checks.is_empty()) {
        (true, false) => {
            format!("From the energy counter, shaped by power between its readings; power integrates to {checks}.")
        }
        (true, true) => "From the energy counter.".to_string(),
        (false, _) => "From power, integrated; there is no energy counter.".to_string(),
    };
    let period = energy.sensors.iter().map(|(_, s)| s.period_ns).max().unwrap_or(0);
    Sheet {
        id: "energy",
        title: "Energy",
        note: format!(
            "{} GPU{}. {from}{idle} The sensors move every {}: below resolution is power × time, of which only the bound says something.",
            gpus,
            if gpus == 1 { "" } else { "s" },
            duration(period as f64)
        ),
        first: "of",
        columns: vec![
            column("energy", "gross"),
            column("bound", "it is not less and not more than this"),
            column("net", "less idle power × time"),
            column("power", "mean over the time"),
            column("a token", "gross energy for each token processed; of requests, for each output token"),
            column("time", "time in which at least one of these ran"),
            wide("resolution", "whether the time is long enough for the sensors"),
        ],
        rows,
        what: "kinds of step",
        terminal_rows: 8,
    }
}

fn devices(analysis: &Analysis) -> Sheet {
    let rows = analysis.devices.iter().map(|d: &Device| {
        let energy = analysis.energy.sensors.iter().position(|(uuid, _)| *uuid == d.uuid);
        let energy = energy.and_then(|i| analysis.energy.run_by_device.get(i).copied().flatten());
        let name = d.name.clone().map_or(d.uuid.clone(), |name| format!("{name} {}", head(&d.uuid, 13)));
        let pair = |v: Option<(f64, f64)>, show: &dyn Fn(f64) -> String| {
            v.map_or(missing(), |(mean, most)| cell(format!("{} / {}", show(mean), show(most)), mean))
        };
        let memory = match (d.memory_bytes, d.memory_limit_bytes) {
            (Some(used), Some(limit)) => cell(format!("{} of {}", bytes(used), bytes(limit)), used),
            (used, _) => maybe(used, bytes),
        };
        let pool = match d.pool_bytes {
            (Some(used), Some(reserved)) => cell(format!("{} of {}", bytes(used), bytes(reserved)), used),
            (used, _) => maybe(used, bytes),
        };
        Row {
            name,
            whole: Some(d.uuid.clone()),
            bar: None,
            cells: vec![
                pair(d.utilisation, &percent),
                pair(d.power_watts, &significant),
                maybe(d.power_limit_watts, watts),
                maybe(energy.map(|e| e.joules), joules),
                memory,
                pool,
                d.clock_hertz.map_or(missing(), |(low, mean, high)| {
                    let ghz = |hz: f64| format!("{:.2}", hz / 1e9);
                    cell(format!("{} – {}, mean {} GHz", ghz(low), ghz(high), ghz(mean)), mean)
                }),
                maybe(d.memory_clock_hertz, |hz| format!("{:.2} GHz", hz / 1e9)),
                maybe(d.celsius.map(|c| c.1), |c| format!("{c:.0} °C")),
                throttled(d),
                time(d.period_ns.map(|ns| ns as f64)),
            ],
        }
    });
    Sheet {
        id: "devices",
        title: "Devices",
        note: "As sampled over the run; mean / largest. Utilisation is the driver's: the share of its sampling period in which any \
               kernel ran, not how much of the GPU it used."
            .to_string(),
        first: "GPU",
        columns: vec![
            column("utilisation", "mean / largest"),
            column("power, W", "mean / largest"),
            wide("limit", "enforced power limit"),
            wide("energy", "over the run"),
            column("memory", "largest in use by anyone, of all"),
            wide("candle's pool", "largest used, of largest reserved"),
            wide("clock", "of the multiprocessors"),
            wide("memory clock", "mean"),
            column("heat", "largest temperature of the die"),
            wide("throttled", "share of samples in which clocks were held down, by reason; idle left out"),
            wide("sampled every", "median time between two samples of power"),
        ],
        rows: rows.collect(),
        what: "GPUs",
        terminal_rows: 4,
    }
}

fn throttled(device: &Device) -> Cell {
    if !device.throttling_known {
        return missing();
    }
    let reasons: Vec<String> =
        device.throttled.iter().map(|(reason, share)| format!("{} {}", printable(reason), percent(*share))).collect();
    match reasons.first() {
        None => cell("never".to_string(), 0.0),
        Some(_) => cell(reasons.join(", "), device.throttled.first().map_or(0.0, |t| t.1)),
    }
}

/// What a person wants to know of the GPU first, each with a label of one word.
pub(super) fn lines(analysis: &Analysis) -> Vec<(&'static str, String)> {
    let mut lines = Vec::new();
    if let Some(busy) = &analysis.gpu.busy {
        let launches =
            busy.launches_per_step().map_or(String::new(), |n| format!(" · {} kernels a step", significant(n)));
        let busy_share = busy.busy_share().map_or("unknown".to_string(), percent);
        let bound = busy.launch_bound_share().map_or("unknown".to_string(), percent);
        lines.push((
            "busy",
            format!("{busy_share} of {} recorded steps' wall time · launch-bound {bound}{launches}", count(busy.steps)),
        ));
    }
    let elapsed = analysis.gpu.kinds.iter().flat_map(|kind| kind.elapsed.iter().map(move |e| (kind, e)));
    let of_wall: Vec<String> = elapsed
        .filter(|(_, e)| e.source == GpuSource::Event)
        .take(4)
        .filter_map(|(kind, e)| {
            Some(format!(
                "{} {} ({} of {} steps)",
                printable(&kind.name),
                percent(e.of_wall()?),
                count(e.measured),
                count(kind.steps)
            ))
        })
        .collect();
    if !of_wall.is_empty() {
        lines.push(("stream", format!("stream elapsed / wall: {}", of_wall.join(", "))));
    }
    if let Some(run) = &analysis.energy.run {
        let mut text = match run.watts() {
            Some(mean) => {
                let most: Vec<String> =
                    analysis.devices.iter().filter_map(|d| d.power_watts).map(|(_, most)| watts(most)).collect();
                let most = if most.is_empty() { String::new() } else { format!(" · {} at most", most.join(", ")) };
                format!("{} mean{most} · {} over the run", watts(mean), joules(run.joules))
            }
            None => joules(run.joules),
        };
        if let Some((gross, net)) = analysis.energy.per_output_token() {
            text.push_str(&format!(" · {} an output token", joules(gross)));
            text.extend(net.map(|net| format!(", {} net of idle", joules(net))));
        }
        lines.push(("power", text));
    }
    lines.extend(super::gpu_account::lines(&analysis.manifest));
    lines
}
