//! Parses the bytes of activity records. Pure.
//!
//! Only the beginning of each record is read: its layout stayed the same from CUDA 11.2 to 13.0 while fields were added
//! at the end. The offsets below were taken with `offsetof` from `cupti_activity.h` of CUDA 13.0 and hold for every
//! version of the structs that it declares from `CUpti_ActivityKernel7` to `Kernel10`, `Memcpy5` and `Memcpy6`,
//! `MemcpyPtoP3` and `PtoP4`, `Memset3` and `Memset4`.

use candlescope_core::KernelKind;

/// `CUpti_ActivityKind`.
pub(super) mod kind {
    pub(in super::super) const MEMCPY: u32 = 1;
    pub(in super::super) const MEMSET: u32 = 2;
    /// Kernels that CUPTI runs one after the other. Never used, because it changes what is measured.
    pub(in super::super) const KERNEL: u32 = 3;
    pub(in super::super) const CONCURRENT_KERNEL: u32 = 10;
    /// Copies between two devices.
    pub(in super::super) const MEMCPY2: u32 = 22;
}

mod kernel {
    pub(super) const REGISTERS: usize = 6;
    pub(super) const START: usize = 16;
    pub(super) const END: usize = 24;
    pub(super) const DEVICE: usize = 40;
    pub(super) const STREAM: usize = 48;
    pub(super) const GRID: usize = 52;
    pub(super) const BLOCK: usize = 64;
    pub(super) const SHARED_STATIC: usize = 76;
    pub(super) const SHARED_DYNAMIC: usize = 80;
    pub(super) const CORRELATION: usize = 92;
    pub(super) const NAME: usize = 104;
    pub(super) const GRAPH_NODE: usize = 144;
    pub(super) const GRAPH: usize = 156;
    /// Bytes read.
    pub(super) const LEN: usize = GRAPH + 4;
}

/// Copies and memsets; differences are noted.
mod memory {
    pub(super) const COPY_KIND: usize = 4;
    pub(super) const BYTES: usize = 8;
    pub(super) const START: usize = 16;
    pub(super) const END: usize = 24;
    pub(super) const DEVICE: usize = 32;
    pub(super) const STREAM: usize = 40;
    pub(super) const CORRELATION: usize = 44;
    /// Eight bytes before the graph's number.
    pub(super) const NODE_BEFORE_GRAPH: usize = 8;
    pub(super) const GRAPH: usize = 72;
    /// In copies between devices, whose records have fields for both ends before it.
    pub(super) const PEER_CORRELATION: usize = 60;
    pub(super) const PEER_GRAPH: usize = 80;
}

/// What a record says. Times are CUPTI's own, in nanoseconds.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Record {
    /// Something ran on a device.
    Work(Work),
    /// A record of a kind that is not used.
    Other,
}

/// Something that ran on a device.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Work {
    pub(super) correlation: u32,
    /// Number of the device as the driver counts.
    pub(super) device: u32,
    pub(super) stream: u32,
    /// Zero where CUPTI could not time it.
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) graph: Option<u32>,
    /// The node of the graph, by CUPTI's own number.
    pub(super) graph_node: Option<u64>,
    pub(super) what: ActivityKind,
}

/// The part of a record that depends on its kind.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum ActivityKind {
    Kernel { grid: [u32; 3], block: [u32; 3], registers: u32, shared_static: u32, shared_dynamic: u32 },
    Copy { bytes: u64, direction: &'static str },
    Set { bytes: u64 },
}

impl ActivityKind {
    pub(super) fn kind(&self) -> KernelKind {
        match self {
            ActivityKind::Kernel { .. } => KernelKind::Kernel,
            ActivityKind::Copy { .. } => KernelKind::Memcpy,
            ActivityKind::Set { .. } => KernelKind::Memset,
        }
    }
}

/// Reads a record that starts `bytes`; what follows it does not matter. `None` if it is cut short.
pub(super) fn parse(bytes: &[u8]) -> Option<Record> {
    let view = View(bytes);
    Some(match view.u32(0)? {
        kind::CONCURRENT_KERNEL | kind::KERNEL => {
            // One check for the whole prefix, so that a record is read whole or not at all.
            bytes.get(..kernel::LEN)?;
            Record::Work(Work {
                correlation: view.u32(kernel::CORRELATION)?,
                device: view.u32(kernel::DEVICE)?,
                stream: view.u32(kernel::STREAM)?,
                start: view.u64(kernel::START)?,
                end: view.u64(kernel::END)?,
                graph: view.id(kernel::GRAPH)?,
                graph_node: view.long_id(kernel::GRAPH_NODE)?,
                what: ActivityKind::Kernel {
                    grid: view.dim(kernel::GRID)?,
                    block: view.dim(kernel::BLOCK)?,
                    registers: u32::from(view.u16(kernel::REGISTERS)?),
                    shared_static: view.u32(kernel::SHARED_STATIC)?,
                    shared_dynamic: view.u32(kernel::SHARED_DYNAMIC)?,
                },
            })
        }
        kind @ (kind::MEMCPY | kind::MEMCPY2) => {
            let direction = direction(*bytes.get(memory::COPY_KIND)?);
            let what = ActivityKind::Copy { bytes: view.u64(memory::BYTES)?, direction };
            let (correlation, graph) = match kind {
                kind::MEMCPY => (memory::CORRELATION, memory::GRAPH),
                _ => (memory::PEER_CORRELATION, memory::PEER_GRAPH),
            };
            Record::Work(view.memory(what, correlation, graph)?)
        }
        kind::MEMSET => {
            let what = ActivityKind::Set { bytes: view.u64(memory::BYTES)? };
            Record::Work(view.memory(what, memory::CORRELATION, memory::GRAPH)?)
        }
        _ => Record::Other,
    })
}

