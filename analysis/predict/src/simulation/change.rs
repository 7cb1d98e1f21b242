//! What can be changed, and how it is written.

use candlescope_schema::{PathPattern, Side};
use regex::Regex;
use std::fmt;

/// The forms of changes, for messages and help.
pub const FORMS: &str = "graph, eager, kernel=REGEX×f, path=PATH×f (PATH@host or PATH@device: on one side), fuse=PATH, bits=16, 8 or 4, host×f, clock=f, batch=n; \
                         joined by + to have several at once; * stands for ×";

/// A change that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{token}` is not a change{why}. Changes are {FORMS}")]
pub struct ChangeError {
    /// The part that was not understood.
    pub token: String,
    why: String,
}

/// A change of a step. Several are simulated together, never added up.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Change {
    /// What the host launches between two waits is launched at once, as a CUDA graph.
    Graph,
    /// What graphs launch is launched call by call.
    Eager,
    /// Kernels whose name matches take `factor` of their time.
    Kernel {
        /// Found anywhere in the name.
        name: NamePattern,
        /// New time ÷ old time.
        factor: f64,
    },
    /// A path takes `factor` of its time, on the host and on the device, or on one side alone.
    Path {
        /// Matches the paths of the intervals.
        path: PathPattern,
        /// The side; `None` for both.
        side: Option<Side>,
        /// New time ÷ old time.
        factor: f64,
    },
    /// The kernels of each interval of a path become one.
    Fuse {
        /// Matches the paths of the intervals.
        path: PathPattern,
    },
    /// Weights take so many bits, and of fewer than 16 a half for scales.
    Bits {
        /// 16, 8 or 4.
        bits: u32,
    },
    /// The host takes `factor` of its time, in and between calls.
    Host {
        /// New time ÷ old time.
        factor: f64,
    },
    /// The device's clock is `factor` of what it was.
    Clock {
        /// New clock ÷ old clock.
        factor: f64,
    },
    /// A decode step is of so many sequences.
    Batch {
        /// New number of sequences of a step.
        sequences: u32,
    },
}

/// A regular expression for names of kernels.
#[derive(Debug, Clone)]
pub struct NamePattern(Regex);

impl NamePattern {
    /// Compiles it.
    ///
    /// # Errors
    /// If it is not a regular expression.
    pub fn new(pattern: &str) -> Result<Self, regex::Error> {
        Regex::new(pattern).map(Self)
    }

    pub(super) fn matches(&self, name: &str) -> bool {
        self.0.is_match(name)
    }
}

impl PartialEq for NamePattern {
    fn eq(&self, other: &Self) -> bool {
        self.0.as_str() == other.0.as_str()
    }
}

/// `graph`, `kernel=gemv×0.5`.
impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Graph => f.write_str("graph"),
            Self::Eager => f.write_str("eager"),
            Self::Kernel { name, factor } => write!(f, "kernel={}×{factor}", name.0.as_str()),
            Self::Path { path, side: None, factor } => write!(f, "path={path}×{factor}"),
            Self::Path { path, side: Some(side), factor } => write!(f, "path={path}@{side}×{factor}"),
            Self::Fuse { path } => write!(f, "fuse={path}"),
            Self::Bits { bits } => write!(f, "bits={bits}"),
            Self::Host { factor } => write!(f, "host×{factor}"),
            Self::Clock { factor } => write!(f, "clock={factor}"),
            Self::Batch { sequences } => write!(f, "batch={sequences}"),
        }
    }
}

/// Reads changes joined by `+` or `,`. A `+` or `,` inside a regular expression stays part of it: a `kernel=` ends at
/// the first `×` or `*` that a number and the end or a joint follow.
///
/// # Errors
/// If a part is not a change; the error names it.
pub fn parse_changes(text: &str) -> Result<Vec<Change>, ChangeError> {
    let mut changes = Vec::new();
    let mut rest = text;
    loop {
        let (change, after) = one(rest)?;
        changes.push(change);
        match after.strip_prefix(['+', ',']) {
            Some(next) => rest = next,
            None => return Ok(changes),
        }
    }
}

