//! Peaks from a file: what `candlescope bench peaks` measured, what a calibration fitted, or what somebody wrote.
//!
//! The reader is tolerant; what it does not know it leaves alone. It takes
//!
//! - `figures`, a list of objects with `kind` (`flops` with a `dtype`; `read`, else `copy`, `triad`, `write` for the
//!   bandwidth; `launch`, `kernel_floor`, `sync`), `value` in FLOP/s, B/s or seconds, and `range`, two numbers. A
//!   `launch` of `bench peaks` is the driver's part alone, to which the cost of a launch is in proportion;
//! - `peaks`, a list of objects with `kind` (`flops`, `bandwidth`) and `value`, as `environment.peaks` of a run;
//! - fields: `flops` with a number by type, `bandwidth`, `memory_bytes`, `launch_ns`, `kernel_floor_ns`, `sync_ns`,
//!   `index_rate`, `panel_rate`, and `panels_in_turn`, which is true or false;
//! - `disturbed`, what was seen of others at work while they were measured: a list that is not empty, or true, here or in
//!   one of `peaks`;
//! - `attained`, the finer form of a calibration: [`AttainedRates`].

use super::attained::AttainedRates;
use super::device::{Device, DeviceKind};
use super::formats::Multiply;
use super::known_devices::{known_device, launch_of_driver};
use super::peak::{Origin, Peak, PeakKind};
use crate::estimate::Estimate;
use serde_json::{Map, Value};

