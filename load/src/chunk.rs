//! One JSON object of an answer: a chunk of a stream, or a whole answer. Tolerant of what servers leave out or add.

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use std::fmt;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Chunk {
    #[serde(deserialize_with = "choices")]
    choices: Option<Vec<Choice>>,
    usage: Option<Usage>,
    error: Option<Value>,
    /// `error` where an older vLLM reports one.
    object: Option<Value>,
    message: Option<Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Choice {
    text: FilledField,
    delta: Option<Delta>,
    message: Option<Delta>,
    finish_reason: Option<String>,
}

/// Every field in which output may come. A model's reasoning and its calls of tools are tokens like others.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Delta {
    content: FilledField,
    reasoning_content: FilledField,
    reasoning: FilledField,
    refusal: FilledField,
    tool_calls: FilledField,
    function_call: FilledField,
}

/// More tokens than this no prompt and no answer has: a server that says so counts wrongly.
const MOST_TOKENS: u64 = 1 << 32;
/// More choices than this nobody asks for.
const MOST_CHOICES: usize = 1024;

/// At most [`MOST_CHOICES`]: in JSON, an empty one has two bytes.
fn choices<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Vec<Choice>>, D::Error> {
    struct Choices;
    impl<'de> Visitor<'de> for Choices {
        type Value = Option<Vec<Choice>>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "at most {MOST_CHOICES} choices")
        }

        fn visit_unit<E>(self) -> Result<Self::Value, E> {
            Ok(None)
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
            let mut choices = Vec::new();
            while let Some(choice) = items.next_element()? {
                choices.push(choice);
                if choices.len() > MOST_CHOICES {
                    return Err(serde::de::Error::invalid_length(choices.len(), &self));
                }
            }
            Ok(Some(choices))
        }
    }
    from.deserialize_any(Choices)
}

/// Token counts as the server gives them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct Usage {
    pub(crate) prompt_tokens: Option<u64>,
    pub(crate) completion_tokens: Option<u64>,
    /// Tokens of the prompt that a cache of prefixes had.
    #[serde(rename = "prompt_tokens_details", deserialize_with = "cached_tokens")]
    pub(crate) cached_tokens: Option<u64>,
}

fn cached_tokens<'de, D: Deserializer<'de>>(details: D) -> Result<Option<u64>, D::Error> {
    Ok(Value::deserialize(details)?.get("cached_tokens").and_then(Value::as_u64))
}

impl Chunk {
    pub(crate) fn has_output(&self) -> bool {
        let filled = |delta: &Option<Delta>| {
            delta.as_ref().is_some_and(|d| {
                [d.content, d.reasoning_content, d.reasoning, d.refusal, d.tool_calls, d.function_call]
                    .contains(&FilledField(true))
            })
        };
        self.choices.iter().flatten().any(|c| c.text.0 || filled(&c.delta) || filled(&c.message))
    }

    /// Its counts, if it has any.
    ///
    /// # Errors
    /// If they are more than any request has.
    pub(crate) fn usage(&self) -> Result<Option<Usage>, String> {
        let Some(usage) = self.usage else { return Ok(None) };
        let counts = [usage.completion_tokens, usage.prompt_tokens, usage.cached_tokens];
        match counts.into_iter().flatten().find(|count| *count > MOST_TOKENS) {
            Some(count) => Err(format!("a usage of {count} tokens")),
            None => Ok(self.usage.filter(|u| u.completion_tokens.is_some() || u.prompt_tokens.is_some())),
        }
    }

    pub(crate) fn finish(&self) -> Option<&str> {
        self.choices.iter().flatten().find_map(|choice| choice.finish_reason.as_deref())
    }

    /// The words of an error object.
    pub(crate) fn error(&self) -> Option<String> {
        match (&self.error, &self.object) {
            (Some(error), _) if !error.is_null() => Some(words(error)),
            (_, Some(Value::String(object))) if object == "error" => {
                Some(self.message.as_ref().map_or_else(|| "error".to_string(), words))
            }
            _ => None,
        }
    }
}

/// `message` of an error object, or all of it. Of a list, as FastAPI has it for a request that does not fit, the
/// place and the message of each item: an item holds what was sent as well, which may be a prompt.
fn words(error: &Value) -> String {
    match (error, error.get("message")) {
        (Value::String(text), _) => text.clone(),
        (Value::Array(items), _) => items.iter().map(complaint).collect::<Vec<_>>().join("; "),
        (_, Some(message)) if message.is_string() || message.is_array() => words(message),
        _ => error.to_string(),
    }
}

fn complaint(item: &Value) -> String {
    let message = item.get("msg").or_else(|| item.get("message")).unwrap_or(item);
    let place = item.get("loc").and_then(Value::as_array).into_iter().flatten();
    let place: Vec<&str> = place.filter_map(Value::as_str).collect();
    let mark = if place.is_empty() { "" } else { ": " };
    format!("{}{mark}{}", place.join("."), message.as_str().unwrap_or("an error without a message"))
}

/// What is wrong with data that could not be read. Without the data, which may repeat a prompt.
pub(crate) fn unread(error: &serde_json::Error, data: &[u8]) -> String {
    let (line, column, bytes) = (error.line(), error.column(), data.len());
    // The words of the parser have the value in them here.
    if error.is_data() {
        return format!("a field of another type than expected at line {line} column {column}, in {bytes} bytes");
    }
    format!("{error}, in {bytes} bytes")
}

