//! Documents generated from the code: `UPDATE_DOCS=1 cargo test -p candlescope-tests --test docs` updates them.
#![allow(missing_docs, reason = "a test")]
#[path = "docs/pages.rs"]
mod pages;

use arrow_schema::DataType;
use candlescope_core::RecordKind;
use candlescope_core::run::{self, Code, ColumnType, GpuAccount, MachineUse, RunManifest, StepCounts};
use candlescope_figures::advice::{AdviceCode, Missing};
use candlescope_figures::definitions::DEFINITIONS;
use candlescope_reader::Limit;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;

fn hold(name: &str, text: &str) {
    let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs")).join(name);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, text).expect("written");
    }
    let there = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(there == text, "docs/{name} is out of date: UPDATE_DOCS=1 cargo test -p candlescope-tests --test docs");
}

/// The meaning of each key of `run.json`.
const MANIFEST: &[(&str, &str)] = &[
    ("schema_version", "Version of this layout"),
    ("run_id", "Name of the run, as in every table"),
    ("host", "Host name"),
    ("rank", "Rank of the process in a distributed run, 0 otherwise"),
    ("world_size", "Processes of the distributed run; missing if it is not known to be one"),
    (
        "job",
        "The job whose processes are the ranks, as its launcher calls it: the same on all of them, and perhaps on those of a \
         later start; missing if nobody says",
    ),
    ("started_ns", "Start, nanoseconds since the Unix epoch"),
    ("ended_ns", "End, nanoseconds since the Unix epoch; null while the run goes on and after a crash"),
    ("complete", "Whether the run was closed properly; if not, the tables hold what had been finished"),
    ("environment", "Object: machine, operating system, devices, versions, [threads and build](#threads-and-build)"),
    (
        "model",
        "Object: name, architecture, dimensions, element types, parameters, bytes. `dtype` is that of the activations, \
         `quantization` that of the weights, `compute_dtype` the type in which projections are multiplied (`int8` for \
         quantised ones): FLOPs are compared with a peak of this type, or with none. What a program does not say \
         follows from the configuration given to `candlescope::modules::model` and from the weights that were loaded",
    ),
    (
        "options",
        "Object: options as resolved: `schedule`, `paused`, `ring_capacity`, `gpu_timing` and others. \
         `warmup` (0 where it is missing) is the number of requests that only warmed up: rows with \
         `request` ≤ `warmup` are in the tables, and statistics leave them out",
    ),
    ("clock", "Object: clock of the host's times, the cost of a reading, and how it was converted to Unix time"),
    (
        "gpu",
        "Object: how GPU time was measured, what became of every mark and kernel, the error bound of device times; missing if no GPU time was asked for",
    ),
    (
        "steps",
        "Object: what became of every step, and the schedule: `begun` = `recorded` + `captured` (only because a \
         window was asked for) + `scheduled_out` + `left_plain` (to measure the overhead) + `perturbed` (part of an experiment; missing where there was none) + `paused` + `lost` + `open_at_end`; missing while the run goes on, \
         after a crash, and in runs of older versions",
    ),
    (
        "machine",
        "Object: how the program and others [used the machine](#use-of-the-machine) while steps ran; missing if the host \
         was not sampled then, and in runs of older versions: whether others were at work is not known there",
    ),
    ("counts", "Object: records handed to exporters, by table"),
    ("loss", "Object: intervals that never became records, by reason"),
    ("exporters", "Array: what each exporter received, exported and dropped, by table"),
    (
        "overhead",
        "Object: what recording cost, from a warm loop over registry and layer; `in_place` if steps were left plain to \
         measure it; `estimate` names the better one of the two",
    ),
    (
        "verdict",
        "Object: `ok`, and `findings` with `severity`, `code`, `message` and `remedy`; and, if there are any, `place` (kind and name) and `evidence` (list of `name`, `value`, `unit`)",
    ),
    ("results", "Object: what the program reported about itself"),
];

