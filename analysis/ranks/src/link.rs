//! What links between GPUs carry, by datasheet.

/// Bytes a second in one direction between GPUs of a name, over NVLink [NVIDIA datasheets: half of what they state for both
/// directions]: A100 600 GB/s, H100 SXM and H200 900 GB/s, B200 1.8 TB/s.
pub(crate) fn nvlink(name: &str) -> Option<f64> {
    // Whole names: cards in slots, and those beside another processor, are called alike and have other links.
    let known = [
        ("NVIDIA A100-SXM4-40GB", 300e9),
        ("NVIDIA A100-SXM4-80GB", 300e9),
        ("NVIDIA H100 80GB HBM3", 450e9),
        ("NVIDIA H200", 450e9),
        ("NVIDIA B200", 900e9),
    ];
    known.into_iter().find(|(known, _)| *known == name).map(|(_, rate)| rate)
}

#[cfg(test)]
mod tests {
    use super::nvlink;

    #[test]
    fn cards_in_slots_have_other_links() {
        assert_eq!(nvlink("NVIDIA GH200 480GB"), None);
        assert_eq!(nvlink("NVIDIA H200"), Some(450e9));
        assert_eq!(nvlink("NVIDIA H100 80GB HBM3"), Some(450e9));
        assert_eq!((nvlink("NVIDIA H100 PCIe"), nvlink("NVIDIA H200 NVL"), nvlink("NVIDIA L4")), (None, None, None));
    }
}
