//! Utilisation maps: layer × operator of a run, batch × context of one or several runs.

use super::points::multiplied;
use candlescope_figures::Analysis;
use candlescope_reader::Run;
use candlescope_schema::{Phase, RecordKind, SpanRecord, StepRecord};
use candlescope_work::devices::{Multiply, Roof};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// Most cells of a map of layers: a program that numbers thousands of things is no model.
const MOST_CELLS: usize = 50_000;

/// What the intervals or steps of one cell come to.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct HeatCell {
    /// Intervals of the operator in the layer, or decoding steps of one run; those of the warm-up are left out.
    pub n: u64,
    /// Nanoseconds of one, mean.
    pub ns: f64,
    /// Achieved ÷ attainable under one device's share of the run's first roof; above 1 where something is wrong with
    /// time, work or peak.
    pub utilisation: Option<f64>,
}

/// A map of utilisation by two properties, of intervals or of steps.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HeatMap {
    /// The phase that it shows; of batch × context always `decode`.
    pub title: String,
    /// What rows stand for: `layer` or `batch`.
    pub row: &'static str,
    /// What columns stand for: `operator` or `context`.
    pub column: &'static str,
    /// Names of the rows.
    pub rows: Vec<String>,
    /// Names of the columns.
    pub columns: Vec<String>,
    /// Cells by row and column; `None` where nothing was recorded.
    pub cells: Vec<Vec<Option<HeatCell>>>,
}

/// Sums of a cell.
#[derive(Debug, Clone, Copy, Default)]
struct Sums {
    n: u64,
    ns: f64,
    flops: f64,
    bytes: f64,
    /// All of them stated their bytes with activations.
    whole: bool,
}

impl Sums {
    fn add(&mut self, ns: u64, flops: Option<u64>, io_bytes: Option<u64>) {
        self.whole = (self.n == 0 || self.whole) && io_bytes.is_some();
        self.n += 1;
        self.ns += ns as f64;
        self.flops += flops.unwrap_or(0) as f64;
        self.bytes += io_bytes.unwrap_or(0) as f64;
    }

    fn cell(&self, roof: Option<&Roof>, multiply: Option<Multiply>) -> HeatCell {
        let seconds = self.ns / 1e9;
        let utilisation = roof
            .filter(|_| self.whole && self.ns > 0.0)
            .and_then(|roof| roof.utilisation(self.flops / seconds, self.bytes / seconds, multiply));
        HeatCell { n: self.n, ns: self.ns / self.n.max(1) as f64, utilisation }
    }
}

/// Layer × operator, one map a phase. An operator is an interval that states its own work; its layer is the first
/// number in its module's name or in its path.
pub(super) fn layers(run: &Run, analysis: &Analysis, roof: Option<&Roof>) -> Vec<HeatMap> {
    let on_gpu = analysis.ran_on_gpu();
    let roof = roof.map(Roof::of_one);
    let mut sums: BTreeMap<(Phase, u64, String), Sums> = BTreeMap::new();
    for batch in run.table(RecordKind::Span) {
        for span in batch.spans.iter().filter(|span| !analysis.warmup.has_step(span.step)) {
            let Some((phase, layer, name)) = place(span) else { continue };
            // Without a time of its own, an interval of a GPU says nothing: its host returns before the work is done.
            let ns = match span.gpu {
                Some(gpu) => gpu.dur_ns,
                None if on_gpu => continue,
                None => span.host_dur_ns,
            };
            let key = (phase, layer, name);
            if sums.len() < MOST_CELLS || sums.contains_key(&key) {
                sums.entry(key).or_default().add(ns, span.flops, span.io_bytes);
            }
        }
    }
    let phases: BTreeSet<Phase> = sums.keys().map(|key| key.0).collect();
    let map = |phase: Phase| {
        let own: BTreeMap<(u64, &str), &Sums> = sums
            .iter()
            .filter(|(key, _)| key.0 == phase)
            .map(|((_, layer, name), s)| ((*layer, name.as_str()), s))
            .collect();
        let layers: BTreeSet<u64> = own.keys().map(|key| key.0).collect();
        let names: BTreeSet<&str> = own.keys().map(|key| key.1).collect();
        let multiply = multiplied(analysis, phase.as_str());
        let cells = |layer: u64| -> Vec<Option<HeatCell>> {
            names.iter().map(|name| own.get(&(layer, *name)).map(|sums| sums.cell(roof.as_ref(), multiply))).collect()
        };
        HeatMap {
            title: phase.as_str().to_string(),
            row: "layer",
            column: "operator",
            rows: layers.iter().map(u64::to_string).collect(),
            columns: names.iter().map(|name| name.to_string()).collect(),
            cells: layers.iter().map(|layer| cells(*layer)).collect(),
        }
    };
    phases.into_iter().map(map).collect()
}

