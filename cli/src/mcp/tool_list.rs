//! The tools, as clients list them. Descriptions are what a model reads: they say when to use which, and what comes.

use super::tool_calls::{MOST_ROWS, ROWS, RUNS, TOP};
use candlescope_compare::ALLOWABLE;
use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use serde_json::{Value, json};

/// What a client is told about all of them.
pub(super) const INSTRUCTIONS: &str = "candlescope records LLM inference written with candle: steps, layers, kernels, power. \
These tools read runs below one folder, and change nothing. Begin with list_runs, then overview of one run: it says whether the \
run can be trusted (trust.ok, trust.disturbed), its figures with units, n and interval, and what to change with the gain that each \
change has. analyze has the evidence; query answers SQL (views lists tables and columns; measured_steps and the other views \
leave the warm-up out); finding explains a code; compare says whether one run is better than another beyond noise. Times are \
nanoseconds, gains are shares of a step as it runs unobserved and do not add up. What is missing was not measured: it is never zero. \
Paths are relative to the folder.";

/// All of them.
pub(super) fn tools() -> Vec<Tool> {
    let run = || json!({ "type": "string", "description": "Directory of a run, from the server's folder" });
    let runs = || json!({ "type": "string", "description": "A run, a study, or a folder of these, from the server's folder; . is all of it" });
    vec![
        tool(
            "list_runs",
            "Runs and studies in a folder: model, device, when, verdict; the newest first.",
            &json!({
                "folder": { "type": "string", "description": "From the server's folder", "default": "." },
                "limit": rows(RUNS, "Most runs"),
            }),
            &[],
        ),
        tool(
            "overview",
            "A run in short, to read first: what ran, whether it can be trusted and why not, about twenty figures (TTFT, TPOT, steps, \
             tokens/s, MFU/MBU, memory, energy, cost of recording) with unit, kind, n and interval, what to change with gains, the \
             paths with most time.",
            &json!({ "run": run() }),
            &["run"],
        ),
        tool(
            "analyze",
            "All findings of a run with evidence, the query that finds their rows, what could not be judged and how to record it, and \
             the account of the devices' time (busy, gaps, by path and kernel) where kernels were recorded.",
            &json!({ "run": run(), "top": rows(TOP, "Findings, and rows of each table") }),
            &["run"],
        ),
        tool(
            "query",
            "Answers one SELECT over the tables and views that `views` lists (DataFusion's SQL; only reads). Aggregate in SQL rather \
             than fetch rows. Ends after 300 s or where it would hold more than 512 MiB.",
            &json!({
                "run": runs(),
                "sql": { "type": "string", "description": "One SELECT, such as SELECT phase, count(*) AS steps, \
                    median(host_dur_ns) / 1e6 AS ms FROM measured_steps GROUP BY phase" },
                "limit": rows(ROWS, "Most rows"),
            }),
            &["run", "sql"],
        ),
        tool(
            "compare",
            "Whether b is better, worse, equivalent or undecided against a: two runs, two studies, or two folders of either, with the \
             paths that changed and what makes them incomparable.",
            &json!({
                "a": { "type": "string", "description": "What came before, from the server's folder" },
                "b": { "type": "string", "description": "What comes after" },
                "allow": {
                    "type": "array",
                    "items": { "type": "string" },
                    "description": format!("Differences that are the change itself: {}, or all", ALLOWABLE.join(", ")),
                },
            }),
            &["a", "b"],
        ),
        tool(
            "views",
            "Tables and views for `query`: names and columns; with `table`, the columns of that one with types and meanings, or the \
             text of a view.",
            &json!({ "table": { "type": "string", "description": "One table or view" } }),
            &[],
        ),
        tool(
            "finding",
            "What the code of a finding means: when it is reported, how its gain is computed, what to do.",
            &json!({ "code": { "type": "string", "description": "Such as launch_bound or ring_full" } }),
            &["code"],
        ),
    ]
}

fn rows(default: u64, what: &str) -> Value {
    json!({ "type": "integer", "minimum": 1, "maximum": MOST_ROWS, "default": default, "description": what })
}

fn tool(name: &'static str, description: &'static str, properties: &Value, required: &[&str]) -> Tool {
    let schema =
        json!({ "type": "object", "properties": properties, "required": required, "additionalProperties": false });
    let schema: JsonObject = schema.as_object().cloned().unwrap_or_default();
    let hints = ToolAnnotations::new().read_only(true).destructive(false).idempotent(true).open_world(false);
    Tool::new(name, description, schema).with_annotations(hints)
}
