//! What a prediction shows.

use super::chart::{ChartPoint, RoofLine, chart};
use super::section::{MOST, shown, table_of};
use crate::format::{bytes, count, duration, flops, percent, significant};
use candlescope_document::text::UNKNOWN;
use candlescope_document::{Fact, MostRows, Section};
use candlescope_predict::roofline::{Bound, FromKernels, Outlook, StepFromKernels, StepPrediction, TimeSource};
use candlescope_work::devices::{LAUNCH_ANYWHERE_NS, Multiply};
use candlescope_work::estimate::Estimate;

/// The head: model, device, what is asked.
pub(super) fn facts(outlook: &Outlook) -> Vec<Fact> {
    let (model, device, scenario) = (&outlook.model, &outlook.device, &outlook.scenario);
    let active = if outlook.active_parameters == outlook.parameters {
        String::new()
    } else {
        format!(", {} a token", count(outlook.active_parameters))
    };
    let peak = Multiply::ALL.into_iter().filter_map(|kind| {
        let tera = device.flops.get(&kind)? / 1e12;
        Some(format!("{} {}", kind.name(), significant(tera)))
    });
    let peaks: Vec<String> = peak.collect();
    let flops = if peaks.is_empty() { "FLOP/s not published".to_string() } else { peaks.join(", ") + " TFLOP/s" };
    let memory = device.memory.map_or_else(String::new, |bytes| format!(", {} GB", significant(bytes / 1e9)));
    let many = if scenario.devices > 1 { format!("{} × ", scenario.devices) } else { String::new() };
    let label = match device.origin {
        candlescope_work::devices::Origin::Datasheet => "datasheet, not measured here",
        candlescope_work::devices::Origin::Measured if device.disturbed => "measured while others were at work",
        candlescope_work::devices::Origin::Measured => "measured",
    };
    let model =
        format!("{} · {} parameters{active} · {}", model.name, count(outlook.parameters), scenario.weights.name);
    let device_text =
        format!("{many}{} · {flops} · {} GB/s{memory} ({label})", device.name, significant(device.bandwidth / 1e9));
    let asked = format!(
        "batch {}, {} prompt tokens, {} to generate; a token at {} of context",
        scenario.batch,
        count(scenario.prompt),
        count(scenario.output),
        count(scenario.told_context(&outlook.model))
    );
    vec![Fact::new("model", model), Fact::new("device", device_text), Fact::new("asked", asked)]
}

pub(super) fn sections(outlook: &Outlook) -> Vec<Section> {
    vec![
        Section::new("warnings", "Beware", "").list(outlook.warnings.clone()),
        latency(outlook),
        from_kernels(outlook),
        roofline(outlook),
        memory(outlook),
        recommended(outlook),
        batches(outlook),
        variants(outlook),
        operations("prefill", &outlook.prefill),
        operations("decode", &outlook.decode),
        Section::new("assumptions", "Assumptions", "").list(outlook.assumptions.clone()),
        Section::new("missing", "Not told", "").list(outlook.missing.clone()),
    ]
}

/// A step's time, as a lower bound where launches are not known.
fn step_time(step: &StepPrediction) -> String {
    match (step.ns, step.launches_unknown) {
        (Some(ns), true) => format!("at least {} (launches unknown)", duration(ns.mid)),
        (ns, _) => spread(ns),
    }
}

/// A time of a device whose launches may not be known.
pub(super) fn time_of(cost: Option<Estimate>, launches_unknown: bool) -> String {
    match cost {
        Some(cost) if launches_unknown => format!("≥ {}", duration(cost.mid)),
        cost => spread(cost),
    }
}

/// A rate of a device whose launches may not be known.
pub(super) fn rate_of(rate: Option<f64>, launches_unknown: bool) -> String {
    shown(rate, |rate| format!("{}{}", if launches_unknown { "≤ " } else { "" }, significant(rate)))
}

/// A time with the spread of the launch cost.
pub(super) fn spread(cost: Option<Estimate>) -> String {
    cost.map_or_else(
        || UNKNOWN.to_string(),
        |cost| match (cost.high - cost.low) / cost.mid > 0.005 {
            true => format!("{} ({} – {})", duration(cost.mid), duration(cost.low), duration(cost.high)),
            false => duration(cost.mid),
        },
    )
}

