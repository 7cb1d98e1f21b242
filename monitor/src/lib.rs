//! GPU and process beside a run: what they do now, from another process. A part of candlescope, which may change with
//! every release.
//!
//! ```text
//! sampler (NVML, /proc, endpoints) ─ Reading ─► Monitor (state, pure) ─► screen | lines | rows ─► summary
//! ```
//!
//! [`Sampler`] looks, once a period; [`Monitor`] is what all looks together tell: current figures, their course, idle
//! periods, what has ended. [`draw`], [`line()`], [`snapshot`], [`rows`] and [`summary`] show it and read nothing else.
//! Programs that serve metrics are found by the files that they write where they start to
//! ([`announced`](candlescope_exporters::prometheus::announced)), and so are processes that measure, which serve none
//! ([`at_work`](candlescope_exporters::prometheus::at_work())).
//!
//! [`read_windows`] reads what a Prometheus has kept of a server instead: figures in windows of time, to hold one against
//! those before.

#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod children;
mod endpoint;
mod error;
mod figures;
mod gpu;
mod idle;
mod metric_names;
mod options;
mod phrases;
mod picture;
mod plain;
mod program;
mod reading;
mod rows;
mod sampler;
mod screen;
mod state;
mod trail;
mod windows;

pub use children::parent_process;
pub use error::MonitorError;
pub use figures::{GpuFigures, MachineFigures, ProcessFigures};
pub use idle::{Idle, IdleRule};
pub use options::MonitorOptions;
pub use picture::picture;
pub use plain::{line, snapshot, summary};
pub use program::{Activity, Counters, ProgramFigures};
pub use reading::{Answer, GpuReading, ProcessReading, ProgramReading, Reading, Work};
pub use rows::{Rows, rows};
pub use sampler::Sampler;
pub use screen::draw;
pub use state::{GpuTrack, Monitor, ProcessTrack, ProgramTrack};
pub use windows::{
    EarlierWindows, FigureWindows, Plan, PrometheusError, ServerReading, Span, SpanValues, WindowOptions, read_windows,
};
