//! The host: processors, threads, memory, other users, and what recording costs on it.

use super::check::{Check, Group};
use anyhow::Result;
use candlescope_core::process_facts::RAYON_NUM_THREADS;
use candlescope_core::run::env_key;
use candlescope_core::{Collector, Session};
use tracing::level_filters::{LevelFilter, STATIC_MAX_LEVEL};

pub(super) fn checks() -> Result<Vec<Check>> {
    let mut collector = candlescope_collectors::host::HostCollector::new();
    let facts = collector.describe();
    let fact = |key: &str| facts.get(key).map(|v| v.as_str().map_or_else(|| v.to_string(), str::to_string));
    let (_, session) = Session::builder().start()?;
    let per_interval = session.handle().per_interval_ns();
    let manifest = session.finish();
    let clock = &manifest.clock;
    let has_spans = STATIC_MAX_LEVEL >= LevelFilter::TRACE;
    let told = fact("kernel").or_else(|| fact("os"));
    let mut rows = vec![
        operating_system(told, fact("os_family"), IS_LINUX),
        cpu(fact(env_key::CPU_MODEL.name()).or_else(|| fact("cpu")), IS_LINUX),
        threads(),
        candle_threads(),
        Check::new(
            Group::Cpu,
            "SIMD kernels",
            simd(),
            "candle's quantised and half-precision kernels run without AVX2: several times slower",
        ),
    ];
    rows.extend(memory());
    rows.extend(others());
    rows.extend([
        Check::judged(
            Group::Recording,
            "clock",
            clock.source == "tsc",
            format!(
                "{} at {:.0} MHz, {:.0} ns a reading (measured)",
                clock.source,
                clock.ticks_per_second / 1e6,
                clock.read_ns
            ),
            "no invariant time-stamp counter: every interval costs two system clock readings more",
        ),
        Check::judged(
            Group::Recording,
            "cost of an interval",
            per_interval < 500.0,
            format!("{per_interval:.0} ns on the application's thread (measured)"),
            "slow machine or debug build: build with optimisation",
        ),
        Check::judged(
            Group::Recording,
            "trace spans",
            has_spans,
            format!("compiled up to {STATIC_MAX_LEVEL}"),
            "candle's spans do not exist: remove tracing's max_level_* features",
        ),
        call_stacks(),
        switches(),
        exporters(),
    ]);
    Ok(rows)
}

/// Only Linux tells of the process, of its processor and of who else uses it: elsewhere nothing is wrong without.
const IS_LINUX: bool = cfg!(target_os = "linux");

fn operating_system(told: Option<String>, family: Option<String>, is_linux: bool) -> Check {
    let (ok, cost) = (told.is_some(), "samples of the process are missing");
    let found = told.or(family).unwrap_or_else(|| "not found".into());
    let check = Check::judged(Group::Cpu, "operating system", ok, found, cost);
    if is_linux { check } else { check.optional() }
}

fn cpu(model: Option<String>, is_linux: bool) -> Check {
    let check = Check::new(Group::Cpu, "CPU", model, "run.json cannot name the CPU");
    if is_linux { check } else { check.optional() }
}

/// What samples call stacks here, and what it cannot see.
fn call_stacks() -> Check {
    let found = candlescope_collectors::stacks::probe();
    let causes =
        || found.sources.iter().filter_map(|source| Some(format!("{}: {}", source.name, source.cause.as_ref()?)));
    let cost = |what: &str| match causes().collect::<Vec<_>>().join("; ") {
        causes if causes.is_empty() => what.to_string(),
        causes => format!("{what} ({causes})"),
    };
    let name = "call stacks";
    match found.sources.iter().find(|source| Some(source.name) == found.source()) {
        Some(source) if source.blind_to.is_empty() => Check::judged(Group::Recording, name, true, source.name, ""),
        Some(source) => {
            let blind = cost(&format!("not seen: {}", source.blind_to.join("; ")));
            Check::judged(Group::Recording, name, true, format!("{}; {blind}", source.name), "")
        }
        None => Check::new(Group::Recording, name, None, &cost("functions are not told below intervals")).optional(),
    }
}

/// Whether it is known when threads leave their processor.
fn switches() -> Check {
    let found = candlescope_collectors::stacks::probe();
    let shown = found.switches.then(|| "by perf events".to_string());
    let cost = match IS_LINUX {
        true => {
            "not known when threads wait or lose their processor: a container needs `--security-opt seccomp=unconfined`, or \
             `sysctl kernel.perf_event_paranoid=2`"
        }
        false => "not known when threads wait or lose their processor",
    };
    Check::new(Group::Recording, "switches of threads", shown, cost).optional()
}

