//! Parquet files that decode to far more than their size.

use crate::bounded::bounded;
use crate::common::json;
use crate::tables::Table;
use crate::{SECONDS, SMALL_MB};
use candlescope_core::RecordKind;
use parquet::basic::Encoding;
use parquet::file::properties::WriterPropertiesBuilder;
use std::fs;
use std::path::Path;
use tempfile::{TempDir, tempdir};

/// The codes and messages of the findings of a report on `dir`.
#[track_caller]
fn report(dir: &TempDir, limits: &[&str], ceiling_mb: u64) -> (serde_json::Value, String) {
    let run = dir.path().to_str().unwrap();
    let mut args = vec!["report", run, "--json"];
    limits.iter().for_each(|limit| args.extend(["--limit", limit]));
    let ended = bounded(&args, ceiling_mb, SECONDS);
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    let metrics = json(&ended.out);
    let findings = metrics["verdict"]["findings"].as_array().unwrap().clone();
    let said: Vec<_> = findings.iter().map(|f| format!("{} {} {}", f["code"], f["message"], f["remedy"])).collect();
    (metrics, said.join("\n"))
}

#[track_caller]
fn assert_says(said: &str, parts: &[&str]) {
    for part in parts {
        assert!(said.contains(part), "`{part}` is not in: {said}");
    }
}

fn mb(path: &Path) -> f64 {
    fs::metadata(path).unwrap().len() as f64 / 1e6
}

/// Whether the attacks have their full size: making them takes minutes, and gigabytes of memory in this process.
fn full() -> bool {
    std::env::var("CANDLESCOPE_HOSTILE").is_ok_and(|v| v == "full")
}

fn long_text() -> usize {
    if full() { 400_000_000 } else { 100_000_000 }
}

#[test]
fn one_text_of_a_hundred_megabytes() {
    fn text(name: &str, _: usize) -> Option<String> {
        (name == "path").then(|| "x".repeat(long_text()))
    }
    fn plain(builder: WriterPropertiesBuilder) -> WriterPropertiesBuilder {
        builder.set_dictionary_enabled(false)
    }
    for settings in [plain as fn(_) -> _, |builder| builder] {
        let dir = tempdir().unwrap();
        let path = Table { text, settings, ..Table::new(RecordKind::Span, 1) }.write(dir.path());
        assert!(mb(&path) < 0.1, "{} MB", mb(&path));
        let (_, said) = report(&dir, &[], SMALL_MB);
        assert_says(&said, &["limit_reached", "part-00000.parquet", "bytes", "--limit "]);
        // The other readers of a run.
        let out = dir.path().join("out");
        for format in ["chrome", "perfetto"] {
            let args = ["export", format, dir.path().to_str().unwrap(), "--out", out.to_str().unwrap()];
            let ended = bounded(&args, SMALL_MB, SECONDS);
            assert!(ended.err.contains("limit `"), "{}", ended.err);
        }
    }
}

/// If the decoder copied a repeated text for each row, each row would cost as much as the text.
#[test]
fn a_text_of_a_megabyte_in_every_row() {
    fn text(name: &str, row: usize) -> Option<String> {
        (name == "path" || name == "name").then(|| format!("{}{}", "x".repeat(1_000_000), row % 2))
    }
    fn delta(builder: WriterPropertiesBuilder) -> WriterPropertiesBuilder {
        let builder = builder.set_dictionary_enabled(false);
        builder.set_column_encoding("path".into(), Encoding::DELTA_BYTE_ARRAY)
    }
    for settings in [delta as fn(_) -> _, |builder| builder] {
        let dir = tempdir().unwrap();
        Table { text, settings, ..Table::new(RecordKind::Span, 60) }.write(dir.path());
        let (_, said) = report(&dir, &[], SMALL_MB);
        assert_says(&said, &["limit_reached", "`text-bytes` of 16384", "--limit text-bytes=1000001"]);
    }
}

