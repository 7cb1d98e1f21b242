//! Ready-made sets of cases for language models.
//!
//! | suite | repeats | for |
//! |---|---|---|
//! | `latency` | one prompt | time to first token, time per output token, their spread |
//! | `throughput` | one prompt length, more and more sequences at once, as batches or as requests that come and go | where batching stops paying |
//! | `seqlen` | prompt lengths × output lengths | what a longer prompt costs |
//!
//! [`cases`] makes them of [`LmOptions`]; the engine measures them; [`write_results`] makes a study's files, charts and
//! report of what was measured, and [`lines`] what a terminal shows.

mod answers;
mod bound;
mod continuous;
mod cost;
mod generate_error;
mod lm_case;
mod lm_options;
mod machine_memory;
mod metrics;
mod model_host;
mod recorded;
mod report_page;
mod spread;
mod suite_charts;
mod suite_results;
mod suite_tables;
mod terminal;

pub use crate::hardware::available_bytes;
pub use crate::range::{RangeError, parse_range};
pub use answers::{Answer, answers};
pub(crate) use bound::bound_sentences;
pub use cost::cost_lines;
pub(crate) use generate_error::case_error;
pub use lm_case::{cases, request_size};
pub use lm_options::{ContinuousOptions, Grid, LmOptions, Shape, SuiteName};
pub use machine_memory::predicted_weight_bytes;
pub(crate) use machine_memory::shown;
pub(crate) use machine_memory::shown as shown_bytes;
pub use metrics::baseline_metrics;
pub(crate) use metrics::figure;
pub use model_host::{HostError, ModelHost, Recorder};
pub(crate) use recorded::{RecordedCase, recorded};
pub use spread::caution;
pub use suite_results::{METRICS_FILE, write_results};
pub(crate) use suite_tables::throughput_table;
pub use terminal::lines;
pub(crate) use terminal::{ms, tokens, without};
