//! Libraries print nothing: standard output and error belong to the program, and `eprintln!` panics if they are closed.
//! Messages go through `sdk/core/src/diagnostics.rs`.
#![allow(missing_docs, reason = "a test")]

use std::path::{Path, PathBuf};

/// The library crates. `cli`, `examples` and `tests` are programs.
const LIBRARIES: &[&str] = &[
    "work",
    "schema",
    "document",
    "prompts",
    "charts",
    "sdk",
    "collectors",
    "exporters",
    "instrumented-models",
    "analysis",
    "load",
    "monitor",
    "lab",
];

/// Macros and functions that print, or panic if they cannot.
const PRINTING: &[&str] = &["println!(", "print!(", "eprintln!(", "eprint!(", "dbg!(", "io::stderr()", "io::stdout()"];

/// Exceptions: the one place for messages, and log lines of `RUST_LOG`, written by `tracing-subscriber` with internal
/// errors off.
const ALLOWED: &[(&str, &str)] =
    &[("sdk/core/src/diagnostics.rs", "io::stderr()"), ("sdk/candlescope/src/builder.rs", "io::stderr")];

fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).expect("a directory of the workspace") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
}

/// Lines of library code that print, as `path:line: text`. Tests inside a file are at its end.
fn printing(name: &str, text: &str) -> Vec<String> {
    let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let allowed: Vec<&str> = ALLOWED.iter().filter(|(path, _)| *path == name).map(|(_, what)| *what).collect();
    code.lines()
        .enumerate()
        .filter(|(_, line)| !line.trim_start().starts_with("//"))
        .filter(|(_, line)| PRINTING.iter().any(|p| line.contains(p)) && !allowed.iter().any(|a| line.contains(a)))
        .map(|(n, line)| format!("{name}:{}: {}", n + 1, line.trim()))
        .collect()
}

#[test]
fn no_library_prints() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut files = Vec::new();
    for library in LIBRARIES {
        sources(&root.join(library), &mut files);
    }
    let is_program = |name: &str| {
        let part = |part: &str| name.split('/').any(|p| p == part);
        part("tests") || part("examples") || part("benches") || part("bin") || name.ends_with("/build.rs")
    };
    let mut found = Vec::new();
    let mut read = 0;
    for path in files {
        let name = path.strip_prefix(&root).expect("below the root").to_string_lossy().replace('\\', "/");
        if is_program(&name) || name.ends_with("tests.rs") {
            continue;
        }
        read += 1;
        found.extend(printing(&name, &std::fs::read_to_string(&path).expect("source")));
    }
    assert!(read > 150, "only {read} files were looked at: has the workspace moved?");
    assert!(
        found.is_empty(),
        "library code prints; tell it through candlescope_core::diagnostics:\n{}",
        found.join("\n")
    );
}

#[test]
fn printing_is_found_where_it_is() {
    let text = "/// println!(\"in a comment\")\nfn f() {\n    eprintln!(\"no\");\n}\n\
                #[cfg(test)]\nmod tests {\n    println!(\"yes\");\n}\n";
    assert_eq!(printing("sdk/x.rs", text), ["sdk/x.rs:3: eprintln!(\"no\");"]);
    assert_eq!(printing("sdk/core/src/diagnostics.rs", "std::io::stderr().lock();"), Vec::<String>::new());
    assert_eq!(printing("sdk/core/src/other.rs", "std::io::stderr().lock();").len(), 1);
}