/// How many threads may compute.
fn threads() -> Check {
    let available = std::thread::available_parallelism().map_or(1, usize::from);
    let physical = crate::threads::physical_cores();
    let found = format!("{available} may run at once; models compute on {physical} by default (--threads)");
    Check::judged(Group::Cpu, "threads", true, found, "")
}

/// What candle pays at each product of matrices on a CPU to know on how many threads it computes.
fn candle_threads() -> Check {
    let asked = || {
        let begun = std::time::Instant::now();
        std::hint::black_box(candle_core::utils::get_num_threads());
        begun.elapsed().as_nanos() as f64 / 1e3
    };
    let each = (0..3).map(|_| asked()).fold(f64::INFINITY, f64::min);
    let set = std::env::var(RAYON_NUM_THREADS).ok();
    Check::judged(
        Group::Cpu,
        "candle's threads",
        each < 5.0,
        format!(
            "{RAYON_NUM_THREADS} {}; candle asks for it in {each:.1} µs (measured)",
            set.map_or_else(|| "is not set".into(), |value| format!("is {value}"))
        ),
        &format!(
            "so much time at every product of matrices in programs of yours (candlescope's commands set it): set \
             {RAYON_NUM_THREADS}, such as {RAYON_NUM_THREADS}={}",
            crate::threads::physical_cores()
        ),
    )
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

/// What a model may still take.
#[cfg(feature = "lab")]
fn memory() -> Option<Check> {
    let free = candlescope_lab::hardware::available_bytes()?;
    let shown = candlescope_core::numbers::bytes(free as f64);
    Some(Check::judged(
        Group::Cpu,
        "memory",
        free >= 1 << 30,
        format!("{shown} can still be taken"),
        "larger models do not load: end other programs, or raise the limit of the container",
    ))
}

#[cfg(not(feature = "lab"))]
fn memory() -> Option<Check> {
    None
}

/// Whether the processors are this user's alone, as benchmarks look for it; `None` where nobody tells.
#[cfg(feature = "lab")]
fn others() -> Option<Check> {
    if !IS_LINUX {
        return None;
    }
    use candlescope_lab::method::{HostSurroundings, Surroundings};
    let found = HostSurroundings::new().disturbances();
    let quiet = found.is_empty();
    let found = if quiet { "none that keeps the processors busy".to_string() } else { found.join("; ") };
    let cost = "measure while they are quiet, or repeat: `compare` and `gate` need it most";
    Some(Check::judged(Group::Cpu, "other users", quiet, found, cost))
}

#[cfg(not(feature = "lab"))]
fn others() -> Option<Check> {
    None
}

/// Where this build can send what it records.
fn exporters() -> Check {
    let all = [
        ("Parquet", true),
        ("Perfetto", true),
        ("Chrome trace", true),
        ("OTLP", cfg!(feature = "otlp")),
        ("Prometheus", cfg!(feature = "prometheus")),
        ("NVTX", cfg!(feature = "nvtx")),
    ];
    let names = |wanted: bool| all.iter().filter(move |(_, has)| *has == wanted).map(|(name, _)| *name);
    let found = names(true).collect::<Vec<_>>().join(", ");
    let lacking: Vec<&str> = names(false).collect();
    let cost = format!("not in this build: {} (features otlp, prometheus, nvtx)", lacking.join(", "));
    Check::judged(Group::Recording, "exporters", lacking.is_empty(), found, &cost).optional()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_only_linux_tells_is_no_fault_elsewhere() {
        let here = |is_linux| [operating_system(None, Some("windows".into()), is_linux), cpu(None, is_linux)];
        assert!(here(true).iter().all(Check::is_fault));
        let elsewhere = here(false);
        assert!(!elsewhere.iter().any(Check::is_fault), "{elsewhere:?}");
        assert_eq!(elsewhere[0].found, "windows");
        assert!(!elsewhere[0].cost.is_empty() && !elsewhere[1].cost.is_empty(), "what is missing is said");
        let known = [operating_system(Some("Linux 6.1".into()), None, false), cpu(Some("EPYC".into()), false)];
        assert!(known.iter().all(|check| check.ok), "{known:?}");
    }
}
