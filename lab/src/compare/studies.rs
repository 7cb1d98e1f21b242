//! Studies as cases with values by process start.

use super::error::CompareFailed;
use crate::method::Sample;
use crate::study::{CaseSummary, Study, summaries};
use candlescope_compare::{CaseValues, CasesSide, RunFacts, RunFigure};
use candlescope_core::study_files::JOURNAL_FILE;
use candlescope_figures::stats::percentile_of;
use candlescope_reader::{ReadLimits, Run};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// The cases of studies; where there are several studies, the name of each stands before its cases.
///
/// # Errors
/// When a study cannot be read, or none of them has a sample and the file with the samples of one is not there.
pub fn cases_of(name: &str, studies: &[(String, PathBuf)], limits: &ReadLimits) -> Result<CasesSide, CompareFailed> {
    let mut side = CasesSide { name: name.to_string(), ..CasesSide::default() };
    for (prefix, dir) in studies {
        let study = Study::open(dir)?;
        let records = study.records()?;
        let fingerprint = study.manifest().fingerprint();
        if side.cases.is_empty() {
            side.fingerprint = fingerprint.clone();
        }
        let measured = summaries(&study.manifest().cases, &records);
        if !prefix.is_empty() && measured.iter().any(|summary| !summary.plain.is_empty()) {
            side.studies.insert(prefix.clone(), fingerprint);
        }
        for summary in measured {
            let key = match prefix.is_empty() {
                true => summary.case.key(),
                false => format!("{prefix}: {}", summary.case.key()),
            };
            // A case that gave no samples, such as one that did not fit into memory, has nothing to be compared.
            if !summary.plain.is_empty() {
                side.cases.insert(key, values(&study, &summary, limits));
            }
        }
    }
    // A study that was copied without it would have no case, and nobody would know why.
    let without_samples = || studies.iter().find(|(_, dir)| !dir.join(JOURNAL_FILE).exists());
    match without_samples().filter(|_| side.cases.is_empty()) {
        Some((_, dir)) => Err(CompareFailed::NoTarget {
            path: dir.clone(),
            what: format!("its {JOURNAL_FILE}, which has the samples that are compared, is not there"),
        }),
        None => Ok(side),
    }
}

fn values(study: &Study, summary: &CaseSummary, limits: &ReadLimits) -> CaseValues {
    let names: BTreeSet<&String> = summary.plain.iter().flat_map(|sample| sample.measurement.figures.keys()).collect();
    let mut figures: BTreeMap<String, Vec<RunFigure>> = BTreeMap::new();
    let mut add = |name: &str, of: &dyn Fn(&Sample) -> Option<f64>| {
        if let Some(values) = by_process(summary.plain.iter(), of) {
            figures.insert(name.to_string(), values);
        }
    };
    add("host_ns", &|sample| Some(sample.measurement.host_ns as f64));
    add("device_ns", &|sample| sample.measurement.device_ns.map(|ns| ns as f64));
    add("energy_mj", &|sample| sample.measurement.energy_mj);
    for name in names {
        add(name, &|sample| sample.measurement.figures.get(name).copied());
    }
    // On a CPU the first sample of a start has it.
    let with_memory = summary.plain.iter().filter(|sample| sample.measurement.memory_bytes.is_some());
    if let Some(values) = by_process(with_memory, &|sample| sample.measurement.memory_bytes.map(|bytes| bytes as f64)) {
        figures.insert("memory_bytes".to_string(), values);
    }
    let run = summary.last_run().map(|run| study.dir().join(run));
    CaseValues {
        decisive: if figures.contains_key("device_ns") { "device_ns" } else { "host_ns" }.to_string(),
        figures,
        recorded: run.and_then(|dir| Run::open_within(dir, limits.clone()).ok()).map(|run| RunFacts::of(&run)),
    }
}

/// The median of each process start; the samples of a single one are its parts. `None` if a sample lacks the figure.
fn by_process<'a>(
    samples: impl Iterator<Item = &'a Sample>,
    of: &dyn Fn(&Sample) -> Option<f64>,
) -> Option<Vec<RunFigure>> {
    let mut processes: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
    for sample in samples {
        processes.entry(sample.process).or_default().push(of(sample)?);
    }
    if processes.is_empty() {
        return None;
    }
    let single = processes.len() == 1;
    let values = processes.into_values().map(|values| {
        let value = percentile_of(&values, 0.5)?;
        Some(RunFigure { value, parts: if single { values } else { Vec::new() } })
    });
    values.collect()
}
