//! What charts of a page have in common: colours that stand for those of its style, and a size that it scales.

use plotters::prelude::RGBColor;

// Placeholders, which style.css replaces.
pub(crate) const TEXT: RGBColor = RGBColor(1, 1, 1);
pub(crate) const GRID: RGBColor = RGBColor(2, 2, 2);
pub(crate) const POINT: RGBColor = RGBColor(3, 3, 3);
pub(crate) const LINE: RGBColor = RGBColor(4, 4, 4);

/// A drawing that the page scales: a viewBox in place of fixed width and height, and a class of its style.
pub(crate) fn scaled(svg: &str, (w, h): (u32, u32), class: &str) -> String {
    let fixed = format!("<svg width=\"{w}\" height=\"{h}\" viewBox=\"0 0 {w} {h}\"");
    svg.replacen(&fixed, &format!("<svg class=\"{class}\" role=\"img\" viewBox=\"0 0 {w} {h}\""), 1)
}
