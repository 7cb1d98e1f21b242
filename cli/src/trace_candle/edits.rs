//! What is changed in candle-nn's source: each layer gets a span where it is made, and enters it at each forward.
//!
//! An edit names an item and a place in it. Both have to be there exactly once: source that is not what the edits were
//! written for is an error, never a guess.

use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The file that marks a folder as one that this command wrote.
pub(super) const MARK: &str = "src/candlescope.rs";

const SPANS: &str = include_str!("layer_spans.rs.txt");

const DEPENDENCY: &str =
    "\n[dependencies.tracing]\nversion = \"0.1.37\"\nfeatures = [\"std\"]\ndefault-features = false\n";

/// One change of a file.
#[derive(Debug)]
struct Edit {
    file: &'static str,
    /// Beginning of a top-level item.
    item: String,
    /// A place in the item; empty for its beginning.
    place: String,
    change: Change,
}

#[derive(Debug)]
enum Change {
    Before(String),
    After(String),
    Instead(String),
}

/// Changes all files, or tells what is not there.
pub(super) fn apply(files: &mut BTreeMap<PathBuf, Vec<u8>>) -> Result<()> {
    for edit in all() {
        let text = text_of(files, edit.file)?;
        let changed = edit.apply(&text).with_context(|| format!("{}, {:?}", edit.file, edit.item))?;
        files.insert(edit.file.into(), changed.into_bytes());
    }
    let manifest = text_of(files, "Cargo.toml")?;
    if manifest.contains("[dependencies.tracing]") {
        bail!("Cargo.toml: it depends on tracing already");
    }
    files.insert("Cargo.toml".into(), format!("{manifest}{DEPENDENCY}").into_bytes());
    files.insert(MARK.into(), SPANS.as_bytes().to_vec());
    Ok(())
}

fn text_of(files: &BTreeMap<PathBuf, Vec<u8>>, file: &str) -> Result<String> {
    let content = files.get(Path::new(file)).with_context(|| format!("{file} is not there"))?;
    String::from_utf8(content.clone()).with_context(|| format!("{file} is no text"))
}

impl Edit {
    fn apply(&self, text: &str) -> Result<String> {
        let start = only(text, &format!("\n{}", self.item))? + 1;
        // Items that rustfmt has laid out end with the first brace at the beginning of a line.
        let end = text[start..].find("\n}").map_or(text.len(), |end| start + end);
        let place = if self.place.is_empty() { &self.item } else { &self.place };
        let at = if self.place.is_empty() { start } else { start + only(&text[start..end], place)? };
        let (before, after) = (&text[..at], &text[at + place.len()..]);
        Ok(match &self.change {
            Change::Before(new) => format!("{before}{new}{place}{after}"),
            Change::After(new) => format!("{before}{place}{new}{after}"),
            Change::Instead(new) => format!("{before}{new}{after}"),
        })
    }
}

/// Where the one occurrence of `wanted` is.
fn only(text: &str, wanted: &str) -> Result<usize> {
    let mut found = text.match_indices(wanted);
    match (found.next(), found.next()) {
        (Some((at, _)), None) => Ok(at),
        (None, _) => bail!("{wanted:?} is not there"),
        (Some(_), Some(_)) => bail!("{wanted:?} is there more than once"),
    }
}

/// Edits of one file.
struct File {
    name: &'static str,
    edits: Vec<Edit>,
}

impl File {
    fn new(name: &'static str) -> Self {
        Self { name, edits: Vec::new() }
    }

    fn edit(mut self, item: &str, place: &str, change: Change) -> Self {
        self.edits.push(Edit { file: self.name, item: item.into(), place: place.into(), change });
        self
    }

    /// A field of a type.
    fn field(self, name: &str) -> Self {
        self.edit(&format!("pub struct {name} {{"), "", Change::After("\n    span: tracing::Span,".into()))
    }

