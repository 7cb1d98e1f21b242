//! The colours of all charts: apart for the colour-blind as well [Okabe and Ito, *Color Universal Design*, 2008].

use plotters::style::RGBColor;

/// Names, numbers and intervals.
pub const TEXT: RGBColor = RGBColor(40, 40, 40);
/// Lines behind what is drawn.
pub(crate) const GRID: RGBColor = RGBColor(215, 215, 215);
/// What a chart is about; the first line.
pub const BLUE: RGBColor = RGBColor(0, 114, 178);
/// What it is held against; the second line.
pub const VERMILION: RGBColor = RGBColor(213, 94, 0);
/// The third line.
pub const GREEN: RGBColor = RGBColor(0, 158, 115);
/// What counts less.
pub const GREY: RGBColor = RGBColor(190, 190, 190);

/// The lines of a chart, in their order.
pub const SERIES: [RGBColor; 6] =
    [BLUE, VERMILION, GREEN, RGBColor(204, 121, 167), RGBColor(230, 159, 0), RGBColor(86, 180, 233)];
