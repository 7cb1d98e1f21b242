//! What is known of runs without reading their tables: the table `runs`.

use candlescope_schema::numbers::day;
use candlescope_schema::run::{RunManifest, env_key, model_key};
use datafusion::arrow::array::{ArrayRef, BooleanArray, Int64Array, RecordBatch, StringViewArray};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::arrow::error::ArrowError;
use serde_json::{Value, json};
use std::sync::Arc;

/// How a column is made of a manifest.
#[derive(Clone, Copy)]
enum FactSource {
    Text(fn(&RunManifest) -> Option<String>),
    Int(fn(&RunManifest) -> Option<i64>),
    Bool(fn(&RunManifest) -> Option<bool>),
}

/// A column of `runs`.
#[derive(Clone, Copy)]
pub(super) struct Fact {
    pub(super) name: &'static str,
    pub(super) meaning: &'static str,
    of: FactSource,
}

impl Fact {
    const fn text(name: &'static str, meaning: &'static str, of: fn(&RunManifest) -> Option<String>) -> Self {
        Self { name, meaning, of: FactSource::Text(of) }
    }

    const fn int(name: &'static str, meaning: &'static str, of: fn(&RunManifest) -> Option<i64>) -> Self {
        Self { name, meaning, of: FactSource::Int(of) }
    }

    pub(super) fn kind(&self) -> DataType {
        match self.of {
            FactSource::Text(_) => DataType::Utf8View,
            FactSource::Int(_) => DataType::Int64,
            FactSource::Bool(_) => DataType::Boolean,
        }
    }

    fn values(&self, runs: &[Option<&RunManifest>]) -> ArrayRef {
        fn each<T>(runs: &[Option<&RunManifest>], of: impl Fn(&RunManifest) -> Option<T>) -> Vec<Option<T>> {
            runs.iter().map(|run| run.and_then(&of)).collect()
        }
        match self.of {
            FactSource::Text(of) => Arc::new(StringViewArray::from_iter(each(runs, of))),
            FactSource::Int(of) => Arc::new(Int64Array::from(each(runs, of))),
            FactSource::Bool(of) => Arc::new(BooleanArray::from(each(runs, of))),
        }
    }
}

/// The columns behind `run`, the directory.
pub(super) const FACTS: &[Fact] = &[
    Fact::text("run_id", "Name of the run", |run| Some(run.run_id.clone())),
    Fact::text("host", "Machine", |run| Some(run.host.clone())),
    Fact::int("rank", "Rank of the process", |run| Some(run.rank.into())),
    Fact::int("world_size", "Processes that are ranks of one program", |run| Some(run.world_size?.into())),
    Fact::text("job", "The job of these processes, as its launcher calls it", |run| run.job.clone()),
    Fact::int("started_ns", "Start, nanoseconds since the Unix epoch", |run| Some(run.started_ns)),
    Fact::int("ended_ns", "End; absent after a crash", |run| run.ended_ns),
    Fact {
        name: "complete",
        meaning: "Whether it was closed in order",
        of: FactSource::Bool(|run| Some(run.complete)),
    },
    Fact::int("asked", "Requests to warm up with", |run| i64::try_from(run.warmup_requests()).ok()),
    Fact::text("started_day", "Day of the start (UTC), as 2026-11-27", |run| Some(day(run.started_ns))),
    Fact::text("model_name", "The model", |run| model_key::NAME.of(&run.model).map(|name| name.to_string())),
    Fact::text("device_name", "The first GPU, or the processor where there is none", device),
    Fact::text("version", "Of candlescope", |run| env_key::CANDLESCOPE.of(&run.environment).map(|v| v.to_string())),
    Fact::text("verdict", "Codes of what is wrong with the data, by commas", |run| {
        let codes: Vec<&str> = run.verdict.findings.iter().map(|finding| finding.code.as_str()).collect();
        (!codes.is_empty()).then(|| codes.join(","))
    }),
    Fact::int("steps_begun", "Steps that began", |run| count(run.steps.as_ref()?.begun)),
    Fact::int("steps_recorded", "Of these, with a record", |run| count(run.steps.as_ref()?.recorded)),
    Fact::int("steps_captured", "With a record only because of a capture", |run| count(run.steps.as_ref()?.captured)),
    Fact::int("steps_scheduled_out", "Left out by the schedule or the budget", |run| {
        count(run.steps.as_ref()?.scheduled_out)
    }),
    Fact::int("steps_paused", "Begun while recording was paused", |run| count(run.steps.as_ref()?.paused)),
    Fact::int("steps_lost", "Lost", |run| count(run.steps.as_ref()?.lost)),
    Fact::int("steps_open_at_end", "Not ended when the run did", |run| count(run.steps.as_ref()?.open_at_end)),
    Fact::text("environment", "Object of run.json, as JSON", |run| object(&json!(run.environment))),
    Fact::text("model", "Object of run.json, as JSON", |run| object(&json!(run.model))),
    Fact::text("options", "Object of run.json, as JSON", |run| object(&json!(run.options))),
    Fact::text("steps", "Object of run.json, as JSON", |run| object(&json!(run.steps))),
    Fact::text("results", "Object of run.json, as JSON", |run| object(&json!(run.results))),
];

/// The columns of `runs`.
pub(super) fn schema() -> SchemaRef {
    let run = Field::new("run", DataType::Utf8View, true);
    let facts = FACTS.iter().map(|fact| Field::new(fact.name, fact.kind(), true));
    Arc::new(Schema::new(std::iter::once(run).chain(facts).collect::<Vec<_>>()))
}

/// The rows of runs.
pub(super) fn rows(runs: &[(String, Option<&RunManifest>)]) -> Result<RecordBatch, ArrowError> {
    let dirs = StringViewArray::from_iter_values(runs.iter().map(|(name, _)| name));
    let manifests: Vec<Option<&RunManifest>> = runs.iter().map(|(_, manifest)| *manifest).collect();
    let facts = FACTS.iter().map(|fact| fact.values(&manifests));
    let columns: Vec<ArrayRef> = std::iter::once(Arc::new(dirs) as ArrayRef).chain(facts).collect();
    RecordBatch::try_new(schema(), columns)
}

fn count(n: u64) -> Option<i64> {
    i64::try_from(n).ok()
}

fn object(value: &Value) -> Option<String> {
    (!value.is_null()).then(|| value.to_string())
}

fn device(run: &RunManifest) -> Option<String> {
    run.gpu_name().or_else(|| env_key::CPU_MODEL.of(&run.environment)).map(str::to_string)
}
