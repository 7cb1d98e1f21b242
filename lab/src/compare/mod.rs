//! What a comparison needs besides the figures of runs: which directories hold what, studies as cases, two programs run
//! in turns, and baselines with their history.
//!
//! The comparison itself is in [`candlescope_compare`].

mod baseline;
mod command;
mod error;
mod gate;
mod history;
mod pairs;
mod studies;
mod target;

pub use baseline::{BASELINE_FILE, Baseline};
pub use command::{run_within, started_as};
pub use error::CompareFailed;
pub use gate::{GateResult, Shift, gate, save};
pub use history::{HISTORY_FILE, HistoryEntry};
pub use pairs::{PairOptions, PairsEnded, PairsResult, TakenRun, take_pairs, take_run};
pub use studies::cases_of;
pub use target::{Target, read_runs};
