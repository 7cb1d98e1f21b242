//! The first look: the run that the program brings along, completions of a shell, manual pages.
#![allow(missing_docs, reason = "a test")]
mod common;
use common::*;
use std::path::Path;
use std::process::Command;

#[test]
fn a_demo_is_opened_as_any_run_and_what_it_says_next_works() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("demo");
    let said = ok(&["demo", "--out", out.to_str().unwrap()]);
    for file in ["report.html", "report.md", "metrics.json", "trace.pftrace"] {
        assert!(out.join(file).metadata().unwrap().len() > 1000, "{file}");
    }
    let page = std::fs::read_to_string(out.join("report.html")).unwrap();
    assert!(page.contains("NVIDIA H200"), "names the device");
    // What it goes on with are commands of an overview, which its own tests run.
    assert!(said.contains("launch_bound") && said.contains("--what-if graph"), "{said}");
    assert!(said.contains(&format!("file://{}", out.join("report.html").display())), "{said}");
    // Again, after an update of the program; and never over what is something else.
    ok(&["demo", "--out", out.to_str().unwrap()]);
    std::fs::write(out.join("run.json"), "{}").unwrap();
    let said = fails(&["demo", "--out", out.to_str().unwrap()]);
    assert!(said.contains("is not empty") && said.contains("--out"), "{said}");
    assert_eq!(std::fs::read_to_string(out.join("run.json")).unwrap(), "{}");
}

#[test]
fn a_shell_completes_every_command() {
    let all = commands(&[]);
    assert!(all.len() > 25, "{all:?}");
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = ok(&["completions", shell]);
        let missing: Vec<&String> = all.iter().filter(|name| !script.contains(name.as_str())).collect();
        assert!(missing.is_empty(), "{shell}: {missing:?}");
    }
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("candlescope.bash");
    std::fs::write(&file, ok(&["completions", "bash"])).unwrap();
    // As bash itself would ask after `candlescope over` and the tab key.
    let ask = "source \"$0\"; COMP_WORDS=(candlescope over); COMP_CWORD=1; _candlescope candlescope over candlescope; echo \"${COMPREPLY[@]}\"";
    let output = Command::new("bash").args(["-c", ask]).arg(&file).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "overview", "{output:?}");
}

#[test]
fn every_command_has_a_manual_page() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("man1");
    ok(&["man", "--out", out.to_str().unwrap()]);
    let page = |name: &str| std::fs::read_to_string(out.join(format!("{name}.1")));
    for command in commands(&[]) {
        let text = page(&format!("candlescope-{command}")).unwrap_or_else(|_| panic!("{command}"));
        assert!(text.contains(".TH candlescope-") && text.contains(".SH SYNOPSIS"), "{command}");
    }
    for suite in commands(&["bench"]) {
        assert!(page(&format!("candlescope-bench-{suite}")).is_ok(), "{suite}");
    }
    let nowhere = Path::new("/proc/candlescope");
    assert!(fails(&["man", "--out", nowhere.to_str().unwrap()]).contains("--out"));
}
