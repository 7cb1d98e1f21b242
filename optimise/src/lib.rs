//! From a finding to a measured gain: [`optimise`] records a program, looks at its findings, and tries each remedy that
//! an option or a variable of the program is. What it promises is predicted before, from the finding or by replaying the
//! step; then the program runs in turns with and without it; it is kept or not, and the next run shows what is left.
//! A part of candlescope, which may change with every release.
//!
//! ```text
//! run ─► findings ─► remedies (one file each) ─► promise ─► trial in turns ─► kept or not ─► run …
//!                                                   └──────────► ledger ◄───────┘
//! ```
//!
//! Promises and results are remembered in the user's [ledger](candlescope_findings::ledger), from which findings say how
//! often their kind came true on this device.

#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod account;
mod chart;
mod combination;
mod error;
mod facts;
mod foretold;
mod goal;
mod goodput;
mod journey;
mod ledger;
mod lookup_facts;
mod options;
mod out_of_memory;
mod percentiles;
mod program;
mod promise;
mod quality;
mod quantised_prompts;
mod remedies;
mod request_gain;
mod search;
mod second_look;
mod setting;
mod starts;
mod summary;
mod time_shares;
mod trial;
mod words;
mod write;

pub use account::{
    Account, BeforeAfter, ByHand, Difference, DifferenceScope, Interaction, MeasuredGain, OptimiseEnd, Phase, Promise,
    QualityMeasured, Verdict,
};
pub use chart::waterfall;
pub use error::OptimiseError;
pub use goal::{Aim, Goal};
pub use journey::{Station, journey, write_journey};
pub use options::OptimiseOptions;
pub use program::Program;
pub use remedies::Answers;
pub use search::{Course, optimise};
pub use setting::{Change, Setting};
pub use summary::markdown;
pub use words::gain;
pub use write::{CHART, SUMMARY, read, read_account};
