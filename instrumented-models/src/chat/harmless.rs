//! Recognises templates whose cost is bounded beforehand; for others only running them shows their cost.
//!
//! A text can grow without bound if a result becomes an operand again: through a variable, a macro, a list, a captured
//! block. So this recognises a small language in which nothing is stored: loops over the messages, conditions, and
//! concatenation of the messages' texts, with few operators per tag. Templates in ChatML's style need no more. Anything
//! else does not count as harmless.

use super::Message;
use super::tokens::{Token, tokens};
use Token::{End, Mark, Number, Show, Start, Text, Word};

/// Most tokens of a tag, which bounds operands, constant folding and nesting.
const TAG: usize = 64;
/// Longest role.
const ROLE: usize = 64;
/// Methods and filters that make a text from a text; in upper case a letter can have three times as many bytes.
const SHAPES: [&str; 7] = ["trim", "strip", "lstrip", "rstrip", "upper", "lower", "title"];
/// Calls that take one text from the template.
const ASKS: [&str; 3] = ["startswith", "endswith", "raise_exception"];
/// Words of the language.
const OPERATORS: [&str; 8] = ["in", "and", "or", "not", "if", "elif", "else", "is"];
/// Values that are short or undefined.
const SHORT: [&str; 7] = ["bos_token", "eos_token", "add_generation_prompt", "true", "false", "none", "defined"];
/// Attributes of the loop.
const LOOP: [&str; 5] = ["first", "last", "index", "index0", "length"];

/// Upper bounds for rendering.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cost {
    /// Bytes held at once, besides the rendered text.
    pub(super) held: usize,
    /// Bytes of messages read or written, in total.
    pub(super) passed: usize,
}

/// The cost of rendering `messages`; `None` if only running the template can tell.
pub(super) fn cost(source: &str, messages: &[Message]) -> Option<Cost> {
    if messages.iter().any(|m| m.role.len() > ROLE) {
        return None;
    }
    let longest = messages.iter().map(|m| m.content.len()).max().unwrap_or(0);
    let said: usize = messages.iter().map(|m| m.content.len()).sum();
    let tokens = tokens(source);
    let (mut loop_, mut cost) = (None, Cost { held: 0, passed: 0 });
    for tag in tokens.split_inclusive(|token| *token == End) {
        let Operands { of_the_loop, by_number, shapes } = tag_operands(tag, &mut loop_)?;
        // A concatenation exists in addition to its parts, and each part may be a new copy.
        let texts = (of_the_loop + by_number).saturating_mul(3).saturating_mul(longest);
        cost.held = cost.held.max(texts.saturating_add(longest));
        let each = of_the_loop.saturating_mul(said);
        let named = by_number.saturating_mul(longest).saturating_mul(messages.len());
        cost.passed = cost.passed.saturating_add(each.saturating_add(named).saturating_mul(1 + shapes));
    }
    cost.held = cost.held.saturating_add(source.len());
    Some(cost)
}

/// The message texts that a tag uses.
#[derive(Default)]
struct Operands {
    /// Texts of the loop's current message.
    of_the_loop: usize,
    /// Texts of `messages[N]`.
    by_number: usize,
    /// How often one of them is transformed into a new text.
    shapes: usize,
}

/// The operands of a tag; `None` if it may do anything else than concatenate them. `loop_` is the variable of the loop.
fn tag_operands<'s>(tag: &[Token<'s>], loop_: &mut Option<&'s str>) -> Option<Operands> {
    let [start, code @ .., End] = tag else { return None };
    if code.len() > TAG {
        return None;
    }
    match (start, code) {
        (Show, expression) => operands(expression, *loop_),
        (Start, [Word("if" | "elif"), expression @ ..]) => operands(expression, *loop_),
        (Start, [Word("else" | "endif")]) => Some(Operands::default()),
        (Start, [Word("endfor")]) => loop_.take().map(|_| Operands::default()),
        (Start, [Word("for"), Word(name), Word("in"), Word("messages"), slice @ ..]) => {
            // All messages, or those from a number on; other slices are not recognised.
            let known = matches!(slice, [] | [Mark("["), Number(_), Mark(":"), Mark("]")]);
            let is_new = !SHORT.contains(name) && !OPERATORS.contains(name) && !["messages", "loop"].contains(name);
            // For nested loops, the work would grow with the square of the conversation.
            (known && is_new && loop_.replace(name).is_none()).then(Operands::default)
        }
        _ => None,
    }
}

