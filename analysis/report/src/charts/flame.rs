//! The flame graph: an interactive SVG in a frame of its own, so that neither its script nor its style reaches the
//! page.

use candlescope_document::Frame;
use candlescope_figures::flame::{
    BLOCKED, FlameTime, KERNEL, POOL, PREEMPTED, collapsed, collapsed_functions, frame_name,
};
use candlescope_figures::tree::Tree;
use candlescope_figures::{Analysis, HostTime};
use inferno::flamegraph::color::{BackgroundColor, BasicPalette, Color, PaletteMap};
use inferno::flamegraph::{self, Options, Palette, TextTruncateDirection};
use std::collections::BTreeMap;

/// The frame's contents besides the SVG. The frame has no URL of its own, so the script's attempt to store the zoom
/// there must do nothing instead of failing half-way.
const PRELUDE: &str = "<!doctype html><meta charset=\"utf-8\"><style>:root{color-scheme:light dark}body{margin:0;overflow:hidden}\
svg{display:block;width:100%}rect[fill^=\"url\"]{fill:#fff}#frames text{fill:#1b1b1b}#title{display:none}\
#search{opacity:.7!important}@media(prefers-color-scheme:dark){rect[fill^=\"url\"]{fill:#17191e}#details,#search,#matched,#unzoom{fill:#d8dbe2}}</style>\
<script>history.replaceState=function(){};</script>";

/// The flame graph of a tree; `None` if there is nothing to draw.
pub(crate) fn frame(tree: &Tree, title: &str) -> Option<Frame> {
    let mut own: BTreeMap<String, u64> = BTreeMap::new();
    for row in &tree.rows {
        *own.entry(frame_name(&row.label)).or_default() += row.self_ns;
    }
    Some(frame_of(collapsed(tree), own, title)).filter(|frame| frame.drawn.is_some())
}

/// What the flame graphs of a run show.
pub(crate) fn note(analysis: &Analysis) -> String {
    let zoom = "Click a frame to zoom, search by regular expression at the top right.";
    match &analysis.host {
        Some(host) if host.all.samples > 0 => format!(
            "Below our intervals, the functions that their time went into, coloured by crate. The first graph shows the time of \
             the threads that entered them: the intervals' own time, divided among functions as sampled; then time on the CPU \
             alone, with that of pools' threads; then time off it. In nanoseconds. {zoom}"
        ),
        _ => format!("Width is self time over the whole run, in nanoseconds; ordinals are left out. {zoom}"),
    }
}

/// The flame graphs of a run: with functions, three of them.
pub(crate) fn of_run(analysis: &Analysis) -> Vec<Frame> {
    let tree = &analysis.tree;
    let Some(host) = analysis.host.as_ref().filter(|host| host.all.samples > 0) else {
        return frame(tree, "Flame graph").into_iter().collect();
    };
    let shown = [
        (FlameTime::Elapsed, "Elapsed: on and off the CPU"),
        (FlameTime::OnCpu, "On the CPU, with threads of pools"),
        (FlameTime::OffCpu, "Off the CPU"),
    ];
    let drawn = shown.into_iter().map(|(shown, title)| {
        let lines = collapsed_functions(tree, host, shown);
        Frame { wide: true, ..colored(lines, by_crate(tree, host), title) }
    });
    drawn.filter(|frame| frame.drawn.is_some()).collect()
}

/// Functions of a crate share a colour; so do intervals, and what is no function.
fn by_crate(tree: &Tree, host: &HostTime) -> PaletteMap {
    let mut own: BTreeMap<String, u64> = BTreeMap::new();
    let all = || host.places.values().flat_map(|place| &place.calls.nodes);
    for node in all() {
        let sum = own.entry(node.name.crate_name.as_deref().unwrap_or("").to_string()).or_default();
        *sum = sum.saturating_add(node.own.cpu_ns());
    }
    own.remove("");
    let mut crates: Vec<(String, u64)> = own.into_iter().collect();
    crates.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    let color_of: BTreeMap<&str, u32> =
        crates.iter().enumerate().map(|(at, (name, _))| (name.as_str(), COLORS[at % COLORS.len()])).collect();
    let mut colors = PaletteMap::default();
    for node in all() {
        let color = node.name.crate_name.as_deref().and_then(|name| color_of.get(name)).copied();
        colors.insert(frame_name(&node.name.function), rgb(color.unwrap_or(OF_OTHERS)));
    }
    for special in [POOL, KERNEL, BLOCKED, PREEMPTED] {
        colors.insert(special, rgb(OF_OTHERS));
    }
    for row in &tree.rows {
        colors.insert(frame_name(&row.label), rgb(OF_INTERVALS));
    }
    colors.insert("", rgb(0xdcdcd8));
    colors
}

/// Colours of intervals, and of functions without a crate.
const OF_INTERVALS: u32 = 0xcfd4da;
const OF_OTHERS: u32 = 0xe6e3dc;

/// The same of collapsed stacks. `own` is the time of each name by itself, by which colours are given. Lines with two
/// weights are a difference: as wide as the second one, red where it is more, blue where it is less.
pub(crate) fn frame_of(lines: Vec<String>, own: BTreeMap<String, u64>, title: &str) -> Frame {
    colored(lines, palette(own), title)
}

fn colored(lines: Vec<String>, colors: PaletteMap, title: &str) -> Frame {
    let drawn = svg(&lines, colors).map(|(svg, height)| (format!("{PRELUDE}{svg}"), height));
    Frame { title: title.to_string(), drawn, wide: false, stacks: lines }
}

/// Light enough for dark text, and different enough to distinguish neighbours.
const COLORS: [u32; 10] =
    [0xf2a65a, 0x8ab6d6, 0xf6d186, 0x9fc8a5, 0xe8998d, 0xb8a9d9, 0xd9c6a5, 0x8fd0cd, 0xe3b7d0, 0xc3d17f];

/// One colour per name wherever it occurs, assigned by self time so that the widest frames differ most.
fn palette(own: BTreeMap<String, u64>) -> PaletteMap {
    let mut names: Vec<(String, u64)> = own.into_iter().collect();
    names.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    let mut colors = PaletteMap::default();
    colors.insert("", rgb(0xdcdcd8));
    for (i, (name, _)) in names.into_iter().enumerate() {
        colors.insert(name, rgb(COLORS[i % COLORS.len()]));
    }
    colors
}

fn rgb(hex: u32) -> Color {
    Color { r: (hex >> 16) as u8, g: (hex >> 8) as u8, b: hex as u8 }
}

fn svg(lines: &[String], mut colors: PaletteMap) -> Option<(String, u32)> {
    if lines.is_empty() {
        return None;
    }
    let mut options = Options::default();
    options.title = String::new();
    options.colors = Palette::Basic(BasicPalette::Orange);
    options.bgcolors = Some(BackgroundColor::Flat(Color { r: 255, g: 255, b: 255 }));
    options.count_name = "ns".to_string();
    options.name_type = "Path:".to_string();
    options.palette_map = Some(&mut colors);
    options.direction = flamegraph::Direction::Inverted;
    options.frame_height = 20;
    options.min_width = 0.05;
    options.text_truncate_direction = TextTruncateDirection::Right;
    let mut bytes = Vec::new();
    // Weights without any width (all zero) are refused: then there is nothing to draw.
    flamegraph::from_lines(&mut options, lines.iter().map(String::as_str), &mut bytes).ok()?;
    let text = String::from_utf8(bytes).ok()?;
    let svg = &text[text.find("<svg")?..];
    let height = svg.split("height=\"").nth(1)?.split('"').next()?.parse().ok()?;
    Some((svg.to_string(), height))
}