/// A peaks file cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "its messages say what the fields are")]
pub enum PeaksError {
    /// It is not JSON.
    #[error("the peaks are not JSON: {0}. Give a file that `bench peaks` or `roofline --calibrate` wrote")]
    NotJson(#[from] serde_json::Error),
    /// It has no FLOP/s or no bandwidth, without which there is no roofline.
    #[error("the peaks lack `{0}`: give a figure of this kind, or a field of this name")]
    Lacks(&'static str),
    /// The runs of a calibration did not feel it, and no datasheet stands in.
    #[error(
        "the runs of this calibration did not determine `{0}`, and no datasheet stands in: calibrate with runs that \
         differ more, or name the device with --gpu"
    )]
    NotDetermined(&'static str),
    /// A value is not a number above 0, or lacks a part.
    #[error("`{name}` in the peaks is not a number above 0, or lacks one; take a file that was not changed by hand")]
    Value { name: String },
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
    let kind = match fields.get("device").and_then(|device| device.get("kind")?.as_str()).or(word(&["kind"]).as_deref())
    {
        Some("cpu") => DeviceKind::Cpu,
        _ => base.as_ref().map_or(DeviceKind::Gpu, |device| device.kind),
    };
    let mut found =
        PeakFields { bare_launch: word(&["format"]).as_deref() == Some(MEASURED_FORMAT), ..PeakFields::default() };
    let list = |name: &str| fields.get(name).and_then(Value::as_array).into_iter().flatten();
    for figure in list("figures") {
        found.figure(figure)?;
    }
    let mut peaks = Vec::new();
    for object in list("peaks").chain(whole.as_array().into_iter().flatten()) {
        let kind = object.get("kind").and_then(Value::as_str).and_then(PeakKind::named);
        if let Some(kind) = kind.filter(|kind| [PeakKind::Flops, PeakKind::Bandwidth].contains(kind)) {
            peaks.push(Peak::read(object).ok_or_else(|| wrong(kind))?);
        }
    }
    for peak in &peaks {
        // The datasheet's figure stands only where none was measured.
        let same = |other: &Peak| (other.kind, &other.dtype) == (peak.kind, &peak.dtype);
        let measured = || peaks.iter().any(|other| other.origin() == Origin::Measured && same(other));
        if peak.label != Origin::Datasheet.name() || !measured() {
            found.listed(peak);
        }
    }
    found.fields(fields)?;
    let attained = attained(fields)?;
    let is_fitted = word(&["format"]).as_deref() == Some(FITTED_FORMAT);
    let stands_in = found.stand_in(base.as_ref());
    let lacks = |name, undetermined| {
        if undetermined { PeaksError::NotDetermined(name) } else { PeaksError::Lacks(name) }
    };
    let bandwidth = found.bandwidth.ok_or_else(|| lacks("bandwidth", found.undetermined_bandwidth))?;
    if found.flops.is_empty() {
        return Err(lacks("flops", !found.undetermined_flops.is_empty()));
    }
    let source = found.source.or_else(|| word(&["source"])).or_else(|| {
        let candle = word(&["candle"])?;
        Some(format!("a file of {} with candle {candle}", word(&["format"]).unwrap_or_else(|| "peaks".into())))
    });
    // What a launch costs with allocation and shapes goes with the driver's part, as far as is known.
    let of_host = found.driver_launch.filter(|_| base.as_ref().is_some_and(|device| device.launch.is_some()));
    let launch = found.launch.or_else(|| of_host.map(launch_of_driver));
    let told = fields.get("disturbed");
    let is_told =
        told == Some(&Value::Bool(true)) || told.and_then(Value::as_array).is_some_and(|seen| !seen.is_empty());
    Ok(Device {
        name: named.or_else(|| base.as_ref().map(|device| device.name.clone())).unwrap_or_else(|| "this device".into()),
        kind,
        disturbed: is_told || peaks.iter().any(|peak| peak.disturbed),
        origin: if found.datasheet { Origin::Datasheet } else { Origin::Measured },
        source: source.unwrap_or_else(|| "the peaks file does not say how".to_string()) + &stands_in,
        flops: found.flops,
        bandwidth,
        memory: found.memory.or_else(|| base.as_ref()?.memory),
        link: base.as_ref().and_then(|device| device.link.clone()),
        watts: base.as_ref().and_then(|device| device.watts),
        launch: launch.or_else(|| base.as_ref()?.launch),
        kernel_floor: found.floor.or_else(|| base.as_ref()?.kernel_floor),
        kernel_least: base.as_ref().and_then(|device| device.kernel_least).filter(|_| found.floor.is_none()),
        sync: found.sync,
        // What a calibration does not have apart is within its other figures.
        index_rate: found.index_rate.or_else(|| base.as_ref()?.index_rate.filter(|_| !is_fitted)),
        panel_rate: found.panel_rate.filter(|_| kind == DeviceKind::Cpu),
        panels_in_turn: kind == DeviceKind::Cpu && fields.get("panels_in_turn") == Some(&Value::Bool(true)),
        attained,
        launch_source: match found.launch {
            Some(_) => Some("the peaks file".to_string()),
            None => base.as_ref().and_then(|device| device.launch_source.clone()).map(|source| match launch {
                Some(_) => format!("{source}, in proportion to the driver's part of a launch in the peaks file"),
                None => source,
            }),
        },
    })
}

/// The finer form of a calibration, if the file has it.
fn attained(fields: &Map<String, Value>) -> Result<Option<AttainedRates>, PeaksError> {
    let Some(value) = fields.get("attained").filter(|value| !value.is_null()) else { return Ok(None) };
    let wrong = || PeaksError::Value { name: "attained".to_string() };
    let attained: AttainedRates = serde_json::from_value(value.clone()).map_err(|_| wrong())?;
    if attained.is_sound() { Ok(Some(attained)) } else { Err(wrong()) }
}

/// The name in an object `device`.
fn inner_name(fields: &Map<String, Value>) -> Option<String> {
    fields.get("device")?.get("name")?.as_str().map(str::to_string)
}

#[derive(Default)]
struct PeakFields {
    flops: std::collections::BTreeMap<Multiply, f64>,
    bandwidth: Option<f64>,
    /// Which of [`BANDWIDTHS`] that is.
    rank: Option<usize>,
    memory: Option<f64>,
    launch: Option<Estimate>,
    /// The driver's part of a launch, in nanoseconds.
    driver_launch: Option<f64>,
    floor: Option<f64>,
    sync: Option<f64>,
    index_rate: Option<f64>,
    panel_rate: Option<f64>,
    source: Option<String>,
    datasheet: bool,
    /// Whether a `launch` is the driver's alone.
    bare_launch: bool,
    /// Types whose FLOP/s a calibration could not determine.
    undetermined_flops: Vec<Multiply>,
    /// Whether this is so of the bandwidth.
    undetermined_bandwidth: bool,
}

/// The format of what `roofline --calibrate` writes.
pub const FITTED_FORMAT: &str = "candlescope-calibration";
/// The format of what `bench peaks` writes. A launch in it is the driver's alone; what a kernel costs candle's host is
/// more than twice that, with allocation and shapes.
pub const MEASURED_FORMAT: &str = "candlescope-peaks";

/// Kinds of bandwidth, the one that inference is closest to first: it reads weights and keys.
const BANDWIDTHS: [PeakKind; 4] = [PeakKind::Read, PeakKind::Copy, PeakKind::Triad, PeakKind::Write];

fn number(value: &Value) -> Option<f64> {
    value.as_f64().filter(|v| v.is_finite() && *v > 0.0)
}

fn wrong(kind: PeakKind) -> PeaksError {
    PeaksError::Value { name: kind.name().to_string() }
}

fn positive(name: &str, value: &Value) -> Result<f64, PeaksError> {
    number(value).ok_or_else(|| PeaksError::Value { name: name.to_string() })
}

impl PeakFields {
    /// One object of `figures`.
    fn figure(&mut self, figure: &Value) -> Result<(), PeaksError> {
        let word = |key: &str| figure.get(key).and_then(Value::as_str);
        let rank = |kind| BANDWIDTHS.iter().position(|known| *known == kind);
        let read = |kind: &PeakKind| {
            use PeakKind::{Flops, KernelFloor, Launch, Sync};
            [Flops, KernelFloor, Launch, Sync].contains(kind) || rank(*kind).is_some()
        };
        // Of one kind of operation is what has an `of`; the object `attained` has them all.
        let Some(kind) = word("kind").and_then(PeakKind::named).filter(read).filter(|_| word("of").is_none()) else {
            return Ok(());
        };
        let dtype = word("dtype").and_then(Multiply::named);
        // What the runs of a calibration did not feel has a value that says nothing.
        if figure.get("determined") == Some(&Value::Bool(false)) {
            match (kind, dtype) {
                (PeakKind::Flops, Some(dtype)) => self.undetermined_flops.push(dtype),
                (kind, _) => self.undetermined_bandwidth |= rank(kind).is_some(),
            }
            return Ok(());
        }
        let mid = figure.get("value").and_then(number).ok_or_else(|| wrong(kind))?;
        let end = |at: usize| figure.get("range").and_then(|range| number(range.get(at)?)).unwrap_or(mid);
        // Times are in seconds.
        let time = Estimate { low: end(0), mid, high: end(1) }.times(1e9);
        match (kind, dtype) {
            (PeakKind::Flops, Some(dtype)) => self.add_flops(dtype, mid),
            (PeakKind::Flops, None) => {}
            (PeakKind::Launch, _) if self.bare_launch => self.driver_launch = Some(time.mid),
            (PeakKind::Launch, _) => self.launch = Some(time),
            (PeakKind::KernelFloor, _) => self.floor = Some(time.mid),
            (PeakKind::Sync, _) => self.sync = Some(time.mid),
            (kind, _) => {
                let rank = rank(kind).unwrap_or(BANDWIDTHS.len());
                if self.rank.is_none_or(|known| rank < known) || (self.rank == Some(rank) && self.bandwidth < Some(mid))
                {
                    (self.rank, self.bandwidth) = (Some(rank), Some(mid));
                }
            }
        }
        Ok(())
    }

