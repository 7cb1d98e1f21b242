//! Schedules as text, in the same form on the command line, in `CANDLESCOPE` and in files.

use crate::Schedule;
use std::str::FromStr;

/// Steps ahead of a window in which the recorder of kernels is switched on.
const GETS_READY: u64 = 8;

/// The text is not a schedule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "a schedule is `all`, N/EVERY such as 5/500, or skip_first/wait/warmup/active/repeat such as 10/0/1/5/1, not `{0}`"
)]
pub struct ScheduleError(String);

impl Schedule {
    /// Every step, from the first one on.
    pub const fn all() -> Self {
        Self { skip_first: 0, wait: 0, warmup: 0, active: u64::MAX, repeat: 1 }
    }

    /// The last `active` steps of every `every` steps.
    pub const fn some(active: u64, every: u64) -> Self {
        let idle = every.saturating_sub(active);
        let warmup = if idle < GETS_READY { idle } else { GETS_READY };
        Self { skip_first: 0, wait: idle - warmup, warmup, active, repeat: 0 }
    }
}

/// `all`, `N/EVERY`, or all five numbers.
///
/// ```
/// # use candlescope_schema as candlescope;
/// use candlescope::Schedule;
/// let schedule: Schedule = "5/500".parse()?;
/// assert_eq!((schedule.wait + schedule.warmup, schedule.active, schedule.repeat), (495, 5, 0));
/// assert_eq!("10/0/1/5/1".parse(), Ok(Schedule { skip_first: 10, wait: 0, warmup: 1, active: 5, repeat: 1 }));
/// assert!("5 of 500".parse::<Schedule>().unwrap_err().to_string().contains("N/EVERY"));
/// # Ok::<(), candlescope_schema::ScheduleError>(())
/// ```
impl FromStr for Schedule {
    type Err = ScheduleError;

    fn from_str(text: &str) -> Result<Self, ScheduleError> {
        let wrong = || ScheduleError(text.to_string());
        if text.trim() == "all" {
            return Ok(Self::all());
        }
        let numbers: Result<Vec<u64>, _> = text.split('/').map(|n| n.trim().parse()).collect();
        match numbers.map_err(|_| wrong())?[..] {
            [active, every] if 0 < active && active < every => Ok(Self::some(active, every)),
            [skip_first, wait, warmup, active, repeat] => Ok(Self { skip_first, wait, warmup, active, repeat }),
            _ => Err(wrong()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedules_are_read() {
        assert_eq!("all".parse(), Ok(Schedule::all()));
        assert_eq!(" 1 / 2 ".parse(), Ok(Schedule { skip_first: 0, wait: 0, warmup: 1, active: 1, repeat: 0 }));
        assert_eq!("5/500".parse(), Ok(Schedule { skip_first: 0, wait: 487, warmup: 8, active: 5, repeat: 0 }));
        for text in ["", "5", "0/5", "5/5", "6/5", "1/2/3", "1/2/3/4/5/6", "-1/5", "a/b", "1/2/3/4/five"] {
            let message = text.parse::<Schedule>().unwrap_err().to_string();
            assert!(message.ends_with(&format!("not `{text}`")), "{message}");
        }
    }
}
