//! What is noticed on the application's threads and has to be said: kept here, told by the drain, and part of the
//! verdict. Those threads themselves tell nothing, because they may hold locks of `tracing` or of the program.

use crate::diagnostics::Diagnostics;
use crate::run::{Code, Finding};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// The session's notices, one of each code.
#[derive(Debug, Default)]
pub(crate) struct Notices {
    /// Whether there is one that has not been told.
    fresh: AtomicBool,
    list: Mutex<Vec<Notice>>,
}

#[derive(Debug)]
struct Notice {
    code: Code,
    line: String,
    /// Absent where the verdict finds the words itself, from what was counted.
    finding: Option<Finding>,
    told: bool,
}

impl Notices {
    /// Keeps what was noticed, unless there is one of its code.
    pub(crate) fn add(&self, finding: Finding) {
        let line = format!("{}; {}", finding.message(), finding.remedy());
        self.keep(Notice { code: finding.code.clone(), line, finding: Some(finding), told: false });
    }

    /// Has a line told, once for each code.
    pub(crate) fn say(&self, code: Code, line: &str) {
        self.keep(Notice { code, line: line.into(), finding: None, told: false });
    }

    fn keep(&self, notice: Notice) {
        let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        if list.iter().all(|known| known.code != notice.code) {
            list.push(notice);
            self.fresh.store(true, Ordering::Release);
        }
    }

    /// Tells what has not been told.
    pub(crate) fn tell(&self, diagnostics: &Diagnostics) {
        if !self.fresh.swap(false, Ordering::AcqRel) {
            return;
        }
        let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = list.iter_mut().filter(|notice| !notice.told);
        let tell = |notice: &mut Notice| {
            notice.told = true;
            notice.line.clone()
        };
        let lines: Vec<String> = fresh.map(tell).collect();
        drop(list);
        lines.into_iter().for_each(|line| diagnostics.report("", line));
    }

    /// What the verdict says of them.
    pub(crate) fn findings(&self) -> Vec<Finding> {
        let list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        list.iter().filter_map(|notice| notice.finding.clone()).collect()
    }
}
