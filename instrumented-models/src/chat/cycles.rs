//! Finds templates that could store a namespace in itself.
//!
//! Namespaces are the only values of the language that change after they were made. Printing or comparing one that
//! contains itself never ends, and the stack overflow ends the process, which cannot be caught. Real templates make a
//! namespace with `{% set NAME = namespace(…) %}` and use its attributes. So only that is allowed: any other use is
//! refused, because it could pass on the namespace itself.

use super::tokens::{Token, tokens};
use Token::{End, Mark, Start, Text, Word};

/// Statements that can access a template's variables by another name.
const OTHER_TEMPLATES: [&str; 5] = ["block", "extends", "from", "import", "include"];

/// The reason why a template is refused, if it is.
pub(super) fn refused(source: &str) -> Option<String> {
    let tokens = tokens(source);
    // A missing token is not an allowed one.
    let at = |index: usize| tokens.get(index).copied().unwrap_or(Mark(""));
    let statement = |words: &[Token<'_>]| match words {
        [Start, Word(word)] if OTHER_TEMPLATES.contains(word) => Some(format!("`{word}` is not supported")),
        _ => None,
    };
    if let Some(why) = tokens.windows(2).find_map(statement) {
        return Some(why);
    }
    let mut names = Vec::new();
    for (index, _) in tokens.iter().enumerate().filter(|(index, _)| is_variable(&tokens, *index, "namespace")) {
        let before = index.checked_sub(4).map(|first| &tokens[first..index]);
        let made = match before {
            Some([Start, Word("set"), Word(name), Mark("=")]) if at(index + 1) == Mark("(") => Some(*name),
            _ => None,
        };
        match made.filter(|_| is_all_of_its_tag(&tokens[index + 1..])) {
            Some(name) => names.push(name),
            None => return Some("`namespace` can only be used as in {% set NAME = namespace(...) %}".to_string()),
        }
    }
    let handed_on = |name: &str| {
        (0..tokens.len()).filter(|index| is_variable(&tokens, *index, name)).any(|index| {
            // An attribute, an assignment target, a type test, or an attribute by its name as a text.
            let attribute = [at(index + 1), at(index + 2), at(index + 3)] == [Mark("["), Text, Mark("]")];
            !(matches!(at(index + 1), Mark("." | "=") | Word("is")) || attribute)
        })
    };
    let name = names.into_iter().find(|name| handed_on(name))?;
    Some(format!("`{name}` is used as a whole, which could put it into itself; only its attributes can be used"))
}

