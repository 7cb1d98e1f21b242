//! What threads share, under one name: `tests/models` puts the types of a model checker here.

pub(crate) use std::sync::atomic;
pub(crate) use std::sync::{Mutex, MutexGuard, PoisonError};
