//! Kernels whose last wave of blocks fills only a part of the device.

use super::draft::{Draft, RuleResults};
use super::query::{kernels, quoted};
use super::scene::{Scene, StepScene};
use super::two_lines::Relief;
use candlescope_figures::account::LaunchShape;
use candlescope_figures::advice::{AdviceCode, ConfidenceLevel, Missing};
use serde_json::Value;

/// Above this share of its waves' room a kernel fills the device well enough.
const FULL: f64 = 0.8;

pub(super) fn find(scene: &Scene<'_>, step: &StepScene<'_>, out: &mut RuleResults) {
    let code = AdviceCode::WaveTail;
    if !scene.on_gpu {
        return;
    }
    let Some(work) = step.work else { return out.abstain(code, step, Missing::Kernels) };
    let Some((processors, limits)) = device(scene) else { return out.abstain(code, step, Missing::Processors) };
    for (at, row) in work.rows.iter().enumerate() {
        let Some(shape) = row.shape else { continue };
        let Some(together) = limits.blocks_at_once(&shape) else { continue };
        let waves = shape.blocks as f64 / (processors * together) as f64;
        let filled = waves / waves.ceil();
        // With less than one wave there is no tail: the device is too large for the kernel.
        if waves <= 1.0 || filled >= FULL {
            continue;
        }
        let place = row.path.as_deref();
        let draft = Draft::new(code, step)
            .at(|at| place.map_or(at.clone(), |path| at.path(path)).kernel(&row.name))
            .derived("blocks", "count", shape.blocks as f64, row.count)
            .derived("waves", "count", waves, row.count)
            .derived("filled", "ratio", filled, row.count)
            .measured("device_ns", "ns", step.each(row.ns), row.count)
            .query(kernels(step, &of_row(place, &row.name, &shape)))
            .sure(
                ConfidenceLevel::Low,
                "blocks of different lengths may fill the last wave better than their number says",
            );
        out.found.push(draft.relief(|rate| Relief::Scale(vec![at], 1.0 - (1.0 - filled) * rate)));
    }
}

/// The launches of one kernel at one place with one shape.
fn of_row(path: Option<&str>, name: &str, shape: &LaunchShape) -> String {
    let at = path.map_or("path IS NULL".to_string(), |path| format!("operator = {}", quoted(path)));
    format!(
        "kind = 'kernel' AND {at} AND name = {} AND grid_x * grid_y * grid_z = {} AND block_x * block_y * block_z = {}",
        quoted(name),
        shape.blocks,
        shape.threads
    )
}

/// What one multiprocessor holds at once [CUDA C++ Programming Guide, "Technical Specifications per Compute
/// Capability"].
struct Limits {
    threads: u64,
    blocks: u64,
    shared: u64,
}

impl Limits {
    fn of(capability: &str) -> Option<Self> {
        let (threads, blocks, shared_kib) = match capability {
            "7.0" | "7.2" => (2048, 32, 96),
            "7.5" => (1024, 16, 64),
            "8.0" => (2048, 32, 164),
            "8.6" => (1536, 16, 100),
            "8.7" => (1536, 16, 164),
            "8.9" => (1536, 24, 100),
            "9.0" | "10.0" => (2048, 32, 228),
            _ => return None,
        };
        Some(Self { threads, blocks, shared: shared_kib * 1024 })
    }

    /// Blocks that fit at once.
    fn blocks_at_once(&self, shape: &LaunchShape) -> Option<u64> {
        if shape.threads == 0 {
            return None;
        }
        // Registers are given out by 256 to each of a block's warps; the driver takes 1 KiB of shared memory for each
        // block.
        let warps = shape.threads.div_ceil(32);
        let registers = (u64::from(shape.registers?) * 32).next_multiple_of(256) * warps;
        let by_registers = 65_536_u64.checked_div(registers).unwrap_or(self.blocks);
        let by_shared = self.shared / (shape.shared + 1024);
        Some((self.threads / (warps * 32)).min(self.blocks).min(by_registers).min(by_shared)).filter(|n| *n > 0)
    }
}

/// Multiprocessors of the run's GPU, and what each holds.
fn device(scene: &Scene<'_>) -> Option<(u64, Limits)> {
    let gpu = scene.gpu()?;
    let processors = gpu.get("multiprocessors").and_then(Value::as_u64).filter(|n| *n > 0)?;
    Some((processors, Limits::of(gpu.get("compute_capability")?.as_str()?)?))
}
