//! The C library's heap.
#![allow(unsafe_code, reason = "the C library's heap is asked through its own function")]

/// Gives memory that the program has freed back to the system, where the C library can: else it counts as resident, and
/// what an earlier case needed would count as a later one's.
pub fn give_back_freed() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: it takes no pointer, locks what it changes, and may be called from any thread at any time.
    unsafe {
        libc::malloc_trim(0);
    }
}

#[cfg(all(test, target_os = "linux", target_env = "gnu"))]
mod tests {
    use super::*;

    fn resident_mib() -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().strip_suffix("kB").unwrap().trim().parse::<u64>().unwrap() / 1024
    }

    /// Other tests of this process allocate meanwhile, hence several tries.
    #[test]
    fn freed_memory_is_no_longer_resident() {
        let gave_back = (0..5).any(|_| {
            // Too small to be mapped one by one, and the last one keeps the heap from shrinking by itself.
            let mut blocks: Vec<Vec<u8>> = (0..4_000).map(|n| vec![n as u8; 32 << 10]).collect();
            let last = blocks.pop();
            drop(blocks);
            let before = resident_mib();
            give_back_freed();
            let after = resident_mib();
            assert_eq!(last.map(|block| block.len()), Some(32 << 10));
            before >= after + 100
        });
        assert!(gave_back);
    }
}