/// The first change of `text`, and what follows it: nothing, or a joint and more.
fn one(text: &str) -> Result<(Change, &str), ChangeError> {
    let trimmed = text.trim_start();
    let token_end = trimmed.find(['+', ',']).unwrap_or(trimmed.len());
    let (token, after) = (trimmed[..token_end].trim_end(), &trimmed[token_end..]);
    let wrong = |token: &str, why: &str| ChangeError { token: token.to_string(), why: why.to_string() };
    for head in ["kernel=", "path="] {
        let Some(body) = trimmed.strip_prefix(head) else { continue };
        let Some((subject, factor, after)) = scaled(body) else {
            return Err(wrong(token, ": it wants a factor of 0 or more at its end, such as ×0.5"));
        };
        let whole = &trimmed[..trimmed.len() - after.len()];
        if subject.is_empty() {
            return Err(wrong(whole, ": it names nothing"));
        }
        let change = if head == "kernel=" {
            let name = NamePattern::new(subject).map_err(|error| {
                wrong(whole, &format!(": {}", error.to_string().lines().last().unwrap_or("not a regular expression")))
            })?;
            Change::Kernel { name, factor }
        } else {
            let (subject, side) = match subject.rsplit_once('@') {
                Some((path, side)) => {
                    let side = Side::from_word(side).ok_or_else(|| wrong(whole, ": a side is host or device"))?;
                    (path, Some(side))
                }
                None => (subject, None),
            };
            let path = PathPattern::new(subject).ok_or_else(|| wrong(whole, ": an element of the path is empty"))?;
            Change::Path { path, side, factor }
        };
        return Ok((change, after));
    }
    if let Some(body) = trimmed.strip_prefix("host")
        && body.trim_start().starts_with(['×', '*'])
    {
        return match scaled(body) {
            Some(("", factor, after)) => Ok((Change::Host { factor }, after)),
            _ => Err(wrong(token, ": it wants a factor of 0 or more, such as host×0.5")),
        };
    }
    if let Some(path) = token.strip_prefix("fuse=") {
        let path = PathPattern::new(path).ok_or_else(|| wrong(token, ": an element of the path is empty"))?;
        return Ok((Change::Fuse { path }, after));
    }
    let change = match token.split_once('=') {
        None if token == "graph" => Change::Graph,
        None if token == "eager" => Change::Eager,
        Some(("bits", "16")) => Change::Bits { bits: 16 },
        Some(("bits", "8")) => Change::Bits { bits: 8 },
        Some(("bits", "4")) => Change::Bits { bits: 4 },
        Some(("bits", _)) => return Err(wrong(token, ": bits are 16, 8 or 4")),
        Some(("clock", text)) => match number(text).filter(|factor| *factor > 0.0) {
            Some(factor) => Change::Clock { factor },
            None => return Err(wrong(token, ": a clock is a factor above 0, such as clock=1.2")),
        },
        Some(("batch", text)) => match text.parse().ok().filter(|n| *n > 0) {
            Some(sequences) => Change::Batch { sequences },
            None => return Err(wrong(token, ": a batch is a whole number above 0")),
        },
        _ => return Err(wrong(token, "")),
    };
    Ok((change, after))
}

/// The largest factor.
const MOST: f64 = 1e6;

fn number(text: &str) -> Option<f64> {
    text.trim().parse::<f64>().ok().filter(|value| (0.0..=MOST).contains(value))
}

/// What comes before the first `×` or `*` that a number and then the end or a joint follow; that number; the rest.
fn scaled(text: &str) -> Option<(&str, f64, &str)> {
    text.char_indices().filter(|(_, c)| ['×', '*'].contains(c)).find_map(|(at, sign)| {
        let tail = &text[at + sign.len_utf8()..];
        // A number may have a sign of its own in its exponent, but that needs no `+`.
        let end = tail.find(['+', ',']).unwrap_or(tail.len());
        let factor = number(&tail[..end])?;
        Some((text[..at].trim(), factor, &tail[end..]))
    })
}