#[test]
fn rows_that_cost_nothing_to_write() {
    // A page of each column: more of them would be most of the file.
    fn settings(builder: WriterPropertiesBuilder) -> WriterPropertiesBuilder {
        builder.set_data_page_row_count_limit(10_000_000)
    }
    for kind in [RecordKind::Request, RecordKind::Step, RecordKind::Span, RecordKind::Kernel] {
        let dir = tempdir().unwrap();
        let path = Table { constant: true, settings, ..Table::new(kind, 1_200_000) }.write(dir.path());
        assert!(mb(&path) < 0.04, "{} MB", mb(&path));
        let (_, said) = report(&dir, &[], SMALL_MB);
        assert_says(&said, &["limit_reached", kind.table(), "rows of a table for each byte", "--limit rows-per-byte="]);
        // The files after it are still read.
        let honest = tempdir().unwrap();
        fs::copy(Table::new(kind, 100).write(honest.path()), path.with_file_name("part-00001.parquet")).unwrap();
        let (metrics, _) = report(&dir, &[], SMALL_MB);
        assert_eq!(metrics["run"]["rows"][kind.table()], 100);
    }
}

#[test]
fn more_rows_than_are_held() {
    for (kind, limit, ceiling_mb) in
        [(RecordKind::Request, "requests", 300), (RecordKind::Step, "steps", 300), (RecordKind::Kernel, "kernels", 300)]
    {
        let dir = tempdir().unwrap();
        Table::new(kind, 600_000).write(dir.path());
        let (metrics, said) = report(&dir, &[&format!("{limit}=200000")], ceiling_mb);
        assert_says(&said, &["limit_reached", kind.table(), "600000", "200000", &format!("--limit {limit}=600000")]);
        assert_says(
            &said,
            &["cover only this part", "of the whole run", &format!("CANDLESCOPE_LIMITS={limit}=600000")],
        );
        assert_eq!(metrics["run"]["rows"][kind.table()], 200_000, "those before are read");
    }
}

/// Tables of twenty million rows, of which the default number is held.
#[test]
fn as_many_rows_as_are_held_unless_told() {
    if !full() {
        return;
    }
    for kind in [RecordKind::Request, RecordKind::Step, RecordKind::Span, RecordKind::Kernel] {
        let dir = tempdir().unwrap();
        Table { constant: true, ..Table::new(kind, 20_000_000) }.write(dir.path());
        report(&dir, &[], SMALL_MB);
    }
    for kind in [RecordKind::Request, RecordKind::Step, RecordKind::Kernel, RecordKind::Span] {
        let dir = tempdir().unwrap();
        Table::new(kind, 4_000_000).write(dir.path());
        let run = dir.path().to_str().unwrap();
        bounded(&["report", run, "--json", "--limit", "rows-per-byte=1000"], 2048, 300);
    }
}

/// The limit that is reached first by default.
#[test]
fn more_requests_than_are_held_unless_told() {
    let dir = tempdir().unwrap();
    Table::new(RecordKind::Request, 1_050_000).write(dir.path());
    let (_, said) = report(&dir, &[], 1000);
    assert_says(&said, &["1050000 requests", "more than the limit `requests` of 1000000", "--limit requests=1050000"]);
}

#[test]
fn three_hundred_thousand_paths() {
    fn text(name: &str, row: usize) -> Option<String> {
        (name == "path").then(|| format!("step/layer-{row}"))
    }
    let dir = tempdir().unwrap();
    Table { text, ..Table::new(RecordKind::Span, 300_000) }.write(dir.path());
    let (metrics, said) = report(&dir, &[], 700);
    assert_says(&said, &["limit_reached", "20000 distinct paths", "`(other names)`", "--limit paths="]);
    assert_eq!(metrics["run"]["rows"]["spans"], 300_000, "what has no path of its own is read all the same");
}

/// Devices, models, threads, metrics: everything for which a report has a row or a page.
#[test]
fn every_row_with_names_of_its_own() {
    fn text(name: &str, row: usize) -> Option<String> {
        let own = matches!(
            name,
            "device" | "metric" | "model" | "operation" | "thread" | "name" | "path" | "target" | "unit"
        );
        own.then(|| format!("{name}-{row}"))
    }
    for kind in RecordKind::ALL {
        let dir = tempdir().unwrap();
        Table { text, ..Table::new(kind, 30_000) }.write(dir.path());
        report(&dir, &[], 700);
    }
}

#[test]
fn files_by_the_thousand() {
    let dir = tempdir().unwrap();
    fs::create_dir(dir.path().join("spans")).unwrap();
    for i in 0..3000 {
        fs::write(dir.path().join(format!("spans/part-{i}.parquet")), "no table at all, whatever its name").unwrap();
    }
    fs::write(dir.path().join("run.json"), "{}").unwrap();
    let (metrics, said) = report(&dir, &["files=2000"], SMALL_MB);
    assert_says(
        &said,
        &["has more than 2000 files in the folder of a table", "1901 more files of the run cannot be read"],
    );
    assert!(metrics["verdict"]["findings"].as_array().unwrap().len() < 120);
}

