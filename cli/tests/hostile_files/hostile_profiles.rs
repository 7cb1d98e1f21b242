//! SQLite files whose tables are endless, or that execute code of their own.

use crate::bounded::bounded;
use crate::tables::Table;
use crate::{SECONDS, SMALL_MB};
use candlescope_core::RecordKind;
use rusqlite::Connection;
use std::fs;
use std::path::Path;
use tempfile::tempdir;

const SCHEMA: &str = "
    CREATE TABLE StringIds (id INTEGER, value TEXT);
    CREATE TABLE NVTX_EVENTS (start INTEGER, end INTEGER, eventType INTEGER, domainId INTEGER, globalTid INTEGER,
        text TEXT, uint64Value INTEGER);
    CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, demangledName INTEGER, correlationId INTEGER,
        globalPid INTEGER);
    CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, globalTid INTEGER, correlationId INTEGER);
    INSERT INTO NVTX_EVENTS VALUES (0, NULL, 75, 1, 1 << 24, 'candlescope', NULL);";

/// Writes an export as nsys makes it, then applies `sql` to it.
pub(crate) fn export(path: &Path, sql: &str) {
    let _ = fs::remove_file(path);
    let file = Connection::open(path).unwrap();
    file.execute_batch("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF").unwrap();
    file.execute_batch(&format!("BEGIN; {SCHEMA} {sql}; COMMIT")).unwrap();
}

/// `n` rows 0, 1, 2, ….
fn numbers(n: usize) -> String {
    format!("WITH RECURSIVE n(x) AS (SELECT 0 UNION ALL SELECT x + 1 FROM n WHERE x < {})", n - 1)
}

#[track_caller]
fn refused(sql: &str, limits: &[&str], parts: &[&str]) {
    let dir = tempdir().unwrap();
    Table::new(RecordKind::Step, 10).write(dir.path());
    let profile = dir.path().join("p.sqlite");
    export(&profile, sql);
    let mut args = vec!["report", dir.path().to_str().unwrap(), "--nsys", profile.to_str().unwrap()];
    limits.iter().for_each(|limit| args.extend(["--limit", limit]));
    let ended = bounded(&args, SMALL_MB, SECONDS);
    assert_eq!(ended.code, Some(1), "{}", ended.out);
    assert!(ended.err.contains("p.sqlite"), "{}", ended.err);
    for part in parts {
        assert!(ended.err.contains(part), "`{part}` is not in: {}", ended.err);
    }
}

#[test]
fn joins_without_end() {
    // Every kernel has every name, and then every call.
    let kernels =
        format!("{} INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL SELECT x, x, 7, 7, 1 << 24 FROM n", numbers(20_000));
    let names = format!("{} INSERT INTO StringIds SELECT 7, 'a' FROM n", numbers(20_000));
    let calls = format!("{} INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME SELECT x, 1 << 24, 7 FROM n", numbers(20_000));
    for more in [names, calls] {
        let sql = format!("{kernels}; {more}");
        refused(&sql, &[], &["limit `profile-work`", "--limit profile-work="]);
        // Time has a limit of its own.
        refused(&sql, &["profile-work=1000000000000", "profile-seconds=1"], &["limit `profile-seconds`"]);
    }
}

#[test]
fn tables_that_run_what_their_maker_wrote() {
    let computed = "DROP TABLE NVTX_EVENTS; CREATE TABLE NVTX_EVENTS (domainId INTEGER, globalTid INTEGER, text TEXT,
        eventType INTEGER, uint64Value INTEGER, start INTEGER,
        end INTEGER AS (length(hex(zeroblob(100000000)))));
        INSERT INTO NVTX_EVENTS VALUES (1, 1 << 24, 'candlescope', 75, NULL, 0)";
    refused(computed, &[], &["NVTX_EVENTS has columns that are computed"]);
    let view = "DROP TABLE NVTX_EVENTS; CREATE VIEW NVTX_EVENTS AS
        WITH RECURSIVE n(x) AS (SELECT 0 UNION ALL SELECT x + 1 FROM n) SELECT x AS start FROM n";
    refused(view, &[], &["NVTX_EVENTS is a view or a virtual table"]);
    let strings = "DROP TABLE StringIds; CREATE VIEW StringIds AS SELECT 1 AS id, 'a' AS value";
    refused(strings, &[], &["no table StringIds"]);
    let virtual_table = "DROP TABLE CUPTI_ACTIVITY_KIND_KERNEL;
        CREATE VIRTUAL TABLE CUPTI_ACTIVITY_KIND_KERNEL USING rtree(id, start, end)";
    refused(virtual_table, &[], &["CUPTI_ACTIVITY_KIND_KERNEL is a view or a virtual table"]);
}

#[test]
fn names_and_rows_beyond_any_profile() {
    let name = "INSERT INTO StringIds VALUES (7, printf('%.*c', 100000000, 'x'));
        INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (0, 1, 7, 7, 1 << 24)";
    refused(name, &[], &["bytes of one text", "--limit text-bytes="]);
    let ranges = format!("{} INSERT INTO NVTX_EVENTS SELECT x, x, 59, 1, 1 << 24, NULL, x FROM n", numbers(20_000));
    refused(&ranges, &["profile-rows=10000"], &["limit `profile-rows`", "--limit profile-rows="]);
}
