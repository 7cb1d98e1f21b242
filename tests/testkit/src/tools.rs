//! Tools and rights that not every machine has.
//!
//! Usually a test whose tool is missing says so and passes. If `CI` is set, or `CANDLESCOPE_REQUIRE`, which `make test`
//! sets, it fails: there a test that did not run must not look like one that passed.

use crate::ROOT;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A file that a test needs.
#[derive(Debug)]
pub struct Tool {
    what: &'static str,
    /// Environment variable that names it.
    variable: &'static str,
    /// Where a script of the repository installs it.
    place: &'static str,
    /// Its name on the `PATH`, if any version will do.
    program: Option<&'static str>,
    remedy: &'static str,
}

/// A Python with what `tests/python/requirements.txt` names: DuckDB, Polars, Jupyter, Perfetto's definitions.
pub const PYTHON: Tool = Tool {
    what: "a Python with DuckDB, Polars and Jupyter",
    variable: "CANDLESCOPE_PYTHON",
    place: ".venv/bin/python",
    program: None,
    remedy: "make venv",
};

/// A real model.
pub const SMOLLM2: Tool = Tool {
    what: "the model SmolLM2-135M",
    variable: "CANDLESCOPE_SMOLLM2",
    place: ".models/SmolLM2-135M-Instruct.Q4_1.gguf",
    program: None,
    remedy: "make models",
};

/// A real encoder: the weights in its directory.
pub const MINILM: Tool = Tool {
    what: "the model all-MiniLM-L6-v2",
    variable: "CANDLESCOPE_MINILM",
    place: ".models/all-MiniLM-L6-v2/model.safetensors",
    program: None,
    remedy: "make models",
};

/// NVIDIA's Nsight Systems.
pub const NSYS: Tool = Tool {
    what: "Nsight Systems",
    variable: "CANDLESCOPE_NSYS",
    place: ".nsys/nsight-systems/target-linux-x64/nsys",
    program: Some("nsys"),
    remedy: "make nsys",
};

/// Valgrind, which counts instructions.
pub const VALGRIND: Tool = Tool {
    what: "valgrind",
    variable: "CANDLESCOPE_VALGRIND",
    place: ".valgrind/bin/valgrind",
    program: Some("valgrind"),
    remedy: "scripts/setup.sh test",
};

/// Path of the tool; `None` if it is missing, after [`missing`] has said so.
///
/// # Panics
/// As [`missing`].
#[track_caller]
pub fn require(tool: &Tool) -> Option<PathBuf> {
    let named = std::env::var_os(tool.variable).map(PathBuf::from);
    let ours = Path::new(ROOT).join(tool.place);
    let on_path = tool.program.zip(std::env::var_os("PATH"));
    let on_path = on_path
        .into_iter()
        .flat_map(|(program, path)| std::env::split_paths(&path).map(|dir| dir.join(program)).collect::<Vec<_>>());
    let found = named.into_iter().chain([ours]).chain(on_path).find(|file| file.is_file());
    if found.is_none() {
        missing(tool.what, tool.remedy);
    }
    found
}

/// Reports that something a test needs is missing.
///
/// # Panics
/// If nothing may be missing.
#[track_caller]
pub fn missing(what: &str, remedy: &str) {
    let required =
        ["CI", "CANDLESCOPE_REQUIRE"].iter().any(|name| std::env::var_os(name).is_some_and(|v| !v.is_empty()));
    assert!(!required, "{what} is missing, and this machine must have it: {remedy}");
    skipped(what, remedy);
}

fn skipped(what: &str, remedy: &str) {
    // Directly to the stream, because output of `eprintln!` is not shown for a test that passes.
    let _ = writeln!(std::io::stderr(), "\n*** SKIPPED: {what} is missing: {remedy} ***\n");
}

/// A directory on a small file system of its own. Mounting one takes root or `sudo` without a password.
#[derive(Debug)]
pub struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    /// One of `size`, in `mount`'s notation; `None` if the right to mount is missing, after saying so. A right cannot
    /// be installed, so it is never required.
    pub fn mount(size: &str) -> Option<Self> {
        let dir = tempfile::tempdir().expect("a directory");
        let at = dir.path().to_str().expect("UTF-8");
        if as_root(&["mount", "-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs", at]) {
            return Some(Self(dir));
        }
        skipped("the right to mount a small file system", "run as root, or allow sudo without a password");
        None
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        as_root(&["umount", self.0.path().to_str().expect("UTF-8")]);
    }
}

fn as_root(command: &[&str]) -> bool {
    let runs = |program: &str, arguments: &[&str]| {
        Command::new(program).args(arguments).output().is_ok_and(|output| output.status.success())
    };
    runs(command[0], &command[1..]) || runs("sudo", &[&["-n"], command].concat())
}
