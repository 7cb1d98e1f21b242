//! The names of a chart's lines in a strip above it, where they cover nothing.

use super::palette::TEXT;
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

const ROW: i32 = 22;
const LEFT: i32 = 76;
/// Width of a letter at most, in pixels.
const LETTER: i32 = 8;

/// Where each name stands: left edge and row.
fn places(names: &[(&str, RGBColor)], width: i32) -> Vec<(i32, i32)> {
    let (mut x, mut row) = (LEFT, 0);
    let place = |(name, _): &(&str, RGBColor)| {
        let needs = 34 + LETTER * i32::try_from(name.chars().count()).unwrap_or(i32::MAX / 16);
        if x > LEFT && x.saturating_add(needs) > width {
            (x, row) = (LEFT, row + 1);
        }
        let at = (x, row);
        x = x.saturating_add(needs);
        at
    };
    names.iter().map(place).collect()
}

/// Draws the names at the top of `area` and returns what is left below them; all of it with fewer than two names.
pub fn names_above<B: DrawingBackend>(
    area: DrawingArea<B, Shift>,
    names: &[(&str, RGBColor)],
) -> Option<DrawingArea<B, Shift>> {
    if names.len() < 2 {
        return Some(area);
    }
    let width = i32::try_from(area.dim_in_pixel().0).ok()?;
    let places = places(names, width);
    let rows = places.iter().map(|(_, row)| row + 1).max()?;
    let (strip, below) = area.split_vertically(rows * ROW + 4);
    let style = ("sans-serif", 13).into_font().color(&TEXT).pos(Pos::new(HPos::Left, VPos::Center));
    for ((name, color), (x, row)) in names.iter().zip(places) {
        let y = row * ROW + ROW / 2 + 2;
        strip.draw(&Circle::new((x + 6, y), 5, color.filled())).ok()?;
        strip.draw(&Text::new((*name).to_string(), (x + 16, y), style.clone())).ok()?;
    }
    Some(below)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_need_more_than_a_row_get_another() {
        let long = "x".repeat(60);
        let names = [("a", BLACK), (long.as_str(), BLACK), ("b", BLACK)];
        assert_eq!(places(&names, 960), [(76, 0), (118, 0), (632, 0)]);
        assert_eq!(places(&names, 500), [(76, 0), (76, 1), (76, 2)]);
    }
}
