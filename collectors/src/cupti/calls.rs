//! The calls that put work on a device: launches of kernels and graphs, copies and memsets.
//!
//! Only these are followed. An application makes several other calls for each launch (allocations, events, queries),
//! and every call that is followed costs time on the application's thread.

/// Which of the two interfaces a call belongs to. The numbers are CUPTI's (`CUpti_CallbackDomain`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u32)]
pub(super) enum Domain {
    /// `libcuda`: what candle itself launches with.
    Driver = 1,
    /// `libcudart`: what cuBLAS and cuDNN launch with. CUPTI gives such a launch one id, that of the runtime call.
    Runtime = 2,
}

impl Domain {
    pub(super) fn of(number: u32) -> Option<Self> {
        [Domain::Driver, Domain::Runtime].into_iter().find(|domain| *domain as u32 == number)
    }

    /// The calls that are followed: CUPTI's number and plain name, ascending by number.
    ///
    /// Left out: the 32-bit entry points of CUDA before 4.0, and copies to and from arrays of the runtime, which
    /// nothing here uses.
    pub(super) fn calls(self) -> &'static [(u32, &'static str)] {
        match self {
            Domain::Driver => &DRIVER,
            Domain::Runtime => &RUNTIME,
        }
    }
}

/// Plain name of a followed call.
pub(super) fn name(domain: Domain, cbid: u32) -> Option<&'static str> {
    let calls = domain.calls();
    calls.binary_search_by_key(&cbid, |(number, _)| *number).ok().map(|at| calls[at].1)
}

/// Calls of the driver that every program which uses the device makes frequently: launches of kernels and graphs, and
/// copies. CUPTI is detached at the end of one of these.
pub(super) const FREQUENT: [u32; 12] = [277, 279, 306, 307, 418, 421, 422, 442, 514, 515, 652, 653];

/// Calls of the driver that make contexts. While a thread is inside one, CUPTI must not be detached.
#[rustfmt::skip]
pub(super) const MAKE_CONTEXTS: [(u32, &str); 7] = [
    (10, "cuCtxCreate"), (235, "cuCtxCreate"), (386, "cuDevicePrimaryCtxRetain"), (645, "cuCtxCreate"),
    (743, "cuGreenCtxCreate"), (753, "cuCtxFromGreenCtx"), (757, "cuCtxCreate"),
];

/// Calls that end contexts. In one of them CUPTI crashes (13.0, on an H100 and seen within seconds) if another thread
/// detaches it at that moment.
#[rustfmt::skip]
pub(super) const END_CONTEXTS: [(u32, &str); 8] = [
    (11, "cuCtxDestroy"), (13, "cuCtxDetach"), (322, "cuCtxDestroy"), (387, "cuDevicePrimaryCtxRelease"),
    (389, "cuDevicePrimaryCtxReset"), (544, "cuDevicePrimaryCtxRelease"), (545, "cuDevicePrimaryCtxReset"),
    (744, "cuGreenCtxDestroy"),
];

/// Calls that begin to capture a graph or make one that can be launched.
#[rustfmt::skip]
pub(super) const MAKE_GRAPHS: [(u32, &str); 11] = [
    (495, "cuStreamBeginCapture"), (496, "cuStreamBeginCapture"), (513, "cuGraphInstantiate"), (539, "cuStreamBeginCapture"),
    (540, "cuStreamBeginCapture"), (578, "cuGraphInstantiate"), (643, "cuGraphInstantiateWithFlags"),
    (656, "cuGraphInstantiateWithParams"), (657, "cuGraphInstantiateWithParams"), (720, "cuStreamBeginCaptureToGraph"),
    (721, "cuStreamBeginCaptureToGraph"),
];

/// Those that launch one.
pub(super) const LAUNCH_GRAPHS: [(u32, &str); 2] = [(514, "cuGraphLaunch"), (515, "cuGraphLaunch")];

/// What a call has to do with graphs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OnGraphs {
    Makes,
    Launches,
}

