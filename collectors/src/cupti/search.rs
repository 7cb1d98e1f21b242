//! Where CUPTI may be, whether another tool occupies it, and what its version number means. Pure.

use super::told::told;
use candlescope_core::gpu::ActivityError;
use candlescope_core::injected::{CUDA_LIBRARY, NSIGHT_COMPUTE};
use std::path::{Path, PathBuf};

/// Names the library to load.
pub(super) const VARIABLE: &str = "CANDLESCOPE_CUPTI";

/// API versions whose records are understood: CUDA 12.0 to the last of 13.
const UNDERSTOOD: std::ops::Range<u32> = 19..140_000;

/// Toolkits' major versions, the newest first.
const MAJORS: [u32; 2] = [13, 12];

/// What is asked of the environment.
pub(super) type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Paths and names to try, in order. `given`: from the options. `driver`: the newest CUDA version that the driver
/// supports, in thousands (13020 is 13.2), if there is a driver: an older CUPTI works with it, a newer one does not.
/// `maps`: the text of `/proc/self/maps`.
pub(super) fn candidates(
    given: Option<&Path>,
    environment: Environment<'_>,
    driver: Option<u32>,
    maps: &str,
) -> Vec<PathBuf> {
    if let Some(path) = given {
        return vec![path.to_path_buf()];
    }
    if let Some(path) = environment(VARIABLE).filter(|path| !path.is_empty()) {
        return vec![path.into()];
    }
    let (fit, newer): (Vec<u32>, Vec<u32>) =
        MAJORS.iter().partition(|major| driver.is_none_or(|driver| **major <= driver / 1000));
    let names: Vec<String> = (fit.iter().map(|major| format!("libcupti.so.{major}")))
        .chain(["libcupti.so".to_string()])
        .chain(newer.iter().map(|major| format!("libcupti.so.{major}")))
        .collect();
    let target = if cfg!(target_arch = "aarch64") { "targets/sbsa-linux/lib" } else { "targets/x86_64-linux/lib" };
    let homes = ["CUDA_HOME", "CUDA_PATH"]
        .iter()
        .filter_map(|name| environment(name))
        .filter(|home| Path::new(home).is_absolute());
    let mut folders: Vec<PathBuf> = Vec::new();
    for home in homes.chain(["/usr/local/cuda".to_string()]) {
        for below in ["extras/CUPTI/lib64", target, "lib64", "lib"] {
            let folder = Path::new(&home).join(below);
            if !folders.contains(&folder) {
                folders.push(folder);
            }
        }
    }
    // The program's own first, then the loader's paths: the program itself was set up with them. Beside its own, which
    // may be of CUDA 12, another one would know nothing of what the program does with that.
    let bare = names.iter().map(PathBuf::from);
    let own = mapped(maps).map(|path| Path::new("/").join(path)).find(|path| suits(path, driver));
    own.into_iter()
        .chain(bare)
        .chain(folders.iter().flat_map(|folder| names.iter().map(|name| folder.join(name))))
        .collect()
}

/// Whether a file that the process has loaded is a CUPTI that may be used, by its name: that of its toolkit's major
/// version, or, in toolkits, of its own, which begins with a year: 2023 or later is CUDA 12.1 or later, and 2025 or
/// later may be 13.
fn suits(path: &Path, driver: Option<u32>) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let number = name.strip_prefix("libcupti.so.").and_then(|rest| rest.split('.').next()?.parse::<u32>().ok());
    match number {
        Some(major) if MAJORS.contains(&major) => driver.is_none_or(|driver| major <= driver / 1000),
        Some(year) => year >= 2023 && (year < 2025 || driver.is_none_or(|driver| driver >= 13_000)),
        None => false,
    }
}

/// Whether another tool that records this process has injected itself into CUDA.
pub(super) fn obstacle(environment: Environment<'_>) -> Option<ActivityError> {
    let set = |name: &str| environment(name).filter(|value| !value.is_empty());
    if set("NSYS_PROFILING_SESSION_ID").is_some() {
        return Some(ActivityError(
            "Nsight Systems records this process (NSYS_PROFILING_SESSION_ID is set) and shows its kernels, and CUPTI serves one \
             client at a time: run without nsys to have them here, or leave kernel recording off"
                .to_string(),
        ));
    }
    // Loaded by the driver we are first, and CUPTI is ours.
    if told().is_some() {
        return None;
    }
    if set(NSIGHT_COMPUTE).is_some() {
        return Some(ActivityError(format!(
            "Nsight Compute profiles this process ({NSIGHT_COMPUTE} is set), and CUPTI serves one client at a time: run without ncu \
             to have kernels here, or leave kernel recording off"
        )));
    }
    let injected = set(CUDA_LIBRARY)?;
    Some(ActivityError(format!(
        "a profiler is injected into this process ({CUDA_LIBRARY} is {injected}), and CUPTI serves one client at a time: unset \
         it, or leave kernel recording off"
    )))
}

