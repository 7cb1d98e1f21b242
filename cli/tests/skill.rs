//! The skill for agents: its form, and that its commands run as they are written.
#![allow(missing_docs, reason = "a test")]
mod common;
use common::*;
use std::path::{Path, PathBuf};
use std::process::Command;

fn skill() -> PathBuf {
    Path::new(ROOT).join("docs/agents/candlescope/SKILL.md")
}

/// The front matter and the rest.
fn parts() -> (String, String) {
    let text = std::fs::read_to_string(skill()).unwrap();
    let (head, body) = text.strip_prefix("---\n").unwrap().split_once("\n---\n").unwrap();
    (head.to_string(), body.to_string())
}

#[test]
fn it_is_in_the_form_of_agent_skills() {
    let (head, body) = parts();
    let field = |name: &str| head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": ")).unwrap();
    let (name, description) = (field("name"), field("description"));
    assert_eq!(skill().parent().unwrap().file_name().unwrap(), name, "a skill is called as its folder");
    assert!(name.len() <= 64 && name.chars().all(|c| c.is_ascii_lowercase() || c == '-'), "{name}");
    assert!((1..=1_024).contains(&description.chars().count()), "{} characters", description.chars().count());
    // What would end the value in YAML.
    assert!(!description.contains(": ") && !description.contains(" #"), "{description}");
    assert!(body.lines().count() <= 150, "{} lines", body.lines().count());
}

/// Commands in blocks of a shell, each after the variables that are set before it.
fn commands() -> Vec<(String, String)> {
    let (_, body) = parts();
    let blocks = body.split("```sh\n").skip(1).map(|part| part.split("```").next().unwrap().to_string());
    let (mut all, mut variables) = (Vec::new(), String::new());
    for line in blocks.flat_map(|block| block.lines().map(str::to_string).collect::<Vec<_>>()) {
        if line.starts_with("candlescope ") {
            all.push((std::mem::take(&mut variables), line));
        } else {
            variables.push_str(&(line + "\n"));
        }
    }
    assert!(variables.is_empty(), "no command follows: {variables}");
    all
}

/// Its change is one that helps on every CPU (16 bits are widened for each product there), so it has to come out as
/// better. Some twenty short runs.
#[test]
fn its_commands_run_one_after_another_and_answer_as_it_says() {
    let dir = tempfile::tempdir().unwrap();
    let all = commands();
    assert!(all.len() >= 6, "{all:?}");
    // Commands start commands by their name.
    let others = std::env::var_os("PATH").unwrap();
    let folders = [Path::new(BINARY).parent().unwrap().to_path_buf()].into_iter().chain(std::env::split_paths(&others));
    let path = std::env::join_paths(folders).unwrap();
    for (variables, command) in all {
        let output = Command::new("sh")
            .args(["-c", &format!("{variables}{command}")])
            .current_dir(dir.path())
            .env("PATH", &path)
            .env("XDG_CACHE_HOME", dir.path().join("cache"))
            .env_remove("CANDLESCOPE")
            .output()
            .unwrap();
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(0), "{command}: {out}\n{err}");
        if command.contains(" compare ") {
            let found = json(&out);
            assert_eq!((&found["outcome"], &found["step"]["estimate"]["basis"]), (&"better".into(), &"pairs".into()));
            assert!(dir.path().join("runs/compare/b").is_dir());
        } else if command.contains(" overview ") {
            let found = json(&out);
            for key in ["trust", "figures", "findings", "next"] {
                assert!(!found[key].is_null(), "{key}: {out}");
            }
            assert!(found["trust"]["ok"].is_boolean() && found["trust"]["disturbed"].is_boolean());
        } else if command.contains(" analyze ") {
            assert!(
                json(&out)["abstained"].as_array().is_some_and(|all| all.iter().all(|one| one["record"].is_string()))
            );
        } else if command.contains(" query ") {
            assert!(!json(&out)["rows"].as_array().unwrap().is_empty(), "{command}");
        }
    }
}
