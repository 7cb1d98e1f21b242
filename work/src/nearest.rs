//! Names that somebody may have meant who wrote one that is not known.

/// Most names that are suggested.
const MOST: usize = 3;

/// The known names nearest to `wanted`, the nearest first: those within half its length, three at most. Case does not
/// count.
pub fn nearest<'a>(wanted: &str, known: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let wanted = wanted.to_ascii_lowercase();
    let mut found: Vec<(usize, &str)> = known
        .into_iter()
        .map(|name| (strsim::levenshtein(&wanted, &name.to_ascii_lowercase()), name))
        .filter(|(distance, name)| *distance <= wanted.len().max(name.len()) / 2)
        .collect();
    found.sort_unstable();
    found.dedup();
    found.into_iter().take(MOST).map(|(_, name)| name).collect()
}

/// The known name nearest to `wanted` as ` (did you mean …?)` for the end of a message, or nothing.
pub fn suggest<'a>(wanted: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let names = nearest(wanted, known);
    suggestion(&names[..names.len().min(1)])
}

/// Names as ` (did you mean …?)` for the end of a message, or nothing.
pub fn suggestion(names: &[&str]) -> String {
    if names.is_empty() {
        return String::new();
    }
    let quoted: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    format!(" (did you mean {}?)", quoted.join(" or "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_come_first_and_strangers_not_at_all() {
        let known = ["llama-3-8b", "llama-2-7b", "gpt2", "gpt2"];
        assert_eq!(nearest("Lama-3-8B", known), ["llama-3-8b", "llama-2-7b"]);
        assert_eq!(nearest("gpt", known), ["gpt2"], "each once");
        assert!(nearest("something else", known).is_empty());
        assert_eq!(suggestion(&["a", "b"]), " (did you mean `a` or `b`?)");
        assert_eq!(suggestion(&[]), "");
    }
}
