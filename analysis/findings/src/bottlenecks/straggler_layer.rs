//! Layers that take longer than their siblings.
//!
//! Of CUDA graphs whose capture nobody saw it is derived which kernels are a layer's, and so is a mean over any of these.

use super::draft::{Draft, RuleResults};
use super::query::layer as layer_query;
use super::scene::{Scene, StepScene};
use super::spread::{beyond, quartiles};
use super::two_lines::Relief;
use candlescope_figures::Layer;
use candlescope_figures::advice::{AdviceCode, ConfidenceLevel, Missing};
use std::collections::BTreeMap;

/// Fewer siblings have no spread.
const FEWEST: usize = 6;
/// A layer this much above the median is one that takes longer.
const ABOVE: f64 = 1.10;

pub(super) fn find(scene: &Scene<'_>, step: &StepScene<'_>, out: &mut RuleResults) {
    let code = AdviceCode::StragglerLayer;
    let mut siblings: BTreeMap<&str, Vec<(&Layer, f64)>> = BTreeMap::new();
    for layer in scene.analysis.layers.iter().filter(|layer| step.has(&layer.path.path)) {
        let mean = |ns: u64, calls: u64| (calls > 0).then(|| ns as f64 / calls as f64);
        let mean = if scene.on_gpu { mean(layer.gpu_ns, layer.gpu_calls) } else { mean(layer.host_ns, layer.calls) };
        if let Some(mean) = mean {
            siblings.entry(&layer.path.rollup).or_default().push((layer, mean));
        }
    }
    let any = !siblings.is_empty();
    siblings.retain(|_, layers| layers.len() >= FEWEST);
    if siblings.is_empty() {
        return out.abstain(code, step, if any { Missing::MoreLayers } else { Missing::Layers });
    }
    // Marks tell the layers' time on the device, not whether the step is as long as the device's line.
    if scene.on_gpu && step.work.is_none() {
        return out.abstain(code, step, Missing::Kernels);
    }
    for layers in siblings.values() {
        let Some(quartiles) = quartiles(layers.iter().map(|(_, mean)| *mean).collect()) else { continue };
        let late = layers.iter().filter(|(_, mean)| *mean > beyond(quartiles).max(ABOVE * quartiles.1));
        for (layer, mean) in late {
            let steps = match step.work {
                // Its replays are in steps with recorded kernels.
                Some(work) if layer.replayed > 0 => work.steps,
                _ if scene.on_gpu => step.row.steps,
                _ => step.usual_steps(),
            };
            let excess = (mean - quartiles.1) * layer.calls as f64 / steps.max(1) as f64;
            // On a CPU its share of the usual steps, in which layers are measured.
            let of_step = step.usual_mean_ns().filter(|_| !scene.on_gpu).map_or(1.0, |ns| step.lines.t / ns);
            let is_derived = |layer: &Layer| scene.on_gpu && layer.derived > 0;
            let are_derived = layers.iter().any(|(layer, _)| is_derived(layer));
            let reason = if are_derived {
                "which kernels of a graph are a layer's is derived; some layers may have more to do than others"
            } else {
                "measured; some layers may have more to do than others"
            };
            let calls = if scene.on_gpu { layer.gpu_calls } else { layer.calls };
            let paths: Vec<&str> = layers.iter().map(|(layer, _)| &*layer.path.path).collect();
            let path = &layer.path.path;
            let draft = Draft::new(code, step)
                .at(|place| {
                    let mut place = place.path(path);
                    place.module = layer.path.module.as_ref().map(ToString::to_string);
                    place
                })
                .steps(steps)
                .measured_unless(is_derived(layer), "mean_ns", "ns", *mean, calls)
                .measured_unless(are_derived, "siblings_ns", "ns", quartiles.1, layers.len() as u64)
                .derived("excess_ns", "ns", excess, layer.calls)
                .query(layer_query(step, scene.on_gpu, path, &paths))
                .sure(ConfidenceLevel::Medium, reason);
            let change = |rate: f64| {
                if scene.on_gpu {
                    Relief::Device(excess * rate)
                } else {
                    Relief::Operation(path.to_string(), excess * of_step * rate)
                }
            };
            out.found.push(draft.relief(change));
        }
    }
}
