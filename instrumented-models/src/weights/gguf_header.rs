//! Walks through a GGUF header before candle reads it: values that candle would divide by, allocate or recurse into are
//! checked here against the file's size and the limits below. Only one key or name is kept at a time.

use std::io::{self, BufReader, Read, Seek};

/// Longest header, in bytes. The header of a vocabulary of 256,000 tokens with its merges has about 15 MB.
const MAX_HEADER: u64 = 256 << 20;
/// Most tensors of a file.
const MAX_TENSORS: u64 = 65_536;
/// Most metadata entries of a file.
const MAX_ENTRIES: u64 = 65_536;
/// Most elements of all metadata arrays together; candle takes 32 bytes of memory for each, whatever its size in the
/// file.
const MAX_ELEMENTS: u64 = 8 << 20;
/// Longest key, and longest name of a tensor, in bytes; the format's own limit for keys.
const MAX_NAME: u64 = 65_535;
/// Most dimensions of a tensor; the format's own limit.
const MAX_DIMENSIONS: u32 = 4;
/// Deepest array within an array.
const MAX_DEPTH: u32 = 8;
/// Largest alignment of tensors, in bytes. 32 is usual.
const MAX_ALIGNMENT: u64 = 1 << 20;

/// Metadata type numbers of the format.
const STRING: u32 = 8;
const ARRAY: u32 = 9;

/// What is wrong with a header.
#[derive(Debug)]
pub(super) enum Fault {
    /// It cannot be read.
    Read(io::Error),
    /// Something in it ends beyond the end of the file.
    Truncated { what: String, needed: u64 },
    /// It is not a GGUF header.
    Not(String),
}

/// Checks the header that `reader` is at the beginning of; the file has `length` bytes.
pub(super) fn check<R: Read + Seek>(reader: &mut BufReader<R>, length: u64) -> Result<(), Fault> {
    let mut walk = HeaderReader { reader, length, at: 0, wide: true, elements: 0 };
    let start = walk.take::<8>("the header")?;
    let version = u32::from_le_bytes([start[4], start[5], start[6], start[7]]);
    if &start[..4] != b"GGUF" || !(1..=3).contains(&version) {
        return Err(Fault::Not(format!("its version is {version}; versions 1 to 3 are read, little-endian")));
    }
    walk.wide = version > 1;
    let tensors = walk.count("the header's count of tensors")?;
    let entries = walk.count("the header's count of metadata")?;
    for (what, count, most) in [("tensors", tensors, MAX_TENSORS), ("metadata entries", entries, MAX_ENTRIES)] {
        if count > most {
            return Err(Fault::Not(format!("its header claims {count} {what}, more than the limit of {most}")));
        }
    }
    for index in 0..entries {
        let key = walk.name(&format!("metadata entry {index}"))?;
        let what = format!("the header (`{key}`)");
        let kind = walk.number(&what)?;
        if key == "general.alignment" {
            walk.alignment(kind, &what)?;
        } else {
            walk.value(kind, &what, 0)?;
        }
    }
    for index in 0..tensors {
        let name = walk.name(&format!("tensor {index}"))?;
        let what = format!("the header (tensor `{name}`)");
        let dimensions = walk.number(&what)?;
        if dimensions > MAX_DIMENSIONS {
            return Err(Fault::Not(format!("tensor `{name}` has {dimensions} dimensions, more than {MAX_DIMENSIONS}")));
        }
        let width = if walk.wide { 8 } else { 4 };
        // The dimensions, the element type, the offset.
        walk.skip(u64::from(dimensions) * width + 4 + 8, &what)?;
    }
    Ok(())
}

struct HeaderReader<'a, R> {
    reader: &'a mut BufReader<R>,
    length: u64,
    at: u64,
    /// Whether lengths have 8 bytes (versions 2 and 3) instead of 4.
    wide: bool,
    /// Array elements so far.
    elements: u64,
}

