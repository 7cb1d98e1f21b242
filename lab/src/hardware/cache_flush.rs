//! Empties a device's caches, by writing more than fits into them.

use super::last_level_cache::{UNKNOWN_CACHE, last_level_cache};
use candle_core::{DType, Device, Result, Tensor};
use std::thread;

/// More than this is not written on a CPU: it would take longer than what is measured.
const MOST_BYTES: u64 = 1 << 30;
/// What PyTorch's and Triton's benchmarks write on a GPU between two repetitions.
const GPU_BYTES: u64 = 256 << 20;

/// A buffer of at least twice the size of the last-level cache.
#[derive(Debug)]
pub struct CacheFlush {
    buffer: Buffer,
    bytes: u64,
    round: u8,
}

#[derive(Debug)]
enum Buffer {
    Host(Vec<u8>),
    Device(Tensor),
}

impl CacheFlush {
    /// A buffer for `device`.
    ///
    /// # Errors
    /// It cannot be allocated.
    pub fn new(device: &Device) -> Result<Self> {
        let cache = last_level_cache(device).unwrap_or(UNKNOWN_CACHE);
        if device.is_cpu() {
            let bytes = (2 * cache).min(MOST_BYTES);
            return Ok(Self { buffer: Buffer::Host(vec![1; bytes as usize]), bytes, round: 1 });
        }
        let bytes = (2 * cache).max(GPU_BYTES);
        let buffer = Tensor::zeros(bytes as usize / 4, DType::F32, device)?;
        Ok(Self { buffer: Buffer::Device(buffer), bytes, round: 1 })
    }

    /// Bytes that are written.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Writes the buffer. On a CPU all cores do, as each has caches of its own; on a GPU the write has only been
    /// launched when this returns.
    ///
    /// # Errors
    /// The device's.
    pub fn flush(&mut self) -> Result<()> {
        self.round = self.round.wrapping_add(1);
        match &mut self.buffer {
            Buffer::Device(tensor) => tensor.one_set(),
            Buffer::Host(buffer) => {
                let threads = thread::available_parallelism().map_or(1, |n| n.get());
                let part = buffer.len().div_ceil(threads).max(1);
                let round = self.round;
                thread::scope(|scope| {
                    for part in buffer.chunks_mut(part) {
                        scope.spawn(move || part.fill(round));
                    }
                });
                // The writes are seen by somebody, so they are made.
                std::hint::black_box(&buffer);
                Ok(())
            }
        }
    }
}
