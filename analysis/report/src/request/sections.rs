//! The sections of a request's report.

use super::request_words;
use crate::format::{count, duration};
use candlescope_document::{Block, Cell, Row, Section, Table, cell, column, maybe, missing, sentences};
use candlescope_figures::RequestAccount;
use candlescope_figures::request_account::PartKind;

pub(super) fn sections(account: &RequestAccount, has_gpu: bool) -> Vec<Section> {
    vec![
        figures(account),
        parts(account, has_gpu),
        paths(account),
        slowest(account),
        Section::new("unknown", "What is not known", "").list(request_words::unknown(account, has_gpu)),
    ]
}

/// `+48.0 ms`, `−2.00 ms`.
fn signed(value: f64, show: impl Fn(f64) -> String) -> String {
    if value == 0.0 {
        return "0".to_string();
    }
    format!("{}{}", if value < 0.0 { "−" } else { "+" }, show(value.abs()))
}

/// A number of tokens or pages.
fn whole(n: f64) -> String {
    count(n.round() as u64)
}

fn more(ns: Option<f64>) -> Cell {
    maybe(ns, |ns| signed(ns, duration))
}

fn figures(account: &RequestAccount) -> Section {
    let title = |name: &'static str| match name {
        "prompt_tokens" => "prompt tokens",
        "output_tokens" => "output tokens",
        "queue_ns" => "queue",
        "ttft_ns" => "TTFT",
        "tpot_ns" => "TPOT",
        "itl_median_ns" => "ITL, median",
        "itl_max_ns" => "ITL, longest",
        "e2e_ns" => "e2e",
        other => other,
    };
    let rows = account.beside.iter().map(|figure| {
        let show: fn(f64) -> String = if figure.name.ends_with("_ns") { duration } else { whole };
        let difference = figure.own.zip(figure.median).map(|(own, median)| own - median);
        let cells =
            vec![maybe(figure.own, show), maybe(figure.median, show), maybe(difference, |value| signed(value, show))];
        Row::new(title(figure.name), cells)
    });
    let n = count(account.like as u64);
    let columns = vec![
        column("this request", ""),
        column(format!("median of {n}"), "measured requests of its model, operation, batch and phases"),
        column("difference", ""),
    ];
    Section::new("figures", "Beside the median request", "").nav("Figures").with(Table::new(
        "",
        columns,
        rows.collect(),
    ))
}

fn parts(account: &RequestAccount, has_gpu: bool) -> Section {
    let steps = count(account.steps);
    let known = account.parts.iter().filter(|part| has_gpu || part.kind != PartKind::Gpu);
    let most = account.parts.iter().filter_map(|part| part.ns).fold(1.0, |most: f64, ns| most.max(ns));
    let mut rows: Vec<Row> = Vec::new();
    for part in known {
        let (name, meaning) = request_words::part(part.kind);
        let in_steps = part.steps.map_or(missing(), |n| cell(format!("{} of {steps}", count(n)), n as f64));
        let row = Row::new(name, vec![more(part.ns), in_steps, meaning.to_string().into()]);
        rows.push(row.meter(part.ns.unwrap_or(0.0).max(0.0) / most));
        if part.kind == PartKind::OnCpu {
            let faults = maybe(account.page_faults, |n| format!("{} pages", signed(n, whole)));
            let meaning = "part of the time on a CPU; how much of it is not known".to_string();
            rows.push(Row { depth: 1, ..Row::new("page faults", vec![faults, missing(), meaning.into()]) });
        }
    }
    if let Some(all) = account.more_ns() {
        rows.push(Row::new("together", vec![more(Some(all)), missing(), String::new().into()]));
    }
    let note = "Each of its steps is held against what is usual for the steps like it: the mean of the middle third of those of \
                its phase, its batch, and about its tokens and context. Of each part, the median over the requests like it is \
                usual. The parts add up to the difference from the median request.";
    let columns = vec![
        column("more", "than the median request"),
        column("in steps", "the fewest that hold nearly all of it"),
        sentences("what it is"),
    ];
    let rows = if account.parts.is_empty() { Vec::new() } else { rows };
    Section::new("parts", "Where the difference comes from", note)
        .brief("its steps against steps like them, the rest against the median request")
        .nav("Difference")
        .with(Table::new("", columns, rows))
        .or_say("No other request of its kind was measured.")
}

fn paths(account: &RequestAccount) -> Section {
    let largest = account.paths.iter().flatten().map(|path| path.more_ns).fold(1.0, f64::max);
    let rows = account.paths.iter().flatten().map(|path| {
        let state = |at: usize| more(path.states.map(|states| states[at]));
        let cells = vec![more(Some(path.more_ns)), state(0), state(1), state(2)];
        Row::new(path.path.clone(), cells).meter(path.more_ns / largest)
    });
    let note = format!(
        "Self time in its steps beyond the median of the steps like them. Its steps as a whole: {}, beyond what is usual for them.",
        signed(account.steps_more_ns, duration)
    );
    let columns = vec![
        column("longer", ""),
        column("on a CPU", ""),
        column("preempted", "another thread had the CPU"),
        column("waiting", "for a lock, another thread, a file"),
    ];
    Section::new("paths", "Paths that took longer", note)
        .brief("self time in its steps against the median of steps like them")
        .nav("Paths")
        .with(Table::new("path", columns, rows.collect()).of_code(44))
}

fn slowest(account: &RequestAccount) -> Section {
    let rows = account.slowest.iter().map(|step| {
        let state = |at: usize| maybe(step.states.map(|states| states[at] as f64), duration);
        let cells = vec![
            step.name.clone().into(),
            cell(duration(step.at_ns as f64), step.at_ns as f64),
            cell(duration(step.dur_ns as f64), step.dur_ns as f64),
            if step.has_like { more(Some(step.more_ns)) } else { missing() },
            state(0),
            state(1),
            state(2),
            maybe(step.page_faults.map(|n| n as f64), whole),
            maybe(step.gpu_ns.map(|ns| ns as f64), duration),
        ];
        Row::new(step.step.to_string(), cells)
    });
    let columns = vec![
        candlescope_document::words("phase"),
        column("at", "since the request began"),
        column("took", ""),
        column("more", "than is usual for the steps like it"),
        column("on CPU", ""),
        column("preempted", ""),
        column("waiting", ""),
        column("faults", "pages that the system had to provide"),
        candlescope_document::wide("GPU", "time on the device"),
    ];
    let query = account.query().map_or(String::new(), |query| format!("candlescope query \"{query}\" RUN"));
    Section::new("steps", "Its slowest steps", "Those that exceed by most what is usual for steps like them.")
        .nav("Steps")
        .with(Table::new("step", columns, rows.collect()))
        .with(Block::Fixed(query))
}
