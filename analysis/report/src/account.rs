//! The account of a device's time on a terminal.

use super::format::{bytes, count, duration, head, path, percent, plural, printable, significant};
use super::kernel_name::short;
use candlescope_document::terminal::{self, Layout};
use candlescope_document::{MostRows, Section, Table};
use candlescope_figures::account::{Account, CriticalPart, DeviceAccount, Line, PlaceRow, Spread};
use candlescope_figures::gaps::GapSum;
use candlescope_schema::run::Finding;
use std::fmt::Write as _;

/// Longest name in a table, in characters.
const NAME: usize = 48;

/// The account with at most `top` rows in each table (0: all), and what was noticed while the run was read.
pub fn text(account: &Account, top: usize, seen: &[Finding]) -> String {
    let mut out = String::new();
    let bound = account.clock_bound_ns.map_or("unknown".to_string(), |ns| format!("±{}", duration(ns as f64)));
    let warmup = match account.warmup_records {
        0 => String::new(),
        n => format!(", without {} of the warm-up", count(n)),
    };
    let _ = writeln!(
        out,
        "Run {}: {} kernels, copies and memsets on {}{warmup}; clocks of host and device {bound}",
        printable(&account.run),
        count(account.records),
        plural(account.devices.len() as u64, "device"),
    );
    for device in &account.devices {
        one(&mut out, device, top);
    }
    for absent in &account.absent {
        let _ = writeln!(out, "\nNot known: {}: {}.", absent.what, absent.why);
    }
    for finding in seen {
        let _ = writeln!(out, "\n{:?}: {}\n  {}", finding.severity, finding.message(), finding.remedy());
    }
    out
}

fn one(out: &mut String, device: &DeviceAccount, top: usize) {
    let name = device.name.as_deref().map_or(String::new(), |name| format!("{} ", printable(name)));
    let _ = writeln!(out, "\n{name}{}", printable(&device.device));
    time(out, device);
    gaps(out, device);
    trace(out, device);
    streams(out, device);
    places(out, "Paths, by what they launched themselves", "path", &device.paths, top);
    places(out, "Modules", "module", &device.modules, top);
    kernels(out, device, top);
    copies(out, device);
    launches(out, device);
    sequences(out, device, top);
    critical(out, device, top);
}

fn time(out: &mut String, device: &DeviceAccount) {
    let Some(all) = &device.line else { return };
    let row = |name: &str, line: &Line| {
        let share = |ns| line.of_wall(ns).map_or(missing(), percent);
        vec![
            printable(name),
            count(line.steps),
            duration(line.wall_ns as f64),
            share(line.busy_ns),
            share(line.idle_ns),
            share(line.edges_ns),
            line.streams_at_once().map_or(missing(), significant),
            line.steps_at_once().map_or(missing(), significant),
        ]
    };
    let rows = std::iter::once(row("all", all)).chain(device.phases.iter().map(|phase| row(&phase.name, &phase.line)));
    let header = ["steps", "n", "open", "busy", "gaps", "edges", "streams at once", "steps at once"];
    table(out, "Device time while steps were open", &header, rows.collect(), &[], 0);
}

fn gaps(out: &mut String, device: &DeviceAccount) {
    let Some(all) = &device.line else { return };
    let lines: Vec<(&str, &Line)> = std::iter::once(("all", all))
        .chain(device.phases.iter().map(|phase| (phase.name.as_str(), &phase.line)))
        .collect();
    let header: Vec<String> = std::iter::once("gaps".to_string())
        .chain(lines.iter().flat_map(|(name, _)| [format!("{}: n", printable(name)), "time".into(), "of open".into()]))
        .collect();
    let mut rows: Vec<Vec<String>> = (0..all.gaps.classes().len())
        .map(|at| {
            let name = all.gaps.classes()[at].0.to_string();
            let cells = lines.iter().flat_map(|(_, line)| {
                let gaps = line.gaps.classes()[at].1;
                [count(gaps.n), duration(gaps.ns as f64), line.of_wall(gaps.ns).map_or(missing(), percent)]
            });
            std::iter::once(name).chain(cells).collect()
        })
        .collect();
    let own = lines.iter().flat_map(|(_, line)| match line.profiler_ns {
        Some(ns) => [String::new(), duration(ns as f64), line.of_wall(ns).map_or(missing(), percent)],
        None => [String::new(), missing(), missing()],
    });
    rows.push(std::iter::once("recording, in host-bound ones".to_string()).chain(own).collect());
    let header: Vec<&str> = header.iter().map(String::as_str).collect();
    table(out, "Why it was idle", &header, rows, &[], 0);
}

