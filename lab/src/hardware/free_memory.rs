//! How much memory can be allocated.

use candle_core::Device;

/// Bytes that can be allocated on `device`: what the system says is available, within the process's control group; on a
/// GPU what the driver has free. `None` where nobody tells.
pub fn free_memory(device: &Device) -> Option<u64> {
    match device {
        Device::Cpu => {
            let available = available(&std::fs::read_to_string("/proc/meminfo").ok()?)?;
            let group = |name: &str| {
                let text = std::fs::read_to_string(format!("/sys/fs/cgroup/{name}")).ok()?;
                text.trim().parse::<u64>().ok()
            };
            let left = group("memory.max").zip(group("memory.current")).map(|(most, now)| most.saturating_sub(now));
            Some(left.map_or(available, |left| left.min(available)))
        }
        #[cfg(feature = "cuda")]
        Device::Cuda(device) => device.cuda_stream().context().mem_get_info().ok().map(|(free, _)| free as u64),
        _ => None,
    }
}

/// `MemAvailable` in bytes.
fn available(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn available_memory_is_in_kibibytes() {
        assert_eq!(available("MemTotal:       10 kB\nMemAvailable:    7 kB\n"), Some(7 * 1024));
        assert_eq!(available("MemTotal:       10 kB\n"), None);
        assert!(free_memory(&Device::Cpu).is_none_or(|bytes| bytes > 1 << 20));
    }
}