/// What a call has to do with graphs, if anything.
#[inline]
pub(super) fn on_graphs(domain: Domain, cbid: u32) -> Option<OnGraphs> {
    // Most calls are launches of kernels.
    if domain != Domain::Driver || !has(&ON_GRAPHS, cbid) {
        return None;
    }
    let launches = LAUNCH_GRAPHS.iter().any(|(number, _)| *number == cbid);
    Some(if launches { OnGraphs::Launches } else { OnGraphs::Makes })
}

/// Where the handle of what is launched stands among the parameters of a call of the driver, if it launches something
/// that has one.
#[inline]
pub(super) fn handle_at(cbid: u32) -> Option<usize> {
    match cbid {
        // Function or graph first.
        307 | 442 | 477 | 478 | 514 | 515 => Some(0),
        // After the configuration.
        652 | 653 => Some(1),
        _ => None,
    }
}

/// What a call does to contexts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OnContexts {
    Makes,
    Ends,
}

/// What a call does to contexts, if anything.
#[inline]
pub(super) fn on_contexts(domain: Domain, cbid: u32) -> Option<OnContexts> {
    // Most calls are launches of kernels.
    if domain != Domain::Driver || !has(&ON_CONTEXTS, cbid) {
        return None;
    }
    let ends = END_CONTEXTS.iter().any(|(number, _)| *number == cbid);
    Some(if ends { OnContexts::Ends } else { OnContexts::Makes })
}

/// Whether a call copies or sets memory, as the driver does it; the runtime's copies come here too. Both go together:
/// CUPTI 13.0 records no memset, either, while records of copies are off (a program in C on an H200: 3,131 of 3,224
/// steps that lacked their copy lacked their memset as well, and the others began or ended at that moment).
#[inline]
pub(super) fn is_on_memory(domain: Domain, cbid: u32) -> bool {
    domain == Domain::Driver && has(&ON_MEMORY, cbid)
}

/// Whether a call copies from a device to the host, by its name.
#[inline]
pub(super) fn fetches(domain: Domain, cbid: u32) -> bool {
    domain == Domain::Driver && has(&FETCHES, cbid)
}

/// Numbers of calls, a bit each: each call is looked up in several tables.
type CallBits = [u64; 16];

#[inline]
fn has(bits: &CallBits, cbid: u32) -> bool {
    bits.get(cbid as usize / 64).is_some_and(|word| word >> (cbid % 64) & 1 == 1)
}

/// The numbers of all calls on contexts, and of all on graphs.
const ON_CONTEXTS: CallBits = with(with([0; 16], &MAKE_CONTEXTS), &END_CONTEXTS);
const ON_GRAPHS: CallBits = with(with([0; 16], &MAKE_GRAPHS), &LAUNCH_GRAPHS);

/// These numbers, and those of more calls.
const fn with(mut bits: CallBits, calls: &[(u32, &str)]) -> CallBits {
    let mut at = 0;
    while at < calls.len() {
        let cbid = calls[at].0;
        bits[cbid as usize / 64] |= 1 << (cbid % 64);
        at += 1;
    }
    bits
}

/// The numbers of [`DRIVER`]'s copies and memsets.
const ON_MEMORY: CallBits = both(beginning_with(b"cuMemcpy"), beginning_with(b"cuMemset"));
/// Of these, those from a device to the host.
const FETCHES: CallBits = beginning_with(b"cuMemcpyDtoH");

/// The numbers of either.
const fn both(one: CallBits, other: CallBits) -> CallBits {
    let (mut bits, mut at) = (one, 0);
    while at < bits.len() {
        bits[at] |= other[at];
        at += 1;
    }
    bits
}

/// The numbers of [`DRIVER`]'s calls whose names begin so.
const fn beginning_with(prefix: &[u8]) -> CallBits {
    let (mut bits, mut at) = ([0; 16], 0);
    while at < DRIVER.len() {
        let (cbid, name) = DRIVER[at];
        let name = name.as_bytes();
        let mut same = 0;
        while same < prefix.len() && same < name.len() && name[same] == prefix[same] {
            same += 1;
        }
        if same == prefix.len() {
            bits[cbid as usize / 64] |= 1 << (cbid % 64);
        }
        at += 1;
    }
    bits
}

