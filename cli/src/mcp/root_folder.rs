//! The folder that tools may read. Nothing outside of it is named to a command, by whatever path.

use anyhow::{Context, Result, bail};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Entries of a folder that are looked at for links.
const MOST_ENTRIES: usize = 500_000;

/// The folder, without links in its path.
#[derive(Debug, Clone)]
pub(super) struct RootFolder {
    dir: PathBuf,
}

impl RootFolder {
    pub(super) fn open(dir: &Path) -> Result<Self> {
        let found = dir.canonicalize().with_context(|| format!("cannot use `{}` as the root", dir.display()))?;
        if !found.is_dir() {
            bail!("`{}` is no folder: --root wants the one that holds runs", dir.display());
        }
        Ok(Self { dir: found })
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// A path as a command takes it in this folder, if it is there and inside, and so is everything below it.
    pub(super) fn inside(&self, path: &str) -> Result<OsString, String> {
        let outside = || {
            format!(
                "`{path}` is outside of the folder that this server may read: name a path in `{}`",
                self.dir.display()
            )
        };
        let full = self.dir.join(path);
        let found = match full.canonicalize() {
            Ok(found) => found,
            // What is outside is not told apart from what is not there.
            Err(_) if is_outside(&full, &self.dir) => return Err(outside()),
            Err(error) => return Err(format!("there is no `{path}`: {error}. `list_runs` says what there is")),
        };
        let Ok(below) = found.strip_prefix(&self.dir) else { return Err(outside()) };
        self.check_links(&found)?;
        // No path looks like an option.
        Ok(Path::new(".").join(below).into_os_string())
    }

    /// Refuses a folder with a link that leads outside.
    fn check_links(&self, dir: &Path) -> Result<(), String> {
        let (mut open, mut seen, mut left) = (vec![dir.to_path_buf()], BTreeSet::new(), MOST_ENTRIES);
        while let Some(dir) = open.pop() {
            if !seen.insert(dir.clone()) {
                continue;
            }
            for entry in std::fs::read_dir(&dir).into_iter().flatten().flatten() {
                left = left
                    .checked_sub(1)
                    .ok_or_else(|| format!("`{}` holds too many files: name a part of it", self.shown(&dir)))?;
                let path = entry.path();
                let kind = entry.file_type().map_err(|error| format!("`{}`: {error}", self.shown(&path)))?;
                if kind.is_dir() {
                    open.push(path);
                } else if kind.is_symlink() {
                    // A link to nothing has nothing to read.
                    let Ok(to) = path.canonicalize() else { continue };
                    if !to.starts_with(&self.dir) {
                        return Err(format!(
                            "`{}` is a link that leads out of the folder that this server may read: copy what it leads to, or name a part \
                             without it",
                            self.shown(&path)
                        ));
                    }
                    open.extend(to.is_dir().then_some(to));
                }
            }
        }
        Ok(())
    }

    /// A path as tools name it.
    fn shown(&self, path: &Path) -> String {
        path.strip_prefix(&self.dir).unwrap_or(path).display().to_string()
    }
}

/// Whether the part of a path that exists leads outside.
fn is_outside(path: &Path, root: &Path) -> bool {
    let there = path.ancestors().find_map(|part| part.canonicalize().ok());
    there.is_none_or(|there| !there.starts_with(root))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root() -> (tempfile::TempDir, RootFolder) {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("root/runs/-a/spans")).unwrap();
        std::fs::create_dir_all(dir.path().join("outside")).unwrap();
        let root = RootFolder::open(&dir.path().join("root")).unwrap();
        (dir, root)
    }

    #[test]
    fn what_is_inside_is_named_from_the_root() {
        let (dir, root) = root();
        let absolute = dir.path().join("root/runs");
        let paths = ["runs", "./runs/", "runs/../runs", absolute.to_str().unwrap()];
        paths.iter().for_each(|path| assert_eq!(root.inside(path).unwrap(), "./runs"));
        assert_eq!(root.inside(".").unwrap(), "./");
        assert_eq!(root.inside("runs/-a").unwrap(), "./runs/-a");
        assert!(root.inside("runs/b").unwrap_err().contains("list_runs"));
        assert!(RootFolder::open(&dir.path().join("nothing")).is_err());
    }

    #[test]
    fn what_is_outside_is_refused() {
        let (dir, root) = root();
        let outside = dir.path().join("outside");
        for path in
            ["..", "../outside", "runs/../../outside", "/etc", "/etc/nothing", "../nothing", outside.to_str().unwrap()]
        {
            assert!(root.inside(path).unwrap_err().contains("outside of the folder"), "{path}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn links_that_lead_outside_are_refused() {
        use std::os::unix::fs::symlink;
        let (dir, root) = root();
        let at = |path: &str| dir.path().join(path);
        symlink(at("root/runs/-a"), at("root/inside")).unwrap();
        assert_eq!(root.inside("inside").unwrap(), "./runs/-a");
        symlink(at("root/runs"), at("root/runs/circle")).unwrap();
        symlink(at("nothing"), at("root/runs/dangling")).unwrap();
        assert!(root.inside("runs").is_ok());
        symlink(at("outside"), at("root/link")).unwrap();
        assert!(root.inside("link").is_err());
        // Below a run, and below a folder that a link leads to.
        symlink("/etc/passwd", at("root/runs/-a/spans/part-0.parquet")).unwrap();
        for path in ["runs", "inside", "runs/-a"] {
            assert!(root.inside(path).unwrap_err().contains("a link that leads out"), "{path}");
        }
    }
}
