//! Runs for agents, through a client of others.
#![allow(missing_docs, reason = "a test")]
mod common;
use candlescope_testkit::wait_for;
use common::*;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

fn recorded(dir: &Path) {
    let args = ["profile", "--model", "embedded", "--max-new-tokens", "8", "--repeats", "3", "--no-progress", "--out"];
    ok(&[&args[..], &[dir.to_str().unwrap()]].concat());
}

#[test]
fn a_client_of_others_uses_every_tool_and_cannot_leave_the_folder() {
    let Some(python) = require(&PYTHON) else { return };
    let dir = tempfile::tempdir().unwrap();
    let (root, outside) = (dir.path().join("root"), dir.path().join("outside"));
    std::fs::create_dir(&root).unwrap();
    recorded(&root.join("a"));
    copy(&root.join("a"), &root.join("b"));
    recorded(&outside);
    let script = Path::new(ROOT).join("tests/python/mcp_client.py");
    let output = Command::new(python)
        .arg(script)
        .args([Path::new(BINARY), &root, &outside])
        .env("XDG_CACHE_HOME", dir.path())
        .output()
        .unwrap();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{out}\n{err}");
    assert_eq!(json(&out)["tools"].as_array().unwrap().len(), 7);
    assert!(!Path::new("/tmp/candlescope-mcp-must-not-be").exists());
}

/// A server that is spoken to by hand.
struct Server(Child);

impl Server {
    fn start(root: &Path) -> Self {
        let mut command = candlescope();
        command.args(["mcp", "--root", root.to_str().unwrap()]);
        Self(command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
    }

    fn say(&mut self, line: &str) {
        writeln!(self.0.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    fn ended(&mut self) -> std::process::ExitStatus {
        wait_for(|| self.0.try_wait().unwrap(), "the server ends")
    }
}

#[test]
fn it_ends_with_its_input_and_says_nothing_but_the_protocol() {
    let dir = tempfile::tempdir().unwrap();
    let mut server = Server::start(dir.path());
    server.say(MCP_HELLO);
    let mut out = BufReader::new(server.0.stdout.take().unwrap());
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    assert_eq!(json(&line)["result"]["serverInfo"]["name"], "candlescope");
    server.say(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
    server.say("this is no JSON");
    server.say(r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"list_runs","arguments":{}}}"#);
    // An answer that is under way is still given.
    drop(server.0.stdin.take());
    let mut rest = String::new();
    out.read_to_string(&mut rest).unwrap();
    assert!(server.ended().success());
    let answers: Vec<_> = rest.lines().map(json).collect();
    let answer = answers.iter().find(|answer| answer["id"] == 2).expect("an answer");
    assert_eq!(answer["result"]["isError"], true);
    let why = answer["result"]["content"][0]["text"].as_str().unwrap();
    assert!(why.contains("neither a run nor a study"), "{why}");
}

#[test]
fn a_client_that_leaves_at_once_is_no_error_and_a_root_that_is_missing_is_one() {
    let dir = tempfile::tempdir().unwrap();
    let mut server = Server::start(dir.path());
    drop(server.0.stdin.take());
    assert!(server.ended().success());
    assert!(fails(&["mcp", "--root", dir.path().join("nothing").to_str().unwrap()]).contains("as the root"));
}
