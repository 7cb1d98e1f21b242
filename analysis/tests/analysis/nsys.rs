//! Kernels of an Nsight Systems profile, by path.

use crate::common::{manifest, span, write_run};
use candlescope_figures::Analysis;
use candlescope_figures::Warmup;
use candlescope_figures::nsys::{Profile, ProfileError};
use candlescope_figures::{Comparison, KernelSum, KernelsByPath, PathKernels};
use candlescope_reader::Run;
use candlescope_report::{ReportOptions, TerminalOptions, write_report};
use candlescope_report::{html, json, markdown, terminal};
use candlescope_schema::{Batch, GpuSource, GpuTime};
use rusqlite::{Connection, params};
use std::path::{Path, PathBuf};
use tempfile::{TempDir, tempdir};

/// Threads of two processes in Nsight Systems' numbering: the process in the bits above the thread's 24.
const MAIN: i64 = (0x1_0064_003a_u64 << 24 | 11) as i64;
const WORKER: i64 = (0x1_0064_003a_u64 << 24 | 12) as i64;
const OTHER: i64 = (0x1_0064_003b_u64 << 24 | 11) as i64;

/// An export of Nsight Systems 2023.4 (schema 3.7.2), with the tables and columns that are read and some that are not.
struct Export {
    file: Connection,
    path: PathBuf,
}

impl Export {
    fn new(dir: &Path, cuda: bool) -> Self {
        let path = dir.join("profile.sqlite");
        let file = Connection::open(&path).unwrap();
        file.execute_batch(
            "CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
             CREATE TABLE META_DATA_EXPORT (name TEXT NOT NULL, value TEXT);
             INSERT INTO META_DATA_EXPORT VALUES ('EXPORT_PRODUCT_VERSION', '2023.4.4.54');
             CREATE TABLE NVTX_EVENTS (start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, rangeId INTEGER,
                category INTEGER, color INTEGER, text TEXT, globalTid INTEGER, endGlobalTid INTEGER, textId INTEGER,
                domainId INTEGER, uint64Value INTEGER, int64Value INTEGER, doubleValue REAL, uint32Value INTEGER,
                int32Value INTEGER, floatValue REAL, jsonTextId INTEGER, jsonText TEXT);
             INSERT INTO StringIds VALUES (1, 'gemv<float>'), (2, 'rmsnorm'), (3, 'linear');",
        )
        .unwrap();
        if cuda {
            file.execute_batch(
                "CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER NOT NULL, end INTEGER NOT NULL, eventClass INTEGER NOT NULL,
                    globalTid INTEGER, correlationId INTEGER, nameId INTEGER NOT NULL, returnValue INTEGER NOT NULL, callchainId INTEGER);
                 CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
                    contextId INTEGER NOT NULL, greenContextId INTEGER, streamId INTEGER NOT NULL, correlationId INTEGER,
                    globalPid INTEGER, demangledName INTEGER NOT NULL, shortName INTEGER NOT NULL);",
            )
            .unwrap();
        }
        let export = Self { file, path };
        // Each process numbers its domains as it makes them: number 1 is our domain in one process and somebody else's
        // in the other.
        export.domain(MAIN, 1, "candlescope");
        export.domain(MAIN, 2, "cuBLAS");
        export.domain(OTHER, 1, "cuBLAS");
        export
    }

    fn domain(&self, thread: i64, id: i64, name: &str) {
        self.file
            .execute(
                "INSERT INTO NVTX_EVENTS (start, eventType, text, globalTid, domainId) VALUES (0, 75, ?1, ?2, ?3)",
                params![name, thread, id],
            )
            .unwrap();
    }

    fn range(&self, thread: i64, domain: i64, start: i64, end: Option<i64>, payload: u64) {
        self.file
            .execute(
                "INSERT INTO NVTX_EVENTS (start, end, eventType, globalTid, textId, domainId, uint64Value) VALUES (?1, ?2, 59, ?3, 3, ?4, ?5)",
                params![start, end, thread, domain, payload as i64],
            )
            .unwrap();
    }

    fn call(&self, thread: i64, correlation: i64, start: i64) {
        self.file
            .execute(
                "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?1, ?1 + 5, 1, ?2, ?3, 1, 0, NULL)",
                params![start, thread, correlation],
            )
            .unwrap();
    }

    fn kernel(&self, thread: i64, correlation: i64, start: i64, ns: i64, name: i64) {
        self.file
            .execute(
                "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?1, ?1 + ?2, 0, 1, NULL, 7, ?3, ?4, ?5, ?5)",
                params![start, ns, correlation, thread >> 24 << 24, name],
            )
            .unwrap();
    }

    /// A launch at `at` of a kernel that runs for `ns`, long after it.
    fn launch(&self, thread: i64, correlation: i64, at: i64, ns: i64, name: i64) {
        self.call(thread, correlation, at);
        self.kernel(thread, correlation, at + 100_000, ns, name);
    }

    fn profile(&self) -> Profile {
        Profile::open(&self.path).unwrap()
    }
}

