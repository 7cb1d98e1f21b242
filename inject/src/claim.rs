//! What `candlescope record` says of a recording, and which process it is of.

use crate::problems::complain;
use candlescope_core::injected::{CHILDREN, CLAIM, MODEL, SESSION, STEPS, WINDOWS, WORK, Windows};
use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// What the variables say. They are read once, because what the program starts is not to have them.
#[derive(Debug)]
pub(crate) struct Settings {
    /// What is recorded, and where to: `record`'s own, or what programs that link candlescope are told.
    pub(crate) session: Option<String>,
    pub(crate) steps: Option<String>,
    pub(crate) model: Option<OsString>,
    pub(crate) work: String,
    pub(crate) windows: Option<Windows>,
    /// Every process records a run of its own.
    pub(crate) follows: bool,
    claim: Option<PathBuf>,
}

impl Settings {
    fn read() -> Self {
        let text = |name: &str| std::env::var(name).ok();
        let session = text(SESSION).or_else(|| text(candlescope::env::VARIABLE));
        Self {
            session: session.filter(|text| !text.trim().is_empty()),
            steps: text(STEPS),
            model: std::env::var_os(MODEL),
            work: text(WORK).unwrap_or_default(),
            windows: text(WINDOWS).and_then(|text| Windows::parse(&text)),
            follows: std::env::var_os(CHILDREN).is_some(),
            claim: std::env::var_os(CLAIM).map(PathBuf::from),
        }
    }

    /// Whether `candlescope record` has started the program, and only one of its processes is recorded.
    pub(crate) fn is_of_one(&self) -> bool {
        self.claim.is_some() && !self.follows
    }
}

/// The settings of this process.
pub(crate) fn settings() -> &'static Settings {
    static SETTINGS: OnceLock<Settings> = OnceLock::new();
    SETTINGS.get_or_init(Settings::read)
}

/// Whether this process is one that records. The first one that makes the file is, or every one where that is asked
/// for.
pub(crate) fn claimed() -> bool {
    static CLAIMED: OnceLock<bool> = OnceLock::new();
    *CLAIMED.get_or_init(|| {
        let settings = settings();
        // Made as well where all are recorded: it says that one began.
        let Some(file) = &settings.claim else { return true };
        claim(file, &this_process()) || settings.follows
    })
}

/// Makes the file; whether it is this process's.
fn claim(file: &Path, process: &str) -> bool {
    match OpenOptions::new().write(true).create_new(true).open(file) {
        Ok(mut made) => {
            let _ = made.write_all(process.as_bytes());
            true
        }
        // It has put another program in its place (`exec`), or the file is somebody else's.
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            std::fs::read_to_string(file).is_ok_and(|text| text == process)
        }
        // The recording is over: a process that outlived it.
        Err(error) if error.kind() == ErrorKind::NotFound => false,
        Err(error) => {
            complain(&format!("cannot make {}: {error}: nothing is recorded", file.display()));
            false
        }
    }
}

/// This process, as no other one is called: its number, and when it began, as the system counts it.
fn this_process() -> String {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // Its name, which may have anything in it, stands in parentheses before the rest.
    let began = stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(19));
    format!("{} {}", std::process::id(), began.unwrap_or("?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_process_claims_a_recording_and_keeps_it() {
        let dir = tempfile::tempdir().expect("a folder");
        let file = dir.path().join(".claim");
        assert!(claim(&file, "7 100"));
        assert!(claim(&file, "7 100"), "the same one, which has put another program in its place");
        assert!(!claim(&file, "8 200") && !claim(&file, "7 300"), "another one of the same number");
        assert!(!claim(&dir.path().join("gone/.claim"), "7 100"), "the recording is over");
        let this = this_process();
        assert!(this == this_process() && this.starts_with(&format!("{} ", std::process::id())), "{this}");
        if cfg!(target_os = "linux") {
            assert!(this.split(' ').nth(1).is_some_and(|began| began.parse::<u64>().is_ok()), "{this}");
        }
    }
}
