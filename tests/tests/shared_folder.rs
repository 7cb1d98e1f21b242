//! Runs that a program writes below `date=…/machine=…/` of a folder that machines share: as `candlescope query` and DuckDB find them.
#![allow(missing_docs, reason = "a test")]

use candlescope::env::EnvConfig;
use candlescope::llm;
use candlescope_core::host_name;
use candlescope_reader::{ReadLimits, Run};
use candlescope_schema::hive;
use candlescope_sql::{Sources, SqlValue, query};
use candlescope_testkit::tools::{PYTHON, require};
use std::path::{Path, PathBuf};
use std::process::Command;
use tracing_subscriber::prelude::*;

fn record(root: &Path) {
    let variable = format!("parquet={},parquet-hive,report=off", root.display());
    let builder = EnvConfig::parse(&variable).expect("understood").into_builder().expect("a builder");
    let (layer, scope) = builder.layer().expect("a session");
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        for _ in 0..5 {
            let _step = llm::decode(llm::Tokens::new(1));
            tracing::trace_span!("linear").in_scope(|| ());
        }
    });
    scope.finish().expect("a manifest");
}

fn below(dir: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(dir).expect("a directory").map(|entry| entry.expect("an entry").path()).collect()
}

#[test]
fn runs_lie_by_day_and_machine_and_engines_find_them_there() {
    let dir = tempfile::tempdir().expect("a directory");
    record(dir.path());
    // Run ids have milliseconds.
    std::thread::sleep(std::time::Duration::from_millis(3));
    record(dir.path());
    let runs: Vec<PathBuf> =
        below(dir.path()).iter().flat_map(|day| below(day)).flat_map(|host| below(&host)).collect();
    assert_eq!(runs.len(), 2, "{runs:?}");
    for path in &runs {
        let run = Run::open(path).expect("a run");
        let began = run.manifest().expect("a manifest").started_ns;
        assert!(path.starts_with(dir.path().join(hive::folders(began, &host_name()))), "{}", path.display());
    }
    let limits = ReadLimits::default();
    let sources = Sources::open([dir.path()], &limits).expect("runs");
    let rows = query("SELECT count(*) FROM steps", &sources, &limits, 0).expect("an answer").rows;
    assert_eq!(rows, [[SqlValue::Int(10)]]);

    let Some(python) = require(&PYTHON) else { return };
    let script = "import duckdb, sys\n\
                  print(duckdb.sql(f\"SELECT count(DISTINCT run_id), count(*), min(machine), count(DISTINCT date) FROM \
                  read_parquet('{sys.argv[1]}/*/*/*/steps/*.parquet', hive_partitioning = true) \
                  WHERE machine = '{sys.argv[2]}'\").fetchall()[0])";
    let host = hive::folders(0, &host_name());
    let host = host.file_name().and_then(|name| name.to_str()?.strip_prefix(hive::MACHINE)).expect("a machine");
    let output = Command::new(python).args(["-c", script]).arg(dir.path()).arg(host).output().expect("python runs");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.starts_with(&format!("(2, 10, '{host}', ")), "{said}{}", String::from_utf8_lossy(&output.stderr));
}
