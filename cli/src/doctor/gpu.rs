//! GPUs, and the tools for them.

use super::check::{Check, Group};
#[cfg(not(feature = "gpu"))]
use std::path::{Path, PathBuf};

/// The build whose models run on CUDA devices: this one, or the one that it hands commands to.
fn cuda_build() -> Option<String> {
    #[cfg(feature = "cuda")]
    return Some("this one".into());
    #[cfg(not(feature = "cuda"))]
    crate::hand_over::cuda_build().map(|program| program.display().to_string())
}

/// Name, finding and cost of a machine that has none.
pub(super) const NONE: [&str; 3] = [
    "NVIDIA GPU",
    "none: no NVIDIA driver is loaded",
    "models run on the CPU; what needs a GPU (its time, kernels, power) is absent, and everything else is complete",
];

/// Whether there is a GPU that is of use, and what was checked of it.
pub(super) fn checks() -> (bool, Vec<Check>) {
    let driver = read_line("/proc/driver/nvidia/version");
    let restricted = std::fs::read_to_string("/proc/driver/nvidia/params")
        .is_ok_and(|p| p.lines().any(|l| l.replace(' ', "") == "RmProfilingAdminOnly:1"));
    let devices = devices();
    // In WSL and in some containers the driver's library is there without the kernel's files.
    let has_gpu = driver.is_some() || devices.first().is_some_and(|cuda| cuda.ok);
    let mut rows = vec![
        Check::new(
            Group::Gpu,
            "Build with CUDA",
            cuda_build(),
            "models run on the CPU only: cargo build -p candlescope-cli --features cuda --bin candlescope-cuda",
        ),
        Check::new(Group::Gpu, "NVIDIA driver", driver.clone(), "no GPU: models run on the CPU only"),
    ];
    rows.extend(devices);
    if driver.is_some() {
        rows.push(Check::judged(
            Group::Gpu,
            "GPU profiling permission",
            !restricted,
            if restricted { "administrators only (RmProfilingAdminOnly=1)" } else { "all users" },
            "hardware counters need root, or NVreg_RestrictProfilingToAdminUsers=0",
        ));
    }
    let tool = |name, found: Option<std::path::PathBuf>, cost: &str| {
        Check::new(Group::Gpu, name, found.map(|file| file.display().to_string()), cost).optional()
    };
    rows.extend([
        Check::judged(
            Group::Gpu,
            "NVTX in this build",
            cfg!(feature = "nvtx"),
            if cfg!(feature = "nvtx") { "yes" } else { "no" },
            "Nsight timelines show kernels without the model's layers: build with --features nvtx",
        )
        .optional(),
        tool("Nsight Systems (nsys)", crate::nsight::NSYS.find().ok(), "no Nsight timelines from this machine"),
        tool("Nsight Compute (ncu)", crate::nsight::NCU.find().ok(), "no hardware counters of kernels"),
    ]);
    let rows = rows.into_iter().map(|check| if has_gpu { check } else { check.optional() });
    (has_gpu, rows.collect())
}

/// Asks CUDA, NVML and CUPTI themselves instead of looking for files.
#[cfg(feature = "gpu")]
fn devices() -> Vec<Check> {
    use candlescope_collectors::{cuda, cupti, nvml};
    let cuda = cuda::probe().map_err(|e| e.to_string()).map(|found| {
        let devices: Vec<_> = found
            .devices
            .iter()
            .map(|d| {
                let (major, minor) = d.compute_capability;
                let gib = d.memory_bytes as f64 / (1u64 << 30) as f64;
                format!("cuda:{} {} ({major}.{minor}, {gib:.0} GiB, {})", d.ordinal, d.name, d.uuid)
            })
            .collect();
        format!("CUDA {}; {}", found.driver, devices.join("; "))
    });
    let nvml = nvml::probe().map_err(|e| e.to_string()).map(|found| {
        let version = |v: &Option<String>| v.clone().unwrap_or_else(|| "unknown".into());
        let gpus: Vec<_> = found
            .gpus
            .iter()
            .map(|gpu| {
                let lacking: Vec<_> = gpu.missing.iter().map(|(metric, why)| format!("{metric} ({why})")).collect();
                let lacking =
                    if lacking.is_empty() { String::new() } else { format!("; without {}", lacking.join(", ")) };
                format!("{}: {} metrics{lacking}", gpu.facts.uuid, gpu.available.len())
            })
            .collect();
        format!("driver {}; {}", version(&found.driver), gpus.join("; "))
    });
    let cupti = cupti::probe()
        .map_err(|e| e.to_string())
        .map(|found| format!("of CUDA {}, {}", found.toolkit, found.library.display()));
    vec![
        Check::asked(Group::Gpu, "CUDA devices", cuda, "no GPU time of layers; models run on the CPU only"),
        Check::asked(Group::Gpu, "NVML", nvml, "no GPU power, energy, memory, clocks or temperature"),
        Check::asked(Group::Gpu, "CUPTI", cupti, "no kernels (--cupti)"),
    ]
}

#[cfg(not(feature = "gpu"))]
fn devices() -> Vec<Check> {
    vec![
        Check::new(Group::Gpu, "libcuda", library("libcuda.so.1"), "no GPU: models run on the CPU only"),
        Check::new(Group::Gpu, "NVML", library("libnvidia-ml.so.1"), "no GPU power, memory, clocks or temperature"),
        Check::new(Group::Gpu, "CUPTI", library("libcupti.so"), "no kernels"),
    ]
}

fn read_line(path: &str) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    text.lines().next().map(|l| l.trim().to_string()).filter(|l| !l.is_empty())
}

#[cfg(not(feature = "gpu"))]
/// Path of a library whose name starts with `name`, in the dynamic linker's usual places.
fn library(name: &str) -> Option<String> {
    let mut places: Vec<PathBuf> =
        std::env::var_os("LD_LIBRARY_PATH").map(|v| std::env::split_paths(&v).collect()).unwrap_or_default();
    for home in ["CUDA_HOME", "CUDA_PATH"].iter().filter_map(std::env::var_os) {
        for sub in ["lib64", "lib", "extras/CUPTI/lib64"] {
            places.push(Path::new(&home).join(sub));
        }
    }
    for fixed in [
        "/usr/lib/x86_64-linux-gnu",
        "/usr/lib/aarch64-linux-gnu",
        "/usr/lib64",
        "/usr/lib",
        "/usr/local/nvidia/lib64",
        "/usr/local/cuda/lib64",
        "/usr/local/cuda/extras/CUPTI/lib64",
    ] {
        places.push(fixed.into());
    }
    places.iter().find_map(|place| {
        let entries = std::fs::read_dir(place).ok()?;
        let mut names: Vec<_> =
            entries.flatten().filter(|e| e.file_name().to_string_lossy().starts_with(name)).collect();
        names.sort_by_key(std::fs::DirEntry::file_name);
        names.first().map(|e| e.path().display().to_string())
    })
}
