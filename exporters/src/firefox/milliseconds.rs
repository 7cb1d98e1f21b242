//! Weights in fractions of milliseconds: the format has them, its library takes whole numbers only.

use serde_json::ser::Formatter;
use std::io::{self, Write};

/// Writes compact JSON in which the numbers of each list `weight`, which are microseconds, become milliseconds.
#[derive(Debug, Default)]
pub(super) struct Milliseconds {
    in_key: bool,
    in_weight: bool,
}

impl Formatter for Milliseconds {
    fn begin_object_key<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        self.in_key = true;
        if first { Ok(()) } else { out.write_all(b",") }
    }

    fn end_object_key<W: ?Sized + Write>(&mut self, _: &mut W) -> io::Result<()> {
        self.in_key = false;
        Ok(())
    }

    fn write_string_fragment<W: ?Sized + Write>(&mut self, out: &mut W, fragment: &str) -> io::Result<()> {
        if self.in_key {
            self.in_weight = fragment == "weight";
        }
        out.write_all(fragment.as_bytes())
    }

    fn write_i32<W: ?Sized + Write>(&mut self, out: &mut W, value: i32) -> io::Result<()> {
        if self.in_weight { write!(out, "{}.{:03}", value / 1_000, value % 1_000) } else { write!(out, "{value}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Serialize;

    #[test]
    fn only_weights_change() {
        #[derive(Serialize)]
        struct Samples {
            stack: Vec<i32>,
            weight: Vec<i32>,
            length: i32,
            name: &'static str,
        }
        let samples = Samples { stack: vec![1, 2], weight: vec![2_004, 7, 1_000_000], length: 3, name: "weight" };
        let mut out = Vec::new();
        samples.serialize(&mut serde_json::Serializer::with_formatter(&mut out, Milliseconds::default())).unwrap();
        let expected = r#"{"stack":[1,2],"weight":[2.004,0.007,1000.000],"length":3,"name":"weight"}"#;
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }
}