pub(super) fn bound(bound: Option<Bound>) -> String {
    bound.map_or_else(|| UNKNOWN.to_string(), |bound| bound.name().to_string())
}

fn latency(outlook: &Outlook) -> Section {
    let steps = [&outlook.prefill, &outlook.decode];
    let row = |name: &str, show: &dyn Fn(&StepPrediction) -> String| -> Vec<String> {
        std::iter::once(name.to_string()).chain(steps.map(show)).collect()
    };
    let rows = vec![
        row("time", &step_time),
        row("on the device", &|step| shown(step.device_ns, duration)),
        row("launches on the host", &|step| match step.launches_unknown {
            true => "unknown".to_string(),
            false => spread(step.launches_ns),
        }),
        row("least on this device", &|step| shown(step.least_ns, duration)),
        row("bound by", &|step| bound(step.bound)),
        row("kernels", &|step| count(step.kernels.round() as u64)),
        row("FLOPs needed", &|step| flops(step.flops)),
        row("FLOPs executed", &|step| flops(step.flops_executed)),
        row("weights, keys, values", &|step| bytes(step.bytes)),
        row("the same with activations", &|step| bytes(step.io_bytes)),
        row("FLOP/B", &|step| significant(step.intensity)),
        row("FLOP/B at the ridge", &|step| shown(step.ridge, significant)),
    ];
    let unknown = outlook.decode.launches_unknown;
    let rate = match outlook.decode.ns.filter(|ns| !unknown && (ns.high - ns.low) / ns.mid > 0.005) {
        Some(ns) => {
            let rate = |ns: f64| significant(outlook.scenario.batch as f64 / ns * 1e9);
            format!("{} ({} – {})", rate(ns.mid), rate(ns.high), rate(ns.low))
        }
        None => rate_of(outlook.tokens_per_s, unknown),
    };
    let device = &outlook.device;
    let each = match (device.index_rate, device.panel_rate) {
        (Some(_), _) => "(max(roof, small kernels) + index arithmetic)",
        (None, Some(_)) if device.panels_in_turn => {
            "(max(roof, small kernels); of products of several rows: reading + copies into panels + multiplying)"
        }
        (None, None) if device.panels_in_turn => {
            "(max(roof, small kernels); of products of several rows: reading + multiplying)"
        }
        (None, Some(_)) => "(max(roof, small kernels) + copies into panels)",
        (None, None) => "max(roof, small kernels)",
    };
    let note = format!(
        "Time = max(launches on the host, Σ {each} on the device) + sync. Output: {rate} tokens/s of all sequences.{}",
        launches(outlook)
    );
    Section::new("latency", "Latency", note)
        .with(table_of(&["", "first token (prefill)", "output token (decode)"], rows))
}

/// What the range of times rests on, or what is left out of them.
fn launches(outlook: &Outlook) -> &'static str {
    let device = &outlook.device;
    let hosts = device.launch.is_some_and(|launch| launch.high == LAUNCH_ANYWHERE_NS.high);
    match () {
        () if device.launches_unknown() => {
            " What launches cost here is not known: times are lower bounds; the row `least on this device` is the one to \
             compare with other devices."
        }
        () if hosts => {
            " The ranges are those of launch costs on other hosts: `candlescope bench peaks` on this machine, or --calibrate, \
             sets its own."
        }
        () => "",
    }
}

/// What a study of kernels lacks for a prediction, and how to measure it.
pub(super) fn lacking(found: &FromKernels) -> Vec<String> {
    if found.to_measure.is_empty() {
        return Vec::new();
    }
    let n = found.to_measure.len();
    if let Some(command) = &found.measure_all {
        let shapes = if n == 1 {
            "1 shape was not measured and has".to_string()
        } else {
            format!("{n} shapes were not measured and have")
        };
        return vec![format!("{shapes} no time. This measures all of them, for one more --kernels:"), command.clone()];
    }
    let mut list = vec!["shapes that were not measured have no time; each of these measures one:".to_string()];
    list.extend(found.to_measure.iter().cloned());
    list
}