/// The phase, layer and operator of an interval that states its own work.
fn place(span: &SpanRecord) -> Option<(Phase, u64, String)> {
    if span.flops.is_none() && span.io_bytes.is_none() {
        return None;
    }
    let phase = span.phase?;
    if let Some(module) = &span.path.module {
        let mut words = module.split('.').skip_while(|word| word.parse::<u64>().is_err());
        if let Some(layer) = words.next().and_then(|word| word.parse().ok()) {
            let name = words.collect::<Vec<_>>().join(".");
            return (!name.is_empty()).then_some((phase, layer, name));
        }
    }
    let (_, rest) = span.path.path.split_once('[')?;
    let (layer, rest) = rest.split_once(']')?;
    let name = rest.strip_prefix('/')?;
    Some((phase, layer.parse().ok()?, name.to_string()))
}

/// Decoding steps of several runs by batch and context, contexts in doubling ranges. Each run is held against its own
/// first roof.
pub(super) fn contexts(runs: &[(&Run, &Analysis, Option<&Roof>)]) -> Option<HeatMap> {
    let mut cells: BTreeMap<(u64, u32), HeatCell> = BTreeMap::new();
    for (run, analysis, roof) in runs {
        let on_gpu = analysis.ran_on_gpu();
        let mut own: BTreeMap<(u64, u32), Sums> = BTreeMap::new();
        let measured =
            |step: &&StepRecord| step.phase == Some(Phase::Decode) && !analysis.warmup.has_step(Some(step.step));
        for batch in run.table(RecordKind::Step) {
            for step in batch.steps.iter().filter(measured) {
                let Some(context) = step.context_len.filter(|context| *context > 0) else { continue };
                let ns = match step.gpu {
                    Some(gpu) => gpu.dur_ns,
                    None if on_gpu => continue,
                    None => step.host_dur_ns,
                };
                let sequences = u64::from(step.sequences.or(step.batch).unwrap_or(1));
                own.entry((sequences, context.ilog2())).or_default().add(ns, step.flops, step.io_bytes);
            }
        }
        let multiply = multiplied(analysis, Phase::Decode.as_str());
        let roof = roof.map(Roof::of_one);
        for (key, sums) in own {
            let cell = sums.cell(roof.as_ref(), multiply);
            // Of two runs with the same batch and context, the one with more steps stands.
            cells
                .entry(key)
                .and_modify(|known| {
                    if known.n < cell.n {
                        *known = cell
                    }
                })
                .or_insert(cell);
        }
    }
    let batches: BTreeSet<u64> = cells.keys().map(|key| key.0).collect();
    let contexts: BTreeSet<u32> = cells.keys().map(|key| key.1).collect();
    (!cells.is_empty()).then(|| HeatMap {
        title: "decode".to_string(),
        row: "batch",
        column: "context",
        rows: batches.iter().map(u64::to_string).collect(),
        columns: contexts.iter().map(|log| format!("{}–{}", 1u64 << log, (1u64 << (log + 1)) - 1)).collect(),
        cells: batches
            .iter()
            .map(|batch| contexts.iter().map(|log| cells.get(&(*batch, *log)).copied()).collect())
            .collect(),
    })
}
