//! How far answers of a variant of the weights are from those of f32, as `bench variants` measures it.

use crate::account::QualityMeasured;
use crate::words::quoted;
use candlescope_core::numbers::duration;
use candlescope_lab::compare::run_within;
use candlescope_lab::method::Cancel;
use serde_json::Value;
use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// The words of the command that measures a variant's quality, without the program and the directory of its results.
fn words<'a>((model, device): (&'a str, &'a str), variant: &'a str) -> Vec<&'a str> {
    let fixed = ["bench", "variants", "--runs", "1", "--processes", "1", "--profiled", "0", "--output-tokens", "8"];
    let chosen = ["--model", model, "--device", device, "--variants", variant, "--no-progress", "--json"];
    fixed.into_iter().chain(chosen).collect()
}

/// The command that measures it, as a shell reads it; `{out}` stands for the directory of its results.
pub(crate) fn command(program: &Path, of: (&str, &str), variant: &str) -> String {
    let words: String = words(of, variant).into_iter().map(|word| quoted(word) + " ").collect();
    format!("{} {words}--out {{out}}", quoted(&program.display().to_string()))
}

/// Measures a variant's quality into the directory `out`, with what is printed beside it, for `limit` at most.
/// `program` is candlescope.
///
/// # Errors
/// When it cannot be measured, takes longer or is cancelled, with the reason.
pub(crate) fn measure(
    program: &Path,
    of: (&str, &str),
    variant: &str,
    (out, limit): (&Path, Duration),
    cancel: &Cancel,
) -> Result<QualityMeasured, String> {
    let failed = |error: std::io::Error| format!("quality cannot be measured: {error}");
    let (printed, said) = (out.with_extension("json"), out.with_extension("txt"));
    out.parent().map_or(Ok(()), std::fs::create_dir_all).map_err(failed)?;
    let mut command = Command::new(program);
    command.args(words(of, variant)).arg("--out").arg(out).stdin(Stdio::null());
    command.stdout(File::create(&printed).map_err(failed)?).stderr(File::create(&said).map_err(failed)?);
    let Some(status) = run_within(command, limit, cancel).map_err(failed)? else {
        if cancel.is_cancelled() {
            return Err("quality was not measured: it was interrupted".to_string());
        }
        let limit = duration(limit.as_nanos() as f64);
        return Err(format!(
            "its quality was not measured within the {limit} that were left for it: `--resume` with a larger `--budget` does"
        ));
    };
    if !status.success() {
        let said = std::fs::read(&said).unwrap_or_default();
        let said = String::from_utf8_lossy(&said);
        let last = said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it said nothing");
        return Err(format!("quality cannot be measured: {}", last.trim_start_matches("error: ")));
    }
    let printed = std::fs::read(&printed).map_err(failed)?;
    let object: Value = serde_json::from_slice(&printed).map_err(|error| format!("quality cannot be read: {error}"))?;
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
