//! Which intervals read keys and values, and not weights: a record has the sum of both.

/// Attention and its parts, by name. Its projections (`attn_q`, `c_attn`, `q_proj`) read weights.
const PARTS: [&str; 10] = [
    "attention",
    "attn",
    "context",
    "kv_cache",
    "kv_write",
    "scores",
    "sdpa",
    "self_attention",
    "self_attn",
    "softmax",
];

/// Whether an interval or module of this path is attention or a part of it.
pub fn reads_cache(path: &str) -> bool {
    path.rsplit(['/', '.']).next().is_some_and(|name| PARTS.contains(&name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn projections_of_attention_read_weights() {
        for path in ["decode/attn/scores", "model.layers.*.self_attn", "sdpa", "decode/attention", "kv_cache"] {
            assert!(reads_cache(path), "{path}");
        }
        for path in ["h.*.attn.c_attn", "blk.*.attn_q", "blk.*.attn_output", "self_attn.q_proj", "attn_norm", ""] {
            assert!(!reads_cache(path), "{path}");
        }
    }
}
