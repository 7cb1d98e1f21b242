//! What links between GPUs carry, by datasheet.

/// Bytes a second in one direction between GPUs of a name, over NVLink [NVIDIA datasheets: half of what they state for both
/// directions]: A100 600 GB/s, H100 SXM and H200 900 GB/s, B200 1.8 TB/s.
pub(crate) fn nvlink(name: &str) -> Option<f64> {
    let known = [("A100-SXM", 300e9), ("H100 80GB HBM3", 450e9), ("H100 SXM", 450e9), ("H200", 450e9), ("B200", 900e9)];
    // Cards in slots have the same names, and other links.
    let in_a_slot = name.contains("PCIe") || name.contains("NVL");
    known.into_iter().find(|(part, _)| name.contains(part) && !in_a_slot).map(|(_, rate)| rate)
}

#[cfg(test)]
mod tests {
    use super::nvlink;

    #[test]
    fn cards_in_slots_have_other_links() {
        assert_eq!(nvlink("NVIDIA H200"), Some(450e9));
        assert_eq!(nvlink("NVIDIA H100 80GB HBM3"), Some(450e9));
        assert_eq!((nvlink("NVIDIA H100 PCIe"), nvlink("NVIDIA H200 NVL"), nvlink("NVIDIA L4")), (None, None, None));
    }
}