/// A name as CUPTI writes it (`cuMemcpyHtoDAsync_v2_ptsz`, `cudaLaunchKernel_v7000`) without the suffixes of its
/// variants.
pub(super) fn plain(name: &str) -> &str {
    let name = name.trim_start_matches('_');
    name.split_once('_').map_or(name, |(plain, _)| plain)
}

/// `cupti_driver_cbid.h`. Numbers are never reused; when a library is loaded, it is checked that it knows each number
/// under this name.
#[rustfmt::skip]
const DRIVER: [(u32, &str); 90] = [
    (216, "cuMemsetD8Async"), (218, "cuMemsetD16Async"), (220, "cuMemsetD32Async"), (222, "cuMemsetD2D8Async"),
    (224, "cuMemsetD2D16Async"), (226, "cuMemsetD2D32Async"), (248, "cuMemcpy"), (249, "cuMemsetD8"),
    (250, "cuMemsetD16"), (251, "cuMemsetD32"), (252, "cuMemsetD2D8"), (253, "cuMemsetD2D16"), (254, "cuMemsetD2D32"),
    (276, "cuMemcpyHtoD"), (277, "cuMemcpyHtoDAsync"), (278, "cuMemcpyDtoH"), (279, "cuMemcpyDtoHAsync"),
    (280, "cuMemcpyDtoD"), (281, "cuMemcpyDtoDAsync"), (282, "cuMemcpyAtoH"), (283, "cuMemcpyAtoHAsync"),
    (284, "cuMemcpyAtoD"), (285, "cuMemcpyDtoA"), (286, "cuMemcpyAtoA"), (287, "cuMemcpy2D"),
    (288, "cuMemcpy2DUnaligned"), (289, "cuMemcpy2DAsync"), (290, "cuMemcpy3D"), (291, "cuMemcpy3DAsync"),
    (292, "cuMemcpyHtoA"), (293, "cuMemcpyHtoAAsync"), (305, "cuMemcpy"), (306, "cuMemcpyAsync"),
    (307, "cuLaunchKernel"), (318, "cuMemcpyPeer"), (319, "cuMemcpyPeerAsync"), (320, "cuMemcpy3DPeer"),
    (321, "cuMemcpy3DPeerAsync"), (397, "cuMemcpyHtoD"), (398, "cuMemcpyDtoH"), (399, "cuMemcpyDtoD"),
    (400, "cuMemcpyDtoA"), (401, "cuMemcpyAtoD"), (402, "cuMemcpyHtoA"), (403, "cuMemcpyAtoH"), (404, "cuMemcpyAtoA"),
    (405, "cuMemcpy2D"), (406, "cuMemcpy2DUnaligned"), (407, "cuMemcpy3D"), (408, "cuMemcpy"), (409, "cuMemcpyPeer"),
    (410, "cuMemcpy3DPeer"), (411, "cuMemsetD8"), (412, "cuMemsetD16"), (413, "cuMemsetD32"), (414, "cuMemsetD2D8"),
    (415, "cuMemsetD2D16"), (416, "cuMemsetD2D32"), (418, "cuMemcpyAsync"), (419, "cuMemcpyHtoAAsync"),
    (420, "cuMemcpyAtoHAsync"), (421, "cuMemcpyHtoDAsync"), (422, "cuMemcpyDtoHAsync"), (423, "cuMemcpyDtoDAsync"),
    (424, "cuMemcpy2DAsync"), (425, "cuMemcpy3DAsync"), (426, "cuMemcpyPeerAsync"), (427, "cuMemcpy3DPeerAsync"),
    (428, "cuMemsetD8Async"), (429, "cuMemsetD16Async"), (430, "cuMemsetD32Async"), (431, "cuMemsetD2D8Async"),
    (432, "cuMemsetD2D16Async"), (433, "cuMemsetD2D32Async"), (442, "cuLaunchKernel"),
    (477, "cuLaunchCooperativeKernel"), (478, "cuLaunchCooperativeKernel"),
    (480, "cuLaunchCooperativeKernelMultiDevice"), (514, "cuGraphLaunch"), (515, "cuGraphLaunch"),
    (652, "cuLaunchKernelEx"), (653, "cuLaunchKernelEx"), (776, "cuMemcpyBatchAsync"), (777, "cuMemcpyBatchAsync"),
    (778, "cuMemcpy3DBatchAsync"), (779, "cuMemcpy3DBatchAsync"), (796, "cuMemcpyBatchAsync"),
    (797, "cuMemcpyBatchAsync"), (798, "cuMemcpy3DBatchAsync"), (799, "cuMemcpy3DBatchAsync"),
];

