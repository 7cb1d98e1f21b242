//! An answer as it arrives: bytes with their times in, tokens' times and counts out. Without I/O.

use crate::chunk::{Chunk, Usage, unread};
use crate::failure::{Failure, FailureKind};
use crate::sse::{Completeness, Event, Sse};

/// Longest answer that is not a stream.
const MOST_BYTES: usize = 8 << 20;
/// Most blanks before an answer of which nothing says in which form it comes.
const MOST_BLANKS: usize = 64 << 10;
/// Most chunks with output: more than any model's context has tokens that one streams.
const MOST_CHUNKS: usize = 1 << 18;

/// In which form the answer comes.
#[derive(Debug)]
enum Form {
    /// Nothing says it yet.
    Unknown(Vec<u8>),
    Stream(Sse),
    Whole(Vec<u8>),
}

#[derive(Debug)]
pub(crate) struct Answer {
    form: Form,
    state: State,
}

/// What has arrived so far.
#[derive(Debug, Default)]
pub(crate) struct State {
    /// When each chunk with output arrived, in nanoseconds since the request's start.
    pub(crate) token_ns: Vec<u64>,
    pub(crate) usage: Option<Usage>,
    pub(crate) finish: Option<String>,
    /// `[DONE]` was seen.
    pub(crate) done: bool,
    pub(crate) streamed: bool,
    error: Option<String>,
}

impl Answer {
    /// An answer whose head says that it has this type.
    pub(crate) fn new(content_type: &str) -> Self {
        let kind = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        let form = match kind.as_str() {
            "text/event-stream" => Form::Stream(Sse::default()),
            "application/json" => Form::Whole(Vec::new()),
            _ => Form::Unknown(Vec::new()),
        };
        Self { form, state: State::default() }
    }

    pub(crate) fn state(&self) -> &State {
        &self.state
    }

    /// Bytes that it takes.
    pub(crate) fn held(&self) -> usize {
        let form = match &self.form {
            Form::Stream(sse) => sse.held(),
            Form::Whole(body) | Form::Unknown(body) => body.capacity(),
        };
        form + self.state.token_ns.capacity() * size_of::<u64>()
    }

    pub(crate) fn into_state(self) -> State {
        self.state
    }

    /// Takes bytes that arrived `at` nanoseconds after the request's start.
    pub(crate) fn feed(&mut self, bytes: &[u8], at: u64) -> Result<(), Failure> {
        if let Form::Unknown(start) = &mut self.form {
            // What came before is blank.
            let first = bytes.iter().find(|b| !b.is_ascii_whitespace());
            start.extend_from_slice(bytes);
            let Some(first) = first else {
                let blanks = start.len();
                let much = format!("an answer that begins with more than {} KiB of blanks", MOST_BLANKS >> 10);
                return if blanks > MOST_BLANKS { Err(malformed(much)) } else { Ok(()) };
            };
            let form = if *first == b'{' { Form::Whole(Vec::new()) } else { Form::Stream(Sse::default()) };
            let start = std::mem::take(start);
            self.form = form;
            return self.feed(&start, at);
        }
        let state = &mut self.state;
        match &mut self.form {
            Form::Stream(sse) => {
                state.streamed = true;
                sse.feed(bytes, &mut |event| state.take(&event, at)).map_err(malformed)?;
            }
            Form::Whole(body) | Form::Unknown(body) => {
                body.extend_from_slice(bytes);
                if body.len() > MOST_BYTES {
                    return Err(malformed(format!("an answer of more than {} MiB", MOST_BYTES >> 20)));
                }
            }
        }
        match state.error.take() {
            Some(error) => Err(Failure::new(FailureKind::ErrorInStream, error)),
            None => Ok(()),
        }
    }

    /// The answer has ended. An answer that is not a stream is read only now.
    pub(crate) fn end(&mut self) -> Result<(), Failure> {
        if let Form::Whole(body) = &self.form {
            let whole: Chunk = serde_json::from_slice(body).map_err(|e| malformed(unread(&e, body)))?;
            if let Some(error) = whole.error() {
                return Err(Failure::new(FailureKind::ErrorInStream, error));
            }
            self.state.usage = whole.usage().map_err(malformed)?;
            self.state.finish = whole.finish().map(str::to_string);
            if !whole.has_output() && self.state.finish.is_none() {
                return Err(empty());
            }
            return Ok(());
        }
        if !self.state.done && self.state.finish.is_none() {
            let text = "the stream ended with neither [DONE] nor a reason why it was finished";
            return Err(Failure::new(FailureKind::HungUp, text));
        }
        // A model may end at once with its end token: that is an answer of one token without text.
        let some = self.state.usage.and_then(|u| u.completion_tokens).is_some_and(|n| n > 0);
        if self.state.token_ns.is_empty() && !some { Err(empty()) } else { Ok(()) }
    }
}

impl State {
    fn take(&mut self, event: &Event<'_>, at: u64) -> Result<Completeness, String> {
        let data = match event {
            Event::Data(data) => data.trim_ascii(),
            Event::Error(text) => {
                self.error = Some(crate::chunk::error_text(text));
                return Ok(Completeness::Whole);
            }
        };
        if data == b"[DONE]" {
            self.done = true;
            return Ok(Completeness::Whole);
        }
        let chunk: Chunk = match serde_json::from_slice(data) {
            Ok(chunk) => chunk,
            Err(error) if error.is_eof() => return Ok(Completeness::InPart),
            Err(error) => return Err(unread(&error, data)),
        };
        if let Some(error) = chunk.error() {
            self.error = Some(error);
            return Ok(Completeness::Whole);
        }
        if chunk.has_output() {
            if self.token_ns.len() >= MOST_CHUNKS {
                return Err(format!("an answer of more than {MOST_CHUNKS} chunks"));
            }
            self.token_ns.push(at);
        }
        // Where every chunk counts, the last one has the total.
        self.usage = chunk.usage()?.or(self.usage);
        if let Some(finish) = chunk.finish() {
            self.finish = Some(finish.to_string());
        }
        Ok(Completeness::Whole)
    }
}