/// Reads an expression piece by piece: each is a value, an operator, or not known.
fn operands(mut rest: &[Token<'_>], loop_: Option<&str>) -> Option<Operands> {
    let mut found = Operands::default();
    while !rest.is_empty() {
        rest = match rest {
            // `0b0or` is a number and an operator.
            [Number(digits), Word(word), ..] if touch(digits, word) => return None,
            [Number(_), after @ ..] | [Text, after @ ..] => after,
            // The text of a message, ...
            [Word("messages"), Mark("["), Number(_), Mark("]"), after @ ..] => {
                let (is_content, after) = member(after)?;
                found.by_number += usize::from(is_content);
                after
            }
            [Word(name), after @ ..] if loop_ == Some(name) => {
                let (is_content, after) = member(after)?;
                found.of_the_loop += usize::from(is_content);
                after
            }
            // ... shaped, ...
            [Mark("."), Word(name), Mark("("), Mark(")"), after @ ..] if SHAPES.contains(name) => {
                found.shapes += 1;
                after
            }
            [Mark("|"), Word(name), after @ ..] if SHAPES.contains(name) && after.first() != Some(&Mark("(")) => {
                found.shapes += 1;
                after
            }
            [Mark("|"), Word("length"), after @ ..] if after.first() != Some(&Mark("(")) => after,
            // ... or tested.
            [Mark("."), Word(name), Mark("("), Text, Mark(")"), after @ ..] if ASKS.contains(name) => after,
            [Word("raise_exception"), Mark("("), Text, Mark(")"), after @ ..] => after,
            [Word("loop"), Mark("."), Word(name), after @ ..] if LOOP.contains(name) => after,
            // No call of an expression in parentheses, and no indexing.
            [Word(name), Mark("("), ..] if SHORT.contains(name) => return None,
            [Word(_) | Mark(")"), Mark("["), ..] | [Mark(")"), Mark("("), ..] => return None,
            [Word(name), after @ ..] if SHORT.contains(name) || OPERATORS.contains(name) => after,
            [Mark("(" | ")" | "+" | "~" | "==" | "!=" | "<" | ">" | "<=" | ">=" | "-" | "%"), after @ ..] => after,
            _ => return None,
        };
    }
    Some(found)
}

/// What follows `.role` or `['role']`, and whether the value can be the content.
fn member<'t, 's>(after: &'t [Token<'s>]) -> Option<(bool, &'t [Token<'s>])> {
    let (is_content, rest) = match after {
        [Mark("."), Word("role"), rest @ ..] => (false, rest),
        [Mark("."), Word("content"), rest @ ..] | [Mark("["), Text, Mark("]"), rest @ ..] => (true, rest),
        _ => return None,
    };
    (!matches!(rest, [Mark("(" | "["), ..])).then_some((is_content, rest))
}

