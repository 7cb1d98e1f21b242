//! What a step would take if something were different: simulated from the step's own dependencies.
//!
//! ```text
//! run ─► chosen_steps (records of some) ─► read ─► build, waits (a model of each) ─► StepGroup
//! model ─► unrecorded (without the profiler) ─► apply: eager, rates, fusing, graphs ─► play (time)
//! ```
//!
//! Replayed unchanged, a step takes what was measured; where it does not, nothing is said about it. `docs/what-if.md`
//! has the rules and their limits. A decode step as a graph:
//!
//! ```no_run
//! use candlescope_predict::simulation::{Simulation, SimulationOptions, parse_changes};
//! use candlescope_reader::Run;
//! let simulation = Simulation::of(&Run::open("runs/kernels")?, &SimulationOptions::default())?;
//! for group in simulation.groups() {
//!     let outcome = group.simulate(&parse_changes("graph")?)?;
//!     println!("{}: {:.2} ms", group.name(), outcome.seconds.mid * 1e3);
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod abstain;
mod apply;
mod build;
mod calls;
mod change;
mod chosen_steps;
mod criticality;
mod eager;
mod fusing;
mod graphs;
mod group;
mod many_rows;
mod path_times;
mod play;
mod rates;
mod read;
mod recording;
mod replay;
mod selection;
mod step_model;
mod together;
mod unrecorded;
mod waits;
mod what_if;

pub use abstain::Abstain;
pub use change::{Change, ChangeError, FORMS, NamePattern, parse_changes};
pub use chosen_steps::ChosenSteps;
pub use group::{StepGroup, TypicalStep, UnrecordedSteps};
pub use path_times::PathTime;
pub use read::{Simulation, SimulationOptions};
pub use replay::{Outcome, Replay, TOLERANCE, UnobservedTime, simulate};
pub use step_model::{EagerLaunches, Facts, Recording, StepModel};
pub use what_if::{Refusal, Scenario, StepsWhatIf, WhatIf, what_if};
