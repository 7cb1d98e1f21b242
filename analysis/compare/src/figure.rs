//! Names of figures: what they mean, in which unit they are, and whether more is better.

use serde::Serialize;

/// Which direction of a change is the better one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Better {
    /// Less is better: figures in ns, bytes, J or mJ, and those named as errors, such as perplexity.
    Lower,
    /// More is better: tokens/s and throughput, and figures named as agreement, such as accuracy.
    Higher,
    /// Neither name nor unit says so: a change of the figure has no outcome.
    Unknown,
}

/// Words for a figure, by its name.
pub fn title(name: &str) -> String {
    let known = match name {
        "step_ns" => "step",
        "ttft_ns" => "time to first token",
        "tpot_ns" => "time per output token",
        "itl_ns" => "gap between tokens",
        "e2e_ns" => "request",
        "e2e_mean_ns" => "request, mean",
        "output_tps" => "output tokens/s",
        "working_tps" => "tokens/s while decode works",
        "energy_per_token_j" => "energy of a token",
        "peak_memory_bytes" => "peak memory, the recorder's included",
        "gpu_memory_bytes" => "memory of the GPUs",
        "host_ns" => "time on the host",
        "device_ns" => "time on the device",
        "energy_mj" => "energy",
        "memory_bytes" => "memory",
        _ => "",
    };
    if known.is_empty() { name.replace('_', " ") } else { known.to_string() }
}

/// The unit of a figure, one of those that reports know.
pub fn unit(name: &str) -> &'static str {
    let name = name.split(' ').next().unwrap_or(name);
    match name {
        _ if name.ends_with("_ns") => "ns",
        _ if name.ends_with("_bytes") => "bytes",
        _ if name.ends_with("_j") => "J",
        _ if name.ends_with("_mj") => "mJ",
        _ if name.ends_with("_tps") => "tokens/s",
        _ => "",
    }
}

/// Which direction is the better one. Of a figure that nobody here knows, neither is.
pub fn better(name: &str) -> Better {
    let lower = ["perplexity", "kl_", "kl", "divergence", "relative_error", "ppl"];
    let higher = ["same_top", "top_1", "top1", "accuracy", "tokens_per", "throughput"];
    if higher.iter().any(|word| name.contains(word)) || name.ends_with("_tps") {
        Better::Higher
    } else if lower.iter().any(|word| name.starts_with(word) || name.contains(&format!("_{word}")))
        || matches!(unit(name), "ns" | "bytes" | "J" | "mJ")
    {
        Better::Lower
    } else {
        Better::Unknown
    }
}

/// Whether a result that a program kept in its run is a figure of quality.
pub fn is_quality(name: &str) -> bool {
    let known = ["perplexity", "ppl", "kl_", "divergence", "same_top", "top_1", "top1", "accuracy", "delta_p"];
    known.iter().any(|word| name.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directions_follow_from_names() {
        assert_eq!(better("ttft_ns"), Better::Lower);
        assert_eq!(better("output_tps"), Better::Higher);
        assert_eq!(better("kl_mean"), Better::Lower);
        assert_eq!(better("same_top_1"), Better::Higher);
        assert_eq!(better("layers"), Better::Unknown);
        assert_eq!((unit("step_ns decode"), unit("energy_per_token_j")), ("ns", "J"));
        assert!(is_quality("perplexity") && !is_quality("prompt_tokens"));
    }
}
