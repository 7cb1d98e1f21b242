//! Server-sent events, as they come in pieces: bytes in, data out. Without I/O.
//!
//! Data is handed on with each `data:` line and not only at the empty line behind an event, because some servers leave
//! that out. The receiver says whether the data is whole; if not, the next line of data is appended, as the standard
//! has it [WHATWG HTML, 9.2.6].

/// Longest event.
const MOST_BYTES: usize = 4 << 20;
/// Most lines of data in an event: the receiver reads all of them anew with each further one.
const MOST_LINES: usize = 1024;

/// What became of data that was handed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Completeness {
    Whole,
    /// More lines belong to it.
    InPart,
}

/// A piece of an event stream.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Event<'a> {
    Data(&'a [u8]),
    /// A line `error: …`, which some servers send in place of an event.
    Error(&'a [u8]),
}

#[derive(Debug, Default)]
pub(crate) struct Sse {
    line: Vec<u8>,
    data: Vec<u8>,
    /// Lines in `data`.
    data_lines: usize,
    after_cr: bool,
    /// Lines so far, but for comments.
    lines: u64,
}

impl Sse {
    /// Bytes that it takes.
    pub(crate) fn held(&self) -> usize {
        self.line.capacity() + self.data.capacity()
    }

    /// Takes the next bytes. Errors are those of `each`, and that an event is too long or was never whole.
    pub(crate) fn feed<'b>(
        &mut self,
        bytes: &'b [u8],
        each: &mut dyn FnMut(Event<'_>) -> Result<Completeness, String>,
    ) -> Result<(), String> {
        let mut rest: &'b [u8] = bytes;
        while !rest.is_empty() {
            if std::mem::take(&mut self.after_cr) && rest[0] == b'\n' {
                rest = &rest[1..];
                continue;
            }
            let Some(end) = rest.iter().position(|b| matches!(b, b'\n' | b'\r')) else {
                self.line.extend_from_slice(rest);
                break;
            };
            self.line.extend_from_slice(&rest[..end]);
            self.after_cr = rest[end] == b'\r';
            rest = &rest[end + 1..];
            let line = std::mem::take(&mut self.line);
            self.take_line(&line, each)?;
            self.line = line;
            self.line.clear();
        }
        if self.line.len() + self.data.len() > MOST_BYTES {
            return Err(format!("an event of more than {} MiB", MOST_BYTES >> 20));
        }
        Ok(())
    }

    fn take_line(
        &mut self,
        line: &[u8],
        each: &mut dyn FnMut(Event<'_>) -> Result<Completeness, String>,
    ) -> Result<(), String> {
        let line = if self.lines == 0 { line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line) } else { line };
        if line.is_empty() {
            if !self.data.is_empty() {
                return Err(format!("an event that is no JSON, of {} bytes", self.data.len()));
            }
            return Ok(());
        }
        let colon = line.iter().position(|b| *b == b':').unwrap_or(line.len());
        let (field, value) = (&line[..colon], line.get(colon + 1..).unwrap_or_default());
        let value = value.strip_prefix(b" ").unwrap_or(value);
        // A comment keeps the connection alive.
        self.lines += u64::from(!field.is_empty());
        match field {
            b"data" => {
                if !self.data.is_empty() {
                    self.data.push(b'\n');
                }
                self.data.extend_from_slice(value);
                self.data_lines += 1;
                if self.data_lines > MOST_LINES {
                    return Err(format!("an event of more than {MOST_LINES} lines"));
                }
                if self.data.is_empty() || each(Event::Data(&self.data))? == Completeness::Whole {
                    self.data.clear();
                    self.data_lines = 0;
                }
                Ok(())
            }
            b"error" => each(Event::Error(value)).map(|_| ()),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Data of a stream in pieces of `size` bytes; `whole` says whether data is whole.
    fn read(stream: &str, size: usize, whole: fn(&[u8]) -> bool) -> Result<Vec<String>, String> {
        let (mut sse, mut found) = (Sse::default(), Vec::new());
        for piece in stream.as_bytes().chunks(size) {
            sse.feed(piece, &mut |event| {
                let (mark, data) = match event {
                    Event::Data(data) => ("", data),
                    Event::Error(data) => ("!", data),
                };
                if !whole(data) {
                    return Ok(Completeness::InPart);
                }
                found.push(format!("{mark}{}", String::from_utf8_lossy(data)));
                Ok(Completeness::Whole)
            })?;
        }
        Ok(found)
    }

    #[test]
    fn any_line_ending_any_pieces_with_and_without_empty_lines() {
        let stream = "\u{feff}: alive\n\ndata: a\n\ndata:b\r\n\r\nevent: x\rdata:  c\r\rid: 7\ndata: d\ndata: e\nretry: 5\nerror: no\n\n";
        for size in [1, 2, 3, 7, 1000] {
            assert_eq!(read(stream, size, |_| true).unwrap(), ["a", "b", " c", "d", "e", "!no"], "{size}");
        }
    }

    #[test]
    fn data_of_several_lines_is_one() {
        let whole = |data: &[u8]| data.ends_with(b"}");
        assert_eq!(read("data: {\ndata: 1\ndata: }\n\ndata: {}\n\n", 5, whole).unwrap(), ["{\n1\n}", "{}"]);
        assert_eq!(read("data: {\n\n", 4, whole), Err("an event that is no JSON, of 1 bytes".into()));
    }

    #[test]
    fn a_line_without_end_is_refused() {
        let long = "x".repeat(MOST_BYTES + 1);
        assert!(read(&long, 1 << 20, |_| true).unwrap_err().contains("4 MiB"));
        let lines = "data: 1\n".repeat(MOST_LINES + 1);
        assert_eq!(read(&lines, 1 << 20, |_| true).map(|found| found.len()), Ok(MOST_LINES + 1));
        assert!(read(&lines, 1 << 20, |_| false).unwrap_err().contains("1024 lines"));
    }
}
