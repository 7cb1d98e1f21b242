//! Chat templates: Jinja templates that come with models, rendered as `transformers` renders them.
//!
//! A template comes with the model and is untrusted. Its resources are bounded: source, instructions, nesting and
//! output by counting, and what it keeps in variables by [where it is rendered](ChatTemplate::render).

mod apart;
mod chat_error;
mod cycles;
mod harmless;
mod jinja;
mod message;
mod tokens;

pub use apart::isolate;
pub use chat_error::ChatError;

use jinja::Conversation;
pub use message::Message;
use serde_json::Value;

/// Longest template, in bytes. Those of known models have up to some 20,000.
const MAX_SOURCE: usize = 128 << 10;
/// Longest text of the model's first or last token, in bytes.
const MAX_TOKEN: usize = 1 << 10;
/// A template is rendered in this process if it holds at most this many bytes besides its text, ...
const MAX_HELD_HERE: usize = 96 << 20;
/// ... and goes through at most this many bytes of messages.
const MAX_PASSED_HERE: usize = 1 << 30;
/// A model's chat template.
#[derive(Debug, Clone)]
pub struct ChatTemplate {
    source: String,
    bos: String,
    eos: String,
    trusted: bool,
}

impl ChatTemplate {
    /// Makes a template with the texts of the model's first and last token, which templates may use.
    pub fn new(source: &str, bos: &str, eos: &str) -> Self {
        Self { source: source.to_string(), bos: bos.to_string(), eos: eos.to_string(), trusted: false }
    }

    /// Always renders it in this process. Only for templates that you have read: `{% set x = x ~ x %}` a few dozen
    /// times takes all memory, and nothing stops it.
    #[must_use]
    pub fn trusted(self) -> Self {
        Self { trusted: true, ..self }
    }

    /// The template of a `tokenizer_config.json`, if it has one: a text, or a list of named ones of which `default`
    /// counts.
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

    /// Renders the conversation as a text for the tokenizer, which must not add special tokens of its own. With
    /// `add_generation_prompt` it ends where the assistant's turn begins.
    ///
    /// A template that only puts texts together, in a loop over the messages, is rendered in this process, and so is
    /// one that is [`trusted`](Self::trusted). On Linux any other template is rendered in a process of its own, with
    /// limits on memory and time that the operating system enforces, provided that [`isolate`] was called first in
    /// `main`. On other systems it is rendered in this process, without a bound on its memory.
    ///
    /// # Errors
    /// [`ChatError::Template`] if it is invalid, refuses the conversation, or exceeds the limits on its size,
    /// instructions, output, memory and time; [`ChatError::Host`] if it needs a process of its own that this program or
    /// machine cannot provide.
    pub fn render(&self, messages: &[Message], add_generation_prompt: bool) -> Result<String, ChatError> {
        if self.source.len() > MAX_SOURCE {
            let length = self.source.len();
            return Err(ChatError::template(format!("it has {length} bytes, more than the limit of {MAX_SOURCE}")));
        }
        let longest = self.bos.len().max(self.eos.len());
        if longest > MAX_TOKEN {
            let why =
                format!("the model's first or last token has {longest} bytes, more than the limit of {MAX_TOKEN}");
            return Err(ChatError::template(why));
        }
        if let Some(why) = cycles::refused(&self.source) {
            return Err(ChatError::template(why));
        }
        let conversation = Conversation {
            source: self.source.as_str().into(),
            bos: self.bos.as_str().into(),
            eos: self.eos.as_str().into(),
            messages: messages.into(),
            add_generation_prompt,
        };
        let is_cheap = || {
            let cost = harmless::cost(&self.source, messages);
            cost.is_some_and(|cost| cost.held <= MAX_HELD_HERE && cost.passed <= MAX_PASSED_HERE)
        };
        if self.trusted || is_cheap() { conversation.render_on_a_large_stack() } else { apart::render(&conversation) }
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
    fn a_template_without_end_is_stopped() {
        let said =
            |source: &str| ChatTemplate::new(source, "", "").trusted().render(&[], true).unwrap_err().to_string();
        let nested = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}";
        assert!(
            said(nested).contains("more than the limit of 200000 instructions; pass the prompt without"),
            "{nested}"
        );
        let recursive = "{% macro m() %}{{ m() }}{{ m() }}{% endmacro %}{{ m() }}";
        assert!(said(recursive).contains("recursion") || said(recursive).contains("limit"), "{}", said(recursive));
        let long = "{% for a in range(9999) %}{{ 'word' * 25000 }}{% endfor %}";
        assert!(said(long).contains("writes more than the limit of 4194304 bytes"), "{}", said(long));
        let source = " ".repeat(MAX_SOURCE + 1);
        assert!(said(&source).contains("131073 bytes, more than the limit"), "{}", said(&source));
    }

    /// Values and source as deep as the limits allow: a stack overflow would not be an error but the end of the
    /// process.
    #[test]
    fn nesting_without_end_is_survived() {
        let deepen = "{% set ns = namespace(x=[]) %}{% for i in range(99999) %}{% for i in range(9999) %}{% set ns.x = [ns.x] %}";
        let deep = format!("{deepen}{{% endfor %}}{{% endfor %}}");
        let turns = vec![Message::new("user", ""); 2_000];
        let refused = ChatTemplate::new(&deep, "", "").trusted().render(&turns, true).unwrap_err().to_string();
        assert!(refused.contains("limit of 2000000 instructions"), "{refused}");
        let some = "{% set ns = namespace(x=[]) %}{% for i in range(99999) %}{% set ns.x = [ns.x] %}{% endfor %}";
        for shown in ["{{ ns.x }}", "{{ ns.x | tojson }}", "{{ ns.x == [ns.x] }}", "{{ ns.x | string | length }}"] {
            let text = ChatTemplate::new(&format!("{some}{shown}"), "", "").trusted().render(&turns, true);
            assert!(text.is_ok(), "{shown}: {text:?}");
        }
        for level in ["+1", "|d", ".x", "()", "[0]", "if 1 else 1 "] {
            let source = format!("{{{{ 1 {} }}}}", level.repeat(MAX_SOURCE / level.len() - 10));
            // It does not matter whether the source is valid.
            let _ = ChatTemplate::new(&source, "", "").trusted().render(&[], true);
        }
        for (before, level, after) in
            [("{{ ", "-", "1 }}"), ("{{ ", "not ", "1 }}"), ("{% if a %}", "{%elif a%}", "{% endif %}")]
        {
            let source = format!("{before}{}{after}", level.repeat(MAX_SOURCE / level.len() - 10));
            let _ = ChatTemplate::new(&source, "", "").trusted().render(&[], true);
        }
    }

    #[test]
    fn a_long_conversation_is_not_refused() {
        let template = ChatTemplate::new(
            "{% for m in messages %}{% if m.role == 'user' %}[{{ m.content | trim }}]{% else %}\
             ({{ m.content }}){% endif %}{% endfor %}",
            "",
            "",
        );
        let turns: Vec<Message> =
            (0..10_000).map(|i| Message::new(if i % 2 == 0 { "user" } else { "a" }, "hello")).collect();
        assert_eq!(template.render(&turns, true).unwrap().len(), 70_000);
        let long = [Message::new("user", &"long ".repeat(5_000_000))];
        assert_eq!(template.render(&long, true).unwrap().len(), 25_000_001);
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