/// Whether two pieces of the same source have nothing between them.
fn touch(first: &str, second: &str) -> bool {
    first.as_bytes().as_ptr_range().end == second.as_ptr()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHATML: &str = "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\n\
        You are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n' }}{% endif %}{{'<|im_start|>' + message['role'] \
        + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

    fn with(source: &str, bytes: usize) -> Option<Cost> {
        cost(source, &[Message::new("user", &"x".repeat(bytes))])
    }

    #[test]
    fn a_template_without_variables_holds_a_tag_of_texts() {
        // `['role']` and `['content']` both count as texts.
        assert_eq!(with(CHATML, 10), Some(Cost { held: CHATML.len() + 7 * 10, passed: 30 }));
        assert_eq!(with(CHATML, 10_000_000), Some(Cost { held: CHATML.len() + 70_000_000, passed: 30_000_000 }));
        let twice = "{{ messages[0].content|upper|trim }}";
        let turns = [Message::new("user", "four"), Message::new("assistant", "")];
        assert_eq!(cost(twice, &turns), Some(Cost { held: twice.len() + 16, passed: 4 * 2 * 3 }));
        for harmless in [
            "{% raw %}{% set x = x ~ x %}{% endraw %}{# {% set x = x ~ x %} #}",
            "{{ bos_token }}{%- for m in messages[1:] -%}{{ (m.content | trim) ~ eos_token }}{% else %}-{% endfor %}",
            "{% for m in messages %}{% if m.role == 'user' and not loop.last %}{{ m['content'].strip() }}{% elif m.content.startswith('x') \
             %}{{ raise_exception('no') }}{% endif %}{% if loop.index0 % 2 == 0 and true %}{% endif %}{% endfor %}",
            "{% if add_generation_prompt is defined and add_generation_prompt %}x{% endif %}",
            "",
        ] {
            assert!(with(harmless, 0).is_some(), "{harmless}");
        }
    }

    #[test]
    fn what_is_not_known_is_not() {
        let long = |piece: &str, times: usize| format!("{{{{ bos_token{} }}}}", piece.repeat(times));
        let in_loop = |code: &str| format!("{{% for m in messages %}}{code}{{% endfor %}}");
        for source in [
            "{% set x = 1 %}",
            "{%- macro m() %}{% endmacro %}",
            "{% filter upper %}{% endfilter %}",
            "{% with a = 1 %}{% endwith %}",
            "{% for a in [m ~ m] %}{% endfor %}",
            "{% for a in messages ~ 'x' %}{% endfor %}",
            "{% for a in messages[::-1] %}{% endfor %}",
            "{% for a in messages[0].content[:] %}{% endfor %}",
            "{% for a in messages recursive %}{{ loop(m) }}{% endfor %}",
            "{% for a, b in messages %}{% endfor %}",
            "{% for a in messages %}{% for b in messages %}{% endfor %}{% endfor %}",
            "{% for messages in messages %}{% endfor %}",
            "{% for strip in zz and 0b0or[range] %}{{ strip(99999) }}{% endfor %}",
            "{% endfor %}",
            "{{ 0b0or['x'] }}",
            "{{ 1e5or 'x' }}",
            "{{ messages ~ '' }}",
            "{{ messages[0] ~ '' }}",
            "{{ messages | upper }}",
            "{{ bos_token[::-1] }}",
            "{{ 'a' * 9 }}",
            "{{ 2 ** 9 }}",
            "{{ 'a'|replace('', 'a') }}",
            "{{ 'a'.replace('', 'a') }}",
            "{{ ('a').strip('b') }}",
            "{{ 'a'.strip('b') }}",
            "{{ 'a'['replace']('', 'a') }}",
            "{{ ('a')('b') }}",
            "{{ range(9) }}",
            "{{ loop.cycle('a') }}",
            "{{ loop.previtem }}",
            "{{ namespace() }}",
            "{{ namespace }}",
            "{{ ['a'] }}",
            "{{ 'a' in ['a'] }}",
            "{{ {'a': 'b'} }}",
            "{{ ('a', 'b') }}",
            "{{ 'a' is eq ['a'] }}",
            "{{ 'a",
            "{% unknown %}",
            &long(" ~ bos_token", 40),
            &long("|upper", 40),
            &in_loop("{{ m }}"),
            &in_loop("{{ m.content[0] }}"),
            &in_loop("{{ m.content(1) }}"),
            &in_loop("{{ m.items() }}"),
            &in_loop("{{ m ~ '' }}"),
            &in_loop("{{ m|upper }}"),
            &in_loop("{% for b in m %}{% endfor %}"),
            "{% for m in messages %}{% endfor %}{{ m }}",
        ] {
            assert_eq!(with(source, 1), None, "{source}");
        }
        assert_eq!(cost("{{ bos_token }}", &[Message::new(&"r".repeat(65), "")]), None);
    }
}
