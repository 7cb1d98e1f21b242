//! The summary on a terminal: the most important figures, without opening a file.

use super::conclusion::verdict_line;
use super::format::{
    bytes, count, duration, head, path, percent, printable, significant, tail, utc, value, with_error,
};
use super::head_facts::{background, machine, model, model_name, overhead};
use super::headline_figures::{FigureValue, figures, interval};
use super::sheet::Sheet;
use super::text_table::text_table;
use crate::passes::Analysis;
use crate::passes::gpu_time::source_name;
use crate::passes::rates::RateErrors;
use crate::passes::tree::ratio;
use candlescope_schema::run::Severity;
use std::fmt::Write as _;

/// How the terminal summary is laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TerminalOptions {
    /// Columns it may take; at least 60.
    pub width: usize,
    /// Whether to colour headings and severities.
    pub color: bool,
    /// Rows of the tree.
    pub tree: usize,
    /// Rows of the operator table.
    pub operators: usize,
}

impl Default for TerminalOptions {
    fn default() -> Self {
        Self { width: 100, color: false, tree: 24, operators: 12 }
    }
}

/// Branches with a smaller share are left out of the tree, so that they do not hide the rest.
const SMALLEST_SHARE: f64 = 0.005;

/// The whole summary.
pub fn summary(analysis: &Analysis, options: &TerminalOptions) -> String {
    let mut out = Out { text: String::new(), options: TerminalOptions { width: options.width.max(60), ..*options } };
    out.head(analysis);
    out.advice(analysis);
    out.figures(analysis);
    out.phases(analysis);
    out.tree(analysis);
    out.operators(analysis);
    out.gpu(analysis);
    out.nsys(analysis);
    out.accounts(analysis);
    out.findings(analysis);
    out.text
}

struct Out {
    text: String,
    options: TerminalOptions,
}

impl Out {
    fn line(&mut self, line: &str) {
        self.text.push_str(line.trim_end());
        self.text.push('\n');
    }

    fn heading(&mut self, title: &str, note: &str) {
        let note = if note.is_empty() { String::new() } else { format!("  {note}") };
        let note = head(&note, self.options.width.saturating_sub(title.chars().count()));
        if self.options.color {
            let _ = write!(self.text, "\n\x1b[1m{title}\x1b[0m\x1b[2m{note}\x1b[0m\n");
        } else {
            let _ = write!(self.text, "\n{title}{note}\n");
        }
    }

    /// `label   text`, the text wrapped under itself.
    fn field(&mut self, label: &str, text: &str) {
        let indent = 11;
        for (i, line) in wrap(text, self.options.width - indent).into_iter().enumerate() {
            let label = if i == 0 { label } else { "" };
            self.line(&format!("  {label:<9}{line}"));
        }
    }

    fn table(&mut self, header: &[&str], rows: Vec<Vec<String>>, left: &[usize]) {
        let text = text_table(header, rows, left, self.options.color);
        self.line(&text);
    }

    fn head(&mut self, analysis: &Analysis) {
        let manifest = &analysis.manifest;
        self.field("run", &printable(&analysis.dir.display().to_string()));
        let first = analysis.latency.requests.first().map(|r| printable(&r.model)).filter(|m| !m.is_empty());
        let name = model_name(manifest).or(first);
        let model: Vec<String> = name.into_iter().chain(model(manifest)).collect();
        if !model.is_empty() {
            self.field("model", &model.join(" · "));
        }
        let machine = machine(manifest);
        if !machine.is_empty() {
            self.field("machine", &machine.join(" · "));
        }
        let mut what = Vec::new();
        if manifest.started_ns > 0 {
            what.push(utc(manifest.started_ns));
        }
        let requests = analysis.latency.requests.len();
        if requests > 0 {
            let warm = analysis.latency.warmup;
            let left_out = if warm > 0 { format!(" ({warm} warm-up, left out of latencies)") } else { String::new() };
            let ended = analysis.latency.outcomes_in_words().map(|words| format!(" ({words})")).unwrap_or_default();
            what.push(format!("{} requests{left_out}{ended}", count(requests as u64)));
        }
        what.push(format!("{} steps", count(analysis.rows.get("steps").copied().unwrap_or(0))));
        what.push(format!("{} intervals", count(analysis.rows.get("spans").copied().unwrap_or(0))));
        self.field("data", &what.join(" · "));
        let verdict = verdict_line(analysis);
        let verdict = match (self.options.color, analysis.verdict.ok) {
            (true, true) => format!("\x1b[32m{verdict}\x1b[0m"),
            (true, false) => format!("\x1b[31m{verdict}\x1b[0m"),
            (false, _) => verdict,
        };
        self.line(&format!("  {:<9}{verdict}", "verdict"));
    }

