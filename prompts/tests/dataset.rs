//! Data sets in every form, and what is wrong with bad ones.
#![allow(missing_docs, reason = "a test")]

use candlescope_prompts::{Content, Prompt, read};
use std::fs;
use std::path::Path;

fn text(prompt: &Prompt) -> String {
    match &prompt.content {
        Content::Text(text) => text.clone(),
        Content::Messages(_) => "messages".to_string(),
        Content::Image { path, .. } => path.file_name().unwrap().display().to_string(),
    }
}

fn texts(path: &Path, variant: Option<&str>) -> Result<Vec<String>, String> {
    read(path, variant).map(|prompts| prompts.iter().map(text).collect()).map_err(|e| e.to_string())
}

#[test]
fn every_form_of_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = dir.path().join(name);
        fs::write(&path, text).unwrap();
        path
    };
    let jsonl = "{\"prompt\":\"a\",\"max_tokens\":5}\n\n{\"messages\":[{\"role\":\"user\",\"content\":\"b\"}]}\n{\"text\":\"c\"}\n";
    let path = write("p.jsonl", jsonl);
    assert_eq!(texts(&path, None).unwrap(), ["a", "messages", "c"]);
    let prompts = read(&path, None).unwrap();
    assert_eq!((prompts[0].max_tokens, prompts[1].id, prompts[1].characters()), (Some(5), 3, 1));
    assert_eq!(
        prompts[0].sha256().unwrap(),
        "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb",
        "FIPS 180-4, of the letter a"
    );
    assert_eq!(texts(&write("p.txt", "one\n\n two \n"), None).unwrap(), ["one", "two"]);
    let shared = r#"[{"id":"x","conversations":[{"from":"human","value":"hi"},{"from":"gpt","value":"ho"}]},
        {"conversations":[{"from":"gpt","value":"ho"}]},{"conversations":[{"from":"system","value":"s"},{"from":"human","value":"q"}]}]"#;
    assert_eq!(texts(&write("s.json", shared), None).unwrap(), ["hi", "messages"]);
    let image = write("i.png", "");
    assert_eq!(texts(&image, None).unwrap(), ["i.png"]);
    let asked = write("i.jsonl", "{\"image\":\"i.png\",\"prompt\":\"what is it?\"}\n");
    let asked = read(&asked, None).unwrap();
    assert_eq!(asked[0].content, Content::Image { path: image, text: Some("what is it?".into()) });
    assert_eq!(asked[0].sha256(), None);
    for (name, content, told) in [
        ("a.jsonl", "{\"prompt\":\"a\"}\n{\"question\":\"b\"}\n", "line 2: it has neither `prompt` nor `messages`"),
        ("b.jsonl", "{\"prompt\":\"a\"\n", "line 1: it is no JSON"),
        ("c.jsonl", "{\"prompt\":\" \"}\n", "its prompt is empty"),
        ("d.jsonl", "\n", "has no prompts"),
        ("e.txt", " \n", "has no prompts: write a prompt a line"),
        ("f.json", "[]", "has no prompts"),
        ("g.json", "{}", "has no prompts: it is no list"),
        ("h.json", "{\"prompt\":\"a\"}\n{\"prompt\":\"b\"}", "is it JSONL? Call it .jsonl"),
        ("i.json", "[{\"conversations\":[]}]", "none of its conversations begins with a person"),
        ("j.jsonl", "{\"prompt\":7}\n", "line 1: `prompt` is no text"),
        ("k.jsonl", "{\"image\":\"none.png\"}\n", "line 1: there is no image"),
        ("l.jsonl", "{\"prompt\":\"a\"}\n{\"image\":\"i.png\"}\n", "line 1 is a text, line 2 an image"),
    ] {
        let error = texts(&write(name, content), None).unwrap_err();
        assert!(error.contains(told) && error.contains(name), "{name}: {error}");
    }
    assert!(texts(&dir.path().join("none.jsonl"), None).unwrap_err().contains("cannot read"));
    assert!(texts(&path, Some("x")).unwrap_err().contains("no variant x"));
}

