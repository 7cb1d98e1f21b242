//! Tables that are wider than the terminal: their texts go on several lines, their numbers never.

use crate::text::wrap_name;
use textwrap::core::display_width;

/// Characters of room on each side of a cell's text.
pub(crate) const ROOM: u16 = 1;
/// Characters that a column of texts keeps: in fewer, names are hardly to be read.
const LEAST: usize = 12;

/// Characters on a line of a text with which a table fits into `most`, where its columns are so wide; those in `texts`
/// hold texts, and the widest of them lose first. `None` if it fits as it is, and where no broken text makes it fit,
/// because its numbers leave too little.
pub(crate) fn width_of_texts(widths: &[usize], texts: &[usize], most: usize) -> Option<usize> {
    let with = |text: usize| -> usize {
        let of = |(at, width): (usize, &usize)| if texts.contains(&at) { text.min(*width) } else { *width };
        let columns: usize = widths.iter().enumerate().map(|column| 2 * usize::from(ROOM) + of(column)).sum();
        // One more between two columns.
        columns.saturating_add(widths.len().saturating_sub(1))
    };
    if with(usize::MAX) <= most {
        return None;
    }
    (LEAST..=most).rev().find(|text| with(*text) <= most)
}

/// A text on lines of at most `width` characters, all as far in as it begins, up to half of them; as it is if it fits.
pub(crate) fn on_lines(text: &str, width: usize) -> String {
    if display_width(text) <= width {
        return text.to_string();
    }
    let name = text.trim_start_matches(' ');
    let indent = " ".repeat((text.len() - name.len()).min(width / 2));
    let lines = wrap_name(name, width - indent.len());
    lines.iter().map(|line| format!("{indent}{line}")).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_widest_texts_lose_first_and_numbers_nothing() {
        assert_eq!(width_of_texts(&[28, 67], &[0], 100), None, "as wide as there is room");
        assert_eq!(width_of_texts(&[28, 68], &[0], 100), Some(27));
        assert_eq!(width_of_texts(&[40, 10, 20], &[0, 2], 60), Some(22), "22, 10 and 20");
        assert_eq!(width_of_texts(&[40, 10, 40], &[0, 2], 60), Some(21), "21, 10 and 21");
        assert_eq!(width_of_texts(&[28, 90], &[0], 100), None, "the numbers are too wide by themselves");
        assert_eq!(width_of_texts(&[60_000], &[0], usize::MAX), None);
    }

    #[test]
    fn texts_are_broken_at_spaces_and_paths_after_slashes() {
        assert_eq!(on_lines("Time per output token (TPOT)", 27), "Time per output token\n(TPOT)");
        assert_eq!(on_lines("Prefill throughput, tokens/s", 27), "Prefill throughput,\ntokens/s");
        assert_eq!(on_lines("decode/mlp/linear", 17), "decode/mlp/linear");
        assert_eq!(on_lines("decode/mlp/linear", 16), "decode/mlp/\nlinear");
        assert_eq!(on_lines("decode/gate_and_up_projection", 12), "decode/\ngate_and_up_\nprojection");
    }

    #[test]
    fn a_name_in_a_tree_stays_below_the_one_above_it() {
        assert_eq!(on_lines("    decode/attention/linear", 16), "    decode/\n    attention/\n    linear");
        let deep = format!("{:20}a_long_name", "");
        assert_eq!(on_lines(&deep, 12), "      a_long\n      _name");
    }
}
