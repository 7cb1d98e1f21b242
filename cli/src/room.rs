//! Room for records in runs that our own commands make.
//!
//! A program that serves keeps the session's defaults, which are sparing. A command that generates has the machine for
//! itself, and a run that lost intervals has to be made again: it asks for more from the start.

/// Records of a thread's ring: 16 MiB. On a busy machine the thread that empties it waits for some 100 ms at times, in
/// which a small model makes 100,000 records. Rings of all threads together are bounded by the session's `ring_memory`,
/// 256 MiB unless told otherwise: later threads get smaller ones.
pub(crate) const RING: usize = 262_144;
/// Records that may wait for an exporter where there is memory for them.
const QUEUE: u64 = 2_000_000;
/// As many as the session's own default, on the smallest machine.
const QUEUE_LEAST: u64 = 262_144;
/// Bytes of a waiting record with its texts, roughly.
const RECORD_BYTES: u64 = 256;
/// Of the memory that is left when recording begins, a waiting queue takes at most one part in this many.
const PARTS: u64 = 8;

/// Records that may wait for an exporter on this machine.
pub(crate) fn queue() -> u64 {
    of_memory(available())
}

/// Records that may wait on a machine with this many bytes left.
fn of_memory(available: Option<u64>) -> u64 {
    available.map_or(QUEUE_LEAST, |bytes| (bytes / PARTS / RECORD_BYTES).clamp(QUEUE_LEAST, QUEUE))
}

#[cfg(feature = "lab")]
fn available() -> Option<u64> {
    candlescope_lab::hardware::available_bytes()
}

/// Without the lab nobody asks.
#[cfg(not(feature = "lab"))]
fn available() -> Option<u64> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_machine_keeps_its_memory() {
        assert_eq!(of_memory(None), QUEUE_LEAST);
        assert_eq!(of_memory(Some(64 << 30)), QUEUE);
        assert_eq!(of_memory(Some(1 << 30)), (1 << 30) / 8 / 256);
        assert_eq!(of_memory(Some(100 << 20)), QUEUE_LEAST);
    }
}
