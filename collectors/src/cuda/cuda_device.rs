//! A device and a driver, as CUDA describes them.

/// The version of CUDA that the driver supports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub struct DriverVersion {
    /// Major number: 13 of 13.0.
    pub major: u32,
    /// Minor number: 0 of 13.0.
    pub minor: u32,
}

impl std::fmt::Display for DriverVersion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// One device, as CUDA sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct CudaDevice {
    /// CUDA's number of the device. NVML numbers devices differently: match them by [`uuid`](CudaDevice::uuid).
    pub ordinal: usize,
    /// `GPU-…`, as NVML writes it. For a MIG slice of a GPU, the whole GPU's.
    pub uuid: String,
    /// The maker's name of it, such as `NVIDIA H200`.
    pub name: String,
    /// PCI address with its domain, such as `0000:1b:00.0`.
    pub pci: String,
    /// Compute capability: (9, 0) for Hopper.
    pub compute_capability: (u32, u32),
    /// Memory of the device in bytes, in use or not.
    pub memory_bytes: u64,
}

/// A device's sixteen bytes as NVML writes them.
pub(super) fn uuid_text(bytes: [u8; 16]) -> String {
    let hex = |range: &[u8]| range.iter().map(|b| format!("{b:02x}")).collect::<String>();
    let groups = [&bytes[..4], &bytes[4..6], &bytes[6..8], &bytes[8..10], &bytes[10..]];
    format!("GPU-{}", groups.map(hex).join("-"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uuids_are_written_as_nvml_writes_them() {
        let bytes = std::array::from_fn(|i| (i * 16 + i) as u8);
        assert_eq!(uuid_text(bytes), "GPU-00112233-4455-6677-8899-aabbccddeeff");
    }
}
