//! Named configurations of models that only candle has, as the `config.json` that was published with their weights.

use serde_json::{Value, json};

/// `config.json` of one of [`NAMED_WITH_ENCODER`](crate::config::NAMED_WITH_ENCODER).
pub fn hf_config(name: &str) -> Option<Value> {
    let name = name.trim().to_ascii_lowercase();
    Some(match name.as_str() {
        "t5-small" => t5(512, 2048, 6, 8),
        "t5-base" => t5(768, 3072, 12, 12),
        "bert-base" => bert(768, 3072, 12),
        "minilm" => bert(384, 1536, 6),
        "whisper-tiny" => json!({
            "model_type": "whisper", "num_mel_bins": 80, "max_source_positions": 1500, "d_model": 384,
            "encoder_attention_heads": 6, "encoder_layers": 4, "encoder_ffn_dim": 1536, "vocab_size": 51865,
            "max_target_positions": 448, "decoder_attention_heads": 6, "decoder_layers": 4, "decoder_ffn_dim": 1536,
            "decoder_start_token_id": 50258, "eos_token_id": 50257,
            "forced_decoder_ids": [[1, 50259], [2, 50359], [3, 50363]],
        }),
        "paddleocr-vl" => json!({
            "model_type": "paddleocr_vl", "vocab_size": 103424, "hidden_size": 1024, "intermediate_size": 3072,
            "num_hidden_layers": 18, "num_attention_heads": 16, "num_key_value_heads": 2, "head_dim": 128,
            "max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "hidden_act": "silu",
            "use_bias": false, "tie_word_embeddings": false, "rope_scaling": {"mrope_section": [16, 24, 24]},
            "image_token_id": 100295, "video_token_id": 101307, "vision_start_token_id": 101305,
            "vision_end_token_id": 101306, "eos_token_id": 2,
            "vision_config": {
                "hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 27, "num_attention_heads": 16,
                "num_channels": 3, "image_size": 384, "patch_size": 14, "spatial_merge_size": 2,
                "hidden_act": "gelu_pytorch_tanh", "layer_norm_eps": 1e-6,
            },
        }),
        _ => return None,
    })
}

/// A T5 of the first release: features, width of the feed-forward network, layers on either side, heads of 64 features.
fn t5(d_model: usize, d_ff: usize, layers: usize, heads: usize) -> Value {
    json!({
        "model_type": "t5", "vocab_size": 32128, "d_model": d_model, "d_kv": 64, "d_ff": d_ff, "num_layers": layers,
        "num_decoder_layers": layers, "num_heads": heads, "relative_attention_num_buckets": 32, "n_positions": 512,
        "dropout_rate": 0.1, "layer_norm_epsilon": 1e-6, "initializer_factor": 1.0, "feed_forward_proj": "relu",
        "is_encoder_decoder": true, "decoder_start_token_id": 0, "pad_token_id": 0, "eos_token_id": 1,
    })
}

/// An uncased BERT: features, width of the feed-forward network, layers; twelve heads.
fn bert(hidden: usize, intermediate: usize, layers: usize) -> Value {
    json!({
        "model_type": "bert", "vocab_size": 30522, "hidden_size": hidden, "num_hidden_layers": layers,
        "num_attention_heads": 12, "intermediate_size": intermediate, "hidden_act": "gelu",
        "hidden_dropout_prob": 0.1, "max_position_embeddings": 512, "type_vocab_size": 2, "initializer_range": 0.02,
        "layer_norm_eps": 1e-12, "pad_token_id": 0, "position_embedding_type": "absolute",
    })
}
