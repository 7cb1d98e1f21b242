//! The forms of a file with prompts.

use crate::dataset_error::DatasetError;
use crate::paths::{extension, is_image, within};
use crate::prompt::{Content, Prompt};
use candlescope_schema::files::read_text_limited;
use serde_json::{Value, json};
use std::path::Path;

/// Largest file, in bytes.
const MOST_BYTES: u64 = 1 << 30;

/// Longest prompt, in bytes: more than fits into any model's context. It is copied for each request.
const MOST_OF_A_PROMPT: usize = 16 << 20;

/// Refuses a line, or a part between separators, that is longer than any prompt.
fn within_limit(path: &Path, place: impl FnOnce() -> String, bytes: usize) -> Result<(), DatasetError> {
    if bytes <= MOST_OF_A_PROMPT {
        return Ok(());
    }
    let why = format!("it has {bytes} bytes, more than the limit of {MOST_OF_A_PROMPT} for one prompt");
    Err(DatasetError::Entry { path: path.to_path_buf(), place: place(), why })
}

fn text_bytes(prompt: &Prompt) -> usize {
    match &prompt.content {
        Content::Text(text) => text.len(),
        Content::Messages(messages) => {
            messages.iter().filter_map(|message| message.get("content")?.as_str()).map(str::len).sum()
        }
        Content::Image { text, .. } => text.as_ref().map_or(0, String::len),
    }
}

/// The prompts of a file, by its extension. A plain text has a prompt a line, or between lines that are `separator`.
pub(crate) fn file(path: &Path, separator: Option<&str>) -> Result<Vec<Prompt>, DatasetError> {
    if is_image(path) {
        return Ok(vec![image(1, path, None)]);
    }
    let text = text_of(path)?;
    let prompts = match (extension(path).as_str(), separator) {
        ("jsonl" | "ndjson", _) => return jsonl(path, &text),
        ("json", _) => share_gpt(path, &text)?,
        (_, Some(separator)) => {
            let prompts = separated(&text, separator);
            for prompt in &prompts {
                within_limit(path, || format!("line {}", prompt.id), text_bytes(prompt))?;
            }
            prompts
        }
        _ => {
            for (n, line) in text.lines().enumerate() {
                within_limit(path, || format!("line {}", n + 1), line.len())?;
            }
            let kept = text.lines().map(str::trim).enumerate().filter(|(_, line)| !line.is_empty());
            kept.map(|(n, line)| Prompt { id: n as u64 + 1, content: Content::Text(line.into()), max_tokens: None })
                .collect()
        }
    };
    not_empty(path, prompts)
}

pub(crate) fn text_of(path: &Path) -> Result<String, DatasetError> {
    read_text_limited(path, MOST_BYTES).map_err(|cause| DatasetError::Read { path: path.to_path_buf(), cause })
}

pub(crate) fn image(id: u64, path: &Path, text: Option<String>) -> Prompt {
    Prompt { id, content: Content::Image { path: path.to_path_buf(), text }, max_tokens: None }
}

fn not_empty(path: &Path, prompts: Vec<Prompt>) -> Result<Vec<Prompt>, DatasetError> {
    if prompts.is_empty() { Err(DatasetError::empty(path, "write a prompt a line")) } else { Ok(prompts) }
}

/// What lies between lines that are `separator`, numbered by its first line.
fn separated(text: &str, separator: &str) -> Vec<Prompt> {
    let mut parts: Vec<(u64, Vec<&str>)> = vec![(1, Vec::new())];
    for (n, line) in text.lines().enumerate() {
        match parts.last_mut() {
            Some((_, lines)) if line.trim_end() != separator => lines.push(line),
            _ => parts.push((n as u64 + 2, Vec::new())),
        }
    }
    let texts = parts.into_iter().map(|(id, lines)| (id, lines.join("\n").trim().to_string()));
    let kept = texts.filter(|(_, text)| !text.is_empty());
    kept.map(|(id, text)| Prompt { id, content: Content::Text(text), max_tokens: None }).collect()
}

/// Prompts of JSONL, an object a line. `path` names the text in errors, and images are looked up beside it.
///
/// # Errors
/// If a line is no prompt, if there is none, or if texts and images are mixed.
pub fn jsonl(path: &Path, text: &str) -> Result<Vec<Prompt>, DatasetError> {
    let kept = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let prompts = kept.map(|(n, line)| {
        within_limit(path, || format!("line {}", n + 1), line.len())?;
        let wrong =
            |why: String| DatasetError::Entry { path: path.to_path_buf(), place: format!("line {}", n + 1), why };
        let value: Value = serde_json::from_str(line).map_err(|e| wrong(format!("it is no JSON: {e}")))?;
        entry(path, n as u64 + 1, &value).map_err(wrong)
    });
    let prompts = not_empty(path, prompts.collect::<Result<_, _>>()?)?;
    of_one_kind(path, "line", prompts)
}

