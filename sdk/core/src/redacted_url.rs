//! Addresses of services that may hold credentials.

use serde::{Deserialize, Serialize, Serializer};
use std::fmt;

/// Shown in place of what is hidden.
const HIDDEN: &str = "***";

/// Shorter secrets would be found by chance in almost any text.
const SHORTEST: usize = 4;

/// The address of a service, which shows no credentials: `Display`, `Debug` and serialization leave out user, password,
/// query and fragment. If the text cannot be read as an address, all but a scheme is hidden. Only
/// [`expose`](RedactedUrl::expose) returns the address itself.
///
/// ```
/// # mod candlescope { pub use candlescope_core as sdk; }
/// let url = candlescope::sdk::RedactedUrl::new("https://me:pass@collector:4318/v1/traces?api_key=1234");
/// assert_eq!(url.to_string(), "https://***@collector:4318/v1/traces?***");
/// ```
///
/// The path is shown: put secrets into a header instead.
#[derive(Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct RedactedUrl(String);

impl RedactedUrl {
    /// The address `url`. Any text is accepted; whether it is an address shows when it is used.
    pub fn new(url: impl Into<String>) -> Self {
        Self(url.into())
    }

    /// The address with everything in it, to connect to. Never put it into a text that somebody reads.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Whether there is no text at all.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// `text` without the credentials of this address, for messages of libraries and servers that may repeat them.
    /// Credentials shorter than 4 characters are left in, because they occur in other words too.
    pub fn scrub(&self, text: &str) -> String {
        scrub(text, self.secrets())
    }

    fn secrets(&self) -> Vec<&str> {
        let parts = Parts::of(&self.0);
        let mut secrets = vec![self.0.as_str()];
        if let Some(user) = parts.user {
            secrets.extend([user, user.split_once(':').map_or(user, |(_, password)| password)]);
        }
        secrets
            .extend(parts.query.into_iter().flat_map(|q| q.split('&')).map(|p| p.split_once('=').map_or(p, |p| p.1)));
        secrets.extend(parts.fragment);
        // The address itself is a secret only if it holds credentials.
        if parts.user.is_none() && parts.query.is_none() && parts.fragment.is_none() {
            secrets.clear();
        }
        secrets
    }
}

/// `text` with `***` in place of each of `secrets`, except those shorter than 4 characters.
#[doc(hidden)]
pub fn scrub<'a>(text: &str, secrets: impl IntoIterator<Item = &'a str>) -> String {
    let mut secrets: Vec<&str> = secrets.into_iter().filter(|secret| secret.chars().count() >= SHORTEST).collect();
    // The longest first, so that no part of one is left.
    secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
    secrets.into_iter().fold(text.to_string(), |text, secret| text.replace(secret, HIDDEN))
}

