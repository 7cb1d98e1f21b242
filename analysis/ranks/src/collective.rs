//! What ranks do together, by the names of intervals and kernels.

use serde::Serialize;

/// Bytes of an operation from which the link, not the start of the operation, decides how long it takes.
pub(crate) const LARGE: u64 = 8 << 20;

/// A kind of collective operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum CollectiveKind {
    /// Every rank gets the sum of all.
    AllReduce,
    /// Every rank gets the parts of all.
    AllGather,
    /// Every rank gets its part of the sum of all.
    ReduceScatter,
    /// Every rank sends a part to every other.
    AllToAll,
    /// Every rank gets what one has.
    Broadcast,
    /// One rank gets the sum of all.
    Reduce,
    /// Nobody goes on before all have come.
    Barrier,
    /// One rank sends what another receives: no rank waits for all, so only its whole time is known.
    PointToPoint,
}

use CollectiveKind::{AllGather, AllReduce, AllToAll, Barrier, Broadcast, PointToPoint, Reduce, ReduceScatter};

impl CollectiveKind {
    /// As it is called in names.
    pub fn name(self) -> &'static str {
        match self {
            AllReduce => "all_reduce",
            AllGather => "all_gather",
            ReduceScatter => "reduce_scatter",
            AllToAll => "all_to_all",
            Broadcast => "broadcast",
            Reduce => "reduce",
            Barrier => "barrier",
            PointToPoint => "send_recv",
        }
    }

    /// That of an interval with this name: `all_reduce`, `allreduce`, `AllReduce`, and so on.
    pub(crate) fn of_span(name: &str) -> Option<Self> {
        let plain: String = name.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_ascii_lowercase();
        Some(match plain.as_str() {
            "allreduce" => AllReduce,
            "allgather" => AllGather,
            "reducescatter" => ReduceScatter,
            "alltoall" => AllToAll,
            "broadcast" | "bcast" => Broadcast,
            "barrier" => Barrier,
            "sendrecv" | "send" | "recv" => PointToPoint,
            _ => return None,
        })
    }

    /// That of a kernel of NCCL, such as `ncclDevKernel_AllReduce_Sum_bf16_RING_LL(…)`; of older versions `ncclKernel_…`.
    pub(crate) fn of_kernel(name: &str) -> Option<Self> {
        let rest = name.strip_prefix("nccl")?;
        let (_, operation) = rest.split_once('_')?;
        let operation = operation.split(['_', '(']).next().unwrap_or_default();
        Some(match operation {
            "AllReduce" => AllReduce,
            "AllGather" => AllGather,
            "ReduceScatter" => ReduceScatter,
            "AlltoAll" | "AllToAll" => AllToAll,
            "Broadcast" => Broadcast,
            "Reduce" => Reduce,
            "SendRecv" => PointToPoint,
            _ => return None,
        })
    }

    /// Whether every rank takes part, so that the n-th of one rank is the n-th of all, and nobody ends before all have come.
    pub(crate) fn holds_all(self) -> bool {
        matches!(self, AllReduce | AllGather | ReduceScatter | AllToAll | Barrier)
    }

    /// Bytes that every link of `ranks` has to carry for each byte of the operation: what makes bus bandwidths of different
    /// operations and numbers of ranks comparable [NVIDIA, *nccl-tests*, doc/PERFORMANCE.md].
    pub(crate) fn bus_factor(self, ranks: usize) -> Option<f64> {
        let n = ranks as f64;
        match self {
            AllReduce => Some(2.0 * (n - 1.0) / n),
            AllGather | ReduceScatter | AllToAll => Some((n - 1.0) / n),
            Broadcast | Reduce => Some(1.0),
            Barrier | PointToPoint => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_intervals_and_kernels() {
        // As CUPTI names them on an H100 with NCCL 2.27, and with 2.18.
        let kernels = [
            ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", Some(AllReduce)),
            ("ncclDevKernel_AllGather_RING_SIMPLE(ncclDevKernelArgsStorage<4096ul>)", Some(AllGather)),
            ("ncclKernel_AllReduce_RING_LL_Sum_half(ncclDevComm*, unsigned long, ncclWork*)", Some(AllReduce)),
            ("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", Some(PointToPoint)),
            ("ncclDevKernel_Generic(x)", None),
            ("ampere_sgemm_32x128_tn", None),
        ];
        for (name, kind) in kernels {
            assert_eq!(CollectiveKind::of_kernel(name), kind, "{name}");
        }
        for name in ["all_reduce", "AllReduce", "allreduce", "all-reduce"] {
            assert_eq!(CollectiveKind::of_span(name), Some(AllReduce), "{name}");
        }
        assert_eq!(CollectiveKind::of_span("reduce"), None, "what a model may call its own");
    }

    #[test]
    fn bytes_on_the_bus() {
        assert_eq!(
            (AllReduce.bus_factor(2), AllGather.bus_factor(4), Barrier.bus_factor(2)),
            (Some(1.0), Some(0.75), None)
        );
    }
}