fn from_kernels(outlook: &Outlook) -> Section {
    let Some(found) = &outlook.from_kernels else { return Section::new("kernels", "", "") };
    let steps = [("prefill", &found.prefill, &outlook.prefill), ("decode", &found.decode, &outlook.decode)];
    let mut rows = Vec::new();
    for (name, step, roof) in steps {
        let share = |step: &StepFromKernels| shown(step.measured_share, |share| format!("{} measured", percent(share)));
        rows.push(vec![name.to_string(), spread(step.ns), spread(roof.ns), share(step)]);
        rows.push(vec![
            format!("{name}, on the device"),
            shown(step.device_ns, duration),
            shown(roof.device_ns, duration),
            String::new(),
        ]);
        let mut operations: Vec<_> = step.operations.iter().collect();
        operations.sort_by(|a, b| b.ns.unwrap_or(f64::MAX).total_cmp(&a.ns.unwrap_or(f64::MAX)));
        rows.extend(operations.into_iter().filter(|time| time.roof_ns != Some(0.0)).map(|time| {
            let source = match &time.source {
                TimeSource::Measured => "measured".to_string(),
                TimeSource::Interpolated(along) => format!("between measured ones: {along}"),
                TimeSource::Roof => "at its roof: `bench kernels` has no kernel for it".to_string(),
                TimeSource::Missing(why) => why.clone(),
            };
            let name = format!("{name} / {}", time.operation);
            vec![name, shown(time.ns, duration), shown(time.roof_ns, duration), source]
        }));
    }
    let note = format!(
        "{}. Time = max(launches on the host, Σ kernels on the device) + sync; without a time for an operation there is \
         none for its step.",
        found.source
    );
    Section::new("kernels", "From measured kernels", note)
        .with(table_of(&["", "from kernels", "at the roofs", "where from"], rows).most(
            MostRows::of(60, MOST, MOST),
            "rows",
            "the files",
        ))
        .list(lacking(found))
}

/// The roof of the device for what the weights multiply.
pub(super) fn roof_line(outlook: &Outlook) -> Option<RoofLine> {
    let device = &outlook.device;
    let multiply = device.multiplies(outlook.scenario.weights.multiply);
    device.flops_for(multiply).map(|(flops, used)| RoofLine {
        name: format!("{} {}", device.name, used.name()),
        flops,
        bandwidth: device.bandwidth,
    })
}

fn roofline(outlook: &Outlook) -> Section {
    let roofs = roof_line(outlook);
    let mut points = Vec::new();
    for (name, step) in [("prefill", &outlook.prefill), ("decode", &outlook.decode)] {
        let whole = step.ns.map(|ns| ChartPoint {
            name: name.to_string(),
            intensity: step.intensity,
            flops: step.flops / ns.mid * 1e9,
            marked: true,
        });
        points.extend(whole);
        points.extend(step.operations.iter().filter_map(|timed| {
            Some(ChartPoint {
                name: String::new(),
                intensity: timed.intensity?,
                flops: timed.operation.cost.flops * timed.operation.calls / timed.device_ns? * 1e9,
                marked: false,
            })
        }));
    }
    let note = "Large: whole steps with the launches on the host. Small: operations on the device.";
    Section::new("roofline", "Roofline", note).picture(chart(&roofs.into_iter().collect::<Vec<_>>(), &points))
}

fn memory(outlook: &Outlook) -> Section {
    let need = &outlook.memory;
    let rows = [
        ("weights", need.weights),
        ("keys and values of a token", need.kv_a_token),
        ("keys and values of a sequence at its end", need.kv_a_sequence),
        ("activations of a sequence", need.activations_a_sequence),
        ("together", need.total(outlook.scenario.batch)),
    ];
    let mut rows: Vec<Vec<String>> = rows.iter().map(|(name, n)| vec![name.to_string(), bytes(*n)]).collect();
    rows.push(vec!["there".into(), shown(outlook.usable_memory, bytes)]);
    rows.push(vec!["largest batch".into(), shown(outlook.largest_batch.map(|n| n as f64), |n| count(n as u64))]);
    Section::new("memory", "Memory", "On each device.").with(table_of(&["", "bytes"], rows))
}

