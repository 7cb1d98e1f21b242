//! What changed over time in many runs: headline figures of each run of an archive or a folder ([`headlines`]), by
//! model, device, version or option, a value a day with its runs ([`summarise`]), and where a level changed, by the
//! method of the gate. A part of candlescope, which may change with every release.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod figure;
mod headline;
mod open_metrics;
mod page;
mod series;

pub use figure::{FIGURES, Figure};
pub use headline::{GroupBy, Headline, Headlines, UNKNOWN, headlines};
pub use open_metrics::{metrics, open_metrics};
pub use page::{document, document_of, text, text_of};
pub use series::{Change, DayPoint, Group, Summary, Trend, summarise};
