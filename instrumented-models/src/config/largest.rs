//! How large a model may claim to be. A file of a few bytes can claim anything: values beyond these limits are refused
//! before they are counted, multiplied or allocated. Within them no product of dimensions overflows 64 bits.

use super::{ConfigError, ModelConfig};

/// Most decoder layers.
const MAX_LAYERS: usize = 4096;
/// Widest residual stream, feed-forward network, or heads together.
const MAX_WIDTH: usize = 1 << 20;
/// Most entries of a vocabulary.
const MAX_VOCABULARY: usize = 1 << 24;
/// Longest context: rotary angles are computed in f32, which cannot represent every larger position exactly.
const MAX_CONTEXT: usize = 1 << 24;

impl ModelConfig {
    /// Fails if a dimension is 0 or beyond its limit.
    pub(super) fn check_limits(&self) -> Result<(), ConfigError> {
        let heads = self.num_heads.saturating_mul(self.head_dim);
        for (name, value, limit) in [
            ("vocabulary", self.vocab_size, MAX_VOCABULARY),
            ("hidden size", self.hidden_size, MAX_WIDTH),
            ("feed-forward width", self.intermediate(), MAX_WIDTH),
            ("layers", self.num_layers, MAX_LAYERS),
            ("heads", self.num_heads, MAX_WIDTH),
            ("key/value heads", self.num_kv_heads, MAX_WIDTH),
            ("head size", self.head_dim, MAX_WIDTH),
            ("heads times head size", heads, MAX_WIDTH),
            ("context", self.max_context, MAX_CONTEXT),
        ] {
            if value == 0 {
                return Err(ConfigError::Inconsistent(format!("{name} is 0")));
            }
            if value > limit {
                return Err(ConfigError::TooLarge { name, value, limit });
            }
        }
        let theta = self.rope.theta;
        if !(theta.is_finite() && theta > 0. && self.rms_norm_eps.is_finite()) {
            return Err(ConfigError::Inconsistent(format!(
                "rotary base {theta} and norm epsilon {} must be finite, the base above 0",
                self.rms_norm_eps
            )));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::FeedForward;
    use super::*;

    #[test]
    fn the_largest_model_overflows_nothing() {
        let mut config = ModelConfig::named("llama-3-8b").unwrap();
        config.vocab_size = MAX_VOCABULARY;
        config.hidden_size = MAX_WIDTH;
        config.feed_forward = FeedForward::SwiGlu { intermediate: MAX_WIDTH };
        (config.num_heads, config.num_kv_heads, config.head_dim) = (MAX_WIDTH / 2, MAX_WIDTH / 2, 2);
        (config.num_layers, config.max_context) = (MAX_LAYERS, MAX_CONTEXT);
        config.check().unwrap();
        let layers = (MAX_LAYERS * MAX_WIDTH) as u128 * (7 * MAX_WIDTH + 2) as u128;
        let ends = (2 * MAX_VOCABULARY + 1) as u128 * MAX_WIDTH as u128;
        assert_eq!(u128::from(config.parameters()), layers + ends);
        assert!(config.parameters().checked_mul(8).is_some(), "their bytes, in the widest type");
    }

    #[test]
    fn beyond_a_limit_the_limit_is_named() {
        let with = |change: &dyn Fn(&mut ModelConfig)| {
            let mut config = ModelConfig::named("embedded").unwrap();
            change(&mut config);
            config.check().unwrap_err().to_string()
        };
        assert!(
            with(&|c| c.num_layers = 1 << 60).contains("layers is 1152921504606846976, more than the limit of 4096")
        );
        assert!(with(&|c| c.vocab_size = usize::MAX).contains("vocabulary is"));
        assert!(with(&|c| c.max_context = 1 << 32).contains("context is 4294967296"));
        let product = with(&|c| (c.num_heads, c.num_kv_heads, c.head_dim) = (1 << 20, 1 << 20, 1 << 20));
        assert!(product.contains("heads times head size"), "{product}");
        assert!(with(&|c| c.feed_forward = FeedForward::SwiGlu { intermediate: 0 }).contains("width is 0"));
        assert!(with(&|c| c.rope.theta = f32::NAN).contains("rotary base NaN"));
    }
}
