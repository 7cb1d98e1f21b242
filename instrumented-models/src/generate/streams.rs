//! The sequences of a batch as they grow.

use super::{Context, FinishReason, GenerateError, Sequence, TokenEvent};
use std::ops::ControlFlow;

/// The growing sequences.
pub(super) struct Streams<'a> {
    stop: &'a [u32],
    tokens: Vec<Vec<u32>>,
    texts: Vec<String>,
    streams: Vec<Option<crate::tokenizer::DecodeStream<'a>>>,
    stopped: Vec<bool>,
}

impl<'a> Streams<'a> {
    pub(super) fn new(context: &'a Context<'_>, batch: usize) -> Self {
        Self {
            stop: &context.stop,
            tokens: vec![Vec::new(); batch],
            texts: vec![String::new(); batch],
            streams: (0..batch).map(|_| context.tokenizer.map(|t| t.stream())).collect(),
            stopped: vec![false; batch],
        }
    }

    /// Sequences that have not ended.
    pub(super) fn open(&self) -> usize {
        self.stopped.iter().filter(|s| !**s).count()
    }

    /// Passes the tokens to the caller; breaks if the caller stops.
    pub(super) fn take(
        &mut self,
        next: &[u32],
        on_token: &mut dyn FnMut(TokenEvent<'_>) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, GenerateError> {
        let mut wanted = ControlFlow::Continue(());
        for (sequence, &token) in next.iter().enumerate() {
            if self.stopped[sequence] {
                continue;
            }
            let index = self.tokens[sequence].len();
            self.tokens[sequence].push(token);
            self.stopped[sequence] = self.stop.contains(&token);
            let piece = match &mut self.streams[sequence] {
                Some(stream) => stream.push(token)?.unwrap_or_default(),
                None => String::new(),
            };
            self.texts[sequence].push_str(&piece);
            if on_token(TokenEvent { sequence, index, token, text: &piece }).is_break() {
                wanted = ControlFlow::Break(());
            }
        }
        Ok(wanted)
    }

    pub(super) fn finish(self, limit: FinishReason) -> Result<Vec<Sequence>, GenerateError> {
        let mut all = Vec::with_capacity(self.tokens.len());
        for (((tokens, mut text), stream), stopped) in
            self.tokens.into_iter().zip(self.texts).zip(self.streams).zip(self.stopped)
        {
            if let Some(mut stream) = stream {
                text.push_str(&stream.finish()?.unwrap_or_default());
            }
            all.push(Sequence { tokens, text, finish: if stopped { FinishReason::Stop } else { limit } });
        }
        Ok(all)
    }
}
