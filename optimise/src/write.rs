//! The files of an optimisation.

use crate::account::Account;
use crate::error::OptimiseError;
use crate::options::OptimiseOptions;
use crate::{chart, summary};
use candlescope_core::files::{read_text_limited, write_whole};
use candlescope_core::study_files::MANIFEST_FILE;
use candlescope_lab::method::Method;
use candlescope_lab::study::{Manifest, State};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

/// What the study is called.
const STUDY: &str = "optimise";
/// Under this name the account stands among the facts of `study.json`.
const ACCOUNT: &str = "account";
/// Name of the summary for people, Markdown in the directory of the study.
pub const SUMMARY: &str = "FINAL_OPTIMIZATION_SUMMARY.md";
/// Name of the waterfall beside it, an SVG; it is not written while nothing was measured.
pub const CHART: &str = "optimization_impact.svg";
/// The largest `study.json` that is read.
const MOST_BYTES: u64 = 256 << 20;

/// Writes all files.
pub(crate) fn all(account: &Account, out: &Path) -> Result<(), OptimiseError> {
    let failed = |path: &Path| {
        let path = path.to_path_buf();
        move |cause| OptimiseError::Write { path, cause }
    };
    std::fs::create_dir_all(out).map_err(failed(out))?;
    let file = |name: &str, text: &str| {
        let path = out.join(name);
        write_whole(&path, |file| file.write_all(text.as_bytes())).map_err(failed(&path))
    };
    let mut manifest = Manifest::new(STUDY, Vec::new(), &Method::default());
    manifest.state = match account.ended {
        crate::account::OptimiseEnd::Running => State::Running,
        crate::account::OptimiseEnd::Interrupted => State::Cancelled,
        crate::account::OptimiseEnd::Failed => State::Failed,
        _ => State::Done,
    };
    manifest.ended_ns = (manifest.state != State::Running).then(|| candlescope_core::HostNs::now().0);
    manifest.started_ns = candlescope_core::HostNs::now().0 - (account.seconds * 1e9) as i64;
    manifest.facts.insert(ACCOUNT.into(), serde_json::to_value(account).unwrap_or(Value::Null));
    let text = serde_json::to_string_pretty(&manifest).unwrap_or_default();
    file(MANIFEST_FILE, &(text + "\n"))?;
    file(SUMMARY, &summary::markdown(account))?;
    if let Some(svg) = chart::waterfall(account) {
        file(CHART, &svg)?;
    }
    Ok(())
}

/// What an earlier call with these options wrote.
///
/// # Errors
/// There is none, it cannot be read, or it was begun with another command, program, model or other file.
pub fn read(options: &OptimiseOptions) -> Result<Account, OptimiseError> {
    let path = options.out.join(MANIFEST_FILE);
    let account = read_account(&path)?;
    if account.begun_with != options.told_by() {
        return Err(OptimiseError::Other { path, begun: account.command });
    }
    let (then, now) = (&account.rests_on, &options.rests_on);
    let Some(what) = then.keys().chain(now.keys()).find(|what| then.get(*what) != now.get(*what)).cloned() else {
        return Ok(account);
    };
    let by = |all: &BTreeMap<String, String>| all.get(&what).map_or_else(|| "none".to_string(), String::clone);
    let (then, now) = (by(then), by(now));
    Err(OptimiseError::Changed { path, what, then, now })
}

/// The account in a `study.json`.
///
/// # Errors
/// The file cannot be read, or is of no optimisation.
pub fn read_account(path: &Path) -> Result<Account, OptimiseError> {
    let failed = |why: String| OptimiseError::Resume { path: PathBuf::from(path), why };
    let text = read_text_limited(path, MOST_BYTES).map_err(|error| failed(error.to_string()))?;
    let manifest: Manifest = serde_json::from_str(&text).map_err(|error| failed(error.to_string()))?;
    let account = manifest.facts.get(ACCOUNT).cloned().ok_or_else(|| failed("it is another study".into()))?;
    serde_json::from_value(account).map_err(|error| failed(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::Program;
    use crate::setting::Setting;

    #[test]
    fn what_was_begun_with_another_model_or_program_is_not_gone_on_with() {
        let dir = tempfile::tempdir().unwrap();
        let program = Program { program: "candlescope".into(), words: Vec::new(), private: Vec::new() };
        let mut options = OptimiseOptions::new(program, Setting::default(), dir.path());
        let known = |all: &[(&str, &str)]| -> BTreeMap<String, String> {
            all.iter().map(|(what, by)| (what.to_string(), by.to_string())).collect()
        };
        let begun = known(&[("candlescope", "0.1.0, 9 bytes"), ("m.gguf", "100 bytes")]);
        let account = Account { begun_with: options.told_by(), rests_on: begun, ..Account::default() };
        all(&account, dir.path()).unwrap();
        let mut said = |rests_on: &[(&str, &str)]| {
            options.rests_on = known(rests_on);
            read(&options).map_err(|error| error.to_string())
        };
        let same = [("candlescope", "0.1.0, 9 bytes"), ("m.gguf", "100 bytes")];
        assert_eq!(said(&same), Ok(account));
        let error = said(&[same[0], ("m.gguf", "200 bytes")]).unwrap_err();
        assert!(error.contains("another m.gguf (100 bytes then, 200 bytes now)"), "{error}");
        assert!(error.contains("put that one back, or begin anew with another --out"), "{error}");
        let error = said(&[("candlescope", "0.2.0, 9 bytes"), same[1]]).unwrap_err();
        assert!(error.contains("another candlescope (0.1.0, 9 bytes then, 0.2.0, 9 bytes now)"), "{error}");
        // A group's file that was not there, or is gone.
        let error = said(&[same[0], same[1], ("conf/model/mine.toml", "1")]).unwrap_err();
        assert!(error.contains("another conf/model/mine.toml (none then, 1 now)"), "{error}");
        assert!(said(&same[..1]).unwrap_err().contains("another m.gguf (100 bytes then, none now)"));
    }
}
