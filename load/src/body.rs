//! The body of a request.

use crate::options::{Endpoint, LoadOptions};
use crate::prompts::{Content, Prompt};
use serde_json::{Map, Value, json};

/// What is the same in every request.
#[derive(Debug, Clone)]
pub(crate) struct Body {
    pub(crate) endpoint: Endpoint,
    pub(crate) model: String,
    pub(crate) with_usage: bool,
    ignore_eos: bool,
    max_tokens: u64,
    extra: Map<String, Value>,
}

impl Body {
    pub(crate) fn new(options: &LoadOptions, model: &str) -> Self {
        Self {
            endpoint: options.endpoint,
            model: model.to_string(),
            with_usage: true,
            ignore_eos: options.ignore_eos,
            max_tokens: options.max_tokens,
            extra: options.extra.clone(),
        }
    }

    pub(crate) fn of(&self, prompt: &Prompt) -> Vec<u8> {
        self.limited(prompt, prompt.max_tokens.unwrap_or(self.max_tokens))
    }

    /// With at most `max_tokens` of output.
    pub(crate) fn limited(&self, prompt: &Prompt, max_tokens: u64) -> Vec<u8> {
        let mut body = Map::from_iter([
            ("model".to_string(), json!(self.model)),
            ("max_tokens".to_string(), json!(max_tokens)),
            ("temperature".to_string(), json!(0)),
            ("stream".to_string(), json!(true)),
        ]);
        if self.endpoint == Endpoint::Completions {
            body.insert("prompt".to_string(), json!(plain(&prompt.content)));
        } else {
            let messages = match &prompt.content {
                Content::Text(text) => json!([{ "role": "user", "content": text }]),
                Content::Messages(messages) => Value::Array(messages.clone()),
                // Refused when the data set was read.
                Content::Image { text, .. } => json!([{ "role": "user", "content": text }]),
            };
            body.insert("messages".to_string(), messages);
        }
        if self.with_usage {
            body.insert("stream_options".to_string(), json!({ "include_usage": true }));
        }
        if self.ignore_eos {
            body.insert("ignore_eos".to_string(), json!(true));
        }
        for (key, value) in &self.extra {
            if value.is_null() {
                body.remove(key);
            } else {
                body.insert(key.clone(), value.clone());
            }
        }
        Value::Object(body).to_string().into_bytes()
    }
}

/// A prompt as one text.
pub(crate) fn plain(content: &Content) -> String {
    let text = |message: &Value| {
        let role = message["role"].as_str().unwrap_or("user");
        let content = &message["content"];
        format!("{role}: {}", content.as_str().map_or_else(|| content.to_string(), str::to_string))
    };
    match content {
        Content::Text(text) => text.clone(),
        Content::Messages(messages) => messages.iter().map(text).collect::<Vec<_>>().join("\n"),
        Content::Image { text, .. } => text.clone().unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_for_each_endpoint_and_further_ones() {
        let extra = json!({ "max_tokens": null, "max_completion_tokens": 7, "top_k": 1 });
        let options = LoadOptions::new("h").extra(extra.as_object().unwrap().clone()).ignore_eos(true);
        let mut body = Body { endpoint: Endpoint::Chat, ..Body::new(&options, "m") };
        let prompt = Prompt { content: Content::Text("hi".into()), ..Prompt::default() };
        let sent: Value = serde_json::from_slice(&body.of(&prompt)).unwrap();
        let expected = json!({
            "model": "m", "messages": [{ "role": "user", "content": "hi" }], "temperature": 0, "stream": true,
            "stream_options": { "include_usage": true }, "ignore_eos": true, "max_completion_tokens": 7, "top_k": 1,
        });
        assert_eq!(sent, expected);
        body = Body { endpoint: Endpoint::Completions, with_usage: false, ..Body::new(&LoadOptions::new("h"), "m") };
        let messages =
            vec![json!({ "role": "system", "content": "Be short." }), json!({ "role": "user", "content": "hi" })];
        let prompt = Prompt { content: Content::Messages(messages), max_tokens: Some(3), ..Prompt::default() };
        let sent: Value = serde_json::from_slice(&body.of(&prompt)).unwrap();
        let text = "system: Be short.\nuser: hi";
        assert_eq!(sent, json!({ "model": "m", "prompt": text, "max_tokens": 3, "temperature": 0, "stream": true }));
    }
}
