//! Where an interval stands: its path of names, and whose span it is.

use std::sync::Arc;

/// An interval's place in the tree of names. Interned: equal paths share one allocation and one `id`.
#[derive(Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PathInfo {
    /// Dense number of this path within one session, from 0. Exporters index tables with it instead of hashing strings.
    pub id: u32,
    /// Names from the step down, with a sibling ordinal where names repeat: `decode/block[12]/attn/linear[2]`.
    pub path: String,
    /// What intervals are grouped by in tables of operators and in metrics: the path without ordinals,
    /// `decode/block/attn/linear`. If the span stands for a module, it is the step's name and the module without
    /// numbers, `decode/model.layers.*.self_attn.q_proj`, which tells apart what candle gives the same name; of a step
    /// that is a module itself, as in a program that marks no phases, it is the module alone.
    pub rollup: String,
    /// Dense number of the rollup within one session, from 0. Many paths share one rollup.
    pub rollup_id: u32,
    /// The interval's own name, the last element of the path without its ordinal.
    pub name: Arc<str>,
    /// The `tracing` target (module path) of the span.
    pub target: Arc<str>,
    /// The module of the model that the span stands for, for example `model.layers.7.mlp.down_proj`, if the names of
    /// the weights were passed to `candlescope::modules` while they were loaded. If two models are loaded, equal
    /// path texts can belong to different modules.
    pub module: Option<Arc<str>>,
}

impl PathInfo {
    /// A path that stands for itself: its rollup has this number, too, and it belongs to no module.
    pub fn new(id: u32, path: impl Into<String>, name: impl Into<Arc<str>>, target: impl Into<Arc<str>>) -> Self {
        let path = path.into();
        let rollup = Self::rollup_of(&path, None);
        Self { id, path, rollup, rollup_id: id, name: name.into(), target: target.into(), module: None }
    }

    /// The [`rollup`](Self::rollup) of a path, and of the module that its span stands for, if any.
    ///
    /// ```
    /// use candlescope_schema::PathInfo;
    /// assert_eq!(PathInfo::rollup_of("decode/block[12]/attn/linear[2]", None), "decode/block/attn/linear");
    /// let module = Some("model.layers.12.self_attn.v_proj");
    /// let rollup = PathInfo::rollup_of("decode/block[12]/attn/linear[2]", module);
    /// assert_eq!(rollup, "decode/model.layers.*.self_attn.v_proj");
    /// ```
    pub fn rollup_of(path: &str, module: Option<&str>) -> String {
        let mut elements = path.split('/').map(without_ordinal);
        let Some(step) = elements.next() else { return String::new() };
        let mut out = String::with_capacity(path.len());
        if let Some(module) = module {
            // A step that is a module is called by it: its span's name is that of hundreds.
            if path.contains('/') {
                out.push_str(step);
                out.push('/');
            }
            let numbered = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
            for (i, part) in module.split('.').enumerate() {
                out.push_str(if i == 0 { "" } else { "." });
                out.push_str(if numbered(part) { "*" } else { part });
            }
            return out;
        }
        out.push_str(step);
        for element in elements {
            out.push('/');
            out.push_str(element);
        }
        out
    }

    /// Name of the path above intervals whose parent's record never came.
    pub const LOST: &str = "(lost)";

    /// Whether the interval's place in its step is unknown, because its parent's record never came.
    pub fn is_orphan(&self) -> bool {
        self.path.strip_prefix(Self::LOST).and_then(|rest| rest.strip_prefix('/')) == Some(&*self.name)
    }
}

fn without_ordinal(element: &str) -> &str {
    let Some(open) = element.strip_suffix(']').and_then(|e| e.rfind('[')) else { return element };
    let digits = &element[open + 1..element.len() - 1];
    if !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) { &element[..open] } else { element }
}

/// Whether spans of this target belong to a model wherever they are entered: those of candle's crates, and of ours.
/// Spans of other targets may be a model's, too, or a handler's: they count as the model's inside a phase.
///
/// ```
/// use candlescope_schema::is_of_model;
/// assert!(is_of_model("candle_transformers::models::qwen2") && !is_of_model("tower_http::trace::make_span"));
/// ```
pub fn is_of_model(target: &str) -> bool {
    target.starts_with("candle")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rollups_have_no_numbers() {
        let rollup = PathInfo::rollup_of;
        assert_eq!(rollup("decode/block[12]/attn/linear[2]", None), "decode/block/attn/linear");
        assert_eq!(rollup("block[x]/a[]/b[1", None), "block[x]/a[]/b[1");
        assert_eq!(rollup("", None), "");
        assert_eq!(rollup("step/linear[3]", Some("h.11.mlp.c_fc")), "step/h.*.mlp.c_fc");
        assert_eq!(rollup("step/linear[3]", Some("experts.2x")), "step/experts.2x");
        assert_eq!(rollup("linear", Some("h.11.mlp.c_fc")), "h.*.mlp.c_fc", "it is a step");
    }
}