    /// A function makes a layer for somebody else: who that is shows whether the layer has a span around it already.
    fn tracked(self, function: &str) -> Self {
        self.edit(&format!("pub fn {function}"), "", Change::Before("#[track_caller]\n".into()))
    }

    /// The same of a method.
    fn tracked_in(self, item: &str, method: &str) -> Self {
        self.edit(item, &format!("    pub fn {method}("), Change::Before("    #[track_caller]\n".into()))
    }

    /// The field where a value is made, on a line of its own after `place`.
    fn made(self, item: &str, place: &str, span: &str) -> Self {
        let text = format!("\n            span: crate::candlescope::{span}(),");
        self.edit(item, place, Change::After(text))
    }

    /// A forward pass is inside the span.
    fn entered(self, item: &str, head: &str) -> Self {
        self.edit(item, head, Change::After("\n        let _entered = self.span.enter();".into()))
    }

    fn instead(self, item: &str, place: &str, new: &str) -> Self {
        self.edit(item, place, Change::Instead(new.into()))
    }
}

fn all() -> Vec<Edit> {
    let module = Change::Before("mod candlescope;\n".into());
    let files = [
        File::new("src/lib.rs").edit("pub mod activation;", "", module),
        linear(),
        embedding(),
        layer_norm(),
        group_norm(),
        batch_norm(),
        convolutions(),
    ];
    files.into_iter().flat_map(|file| file.edits).collect()
}

fn linear() -> File {
    let read = |bias| format!("Linear {{ weight: ws, bias: {bias}, span: crate::candlescope::read::linear() }}");
    File::new("src/linear.rs")
        .field("Linear")
        .tracked_in("impl Linear {", "new")
        .instead(
            "impl Linear {",
            "Self { weight, bias }",
            "Self { span: crate::candlescope::given::linear(&weight), weight, bias }",
        )
        .entered("impl super::Module for Linear {", "fn forward(&self, x: &Tensor) -> candle::Result<Tensor> {")
        .tracked("linear(")
        .instead("pub fn linear(", "Linear::new(ws, Some(bs))", &read("Some(bs)"))
        .tracked("linear_no_bias(")
        .instead("pub fn linear_no_bias(", "Linear::new(ws, None)", &read("None"))
        .tracked("linear_b(")
}

fn embedding() -> File {
    let read = "Embedding { embeddings, hidden_size: out_size, span: crate::candlescope::read::embedding() }";
    File::new("src/embedding.rs")
        .field("Embedding")
        .tracked_in("impl Embedding {", "new")
        .edit(
            "impl Embedding {",
            "        Self {",
            Change::After("\n            span: crate::candlescope::given::embedding(&embeddings),".into()),
        )
        .entered("impl crate::Module for Embedding {", "fn forward(&self, indexes: &Tensor) -> Result<Tensor> {")
        .tracked("embedding(")
        .instead("pub fn embedding(", "Embedding::new(embeddings, out_size)", read)
}

fn layer_norm() -> File {
    let read = "
        span: if config.remove_mean {
            crate::candlescope::read::layer_norm()
        } else {
            crate::candlescope::read::rms_norm()
        },";
    let (norm, rms) = ("impl LayerNorm {", "impl RmsNorm {");
    File::new("src/layer_norm.rs")
        .field("LayerNorm")
        .tracked_in(norm, "new")
        .made(norm, "            bias: Some(bias),", "given::layer_norm")
        .tracked_in(norm, "new_no_bias")
        .made(norm, "            bias: None,\n            remove_mean: true,", "given::layer_norm")
        .tracked_in(norm, "rms_norm")
        .made(norm, "            bias: None,\n            remove_mean: false,", "given::rms_norm")
        .entered("impl Module for LayerNorm {", "fn forward(&self, x: &Tensor) -> Result<Tensor> {")
        .tracked("layer_norm<C")
        .edit("pub fn layer_norm<C", "Ok(LayerNorm {", Change::After(read.into()))
        .tracked("layer_norm_no_bias(")
        .tracked("rms_norm(")
        .tracked_in(rms, "new")
        // Its other branch goes through the layer inside, which enters the span itself.
        .edit(
            "impl Module for RmsNorm {",
            "if xs.is_contiguous() {",
            Change::After("\n            let _entered = self.0.span.enter();".into()),
        )
}

