//! Load on any OpenAI-compatible server, and what its clients see: time to first token, gaps between tokens, tokens
//! and requests a second, requests that meet a service level. A part of candlescope, which may change with every
//! release.
//!
//! [`run`] sends streamed requests in stages. A stage has a fixed number of clients, each of which sends one request
//! after another (a closed loop), or requests that arrive at random times of a given rate whether the server keeps up
//! or not (an open loop). In a stage the load is the same from the first measured request to the end of the last one:
//! requests before them are warm-up, and further requests keep the load up until the last measured one has ended.
//! Neither are in any figure of latency.
//!
//! ```no_run
//! use candlescope_load::{Level, LoadOptions, NoWatch, Stop, run};
//! let options = LoadOptions::new("http://localhost:8080").levels([Level::Concurrency(4)]);
//! let results = run(&options, &Stop::new(), &NoWatch)?;
//! println!("{}", results.summary());
//! # Ok::<(), candlescope_load::LoadError>(())
//! ```
//!
//! The data flow: [`prompts`](PromptSource) → `body` → `exchange` (bytes with their times → `sse` → `chunk` →
//! `answer`) → [`RequestRecord`] → `figures` → [`LoadResults`] → files.

#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod address;
mod answer;
mod body;
mod budget;
mod chart;
mod chunk;
mod clock;
mod connect;
mod course;
mod drive;
mod error;
mod exchange;
mod failure;
mod figures;
mod level;
mod options;
mod pacer;
mod prepare;
mod prompts;
mod record;
mod requests_csv;
mod result_files;
mod results;
mod run;
mod server_metrics;
mod sse;
mod summary;
mod sweep;
mod trend;
mod watch;

pub use error::LoadError;
pub use failure::{Failure, FailureKind};
pub use figures::{BrokenPercentile, Figures, Goodput, Lateness, Spread};
pub use level::{Amount, Level, Plan};
pub use options::{Endpoint, LoadOptions};
pub use prompts::{DatasetError, PromptSource};
pub use record::{Part, RequestRecord, TokensBy};
pub use result_files::{REQUESTS_FILE, RESULTS_FILE};
pub use results::{End, LoadResults, SCHEMA_VERSION, Stage, Target};
pub use run::run;
pub use server_metrics::{ChangedSeries, ServerMetrics};
pub use trend::{Saturation, Trend};
pub use watch::{NoWatch, Progress, Stop, Watch};
