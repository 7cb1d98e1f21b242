//! What each tool asks of which command, and how its answer is made of that.

use super::answer_size::{MOST_BYTES, fitted};
use super::ask_command::{CommandAnswer, CommandCall, ask};
use super::root_folder::RootFolder;
use super::table_columns::tables;
use crate::explain::explained;
use candlescope_reader::{Limit, ReadLimits};
use serde_json::{Map, Value, json};
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Rows of a query, unless told otherwise.
pub(super) const ROWS: u64 = 100;
/// Findings and rows of a table in an analysis.
pub(super) const TOP: u64 = 5;
/// Runs of a list.
pub(super) const RUNS: u64 = 50;
/// Most rows that can be asked for.
pub(super) const MOST_ROWS: u64 = 1_000;
/// How much longer than a query may take a command is waited for: it ends by itself before.
const GRACE: Duration = Duration::from_secs(30);
/// Notes of a command that are handed on.
const MOST_NOTES: usize = 5;

/// The runs of a folder.
const RUNS_SQL: &str = "SELECT run, model_name, device_name, host, rank, started_ns, complete, version, verdict FROM runs \
                        ORDER BY started_ns DESC";
/// The studies of a folder.
const STUDIES_SQL: &str =
    "SELECT dir AS study_dir, min(suite) AS suite, count(*) AS samples FROM results GROUP BY dir ORDER BY dir";

/// What tools stand on.
#[derive(Debug)]
pub(super) struct Tools {
    root: RootFolder,
    program: PathBuf,
    limits: ReadLimits,
}

type Arguments = Map<String, Value>;

impl Tools {
    pub(super) fn new(root: RootFolder, program: PathBuf, limits: ReadLimits) -> Self {
        Self { root, program, limits }
    }

    /// The answer of a tool; `None` if there is none of this name.
    ///
    /// # Errors
    /// What was wrong and what to do, for a model to read.
    pub(super) fn call(&self, tool: &str, of: &Arguments, stop: &AtomicBool) -> Option<Result<String, String>> {
        Some(match tool {
            "list_runs" => self.list_runs(of, stop),
            "overview" => self.overview(of, stop),
            "analyze" => self.analyze(of, stop),
            "query" => self.query(of, stop),
            "compare" => self.compare(of, stop),
            "views" => known(of, &["table"])
                .and_then(|()| tables(of.get("table").map(|_| text(of, "table")).transpose()?, &self.limits))
                .and_then(|found| fitted(found, "Name a `table`.")),
            "finding" => known(of, &["code"])
                .and_then(|()| explained(text(of, "code")?))
                .and_then(|found| fitted(json!(found), "See the page that it names.")),
            _ => return None,
        })
    }

    fn list_runs(&self, of: &Arguments, stop: &AtomicBool) -> Result<String, String> {
        known(of, &["folder", "limit"])?;
        let folder = self.root.inside(of.get("folder").map_or(Ok("."), |_| text(of, "folder"))?)?;
        let limit = number(of, "limit", RUNS)?;
        let (mut runs, notes) = self.json(asked_sql(RUNS_SQL, &folder, limit), stop)?;
        // Without a study its table has no columns.
        let studies =
            self.json(asked_sql(STUDIES_SQL, &folder, limit), stop).map(|(mut found, _)| found["rows"].take());
        let found = json!({ "runs": runs["rows"].take(), "studies": studies.unwrap_or_else(|_| json!([])), "truncated": runs["truncated"] });
        fitted(
            noted(found, &notes),
            "Name a folder further down, or a `limit`; `query` over the table `runs` takes conditions.",
        )
    }

    fn overview(&self, of: &Arguments, stop: &AtomicBool) -> Result<String, String> {
        known(of, &["run"])?;
        let run = self.root.inside(text(of, "run")?)?;
        self.answer(
            asked(&["overview".into(), run, "--json".into()], &[0]),
            stop,
            "`analyze` and `query` have the rest.",
        )
    }

    fn analyze(&self, of: &Arguments, stop: &AtomicBool) -> Result<String, String> {
        known(of, &["run", "top"])?;
        let run = self.root.inside(text(of, "run")?)?;
        let top = number(of, "top", TOP)?.to_string();
        let args = ["analyze".into(), run, "--top".into(), top.into(), "--json".into()];
        let more = "A smaller `top` gives fewer rows of each table; `query` has every row.";
        self.answer(asked(&args, &[0]), stop, more)
    }

    fn query(&self, of: &Arguments, stop: &AtomicBool) -> Result<String, String> {
        known(of, &["run", "sql", "limit"])?;
        let run = self.root.inside(text(of, "run")?)?;
        let asked = asked_sql(text(of, "sql")?, &run, number(of, "limit", ROWS)?);
        self.answer(asked, stop, "Aggregate, name fewer columns, or page with ORDER BY, LIMIT and OFFSET.")
    }