/// Refuses texts and images in one data set.
fn of_one_kind(path: &Path, unit: &str, prompts: Vec<Prompt>) -> Result<Vec<Prompt>, DatasetError> {
    let is_image = |prompt: &&Prompt| matches!(prompt.content, Content::Image { .. });
    let (image, text) = (prompts.iter().find(is_image), prompts.iter().find(|prompt| !is_image(prompt)));
    match (text, image) {
        (Some(text), Some(image)) => Err(DatasetError::Mixed {
            path: path.to_path_buf(),
            text: format!("{unit} {}", text.id),
            image: format!("{unit} {}", image.id),
        }),
        _ => Ok(prompts),
    }
}

/// `{"prompt": "…"}`, `{"text": "…"}`, `{"messages": […]}`, `{"image": "FILE"}`, or a conversation of ShareGPT; with
/// `max_tokens` where answers are to have lengths of their own.
fn entry(path: &Path, id: u64, value: &Value) -> Result<Prompt, String> {
    let max_tokens = value.get("max_tokens").and_then(Value::as_u64).filter(|n| *n > 0);
    let text = |key: &str| match value.get(key) {
        None => Ok(None),
        Some(text) => text.as_str().map(|text| Some(text.to_string())).ok_or_else(|| format!("`{key}` is no text")),
    };
    let said = text("prompt")?.map_or_else(|| text("text"), |said| Ok(Some(said)))?;
    let content = if let Some(file) = text("image")? {
        let file = within(path.parent().unwrap_or(Path::new("")), Path::new(&file))?;
        if !file.is_file() {
            return Err(format!("there is no image {}", file.display()));
        }
        Content::Image { path: file, text: said }
    } else if let Some(said) = said {
        Content::Text(said)
    } else if let Some(messages) = value.get("messages") {
        let messages = messages.as_array().filter(|m| !m.is_empty()).ok_or("`messages` is no list with a message")?;
        if let Some(odd) = messages.iter().find(|m| m.get("role").and_then(Value::as_str).is_none()) {
            return Err(format!("a message has no `role`: {odd}"));
        }
        Content::Messages(messages.clone())
    } else if value.get("conversations").is_some() || value.get("conversation").is_some() {
        opening(value).ok_or("its conversation has nothing said by a person")?
    } else {
        return Err("it has neither `prompt` nor `messages`, `text` or `image`".to_string());
    };
    let is_blank = matches!(&content, Content::Text(text) if text.trim().is_empty());
    if is_blank { Err("its prompt is empty".to_string()) } else { Ok(Prompt { id, content, max_tokens }) }
}

/// What a conversation begins with, up to the first words of a person.
fn opening(value: &Value) -> Option<Content> {
    let turns = value.get("conversations").or_else(|| value.get("conversation"))?.as_array()?;
    let mut messages = Vec::new();
    for turn in turns {
        let from = turn.get("from").or_else(|| turn.get("role"))?.as_str()?;
        let said = turn.get("value").or_else(|| turn.get("content"))?.as_str()?;
        match from {
            "system" => messages.push(json!({ "role": "system", "content": said })),
            "human" | "user" if said.trim().is_empty() => return None,
            "human" | "user" if messages.is_empty() => return Some(Content::Text(said.to_string())),
            "human" | "user" => {
                messages.push(json!({ "role": "user", "content": said }));
                return Some(Content::Messages(messages));
            }
            _ => return None,
        }
    }
    None
}

/// A list of conversations, as ShareGPT's files have it, or of the objects that JSONL has one a line. Conversations
/// that do not begin with a person are left out, as other tools do.
fn share_gpt(path: &Path, text: &str) -> Result<Vec<Prompt>, DatasetError> {
    let wrong = |place: String, why: String| DatasetError::Entry { path: path.to_path_buf(), place, why };
    let value: Value = serde_json::from_str(text)
        .map_err(|e| wrong(format!("line {}", e.line()), format!("it is no JSON: {e}; is it JSONL? Call it .jsonl")))?;
    let entries =
        value.as_array().ok_or_else(|| DatasetError::empty(path, "it is no list of conversations or prompts"))?;
    let mut prompts = Vec::new();
    for (n, value) in entries.iter().enumerate() {
        let id = n as u64 + 1;
        if value.get("conversations").is_some() || value.get("conversation").is_some() {
            prompts.extend(opening(value).map(|content| Prompt { id, content, max_tokens: None }));
        } else {
            prompts.push(entry(path, id, value).map_err(|why| wrong(format!("entry {id}"), why))?);
        }
    }
    for prompt in &prompts {
        within_limit(path, || format!("entry {}", prompt.id), text_bytes(prompt))?;
    }
    if prompts.is_empty() && !entries.is_empty() {
        return Err(DatasetError::empty(path, "none of its conversations begins with a person"));
    }
    of_one_kind(path, "entry", prompts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_is_longer_than_any_prompt_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let long = "x".repeat(MOST_OF_A_PROMPT);
        for (name, text, place) in [
            ("a.jsonl", format!("{{\"prompt\":\"a\"}}\n{{\"prompt\":\"{long}\"}}"), "line 2"),
            ("a.txt", format!("a\n\n{long}x"), "line 3"),
            ("a.json", format!("[{{\"prompt\":\"{long}x\"}}]"), "entry 1"),
        ] {
            let path = dir.path().join(name);
            std::fs::write(&path, text).unwrap();
            let error = file(&path, None).unwrap_err().to_string();
            assert!(error.contains(place) && error.contains("limit of 16777216"), "{error}");
        }
    }
}
