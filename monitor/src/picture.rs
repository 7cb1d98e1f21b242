//! The screen as a picture: an SVG of its characters, for pages that show it.

use crate::screen::render;
use crate::state::Monitor;
use ratatui::buffer::{Buffer, Cell};
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier};
use std::fmt::Write as _;

/// Width and height of a character.
const CELL: (f64, f64) = (8.4, 17.0);
/// Around everything.
const MARGIN: f64 = 10.0;
const BACKGROUND: &str = "#16181d";
const FOREGROUND: &str = "#d4d6db";

/// What a terminal of this many columns and rows shows now, as SVG.
pub fn picture(monitor: &Monitor, columns: u16, rows: u16) -> String {
    let area = Rect::new(0, 0, columns.max(1), rows.max(1));
    let mut buffer = Buffer::empty(area);
    render(monitor, area, &mut buffer);
    svg(&buffer)
}

fn svg(buffer: &Buffer) -> String {
    let area = buffer.area;
    let (width, height) = (f64::from(area.width) * CELL.0, f64::from(area.height) * CELL.1);
    let (all_width, all_height) = (width + 2.0 * MARGIN, height + 2.0 * MARGIN);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {all_width:.0} {all_height:.0}\" width=\"{all_width:.0}\" \
         height=\"{all_height:.0}\" font-family=\"DejaVu Sans Mono, Menlo, Consolas, monospace\" font-size=\"14\">\n\
         <rect width=\"100%\" height=\"100%\" rx=\"6\" fill=\"{BACKGROUND}\"/>\n"
    );
    for y in area.top()..area.bottom() {
        let mut x = area.left();
        while x < area.right() {
            let first = &buffer[(x, y)];
            let end = (x..area.right()).find(|at| !alike(&buffer[(*at, y)], first)).unwrap_or(area.right());
            run(&mut out, buffer, y, x..end);
            x = end;
        }
    }
    out.push_str("</svg>\n");
    out
}

/// Whether two characters look alike but for what they are.
fn alike(a: &Cell, b: &Cell) -> bool {
    (a.fg, a.bg, a.modifier) == (b.fg, b.bg, b.modifier)
}

/// Characters of one style.
fn run(out: &mut String, buffer: &Buffer, y: u16, columns: std::ops::Range<u16>) {
    let cell = &buffer[(columns.start, y)];
    let (left, top) = (MARGIN + f64::from(columns.start) * CELL.0, MARGIN + f64::from(y) * CELL.1);
    let width = columns.len() as f64 * CELL.0;
    let (mut ink, mut paper) = (colour(cell.fg, FOREGROUND), colour(cell.bg, BACKGROUND));
    if cell.modifier.contains(Modifier::REVERSED) {
        std::mem::swap(&mut ink, &mut paper);
    }
    if paper != BACKGROUND {
        let _ = writeln!(
            out,
            "<rect x=\"{left:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{:.1}\" fill=\"{paper}\"/>",
            CELL.1
        );
    }
    let text: String = columns.map(|x| buffer[(x, y)].symbol()).collect();
    if text.trim().is_empty() {
        return;
    }
    let weight = if cell.modifier.contains(Modifier::BOLD) { " font-weight=\"bold\"" } else { "" };
    // The length is told, because fonts differ and lines must still meet.
    let _ = writeln!(
        out,
        "<text x=\"{left:.1}\" y=\"{:.1}\" textLength=\"{width:.1}\" lengthAdjust=\"spacingAndGlyphs\" xml:space=\"preserve\" \
         fill=\"{ink}\"{weight}>{}</text>",
        top + 13.0,
        escaped(&text)
    );
}

fn colour(of: Color, default: &'static str) -> &'static str {
    match of {
        Color::Black => "#16181d",
        Color::Green | Color::LightGreen => "#4fae62",
        Color::Yellow | Color::LightYellow => "#d8b04a",
        Color::Cyan | Color::LightCyan => "#58b4c8",
        Color::Gray => "#9a9ea8",
        Color::DarkGray => "#3d424d",
        Color::White => "#f2f3f5",
        _ => default,
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui::style::Style;

    #[test]
    fn runs_of_one_style_become_one_text() {
        let mut buffer = Buffer::empty(Rect::new(0, 0, 8, 1));
        buffer.set_string(0, 0, "a<b", Style::new());
        buffer.set_string(3, 0, "cd", Style::new().fg(Color::Green).bg(Color::DarkGray));
        let svg = svg(&buffer);
        assert!(svg.contains(">a&lt;b</text>") && svg.contains("fill=\"#4fae62\">cd</text>"), "{svg}");
        assert_eq!((svg.matches("<text").count(), svg.matches("<rect").count()), (2, 2), "{svg}");
    }
}
