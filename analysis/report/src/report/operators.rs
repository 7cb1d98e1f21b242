//! Operators: one row for each path without ordinals.

use super::super::format::{count, duration, flops, percent, significant};
use super::super::peak_columns::PeakColumns;
use candlescope_document::{
    Cell, Column, Forms, MostRows, Row, Section, Table, cell, column, maybe, missing, wide, words,
};
use candlescope_figures::gpu_time::source_name;
use candlescope_figures::peaks::of_operators;
use candlescope_figures::{Analysis, Operator};
use candlescope_schema::GpuSource;

/// Rows of the page.
const MOST_ROWS: usize = 1000;

/// What is known of a run's operators, which decides the columns.
struct OperatorColumns {
    gpu: bool,
    launches: bool,
    waits: bool,
    functions: bool,
}

/// At most so many rows on a terminal and in Markdown.
pub(super) fn section(analysis: &Analysis, terminal: usize, in_markdown: usize) -> Section {
    let operators = &analysis.operators;
    let known = OperatorColumns {
        gpu: operators.iter().any(|o| o.gpu.is_some()),
        launches: operators.iter().any(|o| o.launches_per_call.is_some()),
        waits: operators.iter().any(|o| o.host_wait_ns.is_some()),
        functions: analysis.host.as_ref().is_some_and(|host| !host.functions.is_empty()),
    };
    let used = of_operators(analysis);
    let peaks = PeakColumns::of(&used);
    // Bars show what the table is ordered by.
    let part = |o: &Operator| if known.gpu { o.gpu.and_then(|g| g.self_share).unwrap_or(0.0) } else { o.self_share };
    let largest = operators.iter().map(part).fold(1e-9, f64::max);
    let rows = operators.iter().zip(&used).map(|(o, used)| {
        let mut cells = cells(o, &known);
        let shares = peaks.values(used).into_iter().map(|share| maybe(share, percent));
        cells.extend(shares);
        if known.functions {
            cells.push(top_function(analysis, &o.path));
        }
        cells.push(o.dtypes.join(", ").into());
        let row = Row::new(o.path.clone(), cells).meter(part(o) / largest);
        Row { whole: Some(format!("{} · {}", o.path, o.target)), ..row }
    });
    let mut columns = columns(&known);
    columns.extend(peaks.header().map(|name| wide(name.to_string(), "")));
    if known.functions {
        columns.push(words("most of it in").only(Forms::FILES));
    }
    columns.push(words("dtype").only(Forms::PAGE.and(Forms::JSON)));
    let by = if known.gpu { "GPU self" } else { "self" };
    let sorted_by = columns.iter().position(|column| column.name == by).map(|at| at + 1);
    let width = match (known.gpu, known.launches) {
        (false, false) => 34,
        (false, true) => 28,
        (true, false) => 27,
        (true, true) => 16,
    };
    let table = Table::new("operator", columns, rows.collect()).of_code(width);
    let table = table.most(MostRows::of(terminal, in_markdown, MOST_ROWS), "operators", "in operators.md");
    let (title, brief, on_gpu) = heading(analysis);
    let note = format!(
        "One row for each path without ordinals, by self time{}. Shares are of {} in steps. Rates are analytic work over \
         total host time, work below a path included.{on_gpu}",
        if known.gpu { " on the GPU" } else { "" },
        duration(analysis.tree.total_ns as f64)
    );
    let section = Section::new("operators", title, note).brief(brief).nav("Operators");
    let section = section.with(Table { sorted_by, filter: true, ..table });
    if operators.is_empty() { section.only(Forms::FILES).or_say("The run holds no intervals.") } else { section }
}

/// The function with the most time on a CPU in the path's own time, and its share of that.
fn top_function(analysis: &Analysis, path: &str) -> Cell {
    let place = analysis.host.as_ref().and_then(|host| host.places.get(path));
    let top = place.and_then(|place| Some((place, place.top.as_ref()?)));
    top.map_or(missing(), |(place, (name, ns))| {
        let share = *ns as f64 / place.all.cpu_ns().max(1) as f64;
        format!("{} {}", super::super::function_name::short(&name.function), percent(share)).into()
    })
}

