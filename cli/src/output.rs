//! What the command prints: the one place that writes to standard output and standard error.
//!
//! Text from outside, such as generated text and names of models and layers, must not contain control sequences for the
//! terminal, and a reader that goes away (`candlescope report | head`) is not an error.

use anyhow::{Context, Result};
use candlescope_core::steers_screen;
use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{self, Write};

/// Prints `text` and a line feed to standard output.
///
/// If the output is closed, the text is dropped and the command ends with the status that it would have had. Every
/// other failure, such as a full disk, is an error.
pub(crate) fn say(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    quiet(out.write_all(format!("{}\n", printable(text)).as_bytes()).and_then(|()| out.flush()))
        .context("cannot write to standard output: free some space, or send it elsewhere")
}

/// The same for a text that comes in parts, none of which ends within a line ending.
#[cfg(feature = "query")]
pub(crate) fn say_in_parts(parts: impl IntoIterator<Item = String>) -> Result<()> {
    let mut out = io::BufWriter::new(io::stdout().lock());
    let write = || {
        for part in parts {
            out.write_all(printable(&part).as_bytes())?;
        }
        out.write_all(b"\n")?;
        out.flush()
    };
    let outcome = write();
    // What could not be written is not tried again.
    drop(out.into_parts());
    quiet(outcome).context("cannot write to standard output: free some space, or send it elsewhere")
}

/// Prints `text` and a line feed to standard output, and returns whether it is still read: for what goes on until then.
#[cfg(feature = "monitor")]
pub(crate) fn say_if_read(text: &str) -> Result<bool> {
    let mut out = io::stdout().lock();
    match out.write_all(format!("{}\n", printable(text)).as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        outcome => {
            outcome.map(|()| true).context("cannot write to standard output: free some space, or send it elsewhere")
        }
    }
}

/// Prints one line to standard error. If that fails, there is nowhere left to report it.
pub(crate) fn note(text: &str) {
    let line = printable(text).replace('\n', "\\u000a");
    let _ = io::stderr().lock().write_all(format!("{line}\n").as_bytes());
}

/// Prints lines to standard error.
pub(crate) fn complain(text: &str) {
    let _ = io::stderr().lock().write_all(format!("{}\n", printable(text).trim_end()).as_bytes());
}

/// Whether a terminal would interpret a part of `text` as a control sequence.
pub(crate) fn steers_terminal(text: &str) -> bool {
    text.contains(steers)
}

fn quiet(outcome: io::Result<()>) -> io::Result<()> {
    match outcome {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        outcome => outcome,
    }
}

/// `text` with control characters (other than line feeds and tabs) and those that change the text direction escaped, as
/// `\u001b`. JSON uses the same form, so JSON text keeps its value.
pub(crate) fn printable(text: &str) -> Cow<'_, str> {
    if !text.contains(steers) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            // A Windows line ending becomes a line feed.
            '\r' if rest.peek() == Some(&'\n') => {}
            c if steers(c) => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    Cow::Owned(out)
}

fn steers(c: char) -> bool {
    c != '\n' && c != '\t' && steers_screen(c)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_steers_a_terminal_is_shown_instead() {
        assert_eq!(printable("two\nlines\tand é 木 👩‍🔬"), "two\nlines\tand é 木 👩‍🔬");
        assert_eq!(printable("\x1b[2J\x1b]0;title\x07"), "\\u001b[2J\\u001b]0;title\\u0007");
        assert_eq!(printable("\u{9b}31m\x7f\u{202e}abc"), "\\u009b31m\\u007f\\u202eabc");
        assert_eq!(printable("one\r\ntwo\rthree\r"), "one\ntwo\\u000dthree\\u000d");
    }

    #[test]
    fn json_stays_the_same_value() {
        let value = serde_json::json!({ "text": "\x1b[31m \u{9b}0m \x7f \u{202e} \r\n" });
        let text = value.to_string();
        let shown = printable(&text);
        assert!(!shown.contains(steers));
        assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).unwrap(), value);
    }

    #[test]
    fn a_reader_that_went_is_no_error_and_a_full_disk_is() {
        assert!(quiet(Err(io::ErrorKind::BrokenPipe.into())).is_ok());
        assert!(quiet(Err(io::ErrorKind::StorageFull.into())).is_err());
    }
}
