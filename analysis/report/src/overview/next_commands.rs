//! Commands that go on from an overview.

use super::overview_parts::NextCommand;
use candlescope_figures::Analysis;
use candlescope_figures::advice::AdviceCode;
use std::path::Path;

/// The longest path, quoted, that stands in each command.
const LONGEST: usize = 160;
/// What stands for a path that is longer, or that is no text.
pub(super) const PLACEHOLDER: &str = "RUN";

/// A path as a shell takes it; [`PLACEHOLDER`] for one that is too long to be said again and again.
pub(super) fn quoted(path: &Path) -> String {
    let text = path.to_str().and_then(|text| {
        // What looks like an option is none.
        let text = if text.starts_with('-') { format!("./{text}") } else { text.to_string() };
        shlex::try_quote(&text).ok().map(std::borrow::Cow::into_owned)
    });
    text.filter(|text| text.len() <= LONGEST && !text.contains(char::is_control))
        .unwrap_or_else(|| PLACEHOLDER.to_string())
}

pub(super) fn command(command: String, why: impl Into<String>) -> NextCommand {
    NextCommand { command, why: why.into() }
}

/// Of a run: first what its findings lead to.
pub(super) fn of_run(analysis: &Analysis) -> Vec<NextCommand> {
    let run = quoted(&analysis.dir);
    let findings = || analysis.diagnosis.iter().flat_map(|diagnosis| &diagnosis.findings);
    let mut next = Vec::new();
    if let Some(first) = findings().next() {
        let code = first.code.as_str();
        next.push(command(
            format!("candlescope analyze {run} --json | jq -r '.findings[0].query' | candlescope query - {run} --json"),
            format!("the rows behind {code}; `at` of a finding is its number"),
        ));
    }
    next.push(command(
        format!("candlescope analyze {run} --json"),
        "every finding with evidence, what could not be judged, the account of the devices' time",
    ));
    if findings().any(|found| found.code == AdviceCode::LaunchBound) {
        let why = "what a step would take as a CUDA graph";
        next.push(command(format!("candlescope analyze {run} --what-if graph --json"), why));
    }
    next.push(command(
        format!("candlescope query 'SELECT * FROM operators ORDER BY self_ns DESC LIMIT 20' {run} --json"),
        "more paths; `SELECT * FROM columns` lists what there is to ask",
    ));
    if analysis.latency.requests.len() > 2 {
        let slowest =
            analysis.latency.requests.iter().filter(|request| !request.warmup).max_by_key(|request| request.dur_ns);
        next.extend(slowest.map(|request| {
            let command_of = format!("candlescope report {run} --request {} --json", request.request);
            command(command_of, "why the slowest request was slow")
        }));
    }
    next.push(command(
        format!("candlescope report {run}"),
        "report.html with charts and flame graph, metrics.json with all figures",
    ));
    next.push(command(
        format!("candlescope compare {run} OTHER --json"),
        "whether another run is better, beyond what is noise",
    ));
    next
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_one_word_of_a_shell() {
        for path in ["runs/a", "it's a run", "-x", "a;rm -rf b", "$(a)", "ä\u{1f600}"] {
            let words = shlex::split(&quoted(Path::new(path))).expect("words");
            assert_eq!(words.len(), 1, "{path}");
            assert!(words[0] == path || words[0] == format!("./{path}"), "{path}");
        }
        assert_eq!(quoted(Path::new(&"a".repeat(300))), PLACEHOLDER);
        assert_eq!(quoted(Path::new("a\u{1b}[2J")), PLACEHOLDER);
    }
}
