//! A directory with prompts: described by its metadata, or by what lies in it.

use crate::dataset_error::DatasetError;
use crate::forms::{file, image, text_of};
use crate::paths::{extension, is_image, within};
use crate::prompt::{Content, Prompt};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Describe a directory: its variants, and which of them is the default.
const METADATA: [&str; 2] = ["metadata.toml", "metadata.json"];

/// What the metadata says. Further keys, such as `name`, `description` and `license`, are for people.
#[derive(Deserialize)]
struct Metadata {
    default: Option<String>,
    variants: Option<BTreeMap<String, NamedFile>>,
}

/// A variant: its file or directory.
#[derive(Deserialize)]
#[serde(untagged)]
enum NamedFile {
    File(String),
    Described {
        file: String,
        /// The line between two prompts of a plain text.
        separator: Option<String>,
    },
}

/// What a variant is made of.
struct Variant {
    path: PathBuf,
    separator: Option<String>,
}

impl Variant {
    fn plain(path: PathBuf) -> Self {
        Self { path, separator: None }
    }

    fn read(&self) -> Result<Vec<Prompt>, DatasetError> {
        if self.path.is_dir() { undescribed(&self.path, None) } else { file(&self.path, self.separator.as_deref()) }
    }
}

/// A directory: with metadata, the file of a variant; else its one file of JSON, its texts, or its images, each of them
/// a prompt.
pub(crate) fn read(path: &Path, variant: Option<&str>) -> Result<Vec<Prompt>, DatasetError> {
    let metadata: Vec<PathBuf> = METADATA.iter().map(|name| path.join(name)).filter(|at| at.is_file()).collect();
    match metadata.as_slice() {
        [] => undescribed(path, variant),
        [one] => described(path, one, variant),
        _ => Err(DatasetError::Entry {
            path: path.to_path_buf(),
            place: "metadata".to_string(),
            why: format!("it has {}: keep one of them", METADATA.join(" and ")),
        }),
    }
}

fn undescribed(path: &Path, variant: Option<&str>) -> Result<Vec<Prompt>, DatasetError> {
    let cause = |cause| DatasetError::Read { path: path.to_path_buf(), cause };
    let mut files = BTreeMap::new();
    let (mut texts, mut images) = (Vec::new(), Vec::new());
    for entry in std::fs::read_dir(path).map_err(cause)? {
        let file = entry.map_err(cause)?.path();
        let stem = file.file_stem().map(|s| s.to_string_lossy().into_owned()).unwrap_or_default();
        match extension(&file).as_str() {
            "jsonl" | "ndjson" | "json" => {
                if let Some(other) = files.insert(stem.clone(), Variant::plain(file.clone())) {
                    return Err(DatasetError::Entry {
                        path: path.to_path_buf(),
                        place: format!("variant {stem}"),
                        why: format!("both {} and {} are it: keep one of them", other.path.display(), file.display()),
                    });
                }
            }
            "txt" => texts.push(file),
            _ if is_image(&file) => images.push(file),
            _ => {}
        }
    }
    if !files.is_empty() || variant.is_some() {
        return chosen(path, &files, variant, None)?.read();
    }
    texts.sort();
    images.sort();
    let named = |files: &[PathBuf]| files.first().and_then(|file| file.file_name()).map(|n| n.display().to_string());
    match (named(&texts), named(&images)) {
        (Some(text), Some(image)) => Err(DatasetError::Mixed { path: path.to_path_buf(), text, image }),
        (None, Some(_)) => Ok((1..).zip(&images).map(|(id, at)| image(id, at, None)).collect()),
        _ => whole_texts(path, &texts),
    }
}

/// The variant that is wanted, or the only one.
fn chosen<'a>(
    path: &Path,
    files: &'a BTreeMap<String, Variant>,
    variant: Option<&str>,
    default: Option<&str>,
) -> Result<&'a Variant, DatasetError> {
    if files.is_empty() {
        let why = variant.map_or("it has no variants".to_string(), |name| format!("it has no variant {name}"));
        return Err(DatasetError::empty(path, why));
    }
    let complaint = |why: String| DatasetError::Variant {
        path: path.to_path_buf(),
        variants: files.keys().cloned().collect(),
        why,
    };
    match variant.or(default) {
        Some(name) => files.get(name).ok_or_else(|| complaint(format!("{name} is none of them"))),
        None if files.len() == 1 => {
            files.values().next().ok_or_else(|| DatasetError::empty(path, "it has no variants"))
        }
        None => Err(complaint("name one with --variant".to_string())),
    }
}

fn described(path: &Path, metadata: &Path, variant: Option<&str>) -> Result<Vec<Prompt>, DatasetError> {
    let wrong = |why: String| DatasetError::Entry { path: metadata.to_path_buf(), place: "metadata".to_string(), why };
    let text = text_of(metadata)?;
    let read: Metadata = if extension(metadata) == "toml" {
        toml::from_str(&text).map_err(|e| wrong(format!("it is no metadata: {}", e.message().trim())))?
    } else {
        serde_json::from_str(&text).map_err(|e| wrong(format!("it is no metadata: {e}")))?
    };
    let listed = read.variants.ok_or_else(|| wrong("it has no `variants`, a table of names and files".to_string()))?;
    if listed.is_empty() {
        return Err(DatasetError::empty(path, "its metadata lists no variants"));
    }
    let variants = listed.into_iter().map(|(name, named)| {
        let (file, separator) = match named {
            NamedFile::File(file) => (file, None),
            NamedFile::Described { file, separator } => (file, separator),
        };
        let path = within(path, Path::new(&file)).map_err(&wrong)?;
        Ok((name, Variant { path, separator }))
    });
    chosen(path, &variants.collect::<Result<_, DatasetError>>()?, variant, read.default.as_deref())?.read()
}

/// A prompt a file.
fn whole_texts(path: &Path, texts: &[PathBuf]) -> Result<Vec<Prompt>, DatasetError> {
    let mut prompts = Vec::new();
    for (n, at) in texts.iter().enumerate() {
        let text = text_of(at)?;
        if !text.trim().is_empty() {
            prompts.push(Prompt { id: n as u64 + 1, content: Content::Text(text), max_tokens: None });
        }
    }
    if prompts.is_empty() {
        let why = "it needs metadata.toml (or .json) with variants, a file .jsonl or .json, files .txt with a prompt each, \
                   or images";
        return Err(DatasetError::empty(path, why));
    }
    Ok(prompts)
}
