//! Tells templates whose memory is bounded by their source from those that only running them can tell.
//!
//! A text grows without bound where a result becomes an operand again: through a variable, a macro, a block that is captured. A template
//! without any of these computes each expression from what was said and from its own source, and then lets it go. So it is enough to allow
//! a few statements, calls and filters by name, and to count the operators that put texts together; the templates of many models, those in
//! ChatML's style among them, need no more. What is not known to be harmless is not harmless.

use super::tokens::{Token, tokens};
use Token::{End, Mark, Show, Start, Text, Word};

/// Methods whose result is no longer than what they are called on, and the function that refuses a conversation.
const CALLS: [&str; 10] =
    ["strip", "lstrip", "rstrip", "startswith", "endswith", "upper", "lower", "title", "capitalize", "raise_exception"];
/// Filters whose result is no longer than what they are given.
const FILTERS: [&str; 8] = ["trim", "length", "count", "upper", "lower", "title", "first", "last"];
/// A byte of a text that is not printable has so many when a list is written out; in upper case a letter has three at most.
const WRITTEN_OUT: usize = 10;
/// Words after which a parenthesis groups.
const OPERATORS: [&str; 7] = ["in", "and", "or", "not", "if", "elif", "else"];

/// Most bytes that the template can hold at once beside its text, where `said` bytes were said; none where only running it can tell.
pub(super) fn most_held(source: &str, said: usize) -> Option<usize> {
    let tokens = tokens(source);
    let mut largest = 0;
    for tag in tokens.split_inclusive(|token| *token == End) {
        largest = largest.max(joined(tag)?);
    }
    Some(source.len().max(said).saturating_mul(WRITTEN_OUT).saturating_mul(largest + 1))
}

/// How often the tag puts two texts together; none where more than that may happen in it.
fn joined(tag: &[Token<'_>]) -> Option<usize> {
    let [start, code @ .., End] = tag else {
        return None;
    };
    let joins = match (start, code) {
        (Show, expression) => expression_joins(expression),
        (Start, [Word("else" | "endif" | "endfor")]) => Some(0),
        (Start, [Word("if" | "elif"), expression @ ..]) => expression_joins(expression),
        (Start, [Word("for"), rest @ ..]) => walks_what_is_there(rest).then_some(0),
        _ => None,
    };
    joins.filter(|_| tag.windows(2).all(|two| is_known(two[0], two[1])))
}

/// The operators that make a longer text of two. A product makes one of any length.
fn expression_joins(expression: &[Token<'_>]) -> Option<usize> {
    let joins = expression.iter().filter(|token| matches!(token, Mark("+" | "~"))).count();
    expression.iter().all(|token| !matches!(token, Mark("*" | "**"))).then_some(joins)
}

/// Whether a loop goes over something that was there before: a value made for the loop would be a variable like any other.
fn walks_what_is_there(rest: &[Token<'_>]) -> bool {
    let named = |token: &Token<'_>| matches!(token, Word(_) | Text | Token::Number | Mark("." | "[" | "]" | ":" | "-"));
    matches!(rest, [Word(_), Word("in"), Word(_), after @ ..] if after.iter().all(named))
}

/// Whether nothing is called, filtered or tested here but by names that are known.
fn is_known(first: Token<'_>, second: Token<'_>) -> bool {
    match (first, second) {
        (Mark("|"), Word(filter)) => FILTERS.contains(&filter),
        // Lists and maps: written out they hold their texts once more, escaped, and so on in a list of such texts.
        (Mark("|"), _) | (_, Mark("{" | ",")) => false,
        (Word(name), Mark("[")) => !OPERATORS.contains(&name),
        (Mark("]" | ")"), Mark("[")) => true,
        (_, Mark("[")) => false,
        (Word(name), Mark("(")) => CALLS.contains(&name) || OPERATORS.contains(&name),
        (Mark("]" | ")" | "}") | Text | Token::Number, Mark("(")) => false,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHATML: &str = "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\n\
        You are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n' }}{% endif %}{{'<|im_start|>' + message['role'] \
        + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

    #[test]
    fn a_template_without_variables_is_bounded_by_its_source() {
        assert_eq!(most_held(CHATML, 10), Some(10 * CHATML.len() * 6));
        assert_eq!(most_held(CHATML, 10_000), Some(10 * 10_000 * 6));
        let long = format!("{{{{ a{} }}}}", " ~ a".repeat(10_000));
        assert_eq!(most_held(&long, 1 << 20), Some((10 * 10_001) << 20));
        for harmless in [
            "{% raw %}{% set x = x ~ x %}{% endraw %}{# {% set x = x ~ x %} #}",
            "{{ bos_token }}{%- for m in messages[1:] -%}{{ (m.content | trim) ~ eos_token }}{% else %}-{% endfor %}",
            "{% if not (a and b[0].c) %}{{ raise_exception('no') }}{% elif a.startswith('x') %}{{ a if b is string else c }}{% endif %}",
            "",
        ] {
            assert!(most_held(harmless, 0).is_some(), "{harmless}");
        }
    }

    #[test]
    fn what_can_grow_is_not() {
        for source in [
            "{% set x = 1 %}",
            "{%- macro m() %}{% endmacro %}",
            "{% filter upper %}{% endfilter %}",
            "{% with a = 1 %}{% endwith %}",
            "{% call m() %}{% endcall %}",
            "{% for a in [m ~ m] %}{% for b in [a ~ a] %}{% endfor %}{% endfor %}",
            "{% for a in m ~ m %}{% endfor %}",
            "{% for a in m | list %}{% endfor %}",
            "{% for a in m recursive %}{{ loop(m) }}{% endfor %}",
            "{% for a, b in m.items() %}{% endfor %}",
            "{% for a in (m, m) %}{% endfor %}",
            "{{ 'a' * 9 }}",
            "{{ 2 ** 9 }}",
            "{{ a | replace('', a) }}",
            "{{ a |join(a) }}",
            "{{ a | tojson }}",
            "{{ a.replace('', a) }}",
            "{{ a['replace']('', a) }}",
            "{{ (a.replace)('', a) }}",
            "{{ 'a'('b') }}",
            "{{ range(9) }}",
            "{{ loop.cycle(a) }}",
            "{{ namespace() }}",
            "{{ [[a] | upper] | upper }}",
            "{{ (a, a) | upper }}",
            "{{ {'a': a} | upper }}",
            "{{ a in [a] }}",
            "{% for a in [a] %}{% endfor %}",
            "{{ a",
            "{% unknown %}",
        ] {
            assert_eq!(most_held(source, 1), None, "{source}");
        }
    }
}