fn malformed(why: impl Into<String>) -> Failure {
    Failure::new(FailureKind::Malformed, why)
}

fn empty() -> Failure {
    Failure::new(FailureKind::Empty, "the answer has no output")
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: &str = "text/event-stream; charset=utf-8";

    fn token(text: &str) -> String {
        format!("data: {{\"choices\":[{{\"text\":\"{text}\"}}]}}\n\n")
    }

    #[test]
    fn tokens_have_the_time_at_which_they_arrived() {
        let mut answer = Answer::new(STREAM);
        answer.feed(b"data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n", 5).unwrap();
        answer.feed(token("a").as_bytes(), 10).unwrap();
        answer.feed(b": alive\n\n", 12).unwrap();
        answer.feed(format!("{}{}", token("b"), token("c")).as_bytes(), 20).unwrap();
        // The first half of a chunk is no token yet.
        let cut = token("d");
        answer.feed(&cut.as_bytes()[..12], 30).unwrap();
        answer.feed(&cut.as_bytes()[12..], 40).unwrap();
        answer.feed(b"data: {\"choices\":[],\"usage\":{\"completion_tokens\":5}}\n\ndata: [DONE]\n\n", 50).unwrap();
        answer.end().unwrap();
        assert_eq!(answer.state().token_ns, [10, 20, 20, 40]);
        assert_eq!(answer.state().usage.unwrap().completion_tokens, Some(5));
        assert!(answer.state().done && answer.state().streamed);
    }

    #[test]
    fn what_is_no_whole_answer() {
        let fails = |kind: &str, parts: &[&str]| {
            let mut answer = Answer::new(kind);
            let fed = parts.iter().zip(1..).try_for_each(|(part, at)| answer.feed(part.as_bytes(), at));
            (fed.and_then(|()| answer.end()).unwrap_err().kind, answer.state().token_ns.len())
        };
        let a = token("a");
        assert_eq!(fails(STREAM, &[&a]), (FailureKind::HungUp, 1));
        assert_eq!(fails(STREAM, &[&a, "data: nonsense\n\n"]), (FailureKind::Malformed, 1));
        assert_eq!(fails(STREAM, &[&a, "data: {\"error\":{\"message\":\"x\"}}\n\n"]), (FailureKind::ErrorInStream, 1));
        assert_eq!(fails(STREAM, &[&a, "error: {\"message\":\"x\"}\n\n"]), (FailureKind::ErrorInStream, 1));
        assert_eq!(fails(STREAM, &["data: [DONE]\n\n"]), (FailureKind::Empty, 0));
        assert_eq!(fails("application/json", &["{\"choices\":["]), (FailureKind::Malformed, 0));
        assert_eq!(fails("application/json", &["{\"choices\":[]}"]), (FailureKind::Empty, 0));
        assert_eq!(fails("text/html", &["<html>"]), (FailureKind::HungUp, 0));
    }

    #[test]
    fn an_answer_without_end_is_refused() {
        let mut blank = Answer::new("");
        let fed = (0..65).try_for_each(|at| blank.feed(&[b'\n'; 1 << 10], at));
        assert!(fed.unwrap_err().message.contains("64 KiB of blanks"));
        let mut long = Answer::new(STREAM);
        long.state.token_ns = vec![0; MOST_CHUNKS - 1];
        long.feed(token("a").as_bytes(), 1).unwrap();
        let error = long.feed(token("a").as_bytes(), 2).unwrap_err();
        assert!(error.kind == FailureKind::Malformed && error.message.contains("262144 chunks"), "{error}");
    }

    #[test]
    fn a_count_that_no_answer_has_is_refused() {
        let usage =
            |count: u64| format!("{{\"choices\":[{{\"text\":\"a\"}}],\"usage\":{{\"completion_tokens\":{count}}}}}");
        let streamed = |count| Answer::new(STREAM).feed(format!("data: {}\n\n", usage(count)).as_bytes(), 1);
        streamed(1 << 32).unwrap();
        let error = streamed(u64::MAX).unwrap_err();
        assert!(
            error.kind == FailureKind::Malformed && error.message.contains("18446744073709551615 tokens"),
            "{error}"
        );
        let mut whole = Answer::new("application/json");
        whole.feed(usage(u64::MAX).as_bytes(), 1).unwrap();
        assert_eq!(whole.end().unwrap_err().kind, FailureKind::Malformed);
    }

    #[test]
    fn an_answer_that_is_no_stream() {
        for kind in ["application/json", ""] {
            let mut answer = Answer::new(kind);
            answer.feed(b" {\"choices\":[{\"text\":\"ab\",\"finish_reason\":\"stop\"}],", 9).unwrap();
            answer.feed(b"\"usage\":{\"prompt_tokens\":2,\"completion_tokens\":7}}", 10).unwrap();
            answer.end().unwrap();
            let state = answer.state();
            assert!(!state.streamed && state.token_ns.is_empty(), "no token has a time of its own");
            assert_eq!((state.usage.unwrap().completion_tokens, state.finish.as_deref()), (Some(7), Some("stop")));
        }
    }

    #[test]
    fn a_stream_may_end_without_its_mark() {
        let mut answer = Answer::new("");
        answer.feed(token("a").as_bytes(), 1).unwrap();
        answer.feed(b"data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"length\"}]}", 2).unwrap();
        answer.feed(b"\n", 3).unwrap();
        answer.end().unwrap();
    }
}
