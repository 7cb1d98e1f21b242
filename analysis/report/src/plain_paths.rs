//! Paths of the model in words: `decode/block/self_attn/softmax` is the softmax of the attention.

use candlescope_document::text::code;

/// Elements whose name says what they are, wherever they stand: parts of a name, and the words. The first that fits.
const PARTS: &[(&[&str], &str)] = &[
    (&["lm_head"], "the output layer, which rates the next token"),
    (&["embed", "wte", "wpe"], "the embedding of tokens"),
    (&["sample"], "the choice of the next token"),
    (&["softmax", "attention_sm", "attn_sm"], "the softmax of the attention"),
    (&["scores", "qk_matmul"], "the product of queries and keys of the attention"),
    (&["context", "av_matmul"], "the product with the values of the attention"),
    (&["rotary", "rope", "rot_emb", "attention_rot", "attn_rot"], "the encoding of positions of the attention"),
    (&["kv_cache", "cache"], "the cache of keys and values of the attention"),
    (&["post_attention_layernorm", "ffn_norm", "ln_2"], "the normalisation before the MLP"),
    (&["input_layernorm", "attn_norm", "ln_1"], "the normalisation before the attention"),
    (&["norm", "ln_f"], "the normalisation"),
    (&["qkv", "c_attn"], "the projections of queries, keys and values of the attention"),
    (&["q_proj", "attn_q", "query"], "the projection of queries of the attention"),
    (&["k_proj", "attn_k"], "the projection of keys of the attention"),
    (&["v_proj", "attn_v"], "the projection of values of the attention"),
    (&["o_proj", "attn_output", "out_proj"], "the output projection of the attention"),
    (&["gate_proj", "ffn_gate"], "the gate projection of the MLP"),
    (&["up_proj", "ffn_up", "c_fc", "fc1"], "the up projection of the MLP"),
    (&["down_proj", "ffn_down", "fc2"], "the down projection of the MLP"),
    (&["act_fn", "gelu", "silu", "swiglu"], "the activation function of the MLP"),
];

/// Elements that hold others.
const HOLDERS: &[(&[&str], &str)] = &[
    (&["attn", "attention"], "the attention"),
    (&["mlp", "feed_forward", "ffn"], "the MLP"),
    (&["block", "layer", "blk"], "the model's layers"),
    (&["model", "transformer", "decoder", "encoder"], "the model"),
    (&["prefill"], "reading the prompt"),
    (&["decode"], "the computation of a further token"),
];

fn named(element: &str, list: &[(&[&str], &'static str)]) -> Option<&'static str> {
    list.iter().find(|(names, _)| names.iter().any(|name| element.contains(name))).map(|(_, words)| *words)
}

/// What a path ends in, in words. An element that is not known keeps its name, with what holds it.
pub(super) fn part(path: &str) -> String {
    let plain = path.to_lowercase().replace('-', "_");
    let elements: Vec<&str> = plain.split(['/', '.']).filter(|element| !element.is_empty()).collect();
    let Some((last, above)) = elements.split_last() else { return "the model".to_string() };
    if let Some(words) = named(last, PARTS).or_else(|| named(last, HOLDERS)) {
        return words.to_string();
    }
    let own = path.rsplit(['/', '.']).next().unwrap_or(path);
    // A nameless operation, such as `matmul`, of a known part is of that part.
    let holder = above.iter().rev().find_map(|element| named(element, PARTS).or_else(|| named(element, HOLDERS)));
    let own = code(own);
    holder.map_or_else(|| own.clone(), |holder| format!("{own} of {holder}"))
}

#[cfg(test)]
mod tests {
    use super::part;

    #[test]
    fn paths_of_models_become_words() {
        let told = [
            ("decode/block/self_attn/softmax", "the softmax of the attention"),
            ("decode/decode/stack/block/self-attn/attention/attention-sm", "the softmax of the attention"),
            ("prefill/model.layers.mlp.gate_proj", "the gate projection of the MLP"),
            ("decode/block/post_attention_layernorm", "the normalisation before the MLP"),
            ("decode/lm_head", "the output layer, which rates the next token"),
            ("decode/block/self_attn", "the attention"),
            ("decode/block", "the model's layers"),
            ("decode/block/mlp/Fold", "`Fold` of the MLP"),
            ("step/thing", "`thing`"),
            ("", "the model"),
        ];
        for (path, words) in told {
            assert_eq!(part(path), words, "{path}");
        }
    }
}
