//! What steps would take: against steps whose right answer is known by construction.

mod changes;
mod refusals;
mod replays;
mod steps;
