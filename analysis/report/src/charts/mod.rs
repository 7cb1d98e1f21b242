//! Charts as SVG, with colours that a page's style replaces, so that they follow its themes.

pub(super) mod flame;
pub(super) mod page_theme;
pub(super) mod plots;
pub(super) mod spark;
pub(super) mod step_line;