#[test]
fn directories_with_and_without_metadata() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    assert!(texts(dir.path(), None).unwrap_err().contains("needs metadata.toml"));
    fs::write(at("b.png"), "").unwrap();
    fs::write(at("a.jpg"), "").unwrap();
    assert_eq!(texts(dir.path(), None).unwrap(), ["a.jpg", "b.png"]);
    fs::write(at("a.txt"), "whole\nfile").unwrap();
    let error = texts(dir.path(), None).unwrap_err();
    assert!(error.contains("mixes texts and images: a.txt is a text, a.jpg an image"), "{error}");
    fs::remove_file(at("a.jpg")).unwrap();
    fs::remove_file(at("b.png")).unwrap();
    assert_eq!(texts(dir.path(), None).unwrap(), ["whole\nfile"]);
    assert!(texts(dir.path(), Some("m")).unwrap_err().contains("no variant m"));
    fs::write(at("short.jsonl"), "{\"prompt\":\"s\"}").unwrap();
    assert_eq!(texts(dir.path(), None).unwrap(), ["s"]);
    fs::write(at("long.jsonl"), "{\"prompt\":\"l\"}").unwrap();
    assert!(texts(dir.path(), None).unwrap_err().contains("variants long, short: name one with --variant"));
    assert_eq!(texts(dir.path(), Some("long")).unwrap(), ["l"]);
    let json = r#"{"name":"x","default":"s","variants":{"s":"short.jsonl","l":{"file":"long.jsonl","tokens":9}}}"#;
    let toml = "default = 's'\n[variants]\ns = 'short.jsonl'\nl = { file = 'long.jsonl' }\n\
                t = { file = 'texts.txt', separator = '---' }\nd = 'folder'\n";
    fs::write(at("texts.txt"), "one\n\ntwo\n---\n---\nthree\n").unwrap();
    fs::create_dir(at("folder")).unwrap();
    fs::write(at("folder/x.txt"), "inside").unwrap();
    for (name, text) in [("metadata.json", json), ("metadata.toml", toml)] {
        fs::write(at(name), text).unwrap();
        assert_eq!(texts(dir.path(), None).unwrap(), ["s"], "{name}");
        assert_eq!(texts(dir.path(), Some("l")).unwrap(), ["l"], "{name}");
        assert!(texts(dir.path(), Some("m")).unwrap_err().contains("m is none of them"));
        if name.ends_with("toml") {
            assert_eq!(texts(dir.path(), Some("t")).unwrap(), ["one\n\ntwo", "three"]);
            assert_eq!(read(dir.path(), Some("t")).unwrap()[1].id, 6, "the line where it begins");
            assert_eq!(texts(dir.path(), Some("d")).unwrap(), ["inside"]);
        }
        fs::remove_file(at(name)).unwrap();
    }
    fs::write(at("metadata.json"), "{}").unwrap();
    assert!(texts(dir.path(), None).unwrap_err().contains("no `variants`"));
    fs::write(at("metadata.toml"), toml).unwrap();
    assert!(texts(dir.path(), None).unwrap_err().contains("keep one of them"));
    fs::remove_file(at("metadata.json")).unwrap();
    fs::write(at("metadata.toml"), "variants = { x = '../short.jsonl' }").unwrap();
    assert!(texts(dir.path(), None).unwrap_err().contains("../short.jsonl lies outside"));
    fs::write(at("metadata.toml"), "variants = { x = '/etc/hostname' }").unwrap();
    assert!(texts(dir.path(), None).unwrap_err().contains("/etc/hostname lies outside"));
    fs::write(at("images.jsonl"), "{\"image\": \"../x.png\"}").unwrap();
    assert!(texts(&at("images.jsonl"), None).unwrap_err().contains("../x.png lies outside"));
    fs::write(at("folder/y.json"), "[]").unwrap();
    fs::write(at("folder/y.jsonl"), "{\"prompt\": \"p\"}").unwrap();
    assert!(texts(&at("folder"), None).unwrap_err().contains("keep one of them"));
    fs::write(at("metadata.toml"), "variants = 3").unwrap();
    assert!(texts(dir.path(), None).unwrap_err().contains("metadata.toml, metadata: it is no metadata"));
}
