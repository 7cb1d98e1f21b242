//! Two sides of runs compared: whether they may be, what was counted, what it took, and which paths changed. A part
//! of candlescope, which may change with every release.
//!
//! ```text
//! runs ── run_facts ── comparability (refuse, warn) ── counts (exact) ── estimate (times) ── path_changes ── outcome
//! ```
//!
//! Counts come before times: a kernel more in each step is a fact that needs no statistics. Times are held against what
//! the first side shows by itself on this machine, in pairs where runs were taken in turns. The outcome is one of
//! three, or *better*: see [`Outcome`].

#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod cases;
mod change_points;
mod comparability;
mod comparison;
mod counts;
mod days;
mod discoveries;
mod disturbed;
mod estimate;
pub mod figure;
mod fingerprint;
mod function_changes;
mod function_facts;
mod goodput;
mod kernel_times;
mod options;
mod outcome;
pub mod paired_median;
mod path_changes;
mod path_times;
mod programs;
mod requests_within;
mod run_facts;
mod sampled;
mod sequence;
mod step_times;
mod steps_of_requests;
mod student;
mod traffic;
mod windowed;
mod windows;
#[cfg(test)]
mod windows_tests;

pub use cases::{CaseComparison, CaseValues, CasesComparison, CasesSide, compare_cases};
pub use change_points::{ChangePoint, MOST_VALUES, change_points, level_changes, median, recent_change};
pub use comparability::named;
pub use comparability::{ALLOWABLE, Class, CompareError, Difference, comparable};
pub use comparison::{Comparison, FigureChange, Side, SideInfo, Stacks, compare, figure_change};
pub use counts::CountChange;
pub use days::{Day, Days, LEAST_DAYS, figures_of};
pub use discoveries::adjusted;
pub use estimate::{Basis, ChangeEstimate, Design, Doubt, Floor, FloorSource};
pub use fingerprint::{Facts, Fingerprint};
pub use function_changes::{FunctionChange, FunctionChanges};
pub use function_facts::{FunctionFacts, HostFacts};
pub use goodput::{GoodputChange, goodput_change};
pub use kernel_times::{KernelTime, kernel_times};
pub use options::CompareOptions;
pub use outcome::{DecidedBy, Outcome};
pub use path_changes::{Clock, PathChange, PathChanges};
pub use path_times::PathFacts;
pub use programs::{ClassTime, Program, ProgramSteps, Programs};
pub use run_facts::RunFacts;
pub use sampled::RunFigure;
pub use step_times::KindFacts;
pub use steps_of_requests::takes_other_steps;
pub use traffic::{OUTPUT_TOKENS, PROMPT_TOKENS, REQUESTS, TrafficChange};
pub use windowed::{Window, WindowedFigure};
pub use windows::{LEAST_VALUES, LayerChange, ServerWindows, WindowedChange, WindowsComparison, compare_windows};