#[test]
fn names_that_fill_memory() {
    fn text(name: &str, row: usize) -> Option<String> {
        matches!(name, "path" | "name" | "target").then(|| format!("{row:016000}"))
    }
    let dir = tempdir().unwrap();
    Table { text, ..Table::new(RecordKind::Span, 10_000) }.write(dir.path());
    let (_, said) = report(&dir, &[], SMALL_MB);
    assert_says(&said, &["limit_reached", "more than the limit `expansion` of 200"]);
    let (_, said) = report(&dir, &["expansion=10000"], 800);
    assert_says(&said, &["limit_reached", "`names-bytes`"]);
}

#[test]
fn intervals_that_never_meet_their_parents() {
    let dir = tempdir().unwrap();
    Table::new(RecordKind::Span, 400_000).write(dir.path());
    let (_, said) = report(&dir, &["open-intervals=50000"], SMALL_MB);
    assert_says(&said, &["limit_reached", "`open-intervals`", "--limit open-intervals=200000"]);
}

/// Claims in the footer for which the decoder reserves memory, or which it follows by recursion.
#[test]
fn footers_that_claim() {
    let dir = tempdir().unwrap();
    let path = Table::new(RecordKind::Span, 10).write(dir.path());
    let whole = fs::read(&path).unwrap();
    let write = |footer: &[u8]| {
        let size = (footer.len() as u32).to_le_bytes();
        fs::write(&path, [&whole[..4], footer, &size, b"PAR1"].concat()).unwrap();
        let ended = bounded(&["report", dir.path().to_str().unwrap(), "--json"], 100, SECONDS);
        assert!(ended.out.contains("segment_corrupt") || ended.out.contains("limit_reached"), "{}", ended.out);
    };
    // Version 1, a schema of one group, 0 rows, and 2³¹ − 1 row groups.
    let schema = [0x19, 0x1c, 0x48, 1, b'm', 0];
    let start = [&[0x15, 2][..], &schema, &[0x16, 0]].concat();
    write(&[&start[..], &[0x19, 0xfc, 0xff, 0xff, 0xff, 0xff, 0x07]].concat());
    // A group of 2³⁰ columns, and nested groups.
    write(&[&[0x15, 2, 0x19, 0x1c, 0x48, 1, b'm', 0x15, 0x80, 0x80, 0x80, 0x80, 0x08, 0][..], &[0x16, 0]].concat());
    let groups =
        [&[0x15, 2, 0x19, 0xfc, 0xc0, 0x84, 0x3d][..], &[0x48, 1, b'm', 0x15, 2, 0].repeat(1_000_000)].concat();
    write(&groups);
    write(&[&[0x15, 2, 0x19, 0xfc, 0xd0, 0x0f][..], &[0x48, 1, b'm', 0x15, 2, 0].repeat(2000)].concat());
    // 2³¹ − 1 row groups again, where only the decoder sees them, while a check that goes by stated types would see an
    // honest footer: the version as a text, and a list of truth values, which the decoder skips without reading a byte.
    let hidden = [&schema[1..], &[0x16, 0], &[0x19, 0xfc, 0xff, 0xff, 0xff, 0xff, 0x07]].concat();
    let honest = [&schema[1..], &[0x16, 0, 0x19, 0x0c, 0]].concat();
    let length = hidden.len() as u8 + 1;
    write(&[&[0x18, length, 0x19][..], &hidden, &[0x19], &honest].concat());
    let length = hidden.len() as u8 + 2;
    write(&[&[0x15, 2, 0x09, 40, 0xf1, length, 0x09, 4][..], &hidden, &[0x09, 4], &honest].concat());
    // A footer that is larger than any real one.
    let mut large = whole.clone();
    let at = large.len() - 8;
    large[at..at + 4].copy_from_slice(&0x7fff_ffffu32.to_le_bytes());
    fs::write(&path, &large).unwrap();
    let (_, said) = report(&dir, &[], 100);
    assert_says(&said, &["2147483647 bytes of a Parquet file's footer", "--limit footer-bytes="]);
}