/// decode → block[0], block[1] → linear each; ids 1 to 5. The linears have device time.
fn run() -> (TempDir, Run) {
    let gpu = |ns| Some(GpuTime { start: candlescope_schema::HostNs(0), dur_ns: ns, source: GpuSource::Event });
    let mut spans = vec![
        span(0, None, "decode", 0, 1_000),
        span(1, Some(0), "decode/block[0]", 100, 300),
        span(2, Some(1), "decode/block[0]/linear", 150, 100),
        span(3, Some(0), "decode/block[1]", 500, 300),
        span(4, Some(3), "decode/block[1]/linear", 550, 100),
    ];
    spans[2].gpu = gpu(900);
    spans[4].gpu = gpu(600);
    let mut batch = Batch::default();
    batch.spans = spans;
    let dir = tempdir().unwrap();
    write_run(dir.path(), &batch, &manifest(&batch), 2);
    let run = Run::open(dir.path()).unwrap();
    (dir, run)
}

/// A profile of that run in which no kernel is at the place that its neighbours would suggest.
fn profile(dir: &Path) -> Export {
    let e = Export::new(dir, true);
    for (start, end, id) in [(0, 1_000, 1), (100, 400, 2), (150, 250, 3), (500, 800, 4), (550, 650, 5)] {
        e.range(MAIN, 1, start, Some(end), id);
    }
    // Foreign ranges that would get kernels if they were taken for ours.
    e.range(MAIN, 2, 160, Some(240), 4);
    e.range(OTHER, 1, 0, Some(1_000), 1);
    e.launch(MAIN, 1, 160, 400, 1); // block[0]/linear
    e.launch(MAIN, 2, 600, 300, 1); // block[1]/linear
    e.launch(MAIN, 3, 640, 50, 2); // block[1]/linear
    e.launch(MAIN, 4, 300, 70, 2); // block[0]
    e.launch(MAIN, 5, 900, 11, 2); // decode
    e.launch(MAIN, 6, 2_000, 13, 2); // after all of it
    e.launch(WORKER, 7, 160, 17, 2); // at a linear's time, but on another thread
    e.launch(OTHER, 1, 160, 19, 2); // the same number in another process
    e.kernel(MAIN, 99, 5_000, 23, 2); // launched before recording began
    e
}

fn sum(kernels: u64, ns: u64) -> KernelSum {
    KernelSum { kernels, ns }
}

#[test]
fn kernels_belong_to_the_interval_that_launched_them() {
    let (dir, run) = run();
    let by_path = KernelsByPath::of(&run, &profile(dir.path()).profile(), &Warmup::default());
    let row = |path: &str, intervals, own, all, top: (&str, u64), gpu| PathKernels {
        path: path.into(),
        intervals,
        own,
        all,
        top: Some((top.0.into(), top.1)),
        gpu,
    };
    let gpu = Comparison { intervals: 2, run_ns: 1_500, nsys_ns: 750, source: GpuSource::Event };
    assert_eq!(
        by_path.rows,
        [
            row("decode/block/linear", 2, sum(3, 750), sum(3, 750), ("gemv<float>", 700), Some(gpu)),
            row("decode/block", 2, sum(1, 70), sum(4, 820), ("rmsnorm", 70), None),
            row("decode", 1, sum(1, 11), sum(5, 831), ("rmsnorm", 11), None),
        ]
    );
    assert_eq!((by_path.outside, by_path.unlaunched), (sum(3, 13 + 17 + 19), sum(1, 23)));
    let own: u64 = by_path.rows.iter().map(|r| r.own.ns).sum();
    assert_eq!(by_path.all.ns, own + by_path.outside.ns + by_path.unlaunched.ns, "no kernel is lost or counted twice");
    assert_eq!((by_path.all.kernels, by_path.ranges, by_path.matched), (9, 5, 5));
    assert!(by_path.findings().is_empty());
}

