//! One drawing, as SVG and as PNG.

use crate::raster::{Raster, png_of};
use plotters::coord::Shift;
use plotters::prelude::{DrawingArea, IntoDrawingArea, SVGBackend};
use std::io;

/// What `draw` draws on an area of `size` pixels, as SVG; `None` if it returns that there is nothing to draw.
pub fn svg(size: (u32, u32), draw: impl FnOnce(&DrawingArea<SVGBackend<'_>, Shift>) -> Option<()>) -> Option<String> {
    let mut text = String::new();
    draw(&SVGBackend::with_string(&mut text, size).into_drawing_area())?;
    Some(text)
}

/// The same as a PNG file.
///
/// # Errors
/// When there is nothing to draw, or it cannot be encoded.
pub fn png(size: (u32, u32), draw: impl FnOnce(&DrawingArea<Raster<'_>, Shift>) -> Option<()>) -> io::Result<Vec<u8>> {
    let mut pixels = Vec::new();
    let drawn = Raster::new(size, &mut pixels).and_then(|raster| draw(&raster.into_drawing_area()));
    drawn.ok_or_else(|| io::Error::other("the chart cannot be drawn"))?;
    png_of(size, &pixels)
}