#[test]
fn counts_inside_pages_that_claim() {
    fn text(name: &str, row: usize) -> Option<String> {
        (name == "path").then(|| format!("step/{row:05}"))
    }
    fn delta(builder: WriterPropertiesBuilder) -> WriterPropertiesBuilder {
        let builder = builder.set_dictionary_enabled(false).set_compression(parquet::basic::Compression::UNCOMPRESSED);
        builder.set_column_encoding("path".into(), Encoding::DELTA_LENGTH_BYTE_ARRAY)
    }
    let dir = tempdir().unwrap();
    let path = Table { text, settings: delta, ..Table::new(RecordKind::Span, 20_000) }.write(dir.path());
    let mut bytes = fs::read(&path).unwrap();
    let (metrics, said) = report(&dir, &[], SMALL_MB);
    assert_eq!(metrics["run"]["rows"]["spans"], 20_000, "unchanged it is read: {said}");
    // The header before the lengths: blocks of 128, in 4 parts, 20,000 lengths in all; or the largest number in three
    // bytes.
    let count = [0x80, 0x01, 0x04, 0xa0, 0x9c, 0x01];
    let at = bytes.windows(6).position(|window| window == count).expect("the page's count");
    bytes[at + 3..at + 6].copy_from_slice(&[0xff, 0xff, 0x7f]);
    fs::write(&path, &bytes).unwrap();
    let (_, said) = report(&dir, &[], SMALL_MB);
    assert_says(&said, &["segment_corrupt", "more texts than it has rows"]);
}

#[test]
fn manifests() {
    let dir = tempdir().unwrap();
    Table::new(RecordKind::Step, 10).write(dir.path());
    let manifest = dir.path().join("run.json");
    fs::write(&manifest, format!("{{\"a\": [{}0]}}", "0,".repeat(20_000_000))).unwrap();
    let (_, said) = report(&dir, &[], SMALL_MB);
    assert_says(&said, &["run.json", "40000010 bytes", "limit `manifest-bytes` of 4194304", "--limit manifest-bytes="]);
    fs::write(&manifest, format!("{{\"model\": {{\"a\": [{}0]}}}}", "0,".repeat(2_000_000))).unwrap();
    report(&dir, &[], 600);
    fs::write(&manifest, "[".repeat(4_000_000)).unwrap();
    let (_, said) = report(&dir, &[], SMALL_MB);
    assert_says(&said, &["manifest_unreadable", "recursion limit"]);
}

/// A text of run.json is held to the limit like one of a table, and where the limit is raised, showing it takes time with
/// its length.
#[test]
fn long_texts_of_a_manifest() {
    let dir = tempdir().unwrap();
    Table::new(RecordKind::Step, 10).write(dir.path());
    for (name, key) in [("model", "name"), ("model", "dtype"), ("environment", "cpu"), ("", "run_id"), ("", "host")] {
        let long = "x".repeat(4_000_000);
        let mut manifest = serde_json::json!({ "schema_version": 1 });
        let place = if name.is_empty() { &mut manifest } else { &mut manifest[name] };
        place[key] = long.into();
        fs::write(dir.path().join("run.json"), manifest.to_string()).unwrap();
        let (_, said) = report(&dir, &[], SMALL_MB);
        let limit = "4000000 bytes of one text, more than the limit `text-bytes` of 16384";
        assert_says(&said, &["run.json", limit, "1 values are cut", "--limit text-bytes=4000000"]);
        // On a terminal, and read whole.
        let run = dir.path().to_str().unwrap();
        for limit in ["text-bytes=16384", "text-bytes=4000000"] {
            let ended = bounded(&["report", run, "--limit", limit], 2 * SMALL_MB, SECONDS);
            assert_eq!(ended.code, Some(0), "{key} {limit}: {}", ended.err);
        }
    }
}

#[test]
fn a_limit_can_be_raised() {
    fn text(name: &str, _: usize) -> Option<String> {
        (name == "path").then(|| "x".repeat(20_000))
    }
    let dir = tempdir().unwrap();
    Table { text, ..Table::new(RecordKind::Span, 10) }.write(dir.path());
    let (metrics, said) = report(&dir, &[], SMALL_MB);
    assert_says(&said, &["20000 bytes of one text, more than the limit `text-bytes` of 16384", "10 values are cut"]);
    assert_eq!(metrics["run"]["rows"]["spans"], 10, "no row is left out");
    let (metrics, said) = report(&dir, &["text-bytes=20000"], SMALL_MB);
    assert!(metrics["run"]["rows"]["spans"] == 10 && !said.contains("limit_reached"), "{said}");
}
