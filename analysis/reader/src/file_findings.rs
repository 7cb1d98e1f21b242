//! What is told of a file that cannot be read, or not as a whole, wherever it lies.

use candlescope_schema::run::{Code, Finding, Place};

/// What is told of a file, by its path or URL, of which rows are missing, and `why`.
pub fn damaged(file: &str, why: &str) -> Finding {
    Finding::new(
        Code::SegmentCorrupt,
        "`{file}` is damaged ({why}): rows of it are missing",
        "Copy the file again from where the run was made, or delete it to accept the loss",
    )
    .at(Place::File, file)
    .text("why", short(why))
}

/// What is told of a segment, by its path or URL, that was not finished, with its bytes.
pub fn unfinished(file: &str, bytes: u64) -> Finding {
    Finding::new(
        Code::SegmentUnfinished,
        "`{file}` was not finished: its rows are lost ({bytes:raw} bytes on disk), those of earlier segments are not",
        "The process was killed or is still running. Rotate segments more often to lose less",
    )
    .at(Place::File, file)
    .number("bytes", "bytes", bytes as f64)
}

/// First line of an error, cut to a readable length: some errors of the Parquet library contain a dump.
pub(super) fn short(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    match line.char_indices().nth(160) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::short;

    #[test]
    fn long_errors_are_cut_at_a_character() {
        let text = "é".repeat(500);
        assert_eq!(short(&text).chars().count(), 161);
        assert_eq!(short("one\ntwo"), "one");
    }
}
