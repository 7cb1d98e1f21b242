//! The time line of one step: what it launched when, and when that ran.

use super::works::{DeviceWorks, NONE, NOWHERE, Works};
use crate::step_rows::StepRow;
use crate::step_threads::{ThreadStates, step_threads};
use candlescope_reader::Run;
use candlescope_schema::KernelKind;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A step with more work than this has no time line: nobody could read it.
const MOST_WORK: usize = 20_000;

/// One step of median duration, of the kind that takes most time. Times are nanoseconds from its begin.
#[derive(Debug, Clone, PartialEq)]
pub struct StepLine {
    /// Number of the step in the run, from 0 in order of start over all threads.
    pub step: u64,
    /// The phase, or the steps' name.
    pub name: String,
    /// How long it was open on the host.
    pub open_ns: u64,
    /// Where its thread's time went; `None` if its switches were not recorded.
    pub thread: Option<ThreadStates>,
    /// What it launched, in order of start on the device.
    pub work: Vec<LineWork>,
}

/// A kernel, copy or memset of the step.
#[derive(Debug, Clone, PartialEq)]
pub struct LineWork {
    /// Path with ordinals of the interval that launched it, if one did.
    pub path: Option<Arc<str>>,
    /// Demangled name; of a copy its direction.
    pub name: Arc<str>,
    /// Kernel, copy or memset.
    pub kind: KernelKind,
    /// Number of the stream it ran in, as the driver counts them.
    pub stream: u32,
    /// The call that launched it: begin and end; `None` if not recorded.
    pub call: Option<(i64, i64)>,
    /// Start on the device.
    pub start_ns: i64,
    /// End on the device.
    pub end_ns: i64,
}

/// The time line of the median step among `own`, the measured steps with work on this device; `None` without any.
pub(super) fn step_line(device: &DeviceWorks, works: &Works, own: &[&StepRow]) -> Option<StepLine> {
    let mut kinds: BTreeMap<&str, u64> = BTreeMap::new();
    for step in own {
        let sum = kinds.entry(step.group()).or_default();
        *sum = sum.saturating_add(step.dur_ns);
    }
    let most = kinds.into_iter().max_by_key(|(_, ns)| *ns)?.0;
    let mut order: Vec<&StepRow> = own.iter().copied().filter(|step| step.group() == most).collect();
    order.sort_by_key(|step| (step.dur_ns, step.step));
    let median = *order.get(order.len() / 2)?;
    let number = works.steps.iter().position(|step| *step == median.step)? as u32;
    let from = |at: i64| at.saturating_sub(median.start_ns);
    let own_work = device.work.iter().filter(|work| work.step == number && number != NOWHERE);
    let list: Vec<LineWork> = own_work
        .take(MOST_WORK + 1)
        .map(|work| LineWork {
            path: works.path(work).map(|path| path.path.as_str().into()),
            name: works.names[work.name as usize].clone(),
            kind: work.kind,
            stream: work.stream,
            call: (work.launch != NONE).then(|| (from(work.launch), from(work.launch_end))),
            start_ns: from(work.start),
            end_ns: from(work.end),
        })
        .collect();
    let readable = !list.is_empty() && list.len() <= MOST_WORK;
    readable.then(|| StepLine {
        step: median.step,
        name: most.to_string(),
        open_ns: median.dur_ns,
        thread: None,
        work: list,
    })
}

/// Adds what the threads of these steps did.
pub(super) fn add_threads<'a>(run: &Run, lines: impl Iterator<Item = &'a mut StepLine>) {
    let mut lines: Vec<&mut StepLine> = lines.collect();
    if lines.is_empty() {
        return;
    }
    let threads = step_threads(run, |step| lines.iter().any(|line| line.step == step));
    lines.iter_mut().for_each(|line| line.thread = threads.get(&line.step).and_then(|thread| thread.states));
}
