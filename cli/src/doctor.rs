//! `candlescope doctor`: what this machine has, and what is not available because something is missing.

use crate::args::DoctorArgs;
use crate::output::say;
use anyhow::Result;
use candlescope_core::{Collector, Session};
use comfy_table::{ContentArrangement, Table, presets};
use serde::Serialize;
#[cfg(not(feature = "gpu"))]
use std::path::{Path, PathBuf};
use tracing::level_filters::{LevelFilter, STATIC_MAX_LEVEL};

/// One thing that was checked.
#[derive(Debug, Serialize)]
struct Check {
    name: &'static str,
    ok: bool,
    found: String,
    /// What is not available without it; empty if it was found.
    cost: String,
}

impl Check {
    fn new(name: &'static str, found: Option<String>, cost: &str) -> Self {
        let ok = found.is_some();
        let cost = if ok { String::new() } else { cost.to_string() };
        Self { name, ok, found: found.unwrap_or_else(|| "not found".into()), cost }
    }
}

pub(crate) fn run(args: &DoctorArgs) -> Result<()> {
    let checks = checks()?;
    if args.json {
        return say(&serde_json::to_string(&serde_json::json!({ "checks": checks }))?);
    }
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_content_arrangement(ContentArrangement::Dynamic);
    if table.width().is_none() {
        // Not a terminal. The reason why something is missing can be long.
        table.set_width(140);
    }
    table.set_header(["", "what", "found", "what you go without"]);
    for check in &checks {
        table.add_row([if check.ok { "✓" } else { "✗" }, check.name, &check.found, &check.cost]);
    }
    say(&table.to_string())?;
    let lacking = checks.iter().filter(|c| !c.ok).count();
    say(&format!(
        "{} of {} found. Whatever is missing, candlescope records on the CPU.",
        checks.len() - lacking,
        checks.len()
    ))
}

fn checks() -> Result<Vec<Check>> {
    let mut checks = host()?;
    checks.extend(gpu());
    Ok(checks)
}

fn host() -> Result<Vec<Check>> {
    let mut collector = candlescope_collectors::host::HostCollector::new();
    let facts = collector.describe();
    let fact = |key: &str| facts.get(key).map(|v| v.as_str().map_or_else(|| v.to_string(), str::to_string));
    let (_, session) = Session::builder().start()?;
    let per_interval = session.handle().per_interval_ns();
    let manifest = session.finish();
    let clock = &manifest.clock;
    let tsc = clock.source == "tsc";
    let mut rows = vec![
        Check::new("operating system", fact("kernel").or_else(|| fact("os")), "samples of the process are missing"),
        Check::new("CPU", fact("cpu_model").or_else(|| fact("cpu")), "run.json cannot name the CPU"),
        Check {
            name: "clock",
            ok: tsc,
            found: format!(
                "{} at {:.0} MHz, {:.0} ns a reading (measured)",
                clock.source,
                clock.ticks_per_second / 1e6,
                clock.read_ns
            ),
            cost: if tsc {
                String::new()
            } else {
                "no invariant time-stamp counter: every interval costs two system clock readings more".into()
            },
        },
        Check {
            name: "cost of an interval",
            ok: per_interval < 500.0,
            found: format!("{per_interval:.0} ns on the application's thread (measured)"),
            cost: if per_interval < 500.0 {
                String::new()
            } else {
                "slow machine or debug build: build with optimisation".into()
            },
        },
        Check {
            name: "trace spans",
            ok: STATIC_MAX_LEVEL >= LevelFilter::TRACE,
            found: format!("compiled up to {STATIC_MAX_LEVEL}"),
            cost: if STATIC_MAX_LEVEL >= LevelFilter::TRACE {
                String::new()
            } else {
                "candle's spans do not exist: remove tracing's max_level_* features".into()
            },
        },
    ];
    rows.push(candle_threads());
    let simd = simd();
    rows.push(Check::new(
        "SIMD kernels",
        simd,
        "candle's quantised and half-precision kernels run without AVX2: several times slower",
    ));
    Ok(rows)
}

