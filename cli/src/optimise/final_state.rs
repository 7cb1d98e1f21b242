//! What reproduces the last state: a script, and groups of a configuration.

use crate::conf::group_of;
use anyhow::{Context, Result};
use candlescope_core::files::write_whole;
use candlescope_optimise::{Account, OptimiseOptions, Program};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

/// The name of the groups' files.
const NAME: &str = "optimised";

/// Writes them, and returns their names.
pub(super) fn write(account: &Account, options: &OptimiseOptions) -> Result<Vec<String>> {
    let mut groups: BTreeMap<&str, String> = BTreeMap::new();
    for (option, value) in &account.setting.options {
        // Texts of prompts are written nowhere, and where results go is said each time.
        let Some((group, line)) = group_of(option, value) else { continue };
        groups.entry(group).or_default().push_str(&line);
    }
    let mut files = Vec::new();
    for (group, lines) in &groups {
        let comment = format!("# What `candlescope optimise` came to on {}.\n", account.hardware);
        let name = format!("conf/{group}/{NAME}.toml");
        put(&options.out.join(&name), &(comment + lines))?;
        files.push(name);
    }
    // Texts are given again by whoever starts it.
    let program = Program { private: Vec::new(), ..options.program.clone() };
    let script = format!(
        "#!/bin/sh\n# What `candlescope optimise` came to, on {}: {}.\nexec env {} \"$@\"\n",
        account.hardware,
        account.aim.as_str(),
        program.to_use(&account.setting)
    );
    put(&options.out.join("start.sh"), &script)?;
    files.push("start.sh".into());
    Ok(files)
}

fn put(path: &Path, text: &str) -> Result<()> {
    let failed = || format!("cannot write {}: free some space", path.display());
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent).with_context(failed)?;
    }
    write_whole(path, |file| file.write_all(text.as_bytes())).with_context(failed)
}
