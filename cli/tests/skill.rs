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

/// Commands in blocks of a shell.
fn commands() -> Vec<String> {
    let (_, body) = parts();
    let blocks = body.split("```sh\n").skip(1).map(|part| part.split("```").next().unwrap().to_string());
    blocks.flat_map(|block| block.lines().map(str::to_string).collect::<Vec<_>>()).collect()
}

#[test]
fn its_commands_run_one_after_another_and_answer_as_it_says() {
    let dir = tempfile::tempdir().unwrap();
    let all = commands();
    assert!(all.len() >= 7 && all.iter().all(|command| command.starts_with("candlescope ")), "{all:?}");
    for command in all {
        let output = Command::new("sh")
            .args(["-c", &format!("candlescope() {{ \"$BINARY\" \"$@\"; }}; {command}")])
            .current_dir(dir.path())
            .env("BINARY", BINARY)
            .env("XDG_CACHE_HOME", dir.path().join("cache"))
            .env_remove("CANDLESCOPE")
            .output()
            .unwrap();
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        let status = output.status.code().unwrap();
        if command.starts_with("candlescope compare") {
            let expected = match json(&out)["outcome"].as_str().unwrap() {
                "equivalent" | "better" => 0,
                "worse" => 1,
                _ => 2,
            };
            assert_eq!(status, expected, "{out}");
            continue;
        }
        assert_eq!(status, 0, "{command}: {err}");
        if command.contains(" overview ") {
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
