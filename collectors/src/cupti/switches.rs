//! What can be turned on in CUPTI: which of it has to work, and how messages name it.

use super::backend::Switch;
use super::calls::{self, Domain};
use super::records::kind;

/// `cuLaunchKernel`, without which nothing is worth following.
const LAUNCH_KERNEL: u32 = 307;

/// Records of copies and of memsets, which [go together](calls::is_on_memory).
pub(super) fn is_on_memory(switch: &Switch) -> bool {
    matches!(switch, Switch::Kind(kind::MEMCPY | kind::MEMCPY2 | kind::MEMSET))
}

pub(super) fn needed(switch: Switch) -> bool {
    match switch {
        Switch::Kind(kind) => kind != kind::MEMCPY2,
        Switch::Callback(domain, cbid) => (domain, cbid) == (Domain::Driver, LAUNCH_KERNEL),
        Switch::Resource(_) => false,
    }
}

pub(super) fn meaning(switch: Switch) -> String {
    match switch {
        Switch::Kind(kind::CONCURRENT_KERNEL) => "record kernels".to_string(),
        Switch::Kind(kind::MEMCPY | kind::MEMCPY2) => "record copies".to_string(),
        Switch::Kind(kind::MEMSET) => "record memsets".to_string(),
        Switch::Kind(_) => "record this kind of work".to_string(),
        Switch::Callback(domain, cbid) => format!("follow {}", calls::name(domain, cbid).unwrap_or("a call")),
        Switch::Resource(_) => "tell nodes of graphs".to_string(),
    }
}