fn trace(out: &mut String, device: &DeviceAccount) {
    let trace = &device.trace;
    let share = |ns: u64| if trace.span_ns > 0 { percent(ns as f64 / trace.span_ns as f64) } else { missing() };
    let _ = writeln!(
        out,
        "\nFrom the first start to the last end{} {}: compute {}, other work alone {}, idle {}",
        if trace.windows > 1 { format!(" of {} windows", count(trace.windows)) } else { String::new() },
        duration(trace.span_ns as f64),
        share(trace.compute_ns),
        share(trace.non_compute_ns),
        share(trace.idle_ns),
    );
}

fn streams(out: &mut String, device: &DeviceAccount) {
    let sum = |gaps: Option<GapSum>| gaps.map_or(missing(), |gaps| duration(gaps.ns as f64));
    let row = |stream: &candlescope_figures::account::StreamAccount| {
        let queue = stream.queue.as_ref();
        vec![
            stream.stream.to_string(),
            count(stream.records),
            duration(stream.busy_ns as f64),
            sum(stream.host_wait),
            sum(stream.kernel_wait),
            sum(stream.other),
            sum(stream.uncertain),
            queue.map_or(missing(), |queue| significant(queue.mean_over_time)),
            queue.map_or(missing(), |queue| significant(queue.at_changes.max)),
            queue.map_or(missing(), |queue| percent(queue.empty_share)),
        ]
    };
    let rows = device.streams.iter().map(row).collect();
    let header =
        ["stream", "n", "busy", "launched late", "between kernels", "other", "unclear", "queue, mean", "most", "empty"];
    table(out, "Streams", &header, rows, &[], 0);
}

fn places(out: &mut String, title: &str, first: &str, places: &[PlaceRow], top: usize) {
    let row = |row: &PlaceRow| {
        vec![
            row.place.as_deref().map_or("(outside all)".to_string(), |place| path(&printable(place), NAME)),
            count(row.kernels),
            count(row.copies),
            duration(row.total_ns as f64),
            percent(row.share),
            row.late.map_or(missing(), |late| duration(late.ns as f64)),
            row.top.as_ref().map_or(missing(), |(name, _)| head(&printable(&short(name)), 32)),
        ]
    };
    let rows = places.iter().map(row).collect();
    let header = [first, "kernels", "copies", "device", "share", "launched late", "most of it"];
    table(out, title, &header, rows, &["most of it"], top);
}

fn kernels(out: &mut String, device: &DeviceAccount, top: usize) {
    let row = |row: &candlescope_figures::account::KernelAccountRow| {
        let name = if row.kind == "memcpy" { format!("memcpy {}", row.name) } else { short(&row.name) };
        vec![
            head(&printable(&name), NAME),
            count(row.count),
            duration(row.total_ns as f64),
            percent(row.share),
            duration(row.mean_ns),
            row.stddev_ns.map_or(missing(), duration),
            duration(row.min_ns as f64),
            duration(row.max_ns as f64),
        ]
    };
    let rows = device.kernels.iter().map(row).collect();
    let header = ["kernel", "n", "total", "share", "mean", "stddev", "min", "max"];
    table(out, "Kernels", &header, rows, &[], top);
}

