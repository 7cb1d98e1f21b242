//! Images as a model takes them: read from a file and scaled to whole patches, or random.

use candlescope_core::files::read_limited;
use rand::{Rng, SeedableRng, rngs::StdRng};
use std::path::{Path, PathBuf};

/// Largest file, in bytes: a page scanned at a high resolution has a tenth of it.
const MAX_FILE: u64 = 256 << 20;

/// Largest number of pixels that are decoded, a square of 8,192.
#[cfg(feature = "images")]
const MAX_PIXELS: usize = 1 << 26;

/// Most that one side may be longer than the other, by which PaddleOCR's own processor refuses an image.
const MAX_RATIO: usize = 200;

/// Why there is no image.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "its messages say what the fields are")]
pub enum ImageError {
    /// The file is missing, or cannot be read.
    #[error("image {path} cannot be read: {cause}; give a PNG or JPEG file", path = path.display())]
    Unreadable { path: PathBuf, cause: std::io::Error },
    /// It begins as no PNG and no JPEG does.
    #[error("image {path} is neither PNG nor JPEG; convert it to one of them", path = path.display())]
    Format { path: PathBuf },
    /// Its decoder refuses it.
    #[error("image {path} is damaged: {reason}; save it again, as PNG or JPEG", path = path.display())]
    Damaged {
        path: PathBuf,
        /// What the decoder says.
        reason: String,
    },
    /// It is too large, or too long.
    #[error("image {path} has {width} × {height} pixels, and {most}: scale or cut it", path = path.display())]
    Size {
        path: PathBuf,
        /// Pixels of a row.
        width: usize,
        /// Pixels of a column.
        height: usize,
        most: String,
    },
    /// The build has no decoders.
    #[error(
        "image {path} cannot be decoded: this build was made without the feature `images`; build with it, or leave the \
         image out for a random one", path = path.display()
    )]
    NoDecoder { path: PathBuf },
}

/// The sizes that a model takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame {
    /// Both sides are multiples of so many pixels.
    pub multiple: usize,
    /// Fewest pixels in all.
    pub least: usize,
    /// Most pixels in all.
    pub most: usize,
}

impl Frame {
    /// Height and width to which an image is scaled: about its own ratio, and within the model's limits. `None` if one
    /// side is more than 200 times as long as the other, or empty.
    pub fn fit(&self, height: usize, width: usize) -> Option<(usize, usize)> {
        let (long, short) = (height.max(width), height.min(width));
        if short == 0 || long > short.saturating_mul(MAX_RATIO) {
            return None;
        }
        let (h, w, unit) = (height as f64, width as f64, self.multiple as f64);
        // A small image grows until each side has a patch.
        let grown = (unit / h.min(w)).max(1.);
        let sides = |scale: f64, round: fn(f64) -> f64| {
            let side = |length: f64| (round(length * scale / unit).max(1.) as usize) * self.multiple;
            (side(h), side(w))
        };
        let near = sides(grown, f64::round);
        Some(match near.0 * near.1 {
            pixels if pixels > self.most => {
                let (h, w) = sides((self.most as f64 / (h * w)).sqrt(), f64::floor);
                // A side that could not shrink below a patch leaves less for the other.
                let beside = |side: usize| (self.most / side / self.multiple).max(1) * self.multiple;
                (h.min(beside(w)), w.min(beside(h)))
            }
            pixels if pixels < self.least => sides((self.least as f64 / (h * w)).sqrt(), f64::ceil),
            _ => near,
        })
    }

    /// Side of the smallest square.
    pub fn smallest_square(&self) -> usize {
        let side = (self.least as f64).sqrt().ceil() as usize;
        side.div_ceil(self.multiple).max(1) * self.multiple
    }
}

/// What an image file holds, at its own size.
#[derive(Debug, Clone)]
pub struct Picture {
    path: PathBuf,
    rgb: Vec<[u8; 3]>,
    width: usize,
    height: usize,
}

