//! Processes of one program, a rank each: their runs read as one. A part of candlescope, which may change with every
//! release.
//!
//! Each process writes by itself; threads of one process that compute on a device each can be ranks as well
//! ([`Ranks::of_threads`]). Here they are found ([`Ranks::open`]), their clocks are held together, and what they do
//! with each other is told ([`analyse`]): which rank the others wait for, how much of the time in collectives is
//! waiting and how much is transfer, what is not hidden behind computing, and what the link carries.
//! `candlescope_report` words and shows it.

#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod analysis;
mod clocks;
mod collective;
mod facts;
mod link;
mod open;
mod rank;
mod ranks_error;
mod ranks_of_run;
mod reading;
mod rules;

pub use analysis::analyse;
pub use clocks::{AlignedBy, Clocks};
pub use collective::CollectiveKind;
pub use facts::{CollectiveSum, RankAnalysis, RankFacts};
pub use open::Ranks;
pub use rank::Rank;
pub use ranks_error::RanksError;
pub use ranks_of_run::RanksOfRun;
pub use reading::Source;
