//! The screen: panels for GPUs, programs and processes, drawn into a buffer of characters. Pure.

use crate::phrases::*;
use crate::plain::{no_program, program_head, program_lines, sees_no_program};
use crate::state::{GpuTrack, Monitor, ProcessTrack, ProgramTrack};
use crate::trail::Trail;
use candlescope_core::numbers::{significant, watts};
use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, BorderType, Gauge, Paragraph, Sparkline, Widget};

/// Programs and processes that have ended and are still shown.
const ENDED_SHOWN: usize = 2;
/// Rows of a curve.
const CURVE_ROWS: u16 = 2;

// The sixteen colours that every terminal has, so that its user's theme decides what they look like.
const FRAME: Style = Style::new().fg(Color::DarkGray);
const HEAD: Style = Style::new().fg(Color::Cyan).add_modifier(Modifier::BOLD);
const BAR: Style = Style::new().fg(Color::Green).bg(Color::DarkGray);
const CURVE: Style = Style::new().fg(Color::Green);
const WARN: Style = Style::new().fg(Color::Yellow);
const QUIET: Style = Style::new().fg(Color::Gray);

/// Draws everything on the whole frame.
pub fn draw(frame: &mut Frame<'_>, monitor: &Monitor) {
    let area = frame.area();
    render(monitor, area, frame.buffer_mut());
}

/// Draws into a part of the screen.
type Drawing<'a> = Box<dyn Fn(Rect, &mut Buffer) + 'a>;

/// One panel: its height with the frame, and what draws it.
struct Panel<'a> {
    height: u16,
    draw: Drawing<'a>,
}

/// Draws everything into `area`. Panels that do not fit are counted in the last line.
pub(crate) fn render(monitor: &Monitor, area: Rect, buffer: &mut Buffer) {
    let [head, body, foot] =
        Layout::vertical([Constraint::Length(1), Constraint::Min(0), Constraint::Length(1)]).areas(area);
    let top = [
        Some("candlescope monitor".to_string()),
        Some(format!("{} UTC", clock(monitor, monitor.at))),
        machine(monitor),
    ];
    Line::styled(join(top, "   ").unwrap_or_default(), HEAD).render(head, buffer);
    let (mut y, mut left_out) = (body.y, 0);
    for panel in panels(monitor) {
        if left_out > 0 || y + panel.height > body.bottom() {
            left_out += 1;
            continue;
        }
        (panel.draw)(Rect::new(body.x, y, body.width, panel.height), buffer);
        y += panel.height;
    }
    let hidden =
        (left_out > 0).then(|| format!("{} not shown: make the window higher", plural(f64::from(left_out), "panel")));
    let text = join([Some("q or Ctrl-C ends".to_string()), hidden, idle_so_far(monitor)], "   ");
    Line::styled(text.unwrap_or_default(), QUIET).render(foot, buffer);
}

fn panels(monitor: &Monitor) -> Vec<Panel<'_>> {
    let mut panels: Vec<Panel<'_>> = monitor.gpus.iter().map(gpu_panel).collect();
    panels.extend(monitor.gpu_trouble.as_ref().map(|trouble| note(format!("GPU: {trouble}"))));
    let (ended, running): (Vec<_>, Vec<_>) = monitor.programs.iter().partition(|program| program.ended.is_some());
    panels.extend(running.iter().map(|program| program_panel(monitor, program)));
    if sees_no_program(monitor) {
        panels.push(note(no_program().to_string()));
    }
    let (gone, there): (Vec<_>, Vec<_>) = monitor.other_processes().partition(|process| process.ended.is_some());
    panels.extend(there.into_iter().map(process_panel));
    // The last ones that ended, newest first.
    panels.extend(ended.iter().rev().take(ENDED_SHOWN).map(|program| program_panel(monitor, program)));
    panels.extend(gone.into_iter().rev().take(ENDED_SHOWN).map(process_panel));
    panels
}

fn idle_so_far(monitor: &Monitor) -> Option<String> {
    let rule = &monitor.rule;
    let gpus = monitor.gpus.iter().filter(|gpu| !gpu.idle.total(rule).is_zero());
    let idle = gpus.map(|gpu| Some(format!("GPU {} idle for {}", gpu.index, time(gpu.idle.total(rule)))));
    join(idle, ", ")
}

/// A line of its own, without a frame; long ones take two.
fn note<'a>(text: String) -> Panel<'a> {
    let wrapped = move |area: Rect, buffer: &mut Buffer| {
        let paragraph = Paragraph::new(text.as_str()).style(QUIET).wrap(ratatui::widgets::Wrap { trim: true });
        paragraph.render(area, buffer);
    };
    Panel { height: 2, draw: Box::new(wrapped) }
}

fn framed<'a>(title: String) -> Block<'a> {
    Block::bordered()
        .border_type(BorderType::Rounded)
        .border_style(FRAME)
        .title(Span::styled(format!(" {title} "), HEAD))
}

