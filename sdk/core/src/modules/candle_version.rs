//! Which version of candle the program runs, as the files of its callsites tell: crates of a registry lie in folders with
//! their version, `candle-transformers-0.11.1/src/models/llama.rs`. Those of a checkout tell nothing.

use std::sync::OnceLock;
use tracing_core::Metadata;

static SEEN: OnceLock<Box<str>> = OnceLock::new();

/// Notes what the callsite tells.
pub(crate) fn note(metadata: &Metadata<'_>) {
    if metadata.target().starts_with("candle_")
        && let Some(version) = metadata.file().and_then(of_file)
    {
        SEEN.get_or_init(|| version.into());
    }
}

/// The version, if a span of candle has been made in this process and its file told.
pub(crate) fn seen() -> Option<&'static str> {
    SEEN.get().map(|version| &**version)
}

fn of_file(file: &str) -> Option<&str> {
    let mut versions = file.split(['/', '\\']).filter_map(|part| {
        ["candle-transformers-", "candle-nn-", "candle-core-"].into_iter().find_map(|name| part.strip_prefix(name))
    });
    versions.rfind(|version| version.starts_with(|c: char| c.is_ascii_digit()) && version.contains('.'))
}

#[cfg(test)]
mod tests {
    use super::of_file;

    #[test]
    fn a_folder_of_the_registry_tells_the_version() {
        let of = |file| of_file(file);
        assert_eq!(of("/r/src/index/candle-transformers-0.11.1/src/models/llama.rs"), Some("0.11.1"));
        assert_eq!(of(r"C:\r\candle-nn-0.12.0-alpha.1\src\linear.rs"), Some("0.12.0-alpha.1"));
        assert_eq!(
            (of("candle-transformers/src/models/llama.rs"), of("/git/candle-3f2a/candle-nn/src/lib.rs")),
            (None, None)
        );
    }
}