    fn compare(&self, of: &Arguments, stop: &AtomicBool) -> Result<String, String> {
        known(of, &["a", "b", "allow"])?;
        let (a, b) = (self.root.inside(text(of, "a")?)?, self.root.inside(text(of, "b")?)?);
        let mut args: Vec<OsString> = vec!["compare".into(), a, b, "--json".into(), "--no-progress".into()];
        for allowed in words(of, "allow")? {
            args.push(format!("--allow={allowed}").into());
        }
        // Its outcome is its status.
        self.answer(asked(&args, &[0, 1, 2]), stop, "`query` over both runs has every path: see `views`.")
    }

    /// What a command says, as it says it where nothing is to be cut or added.
    fn answer(&self, asked: CommandCall, stop: &AtomicBool, more: &str) -> Result<String, String> {
        let answered = self.ask(asked, stop)?;
        let whole = answered.text.trim();
        if answered.notes.is_empty() && whole.len() <= MOST_BYTES && parsed(&answered).is_ok() {
            return Ok(whole.to_string());
        }
        fitted(noted(parsed(&answered)?, &answered.notes), more)
    }

    /// What a command says, and what it notes beside it.
    fn json(&self, asked: CommandCall, stop: &AtomicBool) -> Result<(Value, Vec<String>), String> {
        let answered = self.ask(asked, stop)?;
        Ok((parsed(&answered)?, answered.notes))
    }

    fn ask(&self, asked: CommandCall, stop: &AtomicBool) -> Result<CommandAnswer, String> {
        let time = Duration::from_secs(self.limits.get(Limit::QuerySeconds)).saturating_add(GRACE);
        ask(&self.program, self.root.dir(), asked, time, stop)
    }
}

fn parsed(answered: &CommandAnswer) -> Result<Value, String> {
    let found = serde_json::from_str(&answered.text);
    found
        .map_err(|error| format!("the command ended with status {} and gave no whole answer: {error}", answered.status))
}

fn asked(args: &[OsString], fine: &'static [i32]) -> CommandCall {
    CommandCall { args: args.to_vec(), stdin: None, fine }
}

/// The query is read, so that it is no option, whatever it is.
fn asked_sql(sql: &str, run: &OsString, limit: u64) -> CommandCall {
    let args: Vec<OsString> =
        vec!["query".into(), "-".into(), run.clone(), "--json".into(), "--limit".into(), limit.to_string().into()];
    CommandCall { args, stdin: Some(sql.to_string()), fine: &[0] }
}

/// Hands warnings on.
fn noted(mut found: Value, notes: &[String]) -> Value {
    if let Some(object) = found.as_object_mut().filter(|_| !notes.is_empty()) {
        object.insert("notes".into(), notes.iter().take(MOST_NOTES).map(|note| Value::from(note.as_str())).collect());
    }
    found
}

/// Refuses arguments that a tool does not have: a misspelt one would change the answer without a word.
fn known(of: &Arguments, names: &[&str]) -> Result<(), String> {
    match of.keys().find(|name| !names.contains(&name.as_str())) {
        Some(other) => Err(format!("there is no argument `{other}`: this tool takes {}", names.join(", "))),
        None => Ok(()),
    }
}

fn text<'a>(of: &'a Arguments, name: &str) -> Result<&'a str, String> {
    of.get(name).and_then(Value::as_str).ok_or_else(|| format!("the argument `{name}` is missing, or no text"))
}

fn number(of: &Arguments, name: &str, default: u64) -> Result<u64, String> {
    let Some(value) = of.get(name).filter(|value| !value.is_null()) else { return Ok(default) };
    let number = value.as_u64().filter(|number| (1..=MOST_ROWS).contains(number));
    number.ok_or_else(|| format!("the argument `{name}` wants a whole number from 1 to {MOST_ROWS}"))
}

fn words<'a>(of: &'a Arguments, name: &str) -> Result<Vec<&'a str>, String> {
    let Some(value) = of.get(name).filter(|value| !value.is_null()) else { return Ok(Vec::new()) };
    let list = value.as_array().map(|list| list.iter().map(Value::as_str).collect::<Option<Vec<_>>>());
    list.flatten().ok_or_else(|| format!("the argument `{name}` wants a list of words"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_checked_and_say_what_they_want() {
        let of = |value: Value| value.as_object().cloned().unwrap();
        let given = of(json!({ "run": "a", "limit": 5, "allow": ["dtype"] }));
        assert_eq!(
            (text(&given, "run"), number(&given, "limit", 1), number(&given, "top", 7)),
            (Ok("a"), Ok(5), Ok(7))
        );
        assert_eq!(words(&given, "allow").unwrap(), ["dtype"]);
        assert!(known(&given, &["run"]).unwrap_err().contains("this tool takes run"));
        let wrong = of(json!({ "run": 1, "limit": 0, "top": 1_001, "allow": "dtype" }));
        assert!(
            text(&wrong, "run").is_err() && number(&wrong, "limit", 1).is_err() && number(&wrong, "top", 1).is_err()
        );
        assert!(words(&wrong, "allow").is_err());
    }
}
