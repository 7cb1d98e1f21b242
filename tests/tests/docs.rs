//! Documents made from the code: `UPDATE_DOCS=1 cargo test -p candlescope-tests --test docs` writes them anew.
#![allow(missing_docs, reason = "a test")]
use candlescope_analysis::definitions::DEFINITIONS;
use candlescope_core::RecordKind;
use candlescope_core::run::{self, ColumnType};
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

#[test]
fn run_format() {
    let mut text = String::from(
        "# A run on disk\n\n\
         Made from `sdk/core/src/run.rs`, which the writer and the reader are held to. ",
    );
    let _ = write!(
        text,
        "Schema version {}.\n\n\
         ```\n\
         RUN/run.json                    environment, model, options, clock, counts, losses, verdict\n\
         RUN/spans/part-*.parquet        one row an interval\n\
         RUN/steps/part-*.parquet        one row a step\n\
         RUN/requests/part-*.parquet     one row a request\n\
         RUN/samples/part-*.parquet      one row a sample of a metric\n\
         RUN/report.html, report.md, operators.md, metrics.json    written by `candlescope report`\n\
         ```\n\n\
         A segment is written as `*.inprogress`, finished, synced and renamed. Columns are flat; strings are dictionary-encoded; times are\n\
         nanoseconds, absolute ones since the Unix epoch; what is not known is null, never zero. `run_id`, `host` and `rank` stand in\n\
         every table, so that many runs in one place are one dataset.\n",
        run::SCHEMA_VERSION
    );
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
fn definitions() {
    let mut text = String::from(
        "# What the numbers mean\n\n\
         Made from `analysis/src/definitions.rs`; every report carries the same list. *measured* is read off a clock or sensor, *derived* is\n\
         computed from measured and analytic figures, *datasheet* is a vendor's figure.\n\n\
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
