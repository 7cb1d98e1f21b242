//! Peaks of the machine, where the run names them, and how near each phase comes to them.
//!
//! A run names its peaks in `environment.peaks`: a list of objects with `kind` (`flops` or `bandwidth`), `value` (FLOP/s or
//! B/s), `label` (`measured` or `datasheet`), `source`, and for FLOPs `dtype`. No peak is ever guessed.

use super::phases::Phases;
use candlescope_core::run::RunManifest;
use serde_json::Value;

/// One peak.
#[derive(Debug, Clone, PartialEq)]
pub struct Peak {
    /// FLOP/s rather than bytes/s.
    pub is_flops: bool,
    /// FLOP/s or B/s.
    pub value: f64,
    /// `measured` or `datasheet`.
    pub label: String,
    /// Where it comes from.
    pub source: String,
    /// Element type a FLOP/s peak is for.
    pub dtype: Option<String>,
}

/// One phase against one peak: MFU for FLOPs, MBU for bytes.
#[derive(Debug, Clone, PartialEq)]
pub struct Utilisation {
    /// Phase or name of the steps.
    pub phase: String,
    /// The peak it is held against.
    pub peak: Peak,
    /// Achieved ÷ peak.
    pub ratio: f64,
}

/// The peaks that a manifest names.
pub fn peaks(manifest: &RunManifest) -> Vec<Peak> {
    let text = |object: &Value, key: &str| object.get(key).and_then(Value::as_str).map(str::to_string);
    let list = manifest.environment.get("peaks").and_then(Value::as_array).into_iter().flatten();
    list.filter_map(|object| {
        let is_flops = match text(object, "kind")?.as_str() {
            "flops" => true,
            "bandwidth" => false,
            _ => return None,
        };
        Some(Peak {
            is_flops,
            value: object.get("value").and_then(Value::as_f64).filter(|v| v.is_finite() && *v > 0.0)?,
            label: text(object, "label")?,
            source: text(object, "source").unwrap_or_default(),
            dtype: text(object, "dtype"),
        })
    })
    .collect()
}

/// Every phase that tells its work against every peak.
pub fn utilisation(phases: &Phases, peaks: &[Peak]) -> Vec<Utilisation> {
    let mut all = Vec::new();
    for phase in phases.rows.iter().filter(|row| row.is_phase) {
        for peak in peaks {
            let achieved = if peak.is_flops { phase.gflops } else { phase.gbytes };
            if let Some(achieved) = achieved {
                all.push(Utilisation {
                    phase: phase.name.clone(),
                    peak: peak.clone(),
                    ratio: achieved * 1e9 / peak.value,
                });
            }
        }
    }
    all
}