fn recommended(outlook: &Outlook) -> Section {
    let batch = outlook.recommended.batch.map_or_else(|| "none".to_string(), count);
    let mut list = vec![format!("recommended batch: {batch} ({})", outlook.recommended.reason)];
    if let Some(knee) = outlook.recommended.knee {
        list.push(format!("knee: batch {} reaches four fifths of the highest throughput that fits", count(knee)));
    }
    Section::new("recommended", "Recommended batch", "").list(list)
}

fn batches(outlook: &Outlook) -> Section {
    let unknown = outlook.decode.launches_unknown;
    let rows = outlook.batches.iter().map(|row| {
        let fits = match row.fits {
            Some(true) => "yes",
            Some(false) => "no",
            None => UNKNOWN,
        };
        vec![
            count(row.batch),
            time_of(row.ttft_ns, unknown),
            time_of(row.tpot_ns, unknown),
            rate_of(row.tokens_per_s, unknown),
            shown(row.tpot_least_ns, duration),
            shown(row.tokens_per_s_most, significant),
            bytes(row.memory),
            fits.to_string(),
            bound(row.bound),
        ]
    });
    let head = [
        "batch",
        "time to first token",
        "time per output token",
        "tokens/s",
        "least a token",
        "most tokens/s",
        "memory",
        "fits",
        "bound by",
    ];
    let note = "the least is what no program can undercut, however it fuses its kernels: needed FLOPs ÷ FLOP/s, or weights, \
                keys and values ÷ bandwidth";
    Section::new("batches", "Throughput against batch", note).with(table_of(&head, rows.collect()))
}

fn variants(outlook: &Outlook) -> Section {
    let rows = outlook.variants.iter().map(|variant| {
        vec![
            variant.format.to_string(),
            significant(variant.bits),
            bytes(variant.weights),
            shown(variant.ttft_ns, duration),
            shown(variant.tpot_ns, duration),
            shown(variant.speedup, |x| format!("{x:.2}")),
            shown(variant.largest_batch.map(|n| n as f64), |n| count(n as u64)),
            bound(variant.bound),
        ]
    });
    let head = ["format", "bits", "weights", "first token", "output token", "speed-up", "largest batch", "bound by"];
    let note = "Bits a weight include the scales of its block. What quality a format costs is not told here.";
    Section::new("formats", "Number formats", note).with(table_of(&head, rows.collect()))
}

fn operations(phase: &str, step: &StepPrediction) -> Section {
    let mut timed: Vec<_> = step.operations.iter().filter(|timed| timed.operation.kernels > 0.0).collect();
    timed.sort_by(|a, b| b.device_ns.unwrap_or(0.0).total_cmp(&a.device_ns.unwrap_or(0.0)));
    let rows = timed.iter().map(|timed| {
        let operation = &timed.operation;
        vec![
            operation.name.to_string(),
            count(operation.calls as u64),
            count((operation.kernels * operation.calls).round() as u64),
            flops(operation.cost.flops),
            bytes(operation.cost.io_bytes()),
            shown(timed.intensity, significant),
            shown(timed.attainable_flops, |f| format!("{} TFLOP/s", significant(f / 1e12))),
            shown(timed.roof_ns, duration),
            shown(timed.device_ns, duration),
            shown(timed.share, percent),
            bound(timed.bound),
        ]
    });
    let head = [
        "operation",
        "calls",
        "kernels",
        "FLOPs",
        "bytes",
        "FLOP/B",
        "attainable",
        "roof",
        "all calls",
        "share",
        "bound by",
    ];
    let note = "FLOPs, bytes and roof of one call; `all calls` at the roof or what small kernels take.";
    Section::new(phase, format!("Operations of {phase}"), note).with(table_of(&head, rows.collect()).most(
        MostRows::of(14, MOST, MOST),
        "rows",
        "the files",
    ))
}
