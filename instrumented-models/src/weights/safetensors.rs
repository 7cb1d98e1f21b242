//! Weights from a directory of safetensors files.
//!
//! Tensors are read one by one from the files, so that at most one is held twice, and files are not mapped: a change to
//! a mapped file is undefined behaviour.

use super::{WeightError, WeightSource};
use candle_core::{DType, Device, Tensor};
use candlescope_core::files::open_regular;
use serde::Deserialize;
use serde::de::{Deserializer, Error, IgnoredAny, MapAccess, Visitor};
use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// Largest header accepted, in bytes; the format's own limit.
const MAX_HEADER: u64 = 100_000_000;

#[derive(Debug, Clone, Deserialize)]
struct Entry {
    dtype: String,
    shape: Vec<usize>,
    data_offsets: [u64; 2],
}

/// A header's entries by name. Parsed without an intermediate tree of JSON values, which would take many times the
/// header's size.
#[derive(Debug)]
struct Header(Vec<(String, Entry)>);

impl<'de> Deserialize<'de> for Header {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = Header;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of tensors")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Header, A::Error> {
                let mut entries = Vec::new();
                while let Some(name) = map.next_key::<String>()? {
                    if name == "__metadata__" {
                        map.next_value::<IgnoredAny>()?;
                        continue;
                    }
                    let entry = map.next_value().map_err(|e| A::Error::custom(format!("entry `{name}`: {e}")))?;
                    entries.push((name, entry));
                }
                Ok(Header(entries))
            }
        }
        deserializer.deserialize_map(Entries)
    }
}

#[derive(Debug)]
struct TensorLocation {
    file: usize,
    entry: Entry,
    start: u64,
}

/// All safetensors files of a directory as one source.
#[derive(Debug)]
pub struct SafetensorsDir {
    directory: PathBuf,
    files: Vec<(PathBuf, File)>,
    places: BTreeMap<String, TensorLocation>,
    dtype: DType,
    device: Device,
}

impl SafetensorsDir {
    /// Opens every `*.safetensors` file of `directory` and reads their headers; tensors will be converted to `dtype` on
    /// `device`. Fails if there is none, or if one is not a safetensors file or is truncated.
    pub fn open(directory: &Path, dtype: DType, device: &Device) -> Result<Self, WeightError> {
        let read = |cause| WeightError::Read { path: directory.to_path_buf(), cause };
        let mut paths = Vec::new();
        for entry in std::fs::read_dir(directory).map_err(read)? {
            let path = entry.map_err(read)?.path();
            if path.extension().is_some_and(|e| e == "safetensors") {
                paths.push(path);
            }
        }
        paths.sort();
        if paths.is_empty() {
            return Err(WeightError::NotA {
                path: directory.to_path_buf(),
                expected: "model directory with a *.safetensors",
                reason: "there is none in it; pass a directory with config.json and *.safetensors, or a .gguf file"
                    .into(),
            });
        }
        let mut source = Self {
            directory: directory.to_path_buf(),
            files: Vec::new(),
            places: BTreeMap::new(),
            dtype,
            device: device.clone(),
        };
        for path in paths {
            source.add(path)?;
        }
        Ok(source)
    }

    fn add(&mut self, path: PathBuf) -> Result<(), WeightError> {
        let read = |cause| WeightError::Read { path: path.clone(), cause };
        let not = |reason: String| WeightError::NotA { path: path.clone(), expected: "safetensors", reason };
        let mut file = open_regular(&path).map_err(read)?;
        let length = file.metadata().map_err(read)?.len();
        let truncated = |what: &str, needed| WeightError::Truncated {
            path: path.clone(),
            what: what.into(),
            needed,
            actual: length,
        };
        if length < 8 {
            return Err(truncated("the header", 8));
        }
        let mut size = [0u8; 8];
        file.read_exact(&mut size).map_err(read)?;
        let size = u64::from_le_bytes(size);
        if size > MAX_HEADER {
            return Err(not(format!("its header claims {size} bytes; is it another format, or a Git LFS pointer?")));
        }
        if 8 + size > length {
            return Err(truncated("the header", 8 + size));
        }
        let mut header = vec![0u8; size as usize];
        file.read_exact(&mut header).map_err(read)?;
        let Header(entries) =
            serde_json::from_slice(&header).map_err(|e| not(format!("its header cannot be read: {e}")))?;
        drop(header);
        let index = self.files.len();
        let mut all = 0u64;
        for (name, entry) in entries {
            let [begin, end] = entry.data_offsets;
            let needed = (8 + size).saturating_add(end);
            if begin > end {
                return Err(not(format!("entry `{name}` ends before it begins")));
            }
            if needed > length {
                return Err(truncated(&format!("tensor `{name}`"), needed));
            }
            all = all.saturating_add(end - begin);
            self.places.insert(name, TensorLocation { file: index, entry, start: 8 + size + begin });
        }
        if all > length {
            return Err(not(format!("its tensors have {all} bytes in a file of {length}: they overlap")));
        }
        self.files.push((path, file));
        Ok(())
    }

    /// Bytes of all tensors as stored.
    pub fn stored_bytes(&self) -> u64 {
        self.places.values().map(|p| p.entry.data_offsets[1] - p.entry.data_offsets[0]).sum()
    }
}

/// The element types we read.
fn parse_dtype(word: &str) -> Option<DType> {
    Some(match word {
        "F64" => DType::F64,
        "F32" => DType::F32,
        "F16" => DType::F16,
        "BF16" => DType::BF16,
        "F8_E4M3" => DType::F8E4M3,
        _ => return None,
    })
}

impl WeightSource for SafetensorsDir {
    fn contains(&self, name: &str) -> bool {
        self.places.contains_key(name)
    }

    fn dense(&mut self, name: &str, shape: &[usize]) -> Result<Tensor, WeightError> {
        let Some(place) = self.places.get(name) else {
            return Err(WeightError::MissingTensor { tensor: name.to_string(), path: self.directory.clone() });
        };
        let (path, file) = &mut self.files[place.file];
        if place.entry.shape != shape {
            return Err(WeightError::Shape {
                tensor: name.to_string(),
                path: path.clone(),
                actual: place.entry.shape.clone(),
                expected: shape.to_vec(),
            });
        }
        let not = |reason: String| WeightError::NotA { path: path.clone(), expected: "float safetensors", reason };
        let Some(dtype) = parse_dtype(&place.entry.dtype) else {
            return Err(not(format!(
                "tensor `{name}` is {}; only F64, F32, F16, BF16 and F8_E4M3 are read, quantised weights come as GGUF",
                place.entry.dtype
            )));
        };
        let bytes = place.entry.data_offsets[1] - place.entry.data_offsets[0];
        let mut sizes = shape.iter().copied().chain([dtype.size_in_bytes()]);
        let expected = sizes.try_fold(1usize, usize::checked_mul).map(|bytes| bytes as u64);
        if expected != Some(bytes) {
            let expected = expected.map_or("more than there can be".into(), |bytes| bytes.to_string());
            return Err(not(format!("tensor `{name}` has {bytes} bytes where its shape needs {expected}")));
        }
        let mut data = vec![0u8; bytes as usize];
        file.seek(SeekFrom::Start(place.start))
            .and_then(|_| file.read_exact(&mut data))
            .map_err(|cause| WeightError::Read { path: path.clone(), cause })?;
        Tensor::from_raw_buffer(&data, dtype, shape, &self.device)
            .and_then(|t| t.to_dtype(self.dtype))
            .map_err(super::tensor_error(name))
    }
}
