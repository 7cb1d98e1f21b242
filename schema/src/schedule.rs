//! Which steps are recorded, by their number.

/// Which steps are recorded, as in the PyTorch profiler. After `skip_first` steps come cycles of `wait` steps that are
/// not recorded, `warmup` steps that are not recorded either but run right before the recorded ones, and `active`
/// recorded steps. There are `repeat` cycles; 0 means no end.
///
/// ```
/// # mod candlescope { pub use candlescope_schema as sdk; pub use candlescope_schema::*; }
/// use candlescope::{Schedule, sdk::StepAction};
/// let schedule = Schedule { skip_first: 1, wait: 1, warmup: 1, active: 2, repeat: 1 };
/// let actions: Vec<_> = (0..7).map(|step| schedule.action(step)).collect();
/// use StepAction::*;
/// assert_eq!(actions, [Skip, Skip, Warmup, Record, Record, Skip, Skip]);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Schedule {
    /// Steps skipped once, at the start.
    pub skip_first: u64,
    /// Steps skipped at the start of each cycle.
    pub wait: u64,
    /// Steps after those that are not recorded either.
    pub warmup: u64,
    /// Steps recorded in each cycle.
    pub active: u64,
    /// Number of cycles; 0 repeats without end.
    pub repeat: u64,
}

/// What a schedule decides about one step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepAction {
    /// Not recorded: before the first cycle, while one waits, or after the last one.
    Skip,
    /// Not recorded; recorded steps come next.
    Warmup,
    /// Recorded, with its intervals.
    Record,
}

impl Schedule {
    /// What to do with step number `step`, counted from 0.
    pub fn action(&self, step: u64) -> StepAction {
        let Some(step) = step.checked_sub(self.skip_first) else {
            return StepAction::Skip;
        };
        let idle = self.wait.saturating_add(self.warmup);
        let cycle = idle.saturating_add(self.active);
        if cycle == 0 || (self.repeat > 0 && step / cycle >= self.repeat) {
            return StepAction::Skip;
        }
        match step % cycle {
            at if at < self.wait => StepAction::Skip,
            at if at < idle => StepAction::Warmup,
            _ => StepAction::Record,
        }
    }

    /// Whether the very first step is one of those that are chosen, so that whatever records them has to be on before it.
    #[doc(hidden)]
    pub fn begins_at_once(&self) -> bool {
        self.skip_first == 0 && self.wait == 0 && self.active > 0
    }
}