#[test]
fn an_interval_that_the_run_lost_leaves_its_kernels_to_the_one_around_it() {
    let (dir, run) = run();
    let e = profile(dir.path());
    // Inside the first linear, with an id above the signed integers.
    e.range(MAIN, 1, 155, Some(170), u64::MAX - 1);
    e.range(MAIN, 1, 990, None, 7_777);
    let by_path = KernelsByPath::of(&run, &e.profile(), &Warmup::default());
    assert_eq!(by_path.rows[0].own, sum(3, 750));
    assert_eq!((by_path.ranges, by_path.matched), (7, 5));
    assert_eq!(by_path.findings()[0].code, "nsys_ranges_unknown");
}

#[test]
fn two_calls_of_one_number_are_one_kernel() {
    let (dir, run) = run();
    let e = profile(dir.path());
    e.call(MAIN, 1, 2_500);
    let by_path = KernelsByPath::of(&run, &e.profile(), &Warmup::default());
    assert_eq!((by_path.all.kernels, by_path.rows[0].own), (9, sum(3, 750)), "the earlier call counts");
}

#[test]
fn a_cuda_graph_counts_as_one() {
    let (dir, run) = run();
    let e = profile(dir.path());
    e.file
        .execute_batch(
            "CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
                graphId INTEGER NOT NULL, graphExecId INTEGER NOT NULL, contextId INTEGER NOT NULL, streamId INTEGER NOT NULL,
                correlationId INTEGER, globalPid INTEGER);",
        )
        .unwrap();
    e.call(MAIN, 50, 950);
    let process = MAIN >> 24 << 24;
    e.file
        .execute("INSERT INTO CUPTI_ACTIVITY_KIND_GRAPH_TRACE VALUES (7000, 9000, 0, 1, 1, 1, 7, 50, ?1)", [process])
        .unwrap();
    let by_path = KernelsByPath::of(&run, &e.profile(), &Warmup::default());
    let decode = &by_path.rows[0];
    assert_eq!((decode.path.as_str(), decode.own), ("decode", sum(2, 2_011)));
    assert_eq!(decode.top, Some(("(CUDA graph)".to_string(), 2_000)));
}

#[test]
fn what_a_profile_lacks_is_said() {
    let (dir, run) = run();
    let codes = |e: &Export| {
        let findings = KernelsByPath::of(&run, &e.profile(), &Warmup::default()).findings();
        findings.into_iter().map(|f| f.code).collect::<Vec<_>>()
    };
    let no_cuda = Export::new(dir.path(), false);
    no_cuda.range(MAIN, 1, 0, Some(10), 1);
    assert_eq!(codes(&no_cuda), ["nsys_no_kernels"]);
    no_cuda.file.execute("UPDATE NVTX_EVENTS SET uint64Value = 4242", []).unwrap();
    assert_eq!(codes(&no_cuda), ["nsys_other_run", "nsys_no_kernels"]);
    no_cuda.file.execute("DROP TABLE NVTX_EVENTS", []).unwrap();
    assert_eq!(codes(&no_cuda), ["nsys_no_ranges", "nsys_no_kernels"]);
    // Kernels recorded without API calls cannot be placed.
    let other = tempdir().unwrap();
    let e = profile(other.path());
    e.file.execute("DROP TABLE CUPTI_ACTIVITY_KIND_RUNTIME", []).unwrap();
    let by_path = KernelsByPath::of(&run, &e.profile(), &Warmup::default());
    assert_eq!((by_path.unlaunched.kernels, by_path.all.kernels), (9, 9));
}

