//! Where results go: into an empty directory. Without a place they get one of their own below `results`, so that two
//! commands in a row do not meet.

use anyhow::{Result, bail};
use std::path::Path;
#[cfg(feature = "lab")]
use std::path::PathBuf;

/// The directory that was named, or `results/KIND-TIME`. Nobody can mean one of the latter with `resume`.
#[cfg(feature = "lab")]
pub(crate) fn chosen(named: Option<&Path>, kind: &str, resume: bool) -> Result<PathBuf> {
    match named {
        Some(named) => Ok(named.to_path_buf()),
        None if resume => {
            bail!("--resume goes on with a study: name it, as in --out {}", Path::new("results").join(kind).display())
        }
        None => Ok(Path::new("results").join(format!("{kind}-{}", candlescope_core::HostNs::now().0 / 1_000_000))),
    }
}

/// Fails if there is something in a directory; `or` is what else could be meant.
pub(crate) fn must_be_empty(out: &Path, or: &str) -> Result<()> {
    if std::fs::read_dir(out).is_ok_and(|mut there| there.next().is_some()) {
        bail!("{} is not empty: name another directory with --out{or}", out.display());
    }
    Ok(())
}
