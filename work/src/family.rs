//! Which architectures compute their layers how: decoders, encoders, and both together; and what that says of a module by
//! its name.
//!
//! Which rows a layer computes cannot be seen from outside: a head may take the last position of a prompt or all of
//! them, an expert the tokens that were routed to it, cross-attention the encoder's. So rows are known only of
//! architectures that were read, and only of the layers named here; of all others they stay unknown.

/// How the rows of an architecture's layers follow from the tokens of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// Every layer computes every new token; the head takes the last position of each sequence.
    Decoder,
    /// Every layer computes every token; what comes after the encoder is not known.
    Encoder,
    /// An encoder over the source and a decoder over the text, whose keys and values of the source are made from the
    /// encoder's positions: in T5 anew for each token, in whisper once.
    EncoderDecoder {
        /// Whether the decoder itself narrows to the last position before its head. Otherwise the program does, or does
        /// not.
        narrows: bool,
    },
}

impl Family {
    /// Of an architecture by its name in `config.json` (`model_type`) or GGUF (`general.architecture`); `None` if
    /// candle's own implementation was not read. All decoders here narrow to the last position before the head.
    pub fn of(architecture: &str) -> Option<Self> {
        Some(match architecture {
            "chatglm" | "gemma" | "gemma2" | "gemma3_text" | "glm4" | "granite" | "helium" | "llama" | "mistral"
            | "mixtral" | "olmo" | "olmo2" | "phi" | "phi2" | "phi3" | "qwen2" | "qwen2_moe" | "qwen2moe" | "qwen3"
            | "qwen3_moe" | "qwen3moe" | "smollm3" | "stablelm" | "starcoder2" | "yi" => Self::Decoder,
            "bert" | "distilbert" | "jina_bert" | "nomic_bert" | "xlm-roberta" => Self::Encoder,
            "t5" => Self::EncoderDecoder { narrows: true },
            "whisper" => Self::EncoderDecoder { narrows: false },
            _ => return None,
        })
    }
}

/// Rows that a module computes in a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Rows {
    /// So many for each token of the step.
    EachToken(u32),
    /// One for each sequence: its last position.
    EachSequence,
    /// One for each position of the source, which the request's `encode` step passed.
    EachSourcePosition,
    /// Not known: its FLOPs and bytes are left out.
    Unknown,
}

/// What a token attends to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum AttentionScope {
    /// Itself and those before it.
    Before,
    /// All tokens of its sequence.
    All,
    /// All positions of the source.
    Source,
    /// Not known: the configuration names a window, and it is not known which layers have it.
    Unknown,
}

/// Which of attention's inputs a module makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Projection {
    /// Queries alone, as `q_proj` and `attn_q` do.
    Queries,
    /// Keys alone, as `k_proj` and `attn_k` do; there are as many values.
    Keys,
    /// Queries, keys and values, one after the other.
    Merged,
}

impl Family {
    /// The rows of the module of this name.
    pub fn rows(self, module: &str) -> Rows {
        let part = module.rsplit('.').next().unwrap_or(module);
        let routed = module.contains(".experts.") || is_number(part);
        match self {
            _ if routed => Rows::Unknown,
            Self::Decoder => match part {
                "lm_head" | "output" | "output_layer" => Rows::EachSequence,
                "q_norm" | "k_norm" | "attn_q_norm" | "attn_k_norm" | "q_layernorm" | "k_layernorm" => Rows::Unknown,
                _ => Rows::EachToken(1),
            },
            Self::EncoderDecoder { narrows } => match part {
                "lm_head" if narrows => Rows::EachSequence,
                "lm_head" => Rows::Unknown,
                // As many look-ups as pairs of positions.
                "relative_attention_bias" => Rows::Unknown,
                "k" | "v" | "k_proj" | "v_proj" if is_over_source(module) => Rows::EachSourcePosition,
                // Two frames of sound become one position.
                "conv1" => Rows::EachToken(2),
                _ => Rows::EachToken(1),
            },
            Self::Encoder if module.contains("pooler") || !module.contains("layer") => Rows::Unknown,
            Self::Encoder => Rows::EachToken(1),
        }
    }

