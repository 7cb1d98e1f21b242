//! The machine and the versions that a figure was measured on, without which it means nothing.

use serde_json::{Map, Value, json};
use std::process::Command;

/// The workspace's lock file at build time, from which the peers' versions are read.
const LOCK: &str = include_str!("../../../Cargo.lock");

const PEERS: [&str; 12] = [
    "candle-core",
    "candlescope-core",
    "fastrace",
    "nvtx",
    "opentelemetry_sdk",
    "quanta",
    "rtrb",
    "tracing",
    "tracing-chrome",
    "tracing-flame",
    "tracing-opentelemetry",
    "tracing-subscriber",
];

/// Processor, memory, kernel, compiler, load.
pub fn describe() -> Value {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let cpuinfo = read("/proc/cpuinfo");
    let field = |text: &str, key: &str| {
        let line = text.lines().find(|l| l.starts_with(key));
        line.and_then(|l| l.split(':').nth(1)).map(|v| v.trim().to_string())
    };
    let family = ["cpu family", "model\t", "stepping"].map(|k| field(&cpuinfo, k).unwrap_or_default());
    json!({
        "cpu": field(&cpuinfo, "model name"),
        "cpu_family_model_stepping": family.join("/"),
        "cpus": std::thread::available_parallelism().map(usize::from).unwrap_or(0),
        "hypervisor": cpuinfo.contains(" hypervisor"),
        "memory": field(&read("/proc/meminfo"), "MemTotal"),
        "kernel": read("/proc/sys/kernel/osrelease").trim(),
        "clocksource": read("/sys/devices/system/clocksource/clocksource0/current_clocksource").trim(),
        "load": load(),
        "rustc": first_line("rustc", &["--version"]),
        "commit": first_line("git", &["rev-parse", "--short=12", "HEAD"]),
        "time_unix": std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |d| d.as_secs()),
        "target_features": "x86-64-v3 where the workspace's cargo configuration applies",
    })
}

/// Average load over one minute; `NaN` if it is not known.
pub fn load() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().and_then(|n| n.parse().ok()).unwrap_or(f64::NAN)
}

fn first_line(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok().filter(|o| o.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).lines().next()?.to_string())
}

/// Versions of the crates measured.
pub fn versions() -> Value {
    #[derive(serde::Deserialize)]
    struct Lock {
        package: Vec<Package>,
    }
    #[derive(serde::Deserialize)]
    struct Package {
        name: String,
        version: String,
    }
    let lock: Lock = toml::from_str(LOCK).unwrap_or(Lock { package: Vec::new() });
    let known = lock.package.into_iter().filter(|p| PEERS.contains(&p.name.as_str()));
    Value::Object(known.map(|p| (p.name, Value::from(p.version))).collect::<Map<_, _>>())
}

#[cfg(test)]
mod tests {
    #[test]
    fn names_the_machine_and_the_peers() {
        let versions = super::versions();
        assert!(versions["tracing-chrome"].is_string(), "{versions}");
        assert!(super::describe()["cpus"].as_u64() > Some(0));
    }
}
