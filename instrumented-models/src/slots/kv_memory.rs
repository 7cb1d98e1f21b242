//! How much of the memory for keys and values is used: of all slots in the process together.

use candlescope_core::metric;
use candlescope_core::{CollectError, Collector, Samples};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// What all decoders have, and what of it holds tokens. Sequences may lie in slots whose decoder another thread has.
static ALLOCATED: AtomicU64 = AtomicU64::new(0);
static USED: AtomicU64 = AtomicU64::new(0);

/// A decoder's part of it.
#[derive(Debug)]
pub(super) struct KvMemory {
    bytes_per_token: u64,
    allocated: u64,
    used: u64,
}

impl KvMemory {
    pub(super) fn new(bytes_per_token: u64, tokens: usize) -> Self {
        let allocated = bytes_per_token * tokens as u64;
        ALLOCATED.fetch_add(allocated, Ordering::Relaxed);
        Self { bytes_per_token, allocated, used: 0 }
    }

    /// Bytes that are allocated.
    pub(super) const fn allocated(&self) -> u64 {
        self.allocated
    }

    /// So many tokens are held now.
    pub(super) fn holds(&mut self, tokens: usize) {
        let used = self.bytes_per_token * tokens as u64;
        // First what comes: nobody reads less than nothing.
        USED.fetch_add(used, Ordering::Relaxed);
        USED.fetch_sub(self.used, Ordering::Relaxed);
        self.used = used;
    }
}

impl Drop for KvMemory {
    fn drop(&mut self) {
        ALLOCATED.fetch_sub(self.allocated, Ordering::Relaxed);
        USED.fetch_sub(self.used, Ordering::Relaxed);
    }
}

/// Samples how much memory slots have for keys and values, and how much of it holds tokens of a sequence, or of one that has ended and
/// whose beginning another may share: of all decoders of the process together, ten times a second. Nothing while there are none.
#[derive(Debug)]
pub struct KvCollector(Arc<str>);

impl Default for KvCollector {
    fn default() -> Self {
        Self(metric::HOST.into())
    }
}

impl Collector for KvCollector {
    fn name(&self) -> &'static str {
        "kv_cache"
    }

    fn period(&self) -> Duration {
        Duration::from_millis(100)
    }

    fn sample(&mut self, out: &mut Samples<'_>) -> Result<(), CollectError> {
        let [allocated, used] = [&ALLOCATED, &USED].map(|bytes| bytes.load(Ordering::Relaxed));
        if allocated > 0 {
            out.push(&self.0, metric::KV_ALLOCATED, allocated as f64, "bytes");
            out.push(&self.0, metric::KV_USED, used as f64, "bytes");
        }
        Ok(())
    }
}
