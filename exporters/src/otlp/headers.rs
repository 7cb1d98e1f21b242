//! Headers of requests, whose values count as secrets because they usually contain tokens.

use std::collections::BTreeMap;
use std::fmt;

/// Name → value. `Debug` shows names only.
#[derive(Clone, Default)]
pub(super) struct Headers(pub(super) BTreeMap<String, String>);

impl std::ops::Deref for Headers {
    type Target = BTreeMap<String, String>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl Headers {
    /// Texts that must not be repeated: each value, and for `Bearer TOKEN` also the token alone.
    pub(super) fn secrets(&self) -> impl Iterator<Item = &str> {
        self.values().flat_map(|value| [value.as_str(), value.split_once(' ').map_or("", |(_, token)| token.trim())])
    }
}

impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.keys().map(|name| (name, format_args!("***")))).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_shown_and_values_are_not() {
        let headers = Headers([("authorization".to_string(), "Bearer token-1".to_string())].into());
        assert_eq!(format!("{headers:?}"), r#"{"authorization": ***}"#);
        assert_eq!(headers.secrets().collect::<Vec<_>>(), ["Bearer token-1", "token-1"]);
    }
}
