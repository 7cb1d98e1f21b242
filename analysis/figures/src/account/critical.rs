//! The critical path of steps: from a step's end back to its begin, each nanosecond is that of whatever the step waited
//! for.
//!
//! The rules are HTA's [`critical_path_analysis.py`], on what a run holds: work on the device waits for the work before
//! it in its stream, or for the call that launched it, whichever was later; the host waits for the device in copies
//! whose call returned only after the copy had ended. Waiting for events between streams is not recorded, so work of
//! another stream is never waited for.

use super::sequences::by_step;
use super::works::{DeviceWorks, Work, Works};
use crate::step_rows::StepRow;
use rustc_hash::FxHashMap;
use serde::Serialize;

/// What the time of the steps consists of: the parts add up to `total_ns`. Times are nanoseconds.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct CriticalPath {
    /// Steps that were followed back.
    pub steps: u64,
    /// From their begin to the end of their last work, or of the step on the host if that is later.
    pub total_ns: u64,
    /// In all of them together.
    #[serde(flatten)]
    pub parts: CriticalPart,
    /// By path without ordinals, the most time first. The host's time before a launch is that of what was launched,
    /// also from a step's begin to its first launch; after the last one it is the step's. `None` is what was launched
    /// outside every interval.
    pub by_path: Vec<(Option<String>, CriticalPart)>,
}

/// Time on the critical path, by kind. Nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct CriticalPart {
    /// Kernels that the end of a step waited for, directly or through others.
    pub kernels_ns: u64,
    /// Copies and memsets that the end of a step waited for, directly or through others.
    pub copies_ns: u64,
    /// Between work that was already in the queue and the work before it.
    pub queue_ns: u64,
    /// From the end of a launch call to the start on the device.
    pub launch_delay_ns: u64,
    /// On the host, inside calls that launch work.
    pub launch_calls_ns: u64,
    /// On the host, elsewhere.
    pub host_ns: u64,
    /// From the end of a copy that the host had waited for to the return of its call.
    pub wake_up_ns: u64,
}

impl CriticalPart {
    /// The seven kinds together, in nanoseconds.
    pub fn total_ns(&self) -> u64 {
        let parts = [self.kernels_ns, self.copies_ns, self.queue_ns, self.launch_delay_ns, self.launch_calls_ns];
        parts.into_iter().chain([self.host_ns, self.wake_up_ns]).fold(0, u64::saturating_add)
    }

    fn plus(&mut self, other: &Self) {
        for (into, ns) in [
            (&mut self.kernels_ns, other.kernels_ns),
            (&mut self.copies_ns, other.copies_ns),
            (&mut self.queue_ns, other.queue_ns),
            (&mut self.launch_delay_ns, other.launch_delay_ns),
            (&mut self.launch_calls_ns, other.launch_calls_ns),
            (&mut self.host_ns, other.host_ns),
            (&mut self.wake_up_ns, other.wake_up_ns),
        ] {
            *into = into.saturating_add(ns);
        }
    }

    fn add(&mut self, kind: Kind, ns: u64) {
        let part = match kind {
            Kind::Kernel => &mut self.kernels_ns,
            Kind::Copy => &mut self.copies_ns,
            Kind::Queue => &mut self.queue_ns,
            Kind::LaunchDelay => &mut self.launch_delay_ns,
            Kind::LaunchCall => &mut self.launch_calls_ns,
            Kind::Host => &mut self.host_ns,
            Kind::WakeUp => &mut self.wake_up_ns,
        };
        *part = part.saturating_add(ns);
    }
}

#[derive(Clone, Copy)]
enum Kind {
    Kernel,
    Copy,
    Queue,
    LaunchDelay,
    LaunchCall,
    Host,
    WakeUp,
}

/// The critical paths of `steps`; `None` without any whose launches are known.
pub(super) fn critical_path(device: &DeviceWorks, works: &Works, steps: &[&StepRow]) -> Option<CriticalPath> {
    let by_number: FxHashMap<u64, &StepRow> = steps.iter().map(|step| (step.step, *step)).collect();
    let mut out = CriticalPath::default();
    let mut places: FxHashMap<u32, CriticalPart> = FxHashMap::default();
    let mut ends: FxHashMap<&str, CriticalPart> = FxHashMap::default();
    for list in by_step(&device.work) {
        let list: Vec<&Work> = list.into_iter().map(|at| &device.work[at as usize]).collect();
        let Some(step) = list.first().and_then(|work| by_number.get(&works.steps[work.step as usize])) else {
            continue;
        };
        if list.iter().any(|work| work.call().is_none()) {
            continue;
        }
        let mut back = StepWalk::new(step, &list);
        out.steps += 1;
        out.total_ns = out.total_ns.saturating_add(back.at.abs_diff(step.start_ns));
        back.follow(|kind, work, ns| {
            out.parts.add(kind, ns);
            let part = match work {
                Some(work) => places.entry(works.rollup_of(work)).or_default(),
                // After the last launch the host is somewhere in the step.
                None => ends.entry(step.path.rollup.as_str()).or_default(),
            };
            part.add(kind, ns);
        });
    }
    let texts = works.rollups();
    out.by_path = places.into_iter().map(|(id, part)| (texts.get(&id).map(|text| text.to_string()), part)).collect();
    for (place, end) in ends {
        match out.by_path.iter_mut().find(|(known, _)| known.as_deref() == Some(place)) {
            Some((_, part)) => part.plus(&end),
            None => out.by_path.push((Some(place.to_string()), end)),
        }
    }
    out.by_path.sort_by(|a, b| b.1.total_ns().cmp(&a.1.total_ns()).then_with(|| a.0.cmp(&b.0)));
    (out.steps > 0).then_some(out)
}

