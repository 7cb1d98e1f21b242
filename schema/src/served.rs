//! Steps that serve several requests at once, as engines with continuous batching run them: what each request has in a
//! step.

use crate::text_limit::MOST_TEXT_BYTES;

/// The most requests of one step that are kept.
///
/// Overload policy: what a step does for further requests is not in the run; the step itself and its tokens are.
pub const MOST_SERVED: usize = 1_000;

/// What a step does for one of the requests that it serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Served {
    /// Number of the request.
    pub request: u64,
    /// Tokens of the request that the step passes through the model: a chunk of its prompt, or one in a decoding step.
    pub tokens: u32,
    /// Output tokens that the request has from the step; 0 while its prompt is not complete.
    pub output_tokens: u32,
}

impl Served {
    /// `tokens` of a request are passed through the model, `output_tokens` come out.
    pub const fn new(request: u64, tokens: u32, output_tokens: u32) -> Self {
        Self { request, tokens, output_tokens }
    }

    /// The text of the column `steps.serves`: a JSON list of `[request, tokens, output tokens]`. `None` for a step that
    /// states no requests.
    ///
    /// ```
    /// use candlescope_schema::Served;
    /// let served = [Served::new(7, 1, 1), Served::new(9, 512, 0)];
    /// assert_eq!(Served::to_text(&served).as_deref(), Some("[[7,1,1],[9,512,0]]"));
    /// assert_eq!(Served::from_text("[[7,1,1],[9,512,0]]"), served);
    /// assert!(Served::from_text("[[7,1").is_empty());
    /// ```
    pub fn to_text(served: &[Served]) -> Option<String> {
        use std::fmt::Write;
        if served.is_empty() {
            return None;
        }
        let mut text = String::with_capacity(served.len() * 12 + 2);
        for (at, Served { request, tokens, output_tokens }) in served.iter().enumerate() {
            let before = if at == 0 { '[' } else { ',' };
            let length = text.len();
            let _ = write!(text, "{before}[{request},{tokens},{output_tokens}]");
            // One too many for a text that every reader takes: left out like those beyond `MOST_SERVED`.
            if text.len() >= MOST_TEXT_BYTES {
                text.truncate(length);
                break;
            }
        }
        text.push(']');
        Some(text)
    }

    /// What such a text says; nothing if it is not one.
    pub fn from_text(text: &str) -> Vec<Served> {
        let rows: Vec<(u64, u32, u32)> = serde_json::from_str(text).unwrap_or_default();
        rows.into_iter().map(|(request, tokens, output)| Served::new(request, tokens, output)).collect()
    }

    /// One entry for each request, in order of request.
    pub fn merged(mut served: Vec<Served>) -> Vec<Served> {
        served.sort_by_key(|one| one.request);
        served.dedup_by(|next, kept| {
            let same = next.request == kept.request;
            if same {
                kept.tokens = kept.tokens.saturating_add(next.tokens);
                kept.output_tokens = kept.output_tokens.saturating_add(next.output_tokens);
            }
            same
        });
        served
    }

    /// The share of a step that is `request`'s: its tokens of all tokens that the step passes for requests. `None` if
    /// it does not serve the request. If no tokens are stated, all have the same share.
    pub fn share(served: &[Served], request: u64) -> Option<f64> {
        let at = served.iter().position(|one| one.request == request)?;
        Self::shares(served).nth(at)
    }

    /// The share of each, in their order; see [`share`](Self::share).
    pub(crate) fn shares(served: &[Served]) -> impl Iterator<Item = f64> {
        let all: u64 = served.iter().map(|one| u64::from(one.tokens)).sum();
        served.iter().map(move |own| match all {
            0 => 1.0 / served.len() as f64,
            all => f64::from(own.tokens) / all as f64,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_that_is_told_twice_stands_once_and_shares_are_by_tokens() {
        let told = vec![Served::new(9, 6, 0), Served::new(4, 1, 1), Served::new(9, 0, 1)];
        let merged = Served::merged(told);
        assert_eq!(merged, [Served::new(4, 1, 1), Served::new(9, 6, 1)]);
        assert_eq!(Served::share(&merged, 9), Some(6.0 / 7.0));
        assert_eq!(Served::share(&merged, 5), None);
        assert_eq!(Served::share(&[Served::new(1, 0, 0), Served::new(2, 0, 0)], 2), Some(0.5));
    }

    #[test]
    fn a_text_stays_within_what_readers_take() {
        let most: Vec<Served> = (0..5_000).map(|n| Served::new(u64::MAX - n, u32::MAX, u32::MAX)).collect();
        let text = Served::to_text(&most).unwrap();
        assert!(text.len() <= MOST_TEXT_BYTES);
        let read = Served::from_text(&text);
        assert!(read.len() > 300 && read[..] == most[..read.len()], "{}", read.len());
        assert_eq!(Served::to_text(&[]), None);
    }
}
