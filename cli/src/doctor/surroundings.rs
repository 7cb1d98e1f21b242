//! What measuring and models find here: energy counters, peaks that are kept, the model hub, ONNX Runtime.

use super::check::{Check, Group};
use std::path::PathBuf;

pub(super) fn checks() -> Vec<Check> {
    let mut rows = Vec::new();
    rows.extend(energy());
    rows.extend(peaks());
    rows.push(hub());
    rows.push(onnx_runtime());
    rows
}

#[cfg(feature = "lab")]
fn energy() -> Option<Check> {
    use candlescope_lab::hardware::EnergyCounter;
    let counter = EnergyCounter::of_processors().map(|counter| counter.source().to_string());
    Some(Check::asked(Group::Measuring, "energy of the CPU (RAPL)", counter, "no joules a token on the CPU").optional())
}

#[cfg(not(feature = "lab"))]
fn energy() -> Option<Check> {
    None
}

/// Peaks that `bench peaks` measured on the devices of this machine, and keeps.
#[cfg(feature = "lab")]
fn peaks() -> Vec<Check> {
    use candlescope_lab::peaks::{DeviceIdentity, load};
    let kept = |device: &DeviceIdentity| match load(device) {
        Ok(Some(peaks)) => {
            let day = candlescope_core::numbers::day(peaks.measured_ns);
            Ok(format!("of {}, measured on {day}, {} figures", device.name, peaks.figures.len()))
        }
        Ok(None) => Err(format!("none of {}", device.name)),
        Err(error) => Err(error.to_string()),
    };
    let cost = |device: &str| {
        format!(
            "reports know peaks of datasheets only, of most CPUs none: candlescope bench peaks --device {device} measures \
             and keeps them"
        )
    };
    let check = |name, device: &str| {
        let identity = DeviceIdentity::of(device).ok()?;
        Some(Check::asked(Group::Measuring, name, kept(&identity), &cost(device)).optional())
    };
    [check("peaks of the CPU", "cpu"), check("peaks of the GPU", "cuda:0")].into_iter().flatten().collect()
}

#[cfg(not(feature = "lab"))]
fn peaks() -> Vec<Check> {
    Vec::new()
}

/// Where models of the hub are fetched from, and kept. Nothing is asked over the network.
fn hub() -> Check {
    if !cfg!(feature = "hub") {
        let cost = "models of the hub (org/name) are not fetched: build with the feature hub, or pass a directory";
        return Check::judged(Group::Models, "model hub", false, "not in this build", cost).optional();
    }
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let home = set("HF_HOME").or_else(|| set("HOME").map(|home| home.join(".cache/huggingface")));
    let from = set("HF_ENDPOINT").map_or_else(
        || "https://huggingface.co".to_string(),
        |url| candlescope_core::RedactedUrl::from(url.display().to_string()).to_string(),
    );
    let kept = home.map(|home| home.join("hub")).map(|cache| {
        let entries = std::fs::read_dir(&cache).into_iter().flatten().flatten();
        let n = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("models--")).count();
        format!(", kept in {} ({n} there)", cache.display())
    });
    let found = format!("{from}{} (not asked now)", kept.unwrap_or_default());
    Check::judged(Group::Models, "model hub", true, found, "")
}

/// Only what is named or activated: nothing is looked for below the working directory.
#[cfg(feature = "onnx")]
fn onnx_runtime() -> Check {
    let found = candlescope_lab::variants::onnx_library();
    let found = found.map(|(library, from)| format!("{} ({from})", library.display()));
    Check::asked(Group::Models, "ONNX Runtime", found, "`bench variants` without ONNX").optional()
}

#[cfg(not(feature = "onnx"))]
fn onnx_runtime() -> Check {
    let cost = "`bench variants` without ONNX: build with the feature onnx";
    Check::judged(Group::Models, "ONNX Runtime", false, "not in this build", cost).optional()
}
