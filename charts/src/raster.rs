//! Draws charts into pixels, for PNG. plotters asks for single pixels and text; lines and shapes it makes of pixels.

use ab_glyph::{Font, FontRef, ScaleFont};
use plotters_backend::text_anchor::{HPos, VPos};
use plotters_backend::{BackendColor, BackendCoord, BackendTextStyle, DrawingBackend, DrawingErrorKind};
use std::io;

type Failure = DrawingErrorKind<io::Error>;

/// An image in the making, white at first: what [`png`](crate::png) has drawn on.
pub struct Raster<'a> {
    width: u32,
    height: u32,
    pixels: &'a mut Vec<u8>,
    font: FontRef<'static>,
}

impl<'a> Raster<'a> {
    /// An image of `size`, whose bytes (red, green, blue) go into `pixels`.
    pub(crate) fn new((width, height): (u32, u32), pixels: &'a mut Vec<u8>) -> Option<Self> {
        let font = FontRef::try_from_slice(dejavu::sans::regular()).ok()?;
        pixels.clear();
        pixels.resize(width as usize * height as usize * 3, u8::MAX);
        Some(Self { width, height, pixels, font })
    }

    /// Width of a line of text, and height of any, in pixels.
    fn text_size(&self, text: &str, size: f64) -> (f32, f32) {
        let font = self.font.as_scaled(size as f32);
        (text.chars().map(|c| font.h_advance(font.glyph_id(c))).sum(), font.height())
    }
}

/// The bytes of `pixels` as a PNG file.
pub(crate) fn png_of((width, height): (u32, u32), pixels: &[u8]) -> io::Result<Vec<u8>> {
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, width, height);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    let mut writer = encoder.write_header().map_err(io::Error::other)?;
    writer.write_image_data(pixels).map_err(io::Error::other)?;
    writer.finish().map_err(io::Error::other)?;
    Ok(file)
}

impl DrawingBackend for Raster<'_> {
    type ErrorType = io::Error;

    fn get_size(&self) -> (u32, u32) {
        (self.width, self.height)
    }

    fn ensure_prepared(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    fn present(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    fn draw_pixel(&mut self, (x, y): BackendCoord, color: BackendColor) -> Result<(), Failure> {
        let inside = |at: i32, size: u32| u32::try_from(at).ok().filter(|at| *at < size);
        if let Some((x, y)) = inside(x, self.width).zip(inside(y, self.height)) {
            let at = (y as usize * self.width as usize + x as usize) * 3;
            let (r, g, b) = color.rgb;
            for (pixel, new) in self.pixels[at..at + 3].iter_mut().zip([r, g, b]) {
                *pixel = (f64::from(*pixel) * (1.0 - color.alpha) + f64::from(new) * color.alpha).round() as u8;
            }
        }
        Ok(())
    }

    fn draw_text<S: BackendTextStyle>(&mut self, text: &str, style: &S, pos: BackendCoord) -> Result<(), Failure> {
        let (width, height) = self.text_size(text, style.size());
        let left = match style.anchor().h_pos {
            HPos::Left => 0.0,
            HPos::Center => -width / 2.0,
            HPos::Right => -width,
        };
        let top = match style.anchor().v_pos {
            VPos::Top => 0.0,
            VPos::Center => -height / 2.0,
            VPos::Bottom => -height,
        };
        let (turn, color) = (style.transform(), style.color());
        let font = self.font.clone();
        let scaled = font.as_scaled(style.size() as f32);
        let mut pen = left;
        for c in text.chars() {
            let id = scaled.glyph_id(c);
            let at = ab_glyph::point(pen, top + scaled.ascent());
            pen += scaled.h_advance(id);
            let Some(glyph) = font.outline_glyph(id.with_scale_and_position(style.size() as f32, at)) else { continue };
            let corner = glyph.px_bounds().min;
            let mut failed = Ok(());
            glyph.draw(|x, y, cover| {
                let (x, y) = turn.transform(corner.x as i32 + x as i32, corner.y as i32 + y as i32);
                let color = BackendColor { alpha: color.alpha * f64::from(cover.clamp(0.0, 1.0)), ..color };
                if failed.is_ok() {
                    failed = self.draw_pixel((pos.0 + x, pos.1 + y), color);
                }
            });
            failed?;
        }
        Ok(())
    }

    fn estimate_text_size<S: BackendTextStyle>(&self, text: &str, style: &S) -> Result<(u32, u32), Failure> {
        let (width, height) = self.text_size(text, style.size());
        Ok((width.ceil() as u32, height.ceil() as u32))
    }
}