impl<R: Read + Seek> HeaderReader<'_, R> {
    /// Fails if the next `bytes` are beyond the end of the file, or beyond the longest header.
    fn room(&self, bytes: u64, what: &str) -> Result<u64, Fault> {
        let end = self.at.saturating_add(bytes);
        if end > self.length {
            return Err(Fault::Truncated { what: what.to_string(), needed: end });
        }
        if end > MAX_HEADER {
            return Err(Fault::Not(format!("{what} ends at byte {end}, beyond the limit of {MAX_HEADER} for headers")));
        }
        Ok(end)
    }

    fn take<const N: usize>(&mut self, what: &str) -> Result<[u8; N], Fault> {
        let end = self.room(N as u64, what)?;
        let mut bytes = [0; N];
        self.reader.read_exact(&mut bytes).map_err(Fault::Read)?;
        self.at = end;
        Ok(bytes)
    }

    fn skip(&mut self, bytes: u64, what: &str) -> Result<(), Fault> {
        self.at = self.room(bytes, what)?;
        // Below MAX_HEADER, hence within an i64.
        self.reader.seek_relative(bytes as i64).map_err(Fault::Read)
    }

    fn number(&mut self, what: &str) -> Result<u32, Fault> {
        self.take(what).map(u32::from_le_bytes)
    }

    fn count(&mut self, what: &str) -> Result<u64, Fault> {
        if self.wide { self.take(what).map(u64::from_le_bytes) } else { self.number(what).map(u64::from) }
    }

    /// A key or a tensor's name; `which` describes it by its number.
    fn name(&mut self, which: &str) -> Result<String, Fault> {
        let what = format!("the header ({which})");
        let bytes = self.count(&what)?;
        if bytes > MAX_NAME {
            return Err(Fault::Not(format!(
                "the name of {which} claims {bytes} bytes, more than the limit of {MAX_NAME}"
            )));
        }
        let end = self.room(bytes, &what)?;
        let mut name = vec![0; bytes as usize];
        self.reader.read_exact(&mut name).map_err(Fault::Read)?;
        self.at = end;
        Ok(String::from_utf8_lossy(&name).trim_end_matches('\0').escape_debug().to_string())
    }

    /// Skips a value of type `kind`.
    fn value(&mut self, kind: u32, what: &str, depth: u32) -> Result<(), Fault> {
        match kind {
            STRING => {
                let bytes = self.count(what)?;
                self.skip(bytes, what)
            }
            ARRAY => {
                if depth == MAX_DEPTH {
                    return Err(Fault::Not(format!("{what} nests arrays deeper than {MAX_DEPTH}")));
                }
                let (kind, count) = (self.number(what)?, self.count(what)?);
                self.elements = self.elements.saturating_add(count);
                if self.elements > MAX_ELEMENTS {
                    let all = self.elements;
                    return Err(Fault::Not(format!(
                        "{what} brings its metadata to {all} array elements, more than the limit of {MAX_ELEMENTS}"
                    )));
                }
                match fixed_size(kind) {
                    Some(size) => self.skip(count * size, what),
                    None => (0..count).try_for_each(|_| self.value(kind, what, depth + 1)),
                }
            }
            kind => match fixed_size(kind) {
                Some(size) => self.skip(size, what),
                None => Err(Fault::Not(format!("{what} has a value of the unknown type {kind}"))),
            },
        }
    }

    /// Reads `general.alignment`, which candle divides by.
    fn alignment(&mut self, kind: u32, what: &str) -> Result<(), Fault> {
        let alignment = match kind {
            0 => i64::from(self.take::<1>(what)?[0]),
            1 => i64::from(i8::from_le_bytes(self.take(what)?)),
            2 => i64::from(u16::from_le_bytes(self.take(what)?)),
            3 => i64::from(i16::from_le_bytes(self.take(what)?)),
            4 => i64::from(u32::from_le_bytes(self.take(what)?)),
            5 => i64::from(i32::from_le_bytes(self.take(what)?)),
            other => {
                return Err(Fault::Not(format!(
                    "`general.alignment` is of type {other}, not a whole number of 32 bits"
                )));
            }
        };
        match u64::try_from(alignment) {
            Ok(alignment) if alignment.is_power_of_two() && alignment <= MAX_ALIGNMENT => Ok(()),
            _ => Err(Fault::Not(format!(
                "`general.alignment` is {alignment}; it must be a power of two of at most {MAX_ALIGNMENT}; convert the \
                 model again"
            ))),
        }
    }
}

/// Bytes of a value that is neither a string nor an array.
fn fixed_size(kind: u32) -> Option<u64> {
    Some(match kind {
        0 | 1 | 7 => 1,
        2 | 3 => 2,
        4..=6 => 4,
        10..=12 => 8,
        _ => return None,
    })
}
