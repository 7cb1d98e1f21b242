use crate::advice::sentence::{Sentence, shown};

pub(super) fn words(it: &Sentence<'_>) -> (String, String) {
    let Sentence { kernel, .. } = it;
    (
        format!(
            "`{kernel}` of 8 MiB and more reaches {} on the bus (measured); the link carries {} in one direction (datasheet)",
            shown(it.value("bus_bandwidth"), "B/s"),
            shown(it.value("link_bandwidth"), "B/s")
        ),
        "Look at NCCL_DEBUG=INFO for the transport that was chosen, and at `nvidia-smi topo -m`".to_string(),
    )
}

pub(super) fn plain(it: &Sentence<'_>) -> (String, String) {
    (
        "Have somebody look at how the devices are connected".to_string(),
        format!(
            "they send each other data at {}, and their link carries {}",
            shown(it.value("bus_bandwidth"), "B/s"),
            shown(it.value("link_bandwidth"), "B/s")
        ),
    )
}
