//! Text with names between backticks, as HTML: everything escaped, the names as code.

use minijinja::value::Value;
use minijinja::{Environment, HtmlEscape};

/// Adds the filter `coded`, which every text of ours may pass.
pub(in crate::render) fn add_filter(environment: &mut Environment<'_>) {
    environment.add_filter("coded", |text: String| Value::from_safe_string(coded(&text)));
}

/// A backtick that has no partner stays.
pub(in crate::render) fn coded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, name, after)) =
        rest.split_once('`').and_then(|(before, rest)| rest.split_once('`').map(|(name, after)| (before, name, after)))
    {
        out.push_str(&format!("{}<code>{}</code>", HtmlEscape(before), HtmlEscape(name)));
        rest = after;
    }
    out.push_str(&HtmlEscape(rest).to_string());
    out
}

#[cfg(test)]
mod tests {
    use super::coded;

    #[test]
    fn names_are_code_and_nothing_breaks_out() {
        assert_eq!(coded("run `a<b` and `c`."), "run <code>a&lt;b</code> and <code>c</code>.");
        assert_eq!(coded("<script>` alone"), "&lt;script&gt;` alone");
    }
}
