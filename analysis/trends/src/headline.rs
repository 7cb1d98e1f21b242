//! Headline figures of runs.

use super::figure::FIGURES;
use candlescope_reader::ReadLimits;
use candlescope_schema::run::Finding;
use candlescope_sql::{LeftOut, QueryError, Sources, SqlValue, query};
use std::collections::BTreeSet;
use std::str::FromStr;

/// What stands for what a run does not say.
pub const UNKNOWN: &str = "unknown";
/// Why a run is not followed.
const NO_TIME: &str = "it has no run.json that can be read, which would say when it began";

/// By what runs are told apart.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum GroupBy {
    /// The model's name, by `run.json`; [`UNKNOWN`] where it has none.
    Model,
    /// The first GPU, or the processor.
    Device,
    /// The version of candlescope.
    Version,
    /// The machine's name, by `run.json`.
    Host,
    /// The rank of the process.
    Rank,
    /// An option of the run.
    Option(String),
}

impl GroupBy {
    /// What it is called.
    pub fn name(&self) -> &str {
        match self {
            Self::Model => "model",
            Self::Device => "device",
            Self::Version => "version",
            Self::Host => "host",
            Self::Rank => "rank",
            Self::Option(name) => name,
        }
    }

    /// What has its value, of a table with the columns of `runs`.
    fn sql(&self) -> String {
        match self {
            Self::Model => "model_name".to_string(),
            Self::Device => "device_name".to_string(),
            Self::Version => "version".to_string(),
            Self::Host => "host".to_string(),
            Self::Rank => "rank".to_string(),
            Self::Option(name) => format!("get_json_object(options, '$.{name}')"),
        }
    }
}

impl FromStr for GroupBy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Ok(match text {
            "model" => Self::Model,
            "device" | "gpu" => Self::Device,
            "version" => Self::Version,
            "host" | "machine" => Self::Host,
            "rank" => Self::Rank,
            other => match other.strip_prefix("option.") {
                Some(name)
                    if !name.is_empty()
                        && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-')) =>
                {
                    Self::Option(name.to_string())
                }
                _ => return Err(format!("`{text}` is none of model, device, version, host, rank and option.NAME")),
            },
        })
    }
}

/// What is followed of a run.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Headline {
    /// Its name: a directory, or what it is called in an archive.
    pub run: String,
    /// The run of the first rank, where it is one of several ranks of one program: the same for all of them.
    pub first_run: Option<String>,
    /// When it began, Unix nanoseconds.
    pub started_ns: i64,
    /// By what it is told apart.
    pub keys: Vec<String>,
    /// Codes of what is wrong with its data.
    pub verdict: Vec<String>,
    /// Codes of what it was found to lack; `None` where that was not looked for.
    pub findings: Option<Vec<String>>,
    /// The value of each of [`FIGURES`].
    pub values: Vec<Option<f64>>,
}

/// Headline figures of many runs.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Headlines {
    /// Of each run, in order of time.
    pub runs: Vec<Headline>,
    /// What is wrong with the files that were read.
    pub noticed: Vec<Finding>,
    /// Runs that have no place in time, and what of the sources could not be read.
    pub left_out: Vec<LeftOut>,
}

/// Headline figures of runs that began on the day `since` (UTC, as `2026-05-01`) or later.
///
/// Those of archives stand in their index. Those of other runs are computed. A run that does not say when it began is left
/// out.
///
/// # Errors
/// When the runs cannot be asked.
pub fn headlines(
    sources: Sources,
    by: &[GroupBy],
    since: Option<&str>,
    limits: &ReadLimits,
) -> Result<Headlines, QueryError> {
    let mut all = Headlines { left_out: sources.left_out().to_vec(), ..Headlines::default() };
    let keys: Vec<String> =
        by.iter().enumerate().map(|(at, by)| format!("CAST({} AS VARCHAR) AS key_{at}", by.sql())).collect();
    let (archives, others) = sources.apart();
    let since = since.map(|day| day.replace('\'', "''"));
    let since = since.map(|day| format!(" WHERE started_day >= '{day}' OR started_day IS NULL")).unwrap_or_default();
    let figures: Vec<&str> = FIGURES.iter().map(|figure| figure.name).collect();
    let list = |parts: &[String]| parts.iter().map(|part| format!("{part}, ")).collect::<String>();
    for (asked, table, more, findings) in
        [(archives, "archived", "", "coalesce(findings, '')"), (others, "runs", " JOIN headlines USING (run)", "NULL")]
    {
        let Some(asked) = asked else { continue };
        let ranks = "(SELECT run AS of_run, first_run FROM rank_runs) AS ranks";
        let sql = format!(
            "SELECT {table}.run, started_ns, verdict, {findings} AS found, first_run, {}{} FROM {table}{more} LEFT JOIN {ranks} \
             ON of_run = {table}.run{since}",
            list(&keys),
            figures.join(", ")
        );
        let answer = query(&sql, &asked, limits, 0)?;
        all.noticed.extend_from_slice(answer.findings());
        for row in answer.rows {
            let (facts, values) = row.split_at(5 + by.len());
            let text = |at: usize| match &facts[at] {
                SqlValue::Text(text) => Some(text.clone()),
                SqlValue::Int(number) => Some(number.to_string()),
                _ => None,
            };
            // A run may have a finding several times, at several places: it has it.
            let codes = |text: String| {
                let all: BTreeSet<&str> = text.split(',').filter(|code| !code.is_empty()).collect();
                all.into_iter().map(str::to_string).collect()
            };
            let run = text(0).unwrap_or_default();
            let SqlValue::Int(started_ns) = facts[1] else {
                all.left_out.push(LeftOut::new(run, NO_TIME));
                continue;
            };
            all.runs.push(Headline {
                run,
                first_run: text(4),
                started_ns,
                verdict: text(2).map(codes).unwrap_or_default(),
                findings: text(3).map(codes),
                keys: (5..facts.len()).map(|at| text(at).unwrap_or_else(|| UNKNOWN.to_string())).collect(),
                values: values.iter().map(number).collect(),
            });
        }
    }
    all.runs.sort_by(|a, b| (a.started_ns, &a.run).cmp(&(b.started_ns, &b.run)));
    Ok(all)
}

fn number(value: &SqlValue) -> Option<f64> {
    match value {
        SqlValue::Int(value) => Some(*value as f64),
        SqlValue::Float(value) => Some(*value),
        _ => None,
    }
}
