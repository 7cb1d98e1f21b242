//! What is said of options that this library was built without.

use candlescope::InitError;
use candlescope::env::{ConfigError, VARIABLE};

/// Why no session could be made: where an option needs another build of this library, how that is made.
pub(crate) fn why(error: &InitError) -> String {
    match error {
        InitError::Config(ConfigError::NotInThisBuild(feature)) => without(feature),
        other => other.to_string(),
    }
}

fn without(feature: &str) -> String {
    let ours = match feature {
        "prometheus" | "otlp" | "stacks" => feature,
        "cupti" | "nvml" => "gpu",
        _ => {
            return format!(
                "{VARIABLE}: `{feature}` is not for programs that are recorded from outside: timelines are made of the run, by candlescope export"
            );
        }
    };
    format!(
        "{VARIABLE}: `{feature}` needs the feature `{ours}`, without which this library was built; cargo build --profile dist -p \
         candlescope-inject --features {ours} makes one with it, in target/dist"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_that_the_library_lacks_names_the_build_that_has_it() {
        let of = |feature| why(&InitError::Config(ConfigError::NotInThisBuild(feature)));
        for (feature, ours) in [("prometheus", "prometheus"), ("otlp", "otlp"), ("stacks", "stacks"), ("nvml", "gpu")] {
            let said = of(feature);
            assert!(said.contains(&format!("`{feature}` needs the feature `{ours}`")), "{said}");
            assert!(said.contains(&format!("-p candlescope-inject --features {ours} makes")), "{said}");
        }
        assert!(of("perfetto").contains("candlescope export") && !of("perfetto").contains("--features"));
        let other = ConfigError::UnknownKey("`parket`".into());
        assert_eq!(why(&InitError::Config(other.clone())), other.to_string());
    }

    /// Its features are those of the manifest.
    #[test]
    fn the_features_that_are_named_are_there() {
        let manifest = include_str!("../Cargo.toml");
        for feature in ["prometheus", "otlp", "stacks", "gpu"] {
            assert!(manifest.contains(&format!("\n{feature} = [")), "{feature}");
        }
    }
}
