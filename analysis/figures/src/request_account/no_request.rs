//! What is said where a run has no such request.

use candlescope_schema::RequestRecord;
use std::collections::BTreeSet;

/// The run has no such request.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NoRequest {
    /// It has requests, but none of this number; those that an experiment made slower do not count.
    #[error("the run has no request {asked}; it has {known}")]
    Unknown {
        /// The number that was asked for.
        asked: u64,
        /// Those that it has.
        known: String,
    },
    /// It has none.
    #[error(
        "the run has no requests: mark them in the program (`llm::Request`), or profile it with `candlescope profile`"
    )]
    None,
}

/// Says which there are; numbers in a row are written as one.
pub(super) fn unknown(asked: u64, requests: &[RequestRecord]) -> NoRequest {
    /// Rows of numbers that are named.
    const MOST: usize = 8;
    let mut rows: Vec<(u64, u64)> = Vec::new();
    for request in requests.iter().map(|one| one.request).collect::<BTreeSet<u64>>() {
        match rows.last_mut() {
            Some(row) if row.1.checked_add(1) == Some(request) => row.1 = request,
            _ => rows.push((request, request)),
        }
    }
    if rows.is_empty() {
        return NoRequest::None;
    }
    let named = rows.iter().take(MOST).map(|(first, last)| match first == last {
        true => first.to_string(),
        false => format!("{first} to {last}"),
    });
    let more = if rows.len() > MOST { ", …" } else { "" };
    NoRequest::Unknown { asked, known: format!("{}{more}", named.collect::<Vec<_>>().join(", ")) }
}
