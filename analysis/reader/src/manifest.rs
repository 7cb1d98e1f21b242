//! Reads `run.json`.

use super::long_texts::LongTexts;
use super::open_error::OpenError;
use crate::limits::{ExceededLimit, Limit, ReadLimits};
use candlescope_schema::files::read_limited;
use candlescope_schema::run::{Code, Finding, MANIFEST_FILE, Place, RunManifest, SCHEMA_VERSION};
use serde_json::Value;
use std::io::{self, ErrorKind};
use std::path::Path;

/// The manifest, or a finding that says why there is none.
pub(super) fn read(
    dir: &Path,
    limits: &ReadLimits,
    findings: &mut Vec<Finding>,
) -> Result<Option<RunManifest>, OpenError> {
    let path = dir.join(MANIFEST_FILE);
    let size = || path.metadata().map(|m| m.len()).ok();
    manifest_of(dir, read_limited(&path, limits.get(Limit::ManifestBytes)), size, limits, findings)
}

/// The manifest of a run in `dir`, which may be a URL, of what was read there; or a finding that says why there is
/// none. Where reading it would go beyond the limit on manifests, the error is [`ErrorKind::FileTooLarge`], and `size`
/// has its bytes.
///
/// The version is checked before anything else is interpreted: in a newer layout the same names may mean other things.
///
/// # Errors
/// When the schema of the run is newer than this release.
pub fn manifest_of(
    dir: &Path,
    bytes: io::Result<Vec<u8>>,
    size: impl FnOnce() -> Option<u64>,
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
    let bytes = match bytes {
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
            let most = limits.get(Limit::ManifestBytes);
            let found = size().filter(|found| *found > most);
            let exceeded = ExceededLimit { limit: Limit::ManifestBytes, found, allowed: most };
            let effect = "model, environment, options and loss counts are unknown";
            let finding = exceeded.finding(&format!("`{}`", path.display()), effect);
            findings.push(finding.at(Place::File, path.display().to_string()));
            return Ok(None);
        }
        Err(error) => {
            findings.push(unreadable(error.to_string()));
            return Ok(None);
        }
    };
    let mut value: Value = match serde_json::from_slice(&bytes) {
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
    let mut long = LongTexts::default();
    hold(&mut value, &mut long, limits, &path);
    findings.extend(long.finding(limits).map(|finding| finding.at(Place::File, path.display().to_string())));
    match serde_json::from_value(value) {
        Ok(manifest) => Ok(Some(manifest)),
        Err(error) => {
            findings.push(unreadable(error.to_string()));
            Ok(None)
        }
    }
}

/// Holds every text to the limit on texts, names of keys included, as texts of tables are. The parser has bounded how
/// deep values are.
fn hold(value: &mut Value, long: &mut LongTexts, limits: &ReadLimits, file: &Path) {
    match value {
        Value::String(text) => long.cut_text(text, limits, file),
        Value::Array(items) => items.iter_mut().for_each(|item| hold(item, long, limits, file)),
        Value::Object(map) => {
            if map.keys().any(|key| key.len() as u64 > limits.get(Limit::TextBytes)) {
                let held = std::mem::take(map).into_iter().map(|(mut key, value)| {
                    long.cut_text(&mut key, limits, file);
                    (key, value)
                });
                *map = held.collect();
            }
            map.values_mut().for_each(|value| hold(value, long, limits, file));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_text_is_held_to_the_limit_wherever_it_stands() {
        let dir = tempfile::tempdir().unwrap();
        let long = "ä".repeat(20);
        let text = json!({
            "schema_version": 1, "run_id": long, "model": { "name": long, "of": [{ "deep": long }], "layers": 4 },
            "environment": { long.as_str(): "short" },
        });
        std::fs::write(dir.path().join(MANIFEST_FILE), text.to_string()).unwrap();
        let mut findings = Vec::new();
        let limits = ReadLimits::default().with(Limit::TextBytes, 15);
        let read = read(dir.path(), &limits, &mut findings).unwrap().unwrap();
        let cut = "ä".repeat(7);
        assert_eq!((read.run_id.as_str(), &read.model["name"], &read.model["layers"]), (&*cut, &json!(cut), &json!(4)));
        assert_eq!((&read.model["of"][0]["deep"], &read.environment[&cut]), (&json!(cut), &json!("short")));
        let [finding] = &findings[..] else { panic!("{findings:?}") };
        let said = finding.message();
        assert!(
            said.contains("run.json") && said.contains("40 bytes of one text") && said.contains("4 values"),
            "{said}"
        );
    }
}
