//! Pages of the documentation with parts that are made from code.

use std::sync::Mutex;

/// Several tests hold parts of one page, and one after the other writes it.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Holds a part of a page of `docs`, between a comment that begins with `begin` and the next `<!-- end -->`, to `part`; with
/// the variable `UPDATE_DOCS` writes it.
///
/// # Panics
/// If the page has no such part, or another one.
pub fn hold_part(page: &str, begin: &str, part: &str) {
    let _one = ONE_AT_A_TIME.lock();
    let path = std::path::Path::new(crate::ROOT).join("docs").join(page);
    let text = std::fs::read_to_string(&path).expect("the page");
    let (before, rest) = text.split_once(&format!("<!-- {begin}:")).expect("the part's beginning");
    let (comment, rest) = rest.split_once("-->\n").expect("the comment's end");
    let (there, after) = rest.split_once("<!-- end -->").expect("the part's end");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        let text = format!("{before}<!-- {begin}:{comment}-->\n{part}<!-- end -->{after}");
        std::fs::write(path, text).expect("written");
    } else {
        assert!(there == part, "docs/{page}: {begin}: out of date; CONTRIBUTING.md says how to update it");
    }
}
