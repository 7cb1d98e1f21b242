//! Names of models.

use crate::config::EMBEDDED;
use std::path::PathBuf;

/// Where a model comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ModelSource {
    /// The tiny model made in the process.
    Embedded,
    /// A named architecture at its true size with seeded random weights.
    Config(String),
    /// A file that ends in `.gguf`, or begins with the bytes `GGUF`.
    Gguf(PathBuf),
    /// A directory with `config.json`, `*.safetensors` and `tokenizer.json`.
    Directory(PathBuf),
    /// A model of the Hugging Face hub, `org/name`.
    Hub(String),
}

/// The text does not name a model.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// There is nothing at this path, and no other form matches.
    #[error(
        "model `{0}` is not there: no such file or directory. A model is `embedded`, `config:NAME`, a .gguf file, \
         a directory with config.json and *.safetensors, or a hub id such as org/name"
    )]
    Missing(String),
    /// A pipe, a socket or a device.
    #[error(
        "model `{0}` is neither a file nor a directory; pass a .gguf file, or the directory that holds config.json and *.safetensors"
    )]
    NotAFile(String),
    /// The file is of another kind.
    #[error(
        "model file `{0}` is not a .gguf file; pass a .gguf file, or the directory that holds config.json and *.safetensors"
    )]
    NotAModelFile(String),
}

impl ModelSource {
    /// Reads `embedded`, `config:NAME`, `FILE.gguf`, `DIRECTORY` or `HUB_ID`. Paths are looked up; a text like
    /// `org/name` that is not an existing path is a hub id.
    pub fn parse(text: &str) -> Result<Self, SourceError> {
        let text = text.trim();
        if text == EMBEDDED {
            return Ok(Self::Embedded);
        }
        if let Some(name) = text.strip_prefix("config:") {
            return Ok(Self::Config(name.to_string()));
        }
        let path = PathBuf::from(text);
        let gguf = path.extension().is_some_and(|e| e.eq_ignore_ascii_case("gguf"));
        if path.is_dir() {
            return Ok(Self::Directory(path));
        }
        if path.is_file() {
            // A file with another extension may still be GGUF, by its first bytes.
            if gguf || starts_like_gguf(&path) {
                return Ok(Self::Gguf(path));
            }
            return Err(SourceError::NotAModelFile(text.to_string()));
        }
        if path.exists() {
            return Err(SourceError::NotAFile(text.to_string()));
        }
        if gguf || !is_hub_id(text) {
            return Err(SourceError::Missing(text.to_string()));
        }
        Ok(Self::Hub(text.to_string()))
    }
}

fn starts_like_gguf(path: &std::path::Path) -> bool {
    use std::io::Read;
    let mut start = [0u8; 4];
    candlescope_core::files::open_regular(path).and_then(|mut f| f.read_exact(&mut start)).is_ok() && &start == b"GGUF"
}

fn is_hub_id(text: &str) -> bool {
    let part = |p: &str| {
        !p.is_empty() && !p.starts_with('.') && p.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
    };
    matches!(text.split_once('/'), Some((org, name)) if part(org) && part(name))
}

impl std::fmt::Display for ModelSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Embedded => f.write_str(EMBEDDED),
            Self::Config(name) => write!(f, "config:{name}"),
            Self::Gguf(path) | Self::Directory(path) => path.display().fmt(f),
            Self::Hub(id) => f.write_str(id),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("x.gguf");
        let odd = directory.path().join("blob");
        let text = directory.path().join("notes.txt");
        std::fs::write(&file, "").unwrap();
        std::fs::write(&odd, "GGUF....").unwrap();
        std::fs::write(&text, "hello").unwrap();
        let parse = |p: &std::path::Path| ModelSource::parse(p.to_str().unwrap());
        assert_eq!(ModelSource::parse("embedded").unwrap(), ModelSource::Embedded);
        assert_eq!(ModelSource::parse("config:llama-3-8b").unwrap(), ModelSource::Config("llama-3-8b".into()));
        assert_eq!(ModelSource::parse("org/name-1.5B").unwrap(), ModelSource::Hub("org/name-1.5B".into()));
        assert_eq!(parse(directory.path()).unwrap(), ModelSource::Directory(directory.path().into()));
        assert_eq!(parse(&file).unwrap(), ModelSource::Gguf(file.clone()));
        assert_eq!(parse(&odd).unwrap(), ModelSource::Gguf(odd.clone()));
        assert!(parse(&text).unwrap_err().to_string().contains("not a .gguf file"));
        for missing in ["nowhere/x.gguf", "/nowhere/at/all", "emebdded", "a/b/c"] {
            let message = ModelSource::parse(missing).unwrap_err().to_string();
            assert!(message.contains(missing) && message.contains("config:NAME"), "{message}");
        }
    }
}
