//! Chat templates: the Jinja texts that models carry, rendered as `transformers` renders them.

mod cycles;
mod tokens;

use minijinja::syntax::SyntaxConfig;
use minijinja::{Environment, Error, ErrorKind, Value as Jinja, context};
use serde::Serialize;
use serde_json::Value;
use std::io::{self, Write};

/// Longest template, in bytes. Those of known models have up to some 20,000.
const MAX_SOURCE: usize = 128 << 10;
/// Instructions of the template language that one rendering may take, ...
const INSTRUCTIONS: u64 = 200_000;
/// ... and so many more for each turn, of which known templates need about 100, ...
const INSTRUCTIONS_A_TURN: u64 = 1_000;
/// ... but never more than these.
///
/// What a template keeps in variables is not bounded: `{% set x = x ~ x %}` doubles a text with four instructions, and minijinja has no limit
/// for that. Run no template that you would not trust with the process's memory, or give the process a limit from outside.
const MAX_INSTRUCTIONS: u64 = 2_000_000;
/// Where there is no address space for a stack for all of these, it may take less, but not less than this.
const LEAST_INSTRUCTIONS: u64 = 10_000;
/// Stack for the deepest nesting that a template can make, of a level in its source or in its values. In a debug build a level takes
/// up to some 3 KiB.
const STACK_A_LEVEL: usize = 4 << 10;
/// Stack for all else.
const STACK: usize = 16 << 20;
/// A rendered conversation is at most so many times as long as what was said, ...
const MAX_GROWTH: usize = 4;
/// ... and so many bytes more: what a template adds of its own.
const MAX_ADDED: usize = 4 << 20;

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
    ///
    /// # Errors
    /// When the template is no template, refuses the conversation, or takes more than the limits on its size, instructions and output.
    pub fn render(&self, messages: &[Message], add_generation_prompt: bool) -> Result<String, ChatError> {
        if self.source.len() > MAX_SOURCE {
            let length = self.source.len();
            return Err(ChatError(format!("it has {length} bytes, more than the limit of {MAX_SOURCE}")));
        }
        if let Some(why) = cycles::refused(&self.source) {
            return Err(ChatError(why));
        }
        let turns = u64::try_from(messages.len()).unwrap_or(u64::MAX);
        let fuel = INSTRUCTIONS.saturating_add(INSTRUCTIONS_A_TURN.saturating_mul(turns)).min(MAX_INSTRUCTIONS);
        // minijinja follows nested source and nested values down by recursion, to show and even to drop them. A stack that overflows ends the
        // process, so the thread has one for all that the limits allow: a level takes two bytes of source, or four instructions. It is
        // address space, and becomes memory as far as it is used.
        std::thread::scope(|scope| {
            let spawn = |fuel| {
                let thread = std::thread::Builder::new().name("cs-chat".into()).stack_size(self.stack(fuel));
                thread.spawn_scoped(scope, move || self.render_here(messages, add_generation_prompt, fuel))
            };
            let rendering = with_less_fuel(fuel, spawn).map_err(|e| {
                ChatError(format!("there is no thread to render it on ({e}); free memory, or raise `ulimit -v`"))
            })?;
            rendering.join().unwrap_or_else(|_| Err(ChatError("minijinja panicked".into())))
        })
    }

    /// Bytes of stack for whatever the template can do with so many instructions.
    fn stack(&self, fuel: u64) -> usize {
        let levels = self.source.len() / 2 + usize::try_from(fuel / 4).unwrap_or(usize::MAX);
        STACK.saturating_add(levels.saturating_mul(STACK_A_LEVEL))
    }

    fn render_here(&self, messages: &[Message], add_generation_prompt: bool, fuel: u64) -> Result<String, ChatError> {
        let fail = |error: Error| match error.kind() {
            ErrorKind::OutOfFuel => ChatError(format!("it takes more than the limit of {fuel} instructions")),
            _ => ChatError(format!("{error:#}")),
        };
        let mut environment = Environment::new();
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build().map_err(fail)?;
        environment.set_syntax(syntax);
        environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.add_function("raise_exception", |message: String| -> Result<String, Error> {
            Err(Error::new(ErrorKind::InvalidOperation, message))
        });
        environment.set_fuel(Some(fuel));
        let conversation: Vec<Jinja> =
            messages.iter().map(|m| context! { role => m.role.as_str(), content => m.content.as_str() }).collect();
        // No template has a name under which another, or itself, could load it.
        let template = environment.template_from_named_str("chat", &self.source).map_err(fail)?;
        let values = context! {
            messages => conversation,
            add_generation_prompt => add_generation_prompt,
            bos_token => self.bos.as_str(),
            eos_token => self.eos.as_str(),
        };
        let said: usize = messages.iter().map(|m| m.role.len().saturating_add(m.content.len())).sum();
        let limit = MAX_GROWTH.saturating_mul(said).saturating_add(MAX_ADDED);
        let mut text = Bounded { text: Vec::new(), limit, full: false };
        let rendered = template.render_captured_to(values, &mut text).map(drop);
        if text.full {
            return Err(ChatError(format!("it writes more than the limit of {limit} bytes")));
        }
        rendered.map_err(fail)?;
        String::from_utf8(text.text).map_err(|e| ChatError(e.to_string()))
    }
}

