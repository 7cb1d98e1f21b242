//! Files that commands write into a run's directory unless told otherwise, beside its description and its tables. They
//! are made of these, and can be made again: whoever moves or removes a run's directory tells them from what is
//! somebody's. A command that writes there has its names from here.

use std::path::Path;

/// The page of `report`, and of studies.
pub const REPORT_PAGE: &str = "report.html";
/// The report as Markdown, of `report`.
pub const REPORT_TEXT: &str = "report.md";
/// Every operator, of `report`.
pub const OPERATORS: &str = "operators.md";
/// All figures for programs, of `report`.
pub const METRICS: &str = "metrics.json";
/// What who decides needs, of `report`.
pub const STAKEHOLDER_SUMMARY: &str = "stakeholder_summary.md";
/// What the figures rest on, of `report`.
pub const ASSUMPTIONS: &str = "assumptions.md";
/// What `run.json` says of the machine, of `report`.
pub const ENVIRONMENT: &str = "env.json";
/// What `run.json` says of the configuration, of `report`.
pub const INPUTS: &str = "inputs.yaml";
/// The page of `report` of ranks.
pub const RANKS_PAGE: &str = "ranks.html";
/// The figures of `report` of ranks.
pub const RANKS_JSON: &str = "ranks.json";
/// What `export perfetto` of ranks writes.
pub const RANKS_TRACE: &str = "ranks.pftrace";
/// What `export chrome` writes.
pub const CHROME: &str = "trace.json";
/// What `export perfetto` writes.
pub const PERFETTO: &str = "trace.pftrace";
/// What `export kineto` writes.
pub const KINETO: &str = "kineto.json";
/// The folder of `export kineto` of ranks.
pub const KINETO_FOLDER: &str = "kineto";
/// What `export firefox` writes.
pub const FIREFOX: &str = "firefox.json.gz";
/// What `export pprof` writes.
pub const PPROF: &str = "pprof.pb.gz";
/// What `export stacks` writes of time on the CPU.
pub const STACKS: &str = "stacks.folded";
/// What `export stacks` writes of time off the CPU.
pub const STACKS_OFF_CPU: &str = "stacks-off-cpu.folded";
/// The page of `roofline`.
pub const ROOFLINE_PAGE: &str = "roofline.html";
/// What `roofline` expects of a model on a device, as JSON.
pub const STATIC_ANALYSIS: &str = "static_analysis.json";
/// What `roofline` finds in a run, as JSON.
pub const DYNAMIC_ANALYSIS: &str = "dynamic_analysis.json";

/// What is said of a crash of the command that recorded the run: nothing makes this again.
pub const CRASH: &str = "crash.txt";

/// All that can be made again and has one name.
const ALL: [&str; 21] = [
    REPORT_PAGE,
    REPORT_TEXT,
    OPERATORS,
    METRICS,
    STAKEHOLDER_SUMMARY,
    ASSUMPTIONS,
    ENVIRONMENT,
    INPUTS,
    RANKS_PAGE,
    RANKS_JSON,
    RANKS_TRACE,
    CHROME,
    PERFETTO,
    KINETO,
    FIREFOX,
    PPROF,
    STACKS,
    STACKS_OFF_CPU,
    ROOFLINE_PAGE,
    STATIC_ANALYSIS,
    DYNAMIC_ANALYSIS,
];

/// The file of a request's report, in a form such as `html`.
pub fn of_request(request: u64, form: &str) -> String {
    format!("request-{request}.{form}")
}

/// The file of a rank in [`KINETO_FOLDER`].
pub fn of_rank(rank: u32) -> String {
    format!("rank{rank}.json")
}

/// Whether a path, below a run's directory, is one of these, which can be made again.
pub fn is_made(path: &Path) -> bool {
    let parts: Vec<&str> = path.iter().map(|part| part.to_str().unwrap_or_default()).collect();
    let between = |name: &str, before: &str, after: &str| {
        let number = name.strip_prefix(before).and_then(|rest| rest.strip_suffix(after));
        number.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
    };
    match parts[..] {
        [name] => {
            ALL.contains(&name) || ["html", "md"].iter().any(|form| between(name, "request-", &format!(".{form}")))
        }
        [KINETO_FOLDER, name] => between(name, "rank", ".json"),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_commands_write_is_told_from_what_is_somebodys() {
        let is = |path: &str| is_made(Path::new(path));
        assert!(ALL.into_iter().all(is) && is(&of_request(12, "html")) && is(&of_request(3, "md")));
        assert!(is(&format!("{KINETO_FOLDER}/{}", of_rank(1))));
        for other in
            ["notes.md", "request-.md", "request-1.txt", "kineto/notes.json", "a/report.html", "run.json", CRASH]
        {
            assert!(!is(other), "{other}");
        }
    }
}
