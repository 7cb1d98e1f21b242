//! `tracing-subscriber` alone, which is the base of every layer.

use super::Case;
use crate::work::{Mode, Spans};
use anyhow::Result;
use tracing_subscriber::Layer;
use tracing_subscriber::prelude::*;

/// The work under whatever subscriber is installed, with nothing to wait for.
pub(super) struct Plain(pub(super) Spans);

impl Case for Plain {
    fn burst(&self) {
        self.0.burst(|| ());
    }
}

pub(super) fn registry(mode: Mode) -> Result<Box<dyn Case>> {
    tracing_subscriber::registry().try_init()?;
    Ok(Box::new(Plain(Spans::new(mode))))
}

/// Every hook of a layer, all empty.
struct Empty;
impl<S: tracing::Subscriber> Layer<S> for Empty {}

pub(super) fn empty_layer(mode: Mode) -> Result<Box<dyn Case>> {
    tracing_subscriber::registry().with(Empty).try_init()?;
    Ok(Box::new(Plain(Spans::new(mode))))
}
