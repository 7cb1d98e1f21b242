//! Reads `run.json`.

use super::OpenError;
use crate::limits::{Exceeded, Limit, ReadLimits};
use candlescope_core::files::read_limited;
use candlescope_core::run::{Code, Finding, MANIFEST_FILE, Place, RunManifest, SCHEMA_VERSION};
use serde_json::Value;
use std::io::ErrorKind;
use std::path::Path;

/// The manifest, or a finding that says why there is none.
///
/// The version is checked before anything else is interpreted: in a newer layout the same names may mean other things.
pub(super) fn read(
    dir: &Path,
    limits: &ReadLimits,
    findings: &mut Vec<Finding>,
) -> Result<Option<RunManifest>, OpenError> {
    let path = dir.join(MANIFEST_FILE);
    let about = |code, message, remedy| Finding::new(code, message, remedy).at(Place::File, path.display().to_string());
    let unreadable = |why: String| {
        about(
            Code::ManifestUnreadable,
            "`{file}` cannot be read ({why}): model, environment, options and loss counts are unknown",
            "The tables are still analysed. Copy run.json again from where the run was made",
        )
        .text("why", why)
    };
    let most = limits.get(Limit::ManifestBytes);
    let bytes = match read_limited(&path, most) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            findings.push(about(
                Code::ManifestMissing,
                "`{file}` is missing: the run ended before writing it, or it was deleted. Model, environment, options and \
                 loss counts are unknown",
                "The tables are still analysed. Keep the session's guard until the end of main so that the run is closed \
                 in order",
            ));
            return Ok(None);
        }
        Err(error) if error.kind() == ErrorKind::FileTooLarge => {
            let found = path.metadata().map(|m| m.len()).ok().filter(|found| *found > most);
            let exceeded = Exceeded { limit: Limit::ManifestBytes, found, allowed: most };
            let effect = "model, environment, options and loss counts are unknown";
            findings.push(exceeded.finding(&format!("`{}`", path.display()), effect));
            return Ok(None);
        }
        Err(error) => {
            findings.push(unreadable(error.to_string()));
            return Ok(None);
        }
    };
    let value: Value = match serde_json::from_slice(&bytes) {
        Ok(value @ Value::Object(_)) => value,
        Ok(_) => {
            findings.push(unreadable("not a JSON object".to_string()));
            return Ok(None);
        }
        Err(error) => {
            findings.push(unreadable(error.to_string()));
            return Ok(None);
        }
    };
    let version = value.get("schema_version").and_then(Value::as_u64);
    match version {
        Some(found) if found > u64::from(SCHEMA_VERSION) => {
            return Err(OpenError::NewerSchema {
                dir: dir.to_path_buf(),
                found: u32::try_from(found).unwrap_or(u32::MAX),
            });
        }
        Some(1..) => {}
        _ => {
            let message = "`{file}` names no schema version; it is read as version {version}";
            let finding = about(Code::SchemaVersionMissing, message, "Write runs with candlescope's Parquet exporter");
            findings.push(finding.count("version", SCHEMA_VERSION.into()));
        }
    }
    match serde_json::from_value(value) {
        Ok(manifest) => Ok(Some(manifest)),
        Err(error) => {
            findings.push(unreadable(error.to_string()));
            Ok(None)
        }
    }
}
