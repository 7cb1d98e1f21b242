//! The cases of which peaks are made.

use super::matmul::{Product, ProductShape, Span};
use super::peak_options::PeakOptions;
use super::record::{Condition, MissingPeak};
use super::stream_host::HostStream;
use crate::hardware::{UNKNOWN_CACHE, free_memory, last_level_cache};
use crate::method::{Case, CaseId};
use crate::operands::Element;
use candle_core::Device;
use candlescope_work::devices::PeakKind;

/// Name of the suite.
pub(super) const SUITE: &str = "peaks";
/// What the condition of a product in the sweep is called.
pub(super) const SWEEP: &str = "sweep";

/// The sweep over shapes, and what does not depend on its outcome.
pub(super) fn first(options: &PeakOptions) -> Vec<Box<dyn Case>> {
    let mut cases: Vec<Box<dyn Case>> = Vec::new();
    for element in &options.elements {
        for shape in options.shapes() {
            let id = product_id(*element, SWEEP, shape);
            let span = Span::One { rest: options.pause() };
            cases.push(Box::new(Product::new(id, &options.device, *element, shape, span, options.seed)));
        }
    }
    match &options.device {
        Device::Cpu => host_streams(options, &mut cases),
        #[cfg(feature = "cuda")]
        device if device.is_cuda() => {
            for kind in PeakKind::MEASURED.into_iter().filter(|kind| *kind != PeakKind::Flops) {
                cases.push(Box::new(super::gpu::GpuPeak::new(SUITE, kind, device, options.quick)));
            }
        }
        _ => {}
    }
    cases
}

/// Products of the best shape of each type: in a short run after a rest, and without a break.
pub(super) fn second(options: &PeakOptions, best: &[(Element, ProductShape)]) -> Vec<Box<dyn Case>> {
    let (rest, busy) = options.boost();
    let spans = [
        (Condition::Boost, Span::AfterRest { rest, busy }),
        (Condition::Sustained, Span::Sustained(options.sustained())),
    ];
    let mut cases: Vec<Box<dyn Case>> = Vec::new();
    for (element, shape) in best {
        for (condition, span) in spans {
            let id = product_id(*element, condition.name(), *shape);
            cases.push(Box::new(Product::new(id, &options.device, *element, *shape, span, options.seed)));
        }
    }
    cases
}

/// What a device of this kind has none of, and why.
pub(super) fn absent(options: &PeakOptions) -> Vec<MissingPeak> {
    if !options.device.is_cpu() {
        return Vec::new();
    }
    let none = |kinds: &[PeakKind], reason: &str| {
        kinds
            .iter()
            .map(|kind| MissingPeak { kind: *kind, dtype: None, reason: reason.to_string() })
            .collect::<Vec<_>>()
    };
    let launches = [PeakKind::Launch, PeakKind::Gap, PeakKind::GraphGap];
    let copies = [PeakKind::HostToDevice, PeakKind::DeviceToHost];
    [
        none(&launches, "a CPU runs an operation where it is called: nothing is launched"),
        none(&copies, "a CPU computes in the host's memory: nothing is copied to it"),
    ]
    .concat()
}

fn product_id(element: Element, condition: &str, shape: ProductShape) -> CaseId {
    CaseId::new(SUITE)
        .param("peak", PeakKind::Flops.name())
        .param("dtype", element.name())
        .param("condition", condition)
        .param("m", shape.m)
        .param("n", shape.n)
        .param("k", shape.k)
}

fn host_streams(options: &PeakOptions, cases: &mut Vec<Box<dyn Case>>) {
    let threads = threads();
    let cache = last_level_cache(&options.device).unwrap_or(UNKNOWN_CACHE);
    // STREAM asks for four times the caches; three arrays have to fit into half of what is free.
    let free = free_memory(&options.device).unwrap_or(u64::MAX) / 6;
    let bytes = if options.quick { 1 << 20 } else { (4 * cache).min(free).max(1 << 20) };
    for kind in [PeakKind::Read, PeakKind::Write, PeakKind::Copy, PeakKind::Triad] {
        let at = format!("{} MiB, {threads} threads", bytes >> 20);
        let id = CaseId::new(SUITE).param("peak", kind.name()).param("at", at);
        cases.push(Box::new(HostStream::new(id, kind, (bytes / 8) as usize, threads)));
    }
}

/// Threads that compute on a CPU: as many as candle uses.
pub(super) fn threads() -> usize {
    let asked = std::env::var(candlescope_core::process_facts::RAYON_NUM_THREADS)
        .ok()
        .and_then(|text| text.parse().ok())
        .filter(|n| *n > 0);
    asked.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, |n| n.get()))
}
