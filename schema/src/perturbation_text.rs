//! What is made slower in an experiment, and by how much, as users write it.

use crate::PathPattern;
use crate::vocabulary::Side;
use std::fmt;
use std::str::FromStr;

/// By how much an interval is made slower.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum Delay {
    /// By a share of its own time: 0.05 for five hundredths.
    Share(f64),
    /// By so many nanoseconds.
    Fixed(u64),
}

/// Intervals that are made slower, and by how much. Written `path=PATH:+5%`, `path=PATH:+20us`; `PATH@host` or
/// `PATH@device` for one side alone.
///
/// ```
/// use candlescope_schema::{Delay, Perturbation, Side};
/// let mlp: Perturbation = "path=*/mlp@device:+20us".parse()?;
/// assert_eq!((mlp.side, mlp.delay, mlp.to_string()), (Some(Side::Device), Delay::Fixed(20_000), "path=*/mlp@device:+20us".into()));
/// assert!("path=mlp".parse::<Perturbation>().is_err());
/// # Ok::<(), candlescope_schema::PerturbationError>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Perturbation {
    /// Intervals that are made slower, by the end of their path or by their module.
    #[doc(hidden)]
    pub path: PathPattern,
    /// The side, or `None` for each that the intervals use, one after the other.
    #[doc(hidden)]
    pub side: Option<Side>,
    /// What is added to each of them: a share of its own time on that side, or a fixed time.
    #[doc(hidden)]
    pub delay: Delay,
}

/// A text that is no [`Perturbation`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}`: {why}. What is made slower is written path=PATH:+5% or path=PATH:+20us, with @host or @device behind PATH \
         for one side alone"
)]
pub struct PerturbationError {
    text: String,
    why: &'static str,
}

/// The largest share, and the longest time of one interval in nanoseconds.
const MOST_SHARE: f64 = 10.0;
const MOST_NS: f64 = 1e9;

impl Delay {
    /// What is added to an interval that takes `own_ns`, nanoseconds.
    pub fn of(self, own_ns: f64) -> f64 {
        match self {
            Self::Share(share) => own_ns * share,
            Self::Fixed(ns) => ns as f64,
        }
    }
}

/// How a target begins.
const PATH: &str = "path=";

impl Perturbation {
    /// What is made slower, without the side and the amount: `path=mlp`, as the table `perturbations` has it.
    #[doc(hidden)]
    pub fn target(&self) -> String {
        format!("{PATH}{}", self.path)
    }

    /// The path of a [target](Self::target).
    #[doc(hidden)]
    pub fn path_of(target: &str) -> &str {
        target.strip_prefix(PATH).unwrap_or(target)
    }
}

impl FromStr for Perturbation {
    type Err = PerturbationError;

    fn from_str(text: &str) -> Result<Self, PerturbationError> {
        let wrong = |why| PerturbationError { text: text.to_string(), why };
        let body = text.trim().strip_prefix(PATH).ok_or_else(|| wrong("it names no path"))?;
        let (path, delay) = body.rsplit_once(":+").ok_or_else(|| wrong("it does not say by how much"))?;
        let (path, side) = match path.rsplit_once('@') {
            Some((path, side)) => (path, Some(Side::from_word(side).ok_or_else(|| wrong("a side is host or device"))?)),
            None => (path, None),
        };
        let path = PathPattern::new(path).ok_or_else(|| wrong("an element of the path is empty"))?;
        if path.has_ordinals() {
            return Err(wrong(
                "while a program runs, intervals of one name are not told apart by ordinals; name their module, such as \
                 model.layers.3.mlp",
            ));
        }
        let delay = read_delay(delay).ok_or_else(|| wrong("how much slower is above 0, and at most 1000% or 1s"))?;
        Ok(Self { path, side, delay })
    }
}

/// Units of time, the longer names first.
const UNITS: [(&str, f64); 5] = [("ns", 1.0), ("us", 1e3), ("µs", 1e3), ("ms", 1e6), ("s", 1e9)];

fn read_delay(text: &str) -> Option<Delay> {
    let number = |text: &str| text.trim().parse::<f64>().ok().filter(|value| *value > 0.0);
    if let Some(percent) = text.strip_suffix('%') {
        return number(percent).map(|percent| percent / 100.0).filter(|share| *share <= MOST_SHARE).map(Delay::Share);
    }
    let ns = UNITS.iter().find_map(|(unit, ns)| Some(number(text.strip_suffix(unit)?)? * ns))?;
    (1.0..=MOST_NS).contains(&ns).then_some(Delay::Fixed(ns as u64))
}

impl fmt::Display for Delay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Share(share) => write!(f, "+{}%", (share * 1e8).round() / 1e6),
            Self::Fixed(ns) if ns % 1_000 == 0 => write!(f, "+{}us", ns / 1_000),
            Self::Fixed(ns) => write!(f, "+{ns}ns"),
        }
    }
}

impl fmt::Display for Perturbation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.target())?;
        if let Some(side) = self.side {
            write!(f, "@{side}")?;
        }
        write!(f, ":{}", self.delay)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<String, String> {
        text.parse::<Perturbation>().map(|p| p.to_string()).map_err(|error| error.why.to_string())
    }

    #[test]
    fn what_is_written_is_what_was_meant() {
        for same in
            ["path=mlp:+5%", "path=*/block/mlp@host:+0.25%", "path=model.layers.*.mlp@device:+20us", "path=a:+7ns"]
        {
            assert_eq!(parsed(same).as_deref(), Ok(same));
        }
        assert_eq!(parsed("path=a:+1.5ms").as_deref(), Ok("path=a:+1500us"));
        assert_eq!(parsed("path=a:+1s").as_deref(), Ok("path=a:+1000000us"));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let why = |text: &str| parsed(text).expect_err(text);
        assert!(why("mlp:+5%").contains("names no path"));
        assert!(why("path=mlp").contains("by how much") && why("path=mlp:5%").contains("by how much"));
        assert!(why("path=a//b:+5%").contains("empty") && why("path=:+5%").contains("empty"));
        assert!(why("path=mlp@gpu:+5%").contains("host or device"));
        assert!(why("path=block[3]/mlp:+5%").contains("module"));
        for amount in ["0%", "-5%", "2000%", "5", "0ns", "0.5ns", "2s", "x%", "nan%", "inf%", ""] {
            assert!(why(&format!("path=a:+{amount}")).contains("how much slower"), "{amount}");
        }
    }
}
