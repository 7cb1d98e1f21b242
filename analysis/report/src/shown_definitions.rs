//! Which definitions a report needs: those of the numbers that it shows.

use super::head_facts::{background, overhead};
use super::headline_figures::figures;
use candlescope_figures::Analysis;
use candlescope_figures::definitions::{DEFINITIONS, Definition};
use candlescope_figures::peaks::{Metric, utilisation};
use std::collections::BTreeSet;

/// The definitions of what the report of a run shows, in their own order.
pub(super) fn shown_definitions(analysis: &Analysis) -> impl Iterator<Item = &'static Definition> {
    let mut keys: BTreeSet<&str> = figures(analysis).iter().map(|figure| figure.definition.key).collect();
    let mut show = |keys_of: &[&'static str], shown: bool| keys.extend(keys_of.iter().filter(|_| shown));
    let (phases, operators) = (&analysis.phases.rows, &analysis.operators);
    show(&["total", "self", "share"], !phases.is_empty() || !operators.is_empty());
    show(&["steps_at_once"], phases.iter().any(|row| row.steps_at_once.is_some()));
    show(&["gflops"], phases.iter().any(|r| r.gflops.is_some()) || operators.iter().any(|o| o.gflops.is_some()));
    show(&["gbytes"], phases.iter().any(|r| r.io_gbytes.is_some()) || operators.iter().any(|o| o.gbytes.is_some()));
    show(
        &["intensity"],
        phases.iter().any(|r| r.work.intensity().is_some()) || operators.iter().any(|o| o.work.intensity().is_some()),
    );
    on_gpu(analysis, &mut show);
    for used in utilisation(analysis) {
        let key = match used.metric {
            Metric::Mfu => "mfu",
            Metric::Hfu => "hfu",
            Metric::Mbu => "mbu",
        };
        show(&[key], true);
    }
    show(&["energy"], !analysis.energy.sensors.is_empty());
    show(&["overhead"], overhead(&analysis.manifest).is_some());
    show(&["background"], background(&analysis.manifest).is_some());
    DEFINITIONS.iter().filter(move |definition| keys.contains(definition.key))
}

fn on_gpu(analysis: &Analysis, show: &mut impl FnMut(&[&'static str], bool)) {
    let gpu = &analysis.gpu;
    let operators = || analysis.operators.iter().filter_map(|operator| operator.gpu.as_ref());
    let elapsed = || gpu.kinds.iter().flat_map(|kind| &kind.elapsed);
    show(&["gpu"], !gpu.kinds.is_empty() || operators().next().is_some());
    show(&["gpu_total"], operators().next().is_some());
    show(&["gpu_self"], operators().any(|g| g.self_ns.is_some()));
    show(&["gpu_share"], operators().any(|g| g.self_share.is_some()));
    show(&["gpu_tflops"], operators().any(|g| g.tflops.is_some()) || elapsed().any(|e| e.tflops.is_some()));
    show(&["gpu_gbytes"], operators().any(|g| g.gbytes.is_some()) || elapsed().any(|e| e.io_gbytes.is_some()));
    show(&["of_wall"], elapsed().any(|e| e.of_wall().is_some()));
    show(&["gpu_idle", "queue_delay", "launches"], gpu.busy.is_some());
    show(&["launches"], analysis.operators.iter().any(|operator| operator.launches_per_call.is_some()));
}
