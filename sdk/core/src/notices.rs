//! Problems noticed on the application's threads. They are kept here until the drain reports them, and are part of the
//! verdict. The application's threads report nothing themselves, because they may hold locks of `tracing` or of the
//! program.

use crate::diagnostics::Diagnostics;
use crate::run::{Code, Finding};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// The session's notices, one of each code.
#[derive(Debug, Default)]
pub(crate) struct Notices {
    /// Whether there is a notice that has not been reported.
    fresh: AtomicBool,
    list: Mutex<Vec<Notice>>,
}

#[derive(Debug)]
struct Notice {
    code: Code,
    line: String,
    /// `None` if the verdict makes the finding itself, from what was counted.
    finding: Option<Finding>,
    told: bool,
}

impl Notices {
    /// Keeps the finding, unless there is one with its code already.
    pub(crate) fn add(&self, finding: Finding) {
        let line = format!("{}; {}", finding.message(), finding.remedy());
        self.keep(Notice { code: finding.code.clone(), line, finding: Some(finding), told: false });
    }

    /// Keeps the finding for the verdict alone: it is worth knowing, and no problem to report.
    pub(crate) fn note(&self, finding: Finding) {
        let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        if list.iter().all(|known| known.code != finding.code) {
            let code = finding.code.clone();
            list.push(Notice { code, line: String::new(), finding: Some(finding), told: true });
        }
    }

    /// Keeps a line to be reported, once for each code.
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

    /// Reports what has not been reported yet.
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

    /// The findings for the verdict.
    pub(crate) fn findings(&self) -> Vec<Finding> {
        let list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        list.iter().filter_map(|notice| notice.finding.clone()).collect()
    }
}
