//! The sum over ranks by NCCL.
#![allow(unsafe_code, reason = "NCCL's handle is a pointer, which candle's trait does not allow")]

use anyhow::{Context, Result, ensure};
use candle_core::cuda_backend::CudaStorage;
use candle_core::cuda_backend::cudarc::nccl::safe::{Comm, Id, ReduceOp};
use candle_core::{CpuStorage, CustomOp1, Device, Layout, Shape};
use half::bf16;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The sum over all ranks, on the stream that computes.
#[derive(Clone)]
pub(crate) struct AllReduce(Arc<Comm>);

// SAFETY: NCCL's handle is a pointer, which candle's trait does not allow; one thread uses it, the one that made it.
unsafe impl Send for AllReduce {}
// SAFETY: as above.
unsafe impl Sync for AllReduce {}

impl CustomOp1 for AllReduce {
    fn name(&self) -> &'static str {
        "all_reduce"
    }

    fn cpu_fwd(&self, _: &CpuStorage, _: &Layout) -> candle_core::Result<(CpuStorage, Shape)> {
        candle_core::bail!("all_reduce is for CUDA devices")
    }

    fn cuda_fwd(&self, storage: &CudaStorage, layout: &Layout) -> candle_core::Result<(CudaStorage, Shape)> {
        let device = storage.device.clone();
        let Some((0, len)) = layout.contiguous_offsets() else { candle_core::bail!("all_reduce wants a whole tensor") };
        let from = storage.as_cuda_slice::<bf16>()?;
        let mut to = device.alloc_zeros::<bf16>(len)?;
        self.0.all_reduce(&from.slice(0..len), &mut to, &ReduceOp::Sum).map_err(candle_core::Error::debug)?;
        Ok((CudaStorage::wrap_cuda_slice(to, device), layout.shape().clone()))
    }
}

impl AllReduce {
    /// Ranks find each other by a file that the first one writes.
    pub(crate) fn meet(file: &Path, rank: usize, world: usize, device: &Device) -> Result<Self> {
        let id = if rank == 0 {
            let id = Id::new().map_err(|error| anyhow::anyhow!("{error:?}"))?;
            let bytes: Vec<u8> = id.internal().iter().map(|byte| *byte as u8).collect();
            let beside = file.with_extension("part");
            std::fs::write(&beside, bytes)?;
            std::fs::rename(beside, file)?;
            id
        } else {
            let began = Instant::now();
            let bytes = loop {
                match std::fs::read(file) {
                    Ok(bytes) => break bytes,
                    Err(_) if began.elapsed() < Duration::from_secs(120) => {
                        std::thread::sleep(Duration::from_millis(20));
                    }
                    Err(error) => return Err(error).context("the first rank did not come"),
                }
            };
            ensure!(bytes.len() == 128, "{} is no id of NCCL", file.display());
            let mut internal = [0; 128];
            internal.iter_mut().zip(bytes).for_each(|(to, from)| *to = from as std::ffi::c_char);
            Id::uninit(internal)
        };
        let stream = device.as_cuda_device()?.cuda_stream();
        let comm = Comm::from_rank(stream, rank, world, id);
        Ok(Self(Arc::new(comm.map_err(|error| anyhow::anyhow!("NCCL: {error:?}"))?)))
    }
}