    /// The findings with the largest gains.
    fn advice(&mut self, analysis: &Analysis) {
        let Some(diagnosis) = &analysis.diagnosis else { return };
        let rows = super::advice::rows(diagnosis);
        if rows.is_empty() {
            return;
        }
        self.heading(
            "What to change",
            "gain: share of the unobserved step at 87.5 % (75 to 100 %) of what is attainable",
        );
        const MOST: usize = 5;
        let width = self.options.width - 4;
        for row in rows.iter().take(MOST) {
            let text = format!("{} of `{}`: {}", row.gain, printable(&row.advice.place.phase), row.words.message);
            for (nth, line) in wrap(&text, width).into_iter().enumerate() {
                self.line(&format!("  {}{line}", if nth == 0 { "" } else { "  " }));
            }
            for line in wrap(&format!("→ {}", row.words.remedy), width) {
                self.line(&format!("    {line}"));
            }
        }
        if rows.len() > MOST {
            self.line(&format!("  … and {} more: `candlescope analyze`", count((rows.len() - MOST) as u64)));
        }
    }

    fn figures(&mut self, analysis: &Analysis) {
        let figures = figures(analysis);
        if figures.is_empty() {
            return;
        }
        self.heading(
            "Latency and throughput",
            "95 % interval of the median; below 6 the range (med.: requests' medians)",
        );
        let rows = figures.iter().map(|figure| {
            let unit = figure.definition.unit;
            let show = |v: f64| value(unit, v);
            let name = figure.title();
            match figure.value {
                FigureValue::Spread(d) => vec![
                    name,
                    show(d.median),
                    interval(unit, d, true).unwrap_or_else(|| "–".to_string()),
                    d.p95.map_or("–".to_string(), show),
                    show(d.min),
                    show(d.max),
                    count(d.n as u64),
                ],
                FigureValue::Single(v, n) => {
                    let none = || "–".to_string();
                    let remark = figure.remark.map_or(none(), str::to_string);
                    vec![name, show(v), remark, none(), none(), none(), count(n as u64)]
                }
            }
        });
        self.table(&["", "median", "interval", "p95", "min", "max", "n"], rows.collect(), &[0]);
    }

    fn phases(&mut self, analysis: &Analysis) {
        let phases = &analysis.phases;
        if phases.rows.is_empty() {
            return;
        }
        let outside = phases.outside_ns().map_or("some of its steps were not recorded".to_string(), |ns| {
            format!("{} of it outside steps", percent(ratio(ns, phases.wall_ns)))
        });
        self.heading("Steps", &format!("wall {}, {outside}", duration(phases.wall_ns as f64)));
        const MOST: usize = 8;
        let rows = phases.rows.iter().take(MOST).map(|row| {
            let sampled = |v: Option<f64>, of: fn(RateErrors) -> Option<f64>| {
                with_error(optional(v), row.rate_errors.and_then(of))
            };
            let median = row.duration.as_ref().map_or("–".to_string(), |d| duration(d.median));
            let p95 = row.duration.as_ref().and_then(|d| d.p95).map_or("–".to_string(), duration);
            vec![
                tail(&printable(&row.name), 28),
                count(row.steps),
                duration(row.total_ns as f64),
                percent(row.share),
                median,
                p95,
                sampled(row.tokens_per_s, |e| e.tokens),
                sampled(row.gflops, |e| e.flops),
                sampled(row.io_gbytes, |e| e.io_bytes),
            ]
        });
        let header = ["", "steps", "total", "share", "median", "p95", "tokens/s", "GFLOP/s", "GB/s"];
        self.table(&header, rows.collect(), &[0]);
        self.more(phases.rows.len(), MOST, "kinds of step");
        let warmup = &analysis.warmup;
        if warmup.steps() > 0 {
            let rows = warmup.rows.iter().take(4).filter_map(|row| {
                let median = row.duration.as_ref()?.median;
                Some(format!("{} {} × {}", tail(&printable(&row.name), 28), count(row.steps), duration(median)))
            });
            let list = rows.collect::<Vec<_>>().join(", ");
            self.line(&format!("  warm-up, in no other figure: {list}"));
        }
    }

    fn more(&mut self, all: usize, shown: usize, what: &str) {
        if all > shown {
            self.line(&format!("  … and {} more {what}, in the report", count((all - shown) as u64)));
        }
    }