/// Notes on what readers of the tables easily get wrong.
const NOTES: &str = "\n\
## Before you compute\n\
\n\
- Intervals nest: do not add up durations of different paths. Self time is an interval's duration less those of the\n  \
rows that name its `seq` as their `parent_seq`; the self times of a step add up to the step.\n\
- A step is the row that `steps.seq` names. Inside a request its `depth` is 1, because the request's own span is 0.\n\
- `requests.prompt_tokens` counts one sequence; `requests.output_tokens` and `steps.tokens` count all sequences of the\n  \
batch.\n\
- `steps.tokens` and `steps.batch` are what a step passes through the model. `steps.new_tokens` are the tokens that\n  \
are needed: a sequence of a batch that has ended still passes through the model with the others, but yields none.\n\
- `flops` and `bytes` are what the model needs; MFU and MBU are made of them. `flops_executed` also counts masked\n  \
positions (HFU), and `io_bytes` also counts the activations of each operation. FLOPs / `io_bytes` is arithmetic\n  \
intensity; `io_bytes` / self time is an operation's GB/s, because both are the interval's own.\n\
- The first requests are warm-up: leave out rows of requests up to the option `warmup`, and their steps.\n  \
[sql.md](sql.md) has views that do.\n\
- In the adaptive tier most intervals have no `gpu_dur_ns`: take the mean of the measured ones times the number of all\n  \
intervals, for each `gpu_source` by itself. In a step that has `kernels`, an interval without `gpu_dur_ns` launched\n  \
none: there its GPU time is zero, not unknown.\n\
- Steps of several threads overlap: for rates of the machine merge their times, do not add them.\n\
- `gpu.cold_steps` lists steps that were measured in full although they were the first of their kind, because no\n  \
later one was: the GPU times of their parts are those of a cold step.\n\
- If `gpu.devices[].skew_bound_ns` (marks) or `gpu.kernels.clock_bound_ns` (kernels) is above 100,000, do not compare\n  \
device times with host times: neither `gpu_start_ns` with `host_start_ns`, nor by `queue_delay_ns`. Below that they\n  \
are right to within the bound. Durations are always right.\n\
- `kernels` has what was launched in steps of windows. A row without `path` was launched while such a step ran, but in\n  \
no interval. What the recorder saw of other steps, and before and after, has no rows: `gpu.kernels.outside_window`\n  \
counts it.\n\
- Unix nanoseconds do not fit a double: subtract first. pandas makes doubles of integer columns with nulls unless you\n  \
tell it otherwise.\n\
- With a schedule, or while recording was off, `steps` and `spans` hold only some of the steps. Do not divide their\n  \
sums by wall time, and compute no gap between two steps unless all numbers between them are there (`run.json` has\n  \
`steps`). `requests` holds all requests, except those that began and ended while recording was off\n  \
(`loss.requests_paused`).\n\
- `serves` in `steps`, such as `[[7,1,1],[9,512,0]]`, is of a step for several requests: request 7 had one token passed\n  \
and one out, request 9 a chunk of 512 of its prompt and none out. `request` is null there. The view `served` of\n  \
[sql.md](sql.md) makes rows of it. At most 1,000 requests of a step are kept.\n\
- Texts have at most 16,384 bytes; one that was longer ends in `…`.\n\
- Rates of such runs are over rows of steps with consecutive numbers: the tokens (FLOPs, bytes) of all steps of a\n  \
phase that begin in a row, over the time in which steps of the phase were open from the start of the row's first step\n  \
to that of the step after its last. Threads that idle, join and leave make no difference to that. The times of steps\n  \
without a record that are needed are in `steps.unrecorded`: of those that follow a row, and of those still open when\n  \
one begins. Runs of older versions do not have it.\n\
- A span of the application, such as a handler's, is no step once a phase is marked; one that was entered before is, and\n  \
`steps.target` tells. Reports leave it out.\n\
- A table may be empty or missing: `kernels` if none were recorded, `requests` of a program that marks none.\n";