/// What candle pays at each product of matrices on a CPU to know on how many threads it computes.
fn candle_threads() -> Check {
    let asked = || {
        let begun = std::time::Instant::now();
        std::hint::black_box(candle_core::utils::get_num_threads());
        begun.elapsed().as_nanos() as f64 / 1e3
    };
    let each = (0..3).map(|_| asked()).fold(f64::INFINITY, f64::min);
    let set = std::env::var("RAYON_NUM_THREADS").ok();
    let ok = each < 5.0;
    Check {
        name: "candle's threads",
        ok,
        found: format!(
            "RAYON_NUM_THREADS {}; candle asks for it in {each:.1} µs (measured)",
            set.map_or_else(|| "is not set".into(), |value| format!("is {value}"))
        ),
        cost: if ok {
            String::new()
        } else {
            format!(
                "so much time at every product of matrices on a CPU: set RAYON_NUM_THREADS, such as \
                 RAYON_NUM_THREADS={}",
                std::thread::available_parallelism().map_or(1, usize::from)
            )
        },
    }
}

/// What the build uses, not what the CPU could do: candle chooses at compile time.
fn simd() -> Option<String> {
    let mut found = Vec::new();
    for (name, on) in [
        ("avx2", cfg!(target_feature = "avx2")),
        ("fma", cfg!(target_feature = "fma")),
        ("f16c", cfg!(target_feature = "f16c")),
        ("neon", cfg!(target_feature = "neon")),
    ] {
        if on {
            found.push(name);
        }
    }
    (!found.is_empty()).then(|| format!("compiled with {}", found.join(", ")))
}

/// The build whose models run on CUDA devices: this one, or the one that it hands commands to.
fn cuda_build() -> Option<String> {
    #[cfg(feature = "cuda")]
    return Some("this one".into());
    #[cfg(not(feature = "cuda"))]
    crate::hand_over::cuda_build().map(|program| program.display().to_string())
}

fn gpu() -> Vec<Check> {
    let driver = read_line("/proc/driver/nvidia/version");
    let restricted = std::fs::read_to_string("/proc/driver/nvidia/params")
        .is_ok_and(|p| p.lines().any(|l| l.replace(' ', "") == "RmProfilingAdminOnly:1"));
    let mut rows = vec![
        Check::new(
            "Build with CUDA",
            cuda_build(),
            "models run on the CPU only: cargo build -p candlescope-cli --features cuda --bin candlescope-cuda",
        ),
        Check::new("NVIDIA driver", driver.clone(), "no GPU: models run on the CPU only"),
    ];
    rows.extend(devices());
    rows.extend([
        Check {
            name: "NVTX in this build",
            ok: cfg!(feature = "nvtx"),
            found: if cfg!(feature = "nvtx") { "yes" } else { "no" }.into(),
            cost: if cfg!(feature = "nvtx") {
                ""
            } else {
                "Nsight timelines show kernels without the model's layers: build with --features nvtx"
            }
            .into(),
        },
        Check::new(
            "Nsight Systems (nsys)",
            crate::nsight::NSYS.find().ok().map(|file| file.display().to_string()),
            "no Nsight timelines from this machine",
        ),
        Check::new(
            "Nsight Compute (ncu)",
            crate::nsight::NCU.find().ok().map(|file| file.display().to_string()),
            "no hardware counters of kernels",
        ),
    ]);
    if driver.is_some() {
        rows.push(Check {
            name: "GPU profiling permission",
            ok: !restricted,
            found: if restricted { "administrators only (RmProfilingAdminOnly=1)" } else { "all users" }.into(),
            cost: if restricted { "hardware counters need root, or NVreg_RestrictProfilingToAdminUsers=0" } else { "" }
                .into(),
        });
    }
    rows
}

/// Asks CUDA, NVML and CUPTI themselves instead of looking for files.
#[cfg(feature = "gpu")]
fn devices() -> Vec<Check> {
    use candlescope_collectors::{cuda, cupti, nvml};
    let asked = |name, answer: Result<String, String>, cost: &str| match answer {
        Ok(found) => Check::new(name, Some(found), cost),
        // The message has the problem and its remedy; the cost says what it affects.
        Err(why) => Check { name, ok: false, found: why, cost: cost.into() },
    };
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
        asked("CUDA devices", cuda, "no GPU time of layers; models run on the CPU only"),
        asked("NVML", nvml, "no GPU power, energy, memory, clocks or temperature"),
        asked("CUPTI", cupti, "no kernels (--cupti)"),
    ]
}

#[cfg(not(feature = "gpu"))]
fn devices() -> Vec<Check> {
    vec![
        Check::new("libcuda", library("libcuda.so.1"), "no GPU: models run on the CPU only"),
        Check::new("NVML", library("libnvidia-ml.so.1"), "no GPU power, memory, clocks or temperature"),
        Check::new("CUPTI", library("libcupti.so"), "no kernels"),
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
