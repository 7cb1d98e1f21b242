//! What the host did inside intervals: on and off the CPU, and in which functions.

use super::super::format::{count, duration, percent};
use candlescope_document::{Block, Forms, Most, Row, Section, Table, cell, column, maybe, missing, wide, words};
use candlescope_figures::Analysis;
use candlescope_figures::host_time::{FrameName, FunctionTime, HostTime};

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
        let row = Row::new(short(&f.name), cells).meter(own / largest);
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
    let table = table.most(Most::of(terminal, 20, MOST_ROWS), "functions", "in the table `stack_samples`");
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

/// The last two parts of a path, without the arguments of generics: what tells a function in a narrow column.
pub(super) fn short(name: &FrameName) -> String {
    // `<Type as Trait>::f` is the type's.
    let qualified = name.function.strip_prefix('<').and_then(|inner| {
        let close = closing(inner)?;
        let of = inner[..close].split(" as ").next().unwrap_or_default();
        Some(format!("{}{}", without_arguments(of), without_arguments(&inner[close + 1..])))
    });
    let plain = qualified.unwrap_or_else(|| without_arguments(&name.function));
    let parts: Vec<&str> = plain.split("::").filter(|part| !part.is_empty()).collect();
    let tail = parts[parts.len().saturating_sub(2)..].join("::");
    if tail.is_empty() { name.function.to_string() } else { tail }
}

/// Where the bracket ends that was opened before the text.
fn closing(text: &str) -> Option<usize> {
    let mut depth = 1usize;
    text.char_indices().find_map(|(at, c)| {
        match c {
            '<' => depth += 1,
            '>' => depth -= 1,
            _ => {}
        }
        (depth == 0).then_some(at)
    })
}

fn without_arguments(text: &str) -> String {
    let mut depth = 0usize;
    text.chars()
        .filter(|c| {
            match c {
                '<' => depth += 1,
                '>' if depth > 0 => {
                    depth -= 1;
                    return false;
                }
                _ => {}
            }
            depth == 0
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_told_by_the_end_of_their_path() {
        let of = |function: &str| short(&FrameName { function: function.into(), crate_name: None });
        assert_eq!(of("candle_core::tensor::Tensor::matmul"), "Tensor::matmul");
        assert_eq!(of("gemm_f32::gemm::f32::fma::gemm_basic"), "fma::gemm_basic");
        assert_eq!(of("core::slice::iter::Iter<T>::new"), "Iter::new");
        assert_eq!(of("syscall"), "syscall");
        assert_eq!(of("[libfoo.so]"), "[libfoo.so]");
        assert_eq!(of("<alloc::sync::Arc<T> as core::ops::Drop>::drop"), "Arc::drop");
    }
}