impl fmt::Display for RedactedUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = Parts::of(&self.0);
        let printable = |text: &str| text.replace(|c: char| c.is_control(), "\u{fffd}");
        f.write_str(parts.scheme)?;
        if !parts.is_clear {
            return f.write_str(HIDDEN);
        }
        if parts.user.is_some() {
            write!(f, "{HIDDEN}@")?;
        }
        f.write_str(&printable(parts.place))?;
        if parts.query.is_some() {
            // Not the query's keys either: a `&` in a value that was not escaped makes a key of the rest.
            write!(f, "?{HIDDEN}")?;
        }
        if parts.fragment.is_some() {
            write!(f, "#{HIDDEN}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for RedactedUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

impl Serialize for RedactedUrl {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl From<String> for RedactedUrl {
    fn from(url: String) -> Self {
        Self(url)
    }
}

impl From<&str> for RedactedUrl {
    fn from(url: &str) -> Self {
        Self(url.to_string())
    }
}

impl From<&String> for RedactedUrl {
    fn from(url: &String) -> Self {
        Self(url.clone())
    }
}

/// The parts of an address, or of a text that was meant to be one.
struct Parts<'a> {
    /// Including `://`.
    scheme: &'a str,
    user: Option<&'a str>,
    /// Host, port and path.
    place: &'a str,
    query: Option<&'a str>,
    fragment: Option<&'a str>,
    /// Whether it can be read as an address in only one way. With a second `@`, or something that cannot be a host, it
    /// is not known where a password ends.
    is_clear: bool,
}

impl<'a> Parts<'a> {
    fn of(url: &'a str) -> Self {
        let is_scheme = |s: &str| s.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'));
        let start = url.find("://").filter(|at| is_scheme(&url[..*at])).map_or(0, |at| at + 3);
        let (scheme, rest) = url.split_at(start);
        let authority = &rest[..rest.find(['/', '?', '#']).unwrap_or(rest.len())];
        let (user, place) = authority.rfind('@').map_or((None, rest), |at| (Some(&rest[..at]), &rest[at + 1..]));
        let host = authority.rsplit('@').next().unwrap_or_default();
        let is_clear = rest.is_empty() || (is_host(host) && !place.contains('@'));
        let (place, fragment) = place.split_once('#').map_or((place, None), |(place, f)| (place, Some(f)));
        let (place, query) = place.split_once('?').map_or((place, None), |(place, q)| (place, Some(q)));
        Self { scheme, user, place, query, fragment, is_clear }
    }
}

/// `host`, `host:port` or `[v6]:port`.
fn is_host(text: &str) -> bool {
    let after_bracket = text.rfind(']').map_or(0, |at| at + 1);
    let (host, port) = match text[after_bracket..].rfind(':') {
        Some(at) => (&text[..after_bracket + at], &text[after_bracket + at + 1..]),
        None => (text, ""),
    };
    let is_name = |c: char| c.is_alphanumeric() || matches!(c, '.' | '-' | '_');
    let bare = host.strip_prefix('[').and_then(|h| h.strip_suffix(']'));
    let plausible = match bare {
        Some(v6) => v6.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, ':' | '.' | '%')),
        None => host.chars().all(is_name),
    };
    !host.is_empty() && plausible && port.chars().all(|c| c.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn places_are_shown_and_credentials_are_not() {
        for (url, shown) in [
            ("http://localhost:4318", "http://localhost:4318"),
            ("https://user:pass@host/v1/traces", "https://***@host/v1/traces"),
            ("http://token@host:1", "http://***@host:1"),
            ("http://h?api_key=k1&token=k2", "http://h?***"),
            ("http://h/p?bare", "http://h/p?***"),
            ("http://h/p#secret", "http://h/p#***"),
            ("http://[::1]:4318/x?k=v", "http://[::1]:4318/x?***"),
            ("http://u:p@[fe80::1%25eth0]:1", "http://***@[fe80::1%25eth0]:1"),
            ("user:pass@host:4318", "***@host:4318"),
            ("localhost:4317", "localhost:4317"),
            ("http://h/\u{1b}[2J", "http://h/\u{fffd}[2J"),
            // If a password may end anywhere, nothing is shown.
            ("http://user:pa/ss@host", "http://***"),
            ("http://user:pa?s@s@host/x", "http://***"),
            ("http://user:12?ss@host", "http://***"),
            ("http://user:pass", "http://***"),
            ("http:/user:pass@host", "***"),
            ("http://?k=v", "http://***"),
            ("http://", "http://"),
            ("", ""),
        ] {
            let redacted = RedactedUrl::new(url);
            assert_eq!(redacted.to_string(), shown);
            assert_eq!(format!("{redacted:?}"), format!("\"{shown}\""));
            assert_eq!(serde_json::to_value(&redacted).unwrap(), serde_json::json!(shown));
            assert_eq!(redacted.expose(), url);
        }
    }

    #[test]
    fn words_of_others_are_scrubbed() {
        let url = RedactedUrl::new("http://user:hunter22@host:1/p?api_key=k-123456&v=1");
        let said =
            url.scrub("http://user:hunter22@host:1/p?api_key=k-123456&v=1: no; hunter22 or k-123456 at 1 is wrong");
        assert_eq!(said, "***: no; *** or *** at 1 is wrong");
        assert_eq!(RedactedUrl::new("http://host:1").scrub("http://host:1 is down"), "http://host:1 is down");
    }

    proptest! {
        #[test]
        fn no_password_of_any_shape_is_shown(
            user in "[a-z]{0,5}", password in "[ -~]{0,6}SECRET[ -~]{0,6}", key in "[a-z]{1,5}"
        ) {
            for url in [
                format!("http://{user}:{password}@host:4318/v1"),
                format!("{user}:{password}@host"),
                format!("http://host/p?{key}={}", password.replace('@', "")),
                format!("http://host/p#{}", password.replace('@', "")),
            ] {
                let shown = RedactedUrl::new(url.as_str()).to_string();
                prop_assert!(!shown.contains("SECRET"), "{url} is shown as {shown}");
            }
        }
    }
}
