//! Names that somebody may have meant.

/// The known names nearest to `wanted`, as ` (did you mean …?)`, or nothing.
pub(super) fn suggestion<'a>(wanted: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    candlescope_models::config::suggestion(wanted, known)
}
