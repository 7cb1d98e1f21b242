//! Resident memory that was sampled over too small a part of the run to know its peak: a single sample at the start
//! shows the memory of an empty process.

use crate::Analysis;
use crate::memory::RESIDENT;
use candlescope_schema::run::{Code, Finding};

pub(super) fn find(run: &Analysis) -> Vec<Finding> {
    let Some(resident) = run.memory.host(RESIDENT) else { return Vec::new() };
    let covered = resident.points.first().zip(resident.points.last()).map_or(0, |(a, b)| b.0.abs_diff(a.0));
    let wall_ns = run.phases.wall_ns;
    if wall_ns == 0 || covered >= wall_ns / 2 {
        return Vec::new();
    }
    let message = match resident.n {
        1 => {
            "resident memory has {samples} sample over {covered} of the {wall} that steps and requests took: its peak \
             may have been missed"
        }
        _ => {
            "resident memory has {samples} samples over {covered} of the {wall} that steps and requests took: its peak \
             may have been missed"
        }
    };
    let finding = Finding::new(Code::MemoryUndersampled, message, "Run longer, or sample more often");
    vec![finding.count("samples", resident.n).ns("covered", covered).ns("wall", wall_ns)]
}
