//! CPU time of the profiler's own threads.

use candlescope_schema::run::{RunManifest, env_key};
use serde_json::Value;

/// CPU time of the profiler's own threads.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Background {
    /// CPU time in nanoseconds (measured).
    pub cpu_ns: u64,
    /// What it is a share of, if that is known.
    pub whole: Option<AvailableCpu>,
}

/// CPU time that was available during the run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AvailableCpu {
    /// Wall time of the run in nanoseconds, from its start to its end.
    pub wall_ns: u64,
    /// Cores the process may use.
    pub cores: u64,
}

impl Background {
    /// The figures of the run; `None` if the platform could not measure them.
    pub fn of(manifest: &RunManifest) -> Option<Self> {
        let cpu_ns = manifest.overhead.background_cpu_ns?;
        let started = (manifest.started_ns > 0).then_some(manifest.started_ns);
        let wall = started.zip(manifest.ended_ns).and_then(|(start, end)| u64::try_from(end.checked_sub(start)?).ok());
        let known = wall.filter(|&ns| ns > 0).zip(cores(manifest).filter(|&n| n > 0));
        Some(Self { cpu_ns, whole: known.map(|(wall_ns, cores)| AvailableCpu { wall_ns, cores }) })
    }

    /// CPU time ÷ (wall time × cores).
    pub fn share(&self) -> Option<f64> {
        self.whole.map(|whole| self.cpu_ns as f64 / (whole.wall_ns as f64 * whole.cores as f64))
    }
}

/// Cores that the process may use, or else those of the machine.
pub fn cores(manifest: &RunManifest) -> Option<u64> {
    let keys = [env_key::CPU_AVAILABLE, env_key::CPU_CORES];
    let other = || manifest.environment.get("logical_cpus").and_then(Value::as_u64);
    keys.iter().find_map(|key| key.of(&manifest.environment)).or_else(other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use candlescope_schema::run::OverheadInfo;
    use serde_json::json;

    #[test]
    fn the_share_is_of_all_cores_and_only_where_both_are_known() {
        let mut manifest = RunManifest { started_ns: 1_000, ended_ns: Some(3_000), ..RunManifest::default() };
        assert_eq!(Background::of(&manifest), None, "not measured is not zero");
        manifest.overhead = OverheadInfo { background_cpu_ns: Some(80), ..OverheadInfo::default() };
        assert_eq!(Background::of(&manifest).and_then(|b| b.share()), None, "cores unknown");
        manifest.environment.insert("cpu_cores".into(), json!(8));
        manifest.environment.insert("cpu_available".into(), json!(4));
        assert_eq!(Background::of(&manifest).and_then(|b| b.share()), Some(0.01), "80 ns of 2000 ns × 4");
        manifest.ended_ns = None;
        assert_eq!(Background::of(&manifest), Some(Background { cpu_ns: 80, whole: None }));
        manifest.ended_ns = Some(i64::MIN);
        assert_eq!(Background::of(&manifest).and_then(|b| b.share()), None);
    }
}