    /// Takes from the datasheet what a calibration could not determine, and says so for `source`.
    fn stand_in(&mut self, datasheet: Option<&Device>) -> String {
        let Some(datasheet) = datasheet else { return String::new() };
        let mut taken = Vec::new();
        if self.bandwidth.is_none() && self.undetermined_bandwidth {
            self.bandwidth = Some(datasheet.bandwidth);
            taken.push("bandwidth".to_string());
        }
        for dtype in &self.undetermined_flops {
            if let (false, Some(flops)) = (self.flops.contains_key(dtype), datasheet.flops.get(dtype)) {
                self.flops.insert(*dtype, *flops);
                taken.push(format!("FLOP/s of {}", dtype.name()));
            }
        }
        if taken.is_empty() {
            return String::new();
        }
        format!("; not determined, of the datasheet instead: {}", taken.join(", "))
    }

    /// The best figure of a type stands.
    fn add_flops(&mut self, dtype: Multiply, value: f64) {
        let best = self.flops.entry(dtype).or_insert(value);
        *best = best.max(value);
    }

    /// One of `peaks`.
    fn listed(&mut self, peak: &Peak) {
        self.datasheet |= peak.label == Origin::Datasheet.name();
        if self.source.is_none() {
            self.source = Some(peak.source.clone()).filter(|source| !source.is_empty());
        }
        match peak.dtype.as_deref().and_then(Multiply::named) {
            Some(dtype) if peak.is_flops() => self.add_flops(dtype, peak.value),
            _ if peak.is_bandwidth() => {
                self.bandwidth = Some(self.bandwidth.map_or(peak.value, |known| known.max(peak.value)));
            }
            _ => {}
        }
    }

    fn fields(&mut self, fields: &Map<String, Value>) -> Result<(), PeaksError> {
        for (name, value) in fields.get("flops").and_then(Value::as_object).into_iter().flatten() {
            if let Some(dtype) = Multiply::named(name).filter(|_| !value.is_null()) {
                self.add_flops(dtype, positive(name, value)?);
            }
        }
        let field = |name: &str| fields.get(name).filter(|v| !v.is_null()).map(|v| positive(name, v)).transpose();
        self.bandwidth = field("bandwidth")?.or(self.bandwidth);
        self.memory = field("memory_bytes")?.or(self.memory);
        self.launch = field("launch_ns")?.map(Estimate::exact).or(self.launch);
        self.floor = field("kernel_floor_ns")?.or(self.floor);
        self.sync = field("sync_ns")?.or(self.sync);
        self.index_rate = field("index_rate")?.or(self.index_rate);
        self.panel_rate = field("panel_rate")?.or(self.panel_rate);
        Ok(())
    }
}
