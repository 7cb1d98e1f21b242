//! Graphs where there is no CUDA: none.

use crate::slot_model::EagerCause;
use candle_core::{Device, Result};

/// A CUDA device that can be captured.
///
/// # Errors
/// Always: this build has no CUDA.
pub fn capturable_device(ordinal: usize) -> Result<Device> {
    Device::new_cuda_with_stream(ordinal)
}

/// No graphs.
#[derive(Debug)]
pub(super) struct Graphs;

/// A step that can be captured: slots, positions.
pub(super) type Shape = (usize, usize);

impl Graphs {
    pub(super) fn new(_device: &Device) -> std::result::Result<Self, EagerCause> {
        Err(EagerCause::NoDevice)
    }

    pub(super) fn run(
        &mut self,
        _shape: Shape,
        body: &mut dyn FnMut() -> Result<()>,
        _annotate: &dyn Fn(bool),
    ) -> Result<std::result::Result<(), EagerCause>> {
        body().map(|()| Err(EagerCause::NoDevice))
    }

    pub(super) fn took(&mut self) -> Option<(u64, u64)> {
        None
    }

    pub(super) fn failures(&self) -> &[String] {
        &[]
    }
}
