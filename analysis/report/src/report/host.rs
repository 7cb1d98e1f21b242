//! What the host did inside intervals: on and off the CPU, and in which functions.

use super::super::format::{count, duration, percent};
use super::super::function_name::short;
use candlescope_document::{Block, Forms, MostRows, Row, Section, Table, cell, column, maybe, missing, wide, words};
use candlescope_figures::Analysis;
use candlescope_figures::host_time::{FunctionTime, HostTime};

/// Rows of the page.
const MOST_ROWS: usize = 500;

/// At most so many functions on a terminal and in Markdown.
pub(super) fn section(analysis: &Analysis, terminal: usize) -> Option<Section> {
    let host = analysis.host.as_ref()?;
    let section = Section::new("host", "Functions by time on the CPU", note(host)).nav("Functions");
    if host.functions.is_empty() {
        let why = host.account.error.as_deref().unwrap_or("No sample fell into a measured step.");
        return Some(section.with(Block::Text(format!("No functions are known: {why}"))));
    }
    let all = host.all.cpu_ns().max(1) as f64;
    let largest = host.functions.first().map_or(1.0, |f| f.own.cpu_ns().max(1) as f64);
    let rows = host.functions.iter().map(|f| {
        let own = f.own.cpu_ns() as f64;
        let cells = vec![
            cell(duration(own), own),
            cell(share(f, host), own / all),
            maybe(Some(f.total.cpu_ns() as f64 / all), percent),
            maybe((own > 0.0).then(|| f.own.kernel_ns as f64 / own), percent),
            cell(count(f.own.samples), f.own.samples as f64),
            f.name.crate_name.as_deref().map_or(missing(), |name| name.to_string().into()),
            if f.place.is_empty() { missing() } else { f.place.to_string().into() },
        ];
        let row = Row::new(short(&f.name.function), cells).meter(own / largest);
        Row { whole: Some(f.name.function.to_string()), ..row }
    });
    let columns = vec![
        column("self", "on a CPU"),
        column("self share", "with the standard error of counting samples").short("share"),
        column("total share", "with the functions it called").short("total"),
        column("in kernel", "part of its self time in the operating system's kernel").short("kernel"),
        wide("samples", ""),
        words("crate").only(Forms::FILES),
        words("most of it in"),
    ];
    let table = Table::new("function", columns, rows.collect()).of_code(44);
    let table = table.most(MostRows::of(terminal, 20, MOST_ROWS), "functions", "in the table `stack_samples`");
    Some(section.with(Table { sorted_by: Some(1), filter: true, ..table }))
}

fn note(host: &HostTime) -> String {
    let mut note = format!(
        "Sampled ({}): {} samples of {} on a CPU in measured steps, threads of pools included. A share has the standard error \
         that stands beside it.",
        if host.account.source.is_empty() { "of an unknown source" } else { &host.account.source },
        count(host.all.samples),
        duration(host.all.cpu_ns() as f64)
    );
    if host.shared_pool_ns > 0 {
        note.push_str(&format!(
            " {} more of a pool's threads are nobody's: several steps ran at once.",
            duration(host.shared_pool_ns as f64)
        ));
    }
    if host.account.lost > 0 {
        note.push_str(&format!(" {} samples were lost.", count(host.account.lost)));
    }
    note
}

fn share(function: &FunctionTime, host: &HostTime) -> String {
    let all = host.all.cpu_ns().max(1) as f64;
    let share = function.own.cpu_ns() as f64 / all;
    format!("{} ± {:.1}", percent(share), function.share_error(&host.all) * 100.0)
}
