//! The table of well-known models and the named configurations of the wrapped models are the same models.
#![allow(missing_docs, reason = "a test")]
use candlescope_models::config::{ModelConfig, NAMED};
use candlescope_work::known_models::known_model;

#[test]
fn known_models_have_the_dimensions_of_the_named_configurations() {
    for name in NAMED.iter().filter(|name| **name != "embedded") {
        let config = ModelConfig::named(name).unwrap();
        let (known, own) = (known_model(name).unwrap(), config.shape());
        assert_eq!(known, own, "{name}");
        assert_eq!(own.parameters(), config.parameters(), "{name}");
    }
}
