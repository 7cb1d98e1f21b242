//! How much load: the levels of the stages, and how long each of them lasts.

use serde::Serialize;
use std::fmt;
use std::time::Duration;

/// The load of a stage.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "kind", content = "value")]
pub enum Level {
    /// This many clients, each of which sends its next request when it has the answer to the last one.
    Concurrency(u32),
    /// This many requests a second, at random times (Poisson), however long the answers take.
    Rate(f64),
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Concurrency(1) => f.write_str("1 client"),
            Self::Concurrency(clients) => write!(f, "{clients} clients"),
            Self::Rate(rate) => write!(f, "{} requests/s", short(*rate)),
        }
    }
}

/// At most three decimals, and none that are zero.
fn short(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_string()
}

/// Which stages there are.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Plan {
    /// These, in this order.
    Levels(Vec<Level>),
    /// One client; then rates that double until the server is saturated; then rates between the highest that it
    /// carried and the lowest that it did not.
    Sweep,
}

/// How long something lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Amount {
    /// A number of requests.
    Requests(u64),
    /// A length of time: requests that begin in it belong to it, however long they take.
    #[serde(serialize_with = "seconds")]
    Seconds(Duration),
}

pub(crate) fn seconds<S: serde::Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_f64(time.as_secs_f64())
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Requests(1) => f.write_str("1 request"),
            Self::Requests(n) => write!(f, "{n} requests"),
            Self::Seconds(time) => write!(f, "{} s", short(time.as_secs_f64())),
        }
    }
}
