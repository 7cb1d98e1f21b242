//! Runs a template: minijinja with the additions of `transformers`, and with limits.

use super::{ChatError, Message};
use minijinja::syntax::SyntaxConfig;
use minijinja::{Environment, Error, ErrorKind, Value as Jinja, context};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::io::{self, Write};

/// Instructions of the template language that one rendering may take, ...
const INSTRUCTIONS: u64 = 200_000;
/// ... plus this many for each turn, of which known templates need about 100, ...
const INSTRUCTIONS_A_TURN: u64 = 1_000;
/// ... but never more than this.
const MAX_INSTRUCTIONS: u64 = 2_000_000;
/// If there is not enough address space for the stack that these need, there are fewer, but not fewer than this.
const LEAST_INSTRUCTIONS: u64 = 10_000;
/// Stack for one level of nesting in a template's source or values. In a debug build a level takes up to some 3 KiB.
const STACK_A_LEVEL: usize = 4 << 10;
/// Stack for everything else.
const STACK: usize = 16 << 20;
/// A rendered conversation is at most this many times as long as its messages, ...
const MAX_GROWTH: usize = 4;
/// ... plus this many bytes that a template adds of its own.
const MAX_ADDED: usize = 4 << 20;

/// A template and its input.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Conversation<'c> {
    #[serde(borrow)]
    pub(super) source: Cow<'c, str>,
    pub(super) bos: Cow<'c, str>,
    pub(super) eos: Cow<'c, str>,
    pub(super) messages: Cow<'c, [Message]>,
    pub(super) add_generation_prompt: bool,
}

impl Conversation<'_> {
    /// Bytes of the messages.
    pub(super) fn said(&self) -> usize {
        self.messages.iter().map(|m| m.role.len().saturating_add(m.content.len())).sum()
    }

    /// Most bytes of the rendered text.
    pub(super) fn longest_text(&self) -> usize {
        MAX_GROWTH.saturating_mul(self.said()).saturating_add(MAX_ADDED)
    }

    fn instructions(&self) -> u64 {
        let turns = u64::try_from(self.messages.len()).unwrap_or(u64::MAX);
        INSTRUCTIONS.saturating_add(INSTRUCTIONS_A_TURN.saturating_mul(turns)).min(MAX_INSTRUCTIONS)
    }

    /// Renders it on a thread whose stack is large enough for any nesting.
    ///
    /// minijinja processes nested source and nested values by recursion, even to drop them. A stack overflow ends the
    /// process, so the stack is large enough for everything that the limits allow: a level takes two bytes of source,
    /// or four instructions. It is address space, and only its used part takes memory.
    pub(super) fn render_on_a_large_stack(&self) -> Result<String, ChatError> {
        with_less_fuel(self.instructions(), |fuel| self.render_with_stack(fuel, self.stack(fuel))).unwrap_or_else(|e| {
            Err(ChatError::Host(format!("there is no thread to render it on ({e}); free memory, or raise `ulimit -v`")))
        })
    }

    /// Renders it on a thread with a normal stack. If nesting overflows it, the process ends.
    #[cfg(target_os = "linux")]
    pub(super) fn render_on_a_plain_stack(&self) -> Result<String, ChatError> {
        self.render_with_stack(self.instructions(), STACK)
            .unwrap_or_else(|e| Err(ChatError::Host(format!("there is no thread to render it on ({e})"))))
    }

    fn render_with_stack(&self, fuel: u64, stack: usize) -> io::Result<Result<String, ChatError>> {
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().name("cs-chat".into()).stack_size(stack);
            let rendering = thread.spawn_scoped(scope, move || self.render(fuel).map_err(ChatError::template))?;
            Ok(rendering.join().unwrap_or_else(|_| Err(ChatError::template("minijinja panicked"))))
        })
    }

    /// Bytes of stack for the deepest nesting that the template can make with this many instructions.
    fn stack(&self, fuel: u64) -> usize {
        let levels = self.source.len() / 2 + usize::try_from(fuel / 4).unwrap_or(usize::MAX);
        STACK.saturating_add(levels.saturating_mul(STACK_A_LEVEL))
    }

    fn render(&self, fuel: u64) -> Result<String, String> {
        let fail = |error: Error| match error.kind() {
            ErrorKind::OutOfFuel => format!("it takes more than the limit of {fuel} instructions"),
            _ => format!("{error:#}"),
        };
        let mut environment = Environment::new();
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build().map_err(fail)?;
        environment.set_syntax(syntax);
        environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.add_function("raise_exception", |message: String| -> Result<String, Error> {
            Err(Error::new(ErrorKind::InvalidOperation, message))
        });
        environment.set_fuel(Some(fuel));
        let messages: Vec<Jinja> =
            self.messages.iter().map(|m| context! { role => m.role.as_str(), content => m.content.as_str() }).collect();
        // Templates have no names, so that none can load another or itself.
        let template = environment.template_from_named_str("chat", &self.source).map_err(fail)?;
        let values = context! {
            messages => messages,
            add_generation_prompt => self.add_generation_prompt,
            bos_token => self.bos.as_ref(),
            eos_token => self.eos.as_ref(),
        };
        let limit = self.longest_text();
        let mut text = BoundedText { text: Vec::new(), limit, full: false };
        let rendered = template.render_captured_to(values, &mut text).map(drop);
        if text.full {
            return Err(format!("it writes more than the limit of {limit} bytes"));
        }
        rendered.map_err(fail)?;
        String::from_utf8(text.text).map_err(|e| e.to_string())
    }
}

/// If there is not enough address space, tries `spawn` with half as many instructions, and so half the stack: few
/// templates need more. An error about the limit then names the lower one.
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
struct BoundedText {
    text: Vec<u8>,
    limit: usize,
    full: bool,
}

impl Write for BoundedText {
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

    #[test]
    fn without_address_space_there_are_fewer_instructions() {
        let template = Conversation {
            source: "{{ 1 }}".into(),
            bos: "".into(),
            eos: "".into(),
            messages: Vec::new().into(),
            add_generation_prompt: true,
        };
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
}