fn gpu_panel(gpu: &GpuTrack) -> Panel<'_> {
    let draw = move |area: Rect, buffer: &mut Buffer| {
        let block = framed(gpu_name(gpu));
        let inner = block.inner(area);
        block.render(area, buffer);
        let [bars, text, curves] =
            Layout::vertical([Constraint::Length(1), Constraint::Length(1), Constraint::Min(0)]).areas(inner);
        let f = &gpu.figures;
        let [left, right] = halves(bars);
        gauge(f.use_ratio, f.use_ratio.map(|ratio| format!("use {}", share(ratio))), left, buffer);
        let filled = f.memory_bytes.zip(f.memory_limit_bytes).filter(|(_, all)| *all > 0.0).map(|(n, all)| n / all);
        gauge(filled, gpu_memory(f).map(|text| format!("memory {text}")), right, buffer);
        let temperature = f.temperature_celsius.map(|t| format!("{t:.0} °C"));
        let mut spans = vec![Span::raw(join([power(f), clocks(f), temperature], "   ").unwrap_or_default())];
        if let Some(told) = throttling(f) {
            let held = f.throttled.as_ref().is_some_and(|reasons| !reasons.is_empty());
            spans.push(Span::styled(format!("   {told}"), if held { WARN } else { QUIET }));
        }
        Line::from(spans).render(text, buffer);
        let [left, right] = halves(curves);
        curve("use", &gpu.used, Some(1.0), share, left, buffer);
        curve("power", &gpu.power, f.power_limit_watts, watts, right, buffer);
    };
    Panel { height: 4 + CURVE_ROWS, draw: Box::new(draw) }
}

fn program_panel<'a>(monitor: &'a Monitor, program: &'a ProgramTrack) -> Panel<'a> {
    let lines: Vec<String> = program_lines(monitor, program).into_iter().flatten().collect();
    let warns = program.ended.is_some() || program.silent.is_some();
    let rows = u16::try_from(lines.len()).unwrap_or(4).max(1);
    let curve_rows = if program.ended.is_some() { 0 } else { CURVE_ROWS };
    let draw = move |area: Rect, buffer: &mut Buffer| {
        let block = framed(program_head(program));
        let inner = block.inner(area);
        block.render(area, buffer);
        let [text, below] = Layout::vertical([Constraint::Length(rows), Constraint::Min(0)]).areas(inner);
        let styled = lines
            .iter()
            .enumerate()
            .map(|(n, line)| Line::styled(line.as_str(), if n == 0 && warns { WARN } else { Style::new() }));
        Paragraph::new(styled.collect::<Vec<_>>()).render(text, buffer);
        curve("tokens/s", &program.tokens, None, significant, below, buffer);
    };
    Panel { height: 2 + rows + curve_rows, draw: Box::new(draw) }
}

fn process_panel(process: &ProcessTrack) -> Panel<'_> {
    let far = work(process);
    let rows = 1 + u16::from(far.is_some());
    let draw = move |area: Rect, buffer: &mut Buffer| {
        let block = framed(process_name(process));
        let inner = block.inner(area);
        block.render(area, buffer);
        let [text, below] = Layout::vertical([Constraint::Length(rows), Constraint::Min(0)]).areas(inner);
        let f = &process.figures;
        let ended = process.ended.map(|at| format!("has ended after {}; last:", time(at)));
        let style = if ended.is_some() { WARN } else { Style::new() };
        let figures = join([ended, cpu(f), memory(f), peak_memory(f), threads(f)], "  ");
        let lines = far.iter().cloned().chain(figures).map(|line| Line::styled(line, style));
        Paragraph::new(lines.collect::<Vec<_>>()).render(text, buffer);
        curve("CPU", &process.cpu, None, |n| format!("{n:.2}"), below, buffer);
    };
    Panel { height: 2 + rows + if process.ended.is_some() { 0 } else { CURVE_ROWS }, draw: Box::new(draw) }
}

fn halves(area: Rect) -> [Rect; 2] {
    Layout::horizontal([Constraint::Fill(1), Constraint::Fill(1)]).spacing(2).areas(area)
}

/// A bar with its text on it; only the text where the share is not known.
fn gauge(ratio: Option<f64>, label: Option<String>, area: Rect, buffer: &mut Buffer) {
    let Some(label) = label else { return };
    match ratio {
        Some(ratio) => {
            let style = Style::new().fg(Color::White).add_modifier(Modifier::BOLD);
            let label = Span::styled(label, style);
            Gauge::default().gauge_style(BAR).ratio(ratio.clamp(0.0, 1.0)).label(label).render(area, buffer);
        }
        None => Line::raw(label).render(area, buffer),
    }
}

/// The course of a figure, newest at the right, with its largest value; gaps where it was not known.
fn curve(name: &str, trail: &Trail, most: Option<f64>, shown: fn(f64) -> String, area: Rect, buffer: &mut Buffer) {
    if area.height == 0 {
        return;
    }
    let values: Vec<Option<f64>> = trail.last(usize::from(area.width)).collect();
    let Some(largest) = values.iter().flatten().copied().max_by(f64::total_cmp) else { return };
    let label = format!("{name}, most {} ", shown(largest));
    let width = u16::try_from(label.chars().count()).unwrap_or(u16::MAX).min(area.width);
    let [text, curve] = Layout::horizontal([Constraint::Length(width), Constraint::Min(0)]).areas(area);
    Line::styled(label, QUIET).render(text, buffer);
    let top = most.unwrap_or(largest).max(largest);
    // Eight steps a row: finer ones cannot be seen.
    let steps = f64::from(area.height) * 8.0;
    let height = |value: f64| if top > 0.0 { (value.max(0.0) / top * steps).round() as u64 } else { 0 };
    let columns = usize::from(curve.width);
    let bars: Vec<Option<u64>> = trail.last(columns).map(|value| value.map(height)).collect();
    Sparkline::default().data(bars).max(steps as u64).style(CURVE).render(curve, buffer);
}
