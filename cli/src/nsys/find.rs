//! Finds `nsys`.

use anyhow::{Result, bail};
use std::path::{Path, PathBuf};

/// Variable with the path of the program.
const VARIABLE: &str = "CANDLESCOPE_NSYS";

/// The program: `CANDLESCOPE_NSYS`, the `PATH`, then the places where NVIDIA's installers put it.
pub(crate) fn find() -> Result<PathBuf> {
    if let Some(named) = std::env::var_os(VARIABLE).filter(|named| !named.is_empty()) {
        let named = PathBuf::from(named);
        if !named.is_file() {
            bail!("{VARIABLE} names {}, which is no file: unset it, or give the path of nsys", named.display());
        }
        return Ok(named);
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&path).map(|dir| dir.join("nsys")).find(|file| file.is_file());
    let Some(found) = on_path.or_else(|| installed(Path::new("/"))) else {
        bail!(
            "nsys is not on the PATH, in /opt/nvidia or in /usr/local/cuda: install Nsight Systems \
             (https://developer.nvidia.com/nsight-systems), or name its nsys in {VARIABLE}"
        );
    };
    Ok(found)
}

/// Below `root`, as NVIDIA's packages install it: alone, with the CUDA toolkit, or inside Nsight Compute. The newest
/// first.
fn installed(root: &Path) -> Option<PathBuf> {
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
    places.into_iter().find(|file| file.is_file())
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
        assert_eq!(installed(root.path()), None);
        let compute = put("opt/nvidia/nsight-compute/2025.3.1/host/target-linux-x64/nsys");
        assert_eq!(installed(root.path()), Some(compute));
        let cuda = put("usr/local/cuda-13.0/bin/nsys");
        assert_eq!(installed(root.path()), Some(cuda));
        put("opt/nvidia/nsight-systems/2024.6.9/bin/nsys");
        let newest = put("opt/nvidia/nsight-systems/2024.6.10/target-linux-x64/nsys");
        put("opt/nvidia/nsight-systems/2023.10.1/target-linux-x64/nsys");
        assert_eq!(installed(root.path()), Some(newest));
    }
}