/// The address of the kernel's name, if the record that starts `bytes` is a kernel's.
pub(super) fn name_address(bytes: &[u8]) -> Option<usize> {
    let view = View(bytes);
    let is_kernel = matches!(view.u32(0)?, kind::CONCURRENT_KERNEL | kind::KERNEL);
    let address = if is_kernel { view.u64(kernel::NAME)? } else { 0 };
    usize::try_from(address).ok().filter(|address| *address != 0)
}

/// Short names of `CUpti_ActivityMemcpyKind`: h is the host, d a device, a an array of a device, p a peer device.
fn direction(kind: u8) -> &'static str {
    match kind {
        1 => "htod",
        2 => "dtoh",
        3 => "htoa",
        4 => "atoh",
        5 => "atoa",
        6 => "atod",
        7 => "dtoa",
        8 => "dtod",
        9 => "htoh",
        10 => "ptop",
        _ => "unknown",
    }
}

/// Numbers at offsets, in this machine's byte order.
struct View<'a>(&'a [u8]);

impl View<'_> {
    fn get<const N: usize>(&self, at: usize) -> Option<[u8; N]> {
        self.0.get(at..at + N)?.try_into().ok()
    }

    fn u16(&self, at: usize) -> Option<u16> {
        self.get(at).map(u16::from_ne_bytes)
    }

    fn u32(&self, at: usize) -> Option<u32> {
        self.get(at).map(u32::from_ne_bytes)
    }

    fn u64(&self, at: usize) -> Option<u64> {
        self.get(at).map(u64::from_ne_bytes)
    }

    fn dim(&self, at: usize) -> Option<[u32; 3]> {
        Some([self.u32(at)?, self.u32(at + 4)?, self.u32(at + 8)?])
    }

    /// An id; zero means none.
    fn id(&self, at: usize) -> Option<Option<u32>> {
        self.u32(at).map(|id| Some(id).filter(|id| *id != 0))
    }

    fn long_id(&self, at: usize) -> Option<Option<u64>> {
        self.u64(at).map(|id| Some(id).filter(|id| *id != 0))
    }

    fn memory(&self, what: ActivityKind, correlation: usize, graph: usize) -> Option<Work> {
        Some(Work {
            correlation: self.u32(correlation)?,
            device: self.u32(memory::DEVICE)?,
            stream: self.u32(memory::STREAM)?,
            start: self.u64(memory::START)?,
            end: self.u64(memory::END)?,
            graph: self.id(graph)?,
            graph_node: self.long_id(graph - memory::NODE_BEFORE_GRAPH)?,
            what,
        })
    }
}

/// Records as a library writes them, for the tests of everything that reads them. Sizes are those of CUDA 13.0.
#[cfg(test)]
pub(super) mod built {
    use super::*;

    /// `size` zero bytes with `fields` written over them.
    fn record(size: usize, fields: &[(usize, &[u8])]) -> Vec<u8> {
        let mut bytes = vec![0; size];
        for (at, field) in fields {
            bytes[*at..*at + field.len()].copy_from_slice(field);
        }
        bytes
    }

    /// The node of a kernel of a graph: none without one.
    pub(in super::super) const fn node_of(graph: u32) -> u64 {
        if graph == 0 { 0 } else { (1 << 40) + graph as u64 }
    }

    /// A `CUpti_ActivityKernel10` on device 1, stream 7; the name's address is not set.
    pub(in super::super) fn kernel(correlation: u32, start: u64, end: u64, graph: u32) -> Vec<u8> {
        let sizes: Vec<u8> = [64u32, 2, 1, 256, 1, 1, 48, 1024].iter().flat_map(|n| n.to_ne_bytes()).collect();
        record(
            216,
            &[
                (0, &10u32.to_ne_bytes()),
                (6, &32u16.to_ne_bytes()),
                (16, &start.to_ne_bytes()),
                (24, &end.to_ne_bytes()),
                (40, &1u32.to_ne_bytes()),
                (48, &7u32.to_ne_bytes()),
                (52, &sizes),
                (92, &correlation.to_ne_bytes()),
                (144, &node_of(graph).to_ne_bytes()),
                (156, &graph.to_ne_bytes()),
            ],
        )
    }