    fn tree(&mut self, analysis: &Analysis) {
        let tree = &analysis.tree;
        if tree.rows.is_empty() {
            return;
        }
        self.heading("Where the time goes", "self: of a path with children, what none of them accounts for");
        let visible: Vec<_> = tree.rows.iter().filter(|row| row.share >= SMALLEST_SHARE || row.depth == 0).collect();
        let rows = visible.iter().take(self.options.tree).map(|row| {
            let indent = "  ".repeat(row.depth.min(10));
            vec![
                format!("{indent}{}", tail(&printable(&row.label), 42usize.saturating_sub(indent.len()))),
                row.calls.map_or("–".to_string(), count),
                duration(row.total_ns as f64),
                percent(row.share),
                duration(row.self_ns as f64),
                percent(ratio(row.self_ns, tree.total_ns)),
            ]
        });
        self.table(&["", "calls", "total", "share", "self", "share"], rows.collect(), &[0]);
        let shown = visible.len().min(self.options.tree);
        self.more(tree.rows.len(), shown, "paths");
    }

    fn operators(&mut self, analysis: &Analysis) {
        let operators = &analysis.operators;
        if operators.is_empty() {
            return;
        }
        let source = operators.iter().find_map(|o| o.gpu.as_ref()).map(|g| source_name(g.source));
        let note = source.map_or(String::new(), |source| {
            format!("GPU: {source}, estimated from the measured calls; rates over GPU time")
        });
        let gpu = operators.iter().any(|o| o.gpu.is_some());
        self.heading(if gpu { "Operators by GPU time" } else { "Operators by self time" }, &note);
        let waits = gpu && operators.iter().any(|o| o.host_wait_ns.is_some());
        let launches = operators.iter().any(|o| o.launches_per_call.is_some());
        let width = match (gpu, launches) {
            (false, false) => 34,
            (false, true) => 28,
            (true, false) => 27,
            (true, true) => 16,
        };
        let rows = operators.iter().take(self.options.operators).map(|o| {
            let mut row = vec![
                if gpu || launches { path(&printable(&o.path), width) } else { tail(&printable(&o.path), width) },
                count(o.calls),
                duration(o.self_ns as f64),
            ];
            let rest = [percent(o.self_share), duration(o.total_ns as f64), optional(o.gflops), optional(o.gbytes)];
            let g = o.gpu.as_ref();
            if gpu {
                // There is no room for both.
                if !waits {
                    row.push(count(g.map_or(0, |g| g.measured)));
                }
                row.extend([
                    g.and_then(|g| g.self_ns).map_or("–".to_string(), duration),
                    g.and_then(|g| g.self_share).map_or("–".to_string(), percent),
                    optional(g.and_then(|g| g.tflops)),
                    optional(g.and_then(|g| g.gbytes)),
                ]);
            } else {
                row.extend(rest);
            }
            if launches {
                row.push(optional(o.launches_per_call));
            }
            if waits {
                row.push(o.host_wait_ns.map_or("–".to_string(), duration));
            }
            row
        });
        let mut header = vec!["", "calls", "self"];
        header.extend(match gpu {
            true if waits => &["GPU self", "share", "TFLOP/s", "GB/s"][..],
            true => &["measured", "GPU self", "share", "TFLOP/s", "GB/s"][..],
            false => &["share", "total", "GFLOP/s", "GB/s"][..],
        });
        if launches {
            header.push("launches");
        }
        if waits {
            header.push("host wait");
        }
        self.table(&header, rows.collect(), &[0]);
        self.more(operators.len(), self.options.operators, "operators");
    }

    fn gpu(&mut self, analysis: &Analysis) {
        let lines = super::gpu_sheets::lines(analysis);
        if analysis.gpu.kinds.is_empty() {
            self.peaks_of_cpu(analysis);
        }
        if !lines.is_empty() {
            self.heading("GPU", "");
        }
        for (label, text) in lines {
            self.field(label, &text);
        }
        for sheet in super::gpu_sheets::sheets(analysis) {
            let (header, rows) = sheet_table(&sheet, 30);
            let shown = rows.len();
            self.heading(sheet.title, "");
            self.table(&header, rows, &[0]);
            self.more(sheet.rows.len(), shown, sheet.what);
        }
    }

    /// On a GPU they are among its lines.
    fn peaks_of_cpu(&mut self, analysis: &Analysis) {
        let used = super::gpu_sheets::peaks(analysis);
        if !used.is_empty() {
            self.heading("Peaks", "");
            self.field("peak", &used.join("; "));
        }
    }