impl Picture {
    /// Reads a PNG or a JPEG file. Transparency is ignored.
    ///
    /// # Errors
    /// If the file cannot be read or decoded, or is too large, or the build lacks the feature `images`.
    pub fn read(path: &Path) -> Result<Self, ImageError> {
        let bytes =
            read_limited(path, MAX_FILE).map_err(|cause| ImageError::Unreadable { path: path.to_path_buf(), cause })?;
        decode(path, &bytes)
    }
}

/// An image in a model's size: three planes of red, green and blue, each from −1 to 1.
#[derive(Debug, Clone, PartialEq)]
pub struct Image {
    planes: Vec<f32>,
    height: usize,
    width: usize,
}

impl Image {
    /// A picture scaled to `frame`, with a Catmull-Rom filter.
    ///
    /// # Errors
    /// If one side is more than 200 times as long as the other.
    pub fn scaled(picture: &Picture, frame: &Frame) -> Result<Self, ImageError> {
        let refused =
            |most| ImageError::Size { path: picture.path.clone(), width: picture.width, height: picture.height, most };
        let (height, width) = frame
            .fit(picture.height, picture.width)
            .ok_or_else(|| refused(format!("one side may be at most {MAX_RATIO} times as long as the other")))?;
        let rgb = scale(picture, height, width).map_err(refused)?;
        let mut planes = vec![0f32; 3 * height * width];
        for (i, pixel) in rgb.iter().enumerate() {
            for (channel, value) in pixel.iter().enumerate() {
                planes[channel * height * width + i] = f32::from(*value) / 127.5 - 1.;
            }
        }
        Ok(Self { planes, height, width })
    }

    /// Seeded random pixels: the smallest square that fits `frame`.
    pub fn random(frame: &Frame, seed: u64) -> Self {
        let side = frame.smallest_square();
        let mut rng = StdRng::seed_from_u64(seed);
        let planes = (0..3 * side * side).map(|_| rng.random_range(-1.0f32..1.0)).collect();
        Self { planes, height: side, width: side }
    }

    /// Pixels of a column and of a row.
    pub const fn size(&self) -> (usize, usize) {
        (self.height, self.width)
    }

    /// Red, green and blue, each row by row.
    pub fn planes(&self) -> &[f32] {
        &self.planes
    }
}

#[cfg(not(feature = "images"))]
fn decode(path: &Path, _: &[u8]) -> Result<Picture, ImageError> {
    Err(ImageError::NoDecoder { path: path.to_path_buf() })
}

#[cfg(not(feature = "images"))]
fn scale(picture: &Picture, _: usize, _: usize) -> Result<Vec<[u8; 3]>, String> {
    Ok(picture.rgb.clone())
}

#[cfg(feature = "images")]
fn decode(path: &Path, bytes: &[u8]) -> Result<Picture, ImageError> {
    let damaged = |reason: String| ImageError::Damaged { path: path.to_path_buf(), reason };
    let within = |width: usize, height: usize| match width.checked_mul(height) {
        Some(1..=MAX_PIXELS) => Ok(()),
        _ => {
            let most = format!("at most {MAX_PIXELS} are decoded, and at least one");
            Err(ImageError::Size { path: path.to_path_buf(), width, height, most })
        }
    };
    // Both decoders are fuzzed, and a panic would still cost what was recorded.
    let panicked = |reason| damaged(format!("its decoder panicked ({reason})"));
    let picture = match bytes {
        [0x89, b'P', b'N', b'G', ..] => crate::untrusted::caught(|| png(bytes, &damaged, &within)).map_err(panicked)?,
        [0xff, 0xd8, 0xff, ..] => crate::untrusted::caught(|| jpeg(bytes, &damaged, &within)).map_err(panicked)?,
        _ => Err(ImageError::Format { path: path.to_path_buf() }),
    };
    picture.map(|(rgb, width, height)| Picture { path: path.to_path_buf(), rgb, width, height })
}

#[cfg(feature = "images")]
type DamageError<'a> = &'a dyn Fn(String) -> ImageError;
#[cfg(feature = "images")]
type Pixels = (Vec<[u8; 3]>, usize, usize);
#[cfg(feature = "images")]
type SizeCheck<'a> = &'a dyn Fn(usize, usize) -> Result<(), ImageError>;

