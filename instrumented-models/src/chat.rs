//! Chat templates: the Jinja texts that models carry, rendered as `transformers` renders them.

use minijinja::syntax::SyntaxConfig;
use minijinja::{Environment, Error, ErrorKind, Value as Jinja, context};
use serde::Serialize;
use serde_json::Value;

/// One turn of a conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Message {
    /// `system`, `user` or `assistant`.
    pub role: String,
    /// What was said.
    pub content: String,
}

impl Message {
    /// A turn.
    pub fn new(role: &str, content: &str) -> Self {
        Self { role: role.to_string(), content: content.to_string() }
    }
}

/// Why a conversation could not be rendered.
#[derive(Debug, thiserror::Error)]
#[error("the model's chat template failed: {0}; pass the prompt without a chat template")]
pub struct ChatError(String);

/// A model's chat template.
#[derive(Debug, Clone)]
pub struct ChatTemplate {
    source: String,
    bos: String,
    eos: String,
}

impl ChatTemplate {
    /// A template and the texts of the model's first and last token, which templates may use.
    pub fn new(source: &str, bos: &str, eos: &str) -> Self {
        Self { source: source.to_string(), bos: bos.to_string(), eos: eos.to_string() }
    }

    /// The template of a `tokenizer_config.json`, if it has one: a text, or a list of named ones of which `default` counts.
    pub fn from_tokenizer_config(json: &Value) -> Option<Self> {
        let template = match json.get("chat_template")? {
            Value::String(template) => template.as_str(),
            Value::Array(named) => {
                let is_default = |t: &&Value| t.get("name").and_then(Value::as_str) == Some("default");
                named.iter().find(is_default).or_else(|| named.first())?.get("template")?.as_str()?
            }
            _ => return None,
        };
        let token = |key: &str| match json.get(key) {
            Some(Value::String(text)) => text.clone(),
            Some(object) => object.get("content").and_then(Value::as_str).unwrap_or_default().to_string(),
            None => String::new(),
        };
        Some(Self::new(template, &token("bos_token"), &token("eos_token")))
    }

    /// The conversation as a text for the tokenizer, which must not add special tokens of its own.
    /// `add_generation_prompt` ends it where the assistant is to speak.
    pub fn render(&self, messages: &[Message], add_generation_prompt: bool) -> Result<String, ChatError> {
        let fail = |error: Error| ChatError(format!("{error:#}"));
        let mut environment = Environment::new();
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build().map_err(fail)?;
        environment.set_syntax(syntax);
        environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.add_function("raise_exception", |message: String| -> Result<String, Error> {
            Err(Error::new(ErrorKind::InvalidOperation, message))
        });
        environment.add_template("chat", &self.source).map_err(fail)?;
        let conversation: Vec<Jinja> =
            messages.iter().map(|m| context! { role => m.role.as_str(), content => m.content.as_str() }).collect();
        let template = environment.get_template("chat").map_err(fail)?;
        template
            .render(context! {
                messages => conversation,
                add_generation_prompt => add_generation_prompt,
                bos_token => self.bos.as_str(),
                eos_token => self.eos.as_str(),
            })
            .map_err(fail)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn renders_with_python_methods_and_trimmed_blocks() {
        let template = ChatTemplate::new(
            "{{ bos_token }}{% for m in messages %}\n    {% if m['role'] == 'user' %}\n[{{ m.content.strip() }}]\n    \
             {% endif %}\n{% endfor %}{% if add_generation_prompt %}>{% endif %}",
            "<s>",
            "</s>",
        );
        let messages = [Message::new("system", "no"), Message::new("user", "  hi ")];
        assert_eq!(template.render(&messages, true).unwrap(), "<s>[hi]\n>");
    }

    #[test]
    fn template_can_refuse() {
        let template = ChatTemplate::new("{{ raise_exception('roles must alternate') }}", "", "");
        let message = template.render(&[], false).unwrap_err().to_string();
        assert!(message.contains("roles must alternate") && message.contains("without a chat template"), "{message}");
    }

    #[test]
    fn reads_tokenizer_config() {
        let json = json!({"chat_template": [{"name": "tool", "template": "t"}, {"name": "default", "template": "{{ eos_token }}"}],
            "eos_token": {"content": "<e>"}, "bos_token": null});
        let template = ChatTemplate::from_tokenizer_config(&json).unwrap();
        assert_eq!(template.render(&[], false).unwrap(), "<e>");
        assert!(ChatTemplate::from_tokenizer_config(&json!({})).is_none());
    }
}
