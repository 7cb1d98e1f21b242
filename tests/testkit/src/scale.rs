//! A run of any size, step by step, with as many kernels as intervals: what an analysis of many rows is measured with.

use crate::decoder::{Decoder, Spread};
use crate::records::{self, T0, with};
use crate::scenario::{Scenario, account};
use candlescope_core::run::{LossCounts, RunManifest};
use candlescope_core::{Batch, HostNs, KernelRecord, RecordKind, RequestRecord};
use serde_json::json;
use std::collections::BTreeMap;

/// Prompt tokens, and steps of a request.
const PROMPT: u32 = 64;
const STEPS: u32 = 128;

/// Hands on the records of a decoder of 30 layers on a GPU, a batch for each step, until there are at least `rows`
/// intervals and as many kernels. Returns the manifest that agrees with them.
pub fn steps(rows: u64, mut take: impl FnMut(&Batch)) -> RunManifest {
    let mut decoder = Decoder {
        annotated: true,
        gpu: true,
        full_every: 1,
        gpu_percent: 80,
        recorded: 0..u64::MAX,
        spread: Spread::LogNormal,
        ..Decoder::new(42)
    };
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    let mut total = |batch: &Batch, take: &mut dyn FnMut(&Batch)| {
        RecordKind::ALL.iter().for_each(|&kind| *counts.entry(kind.table()).or_default() += batch.count(kind));
        take(batch);
        counts.clone()
    };
    let (mut so_far, mut correlation) = (BTreeMap::new(), 0);
    let mut facts = Batch::default();
    let count = |so_far: &BTreeMap<&str, u64>, kind: RecordKind| so_far.get(kind.table()).copied().unwrap_or(0);
    while count(&so_far, RecordKind::Span) < rows {
        decoder.request += 1;
        let begun = decoder.now;
        let mut ttft = 0;
        for at in 0..STEPS {
            decoder.now += 15_000;
            match at {
                0 => decoder.forward("prefill", PROMPT, PROMPT),
                _ => decoder.forward("decode", 1, PROMPT + at),
            }
            ttft = if at == 0 { decoder.now - begun } else { ttft };
            let mut batch = std::mem::take(&mut decoder.batch);
            let missing = batch.spans.len().saturating_sub(batch.kernels.len());
            batch.kernels = batch.kernels.iter().enumerate().flat_map(|(at, one)| second(one, at < missing)).collect();
            for kernel in &mut batch.kernels {
                correlation += 1;
                kernel.correlation = correlation;
            }
            if facts.steps.is_empty() {
                facts.spans = batch.spans.clone();
                facts.kernels = batch.kernels.clone();
                facts.steps = batch.steps.clone();
            }
            so_far = total(&batch, &mut take);
            if count(&so_far, RecordKind::Span) >= rows {
                break;
            }
        }
        let request = served(&decoder, begun, ttft as u64);
        so_far = total(&with(Batch::default(), |batch| batch.requests.push(request)), &mut take);
    }
    manifest(&facts, &so_far, decoder.now)
}

/// A kernel, and a short second one of the same interval that runs when it has ended, as the reduction of a product is.
fn second(one: &KernelRecord, also: bool) -> impl Iterator<Item = KernelRecord> {
    let after = also.then(|| {
        with(one.clone(), |kernel| {
            kernel.name = "void cublasLt::splitKreduce_kernel<32, 16>(Params)".into();
            kernel.gpu_start = one.gpu_start.plus_ns(one.gpu_dur_ns);
            kernel.gpu_dur_ns = one.gpu_dur_ns / 8;
            kernel.launch_start = one.launch_start.map(|at| at.plus_ns(one.launch_dur_ns.unwrap_or(0)));
        })
    });
    std::iter::once(one.clone()).chain(after)
}

fn served(decoder: &Decoder, begun: i64, ttft_ns: u64) -> RequestRecord {
    with(records::request(decoder.request, begun - T0, 0), |r| {
        r.trace_id = decoder.trace;
        r.host_dur_ns = HostNs(decoder.now).since(HostNs(begun));
        r.ttft_ns = Some(ttft_ns);
        r.prompt_tokens = Some(u64::from(PROMPT));
        r.output_tokens = Some(u64::from(STEPS));
        r.batch = Some(1);
    })
}

/// `facts` are the records of one step.
fn manifest(facts: &Batch, counts: &BTreeMap<&str, u64>, end: i64) -> RunManifest {
    let counts: BTreeMap<String, u64> = counts.iter().map(|(table, n)| (table.to_string(), *n)).collect();
    let mut manifest = RunManifest { run_id: "scale".to_string(), ..records::manifest(facts) };
    account(&Scenario { full_every: 1, ..Scenario::on_gpu() }, facts, &mut manifest);
    if let Some(gpu) = &mut manifest.gpu {
        let (steps, kernels) = (counts["steps"], counts["kernels"]);
        (gpu.steps_full, gpu.steps_partial) = (steps, 0);
        if let Some(recorded) = &mut gpu.kernels {
            (recorded.steps, recorded.recorded) = (steps, kernels);
        }
    }
    manifest.ended_ns = Some(end);
    manifest.model.insert("dtype".to_string(), json!("bf16"));
    manifest.loss = LossCounts { emitted: counts["spans"], ..LossCounts::default() };
    for exporter in &mut manifest.exporters {
        (exporter.received, exporter.exported) = (counts.clone(), counts.clone());
    }
    manifest.counts = counts;
    manifest
}
