//! Peaks of a device, in the form in which runs and files keep them.

use super::formats::Multiply;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What a figure of a device is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PeakKind {
    /// FLOP/s of a matrix product.
    Flops,
    /// B/s of memory, of whatever kind.
    Bandwidth,
    /// B/s of memory that is only read.
    Read,
    /// B/s of memory that is only written.
    Write,
    /// B/s read and written by a copy, both counted.
    Copy,
    /// B/s of a = b + s·c, two reads and a write.
    Triad,
    /// Seconds that the host takes to launch a kernel: the driver's part where it was measured alone.
    Launch,
    /// Seconds from the end of a kernel to the start of the next one, which depends on it.
    Gap,
    /// The same inside a CUDA graph.
    GraphGap,
    /// B/s from the host to the device, from pinned memory.
    HostToDevice,
    /// B/s from the device to the host, to pinned memory.
    DeviceToHost,
    /// Seconds of a small kernel on the device, with the gap before the next one.
    KernelFloor,
    /// Seconds that waiting for a token costs beyond the device's work.
    Sync,
}

impl PeakKind {
    /// Those that are measured one by one: FLOP/s by type, bandwidths by what is done, times.
    pub const MEASURED: [Self; 10] = [
        Self::Flops,
        Self::Read,
        Self::Write,
        Self::Copy,
        Self::Triad,
        Self::Launch,
        Self::Gap,
        Self::GraphGap,
        Self::HostToDevice,
        Self::DeviceToHost,
    ];

    /// As files and tables call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Flops => "flops",
            Self::Bandwidth => "bandwidth",
            Self::Read => "read",
            Self::Write => "write",
            Self::Copy => "copy",
            Self::Triad => "triad",
            Self::Launch => "launch",
            Self::Gap => "gap",
            Self::GraphGap => "graph_gap",
            Self::HostToDevice => "host_to_device",
            Self::DeviceToHost => "device_to_host",
            Self::KernelFloor => "kernel_floor",
            Self::Sync => "sync",
        }
    }

    /// The kind whose [`name`](Self::name) is this; `None` if there is none.
    pub fn named(name: &str) -> Option<Self> {
        let others = [Self::Bandwidth, Self::KernelFloor, Self::Sync];
        Self::MEASURED.into_iter().chain(others).find(|kind| kind.name() == name)
    }

    /// Unit of its values: `FLOP/s`, `B/s` or `s`.
    pub fn unit(self) -> &'static str {
        match self {
            Self::Flops => "FLOP/s",
            Self::Launch | Self::Gap | Self::GraphGap | Self::KernelFloor | Self::Sync => "s",
            _ => "B/s",
        }
    }
}

/// Where a figure comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// Measured on this device.
    Measured,
    /// The maker's figure, not measured here.
    Datasheet,
}

impl Origin {
    /// As reports call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Measured => "measured",
            Self::Datasheet => "datasheet",
        }
    }
}

/// One peak, or one of the times that stand beside peaks: an object of `environment.peaks` or
/// `environment.measured_peaks` of a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Peak {
    /// What the value is a peak, or a time, of.
    pub kind: PeakKind,
    /// FLOP/s, B/s or seconds.
    pub value: f64,
    /// `measured` or `datasheet`; empty where a file does not say.
    pub label: String,
    /// Where it comes from; empty where a file does not say.
    pub source: String,
    /// Element type a FLOP/s peak is for; without one it is for all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dtype: Option<String>,
    /// Whether others were at work while it was measured: the device may reach more.
    #[serde(skip_serializing_if = "is_false")]
    pub disturbed: bool,
}

/// The label of peaks as reports show it. Beside others a device reaches less, so what is held against such a peak
/// stands too near to it.
pub fn label_in_words(label: &str, disturbed: bool) -> String {
    if disturbed { format!("{label} while others were at work") } else { label.to_string() }
}

