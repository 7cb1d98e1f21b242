//! candle's error messages on one line.

use candle_core::Error;

/// The message of `error` without the backtrace that candle appends to it under `RUST_BACKTRACE=1`, contexts first,
/// on one line.
pub fn candle_message(error: &Error) -> String {
    match error {
        Error::WithBacktrace { inner, .. } => candle_message(inner),
        Error::Context { inner, context } => format!("{}: {}", one_line(&context.to_string()), candle_message(inner)),
        Error::WithPath { inner, path } => format!("{}: {}", path.display(), candle_message(inner)),
        Error::WrappedContext { wrapped, context } => {
            format!("{}: {}", one_line(context), one_line(&wrapped.to_string()))
        }
        other => one_line(&other.to_string()),
    }
}

/// The lines of `text` up to a backtrace: an error that was turned into text and wrapped again contains one of its own.
fn one_line(text: &str) -> String {
    let lines: Vec<&str> = text.lines().take_while(|line| !is_frame(line)).map(str::trim).collect();
    lines.join(" ").trim().to_string()
}

/// Whether a line is a frame of a printed backtrace: `   0: candle_core::error::Error::bt`.
fn is_frame(line: &str) -> bool {
    line.starts_with(' ')
        && line
            .trim_start()
            .split_once(": ")
            .is_some_and(|(n, _)| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::backtrace::Backtrace;

    fn traced(inner: Error) -> Error {
        Error::WithBacktrace { inner: Box::new(inner), backtrace: Box::new(Backtrace::force_capture()) }
    }

    #[test]
    fn without_the_backtrace() {
        let error = traced(Error::Msg("no such thing".into()));
        assert!(error.to_string().lines().count() > 1, "candle appends it");
        assert_eq!(candle_message(&error), "no such thing");
        // Such an error as text, wrapped again, with another backtrace.
        let again = traced(Error::Msg(error.to_string()).context("in layer 3"));
        assert_eq!(candle_message(&again), "in layer 3: no such thing");
        assert_eq!(candle_message(&traced(error).with_path("w.gguf")), "w.gguf: no such thing");
    }

    #[test]
    fn lines_become_one() {
        assert_eq!(candle_message(&Error::Msg("expected 3\n  12 were found".into())), "expected 3 12 were found");
    }
}
