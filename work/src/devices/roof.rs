//! What a device allows: the roofline.
//!
//! A kernel takes no less than the longer of FLOPs ÷ peak FLOP/s and bytes ÷ bandwidth
//! [Williams, Waterman, Patterson: Roofline, CACM 52(4), 2009].

use super::formats::Multiply;
use super::peak::{Origin, Peak};
use serde::ser::{Serialize, SerializeStruct, Serializer};
use std::collections::BTreeMap;

/// The peaks of a device, or of several together, of which the first of a kind and type stands: a measured one before
/// one of the datasheet.
#[derive(Debug, Clone, PartialEq)]
pub struct Roof {
    peaks: Vec<Peak>,
    devices: u64,
}

/// The least time that some work takes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LeastTime<'a> {
    /// The time itself, in seconds.
    pub seconds: f64,
    /// The peak that limits it: FLOP/s, or bandwidth.
    pub limit: &'a Peak,
}

impl Roof {
    /// The roof that these peaks make, of one device. Among those of one origin the order given stays.
    pub fn new(peaks: impl IntoIterator<Item = Peak>) -> Self {
        let mut peaks: Vec<Peak> = peaks.into_iter().filter(|peak| peak.is_flops() || peak.is_bandwidth()).collect();
        peaks.sort_by_key(|peak| peak.origin() != Origin::Measured);
        Self { peaks, devices: 1 }
    }

    /// The roof of so many such devices together.
    #[must_use]
    pub fn of_devices(self, devices: u64) -> Self {
        self.scaled(devices.max(1), |value| value * devices.max(1) as f64)
    }

    /// One device's share, which is the roof of what runs on one device: operators, kernels, single steps.
    #[must_use]
    pub fn of_one(&self) -> Self {
        self.clone().scaled(1, |value| value / self.devices as f64)
    }

    fn scaled(mut self, devices: u64, change: impl Fn(f64) -> f64) -> Self {
        self.peaks.iter_mut().for_each(|peak| peak.value = change(peak.value));
        Self { devices, ..self }
    }

    /// Devices whose peaks these are together.
    pub fn devices(&self) -> u64 {
        self.devices
    }

    /// The peaks, those that stand before others first.
    pub fn peaks(&self) -> &[Peak] {
        &self.peaks
    }

    /// The origin of the first peak; that of all, if the roof was made of those of one.
    pub fn origin(&self) -> Origin {
        self.peaks.first().map_or(Origin::Datasheet, Peak::origin)
    }

    /// Where the first peak comes from.
    pub fn source(&self) -> &str {
        self.peaks.first().map_or("", |peak| &peak.source)
    }

    /// Whether others were at work while some of it was measured: the device may reach more.
    pub fn is_disturbed(&self) -> bool {
        self.peaks.iter().any(|peak| peak.disturbed)
    }

    /// The bandwidth, in bytes/s.
    pub fn bandwidth(&self) -> Option<&Peak> {
        self.peaks.iter().find(|peak| peak.is_bandwidth())
    }

    /// Peak FLOP/s for work in `dtype`. A ratio to another type's peak means nothing.
    pub fn flops(&self, dtype: Option<&str>) -> Option<&Peak> {
        self.peaks.iter().find(|peak| peak.is_flops() && peak.is_for(dtype))
    }

    /// FLOP/s by type; types for which no peak is known are not there.
    pub fn flops_by_type(&self) -> BTreeMap<Multiply, f64> {
        let typed =
            |kind: Multiply| Some((kind, self.flops(Some(kind.name())).filter(|peak| peak.dtype.is_some())?.value));
        Multiply::ALL.into_iter().filter_map(typed).collect()
    }

    /// The least time of so many FLOPs in `dtype` and so many bytes. Without FLOPs only bandwidth limits it. `None`
    /// where a peak that could limit it is not known.
    pub fn least_time(&self, flops: Option<f64>, bytes: f64, dtype: Option<&str>) -> Option<LeastTime<'_>> {
        let bandwidth = self.bandwidth()?;
        let by_memory = LeastTime { seconds: bytes / bandwidth.value, limit: bandwidth };
        let Some(flops) = flops.filter(|flops| *flops > 0.0) else { return Some(by_memory) };
        let peak = self.flops(dtype)?;
        let by_computing = LeastTime { seconds: flops / peak.value, limit: peak };
        Some(if by_computing.seconds > by_memory.seconds { by_computing } else { by_memory })
    }
}

