//! Names of groups of intervals, as users write them.

use std::fmt;

/// Names intervals by the end of their path, such as `decode/block/mlp`, `mlp`, `block[3]/mlp`, or by their module,
/// such as `model.layers.*.mlp`. A name without an ordinal means all ordinals, and `*` any name.
///
/// ```
/// use candlescope_schema::PathPattern;
/// let mlp = PathPattern::new("*/mlp").expect("no element is empty");
/// assert!(mlp.matches("decode/block[3]/mlp", None) && !mlp.matches("decode/block[3]/mlp/linear", None));
/// assert!(PathPattern::new("model.layers.*.mlp").is_some_and(|p| p.matches("x", Some("model.layers.7.mlp"))));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathPattern {
    text: String,
    elements: Vec<String>,
}

impl PathPattern {
    /// A pattern; `None` if an element is empty.
    pub fn new(text: &str) -> Option<Self> {
        let elements: Vec<String> = text.split('/').map(str::to_string).collect();
        (!elements.iter().any(String::is_empty)).then(|| Self { text: text.to_string(), elements })
    }

    /// Whether an interval with this path and module is meant.
    pub fn matches(&self, path: &str, module: Option<&str>) -> bool {
        if module.is_some_and(|module| module == self.text || without_numbers(module) == self.text) {
            return true;
        }
        let mut own = path.rsplit('/');
        let meant = |wanted: &String, own: &str| wanted == "*" || own == wanted || without_ordinal(own) == wanted;
        self.elements.iter().rev().all(|wanted| own.next().is_some_and(|own| meant(wanted, own)))
    }

    /// Whether it means only some of the intervals of one name, by their ordinals.
    pub fn has_ordinals(&self) -> bool {
        self.elements.iter().any(|element| without_ordinal(element) != element)
    }
}

impl fmt::Display for PathPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

fn without_ordinal(element: &str) -> &str {
    let Some(open) = element.strip_suffix(']').and_then(|element| element.rfind('[')) else { return element };
    let digits = &element[open + 1..element.len() - 1];
    if !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) { &element[..open] } else { element }
}

/// `model.layers.7.mlp` as `model.layers.*.mlp`.
pub fn without_numbers(module: &str) -> String {
    let plain = |part| if !str::is_empty(part) && part.bytes().all(|b| b.is_ascii_digit()) { "*" } else { part };
    module.split('.').map(plain).collect::<Vec<_>>().join(".")
}
