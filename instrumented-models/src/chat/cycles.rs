//! Finds templates that could put a namespace into itself.
//!
//! Namespaces are the only values of the language that change after they were made. One that holds itself is printed and compared
//! without end, and the stack that runs out ends the process, which nothing catches. Real templates make a namespace with
//! `{% set NAME = namespace(…) %}` and use its attributes; whatever hands on the namespace itself is refused.

/// Words before a value that hands it on.
const HANDING_ON: [&str; 4] = ["or", "and", "else", "if"];

/// The name that is handed on as a whole, if there is one. Text outside of tags is looked at like what is inside: where a tag ends
/// is for the template's own parser to say.
pub(super) fn namespace_handed_on(source: &str) -> Option<&str> {
    let mut names = Vec::new();
    for (at, _) in words(source, "namespace") {
        let (before, after) = (source[..at].trim_end(), source[at + "namespace".len()..].trim_start());
        if !after.starts_with('(') {
            if is_handed_on(before, after) {
                return Some("namespace");
            }
            continue;
        }
        let target = before.strip_suffix('=').map(str::trim_end).map(|text| (text, last_word(text)));
        match target {
            Some((text, name))
                if !name.is_empty() && last_word(text[..text.len() - name.len()].trim_end()) == "set" =>
            {
                names.push(name);
            }
            _ => return Some("namespace"),
        }
    }
    let handed_on = |name: &str| {
        words(source, name).any(|(at, _)| {
            let (before, after) = (source[..at].trim_end(), source[at + name.len()..].trim_start());
            !after.starts_with('.') && is_handed_on(before, after)
        })
    };
    names.into_iter().find(|name| handed_on(name))
}

fn is_handed_on(before: &str, after: &str) -> bool {
    before.ends_with(['=', '(', '[', ',', '~', '|', '{', '+', '*', '<', '>', '%', '-'])
        || after.starts_with([')', ']', '}', '|', '~', ','])
        || after.starts_with("if ")
        || HANDING_ON.contains(&last_word(before))
}

/// Places where `word` stands for itself, not as a part of a longer one.
fn words<'a>(source: &'a str, word: &'a str) -> impl Iterator<Item = (usize, &'a str)> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    source
        .match_indices(word)
        .filter(move |(at, _)| !source[..*at].ends_with(is_part) && !source[at + word.len()..].starts_with(is_part))
}

fn last_word(text: &str) -> &str {
    let start = text.rfind(|c: char| !c.is_alphanumeric() && c != '_').map_or(0, |at| at + char_len(&text[at..]));
    &text[start..]
}

fn char_len(text: &str) -> usize {
    text.chars().next().map_or(0, char::len_utf8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_is_used_by_its_attributes() {
        for source in [
            "{%- set ns = namespace(found=false, text='') -%}{% for m in messages %}{% set ns.found = true %}{% endfor %}\
             {% if ns.found and not ns.text %}{{ ns.text | trim }}{% endif %}",
            "{% set loop_state = namespace(n = 0) %}{% set loop_state.n = loop_state.n + 1 %}",
            "Tools: namespace functions { type f = () => any; } // namespace functions",
            "no namespaces, 5 ns long",
        ] {
            assert_eq!(namespace_handed_on(source), None, "{source}");
        }
        for source in [
            "{% set ns = namespace() %}{% set ns.x = ns %}{{ ns.x }}",
            "{% set ns = namespace() %}{% set a = [ns] %}{% set ns.x = a %}",
            "{% set ns = namespace() %}{% set a = 0 or ns %}{% set ns.x = a %}",
            "{% set ns = namespace() %}{% for a in [ns] %}{% set ns.x = a %}{% endfor %}",
            "{% set a = namespace %}{% set b = a() %}{% set b.x = b %}",
            "{% set ns = namespace(x=namespace()) %}",
            "{% set ns.x = namespace() %}",
        ] {
            assert!(namespace_handed_on(source).is_some(), "{source}");
        }
    }
}
