//! What this user keeps between runs: peaks that `bench peaks` measured on a device, promises that were put to the test.

use anyhow::{Context, Result};
use candlescope_core::cache_directory;
use candlescope_core::run::{RunManifest, env_key, option_key};
use candlescope_findings::ledger::Ledger;
use candlescope_reader::Run;
use candlescope_work::devices::Peak;
use serde_json::Value;
use std::path::PathBuf;

/// Where promises and what became of them are remembered, if there is such a place.
pub(crate) fn ledger_path() -> Option<PathBuf> {
    cache_directory().map(|cache| Ledger::file_in(&cache))
}

/// The peaks of the device called `cpu` or `cuda:N`, in the form in which a run keeps them, if they have been measured.
/// A file of them that is damaged, or of another device, is an error.
#[cfg(feature = "lab")]
pub(crate) fn of(device: &str) -> Result<Option<Value>> {
    use candlescope_lab::peaks::{DeviceIdentity, load};
    // A device that cannot be told from others has no peaks that could be found.
    let Ok(device) = DeviceIdentity::of(device) else { return Ok(None) };
    Ok(load(&device)?.map(|peaks| serde_json::json!(peaks.environment())))
}

/// Without the lab nothing is measured.
#[cfg(not(feature = "lab"))]
pub(crate) fn of(_: &str) -> Result<Option<Value>> {
    Ok(None)
}

/// The peaks file of this machine: of its first GPU, else of its processor.
#[cfg(feature = "lab")]
pub(crate) fn of_this_machine() -> Result<Option<String>> {
    use candlescope_lab::peaks::{DeviceIdentity, load};
    for device in ["cuda:0", "cpu"] {
        let Ok(device) = DeviceIdentity::of(device) else { continue };
        if let Some(peaks) = load(&device)? {
            return Ok(Some(serde_json::to_string(&peaks)?));
        }
    }
    Ok(None)
}

/// Without the lab nothing is measured.
#[cfg(not(feature = "lab"))]
pub(crate) fn of_this_machine() -> Result<Option<String>> {
    Ok(None)
}

/// Under which a run names them.
const KEY: &str = env_key::MEASURED_PEAKS.name();

/// Gives a run without measured peaks those that are kept of the device that it ran on, whatever program made it.
#[cfg(feature = "lab")]
pub(crate) fn add_to(manifest: &mut RunManifest, on_gpu: bool) -> Result<()> {
    use candlescope_lab::peaks::{DeviceIdentity, DeviceKind, load};
    if manifest.environment.contains_key(KEY) {
        return Ok(());
    }
    let text = |key: &str| manifest.environment.get(key).and_then(Value::as_str).map(str::to_string);
    let device = if on_gpu {
        let uuid = manifest.gpus().first().and_then(|gpu| Some(gpu.get("uuid")?.as_str()?.to_string()));
        let named = uuid.zip(text(env_key::NVIDIA_DRIVER.name()));
        named.map(|(id, driver)| (DeviceKind::Cuda, id, Some(driver)))
    } else {
        text(env_key::CPU_MODEL.name()).map(|id| (DeviceKind::Cpu, id, None))
    };
    let Some((kind, id, driver)) = device else { return Ok(()) };
    let device = DeviceIdentity { kind, name: id.clone(), id, driver, host: manifest.host.clone() };
    if let Some(peaks) = load(&device)? {
        manifest.environment.insert(KEY.to_string(), serde_json::json!(peaks.environment()));
    }
    Ok(())
}

/// Without the lab nothing is measured.
#[cfg(not(feature = "lab"))]
pub(crate) fn add_to(_: &mut RunManifest, _: bool) -> Result<()> {
    Ok(())
}

/// The same for everything that is made of an open run. Kept peaks that cannot be read are no reason not to report: they
/// are told.
pub(crate) fn add_kept(run: &mut Run) {
    let Some(manifest) = run.manifest_mut() else { return };
    let on_gpu = match option_key::DEVICE.of(&manifest.options) {
        Some(device) => device.starts_with("cuda") || device.starts_with("gpu"),
        None => manifest.gpu.as_ref().is_some_and(|gpu| !gpu.devices.is_empty()),
    };
    if let Err(error) = add_to(manifest, on_gpu) {
        crate::output::note(&format!("warning: no measured peaks: {error:#}"));
    }
}

/// Puts peaks in place of all that a run names.
///
/// # Errors
/// If there is no `run.json` that names any.
pub(crate) fn put(run: &mut Run, peaks: Value) -> Result<()> {
    let dir = run.dir().display().to_string();
    let manifest = run.manifest_mut();
    let manifest =
        manifest.with_context(|| format!("--peaks needs a run.json that can be read, and `{dir}` has none"))?;
    manifest.environment.remove("peaks");
    // Times of launches and of graphs stand beside peaks, and such files do not have them.
    let is_peak = |one: &Value| Peak::read(one).is_some_and(|peak| peak.kind.unit() != "s");
    let beside = manifest.environment.get(KEY).and_then(Value::as_array).into_iter().flatten();
    let beside: Vec<Value> = beside.filter(|one| !is_peak(one)).cloned().collect();
    let mut all = peaks.as_array().cloned().unwrap_or_default();
    all.extend(beside);
    manifest.environment.insert(KEY.to_string(), all.into());
    Ok(())
}
