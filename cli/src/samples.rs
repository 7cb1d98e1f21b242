//! The data set that is part of the program: `cli/conf/dataset/samples`.

use anyhow::{Result, bail};
use candlescope_prompts::{Prompt, jsonl};
use std::path::Path;

/// The name by which a configuration refers to it.
const NAME: &str = "builtin:samples";
/// What such names begin with.
const BUILT_IN: &str = "builtin:";

/// Its variants; the first one is the default.
const VARIANTS: [(&str, &str); 3] = [
    ("short", include_str!("../conf/dataset/samples/short.jsonl")),
    ("long", include_str!("../conf/dataset/samples/long.jsonl")),
    ("chat", include_str!("../conf/dataset/samples/chat.jsonl")),
];

/// The prompts of the built-in data set `name`; `None` if the name is that of a file or directory.
pub(crate) fn find(name: &str, variant: Option<&str>) -> Result<Option<Vec<Prompt>>> {
    if !name.starts_with(BUILT_IN) {
        return Ok(None);
    }
    if name != NAME {
        bail!("there is no data set {name} built in; there is {NAME}");
    }
    let wanted = variant.unwrap_or(VARIANTS[0].0);
    let Some((variant, text)) = VARIANTS.iter().find(|(variant, _)| *variant == wanted) else {
        let names: Vec<&str> = VARIANTS.iter().map(|(name, _)| *name).collect();
        bail!("{NAME} has the variants {}: {wanted} is none of them", names.join(", "));
    };
    Ok(Some(jsonl(Path::new(&format!("{NAME}/{variant}.jsonl")), text)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use candlescope_prompts::read;

    #[test]
    fn what_is_built_in_is_the_folder() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("conf/dataset/samples");
        assert_eq!(find(NAME, None).unwrap().unwrap(), read(&folder, None).unwrap());
        for (variant, _) in VARIANTS {
            let prompts = find(NAME, Some(variant)).unwrap().unwrap();
            assert_eq!(prompts, read(&folder, Some(variant)).unwrap(), "{variant}");
        }
        assert!(find(NAME, Some("x")).unwrap_err().to_string().contains("short, long, chat: x is none"));
        assert!(find("builtin:x", None).unwrap_err().to_string().contains("there is builtin:samples"));
        assert!(find("samples", None).unwrap().is_none());
    }
}