/// What an answer with an error's status says: the message of its error object, or its text.
pub(crate) fn error_text(body: &[u8]) -> String {
    let parsed = serde_json::from_slice::<Value>(body);
    if let (Err(error), Some(b'{' | b'[')) = (&parsed, body.trim_ascii_start().first()) {
        // As much of an answer as was read may end in the middle of what was sent.
        return unread(error, body);
    }
    let parsed = parsed.ok();
    let list = parsed.as_ref().filter(|v| v.is_array());
    let told =
        parsed.as_ref().and_then(|v| v.get("error").or_else(|| v.get("detail")).or_else(|| v.get("message"))).or(list);
    told.map_or_else(|| String::from_utf8_lossy(body).trim().to_string(), words)
}

/// Whether a field has anything in it: a text, a list or an object that is not empty.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct FilledField(bool);

impl<'de> Deserialize<'de> for FilledField {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(FilledVisitor).map(Self)
    }
}

struct FilledVisitor;

impl<'de> Visitor<'de> for FilledVisitor {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("anything")
    }

    fn visit_str<E>(self, text: &str) -> Result<bool, E> {
        Ok(!text.is_empty())
    }

    fn visit_unit<E>(self) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_bool<E>(self, _: bool) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_i64<E>(self, _: i64) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_u64<E>(self, _: u64) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_f64<E>(self, _: f64) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<bool, A::Error> {
        let mut any = false;
        while items.next_element::<IgnoredAny>()?.is_some() {
            any = true;
        }
        Ok(any)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<bool, A::Error> {
        let mut any = false;
        while fields.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {
            any = true;
        }
        Ok(any)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(text: &str) -> Chunk {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn output_wherever_servers_put_it() {
        for (text, output) in [
            (r#"{"choices":[{"text":"a"}]}"#, true),
            (r#"{"choices":[{"text":""}]}"#, false),
            (r#"{"choices":[{"delta":{"role":"assistant","content":""}}]}"#, false),
            (r#"{"choices":[{"delta":{"role":"assistant"}}],"usage":null}"#, false),
            (r#"{"choices":[{"delta":{"content":null,"reasoning_content":"hm"}}]}"#, true),
            (r#"{"choices":[{"delta":{"tool_calls":[{"index":0}]}}]}"#, true),
            (r#"{"choices":[{"delta":{"content":[]}}]}"#, false),
            (r#"{"choices":[{"index":0,"delta":{"content":[{"type":"text","text":"a"}]},"logprobs":null}]}"#, true),
            (r#"{"choices":[{"message":{"content":"a"},"finish_reason":"stop"}]}"#, true),
            (r#"{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":9}}"#, false),
            (r#"{"choices":null}"#, false),
            ("{}", false),
        ] {
            assert_eq!(chunk(text).has_output(), output, "{text}");
        }
    }

    #[test]
    fn usage_ends_and_errors() {
        let last = chunk(r#"{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":9,"total_tokens":12}}"#);
        let expected = Usage { prompt_tokens: Some(3), completion_tokens: Some(9), cached_tokens: None };
        assert_eq!(last.usage(), Ok(Some(expected)));
        for (details, cached) in [(r#"{"cached_tokens":2}"#, Some(2)), ("null", None), ("[1]", None)] {
            let text = format!(r#"{{"usage":{{"prompt_tokens":3,"prompt_tokens_details":{details}}}}}"#);
            assert_eq!(chunk(&text).usage().unwrap().and_then(|u| u.cached_tokens), cached, "{details}");
        }
        assert_eq!(chunk(r#"{"usage":{}}"#).usage(), Ok(None));
        assert_eq!(chunk(r#"{"choices":[{"finish_reason":"length"}]}"#).finish(), Some("length"));
        for (text, words) in [
            (r#"{"error":{"message":"too long","code":400}}"#, "too long"),
            (r#"{"error":"too long"}"#, "too long"),
            (r#"{"error":{"code":400}}"#, r#"{"code":400}"#),
            (r#"{"object":"error","message":"too long"}"#, "too long"),
        ] {
            assert_eq!(chunk(text).error().as_deref(), Some(words), "{text}");
            assert_eq!(chunk(r#"{"error":null,"object":"chat.completion.chunk"}"#).error(), None);
        }
        assert_eq!(error_text(br#"{"detail":"Not Found"}"#), "Not Found");
        assert_eq!(error_text(b" <html> "), "<html>");
    }

    #[test]
    fn what_was_sent_is_not_repeated() {
        let items = r#"[{"loc":["body","messages",0,"content"],"msg":"too long","input":"secret"},{"input":"secret"}]"#;
        let told = "body.messages.content: too long; an error without a message";
        for body in [format!(r#"{{"detail":{items}}}"#), items.to_string()] {
            assert_eq!(error_text(body.as_bytes()), told);
            let cut = error_text(&body.as_bytes()[..body.len() - 1]);
            assert!(cut.contains("EOF") && !cut.contains("secret"), "{cut}");
        }
        assert_eq!(error_text(format!(r#"{{"error":{{"message":{items}}}}}"#).as_bytes()), told);
        let data = br#"{"choices":"secret"}"#;
        let wrong = unread(&serde_json::from_slice::<Chunk>(data).unwrap_err(), data);
        assert!(wrong.contains("20 bytes") && !wrong.contains("secret"), "{wrong}");
    }
}
