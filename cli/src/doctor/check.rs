//! One thing that was checked.

use serde::Serialize;

/// What a check is about: a part of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Group {
    /// Processors, threads, memory, other users.
    Cpu,
    /// What recording costs, and where records go.
    Recording,
    /// GPUs, and the tools for them.
    Gpu,
    /// Energy, and what figures are held against.
    Measuring,
    /// Where models come from, and what else runs them.
    Models,
}

impl Group {
    pub(super) const ALL: [Self; 5] = [Self::Cpu, Self::Recording, Self::Gpu, Self::Measuring, Self::Models];

    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Cpu => "Processors and memory",
            Self::Recording => "Recording",
            Self::Gpu => "GPU",
            Self::Measuring => "Measuring",
            Self::Models => "Models",
        }
    }
}

/// One thing that was checked.
#[derive(Debug, Serialize)]
pub(super) struct Check {
    pub(super) group: Group,
    pub(super) name: &'static str,
    pub(super) ok: bool,
    /// Whether nothing is wrong without it.
    pub(super) optional: bool,
    pub(super) found: String,
    /// What is not available without it; empty if it was found.
    pub(super) cost: String,
}

impl Check {
    /// Something that ought to be there.
    pub(super) fn new(group: Group, name: &'static str, found: Option<String>, cost: &str) -> Self {
        Self::judged(group, name, found.is_some(), found.unwrap_or_else(|| "not found".into()), cost)
    }

    /// Something that is as it should be, or costs something.
    pub(super) fn judged(group: Group, name: &'static str, ok: bool, found: impl Into<String>, cost: &str) -> Self {
        let cost = if ok { String::new() } else { cost.to_string() };
        Self { group, name, ok, optional: false, found: found.into(), cost }
    }

    /// Something that is there or not, and why not.
    #[cfg(any(feature = "gpu", feature = "lab", feature = "onnx"))]
    pub(super) fn asked(group: Group, name: &'static str, answer: Result<String, String>, cost: &str) -> Self {
        match answer {
            Ok(found) => Self::judged(group, name, true, found, cost),
            // The message has the problem and its remedy; the cost says what it affects.
            Err(why) => Self::judged(group, name, false, why, cost),
        }
    }

    /// Nothing is wrong without it.
    pub(super) fn optional(self) -> Self {
        Self { optional: true, ..self }
    }

    /// Whether something is wrong.
    pub(super) fn is_fault(&self) -> bool {
        !self.ok && !self.optional
    }

    pub(super) fn mark(&self) -> &'static str {
        match (self.ok, self.optional) {
            (true, _) => "✓",
            (false, true) => "–",
            (false, false) => "✗",
        }
    }
}