/// Whether records of this API version can be read.
pub(super) fn understood(api: u32) -> bool {
    UNDERSTOOD.contains(&api)
}

/// Whether this version can be detached and attached again. Before CUDA 12.6 that crashed programs with CUDA graphs
/// (pytorch/pytorch 112507 and 146604).
pub(super) fn detachable(api: u32) -> bool {
    api >= 24
}

/// The CUDA toolkit an API version belongs to: `cupti_version.h` lists the numbers up to 12.9, and from 13.0 on the
/// number contains the version.
pub(super) fn toolkit(api: u32) -> String {
    let known = match api {
        0..19 => "11.8 or older",
        19 => "12.0 or 12.1",
        20 => "12.2",
        21 => "12.3",
        22 => "12.4",
        23 => "12.5",
        24 => "12.6",
        26 => "12.8",
        27 | 28 => "12.9",
        _ if api >= 10_000 => return format!("{}.{}", api / 10_000, api / 100 % 100),
        _ => return format!("API version {api}"),
    };
    known.to_string()
}

/// The files of the text of `/proc/self/maps`, without the first `/` of their paths.
fn mapped(maps: &str) -> impl Iterator<Item = &Path> + Clone {
    maps.lines().filter_map(|line| line.split_once('/').map(|(_, rest)| Path::new(rest)))
}