    /// A `CUpti_ActivityMemcpy6`, `CUpti_ActivityMemcpyPtoP4` or `CUpti_ActivityMemset4` of 4096 bytes on device 1,
    /// stream 7.
    pub(in super::super) fn memory(kind: u32, copy_kind: u8, correlation: u32, start: u64, end: u64) -> Vec<u8> {
        let (size, correlation_at) = match kind {
            kind::MEMSET => (88, 44),
            kind::MEMCPY => (96, 44),
            _ => (96, 60),
        };
        record(
            size,
            &[
                (0, &kind.to_ne_bytes()),
                (4, &[copy_kind]),
                (8, &4096u64.to_ne_bytes()),
                (16, &start.to_ne_bytes()),
                (24, &end.to_ne_bytes()),
                (32, &1u32.to_ne_bytes()),
                (40, &7u32.to_ne_bytes()),
                (correlation_at, &correlation.to_ne_bytes()),
            ],
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_read() {
        let expected = Work {
            correlation: 0xFFFF_FFFE,
            device: 1,
            stream: 7,
            start: 1_000,
            end: 1_500,
            graph: None,
            graph_node: None,
            what: ActivityKind::Kernel {
                grid: [64, 2, 1],
                block: [256, 1, 1],
                registers: 32,
                shared_static: 48,
                shared_dynamic: 1024,
            },
        };
        let bytes = built::kernel(0xFFFF_FFFE, 1_000, 1_500, 0);
        assert_eq!(parse(&bytes), Some(Record::Work(expected.clone())));
        let in_graph = parse(&built::kernel(0xFFFF_FFFE, 1_000, 1_500, 9));
        assert_eq!(
            in_graph,
            Some(Record::Work(Work { graph: Some(9), graph_node: Some((1 << 40) + 9), ..expected.clone() }))
        );
        // The record of CUDA 11.2, forty bytes shorter.
        assert_eq!(parse(&bytes[..176]), Some(Record::Work(expected)));
    }

    #[test]
    fn copies_and_memsets_are_read() {
        let read = |kind, copy_kind| match parse(&built::memory(kind, copy_kind, 5, 10, 30)) {
            Some(Record::Work(work)) => work,
            other => panic!("{other:?}"),
        };
        let htod = read(kind::MEMCPY, 1);
        assert_eq!(
            (htod.correlation, htod.device, htod.stream, htod.start, htod.end, htod.graph),
            (5, 1, 7, 10, 30, None)
        );
        assert_eq!(htod.what, ActivityKind::Copy { bytes: 4096, direction: "htod" });
        assert_eq!(read(kind::MEMCPY, 77).what, ActivityKind::Copy { bytes: 4096, direction: "unknown" });
        assert_eq!(read(kind::MEMCPY2, 10).what, ActivityKind::Copy { bytes: 4096, direction: "ptop" });
        assert_eq!(read(kind::MEMCPY2, 10).correlation, 5);
        assert_eq!(read(kind::MEMSET, 0).what, ActivityKind::Set { bytes: 4096 });
        let kinds = [kind::MEMCPY, kind::MEMSET].map(|kind| read(kind, 8).what.kind());
        assert_eq!(kinds, [KernelKind::Memcpy, KernelKind::Memset]);
        let mut in_graph = built::memory(kind::MEMSET, 0, 5, 10, 30);
        (in_graph[64], in_graph[72]) = (6, 4);
        assert!(matches!(parse(&in_graph), Some(Record::Work(Work { graph: Some(4), graph_node: Some(6), .. }))));
    }

    #[test]
    fn other_kinds_are_passed_over() {
        for kind in [3u32, 4, 5, 8, 39] {
            let mut bytes = built::kernel(1, 2, 3, 0);
            bytes[..4].copy_from_slice(&kind.to_ne_bytes());
            assert_eq!(matches!(parse(&bytes), Some(Record::Other)), kind != kind::KERNEL);
        }
        assert_eq!(parse(&8u32.to_ne_bytes()), Some(Record::Other));
    }

    #[test]
    fn a_record_cut_short_is_no_record() {
        for record in [
            built::kernel(1, 2, 3, 0),
            built::memory(kind::MEMCPY, 1, 1, 2, 3),
            built::memory(kind::MEMCPY2, 10, 1, 2, 3),
            built::memory(kind::MEMSET, 0, 1, 2, 3),
        ] {
            assert!(parse(&record).is_some());
            assert_eq!(parse(&record[..18]), None);
            assert_eq!(parse(&record[..3]), None);
        }
        assert_eq!(parse(&[]), None);
    }

    #[test]
    fn only_kernels_have_names() {
        let mut kernel = built::kernel(1, 2, 3, 0);
        assert_eq!(name_address(&kernel), None, "a null pointer");
        kernel[104] = 0x40;
        assert_eq!(name_address(&kernel), Some(0x40));
        assert_eq!(name_address(&kernel[..100]), None);
        let mut copy = built::memory(kind::MEMCPY, 1, 1, 2, 3);
        copy.resize(216, 1);
        assert_eq!(name_address(&copy), None);
    }
}