#[cfg(feature = "images")]
fn png(bytes: &[u8], damaged: DamageError<'_>, within: SizeCheck<'_>) -> Result<Pixels, ImageError> {
    use png::{ColorType, Transformations};
    let mut decoder = png::Decoder::new_with_limits(std::io::Cursor::new(bytes), png::Limits { bytes: 8 * MAX_PIXELS });
    decoder.set_transformations(Transformations::normalize_to_color8());
    let header = decoder.read_header_info().map_err(|error| damaged(error.to_string()))?;
    let (width, height) = (header.width as usize, header.height as usize);
    within(width, height)?;
    let mut reader = decoder.read_info().map_err(|error| damaged(error.to_string()))?;
    let size = reader.output_buffer_size().ok_or_else(|| damaged("its size is beyond memory".into()))?;
    let mut data = vec![0; size];
    let frame = reader.next_frame(&mut data).map_err(|error| damaged(error.to_string()))?;
    data.truncate(frame.buffer_size());
    let rgb = match frame.color_type {
        ColorType::Grayscale => data.iter().map(|v| [*v; 3]).collect(),
        ColorType::GrayscaleAlpha => data.chunks_exact(2).map(|v| [v[0]; 3]).collect(),
        ColorType::Rgb => data.as_chunks::<3>().0.to_vec(),
        ColorType::Rgba => data.chunks_exact(4).map(|v| [v[0], v[1], v[2]]).collect(),
        // Palettes are expanded by the transformation above.
        ColorType::Indexed => return Err(damaged("its palette was not expanded".into())),
    };
    whole(rgb, width, height, damaged)
}

#[cfg(feature = "images")]
fn jpeg(bytes: &[u8], damaged: DamageError<'_>, within: SizeCheck<'_>) -> Result<Pixels, ImageError> {
    use zune_jpeg::zune_core::{bytestream::ZCursor, colorspace::ColorSpace, options::DecoderOptions};
    let options = DecoderOptions::new_safe()
        .set_strict_mode(true)
        .set_max_width(MAX_PIXELS)
        .set_max_height(MAX_PIXELS)
        .jpeg_set_out_colorspace(ColorSpace::RGB);
    let mut decoder = zune_jpeg::JpegDecoder::new_with_options(ZCursor::new(bytes), options);
    decoder.decode_headers().map_err(|error| damaged(error.to_string()))?;
    let info = decoder.info().ok_or_else(|| damaged("it has no size".into()))?;
    let (width, height) = (usize::from(info.width), usize::from(info.height));
    within(width, height)?;
    let data = decoder.decode().map_err(|error| damaged(error.to_string()))?;
    whole(data.as_chunks::<3>().0.to_vec(), width, height, damaged)
}

#[cfg(feature = "images")]
fn whole(rgb: Vec<[u8; 3]>, width: usize, height: usize, damaged: DamageError<'_>) -> Result<Pixels, ImageError> {
    if rgb.len() == width * height {
        Ok((rgb, width, height))
    } else {
        Err(damaged(format!("it has {} pixels instead of {width} × {height}", rgb.len())))
    }
}

#[cfg(feature = "images")]
fn scale(picture: &Picture, height: usize, width: usize) -> Result<Vec<[u8; 3]>, String> {
    use resize::px::RGB;
    if (picture.height, picture.width) == (height, width) {
        return Ok(picture.rgb.clone());
    }
    let from: Vec<RGB<u8>> = picture.rgb.iter().map(|[r, g, b]| RGB { r: *r, g: *g, b: *b }).collect();
    let mut to = vec![RGB { r: 0, g: 0, b: 0 }; height * width];
    resize::new(picture.width, picture.height, width, height, resize::Pixel::RGB8, resize::Type::Catrom)
        .and_then(|mut resizer| resizer.resize(&from, &mut to))
        .map_err(|error| error.to_string())?;
    Ok(to.into_iter().map(|pixel| [pixel.r, pixel.g, pixel.b]).collect())
}