fn group_norm() -> File {
    File::new("src/group_norm.rs")
        .field("GroupNorm")
        .tracked_in("impl GroupNorm {", "new")
        .made("impl GroupNorm {", "Ok(Self {", "given::group_norm")
        .entered("impl crate::Module for GroupNorm {", "fn forward(&self, x: &Tensor) -> Result<Tensor> {")
        .tracked("group_norm(")
}

fn batch_norm() -> File {
    let item = "impl BatchNorm {";
    let mut file = File::new("src/batch_norm.rs").field("BatchNorm");
    for (method, affine, momentum) in [
        ("new", "Some((weight, bias))", "momentum: 0.1,"),
        ("new_no_bias", "None", "momentum: 0.1,"),
        ("new_with_momentum", "Some((weight, bias))", "momentum,"),
        ("new_no_bias_with_momentum", "None", "momentum,"),
    ] {
        let made = format!(
            "            weight_and_bias: {affine},\n            remove_mean: true,\n            eps,\n            {momentum}"
        );
        file = file.tracked_in(item, method).made(item, &made, "given::batch_norm");
    }
    file.entered(
        "impl crate::ModuleT for BatchNorm {",
        "fn forward_t(&self, x: &Tensor, train: bool) -> Result<Tensor> {",
    )
    .tracked("batch_norm<C")
    .made("pub fn batch_norm<C", "Ok(BatchNorm {", "read::batch_norm")
}

fn convolutions() -> File {
    let mut file = File::new("src/conv.rs");
    for (layer, function) in [
        ("Conv1d", "conv1d"),
        ("ConvTranspose1d", "conv_transpose1d"),
        ("Conv2d", "conv2d"),
        ("ConvTranspose2d", "conv_transpose2d"),
    ] {
        let item = format!("impl {layer} {{");
        file = file
            .field(layer)
            .tracked_in(&item, "new")
            .made(&item, "Self {\n            weight,", &format!("given::{function}"))
            .entered(&format!("impl crate::Module for {layer} {{"), "fn forward(&self, x: &Tensor) -> Result<Tensor> {")
            .tracked(&format!("{function}("))
            .tracked(&format!("{function}_no_bias("));
    }
    // One that is made of another one.
    let same = "\n                span: self.span.clone(),";
    file.edit("impl Conv2d {", "Ok(Self {", Change::After(same.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edit(item: &str, place: &str, change: Change) -> Edit {
        Edit { file: "a.rs", item: item.into(), place: place.into(), change }
    }

    #[test]
    fn an_edit_wants_its_place_once_and_in_its_item() {
        let text = "\nfn a() {\n    one();\n    two();\n    two();\n}\n\nfn b() {\n    three();\n}\n";
        let new = || Change::Instead("four();".into());
        let changed = edit("fn a()", "one();", new()).apply(text).unwrap();
        assert_eq!(changed, text.replace("one();", "four();"));
        let refused = |item, place| edit(item, place, new()).apply(text).unwrap_err().to_string();
        assert_eq!(refused("fn a()", "two();"), "\"two();\" is there more than once");
        assert_eq!(refused("fn a()", "three();"), "\"three();\" is not there", "it is in the next item");
        assert_eq!(refused("fn c()", ""), "\"\\nfn c()\" is not there");
        let before = edit("fn b()", "", Change::Before("#[x]\n".into())).apply(text).unwrap();
        assert!(before.contains("\n\n#[x]\nfn b() {"));
    }
}
