//! How far answers of a variant of the weights are from those of f32, as `bench variants` measures it.

use crate::account::QualityMeasured;
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Stdio};

/// Measures a variant's quality. `program` is candlescope.
///
/// # Errors
/// When it cannot be measured, with the reason.
pub(crate) fn measure(
    program: &Path,
    (model, device): (&str, &str),
    variant: &str,
    out: &Path,
) -> Result<QualityMeasured, String> {
    let mut command = Command::new(program);
    command.args(["bench", "variants", "--runs", "1", "--processes", "1", "--profiled", "0", "--output-tokens", "8"]);
    command.args(["--model", model, "--device", device, "--variants", variant, "--no-progress", "--json"]);
    let ran = command.arg("--out").arg(out).stdin(Stdio::null()).stderr(Stdio::piped()).output();
    let ran = ran.map_err(|error| format!("quality cannot be measured: {error}"))?;
    let said = String::from_utf8_lossy(&ran.stderr);
    let last = said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it said nothing");
    if !ran.status.success() {
        return Err(format!("quality cannot be measured: {}", last.trim_start_matches("error: ")));
    }
    let object: Value =
        serde_json::from_slice(&ran.stdout).map_err(|error| format!("quality cannot be read: {error}"))?;
    let found = object["variants"].as_array().into_iter().flatten().find(|one| one["variant"] == variant);
    let found = found.ok_or_else(|| format!("there are no results of {variant}"))?;
    let number = |value: &Value| value.as_f64();
    let measured = || {
        let quality = &found["quality"];
        Some(QualityMeasured {
            kl: number(&quality["kl"]["mean"]["value"])?,
            kl_error: number(&quality["kl"]["mean"]["error"]),
            same_top: number(&quality["same_top"]["value"])?,
            positions: quality["positions"].as_u64()?,
        })
    };
    measured().ok_or_else(|| {
        let absent = found["absent"].as_str().or_else(|| found["quality_absent"].as_str());
        format!("quality is not known: {}", absent.unwrap_or("the variant has none"))
    })
}
