//! What the reports of all studies share.

use super::{Manifest, told_once};
use candlescope_document::{Block, Forms, Picture, Section};

/// The charts.
pub(crate) fn charts(drawn: &[Picture]) -> Section {
    let pictures = drawn.iter().map(|picture| Block::Pictures(vec![picture.clone()]));
    pictures.fold(Section::new("charts", "Charts", "").only(Forms::PAGE.and(Forms::JSON)), Section::with)
}

/// How it was measured: what is said of it, threads and clocks, and what disturbed the machine.
pub(crate) fn method(manifest: &Manifest, said: Vec<String>, disturbances: &[String]) -> Section {
    let threads = manifest.threads().map_or(String::new(), |threads| format!("{threads}. "));
    let surroundings = match manifest.surroundings.as_str() {
        "" => "not known",
        known => known,
    };
    let clocks = format!("{threads}Clocks, temperature and throttling: {surroundings}.");
    let section = Section::new("method", "How it was measured", "");
    let section = said.into_iter().chain([clocks]).map(Block::Text).fold(section, Section::with);
    let disturbed = told_once(disturbances);
    let heading = if disturbed.is_empty() { "" } else { "What disturbed the machine:" };
    section.with(Block::Text(heading.to_string())).list(disturbed)
}
