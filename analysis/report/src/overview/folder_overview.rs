//! The overview of a folder that is no run: what it holds, and what to ask of it.

use super::super::format::plural;
use super::next_commands::{command, quoted};
use super::overview_parts::NextCommand;
use super::short_text::{name, sentence};
use serde::Serialize;
use std::path::Path;

/// What a folder holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FolderOf<'a> {
    /// So many runs, and the newest of them.
    Runs(usize, &'a Path),
    /// The ranks of one program: how many, the first one's run, what was found.
    Ranks(usize, &'a Path, &'a str),
    /// A study: the folder has a `study.json`.
    Study,
}

/// What a folder holds, and what to ask of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct FolderOverview {
    /// Version of this layout.
    pub schema: u32,
    /// `runs`, `ranks` or `study`.
    pub kind: &'static str,
    /// The folder, as it was given; cut at its begin where it is long.
    pub run: String,
    /// Runs in the folder, or ranks of the program; `None` for a study.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runs: Option<usize>,
    /// What it is, in a sentence.
    pub text: String,
    /// Commands that go on from here.
    pub next: Vec<NextCommand>,
}

impl FolderOverview {
    /// What `dir` holds, and the commands that suit it; nothing is read from the disk.
    pub fn of(dir: &Path, holds: FolderOf<'_>) -> Self {
        let folder = quoted(dir);
        let table = |sql: &str, why: &str| command(format!("candlescope query \"{sql}\" {folder} --json"), why);
        let one = |run: &Path, why: &str| command(format!("candlescope overview {} --json", quoted(run)), why);
        let (kind, runs, text, next) = match holds {
            FolderOf::Runs(count, newest) => (
                "runs",
                Some(count),
                format!("a folder of {}: an overview is of one of them", plural(count as u64, "run")),
                vec![
                    one(newest, "the newest of them, by name"),
                    table(
                        "SELECT run, model_name, device_name, started_day, verdict FROM runs ORDER BY started_ns DESC",
                        "all of them",
                    ),
                    table("SELECT * FROM headlines", "their headline figures side by side"),
                    command(format!("candlescope summary {folder} --json"), "what changed over time"),
                    command("candlescope compare A B --json".to_string(), "whether one is better than another"),
                ],
            ),
            FolderOf::Ranks(count, first, found) => (
                "ranks",
                Some(count),
                format!("{count} ranks of one program. {found}"),
                vec![
                    command(format!("candlescope analyze {folder} --json"), "what ranks lose to each other"),
                    one(first, "one rank by itself"),
                    table("SELECT * FROM stragglers", "which rank the others wait for"),
                ],
            ),
            FolderOf::Study => (
                "study",
                None,
                "a study: samples of each case are in results.parquet, the page is report.html".to_string(),
                vec![
                    table("SELECT * FROM results LIMIT 20", "its samples"),
                    table("SELECT * FROM columns WHERE table_name = 'results'", "what its samples have"),
                    command(format!("candlescope compare {folder} OTHER --json"), "whether another study is better"),
                ],
            ),
        };
        Self { schema: 1, kind, run: name(&dir.display().to_string()), runs, text: sentence(&text), next }
    }

    /// The folder and what it holds in a line, then each command with what it answers below it.
    pub fn text(&self) -> String {
        let next = self.next.iter().map(|next| format!("  {}\n      {}", next.command, next.why));
        format!("{}: {}\n{}", self.run, self.text, next.collect::<Vec<_>>().join("\n"))
    }
}