/// The title, what stands beside it on a terminal, and what is said of GPU time.
fn heading(analysis: &Analysis) -> (&'static str, String, String) {
    let Some(gpu) = analysis.operators.iter().find_map(|o| o.gpu.as_ref()) else {
        return ("Operators by self time", String::new(), String::new());
    };
    let source = match gpu.source {
        GpuSource::Event => {
            "stream elapsed: between two marks in the stream, with the gaps in which it waits for launches, and what other \
             threads have the device do; of kernels alone it is told where these are recorded (`--cupti`)"
        }
        GpuSource::Cupti => "sum of the kernels launched inside",
    };
    let said = format!(
        " GPU time is the {source}. It is sampled: totals are the mean of the measured intervals × calls at the top; below, a \
         parent's total is divided as it was where all its children were measured. GPU shares are of the GPU time of the \
         outermost steps."
    );
    // Between two marks of a program that waits for its launches lies mostly waiting.
    let how = match gpu.source {
        GpuSource::Event => ", waiting included, estimated",
        GpuSource::Cupti => ", estimated from the measured calls",
    };
    let brief = format!("GPU: {}{how}; rates over GPU time", source_name(gpu.source));
    ("Operators by GPU time", brief, said)
}

/// With GPU time, its columns come first, because the table is wider than most screens.
fn columns(known: &OperatorColumns) -> Vec<Column> {
    let on_terminal = |shown: bool, column: Column| if shown { column } else { column.only(Forms::FILES) };
    let mut columns = vec![
        column("calls", ""),
        column("self", "on the host"),
        on_terminal(!known.gpu, column("self share", "").short("share")),
    ];
    if known.gpu {
        columns.extend([
            wide("GPU measured", "calls with GPU time, of all"),
            // A terminal has room for one of both.
            column("measured", "").only(if known.waits { Forms::NONE } else { Forms::TERMINAL }),
            column("GPU self", ""),
            column("GPU share", "").short("share"),
            wide("GPU total", ""),
            wide("GPU mean", ""),
            column("GPU TFLOP/s", "").short("TFLOP/s"),
            column("GPU GB/s", "").short("GB/s"),
            words("GPU source").only(Forms::FILES),
        ]);
    }
    columns.extend([
        on_terminal(!known.gpu, column("total", "")),
        wide("total share", ""),
        wide("mean", "of a call"),
        wide("FLOPs", ""),
        on_terminal(!known.gpu, column("GFLOP/s", "")),
        on_terminal(!known.gpu, column("GB/s", "")),
        wide("FLOP/B", ""),
    ]);
    if known.launches {
        columns.push(column("launches a call", "").short("launches"));
    }
    if known.waits {
        columns.push(on_terminal(known.gpu, column("host wait", "")));
    }
    columns
}

fn cells(o: &Operator, known: &OperatorColumns) -> Vec<Cell> {
    let rate = |v: Option<f64>| maybe(v, significant);
    let time = |v: Option<f64>| maybe(v, duration);
    let share = |v: Option<f64>| maybe(v, percent);
    let mut cells = vec![cell(count(o.calls), o.calls as f64), time(Some(o.self_ns as f64)), share(Some(o.self_share))];
    if known.gpu {
        let g = o.gpu.as_ref();
        let measured = g.map_or(0, |g| g.measured);
        cells.extend([
            cell(format!("{} of {}", count(measured), count(o.calls)), measured as f64),
            cell(count(measured), measured as f64),
            time(g.and_then(|g| g.self_ns)),
            share(g.and_then(|g| g.self_share)),
            time(g.map(|g| g.total_ns)),
            time(g.map(|g| g.mean_ns)),
            rate(g.and_then(|g| g.tflops)),
            rate(g.and_then(|g| g.gbytes)),
            g.map_or(missing(), |g| source_name(g.source).to_string().into()),
        ]);
    }
    cells.extend([
        time(Some(o.total_ns as f64)),
        share(Some(o.total_share)),
        time(Some(o.total_ns as f64 / o.entered.max(1) as f64)),
        o.work.flops.map_or(missing(), |n| cell(flops(n as f64), n as f64)),
        rate(o.gflops),
        rate(o.gbytes),
        rate(o.work.intensity()),
    ]);
    if known.launches {
        cells.push(rate(o.launches_per_call));
    }
    if known.waits {
        cells.push(time(o.host_wait_ns));
    }
    cells
}
