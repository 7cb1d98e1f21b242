//! Findings from the figures of a run: what stands out, and where figures contradict each other. One rule per file,
//! listed here.
//!
//! A rule looks at an [`Analysis`] and returns findings with the numbers they rest on; it never formats one. What
//! follows from `run.json` alone is not judged by a rule of this crate but by the schema's ([`judge`]), at the end of a run
//! and here.
//!
//! `CONTRIBUTING.md` has the walk "Add a finding".

mod nsys_profile;

use crate::Analysis;
use candlescope_schema::run::{Code, Finding, Verdict, judge};

/// Looks for one problem. The verdict of the analysis already has the findings of the session, of the manifest and of
/// reading the run.
type Rule = fn(&Analysis) -> Vec<Finding>;

/// Declares the file of each rule, and all rules, in the order in which findings of the same severity are listed.
macro_rules! rules {
    ($($rule:ident),+ $(,)?) => {
        $(mod $rule;)+

        const RULES: &[Rule] = &[$($rule::find,)+];
    };
}

rules![
    machine_by_means,
    rows,
    steps_sampled,
    no_intervals,
    impossible_parents,
    orphans,
    utilisation,
    unaccounted,
    overhead,
    context_growth,
    memory_sampling,
    few_requests,
    prompts_hold_up,
    phases_unmarked,
    gpu_time_absent,
    kernels_outside,
    gpu_parents,
    gpu_outlasts_steps,
    gpu_time_untold,
    energy_sensors,
    gpu_throttled,
    graphs_not_replayed,
];

/// The run's own verdict, what its manifest and reading it show, and what the figures show.
///
/// A code that the session found is not judged again: the session knew more, and the user has seen its message.
pub(crate) fn verdict(mut analysis: Analysis, has_manifest: bool) -> Analysis {
    let mut known = Verdict::of(analysis.manifest.verdict.findings.clone());
    if has_manifest {
        let judged = judge(&analysis.manifest);
        let new = judged.into_iter().filter(|finding| !is_told(&analysis.manifest.verdict.findings, &finding.code));
        new.for_each(|finding| known.add(finding));
    }
    analysis.noticed.iter().for_each(|finding| known.add(finding.clone()));
    analysis.verdict = known;
    let found: Vec<Finding> = RULES.iter().flat_map(|rule| rule(&analysis)).collect();
    let new: Vec<Finding> =
        found.into_iter().filter(|finding| !is_told(&analysis.verdict.findings, &finding.code)).collect();
    analysis.verdict.join(new);
    analysis
}

fn is_told(findings: &[Finding], code: &Code) -> bool {
    findings.iter().any(|known| known.code == *code)
}
