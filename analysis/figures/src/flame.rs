//! Collapsed stacks weighted by self time, as flame graph tools read them: `decode;block;attn;linear 12345`.

use super::tree::Tree;

/// Deeper stacks are cut off here: no screen shows them.
const DEEPEST: usize = 256;

/// One line for each node with self time, sorted. The weight is nanoseconds; names contain neither `;` nor line breaks.
pub fn collapsed(tree: &Tree) -> Vec<String> {
    let mut stack: Vec<String> = Vec::new();
    let mut lines = Vec::new();
    for row in &tree.rows {
        stack.truncate(row.depth);
        stack.push(frame_name(&row.label));
        if row.self_ns > 0 {
            let frames = &stack[..stack.len().min(DEEPEST)];
            lines.push(format!("{} {}", frames.join(";"), row.self_ns));
        }
    }
    lines.sort();
    lines
}

/// A name without characters that would end a frame or a line.
pub fn frame_name(name: &str) -> String {
    let clean: String = name.chars().map(|c| if c == ';' || c.is_control() { '_' } else { c }).collect();
    if clean.trim().is_empty() { "(unnamed)".to_string() } else { clean }
}