#[test]
fn other_files_are_refused_by_name() {
    let dir = tempdir().unwrap();
    let missing = Profile::open(dir.path().join("none.sqlite")).unwrap_err();
    assert!(matches!(missing, ProfileError::NotFound(_)), "{missing}");
    let text = dir.path().join("report.nsys-rep");
    std::fs::write(&text, "not a database, but long enough to look like a file header ".repeat(20)).unwrap();
    let empty = dir.path().join("empty.sqlite");
    Connection::open(&empty).unwrap().execute_batch("CREATE TABLE x (y)").unwrap();
    for path in [&text, &empty] {
        let error = Profile::open(path).unwrap_err();
        assert!(matches!(error, ProfileError::NotAnExport { .. }), "{error}");
        let message = error.to_string();
        assert!(message.contains(path.to_str().unwrap()) && message.contains("nsys export"), "{message}");
    }
    let e = Export::new(dir.path(), false);
    e.file.execute_batch("DROP TABLE NVTX_EVENTS; CREATE TABLE NVTX_EVENTS (start INTEGER)").unwrap();
    let damaged = Profile::open(&e.path).unwrap_err();
    assert!(
        matches!(damaged, ProfileError::Read { .. }) && damaged.to_string().contains("Export it again"),
        "{damaged}"
    );
}

#[test]
fn every_report_shows_the_same_table() {
    let (dir, run) = run();
    let mut analysis = Analysis::of(&run);
    for text in [markdown::report(&analysis), html::page(&analysis)] {
        assert!(!text.contains("Kernels by path"), "nothing of it without a profile");
    }
    assert!(json::metrics(&analysis)["nsys"].is_null());
    let profile = profile(dir.path()).profile();
    analysis.nsys = Some(KernelsByPath::of(&run, &profile, &Warmup::default()));
    let summary = terminal::summary(&analysis, &TerminalOptions::default());
    let page = html::page(&analysis);
    // The template engine escapes slashes too.
    let texts = [&summary, &markdown::report(&analysis), &page.replace("&#x2f;", "/")];
    for (text, which) in texts.into_iter().zip(["terminal", "markdown", "html"]) {
        for part in [
            "Kernels by path (Nsight Systems)",
            "decode/block/linear",
            "750 ns",
            "820 ns",
            "1.50 µs (2.00×)",
            "(outside every interval)",
            "5 of 5 ranges are intervals of this run",
        ] {
            assert!(text.contains(part), "{part} in {which}");
        }
    }
    assert!(page.contains("gemv&lt;float&gt;") && !page.contains("gemv<float>"), "names are escaped");
    assert!(summary.lines().all(|line| line.chars().count() <= 100), "{summary}");
    // A profile without kernels is one line, not a table of zeros.
    let mut idle = analysis.clone();
    let mut without = profile;
    without.kernels.clear();
    idle.nsys = Some(KernelsByPath::of(&run, &without, &Warmup::default()));
    let summary = terminal::summary(&idle, &TerminalOptions::default());
    let section = summary.split("Kernels by path").nth(1).unwrap().split("Cost and loss").next().unwrap();
    assert!(section.contains("0 kernels") && !section.contains("decode/block"), "{section}");
    assert_eq!(json::metrics(&idle)["nsys"]["paths"].as_array().unwrap().len(), 3);
    let metrics = &json::metrics(&analysis)["nsys"];
    assert_eq!(metrics["paths"][0]["total"]["kernel_ns"], 750);
    assert_eq!(metrics["paths"][0]["gpu"]["source"], "event");
    assert_eq!(metrics["outside"]["kernels"], 3);
    assert_eq!(metrics["version"], "2023.4.4.54");
}

#[test]
fn a_report_takes_a_profile() {
    let (dir, _) = run();
    let e = Export::new(dir.path(), false);
    let out = tempdir().unwrap();
    let options = ReportOptions { out: Some(out.path().into()), nsys: Some(e.profile()), ..ReportOptions::default() };
    let report = write_report(dir.path(), &options).unwrap();
    assert!(report.verdict.findings.iter().any(|f| f.code == "nsys_no_ranges"), "{:?}", report.verdict);
    assert_eq!(report.metrics["nsys"]["all"]["kernels"], 0);
}
