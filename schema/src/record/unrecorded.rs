//! Steps without a record of which the time is known, because rates of the recorded steps beside them need it.

use crate::host_ns::HostNs;
use crate::vocabulary::Phase;
use std::fmt::{self, Write as _};
use std::sync::Arc;

/// A step that has no record, of which only the time is known: it was open when a recorded step began, or began right
/// after one.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct UnrecordedStep {
    /// Number of the step.
    pub step: u64,
    /// Start, nanoseconds since the Unix epoch.
    pub host_start: HostNs,
    /// Duration on the host in nanoseconds.
    pub host_dur_ns: u64,
    /// Number of the request that it worked for.
    pub request: Option<u64>,
    /// Phase, if it is one.
    pub phase: Option<Phase>,
    /// Rollup of its own path, by which steps without a phase are grouped.
    pub name: Arc<str>,
}

impl UnrecordedStep {
    /// A step that works for no request and is no phase.
    pub fn new(step: u64, host_start: HostNs, host_dur_ns: u64, name: impl Into<Arc<str>>) -> Self {
        Self { step, host_start, host_dur_ns, request: None, phase: None, name: name.into() }
    }

    /// What it is counted with: its phase, or its name.
    pub fn group(&self) -> &str {
        self.phase.map_or(&*self.name, |phase| phase.as_str())
    }

    /// End, nanoseconds since the Unix epoch.
    pub fn host_end(&self) -> HostNs {
        self.host_start.plus_ns(self.host_dur_ns)
    }

    /// Steps as a cell of the table `steps`: a line for each.
    pub fn to_text(steps: &[Self]) -> String {
        let mut text = String::new();
        for (i, step) in steps.iter().enumerate() {
            let _ = write!(text, "{}{step}", if i == 0 { "" } else { "\n" });
        }
        text
    }

    /// Reads what [`to_text`](Self::to_text) wrote. Lines that are not understood are left out.
    pub fn of_text(text: &str) -> Vec<Self> {
        text.lines().filter_map(Self::of_line).collect()
    }

    fn of_line(line: &str) -> Option<Self> {
        let mut words = line.splitn(6, ' ');
        let mut next = || words.next();
        let (step, start, dur) = (next()?.parse().ok()?, next()?.parse().ok()?, next()?.parse().ok()?);
        let (request, phase, name) = (next()?, next()?, next()?);
        let known = |word: &str| word != NONE;
        Some(Self {
            request: Some(request).filter(|word| known(word)).map(str::parse).transpose().ok()?,
            phase: Some(phase)
                .filter(|word| known(word))
                .map(|word| Phase::from_word(word).ok_or(()))
                .transpose()
                .ok()?,
            ..Self::new(step, HostNs(start), dur, name)
        })
    }
}

const NONE: &str = "-";

/// `NUMBER START DURATION REQUEST PHASE NAME`, where a request or phase that is absent is `-`.
impl fmt::Display for UnrecordedStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {} ", self.step, self.host_start.0, self.host_dur_ns)?;
        match self.request {
            Some(request) => write!(f, "{request} ")?,
            None => write!(f, "{NONE} ")?,
        }
        write!(f, "{} ", self.phase.map_or(NONE, Phase::as_str))?;
        self.name.chars().try_for_each(|c| f.write_char(if c.is_control() { ' ' } else { c }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        let decode = UnrecordedStep {
            request: Some(9),
            phase: Some(Phase::Decode),
            ..UnrecordedStep::new(7, HostNs(1_700_000_000_000_000_000), 5_000, "decode")
        };
        let plain = UnrecordedStep::new(8, HostNs(-3), 0, "a name with spaces");
        let steps = [decode, plain];
        assert_eq!(UnrecordedStep::of_text(&UnrecordedStep::to_text(&steps)), steps);
        assert_eq!((UnrecordedStep::to_text(&[]), UnrecordedStep::of_text("")), (String::new(), vec![]));
        assert_eq!(UnrecordedStep::of_text("x\n1 2\n1 2 3 - nophase a\n1 2 3 - - a\n1 2 3 y - a").len(), 1);
        let lines = UnrecordedStep::to_text(&[UnrecordedStep::new(1, HostNs(2), 3, "a\nb")]);
        assert_eq!((lines.lines().count(), &*UnrecordedStep::of_text(&lines)[0].name), (1, "a b"));
    }
}
