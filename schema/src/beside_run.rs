//! Files that commands write into a run's directory unless told otherwise, beside its description and its tables. They
//! are made of these, and can be made again: whoever moves or removes a run's directory tells them from what is
//! somebody's. A command that writes there has its names from here.

use std::path::Path;

/// Pages, texts and figures of `report`.
pub const REPORT_PAGE: &str = "report.html";
/// Of the same.
pub const REPORT_TEXT: &str = "report.md";
/// Of the same.
pub const OPERATORS: &str = "operators.md";
/// Of the same.
pub const METRICS: &str = "metrics.json";
/// Of the same.
pub const STAKEHOLDER_SUMMARY: &str = "stakeholder_summary.md";
/// Of the same.
pub const ASSUMPTIONS: &str = "assumptions.md";
/// Of the same: what `run.json` says of the machine.
pub const ENVIRONMENT: &str = "env.json";
/// Of the same: what `run.json` says of the configuration.
pub const INPUTS: &str = "inputs.yaml";
/// `report` of ranks.
pub const RANKS_PAGE: &str = "ranks.html";
/// Of the same.
pub const RANKS_JSON: &str = "ranks.json";
/// `export perfetto` of ranks.
pub const RANKS_TRACE: &str = "ranks.pftrace";
/// `export chrome`.
pub const CHROME: &str = "trace.json";
/// `export perfetto`.
pub const PERFETTO: &str = "trace.pftrace";
/// `export kineto`.
pub const KINETO: &str = "kineto.json";
/// The folder of `export kineto` of ranks.
pub const KINETO_FOLDER: &str = "kineto";
/// `export firefox`.
pub const FIREFOX: &str = "firefox.json.gz";
/// `export pprof`.
pub const PPROF: &str = "pprof.pb.gz";
/// `export stacks`.
pub const STACKS: &str = "stacks.folded";
/// The same off the CPU.
pub const STACKS_OFF_CPU: &str = "stacks-off-cpu.folded";
/// `roofline`.
pub const ROOFLINE_PAGE: &str = "roofline.html";
/// Of the same.
pub const STATIC_ANALYSIS: &str = "static_analysis.json";
/// Of the same.
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