/// The file behind a library loaded by its bare name, from the text of `/proc/self/maps`.
pub(super) fn loaded(maps: &str, name: &Path) -> Option<PathBuf> {
    let name = name.file_name()?.to_str()?;
    let files = mapped(maps);
    // The name may be a link to a longer one: libcupti.so.13 is libcupti.so.2025.3.1 in some packages.
    let stem = name.split(".so").next()?;
    let file = |path: &Path, fits: &dyn Fn(&str) -> bool| path.file_name().and_then(|f| f.to_str()).is_some_and(fits);
    let found = files.clone().find(|path| file(path, &|f| f == name));
    let found = found.or_else(|| files.clone().find(|path| file(path, &|f| f.starts_with(&format!("{stem}.so")))))?;
    Some(Path::new("/").join(found))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(set: &'static [(&'static str, &'static str)]) -> impl Fn(&str) -> Option<String> {
        move |name| set.iter().find(|(n, _)| *n == name).map(|(_, value)| value.to_string())
    }

    #[test]
    fn what_is_named_is_the_only_candidate() {
        let env = environment(&[(VARIABLE, "/opt/cupti/libcupti.so.12"), ("CUDA_HOME", "/opt/cuda")]);
        assert_eq!(candidates(Some(Path::new("/a/b.so")), &env, None, MAPS), [Path::new("/a/b.so")]);
        assert_eq!(candidates(None, &env, None, MAPS), [Path::new("/opt/cupti/libcupti.so.12")]);
        assert!(candidates(None, &environment(&[(VARIABLE, "")]), None, "").len() > 1, "empty is unset");
    }

    const MAPS: &str = "7f20-7f30 r-xp 00000000 fe:00 13 /opt/torch/lib/libcupti.so.12\n";

    #[test]
    fn the_programs_own_library_comes_first_unless_it_does_not_suit() {
        let first = |file: &str, driver| {
            let maps = format!("7f20-7f30 r-xp 00000000 fe:00 13 /opt/torch/lib/{file}\n");
            candidates(None, &environment(&[]), driver, &maps)[0].clone()
        };
        let (own, loaders) = (|file: &str| Path::new("/opt/torch/lib").join(file), PathBuf::from("libcupti.so.13"));
        assert_eq!(first("libcupti.so.12", Some(13_000)), own("libcupti.so.12"), "a newer one beside it is not taken");
        assert_eq!(first("libcupti.so.13", None), own("libcupti.so.13"));
        assert_eq!(first("libcupti.so.2025.3.1", Some(13_000)), own("libcupti.so.2025.3.1"));
        // Newer than the driver, older than what is understood, and a name that tells nothing.
        for file in ["libcupti.so.13", "libcupti.so.2025.3.1"] {
            assert_eq!(first(file, Some(12_080)), Path::new("libcupti.so.12"), "{file}");
        }
        assert_eq!(first("libcupti.so.2024.3.2", Some(12_080)), own("libcupti.so.2024.3.2"));
        for file in ["libcupti.so.11.8", "libcupti.so.2022.3.0", "libcupti.so", "libcuda.so.12"] {
            assert_eq!(first(file, Some(13_000)), loaders, "{file}");
        }
        // Replaced since it was loaded: the file of this name is another one, which would be loaded beside it.
        assert_eq!(first("libcupti.so.12 (deleted)", Some(13_000)), loaders);
    }

    #[test]
    fn of_several_that_are_loaded_the_first_that_suits_is_taken() {
        let line = |file: &str| format!("7f20-7f30 r-xp 00000000 fe:00 13 /opt/{file}\n");
        let maps = ["old/libcupti.so.11.8", "torch/libcupti.so.12", "jax/libcupti.so.13"].map(line).concat();
        let first = |driver| candidates(None, &environment(&[]), driver, &maps)[0].clone();
        assert_eq!(first(Some(13_000)), Path::new("/opt/torch/libcupti.so.12"));
        let maps = ["jax/libcupti.so.13", "torch/libcupti.so.12"].map(line).concat();
        let first = |driver| candidates(None, &environment(&[]), driver, &maps)[0].clone();
        assert_eq!(first(Some(12_080)), Path::new("/opt/torch/libcupti.so.12"), "the other is newer than the driver");
    }

    #[test]
    fn the_loader_is_asked_first_then_the_toolkits() {
        let env = environment(&[("CUDA_HOME", "/opt/cuda"), ("CUDA_PATH", "/opt/cuda")]);
        let all = candidates(None, &env, None, "7f00-7f10 r-xp 00000000 fe:00 12 /usr/lib/libc.so.6\n");
        let names = ["libcupti.so.13", "libcupti.so.12", "libcupti.so"].map(PathBuf::from);
        assert_eq!(all[..3], names);
        assert_eq!(all[3], Path::new("/opt/cuda/extras/CUPTI/lib64/libcupti.so.13"));
        let place = |path: &str| all.iter().position(|p| p == Path::new(path));
        assert!(place("/opt/cuda/lib64/libcupti.so") < place("/usr/local/cuda/extras/CUPTI/lib64/libcupti.so.13"));
        assert!(place("/usr/local/cuda/extras/CUPTI/lib64/libcupti.so.13").is_some());
        if cfg!(target_arch = "x86_64") {
            assert!(place("/opt/cuda/targets/x86_64-linux/lib/libcupti.so.12").is_some());
        }
        let unique: std::collections::BTreeSet<_> = all.iter().collect();
        assert_eq!(unique.len(), all.len(), "a folder named twice is looked into once");
    }

    #[test]
    fn a_library_newer_than_the_driver_comes_last() {
        let first = |driver| candidates(None, &environment(&[]), Some(driver), "")[..3].to_vec();
        assert_eq!(first(12_080), ["libcupti.so.12", "libcupti.so", "libcupti.so.13"].map(PathBuf::from));
        assert_eq!(first(13_020), ["libcupti.so.13", "libcupti.so.12", "libcupti.so"].map(PathBuf::from));
    }

    #[test]
    fn injected_profilers_are_seen() {
        assert_eq!(obstacle(&environment(&[("CUDA_HOME", "/opt/cuda"), ("CUDA_INJECTION64_PATH", "")])), None);
        let text = obstacle(&environment(&[("NSYS_PROFILING_SESSION_ID", "7"), ("CUDA_INJECTION64_PATH", "/x.so")]));
        assert!(text.is_some_and(|e| e.0.contains("nsys")), "the more telling one is named");
        let text =
            obstacle(&environment(&[("NV_COMPUTE_PROFILER_PERFWORKS_DIR", "/ncu")])).map(|e| e.0).unwrap_or_default();
        assert!(text.contains("without ncu"), "{text}");
        let text = obstacle(&environment(&[("CUDA_INJECTION64_PATH", "/x.so")])).map(|e| e.0).unwrap_or_default();
        assert!(text.contains("/x.so") && text.contains("unset it"), "{text}");
    }

    #[test]
    fn versions_are_named_and_bounded() {
        for (api, name, fits) in [
            (18, "11.8 or older", false),
            (19, "12.0 or 12.1", true),
            (28, "12.9", true),
            (130_001, "13.0", true),
            (130_300, "13.3", true),
            (140_000, "14.0", false),
        ] {
            assert_eq!((toolkit(api).as_str(), understood(api)), (name, fits));
        }
        assert_eq!(toolkit(25), "API version 25");
        for (api, detaches) in [(22, false), (23, false), (24, true), (130_001, true)] {
            assert_eq!(detachable(api), detaches, "{}", toolkit(api));
        }
    }

    #[test]
    fn a_loaded_library_is_found_in_the_maps() {
        let maps = "7f00-7f10 r-xp 00000000 fe:00 12 /usr/lib/libc.so.6\n\
                    7f20-7f30 r-xp 00000000 fe:00 13 /opt/with space/libcupti.so.2025.3.1\n\
                    7f40-7f50 rw-p 00000000 00:00 0 [heap]\n\
                    7f60-7f70 r-xp 00000000 fe:00 14 /opt/b/libcupti.so.12\n";
        assert_eq!(loaded(maps, Path::new("libcupti.so.12")).as_deref(), Some(Path::new("/opt/b/libcupti.so.12")));
        let linked = loaded(maps, Path::new("libcupti.so.13"));
        assert_eq!(linked.as_deref(), Some(Path::new("/opt/with space/libcupti.so.2025.3.1")));
        assert_eq!(loaded("", Path::new("libcupti.so")), None);
    }
}
