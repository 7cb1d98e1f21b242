//! Peaks from a file: what `candlescope bench peaks` measured, or what a calibration fitted.
//!
//! The reader is tolerant. A peak is an object of a list (`peaks`), as in `environment.peaks` of a run: `kind` (`flops`,
//! `bandwidth`, `launch`, `kernel_floor` or `gap`, `sync`), `value`, `dtype`, `label`, `source`, and `low` and `high`
//! where it has a spread; or a field of its own: `flops` with a number by type, `bandwidth`, `launch_ns`, `gap_ns`.
//! A number may also be an object with `value`, `low` and `high`.

use super::device::{Cost, Device, DeviceKind, Origin};
use super::formats::Multiply;
use super::known_devices::known_device;
use serde_json::{Map, Value};

/// A peaks file cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PeaksError {
    /// It is not JSON.
    #[error("the peaks are not JSON: {0}. Give a file that `bench peaks` or `roofline --calibrate` wrote")]
    NotJson(#[from] serde_json::Error),
    /// It has no bandwidth, without which there is no roofline.
    #[error("the peaks lack `{0}`: a list `peaks` of objects with `kind` and `value`, or a field of that name")]
    Lacks(&'static str),
    /// A value is not a number above 0.
    #[error("`{name}` in the peaks is not a number above 0")]
    Value {
        /// Which one.
        name: String,
    },
}

/// Reads a peaks file. `base` is a device of the table whose memory and link stand where the file has none; without it
/// the name in the file is looked up.
///
/// # Errors
/// If it is not JSON or has no bandwidth.
pub fn peaks_device(text: &str, base: Option<Device>) -> Result<Device, PeaksError> {
    let whole: Value = serde_json::from_str(text)?;
    let empty = Map::new();
    let fields = whole.as_object().unwrap_or(&empty);
    let word = |names: &[&str]| names.iter().find_map(|name| fields.get(*name)?.as_str()).map(str::to_string);
    let named = word(&["device", "name", "gpu"]).or_else(|| inner_name(fields));
    let base = base.or_else(|| known_device(named.as_deref()?).ok());
    let kind = match word(&["kind"]).as_deref() {
        Some("cpu") => DeviceKind::Cpu,
        _ => base.as_ref().map_or(DeviceKind::Gpu, |device| device.kind),
    };
    let mut found = Found::default();
    let list = whole.as_array().or_else(|| fields.get("peaks").and_then(Value::as_array));
    for peak in list.into_iter().flatten() {
        found.listed(peak)?;
    }
    found.fields(fields)?;
    let bandwidth = found.bandwidth.ok_or(PeaksError::Lacks("bandwidth"))?;
    if found.flops.is_empty() {
        return Err(PeaksError::Lacks("flops"));
    }
    let source = found.source.or_else(|| word(&["source", "measured", "host"]));
    Ok(Device {
        name: named.or_else(|| base.as_ref().map(|device| device.name.clone())).unwrap_or_else(|| "this device".into()),
        kind,
        origin: if found.datasheet { Origin::Datasheet } else { Origin::Measured },
        source: source.unwrap_or_else(|| "the peaks file does not say how".to_string()),
        flops: found.flops,
        bandwidth,
        memory: found.memory.or_else(|| base.as_ref()?.memory),
        link: base.as_ref().and_then(|device| device.link.clone()),
        watts: base.as_ref().and_then(|device| device.watts),
        launch: found.launch.or_else(|| base.as_ref()?.launch),
        kernel_floor: found.floor.or_else(|| base.as_ref()?.kernel_floor),
        sync: found.sync,
        launch_source: if found.launch.is_some() {
            Some("the peaks file".to_string())
        } else {
            base.as_ref().and_then(|device| device.launch_source.clone())
        },
    })
}

/// The name in an object `device`.
fn inner_name(fields: &Map<String, Value>) -> Option<String> {
    fields.get("device")?.get("name")?.as_str().map(str::to_string)
}

#[derive(Default)]
struct Found {
    flops: std::collections::BTreeMap<Multiply, f64>,
    bandwidth: Option<f64>,
    memory: Option<f64>,
    launch: Option<Cost>,
    floor: Option<f64>,
    sync: Option<f64>,
    source: Option<String>,
    datasheet: bool,
}

/// A number, or an object with its value and spread.
fn cost(name: &str, value: &Value) -> Result<Cost, PeaksError> {
    let wrong = || PeaksError::Value { name: name.to_string() };
    let number = |value: &Value| value.as_f64().filter(|v| v.is_finite() && *v > 0.0);
    if let Some(exact) = number(value) {
        return Ok(Cost::exact(exact));
    }
    let of = |keys: &[&str]| keys.iter().find_map(|key| number(value.get(*key)?));
    let mid = of(&["value", "median", "mid", "mean"]).ok_or_else(wrong)?;
    Ok(Cost { low: of(&["low"]).unwrap_or(mid), mid, high: of(&["high"]).unwrap_or(mid) })
}

impl Found {
    /// One object of the list. Kinds that are not known are left alone: a newer program may have written them.
    fn listed(&mut self, peak: &Value) -> Result<(), PeaksError> {
        let word = |key: &str| peak.get(key).and_then(Value::as_str);
        let Some(kind) = word("kind") else { return Ok(()) };
        let dtype = word("dtype").or_else(|| word("type")).and_then(Multiply::named);
        if !["flops", "bandwidth", "launch", "kernel_floor", "gap", "sync", "memory"].contains(&kind) {
            return Ok(());
        }
        let read = cost(kind, peak)?;
        let datasheet = word("label") == Some("datasheet");
        self.datasheet |= datasheet;
        if self.source.is_none() {
            self.source = word("source").map(str::to_string);
        }
        match (kind, dtype) {
            ("flops", Some(dtype)) => {
                self.flops.insert(dtype, read.mid);
            }
            ("bandwidth", _) => self.bandwidth = Some(self.bandwidth.map_or(read.mid, |known| known.max(read.mid))),
            ("launch", _) => self.launch = Some(read),
            ("kernel_floor" | "gap", _) => self.floor = Some(read.mid),
            ("sync", _) => self.sync = Some(read.mid),
            ("memory", _) => self.memory = Some(read.mid),
            _ => {}
        }
        Ok(())
    }

    fn fields(&mut self, fields: &Map<String, Value>) -> Result<(), PeaksError> {
        if let Some(by_type) = fields.get("flops").and_then(Value::as_object) {
            for (name, value) in by_type {
                if let Some(dtype) = Multiply::named(name).filter(|_| !value.is_null()) {
                    self.flops.insert(dtype, cost(name, value)?.mid);
                }
            }
        }
        let first = |names: &[&str]| -> Result<Option<Cost>, PeaksError> {
            let found = names.iter().filter_map(|name| Some((*name, fields.get(*name)?))).find(|(_, v)| !v.is_null());
            found.map(|(name, value)| cost(name, value)).transpose()
        };
        let mid = |found: Option<Cost>| found.map(|cost| cost.mid);
        self.bandwidth = mid(first(&["bandwidth", "bandwidth_bytes_per_s"])?).or(self.bandwidth);
        self.memory = mid(first(&["memory", "memory_bytes"])?).or(self.memory);
        self.launch = first(&["launch_ns", "launch_cost_ns", "launch"])?.or(self.launch);
        self.floor = mid(first(&["kernel_floor_ns", "gap_ns", "gap"])?).or(self.floor);
        self.sync = mid(first(&["sync_ns", "sync"])?).or(self.sync);
        Ok(())
    }
}