    fn nsys(&mut self, analysis: &Analysis) {
        let most = self.options.operators;
        if let Some(kernels) = super::nsys_table::terminal(analysis, most) {
            self.heading(super::nsys_table::TITLE, &kernels.note);
            if !kernels.rows.is_empty() {
                self.table(&kernels.header, kernels.rows, &[0]);
            }
            self.more(kernels.more, 0, "paths");
        }
    }

    fn accounts(&mut self, analysis: &Analysis) {
        let manifest = &analysis.manifest;
        self.heading("Cost and loss", "");
        self.field("overhead", &overhead(manifest).unwrap_or_else(|| "unknown".to_string()));
        if let Some(text) = background(manifest) {
            self.field("threads", &text);
        }
        let loss = &manifest.loss;
        let lost = if loss.emitted > 0 {
            format!("{} of {} intervals lost", count(loss.lost()), count(loss.emitted))
        } else {
            "loss counts unknown".to_string()
        };
        self.field("loss", &lost);
        let size: u64 = analysis.file_bytes.values().sum();
        let spans = analysis.rows.get("spans").copied().unwrap_or(0);
        let each = analysis.file_bytes.get("spans").copied().unwrap_or(0) as f64 / spans.max(1) as f64;
        let each = if spans > 0 { format!(", {each:.1} bytes an interval") } else { String::new() };
        self.field("on disk", &format!("{}{each}", bytes(size as f64)));
    }

    fn findings(&mut self, analysis: &Analysis) {
        if analysis.verdict.findings.is_empty() {
            return;
        }
        self.heading("Findings", "");
        let width = self.options.width - 4;
        const MOST: usize = 12;
        for finding in analysis.verdict.findings.iter().take(MOST) {
            let (mark, color) = match finding.severity {
                Severity::Error => ("error", "31"),
                Severity::Warning => ("warning", "33"),
                Severity::Info => ("note", "36"),
            };
            let text = format!("{mark}: {}", printable(&finding.message()));
            for (i, line) in wrap(&text, width).into_iter().enumerate() {
                let line = match (i, self.options.color) {
                    (0, true) => format!("  \x1b[{color}m{mark}\x1b[0m{}", &line[mark.len()..]),
                    (0, false) => format!("  {line}"),
                    _ => format!("    {line}"),
                };
                self.line(&line);
            }
            for line in wrap(&format!("→ {}", printable(&finding.remedy())), width) {
                self.line(&format!("    {line}"));
            }
        }
        self.more(analysis.verdict.findings.len(), MOST, "findings");
    }
}

/// Head and rows of a sheet, names cut to `width` characters.
fn sheet_table(sheet: &Sheet, width: usize) -> (Vec<&'static str>, Vec<Vec<String>>) {
    let mut header = vec![""];
    header.extend(sheet.columns.iter().filter(|c| c.in_terminal).map(|c| c.name));
    let rows = sheet.rows.iter().take(sheet.terminal_rows).map(|row| {
        let name = printable(&row.name);
        let shown = sheet.columns.iter().zip(&row.cells).filter(|(column, _)| column.in_terminal);
        let mut cells = vec![if name.contains('/') { path(&name, width) } else { head(&name, width) }];
        cells.extend(shown.map(|(_, cell)| cell.text.as_deref().map_or("–".to_string(), printable)));
        cells
    });
    (header, rows.collect())
}

fn optional(value: Option<f64>) -> String {
    value.map_or("–".to_string(), significant)
}

/// Lines of at most `width` characters, broken at spaces if there are any. Takes time with the length of the text.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    let mut used = 0;
    for word in text.split_whitespace() {
        let length = word.chars().count();
        if used > 0 && used + 1 + length <= width {
            used += 1 + length;
            let line = lines.last_mut().expect("never empty");
            line.push(' ');
            line.push_str(word);
            continue;
        }
        if used > 0 {
            lines.push(String::new());
            used = 0;
        }
        for letter in word.chars() {
            if used == width {
                lines.push(String::new());
                used = 0;
            }
            lines.last_mut().expect("never empty").push(letter);
            used += 1;
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::wrap;

    #[test]
    fn lines_keep_their_width() {
        assert_eq!(wrap("a bb ccc", 4), ["a bb", "ccc"]);
        assert_eq!(wrap("abcdefghij k", 4), ["abcd", "efgh", "ij k"]);
        assert_eq!(wrap("abcdefgh i", 4), ["abcd", "efgh", "i"]);
        assert_eq!(wrap("", 4), [""]);
    }

    #[test]
    fn a_word_of_megabytes_takes_time_with_its_length() {
        let lines = wrap(&"ä".repeat(4_000_000), 89);
        assert_eq!((lines.len(), lines[0].chars().count()), (44_944, 89));
    }
}
