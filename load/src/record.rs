//! What is kept of each request.

use crate::failure::Failure;
use serde::Serialize;

/// Most chunks of a failed request whose times are kept.
const MOST_OF_FAILED: usize = 4096;

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde's form")]
fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// Which part of its stage a request belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// Began during the stage's warm-up: in no latency, but what arrives in the window counts in its rates.
    Warmup,
    /// Began after the warm-up, before the stage had its time or its number of requests: latencies are of these.
    Measured,
    /// Sent only to keep the load up until the last measured request had ended.
    After,
}

impl Part {
    /// As in the files.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Warmup => "warmup",
            Self::Measured => "measured",
            Self::After => "after",
        }
    }
}

/// Where a count of tokens comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TokensBy {
    /// The server's own count: `completion_tokens` of its `usage`, of a stream the last one sent.
    Usage,
    /// Chunks with output that arrived.
    Chunks,
}

/// One request. `start_ns` and `planned_ns` are nanoseconds since the run began, all other times since the request's
/// start. What is not known is absent.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct RequestRecord {
    /// Number of the stage, from 0.
    pub stage: usize,
    /// Number within the stage, in order of start.
    pub number: u64,
    /// Part of the stage.
    pub part: Part,
    /// Which of the prompts.
    pub prompt: u64,
    /// When it was to arrive; absent where clients wait for their answers.
    pub planned_ns: Option<u64>,
    /// When it began: connecting, where no connection was open, is part of it.
    pub start_ns: u64,
    /// When the connection was there; absent on one that was open.
    pub connect_ns: Option<u64>,
    /// Whether it was sent a second time, on a new connection, because the server had closed the one that was open.
    /// Its latencies count from the first time.
    pub sent_again: bool,
    /// Arrival of the answer's head.
    pub head_ns: Option<u64>,
    /// HTTP status of the answer; absent where none began to arrive.
    pub status: Option<u16>,
    /// Whether the answer was a stream.
    pub streamed: bool,
    /// Arrival of each chunk with output: of each token, where the server sends one a chunk.
    pub token_ns: Vec<u64>,
    /// Further chunks of a request that failed, whose times were not kept.
    #[serde(skip_serializing_if = "is_zero")]
    pub untimed_chunks: u64,
    /// End of the answer, or the moment of failure.
    pub end_ns: u64,
    /// Tokens of the prompt, by the server's usage.
    pub prompt_tokens: Option<u64>,
    /// Those of them that the server had in a cache of prefixes, by its usage.
    pub cached_tokens: Option<u64>,
    /// Tokens of the answer.
    pub output_tokens: Option<u64>,
    /// Whether the server counted them or chunks stand in; absent where `output_tokens` is.
    pub output_tokens_by: Option<TokensBy>,
    /// Why the model ended, in the server's words.
    pub finish: Option<String>,
    /// Why it failed, if it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
    /// The prompt, where it was to be kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_text: Option<String>,
}

impl RequestRecord {
    pub(crate) fn new(stage: usize, number: u64, part: Part, prompt: u64, start_ns: u64) -> Self {
        Self {
            stage,
            number,
            part,
            prompt,
            planned_ns: None,
            start_ns,
            connect_ns: None,
            sent_again: false,
            head_ns: None,
            status: None,
            streamed: false,
            token_ns: Vec::new(),
            untimed_chunks: 0,
            end_ns: 0,
            prompt_tokens: None,
            cached_tokens: None,
            output_tokens: None,
            output_tokens_by: None,
            finish: None,
            failure: None,
            prompt_text: None,
        }
    }

    /// Bytes that it takes besides itself.
    pub(crate) fn held(&self) -> usize {
        let text = |text: &Option<String>| text.as_ref().map_or(0, String::capacity);
        let told = self.failure.as_ref().map_or(0, |failure| failure.message.capacity());
        self.token_ns.capacity() * size_of::<u64>() + text(&self.finish) + text(&self.prompt_text) + told
    }

    /// Of a failed request only a beginning is kept: it is in no latency, and a server may send without end.
    pub(crate) fn shorten(&mut self) {
        if !self.is_ok() && self.token_ns.len() > MOST_OF_FAILED {
            self.untimed_chunks = (self.token_ns.len() - MOST_OF_FAILED) as u64;
            self.token_ns.truncate(MOST_OF_FAILED);
        }
        self.token_ns.shrink_to_fit();
    }

    /// Whether the answer arrived whole.
    pub fn is_ok(&self) -> bool {
        self.failure.is_none()
    }

    /// Time to first token, in nanoseconds. Absent for answers that are no streams.
    pub fn ttft_ns(&self) -> Option<u64> {
        self.token_ns.first().copied()
    }

    /// Start to last token, in nanoseconds; to the end of an answer that is no stream. Only of whole answers.
    pub fn e2e_ns(&self) -> Option<u64> {
        self.is_ok().then(|| self.token_ns.last().copied().unwrap_or(self.end_ns))
    }

    /// (e2e − ttft) / (output tokens − 1), in nanoseconds; undefined for one token.
    pub fn tpot_ns(&self) -> Option<f64> {
        let (ttft, e2e) = (self.ttft_ns()?, self.e2e_ns()?);
        let further = self.output_tokens?.checked_sub(1).filter(|n| *n > 0)?;
        (self.token_ns.len() > 1).then(|| (e2e - ttft) as f64 / further as f64)
    }

    /// Gaps between neighbouring chunks with output, in nanoseconds.
    pub fn gaps_ns(&self) -> impl Iterator<Item = u64> + '_ {
        self.token_ns.windows(2).map(|pair| pair[1] - pair[0])
    }

    /// By how much it began later than planned, in nanoseconds.
    pub fn late_ns(&self) -> Option<u64> {
        self.planned_ns.map(|planned| self.start_ns.saturating_sub(planned))
    }

    /// Its end, in nanoseconds since the run began.
    pub fn ended_at(&self) -> u64 {
        self.start_ns.saturating_add(self.end_ns)
    }
}
