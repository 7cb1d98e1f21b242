//! Runs a template: minijinja with what `transformers` adds to it, and with limits.

use super::{ChatError, Message};
use minijinja::syntax::SyntaxConfig;
use minijinja::{Environment, Error, ErrorKind, Value as Jinja, context};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::io::{self, Write};

/// Instructions of the template language that one rendering may take, ...
const INSTRUCTIONS: u64 = 200_000;
/// ... and so many more for each turn, of which known templates need about 100, ...
const INSTRUCTIONS_A_TURN: u64 = 1_000;
/// ... but never more than these.
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

/// A template and all that it is given.
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
    /// Bytes that were said.
    pub(super) fn said(&self) -> usize {
        self.messages.iter().map(|m| m.role.len().saturating_add(m.content.len())).sum()
    }

    /// Bytes that the text may have.
    pub(super) fn longest_text(&self) -> usize {
        MAX_GROWTH.saturating_mul(self.said()).saturating_add(MAX_ADDED)
    }

    fn instructions(&self) -> u64 {
        let turns = u64::try_from(self.messages.len()).unwrap_or(u64::MAX);
        INSTRUCTIONS.saturating_add(INSTRUCTIONS_A_TURN.saturating_mul(turns)).min(MAX_INSTRUCTIONS)
    }

    /// Renders it on a thread whose stack no nesting outgrows.
    ///
    /// minijinja follows nested source and nested values down by recursion, to show and even to drop them. A stack that overflows ends the
    /// process, so the thread has one for all that the limits allow: a level takes two bytes of source, or four instructions. It is
    /// address space, and becomes memory as far as it is used.
    pub(super) fn render_on_a_large_stack(&self) -> Result<String, ChatError> {
        with_less_fuel(self.instructions(), |fuel| self.render_with_stack(fuel, self.stack(fuel))).unwrap_or_else(|e| {
            Err(ChatError::Host(format!("there is no thread to render it on ({e}); free memory, or raise `ulimit -v`")))
        })
    }

    /// Renders it on a thread whose stack nesting can outgrow, which then ends the process.
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

    /// Bytes of stack for whatever the template can do with so many instructions.
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
        // No template has a name under which another, or itself, could load it.
        let template = environment.template_from_named_str("chat", &self.source).map_err(fail)?;
        let values = context! {
            messages => messages,
            add_generation_prompt => self.add_generation_prompt,
            bos_token => self.bos.as_ref(),
            eos_token => self.eos.as_ref(),
        };
        let limit = self.longest_text();
        let mut text = Bounded { text: Vec::new(), limit, full: false };
        let rendered = template.render_captured_to(values, &mut text).map(drop);
        if text.full {
            return Err(format!("it writes more than the limit of {limit} bytes"));
        }
        rendered.map_err(fail)?;
        String::from_utf8(text.text).map_err(|e| e.to_string())
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