/// Whether a token is `name` as a variable, not as an attribute.
fn is_variable(tokens: &[Token<'_>], index: usize, name: &str) -> bool {
    tokens.get(index) == Some(&Word(name)) && index.checked_sub(1).is_none_or(|before| tokens[before] != Mark("."))
}

/// Whether the tag ends with the parenthesis that these tokens open.
fn is_all_of_its_tag(tokens: &[Token<'_>]) -> bool {
    let mut open = 0i32;
    for (index, token) in tokens.iter().enumerate() {
        match token {
            Mark("(" | "[" | "{") => open += 1,
            Mark(")" | "]" | "}") => open -= 1,
            End => return false,
            _ => {}
        }
        if open == 0 {
            return tokens.get(index + 1) == Some(&End);
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In the style of the templates of known models.
    #[test]
    fn a_namespace_is_used_by_its_attributes() {
        for source in [
            "{%- set ns = namespace(found=false, text='') -%}{% for m in messages %}{% set ns.found = true %}{% endfor %}\
             {% if ns.found and not ns.text %}{{ ns.text | trim }}{% endif %}",
            "{% set loop_state = namespace(n = 0) %}{% set loop_state.n = loop_state.n + 1 %}",
            "Tools: namespace functions { type f = () => any; } // namespace functions",
            "no namespaces, 5 ns long",
            // Qwen 3.
            "{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}\
             {%- for message in messages[::-1] %}{%- set index = (messages|length - 1) - loop.index0 %}\
             {%- if ns.multi_step_tool and message.role == \"user\" and message.content is string and not\
             (message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}\
             {%- set ns.multi_step_tool = false %}{%- set ns.last_query_index = index %}{%- endif %}{%- endfor %}\
             {%- if loop.index0 > ns.last_query_index %}{{- '<|im_start|>' + message.role + '\\n<think>\\n' }}{%- endif %}",
            // Qwen 2.5 with images, Gemma 3 with a prefix.
            "{% set image_count = namespace(value=0) %}{% set video_count = namespace(value=0) %}{% for m in messages %}\
             {% set image_count.value = image_count.value + 1 %}Picture {{ image_count.value }}: image_count{% endfor %}",
            // DeepSeek.
            "{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% endif %}\
             {% set ns = namespace(is_first=false, is_tool=false, is_output_first=true, system_prompt='') %}\
             {%- for message in messages %}{%- if message['role'] == 'system' %}\
             {% set ns.system_prompt = ns.system_prompt + '\\n\\n' + message['content'] %}{%- endif %}{%- endfor %}\
             {{bos_token}}{{ns.system_prompt}}{% if ns.is_tool %}{{'<｜tool▁outputs▁end｜>'}}{% endif %}",
            // Mistral.
            "{%- set ns = namespace() %}{%- set ns.index = 0 %}{%- for message in loop_messages %}\
             {%- if (message[\"role\"] == \"user\") != (ns.index % 2 == 0) %}{{- raise_exception('roles') }}{%- endif %}\
             {%- set ns.index = ns.index + 1 %}{%- endfor %}",
            // Llama 3.x, SmolLM2: an attribute, a text, a key and an argument with the namespace's name.
            "{%- set thinking = namespace(on=false) %}{# thinking, as a whole #}<thinking>{% if thinking is defined %}\
             {{- message.thinking }}{{ message['thinking'] ~ '<thinking>' ~ {'thinking': 1}['thinking'] }}{% endif %}\
             {{ dict(thinking=thinking.on) }}{{ thinking['on'] }}{% raw %}{{ thinking }}{% endraw %}",
            "{% macro render(tool, indent=0) %}{{ tool.name }}{% endmacro %}{% set ns = namespace(text=render(messages[0])) %}{{ ns.text }}",
            "{{ \"{% include 'no' %}\" }}{% set from = messages[0].from %}",
        ] {
            assert_eq!(refused(source), None, "{source}");
        }
        for source in [
            "{% set ns = namespace() %}{% set ns.x = ns %}{{ ns.x }}",
            "{% set ns = namespace() %}{% set a = [ns] %}{% set ns.x = a %}",
            "{% set ns = namespace() %}{% set a = 0 or ns %}{% set ns.x = a %}",
            "{% set ns = namespace() %}{% for a in [ns] %}{% set ns.x = a %}{% endfor %}",
            "{% set a = namespace %}{% set b = a() %}{% set b.x = b %}",
            "{% set ns = namespace(x=namespace()) %}",
            "{% set ns.x = namespace() %}",
            "{% set ns=namespace(x=1) %}{% set a={'k': ns or 0} %}{% set ns.x=a %}{{ ns.x }}",
            "{% set ns=namespace(x=1) %}{% set a={'k': ns if(1) else 0} %}{% set ns.x=a %}{{ ns.x }}",
            "{% set ns=namespace(x=1) %}{% set a={'k':ns} %}{% set ns.x=a %}{{ ns.x }}",
            "{% set ns=namespace(x=1) %}{% set a = (1 and\nns) %}",
            "{% set ns=namespace(x=1), 1 %}{% set ns.x = ns.0 %}",
            "{% set ns=namespace(x=1) or 1 %}",
            "{% set a, ns = 1, namespace() %}",
            "{% with ns = namespace() %}{% endwith %}",
            "{% set ns=namespace(x=1) %}{% from \"chat\" import ns as b %}",
            "{%- import 'chat' as b %}",
            "{% include 'chat' %}",
            "{% extends 'chat' %}",
            // Quotes outside of code.
            "' {% set ns=namespace() %}{% set ns.x=ns %}'",
            "{# ' #}{% set ns=namespace() %}{% raw %}{{ ' {% endraw %}{% set ns.x=ns %}{# ' #}",
            "{{ '\\'' }}{% set ns=namespace() %}{% set ns.x=ns %}{{ '\\'' }}",
            "{% set ns=namespace() %}{% set ns.x=ns",
        ] {
            assert!(refused(source).is_some(), "{source}");
        }
    }
}