fn copies(out: &mut String, device: &DeviceAccount) {
    let row = |row: &candlescope_figures::account::ExposedCopy| {
        vec![
            printable(&row.direction),
            count(row.count),
            row.bytes.map_or(missing(), |n| bytes(n as f64)),
            duration(row.merged_ns as f64),
            duration(row.exposed_ns as f64),
            row.rate.map_or(missing(), |rate| significant(rate.overall)),
            row.rate.map_or(missing(), |rate| significant(rate.each.p50)),
        ]
    };
    let rows = device.copies.iter().map(row).collect();
    let header = ["copies", "n", "bytes", "time", "exposed", "GB/s", "GB/s of a copy, median"];
    table(out, "Copies and memsets", &header, rows, &[], 0);
}

fn launches(out: &mut String, device: &DeviceAccount) {
    let Some(launches) = &device.launches else { return };
    let row = |name: &str, spread: &Spread| {
        let time = |ns: f64| duration(ns);
        vec![
            name.to_string(),
            count(spread.n),
            time(spread.total),
            time(spread.mean),
            time(spread.p50),
            spread.p95.map_or(missing(), time),
            spread.p99.map_or(missing(), time),
            time(spread.max),
        ]
    };
    let mut rows = vec![row("call on the host", &launches.call)];
    rows.extend(launches.delay.as_ref().map(|delay| row("from its end to the start", delay)));
    rows.push(row("on the device", &launches.device));
    table(out, "Launches", &["", "n", "total", "mean", "median", "p95", "p99", "max"], rows, &[], 0);
    let _ = writeln!(
        out,
        "{} of {} ran shorter than the call that launched them took",
        count(launches.shorter_than_their_call),
        count(launches.call.n),
    );
}

fn sequences(out: &mut String, device: &DeviceAccount, top: usize) {
    let row = |row: &candlescope_figures::account::KernelSequence| {
        let names: Vec<String> = row.kernels.iter().map(|name| printable(&short(name))).collect();
        vec![
            path(&printable(&row.path), 32),
            count(row.count),
            row.kernels.len().to_string(),
            duration(row.total_ns as f64),
            percent(row.share),
            head(&names.join(" | "), 60),
        ]
    };
    let rows = device.sequences.iter().map(row).collect();
    let header = ["path", "times", "kernels", "device", "share", "sequence"];
    table(out, "Sequences that repeat, with what they contain", &header, rows, &["sequence"], top);
}

fn critical(out: &mut String, device: &DeviceAccount, top: usize) {
    let Some(critical) = &device.critical_path else { return };
    let kinds = |part: &CriticalPart| {
        let times = [
            part.kernels_ns,
            part.copies_ns,
            part.queue_ns,
            part.launch_delay_ns,
            part.launch_calls_ns,
            part.host_ns,
            part.wake_up_ns,
        ];
        times.map(|ns| if critical.total_ns > 0 { percent(ns as f64 / critical.total_ns as f64) } else { missing() })
    };
    let row = |name: String, part: &CriticalPart| {
        let mut cells = vec![name, duration(part.total_ns() as f64)];
        cells.extend(kinds(part));
        cells
    };
    let mut rows = vec![row("all".to_string(), &critical.parts)];
    rows.extend(critical.by_path.iter().map(|(place, part)| {
        let name = place.as_deref().map_or("(outside all)".to_string(), |place| path(&printable(place), 40));
        row(name, part)
    }));
    let title = format!("Critical path of {}", plural(critical.steps, "step"));
    let header = ["path", "time", "kernels", "copies", "queue", "launch delay", "launch calls", "host", "waking up"];
    table(out, &title, &header, rows, &[], if top == 0 { 0 } else { top + 1 });
}

fn missing() -> String {
    "–".to_string()
}

/// A titled table with at most `top` rows (0: all); nothing without rows. Columns in `words` are texts. It is as wide as
/// it is: paths and names of kernels stay whole, as one looks for them.
fn table(out: &mut String, title: &str, header: &[&str], rows: Vec<Vec<String>>, words: &[&str], top: usize) {
    let most = if top == 0 { usize::MAX } else { top };
    let table =
        Table::of_texts(header, rows).words(words).most(MostRows::of(most, most, most), "rows", "which --top 0 shows");
    let section = Section::new("", title, "").with(table);
    out.push_str(&terminal::section(&section, Layout { width: usize::MAX, ..Layout::default() }));
}