#[test]
fn run_format() {
    let mut text = String::from(
        "# A run on disk\n\
         \n\
         Made from the tables that `schema/src/record` declares, which writer and reader follow. ",
    );
    let _ = write!(
        text,
        "Schema version {}.\n\
         \n\
         ```\n\
         RUN/run.json                    environment, model, options, clock, counts, losses, verdict\n\
         RUN/spans/part-*.parquet        one row per interval\n\
         RUN/steps/part-*.parquet        one row per step\n\
         RUN/requests/part-*.parquet     one row per request\n\
         RUN/samples/part-*.parquet      one row per sample of a metric\n\
         RUN/kernels/part-*.parquet      one row per kernel, copy or memset on a GPU\n\
         RUN/report.html, report.md, operators.md, metrics.json    written by `candlescope report`\n\
         RUN/request-N.html, request-N.md                          written by `candlescope report --request N`\n\
         RUN/stakeholder_summary.md, assumptions.md                one page for who decides; what figures rest on\n\
         RUN/env.json, inputs.yaml                                 the machine; the configuration, to run it again\n\
         ```\n\
         \n\
         A segment is written as `*.inprogress`, finished, synced and renamed. Columns are flat; strings are\n\
         dictionary-encoded; times are in nanoseconds, absolute ones since the Unix epoch; what is not known is null, never\n\
         zero. Every table has `run_id`, `host` and `rank`, so that many runs in one place are one dataset.\n\
         \n\
         In a folder of runs, distinguish runs by their *directory*: a `run_id` is a name that somebody gave, and may be given\n\
         twice. `**/spans/part-*.parquet` finds a table at any depth.\n\
         \n\
         A directory belongs to the one session that made its folder `spans`, which the operating system lets exactly one do.\n\
         Other sessions that start on it at the same time, in whatever process, are refused and remove nothing. A session that\n\
         cannot start removes what it has made. A process killed in its first milliseconds can leave folders without a\n\
         manifest: remove them, or use another directory.\n\
         \n\
         ## `run.json`\n\
         \n\
         | key | meaning |\n\
         |---|---|\n",
        run::SCHEMA_VERSION
    );
    for (key, meaning) in MANIFEST {
        let _ = writeln!(text, "| `{key}` | {meaning} |");
    }
    text.push_str(
        "\nWhat the objects hold is said where each is declared, in [`schema/src/run`](../schema/src/run).\n\
         \n## Keys of the maps\n\n\
         What one part writes and another reads, as `schema/src/run/keys.rs` declares it. Programs add what they like, and\n\
         readers keep what they do not know.\n",
    );
    let maps = [
        ("environment", run::env_key::ALL),
        ("model", run::model_key::ALL),
        ("options", run::option_key::ALL),
        ("results", run::result_key::ALL),
    ];
    for (map, keys) in maps {
        let _ = write!(text, "\n| key of `{map}` | type | meaning |\n|---|---|---|\n");
        for key in keys {
            let meaning: String = key.meaning.concat();
            let _ = writeln!(text, "| `{}` | {} | {} |", key.name, key.of, meaning.trim());
        }
    }
    text.push('\n');
    text.push_str(include_str!("docs/threads_and_machine.md"));
    text.push_str(NOTES);
    for kind in RecordKind::ALL {
        let _ = write!(text, "\n## `{}`\n\n| column | type | null | meaning |\n|---|---|---|---|\n", kind.table());
        for column in run::columns(kind) {
            let name = match column.kind {
                ColumnType::Int64 => "int64",
                ColumnType::Int32 => "int32",
                ColumnType::Float64 => "float64",
                ColumnType::Utf8 => "string",
            };
            let null = if column.nullable { "yes" } else { "no" };
            let _ = writeln!(text, "| `{}` | {name} | {null} | {} |", column.name, column.doc);
        }
    }
    hold("run-format.md", &text);
}

#[test]
fn keys_of_the_variable() {
    let mut text = String::from("| key | feature | default | what |\n|---|---|---|---|\n");
    for option in candlescope::env::OPTIONS {
        let forms: Vec<String> = option.forms.iter().map(|form| format!("`{}`", form.replace('|', "\\|"))).collect();
        let feature = if option.feature.is_empty() { String::new() } else { format!("`{}`", option.feature) };
        let also = if option.also.is_empty() { String::new() } else { format!("; {}", option.also) };
        let what = option.doc.trim_end_matches('.');
        let _ = writeln!(text, "| {} | {feature} | {} | {what}{also} |", forms.join(", "), option.default);
    }
    candlescope_testkit::pages::hold_part("reference.md", "keys of CANDLESCOPE", &text);
}

#[test]
fn findings_of_the_verdict() {
    let group = |(heading, codes): &(&str, &[Code])| {
        let row = |code: &Code| format!("| `{code}` | {} | {} |\n", code.meaning(), code.remedy());
        let rows: String = codes.iter().map(row).collect();
        format!("### {heading}\n\n| code | what happened | what to do |\n|---|---|---|\n{rows}")
    };
    let groups: Vec<String> = Code::GROUPS.iter().map(group).collect();
    candlescope_testkit::pages::hold_part("reference.md", "findings", &groups.join("\n"));
}