impl Roof {
    /// Achieved ÷ attainable of work at these rates: the larger of bytes/s ÷ bandwidth and, where anything is computed,
    /// FLOP/s ÷ its peak. `None` if the roof lacks one of these. Without FLOP/s of 8 bits, memory alone decides for work
    /// at an intensity below every ridge that the roof has.
    pub fn utilisation(&self, flops_per_s: f64, bytes_per_s: f64, multiply: Option<Multiply>) -> Option<f64> {
        if let Some(least) = self.least_time(Some(flops_per_s), bytes_per_s, multiply.map(Multiply::name)) {
            return Some(least.seconds);
        }
        let by_memory = bytes_per_s / self.bandwidth()?.value;
        // Eight bits are there to be multiplied faster than wider types, so their peak is no lower than the lowest of
        // these.
        let narrow = multiply.is_some_and(Multiply::is_narrow);
        let least = self.flops_by_type().into_values().fold(f64::INFINITY, f64::min);
        let below = least.is_finite() && bytes_per_s > 0.0 && flops_per_s / least <= by_memory;
        (narrow && below).then_some(by_memory)
    }

    /// The type whose FLOP/s stand in for `kind`: for numbers of 8 bits those of the next wider type that the roof has,
    /// as predictions take them. Wider types are multiplied by other units, so that theirs stand in for nothing.
    pub fn stands_in_for(&self, kind: Multiply) -> Option<Multiply> {
        let has = |kind: Multiply| self.flops(Some(kind.name())).is_some();
        let narrow = kind.is_narrow() && !has(kind);
        kind.wider().iter().copied().find(|wider| narrow && has(*wider))
    }
}

/// Of peaks of one origin.
impl Serialize for Roof {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut roof = serializer.serialize_struct("Roof", 5 + usize::from(self.is_disturbed()))?;
        roof.serialize_field("origin", &self.origin())?;
        roof.serialize_field("source", self.source())?;
        roof.serialize_field("flops", &self.flops_by_type())?;
        roof.serialize_field("bandwidth", &self.bandwidth().map(|peak| peak.value))?;
        roof.serialize_field("devices", &self.devices)?;
        if self.is_disturbed() {
            roof.serialize_field("disturbed", &true)?;
        }
        roof.end()
    }
}

#[cfg(test)]
mod tests {
    use super::super::peak::PeakKind;
    use super::*;

    /// 100 GFLOP/s in f32 and 10 GB/s: a ridge at 10 FLOP/B.
    fn roof() -> Roof {
        let peak = |kind, value, dtype: Option<&str>| Peak {
            kind,
            value,
            label: "measured".to_string(),
            source: "a bench".to_string(),
            dtype: dtype.map(str::to_string),
            disturbed: false,
        };
        Roof::new([peak(PeakKind::Flops, 100e9, Some("f32")), peak(PeakKind::Bandwidth, 10e9, None)])
    }

    #[test]
    fn the_lower_of_two_roofs_limits() {
        let roof = roof();
        // 2 FLOP/B: 20 GFLOP/s are attainable. 2e9 FLOPs take 0.1 s at least.
        let memory = roof.least_time(Some(2e9), 1e9, Some("f32")).unwrap();
        assert_eq!((memory.seconds, memory.limit.kind), (0.1, PeakKind::Bandwidth));
        // 40 FLOP/B: the peak itself.
        let compute = roof.least_time(Some(40e9), 1e9, Some("f32")).unwrap();
        assert_eq!((compute.seconds, compute.limit.kind), (0.4, PeakKind::Flops));
        // Without FLOPs, bandwidth is all that limits.
        assert_eq!(roof.least_time(None, 1e9, Some("f16")).unwrap().seconds, 0.1);
        assert_eq!(roof.least_time(Some(1.0), 1.0, Some("bf16")), None, "no peak of that type");
        assert_eq!(Roof::new([]).least_time(None, 1.0, Some("f32")), None);
    }

    #[test]
    fn several_devices_share_a_roof() {
        let two = roof().of_devices(2);
        assert_eq!((two.bandwidth().unwrap().value, two.devices()), (20e9, 2));
        assert_eq!(two.of_one(), roof());
        let written = serde_json::json!({
            "origin": "measured", "source": "a bench", "flops": { "f32": 200e9 }, "bandwidth": 20e9, "devices": 2,
        });
        assert_eq!(serde_json::to_value(&two).unwrap(), written);
        let beside_others = Roof::new(two.peaks().iter().cloned().map(|peak| Peak { disturbed: true, ..peak }));
        assert_eq!(serde_json::to_value(&beside_others).unwrap()["disturbed"], true);
    }
}