    /// What a token attends to in the attention that the module of this name is part of.
    pub fn attention_scope(self, module: &str) -> AttentionScope {
        match self {
            Self::Decoder => AttentionScope::Before,
            Self::Encoder => AttentionScope::All,
            Self::EncoderDecoder { .. } if is_over_source(module) => AttentionScope::Source,
            Self::EncoderDecoder { .. } if module.split('.').any(|part| part == "decoder") => AttentionScope::Before,
            Self::EncoderDecoder { .. } => AttentionScope::All,
        }
    }

    /// Which of attention's inputs the module of this name makes; `None` if none, and for values alone, of which there
    /// are as many as keys.
    pub fn projection(self, module: &str) -> Option<Projection> {
        let t5 = matches!(self, Self::EncoderDecoder { .. });
        match module.rsplit('.').next()? {
            "q_proj" | "attn_q" | "query" | "q_lin" => Some(Projection::Queries),
            "k_proj" | "attn_k" | "key" | "k_lin" => Some(Projection::Keys),
            "q" if t5 => Some(Projection::Queries),
            "k" if t5 => Some(Projection::Keys),
            "qkv_proj" | "query_key_value" | "attn_qkv" | "Wqkv" => Some(Projection::Merged),
            _ => None,
        }
    }
}

/// Whether a part of a name is the number of a layer or an expert.
pub fn is_number(part: &str) -> bool {
    !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit())
}

/// Whether a module is part of an attention of the text to the source.
fn is_over_source(module: &str) -> bool {
    module.split('.').any(|part| matches!(part, "EncDecAttention" | "encoder_attn"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_known_only_where_they_were_read() {
        let qwen = Family::of("qwen3_moe").unwrap();
        assert_eq!(qwen.rows("model.layers.0.self_attn.q_proj"), Rows::EachToken(1));
        assert_eq!(qwen.rows("model.layers.0.self_attn.q_norm"), Rows::Unknown);
        assert_eq!(qwen.rows("model.layers.0.mlp.experts.3.up_proj"), Rows::Unknown);
        assert_eq!(qwen.rows("blk.0.ffn_gate.3"), Rows::Unknown);
        assert_eq!(qwen.rows("lm_head"), Rows::EachSequence);
        let bert = Family::of("bert").unwrap();
        assert_eq!(bert.rows("encoder.layer.0.output.dense"), Rows::EachToken(1));
        assert_eq!(bert.rows("pooler.dense"), Rows::Unknown);
        let t5 = Family::of("t5").unwrap();
        assert_eq!(t5.rows("decoder.block.0.layer.0.SelfAttention.k"), Rows::EachToken(1));
        assert_eq!(t5.rows("decoder.block.0.layer.1.EncDecAttention.q"), Rows::EachToken(1));
        assert_eq!(t5.rows("decoder.block.0.layer.1.EncDecAttention.k"), Rows::EachSourcePosition);
        assert_eq!(t5.rows("lm_head"), Rows::EachSequence);
        let whisper = Family::of("whisper").unwrap();
        assert_eq!(whisper.rows("model.encoder.conv1"), Rows::EachToken(2));
        assert_eq!(whisper.rows("lm_head"), Rows::Unknown, "candle leaves it to the program");
    }

    #[test]
    fn attention_is_over_the_text_or_the_source() {
        let scope = |name: &str, module: &str| {
            let family = Family::of(name).unwrap();
            family.projection(module).map(|_| family.attention_scope(module))
        };
        assert_eq!(scope("t5", "encoder.block.0.layer.0.SelfAttention.q"), Some(AttentionScope::All));
        assert_eq!(scope("t5", "decoder.block.0.layer.0.SelfAttention.q"), Some(AttentionScope::Before));
        assert_eq!(scope("t5", "decoder.block.0.layer.1.EncDecAttention.k"), Some(AttentionScope::Source));
        assert_eq!(scope("whisper", "model.decoder.layers.0.encoder_attn.q_proj"), Some(AttentionScope::Source));
        assert_eq!(scope("whisper", "model.encoder.layers.0.self_attn.q_proj"), Some(AttentionScope::All));
        assert_eq!(scope("whisper", "model.decoder.layers.0.self_attn.k_proj"), Some(AttentionScope::Before));
        assert_eq!(scope("t5", "decoder.block.0.layer.1.EncDecAttention.v"), None);
        assert_eq!(scope("llama", "model.layers.0.q"), None, "a name of T5's alone");
    }
}
