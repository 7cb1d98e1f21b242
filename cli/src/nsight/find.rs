//! Finds NVIDIA's command-line profilers.

use anyhow::{Result, bail};
use std::path::{Path, PathBuf};

/// A profiler of NVIDIA's.
#[derive(Debug)]
pub(crate) struct Tool {
    /// Name of the program.
    program: &'static str,
    /// Variable with its path.
    variable: &'static str,
    /// The product and where it is to be had.
    product: &'static str,
    /// Where NVIDIA's installers put it, below a root directory.
    places: fn(&Path) -> Vec<PathBuf>,
}

/// Nsight Systems.
pub(crate) const NSYS: Tool = Tool {
    program: "nsys",
    variable: "CANDLESCOPE_NSYS",
    product: "Nsight Systems (https://developer.nvidia.com/nsight-systems)",
    places: nsys_places,
};

/// Nsight Compute.
pub(crate) const NCU: Tool = Tool {
    program: "ncu",
    variable: "CANDLESCOPE_NCU",
    product: "Nsight Compute (https://developer.nvidia.com/nsight-compute)",
    places: ncu_places,
};

impl Tool {
    /// The program: what the variable names, the `PATH`, then the places where NVIDIA's installers put it.
    pub(crate) fn find(&self) -> Result<PathBuf> {
        let Self { program, variable, product, .. } = self;
        if let Some(named) = std::env::var_os(variable).filter(|named| !named.is_empty()) {
            let named = PathBuf::from(named);
            if !named.is_file() {
                bail!(
                    "{variable} names {}, which is no file: unset it, or give the path of {program}",
                    named.display()
                );
            }
            return Ok(named);
        }
        let path = std::env::var_os("PATH").unwrap_or_default();
        let on_path = std::env::split_paths(&path).map(|dir| dir.join(program)).find(|file| file.is_file());
        let Some(found) = on_path.or_else(|| self.installed(Path::new("/"))) else {
            bail!(
                "{program} is not on the PATH, in /opt/nvidia or in /usr/local/cuda: install {product}, or name its \
                 {program} in {variable}"
            );
        };
        Ok(found)
    }

    /// Below `root`, the newest first.
    fn installed(&self, root: &Path) -> Option<PathBuf> {
        (self.places)(root).into_iter().find(|file| file.is_file())
    }
}

/// Alone, with the CUDA toolkit, or inside Nsight Compute.
fn nsys_places(root: &Path) -> Vec<PathBuf> {
    let nvidia = root.join("opt/nvidia");
    let mut places = Vec::new();
    for product in children(&nvidia, "nsight-systems") {
        places.extend(children(&product, "").into_iter().map(|v| v.join("target-linux-x64/nsys")));
        places.extend(children(&product, "").into_iter().map(|v| v.join("target-linux-sbsa-armv8/nsys")));
        places.extend(children(&product, "").into_iter().map(|v| v.join("bin/nsys")));
        places.push(product.join("bin/nsys"));
    }
    places.extend(children(&root.join("usr/local"), "cuda").into_iter().map(|cuda| cuda.join("bin/nsys")));
    let compute = children(&nvidia.join("nsight-compute"), "");
    places.extend(compute.into_iter().map(|version| version.join("host/target-linux-x64/nsys")));
    places
}

/// Alone, or with the CUDA toolkit.
fn ncu_places(root: &Path) -> Vec<PathBuf> {
    let compute = children(&root.join("opt/nvidia/nsight-compute"), "");
    let cuda = children(&root.join("usr/local"), "cuda");
    let alone = compute.into_iter().map(|version| version.join("ncu"));
    alone.chain(cuda.into_iter().map(|cuda| cuda.join("bin/ncu"))).collect()
}

/// Directories in `dir` whose names begin with `prefix`, the highest version first.
fn children(dir: &Path, prefix: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let mut found: Vec<(Vec<u64>, PathBuf)> = entries
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(prefix) && entry.path().is_dir())
        .map(|entry| (version(&entry.file_name().to_string_lossy()), entry.path()))
        .collect();
    found.sort();
    found.into_iter().rev().map(|(_, path)| path).collect()
}

/// The numbers in a name: 2023.4.10 is newer than 2023.4.9.
fn version(name: &str) -> Vec<u64> {
    name.split(|c: char| !c.is_ascii_digit()).filter_map(|number| number.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_installation_is_taken() {
        let root = tempfile::tempdir().unwrap();
        let put = |path: &str| {
            let file = root.path().join(path);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(&file, "").unwrap();
            file
        };
        assert_eq!(NSYS.installed(root.path()), None);
        let compute = put("opt/nvidia/nsight-compute/2025.3.1/host/target-linux-x64/nsys");
        assert_eq!(NSYS.installed(root.path()), Some(compute));
        let cuda = put("usr/local/cuda-13.0/bin/nsys");
        assert_eq!(NSYS.installed(root.path()), Some(cuda));
        put("opt/nvidia/nsight-systems/2024.6.9/bin/nsys");
        let newest = put("opt/nvidia/nsight-systems/2024.6.10/target-linux-x64/nsys");
        put("opt/nvidia/nsight-systems/2023.10.1/target-linux-x64/nsys");
        assert_eq!(NSYS.installed(root.path()), Some(newest));
        assert_eq!(NCU.installed(root.path()), None);
        let ncu = put("opt/nvidia/nsight-compute/2025.3.1/ncu");
        put("usr/local/cuda-13.0/bin/ncu");
        assert_eq!(NCU.installed(root.path()), Some(ncu));
    }
}