/// `cupti_runtime_cbid.h`.
#[rustfmt::skip]
const RUNTIME: [(u32, &str); 57] = [
    (31, "cudaMemcpy"), (32, "cudaMemcpy2D"), (39, "cudaMemcpyToSymbol"), (40, "cudaMemcpyFromSymbol"),
    (41, "cudaMemcpyAsync"), (44, "cudaMemcpy2DAsync"), (47, "cudaMemcpyToSymbolAsync"),
    (48, "cudaMemcpyFromSymbolAsync"), (49, "cudaMemset"), (50, "cudaMemset2D"), (51, "cudaMemsetAsync"),
    (52, "cudaMemset2DAsync"), (142, "cudaMemset3D"), (143, "cudaMemset3DAsync"), (144, "cudaMemcpy3D"),
    (145, "cudaMemcpy3DAsync"), (160, "cudaMemcpyPeer"), (161, "cudaMemcpyPeerAsync"), (162, "cudaMemcpy3DPeer"),
    (163, "cudaMemcpy3DPeerAsync"), (211, "cudaLaunchKernel"), (214, "cudaLaunchKernel"), (215, "cudaMemcpy"),
    (216, "cudaMemcpy2D"), (223, "cudaMemcpyToSymbol"), (224, "cudaMemcpyFromSymbol"), (225, "cudaMemcpyAsync"),
    (228, "cudaMemcpy2DAsync"), (231, "cudaMemcpyToSymbolAsync"), (232, "cudaMemcpyFromSymbolAsync"),
    (233, "cudaMemset"), (234, "cudaMemset2D"), (235, "cudaMemsetAsync"), (236, "cudaMemset2DAsync"),
    (243, "cudaMemset3D"), (244, "cudaMemset3DAsync"), (245, "cudaMemcpy3D"), (246, "cudaMemcpy3DAsync"),
    (249, "cudaMemcpy3DPeer"), (250, "cudaMemcpy3DPeerAsync"), (269, "cudaLaunchCooperativeKernel"),
    (270, "cudaLaunchCooperativeKernel"), (272, "cudaLaunchCooperativeKernelMultiDevice"), (311, "cudaGraphLaunch"),
    (312, "cudaGraphLaunch"), (430, "cudaLaunchKernelExC"), (431, "cudaLaunchKernelExC"), (482, "cudaMemcpyBatchAsync"),
    (483, "cudaMemcpyBatchAsync"), (484, "cudaMemcpy3DBatchAsync"), (485, "cudaMemcpy3DBatchAsync"),
    (505, "cudaLaunchKernel"), (506, "cudaLaunchKernel"), (509, "cudaMemcpyBatchAsync"), (510, "cudaMemcpyBatchAsync"),
    (511, "cudaMemcpy3DBatchAsync"), (512, "cudaMemcpy3DBatchAsync"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_by_number_and_domain() {
        assert_eq!(name(Domain::Driver, 307), Some("cuLaunchKernel"));
        assert_eq!(name(Domain::Driver, 515), Some("cuGraphLaunch"));
        assert_eq!(name(Domain::Runtime, 211), Some("cudaLaunchKernel"));
        assert_eq!(name(Domain::Driver, 211), None, "the same number means another call there");
        assert_eq!((Domain::of(1), Domain::of(2), Domain::of(3)), (Some(Domain::Driver), Some(Domain::Runtime), None));
    }

    #[test]
    fn tables_are_sorted_and_plain() {
        for domain in [Domain::Driver, Domain::Runtime] {
            assert!(
                domain.calls().windows(2).all(|pair| pair[0].0 < pair[1].0),
                "{domain:?}: binary search needs order"
            );
            assert!(domain.calls().iter().all(|(_, name)| plain(name) == *name));
        }
        for cbid in FREQUENT {
            assert!(name(Domain::Driver, cbid).is_some_and(|name| !name.contains("Memset")), "{cbid}");
        }
    }

    #[test]
    fn what_makes_and_ends_contexts_is_not_followed() {
        for (cbid, plain_name) in MAKE_CONTEXTS.iter().chain(&END_CONTEXTS) {
            assert!(name(Domain::Driver, *cbid).is_none() && plain(plain_name) == *plain_name, "{cbid}");
            assert!(on_contexts(Domain::Driver, *cbid).is_some() && on_contexts(Domain::Runtime, *cbid).is_none());
        }
        assert_eq!(on_contexts(Domain::Driver, 322), Some(OnContexts::Ends));
        assert_eq!(
            (on_contexts(Domain::Driver, 386), on_contexts(Domain::Driver, 307)),
            (Some(OnContexts::Makes), None)
        );
    }

    #[test]
    fn what_makes_and_launches_graphs_is_known_by_number() {
        for (cbid, plain_name) in MAKE_GRAPHS {
            assert!(name(Domain::Driver, cbid).is_none() && plain(plain_name) == plain_name, "{cbid}");
            assert_eq!(
                (on_graphs(Domain::Driver, cbid), on_graphs(Domain::Runtime, cbid)),
                (Some(OnGraphs::Makes), None)
            );
        }
        for (cbid, plain_name) in LAUNCH_GRAPHS {
            assert_eq!(name(Domain::Driver, cbid), Some(plain_name));
            assert_eq!(on_graphs(Domain::Driver, cbid), Some(OnGraphs::Launches));
        }
        assert_eq!(on_graphs(Domain::Driver, 307), None);
    }

    #[test]
    fn all_other_calls_have_nothing_to_do_with_contexts_and_graphs() {
        let among = |cbid: u32, tables: [&[(u32, &str)]; 2]| tables.concat().iter().any(|(number, _)| *number == cbid);
        for cbid in (0..2_000).chain([u32::MAX]) {
            let contexts = among(cbid, [&MAKE_CONTEXTS, &END_CONTEXTS]);
            assert_eq!(on_contexts(Domain::Driver, cbid).is_some(), contexts, "{cbid}");
            let graphs = among(cbid, [&MAKE_GRAPHS, &LAUNCH_GRAPHS]);
            assert_eq!(on_graphs(Domain::Driver, cbid).is_some(), graphs, "{cbid}");
        }
    }

    #[test]
    fn copies_and_memsets_are_those_by_name() {
        for cbid in 0..2_000 {
            let named = name(Domain::Driver, cbid)
                .is_some_and(|name| name.starts_with("cuMemcpy") || name.starts_with("cuMemset"));
            assert_eq!(is_on_memory(Domain::Driver, cbid), named, "{cbid}");
        }
        assert!(is_on_memory(Domain::Driver, 279) && is_on_memory(Domain::Driver, 249));
        assert!(!is_on_memory(Domain::Runtime, 279) && !is_on_memory(Domain::Driver, u32::MAX));
    }

    #[test]
    fn what_is_launched_has_a_handle() {
        for (cbid, name) in DRIVER {
            let launches =
                matches!(name, "cuLaunchKernel" | "cuLaunchKernelEx" | "cuLaunchCooperativeKernel" | "cuGraphLaunch");
            assert_eq!(handle_at(cbid).is_some(), launches, "{cbid} {name}");
        }
        assert_eq!((handle_at(442), handle_at(652)), (Some(0), Some(1)));
    }

    #[test]
    fn variants_have_one_plain_name() {
        for (given, expected) in [
            ("cuLaunchKernel", "cuLaunchKernel"),
            ("cuMemcpyHtoDAsync_v2_ptsz", "cuMemcpyHtoDAsync"),
            ("cudaLaunchKernel_ptsz_v7000", "cudaLaunchKernel"),
            ("__cudaLaunchKernel_v13000", "cudaLaunchKernel"),
        ] {
            assert_eq!(plain(given), expected);
        }
    }
}
