//! `candlescope trace-candle-nn`: candle-nn with spans in its layers, for models that make none.
//!
//! Nothing of candle's source is kept here: it is taken from where cargo keeps it for the program that is profiled, and
//! changed by the edits in [`edits`].

mod edits;

use crate::output::say;
use anyhow::{Context, Result, bail};
use cargo_metadata::{MetadataCommand, Package};
use clap::Args;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The version whose source the edits were written for.
const VERSION: &str = "0.11.1";

/// The file that marks a folder as one that this command wrote.
const MARK: &str = "src/candlescope.rs";

#[derive(Debug, Args)]
pub(crate) struct TraceCandleArgs {
    /// Folder to write candle-nn with spans into: absent, empty, or written by this command before
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,
    /// Cargo.toml of the program to profile [default: that of the current folder]
    #[arg(long, value_name = "FILE", conflicts_with = "source")]
    pub(crate) manifest_path: Option<PathBuf>,
    /// Folder with candle-nn's source, instead of where cargo has it
    #[arg(long, value_name = "DIR")]
    pub(crate) source: Option<PathBuf>,
}

pub(crate) fn run(args: &TraceCandleArgs) -> Result<()> {
    let source = match &args.source {
        Some(folder) => folder.clone(),
        None => locate(args.manifest_path.as_deref())?,
    };
    check_version(&source)?;
    check_free(&args.out)?;
    // All of it before anything is written: a failed edit leaves nothing behind.
    let mut files = BTreeMap::new();
    read_into(&source, Path::new(""), &mut files)?;
    edits::apply(&mut files)
        .with_context(|| format!("{} is not candle-nn {VERSION} as published", source.display()))?;
    write(&args.out, &files)?;
    say(&format!(
        "candle-nn {VERSION} with spans in its layers: {}\n\nAdd to the Cargo.toml of your workspace:\n\n\
         [patch.crates-io]\ncandle-nn = {{ path = {:?} }}\n",
        args.out.display(),
        args.out.to_string_lossy(),
    ))
}

/// Where cargo has candle-nn for a program; cargo downloads it first where that is needed.
fn locate(manifest: Option<&Path>) -> Result<PathBuf> {
    let mut command = MetadataCommand::new();
    if let Some(manifest) = manifest {
        command.manifest_path(manifest);
    }
    // What other platforms need may not be there, and is not asked for.
    command.other_options(["--filter-platform", "host-tuple"].map(String::from));
    let metadata = command.exec().context(
        "cargo cannot tell where candle-nn is: run this in the program's folder, or name its Cargo.toml with \
         --manifest-path (without the patch, if the folder that it names is not there yet)",
    )?;
    let found: Vec<&Package> =
        metadata.packages.iter().filter(|package| package.name.as_str() == "candle-nn").collect();
    let package = match *found {
        [package] => package,
        [] => bail!("{} does not depend on candle-nn", metadata.workspace_root),
        _ => bail!(
            "{} depends on several versions of candle-nn ({}): name the folder of one with --source",
            metadata.workspace_root,
            found.iter().map(|package| package.version.to_string()).collect::<Vec<_>>().join(", ")
        ),
    };
    let folder = package.manifest_path.parent().map(|folder| folder.as_std_path().to_owned());
    let folder = folder.context("candle-nn's Cargo.toml is in no folder")?;
    match &package.source {
        Some(source) if source.is_crates_io() => Ok(folder),
        None if folder.join(MARK).exists() => bail!(
            "candle-nn is patched already, by {}: take the patch out of Cargo.toml to make it anew, or name candle-nn's \
             own folder with --source",
            folder.display()
        ),
        _ => bail!(
            "candle-nn comes from {}, not from crates.io: only the published version can be patched",
            package.source.as_ref().map_or_else(|| folder.display().to_string(), ToString::to_string)
        ),
    }
}

#[derive(serde::Deserialize)]
struct Manifest {
    package: NameAndVersion,
}

#[derive(serde::Deserialize)]
struct NameAndVersion {
    name: String,
    version: String,
}

fn check_version(source: &Path) -> Result<()> {
    let path = source.join("Cargo.toml");
    let text = fs::read_to_string(&path)
        .with_context(|| format!("cannot read {}: name the folder of candle-nn's source", path.display()))?;
    let Manifest { package } =
        toml::from_str(&text).with_context(|| format!("{} is not of candle-nn", path.display()))?;
    if (package.name.as_str(), package.version.as_str()) != ("candle-nn", VERSION) {
        bail!("{} is of {} {}: the edits are for candle-nn {VERSION}", path.display(), package.name, package.version);
    }
    if source.join(MARK).exists() {
        bail!("{} has its spans already: name candle-nn's own folder", source.display());
    }
    Ok(())
}

/// Only a folder that is free, or was written here, is written into.
fn check_free(out: &Path) -> Result<()> {
    let occupied = match fs::read_dir(out) {
        Ok(mut entries) => entries.next().is_some() && !out.join(MARK).exists(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => false,
        Err(error) => return Err(error).with_context(|| format!("{} cannot be used as a folder", out.display())),
    };
    if occupied {
        bail!("{} has other files: name a folder that is empty or absent", out.display());
    }
    Ok(())
}

/// Files of a folder by their path below it.
fn read_into(root: &Path, below: &Path, files: &mut BTreeMap<PathBuf, Vec<u8>>) -> Result<()> {
    let folder = root.join(below);
    let entries = fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))?;
    for entry in entries {
        let entry = entry.with_context(|| format!("cannot read {}", folder.display()))?;
        let name = below.join(entry.file_name());
        let kind = entry.file_type().with_context(|| format!("cannot read {}", entry.path().display()))?;
        if kind.is_dir() {
            read_into(root, &name, files)?;
        } else if kind.is_file() && name != Path::new(".cargo-ok") {
            let content = fs::read(entry.path()).with_context(|| format!("cannot read {}", entry.path().display()))?;
            files.insert(name, content);
        }
    }
    Ok(())
}

fn write(out: &Path, files: &BTreeMap<PathBuf, Vec<u8>>) -> Result<()> {
    for (name, content) in files {
        let path = out.join(name);
        // What is as it should be is left alone, so that cargo does not build it again.
        if fs::read(&path).is_ok_and(|there| there == *content) {
            continue;
        }
        let folder = path.parent().unwrap_or(out);
        fs::create_dir_all(folder)
            .and_then(|()| fs::write(&path, content))
            .with_context(|| format!("cannot write {}: name a folder where there is space", path.display()))?;
    }
    Ok(())
}
