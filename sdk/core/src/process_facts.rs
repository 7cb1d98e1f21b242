//! What every program that records knows of itself: how many threads compute, and how it was built. Of the process's
//! environment the two variables named here are read, and no other.

use crate::run::env_key;
use serde_json::Value;
use std::collections::BTreeMap;

/// The variable by which rayon and candle know how many threads compute.
pub const RAYON_NUM_THREADS: &str = "RAYON_NUM_THREADS";
/// The variable by which candle's quantised products know it, before the other one.
pub const CANDLE_NUM_THREADS: &str = "CANDLE_NUM_THREADS";

/// Facts under the keys of [`env_key`].
pub fn process_facts() -> BTreeMap<String, Value> {
    facts(&variable(RAYON_NUM_THREADS), &variable(CANDLE_NUM_THREADS))
}

/// The number of threads in a variable's text, as rayon and candle read it: 0 and what is no number count as not set.
pub fn threads_in(text: &str) -> Option<u64> {
    text.parse().ok().filter(|threads| *threads > 0)
}

fn variable(name: &str) -> Option<String> {
    // What is no text is no number for rayon either, but it is set.
    std::env::var_os(name).map(|value| value.to_string_lossy().into_owned())
}

fn facts(rayon: &Option<String>, candle: &Option<String>) -> BTreeMap<String, Value> {
    let mut facts = BTreeMap::new();
    let mut put = |key: &str, value: Value| facts.insert(key.to_string(), value);
    put(env_key::RAYON_NUM_THREADS.name(), rayon.clone().into());
    put(env_key::CANDLE_NUM_THREADS.name(), candle.clone().into());
    if let Some(threads) = rayon.as_deref().and_then(threads_in) {
        put(env_key::COMPUTE_THREADS.name(), threads.into());
        put(env_key::COMPUTE_THREADS_FROM.name(), RAYON_NUM_THREADS.into());
    }
    put(env_key::BUILD_PROFILE.name(), if cfg!(debug_assertions) { "debug" } else { "release" }.into());
    let level = env!("CANDLESCOPE_OPT_LEVEL");
    if !level.is_empty() {
        put(env_key::BUILD_OPT_LEVEL.name(), level.into());
    }
    put(env_key::ALLOCATOR.name(), "unknown".into());
    facts
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_variable_that_is_not_set_is_null_and_not_missing() {
        let known = facts(&None, &Some("4".into()));
        assert_eq!(known[env_key::RAYON_NUM_THREADS.name()], Value::Null);
        assert_eq!(known[env_key::CANDLE_NUM_THREADS.name()], json!("4"));
        assert!(!known.contains_key(env_key::COMPUTE_THREADS.name()), "rayon counts cores itself: {known:?}");
    }

    #[test]
    fn threads_are_read_as_rayon_reads_them() {
        assert_eq!([threads_in("3"), threads_in("0"), threads_in("all"), threads_in("")], [Some(3), None, None, None]);
        let known = facts(&Some("3".into()), &None);
        assert_eq!(
            (&known[env_key::COMPUTE_THREADS.name()], &known[env_key::COMPUTE_THREADS_FROM.name()]),
            (&json!(3), &json!(RAYON_NUM_THREADS))
        );
        assert!(!facts(&Some("0".into()), &None).contains_key(env_key::COMPUTE_THREADS.name()));
    }
}