#[test]
fn findings() {
    let mut text = String::from(FINDINGS);
    text.push_str("\n## What is looked for\n\n| code | what | reported when | gain |\n|---|---|---|---|\n");
    for code in AdviceCode::ALL {
        let _ = writeln!(text, "| `{code}` | {} | {} | {} |", code.meaning(), code.test(), code.gain());
    }
    text.push_str("\n## What may be missing\n\n| name | what | how to record it |\n|---|---|---|\n");
    for missing in Missing::ALL {
        let _ = writeln!(text, "| `{}` | {} | {} |", missing.as_str(), missing.what(), missing.record());
    }
    hold("findings.md", &text);
}

const FINDINGS: &str = "\
# Findings with gains

What holds a run back, what to change, and how much that would gain. `candlescope analyze RUN` prints them, and they are in
the reports: the section *What to change* of `report.html` and `report.md`, the terminal's summary, `diagnosis` in
`metrics.json`. The tables below are made from the code. Findings about the data themselves, such as lost records, are
others: they are in the verdict ([reference.md](reference.md#findings)). `candlescope explain CODE` says what either means.

```sh
candlescope analyze runs/gpu               # ten findings, then the account of the GPU's time; --top 0 shows all
candlescope analyze runs/gpu --json        # {\"schema\": 1, \"findings\": [...], \"abstained\": [...], \"runs\": [...]}
```

## What a finding has

| key | what |
|---|---|
| `code` | what it is about: the first table below |
| `severity` | `high` from 20 % of the run's step time on, `medium` from 5 % on, else `low` |
| `place` | `phase` (or the steps' name), `path` without ordinals, `module` without numbers, `kernel` |
| `gain` | `low`, `mid`, `high`: shares of the step as it runs unobserved |
| `gain_of_run` | the same × the share of all steps' time that is in steps of this kind: findings are ranked by it |
| `coverage` | `steps` that the figures rest on, `share_of_time` of these steps in all |
| `confidence` | `level` (`high`, `medium`, `low`) and `reason` |
| `disturbed` | whether the machine was disturbed while the run was recorded (`machine_busy`, `cpu_throttled`), which can explain all of this finding |
| `message`, `remedy` | what was seen, and what to do, in a sentence each |
| `evidence` | figures: `name`, `value`, `unit`, `n`, `source` (`measured`, `derived`, `datasheet`) |
| `query` | SQL that finds the rows again, over the views of [sql.md](sql.md), `runs` standing for the run |

- **The unobserved step**, T, is that of the replay. Where there is none, or it is more than 10 % from the steps whose
  kernels were not recorded, it is the median of those steps, less what recording their intervals costs: as measured
  against plain steps where there are any (`--overhead-probe`), else twice the cost of an interval in a loop.
  `runs[].steps` has it with its bound and its basis. Gains are shares of T, each kind of step by itself. On a CPU a part
  of the steps is replayed: the share of them that recording takes is taken off the median of all. T is never above what
  was observed; by how much a replay would be is in the bound, and so is the interval of the median.
- **low, mid, high** are the gain at 75, 87.5 and 100 % of the attainable rate; where a cost goes whole with its cause, as
  time that other programs take (`preempted`) or a question that a variable answers (`constant_cost`, `hot_overhead`), mid
  is all of it, as it [came out](measurements/advice.md#together). Below 0.5 % (mid) a finding is left out,
  and counted in `negligible`. Of what samples of call stacks tell (`hot_overhead`, `cache_copied` on a CPU, and in part
  `page_faults` and `blocked`), low is of the lower and high of the upper end of two standard errors of counting them
  (`share_error` in the evidence is one).
- **On a CPU, the time of an operation and of the step come from the same steps**: all *usual* ones, no longer than the
  median + 3 IQR (or with more tokens than usual). A gain is never above the operation's share of them (`share` in the
  evidence), and `low` is in the steps in which it takes least: nine of ten have more. What a stall, a cold start or another
  program did to single steps is `straggler_step` or `warmup_unsettled`, and in no operation's gain. No changes together make
  a step shorter than the roofs of its operations.
- **A gain is computed by running the step again with the change.** Graphs and fused kernels are replayed from the step's
  own dependencies ([what-if.md](what-if.md)), and so is T. Other changes, and steps that cannot be replayed, are computed
  from two lines: a step takes as long as the longer of the host's (its work and launches, without waiting) and the
  device's (kernels, copies and the gaps between queued ones), and what neither explains. Where the host is the longer
  line, quicker kernels gain nothing, and fewer launches do. So gains do not add up: `together` has what the first ten, or
  those of them that a replay knows, gain if all are done.
- **The order matters** (`roadmaps` in JSON, *in this order* in reports): the change that gains most, then the one that
  gains most of what is left, up to six, each with what it adds. A change that gains nothing by itself can stand second.
  The run in the gallery (SmolLM2's shape on an H200, eagerly): a graph 71.1 % of a step; then moving data 2.4 %, which
  alone promised 18.7; then candle's rmsnorm at both places of a block, 2.4 % each, where a faster one gains nothing as
  long as the device waits. Recorded as a graph, the same model has 11.0 and 10.9 % of its shorter step to gain there
  ([measured](measurements/advice.md#an-h200)).
- **Peaks** are those that `candlescope bench peaks` measured on this device; without them those of the datasheet, with
  less confidence, as of peaks that were measured while others were at work. Without either, nothing is said.
- **The query returns the figures**: a column with the name of a `measured` figure is that figure, added up over the rows.
  Regressions (`cache_copied`) and what `run.json` says are in no table.
- Figures of fewer than six steps have low confidence. `warmup_unsettled` is about the figures, and gains the program
  nothing: it stands behind what does.
- On a machine that was disturbed while the run was recorded, `straggler_layer`, `straggler_step`, `warmup_unsettled`,
  `cache_copied`, `preempted`, `between_steps`, `constant_cost` whose cause is not known, `hot_overhead` of a pool's
  synchronisation, and on a CPU operations that take twice as long in most steps as in the quickest are `disturbed`: they
  have low confidence and severity, stand behind what other programs cannot have done, say so, and count in no `together`.
- **What the data do not carry is not guessed.** A rule that cannot judge stands under `abstained`: `code`, `phases`,
  `missing` (the second table), `reason`, `record`.
- **Ranks beside each other** have findings of the same form: `straggler_rank`, `rank_imbalance`, `exposed_communication`,
  `bus_bandwidth`. They are told of [several processes or threads as one run](fleet.md#several-processes-as-one-run), of eight
  steps or more. Gains are shares of a step of the phase in which most time goes; their bounds are what steps differ by
  (95 %) and what the ranks' clocks may be off in each collective. `place` has the `rank`; the query is asked of the folder,
  or of the run whose threads they are.
- Findings and abstentions of several runs stand in one list; each has its `run`.
";

/// The views of `docs/sql.md` and what stands for our aggregates in Spark, each between two marks.
#[test]
fn views_and_aggregates_of_sql() {
    let mut views = String::from("\n");
    for view in candlescope_sql::VIEWS {
        let _ = write!(views, "**`{}`**: {}\n\n```sql\n{}\n```\n\n", view.name, view.meaning(), view.query());
    }
    let mut aggregates = String::from("\n");
    for of in candlescope_sql::OWN_AGGREGATES {
        let (takes, expression) = (of.takes.join(", "), of.in_spark(of.takes));
        let _ = write!(aggregates, "**`{}({takes})`**\n\n```text\n{expression}\n```\n\n", of.name);
    }
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/sql.md");
    let mut page = std::fs::read_to_string(page).unwrap();
    for (name, text) in [("views", views), ("aggregates", aggregates)] {
        let (begin, end) = (format!("<!-- {name} -->\n"), format!("<!-- end of {name} -->"));
        let (before, rest) = page.split_once(&begin).unwrap();
        let (_, after) = rest.split_once(&end).unwrap();
        page = format!("{before}{begin}{text}{end}{after}");
    }
    hold("sql.md", &page);
}

#[test]
fn limits() {
    let mut text = String::from(
        "# Limits on what is read\n\n\
         Made from `analysis/reader/src/limits.rs`. A run, or a profile of Nsight Systems, may come from anybody, and a file of a few\n\
         kilobytes can claim, or decode to, more than a machine's memory holds. A reader that reaches one of these limits\n\
         reports it (`limit_reached` in the verdict of a run, an error for a profile) with the file, the value found, the\n\
         limit and how to raise it. Of a run, it goes on with what it could read.\n\n\
         `candlescope report`, `export`, `analyze`, `compare` and `gate` take `--limit NAME=VALUE`, which can be repeated. The variable `CANDLESCOPE_LIMITS`\n\
         takes the same, joined by commas, and also applies to the report at the end of `candlescope profile`. In code it is\n\
         `ReadLimits`, for `Run::open_within`, `Profile::open_within` and `ReportOptions`. Raise a limit only for files that\n\
         you trust.\n\n\
         | name | default | counts |\n|---|---:|---|\n",
    );
    for limit in Limit::ALL {
        let _ = writeln!(text, "| `{}` | {} | {} |", limit.name(), limit.default_value(), limit.meaning());
    }
    text.push_str(
        "\n`candlescope query` ends with an error at its four limits; they hold whoever wrote the query. Within a call of a\n\
         function with long texts (`replace`, `levenshtein`) the engine looks neither at the clock nor at its memory: there the\n\
         command ends itself, three seconds after `query-seconds`, or when it holds twice `query-bytes` and 192 MiB; a program that\n\
         calls `sql::query` has to wait. A study's `results.parquet` is held against `columns` and `rows-per-byte` like a run's tables.\n\n\
         Texts beyond `text-bytes`, in tables and in `run.json`, are cut, and the rest of the row or of the file is read.\n\n\
         Intervals are streamed and have no limit but `open-intervals`; requests, steps and kernels are held in memory while a\n\
         report is made, some 500 bytes each. Texts beyond `names`, `names-bytes` and `paths` read as `(other names)`, so that\n\
         sums stay right. Pipes, sockets, devices and directories are refused wherever a file is read. What crafted files took\n\
         with these limits is in [measurements/hostile.md](measurements/hostile.md).\n",
    );
    hold("limits.md", &text);
}

/// The test above compares the page with the list in the code; this one compares it with the files on disk.
#[test]
fn the_page_has_every_column_of_every_file() {
    let page =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/run-format.md")).expect("the page");
    for kind in RecordKind::ALL {
        let (_, section) = page.split_once(&format!("\n## `{}`\n", kind.table())).expect("a section for each table");
        let section = section.split("\n## ").next().unwrap_or_default();
        let rows = section.lines().filter(|line| line.starts_with("| `"));
        let documented: Vec<Vec<&str>> = rows.map(|row| row.split('|').map(str::trim).collect()).collect();
        let schema = candlescope_exporters::parquet::arrow_schema(kind);
        assert_eq!(documented.len(), schema.fields().len(), "{}", kind.table());
        for (row, field) in documented.iter().zip(schema.fields()) {
            assert_eq!(row[1].trim_matches('`'), field.name());
            let text = matches!(field.data_type(), DataType::Dictionary(..) | DataType::Utf8);
            let stored = if text { "string".into() } else { field.data_type().to_string().to_lowercase() };
            assert_eq!((row[2], row[3] == "yes"), (stored.as_str(), field.is_nullable()), "{}", field.name());
            assert!(row[4].len() > 3, "{} is not explained", field.name());
        }
    }
}

#[test]
fn the_page_has_every_key_of_the_manifest() {
    let manifest = RunManifest {
        world_size: Some(2),
        job: Some("4711/0".to_string()),
        gpu: Some(GpuAccount::default()),
        steps: Some(StepCounts::default()),
        machine: Some(MachineUse::default()),
        ..RunManifest::default()
    };
    let manifest = serde_json::to_value(manifest).expect("JSON");
    let keys: BTreeSet<&str> = manifest.as_object().expect("an object").keys().map(String::as_str).collect();
    assert_eq!(keys, MANIFEST.iter().map(|(key, _)| *key).collect());
}

#[test]
fn definitions() {
    let mut text = String::from(
        "# What the numbers mean\n\n\
         Made from `analysis/figures/src/definitions.rs`; a report has those that it shows. *measured* is read off a clock or\n\
         sensor, *derived* is computed from measured and analytic figures, *datasheet* is a vendor's figure.\n\n\
         | name | number | unit | label | how it is computed | elsewhere |\n|---|---|---|---|---|---|\n",
    );
    for d in DEFINITIONS {
        let cell = |s: &str| s.replace('|', "\\|");
        let _ = writeln!(
            text,
            "| `{}` | {} | {} | {} | {} | {} |",
            d.key,
            cell(d.title),
            d.unit,
            d.label,
            cell(d.meaning),
            cell(d.same_as)
        );
    }
    hold("definitions.md", &text);
}