/// Whether a field is left out of an object.
fn is_false(value: &bool) -> bool {
    !value
}

impl Peak {
    /// An object of a list of peaks; `None` if its kind is not known, or its value is not a number above 0 (between
    /// kernels of a graph there may be no gap at all).
    pub fn read(object: &Value) -> Option<Self> {
        let text = |key: &str| object.get(key).and_then(Value::as_str).map(str::to_string);
        let kind = PeakKind::named(object.get("kind")?.as_str()?)?;
        let usable = |value: &f64| value.is_finite() && (*value > 0.0 || kind == PeakKind::GraphGap && *value == 0.0);
        Some(Self {
            kind,
            value: object.get("value")?.as_f64().filter(usable)?,
            label: text("label").unwrap_or_default(),
            source: text("source").unwrap_or_default(),
            dtype: text("dtype"),
            disturbed: object.get("disturbed").and_then(Value::as_bool).unwrap_or_default(),
        })
    }

    /// FLOP/s rather than bytes/s or a time.
    pub fn is_flops(&self) -> bool {
        self.kind == PeakKind::Flops
    }

    /// Bytes/s of memory, rather than of one direction or of a copy.
    pub fn is_bandwidth(&self) -> bool {
        self.kind == PeakKind::Bandwidth
    }

    /// Its label, and whether others were at work while it was measured.
    pub fn label_in_words(&self) -> String {
        label_in_words(&self.label, self.disturbed)
    }

    /// What its label says; whatever is not measured is somebody's word.
    pub fn origin(&self) -> Origin {
        if self.label == Origin::Measured.name() { Origin::Measured } else { Origin::Datasheet }
    }

    /// Whether work in `dtype` can be held against it: all work, without a type of its own.
    pub fn is_for(&self, dtype: Option<&str>) -> bool {
        let Some(own) = self.dtype.as_deref() else { return true };
        let by_name = || Multiply::named(own).is_some_and(|own| dtype.and_then(Multiply::named) == Some(own));
        dtype == Some(own) || by_name()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_peak_is_read_as_it_is_written() {
        let peak = json!({
            "kind": "flops", "value": 1e12, "label": "measured", "source": "a bench", "dtype": "bf16",
        });
        let read = Peak::read(&peak).unwrap();
        assert_eq!((read.is_flops(), read.origin()), (true, Origin::Measured));
        assert_eq!(serde_json::to_value(&read).unwrap(), peak);
        let disturbed = Peak { disturbed: true, ..read };
        assert_eq!(disturbed.label_in_words(), "measured while others were at work");
        assert_eq!(Peak::read(&serde_json::to_value(&disturbed).unwrap()), Some(disturbed));
        for kind in PeakKind::MEASURED {
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.name());
            assert_eq!(PeakKind::named(kind.name()), Some(kind));
        }
    }

    #[test]
    fn what_is_no_figure_is_left_out() {
        for wrong in [
            json!({ "kind": "warp_speed", "value": 1.0 }),
            json!({ "kind": "flops", "value": 0.0 }),
            json!({ "kind": "bandwidth", "value": "much" }),
            json!({ "kind": "launch", "value": -1.0 }),
            json!(["flops"]),
        ] {
            assert_eq!(Peak::read(&wrong), None, "{wrong}");
        }
        assert!(Peak::read(&json!({ "kind": "graph_gap", "value": 0.0 })).is_some());
    }

    #[test]
    fn a_type_goes_by_all_its_names() {
        let of = |dtype: &str| Peak::read(&json!({ "kind": "flops", "value": 1.0, "dtype": dtype })).unwrap();
        assert!(of("i8").is_for(Some("int8")) && of("f8e4m3").is_for(Some("fp8")) && of("f64").is_for(Some("f64")));
        assert!(!of("f64").is_for(Some("q4_0")) && !of("f16").is_for(Some("bf16")) && !of("f16").is_for(None));
    }
}
