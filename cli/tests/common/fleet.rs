//! Runs of several days and machines, and what an archive of them has to hold.
#![allow(dead_code, unreachable_pub, reason = "shared by several test binaries")]
use crate::common::*;
use candlescope_core::numbers::DAY_NS;
use candlescope_core::{Batch, HostNs, PerturbationRecord, Side};
use candlescope_reader::ReadLimits;
use candlescope_sql::{Answer, Sources, query};
use candlescope_testkit::ranks::{MadeRank, RankTruth};
use candlescope_testkit::records::{T0, manifest as manifest_of, with};
use std::fs;
use std::path::{Path, PathBuf};

/// Records a short run.
pub fn record(dir: &Path) {
    let args =
        ["profile", "--model", "embedded", "--max-new-tokens", "3", "--repeats", "2", "--warmup", "1", "--no-progress"];
    ok(&[&args[..], &["--out", dir.to_str().unwrap()]].concat());
}

/// Adds tables that a run of a CPU does not have: kernels that were recorded on a GPU, and stretches of an experiment.
fn add_tables(run: &Path) {
    let recorded = Path::new(ROOT).join("cli/tests/recorded/gpu/decode/kernels");
    copy(&recorded, &run.join("kernels"));
    let stretch = |pair: u64, delayed: bool| {
        let (target, name) = ("path=mlp".into(), "decode".into());
        let (start, side) = (HostNs(T0 + pair as i64 * 1_000), Side::Host);
        PerturbationRecord::of_fields(
            target,
            side,
            pair,
            delayed,
            pair,
            None,
            name,
            start,
            900,
            Some(1_000),
            4,
            400,
            pair,
        )
    };
    let stretches = (0..20).map(|n| stretch(n / 2, n % 2 == 0)).collect();
    let batch = with(Batch::default(), |batch| batch.perturbations = stretches);
    let made = tempfile::tempdir().unwrap();
    let manifest = manifest_of(&batch);
    write_ranks(made.path(), &[MadeRank { batch, manifest, truth: RankTruth::default() }]);
    copy(&made.path().join("rank-0/perturbations"), &run.join("perturbations"));
}

/// Gives a run another name, day and host.
pub fn rename(dir: &Path, id: &str, host: &str, days_before: i64) {
    change(dir, |manifest| {
        manifest["run_id"] = id.into();
        manifest["host"] = host.into();
        for time in ["started_ns", "ended_ns"] {
            manifest[time] = (manifest[time].as_i64().unwrap() - days_before * DAY_NS).into();
        }
    });
}

/// Changes what a run says of itself.
pub fn change(dir: &Path, change: impl FnOnce(&mut serde_json::Value)) {
    let path = dir.join("run.json");
    let mut manifest = json(&fs::read_to_string(&path).unwrap());
    change(&mut manifest);
    fs::write(path, manifest.to_string()).unwrap();
}

pub fn ask(paths: &[&Path], sql: &str) -> Answer {
    let limits = ReadLimits::default();
    query(sql, &Sources::open(paths, &limits).unwrap(), &limits, 0).unwrap_or_else(|error| panic!("{sql}: {error}"))
}

/// What every row of these runs adds up to, whichever run it is of. Names of directories differ.
pub fn contents(paths: &[&Path]) -> Vec<String> {
    let of_table = |table: &str, column: &str| {
        let sql = format!(
            "SELECT run_id, count(*) AS n, sum({column}) AS s, count(DISTINCT {column}) AS d FROM {table} GROUP BY run_id ORDER BY run_id"
        );
        format!("{table} {:?}", ask(paths, &sql).rows)
    };
    let mut all = vec![
        of_table("spans", "host_start_ns + host_dur_ns"),
        of_table("steps", "host_dur_ns"),
        of_table("requests", "ttft_ns"),
        of_table("samples", "time_ns"),
        of_table("stacks", "stack"),
        of_table("stack_samples", "time_ns"),
        of_table("kernels", "gpu_start_ns"),
        of_table("perturbations", "host_start_ns + added_ns"),
    ];
    all.push(format!(
        "{:?}",
        ask(paths, "SELECT run_id, host, rank, started_ns, model_name, asked FROM runs ORDER BY started_ns").rows
    ));
    let views = "SELECT operator, count(*), sum(self_ns) FROM self_time GROUP BY operator ORDER BY operator";
    all.push(format!("{:?}", ask(paths, views).rows));
    all
}

/// Files below a folder, in order.
pub fn names(root: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap().flatten() {
            match entry.path().is_dir() {
                true => folders.push(entry.path()),
                false => found.push(entry.path().strip_prefix(root).unwrap().display().to_string()),
            }
        }
    }
    found.sort();
    found
}

/// Runs beside the place of an archive.
pub struct Place {
    pub dir: tempfile::TempDir,
}

impl Place {
    /// Two runs of one day and host, one of another day and host.
    pub fn new() -> Self {
        static ONE: std::sync::OnceLock<tempfile::TempDir> = std::sync::OnceLock::new();
        let one = ONE.get_or_init(|| {
            let dir = tempfile::tempdir().unwrap();
            record(&dir.path().join("one"));
            record(&dir.path().join("two"));
            add_tables(&dir.path().join("one"));
            dir
        });
        let place = Self { dir: tempfile::tempdir().unwrap() };
        for (from, to, id, host, days) in
            [("one", "a", "first", "gpu-1", 0), ("two", "b", "second", "gpu-1", 0), ("one", "c", "third", "a/b", 40)]
        {
            let to = place.run(to);
            copy(&one.path().join(from), &to);
            rename(&to, id, host, days);
        }
        place
    }

    pub fn run(&self, name: &str) -> PathBuf {
        self.dir.path().join("runs").join(name)
    }

    pub fn root(&self) -> PathBuf {
        self.dir.path().join("archive")
    }

    pub fn runs(&self) -> Vec<PathBuf> {
        ["a", "b", "c"].map(|name| self.run(name)).into_iter().filter(|dir| dir.is_dir()).collect()
    }
}
