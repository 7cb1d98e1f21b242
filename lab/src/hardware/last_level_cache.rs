//! How large the largest cache of a device is.

use candle_core::Device;
use std::path::Path;

/// What is taken for its size where nobody tells.
pub(crate) const UNKNOWN_CACHE: u64 = 64 << 20;

/// Bytes of the last cache before memory: of the CPU's as sysfs has it, of a GPU's L2 as the driver has it. `None` where
/// neither tells.
pub fn last_level_cache(device: &Device) -> Option<u64> {
    match device {
        Device::Cpu => of_cpu(Path::new("/sys/devices/system/cpu/cpu0/cache")),
        #[cfg(feature = "cuda")]
        Device::Cuda(device) => {
            use candle_core::cuda_backend::cudarc::driver::sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE;
            let stream = device.cuda_stream();
            u64::try_from(stream.context().attribute(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE).ok()?).ok()
        }
        _ => None,
    }
}

/// The size of the cache with the highest level.
fn of_cpu(caches: &Path) -> Option<u64> {
    let read = |path: &Path, name: &str| Some(std::fs::read_to_string(path.join(name)).ok()?.trim().to_string());
    let entries = std::fs::read_dir(caches).ok()?.flatten().map(|entry| entry.path());
    let sizes =
        entries.filter_map(|path| Some((read(&path, "level")?.parse::<u32>().ok()?, bytes(&read(&path, "size")?)?)));
    sizes.max().map(|(_, bytes)| bytes)
}

/// `32768K` or `2M`.
fn bytes(text: &str) -> Option<u64> {
    let (digits, unit) = match text.strip_suffix(['K', 'M', 'G']) {
        Some(digits) => (digits, text.chars().last()),
        None => (text, None),
    };
    let unit = match unit {
        Some('K') => 1 << 10,
        Some('M') => 1 << 20,
        Some('G') => 1 << 30,
        _ => 1,
    };
    digits.parse::<u64>().ok()?.checked_mul(unit).filter(|bytes| *bytes > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_level_counts() {
        let dir = tempfile::tempdir().unwrap();
        for (index, level, size) in [("index0", "1", "32K"), ("index1", "3", "2M"), ("index2", "2", "1024K")] {
            std::fs::create_dir(dir.path().join(index)).unwrap();
            std::fs::write(dir.path().join(index).join("level"), format!("{level}\n")).unwrap();
            std::fs::write(dir.path().join(index).join("size"), format!("{size}\n")).unwrap();
        }
        std::fs::create_dir(dir.path().join("power")).unwrap();
        assert_eq!(of_cpu(dir.path()), Some(2 << 20));
        assert_eq!(of_cpu(&dir.path().join("none")), None);
        assert_eq!((bytes("0K"), bytes("x"), bytes("17")), (None, None, Some(17)));
    }
}
