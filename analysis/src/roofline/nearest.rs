//! Names that somebody may have meant.

/// Most names that are suggested.
const MOST: usize = 3;

/// The known names nearest to `wanted`, the nearest first: those within half its length, three at most.
pub(super) fn nearest<'a>(wanted: &str, known: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let wanted = wanted.to_ascii_lowercase();
    let mut found: Vec<(usize, &str)> = known
        .into_iter()
        .map(|name| (distance(&wanted, &name.to_ascii_lowercase()), name))
        .filter(|(distance, name)| *distance <= wanted.len().max(name.len()) / 2)
        .collect();
    found.sort_unstable();
    found.dedup();
    found.into_iter().take(MOST).map(|(_, name)| name).collect()
}

/// ` (did you mean …?)`, or nothing.
pub(super) fn suggestion(names: &[&str]) -> String {
    if names.is_empty() {
        return String::new();
    }
    let quoted: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    format!(" (did you mean {}?)", quoted.join(" or "))
}

/// Levenshtein distance between two short names.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, cb) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(ca != *cb);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}
