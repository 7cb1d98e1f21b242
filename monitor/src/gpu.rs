//! GPUs through NVML.

use crate::error::MonitorError;
use crate::reading::GpuReading;
use std::time::Duration;

/// What is asked less often than once a period keeps its value for this long.
#[cfg(feature = "gpu")]
const KEPT: Duration = Duration::from_millis(2_500);

/// The machine's GPUs, or why there are none.
#[derive(Debug)]
pub(crate) struct Gpus {
    #[cfg(feature = "gpu")]
    source: Option<source::Source>,
    trouble: Option<String>,
}

#[cfg(feature = "gpu")]
mod source {
    use candlescope_collectors::nvml::NvmlCollector;
    use std::collections::BTreeMap;
    use std::time::Duration;

    #[derive(Debug)]
    pub(crate) struct Source {
        pub(crate) nvml: NvmlCollector,
        /// When a metric of a GPU was told, and its value.
        pub(crate) told: BTreeMap<(String, &'static str), (Duration, f64)>,
    }
}

#[cfg(feature = "gpu")]
impl Gpus {
    /// Those that are named, or all. Without any, watching goes on without them, unless one is named.
    ///
    /// # Errors
    /// If a GPU is named that cannot be read.
    pub(crate) fn open(named: &[String]) -> Result<Self, MonitorError> {
        use candlescope_collectors::nvml::NvmlCollector;
        match NvmlCollector::only(named.iter().map(String::as_str)) {
            Ok(nvml) => Ok(Self { source: Some(source::Source { nvml, told: Default::default() }), trouble: None }),
            Err(error) if named.is_empty() => Ok(Self { source: None, trouble: Some(error.to_string()) }),
            Err(error) => Err(MonitorError::NoGpu(error.to_string())),
        }
    }

    /// Figures now, and why there are none, or what is wrong with one of them.
    pub(crate) fn look(&mut self, at: Duration) -> (Vec<GpuReading>, Option<String>) {
        use crate::figures::GpuFigures;
        use candlescope_core::{Collector, HostNs, Samples};
        let Some(source) = &mut self.source else { return (Vec::new(), self.trouble.clone()) };
        let mut samples = Vec::new();
        if let Err(error) = source.nvml.sample(&mut Samples::new(HostNs::now(), &mut samples)) {
            // A GPU that is lost is told of once, and stays lost.
            self.trouble = Some(error.to_string());
        }
        for sample in samples {
            source.told.insert((sample.device.to_string(), sample.metric), (at, sample.value));
        }
        source.told.retain(|_, (told, _)| at.saturating_sub(*told) <= KEPT);
        let figures = |uuid: &str| {
            let its = source.told.iter().filter(|((device, _), _)| device == uuid);
            GpuFigures::of(its.map(|((_, metric), (_, value))| (*metric, *value)))
        };
        let gpus = source
            .nvml
            .gpus()
            .map(|gpu| GpuReading::new(gpu.index, gpu.uuid.clone(), gpu.name.clone(), figures(&gpu.uuid)));
        (gpus.collect(), self.trouble.clone())
    }
}

#[cfg(not(feature = "gpu"))]
impl Gpus {
    /// This build reads none.
    ///
    /// # Errors
    /// If a GPU is named.
    pub(crate) fn open(named: &[String]) -> Result<Self, MonitorError> {
        let why = "this build lacks the feature gpu".to_string();
        if named.is_empty() { Ok(Self { trouble: Some(why) }) } else { Err(MonitorError::NoGpu(why)) }
    }

    pub(crate) fn look(&mut self, _: Duration) -> (Vec<GpuReading>, Option<String>) {
        (Vec::new(), self.trouble.clone())
    }
}
