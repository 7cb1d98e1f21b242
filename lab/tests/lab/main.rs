//! The engine with scripted cases, and studies held to their columns.
#![allow(missing_docs, unreachable_pub, reason = "a test")]

mod answers;
mod bounds;
mod coverage;
mod engine;
mod scripted;
mod studies;
mod tune;