/// Follows one step back.
struct StepWalk<'a> {
    /// The step's begin.
    begin: i64,
    /// The time that has been reached.
    at: i64,
    list: &'a [&'a Work],
    /// Of each work: the work before it in its stream.
    before: Vec<Option<usize>>,
    /// Indices by the start of the launch.
    launches: Vec<usize>,
    /// Work that ended last, if it did so after the step on the host.
    last: Option<usize>,
    /// The work towards whose launch the host is on its way, where the path has reached the host.
    toward: Option<&'a Work>,
}

impl<'a> StepWalk<'a> {
    fn new(step: &StepRow, list: &'a [&'a Work]) -> Self {
        let mut streams: FxHashMap<u32, usize> = FxHashMap::default();
        let before = list.iter().enumerate().map(|(at, work)| streams.insert(work.stream, at)).collect();
        let mut launches: Vec<usize> = (0..list.len()).collect();
        launches.sort_by_key(|at| list[*at].launch);
        let last = (0..list.len()).max_by_key(|at| list[*at].end);
        let end = last.map_or(step.end_ns(), |last| list[last].end);
        let last = last.filter(|_| end > step.end_ns());
        Self { begin: step.start_ns, at: end.max(step.end_ns()), list, before, launches, last, toward: None }
    }

    /// Goes back to `to`, or to the step's begin; what lies between is of `kind`.
    fn go(&mut self, to: i64, kind: Kind, work: Option<&'a Work>, out: &mut impl FnMut(Kind, Option<&Work>, u64)) {
        let to = to.clamp(self.begin, self.at.max(self.begin));
        if self.at > to {
            out(kind, work, self.at.abs_diff(to));
            self.at = to;
        }
    }

    fn follow(&mut self, mut out: impl FnMut(Kind, Option<&Work>, u64)) {
        let mut on_device = self.last;
        let mut launched = self.launches.len();
        while self.at > self.begin {
            match on_device {
                Some(index) => on_device = self.device(index, &mut out),
                None => match self.host(&mut launched, &mut out) {
                    Some(copy) => on_device = Some(copy),
                    None => self.go(self.begin, Kind::Host, self.toward, &mut out),
                },
            }
        }
    }

    /// From the end of a work back to what it waited for: the work before it, or its launch (`None`).
    fn device(&mut self, index: usize, out: &mut impl FnMut(Kind, Option<&Work>, u64)) -> Option<usize> {
        let work = self.list[index];
        self.go(work.start, if work.is_kernel() { Kind::Kernel } else { Kind::Copy }, Some(work), out);
        // A copy that blocks is in its call all the while: its launch is the begin of the call.
        let ready = if work.launch_end <= work.start { work.launch_end } else { work.launch.min(work.start) };
        match self.before[index].filter(|before| self.list[*before].end > ready) {
            Some(before) => {
                self.go(self.list[before].end, Kind::Queue, Some(work), out);
                Some(before)
            }
            None => {
                self.go(ready, Kind::LaunchDelay, Some(work), out);
                self.go(work.launch, Kind::LaunchCall, Some(work), out);
                self.toward = Some(work);
                None
            }
        }
    }

    /// From the host back to a copy that it waited for, or past the call before. `launched` is how many of the calls,
    /// in order, may still lie before.
    fn host(&mut self, launched: &mut usize, out: &mut impl FnMut(Kind, Option<&Work>, u64)) -> Option<usize> {
        while *launched > 0 {
            let index = self.launches[*launched - 1];
            let work = self.list[index];
            *launched -= 1;
            if work.launch >= self.at {
                continue;
            }
            self.go(work.launch_end, Kind::Host, self.toward, out);
            self.toward = Some(work);
            if work.is_blocking_copy() && work.end <= self.at {
                self.go(work.end, Kind::WakeUp, Some(work), out);
                return Some(index);
            }
            self.go(work.launch, Kind::LaunchCall, Some(work), out);
            if self.at <= self.begin {
                return None;
            }
        }
        None
    }
}
