//! Which architectures compute their layers how: decoders, encoders, and both together.

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
