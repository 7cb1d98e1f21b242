//! `candlescope trace-candle-nn`: candle-nn with spans in its layers, for models that make none.
//!
//! Nothing of candle's source is kept here: it is taken from where cargo keeps it for the program that is profiled, and
//! changed by the edits in [`edits`].

mod edits;

use crate::output::{note, say};
use anyhow::{Context, Result, bail};
use candlescope_core::files::{read_limited, read_text_limited, write_whole};
use cargo_metadata::{MetadataCommand, Package};
use clap::Args;
use edits::MARK;
use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// The version whose source the edits were written for.
const VERSION: &str = "0.11.1";

/// Largest Cargo.toml, in bytes.
const MOST_MANIFEST: u64 = 1 << 20;
/// Bytes of all files of the source; candle-nn 0.11 has a quarter of a MiB.
const MOST_BYTES: u64 = 16 << 20;
/// Files of the source.
const MOST_FILES: usize = 2000;
/// Folders in each other.
const DEEPEST: usize = 16;

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
    let mut files = Files::default();
    files.read_into(&source, Path::new(""))?;
    edits::apply(&mut files.read)
        .with_context(|| format!("{} is not candle-nn {VERSION} as published", source.display()))?;
    let replaced = write(&args.out, &files.read)?;
    if !replaced.is_empty() {
        let names: Vec<String> = replaced.iter().map(|name| name.display().to_string()).collect();
        note(&format!("note: files that had another content were replaced: {}", names.join(", ")));
    }
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
    let text = read_text_limited(&path, MOST_MANIFEST)
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
        Ok(mut entries) => entries.next().is_some() && !is_file(&out.join(MARK)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => false,
        Err(error) => return Err(error).with_context(|| format!("{} cannot be used as a folder", out.display())),
    };
    if occupied {
        bail!("{} has other files: name a folder that is empty or absent", out.display());
    }
    Ok(())
}

/// Whether a file stands at `path` itself, and no link to one.
fn is_file(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|there| there.is_file())
}

/// Files of a folder, with their paths below it.
#[derive(Default)]
struct Files {
    read: BTreeMap<PathBuf, Vec<u8>>,
    bytes: u64,
}

impl Files {
    /// Reads what is in `below` of `root`. Links and whatever else is no file are left out.
    fn read_into(&mut self, root: &Path, below: &Path) -> Result<()> {
        if below.components().count() > DEEPEST {
            bail!("{} is too deep for candle-nn's source", root.join(below).display());
        }
        let folder = root.join(below);
        let entries = fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))?;
        for entry in entries {
            let entry = entry.with_context(|| format!("cannot read {}", folder.display()))?;
            let name = below.join(entry.file_name());
            let cannot = || format!("cannot read {}", entry.path().display());
            let kind = entry.file_type().with_context(cannot)?;
            if kind.is_dir() {
                self.read_into(root, &name)?;
            } else if kind.is_file() && name != Path::new(".cargo-ok") {
                let content = read_limited(&entry.path(), MOST_BYTES - self.bytes).with_context(cannot)?;
                self.bytes += content.len() as u64;
                self.read.insert(name, content);
            }
            if self.read.len() > MOST_FILES {
                bail!("{} has more than {MOST_FILES} files: it is not candle-nn's source", root.display());
            }
        }
        Ok(())
    }
}

/// Writes the files below `out`, and returns those that were there with another content. Nothing is written through a
/// link.
fn write(out: &Path, files: &BTreeMap<PathBuf, Vec<u8>>) -> Result<Vec<PathBuf>> {
    let mut replaced = Vec::new();
    fs::create_dir_all(out).with_context(|| format!("cannot make {}", out.display()))?;
    for (name, content) in files {
        let path = out.join(name);
        let remedy = || format!("cannot write {}: name another folder with --out", path.display());
        for folder in name.ancestors().skip(1).collect::<Vec<_>>().into_iter().rev() {
            own_folder(&out.join(folder))?;
        }
        // What is as it should be is left alone, so that cargo does not build it again.
        if is_file(&path) {
            if read_limited(&path, MOST_BYTES).is_ok_and(|there| there == *content) {
                continue;
            }
            replaced.push(name.clone());
        }
        write_whole(&path, |file| file.write_all(content)).with_context(remedy)?;
    }
    Ok(replaced)
}

/// Makes a folder, or takes the one that is there; a link to one is neither.
fn own_folder(path: &Path) -> Result<()> {
    match fs::symlink_metadata(path) {
        Ok(there) if there.is_dir() => Ok(()),
        Ok(_) => bail!("{} is no folder, and links are not followed: name another folder with --out", path.display()),
        Err(_) => fs::create_dir(path).with_context(|| format!("cannot make {}", path.display())),
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn files() -> BTreeMap<PathBuf, Vec<u8>> {
        ["Cargo.toml", MARK, "src/lib.rs"].map(|name| (PathBuf::from(name), name.as_bytes().to_vec())).into()
    }

    #[test]
    fn nothing_is_written_through_a_link_and_edits_are_told() {
        let dir = tempfile::tempdir().unwrap();
        let (out, theirs) = (dir.path().join("out"), dir.path().join("theirs"));
        assert!(write(&out, &files()).unwrap().is_empty() && check_free(&out).is_ok());
        fs::write(out.join("src/lib.rs"), "edited").unwrap();
        assert_eq!(write(&out, &files()).unwrap(), [PathBuf::from("src/lib.rs")]);
        // A file, then a folder, that is a link.
        fs::write(&theirs, "theirs").unwrap();
        fs::remove_file(out.join("src/lib.rs")).unwrap();
        symlink(&theirs, out.join("src/lib.rs")).unwrap();
        assert!(format!("{:#}", write(&out, &files()).unwrap_err()).contains("links are not followed"));
        assert_eq!(fs::read(&theirs).unwrap(), b"theirs");
        fs::remove_dir_all(out.join("src")).unwrap();
        let behind = dir.path().join("behind");
        fs::create_dir(&behind).unwrap();
        symlink(&behind, out.join("src")).unwrap();
        assert!(write(&out, &files()).unwrap_err().to_string().contains("links are not followed"));
        assert_eq!(fs::read_dir(&behind).unwrap().count(), 0);
        // A mark that is a link marks nothing.
        fs::remove_file(out.join("src")).unwrap();
        fs::create_dir(out.join("src")).unwrap();
        symlink(&theirs, out.join(MARK)).unwrap();
        assert!(check_free(&out).unwrap_err().to_string().contains("has other files"));
    }

    #[test]
    fn a_source_that_is_none_is_neither_waited_for_nor_read_whole() {
        let dir = tempfile::tempdir().unwrap();
        let manifest = dir.path().join("Cargo.toml");
        assert!(std::process::Command::new("mkfifo").arg(&manifest).status().unwrap().success());
        assert!(format!("{:#}", check_version(dir.path()).unwrap_err()).contains("a named pipe"));
        fs::remove_file(&manifest).unwrap();
        fs::File::create(dir.path().join("sparse")).unwrap().set_len(6 << 30).unwrap();
        let error = Files::default().read_into(dir.path(), Path::new("")).unwrap_err();
        assert!(format!("{error:#}").contains("more than the limit"), "{error:#}");
    }
}
