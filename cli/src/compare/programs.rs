//! Two programs side by side, of which one may not link candlescope.

use super::compare_args::CompareArgs;
use super::printed::{colour, told};
use crate::warnings::warn;
use anyhow::{Result, bail};
use candlescope_compare::{Program, Programs};
use candlescope_predict::simulation::{Change, SimulationOptions, what_if};
use candlescope_reader::{ReadLimits, Run};
use candlescope_report::compare as render;
use candlescope_work::estimate::Estimate;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Compares them, if they are programs that are compared so; the exit status.
pub(super) fn compared(
    a: (&Path, &[PathBuf]),
    b: (&Path, &[PathBuf]),
    args: &CompareArgs,
    limits: &ReadLimits,
) -> Result<Option<u8>> {
    let ([one], [other]) = (a.1, b.1) else {
        if args.programs {
            bail!("--programs: give one run of each");
        }
        return Ok(None);
    };
    let (one, other) = (Run::open_within(one, limits.clone())?, Run::open_within(other, limits.clone())?);
    if !args.programs && Program::is_outside(&one) == Program::is_outside(&other) {
        return Ok(None);
    }
    let (name_a, name_b) = names(a.0, b.0);
    let (program_a, program_b) = (program(&name_a, &one)?, program(&name_b, &other)?);
    warn(program_a.noticed.iter().chain(&program_b.noticed));
    let programs = Programs::of(program_a, program_b, &args.judging.options())?;
    let document = || render::document_of_programs(&programs);
    told(&args.judging, &programs, document, || render::text_of_programs(&programs, colour()))?;
    Ok(Some(0))
}

/// The runs' own names, where they differ.
fn names(a: &Path, b: &Path) -> (String, String) {
    let name = |path: &Path| path.file_name().map(|name| name.to_string_lossy().into_owned());
    match (name(a), name(b)) {
        (Some(a), Some(b)) if a != b => (a, b),
        _ => (a.display().to_string(), b.display().to_string()),
    }
}

/// One of them, with what its steps would take as CUDA graphs.
fn program(name: &str, run: &Run) -> Result<Program> {
    let (found, _) = what_if(run, &SimulationOptions::default(), &[vec![Change::Graph]]);
    let graphs: BTreeMap<String, Estimate> = found
        .steps
        .into_iter()
        .filter_map(|steps| Some((steps.name, steps.scenarios.into_iter().next()?.outcome?.seconds)))
        .collect();
    Ok(Program::of(name, run)?.with_graphs(|kind| graphs.get(kind).copied()))
}