/// Tries `spawn` with half as many instructions, and so half the stack, where there is no address space for all of it: few templates
/// need them. What it then stops at names the lower limit.
fn with_less_fuel<T>(fuel: u64, mut spawn: impl FnMut(u64) -> io::Result<T>) -> io::Result<T> {
    let mut fuel = fuel;
    loop {
        match spawn(fuel) {
            Err(_) if fuel / 2 >= LEAST_INSTRUCTIONS => fuel /= 2,
            ended => return ended,
        }
    }
}

/// A text that refuses to grow beyond a limit.
struct Bounded {
    text: Vec<u8>,
    limit: usize,
    full: bool,
}

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.len() > self.limit - self.text.len() {
            self.full = true;
            return Err(io::Error::other("the text is too long"));
        }
        self.text.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
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
        let said = |source: &str| ChatTemplate::new(source, "", "").render(&[], true).unwrap_err().to_string();
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

    /// Values and source as deep as the limits let them be: a stack that overflows is no error but the end of the process.
    #[test]
    fn nesting_without_end_is_survived() {
        let deepen = "{% set ns = namespace(x=[]) %}{% for i in range(99999) %}{% for i in range(9999) %}{% set ns.x = [ns.x] %}";
        let deep = format!("{deepen}{{% endfor %}}{{% endfor %}}");
        let turns = vec![Message::new("user", ""); 2_000];
        let refused = ChatTemplate::new(&deep, "", "").render(&turns, true).unwrap_err().to_string();
        assert!(refused.contains("limit of 2000000 instructions"), "{refused}");
        let some = "{% set ns = namespace(x=[]) %}{% for i in range(99999) %}{% set ns.x = [ns.x] %}{% endfor %}";
        for shown in ["{{ ns.x }}", "{{ ns.x | tojson }}", "{{ ns.x == [ns.x] }}", "{{ ns.x | string | length }}"] {
            let text = ChatTemplate::new(&format!("{some}{shown}"), "", "").render(&turns, true);
            assert!(text.is_ok(), "{shown}: {text:?}");
        }
        for level in ["+1", "|d", ".x", "()", "[0]", "if 1 else 1 "] {
            let source = format!("{{{{ 1 {} }}}}", level.repeat(MAX_SOURCE / level.len() - 10));
            // Whether it is a template is not the question.
            let _ = ChatTemplate::new(&source, "", "").render(&[], true);
        }
        for (before, level, after) in
            [("{{ ", "-", "1 }}"), ("{{ ", "not ", "1 }}"), ("{% if a %}", "{%elif a%}", "{% endif %}")]
        {
            let source = format!("{before}{}{after}", level.repeat(MAX_SOURCE / level.len() - 10));
            let _ = ChatTemplate::new(&source, "", "").render(&[], true);
        }
    }

    #[test]
    fn without_address_space_there_are_fewer_instructions() {
        let template = ChatTemplate::new("{{ 1 }}", "", "");
        let room = template.stack(300_000);
        let spawn = |fuel| if template.stack(fuel) <= room { Ok(fuel) } else { Err(io::Error::other("no room")) };
        assert_eq!(with_less_fuel(2_000_000, spawn).unwrap(), 250_000);
        assert_eq!(with_less_fuel(200_000, spawn).unwrap(), 200_000);
        let mut tried = Vec::new();
        let none = with_less_fuel(MAX_INSTRUCTIONS, |fuel| -> io::Result<()> {
            tried.push(fuel);
            Err(io::Error::other("no room"))
        });
        assert_eq!(none.unwrap_err().to_string(), "no room");
        assert!(tried.len() < 10 && tried.last().is_some_and(|least| *least >= LEAST_INSTRUCTIONS), "{tried:?}");
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
