//! The flame graph: an interactive SVG in a frame of its own, so that neither its script nor its style reaches the page.

use crate::passes::flame::collapsed;
use crate::passes::tree::Tree;
use inferno::flamegraph::color::{BackgroundColor, BasicPalette, Color};
use inferno::flamegraph::{self, Options, Palette, TextTruncateDirection};
use serde_json::{Value, json};

/// What the frame holds besides the SVG. It has no address of its own, so the script's attempt to note the zoom there must do
/// nothing instead of failing half-way.
const PRELUDE: &str = "<!doctype html><meta charset=\"utf-8\"><style>:root{color-scheme:light dark}body{margin:0;overflow:hidden}\
svg{display:block;width:100%}#background{fill:#fff}#frames text{fill:#1b1b1b}#title{display:none}\
@media(prefers-color-scheme:dark){#background{fill:#17191e}#details,#search,#matched,#unzoom{fill:#d8dbe2!important}}</style>\
<script>history.replaceState=function(){};</script>";

/// The frame's document and its height in pixels; null where there is nothing to draw.
pub(super) fn frame(tree: &Tree) -> Value {
    match svg(tree) {
        Some((svg, height)) => json!({ "document": format!("{PRELUDE}{svg}"), "height": height }),
        None => Value::Null,
    }
}

fn svg(tree: &Tree) -> Option<(String, u32)> {
    let lines = collapsed(tree);
    if lines.is_empty() {
        return None;
    }
    let mut options = Options::default();
    options.title = String::new();
    options.colors = Palette::Basic(BasicPalette::Orange);
    options.bgcolors = Some(BackgroundColor::Flat(Color { r: 255, g: 255, b: 255 }));
    options.count_name = "ns".to_string();
    options.name_type = "Path:".to_string();
    options.hash = true;
    options.deterministic = true;
    options.direction = flamegraph::Direction::Inverted;
    options.frame_height = 20;
    options.min_width = 0.05;
    options.text_truncate_direction = TextTruncateDirection::Right;
    let mut bytes = Vec::new();
    // Weights that make no width (all zero) are refused: then there is nothing to draw.
    flamegraph::from_lines(&mut options, lines.iter().map(String::as_str), &mut bytes).ok()?;
    let text = String::from_utf8(bytes).ok()?;
    let svg = &text[text.find("<svg")?..];
    let height = svg.split("height=\"").nth(1)?.split('"').next()?.parse().ok()?;
    Some((svg.to_string(), height))
}
