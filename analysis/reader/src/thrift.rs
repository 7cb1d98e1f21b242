//! The part of Thrift's compact protocol that is needed to check a Parquet file before it is decoded.
//!
//! Nothing that is read is kept and nothing is allocated, whatever the bytes claim.

use super::structs::{Fields, Kind};
use std::io::{self, ErrorKind, Read};

/// Deepest nesting that is followed; a Parquet footer nests about ten deep.
const MOST_DEEP: u32 = 32;

const LIST: u8 = 9;
const STRUCT: u8 = 12;

/// Reads a stream of Thrift's compact protocol, counting bytes.
pub(super) struct Thrift<R> {
    input: R,
    read: u64,
    /// Bytes in the input; a claim beyond them is false.
    length: u64,
}

/// A field of a struct.
pub(super) struct Field {
    pub(super) id: i16,
    value: Value,
}

/// A value to be read or skipped.
#[derive(Clone, Copy)]
enum Value {
    /// The decoder knows it, and it has the type that the decoder expects.
    Known(Kind),
    /// The decoder does not know it and goes by the stated type.
    Unknown(u8),
}

impl<R: Read> Thrift<R> {
    /// Reads from `input`, which has at most `length` bytes.
    pub(super) fn new(input: R, length: u64) -> Self {
        Self { input, read: 0, length }
    }

    /// Bytes read so far.
    pub(super) fn position(&self) -> u64 {
        self.read
    }

    fn byte(&mut self) -> io::Result<u8> {
        let mut byte = [0u8; 1];
        self.input.read_exact(&mut byte)?;
        self.read += 1;
        Ok(byte[0])
    }

    fn varint(&mut self) -> io::Result<u64> {
        let mut value = 0u64;
        for shift in (0..70).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(nonsense("a number does not end"))
    }

    /// A signed whole number of any width.
    pub(super) fn int(&mut self) -> io::Result<i64> {
        let value = self.varint()?;
        Ok((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    /// A number of 32 bits. A decoder would truncate a longer one.
    pub(super) fn int32(&mut self) -> io::Result<i64> {
        let value = self.int()?;
        if i32::try_from(value).is_ok() { Ok(value) } else { Err(nonsense("a number has more than 32 bits")) }
    }

    /// The next field of a struct, or its end. `fields` are those that the decoder knows, `last` is the number of the
    /// field before.
    pub(super) fn field(&mut self, fields: &Fields, last: &mut i16) -> io::Result<Option<Field>> {
        let head = self.byte()?;
        if head & 0x0f == 0 {
            return Ok(None);
        }
        *last = match head >> 4 {
            0 => i16::try_from(self.int()?).map_err(|_| nonsense("a field has an impossible number"))?,
            delta => last.wrapping_add(i16::from(delta)),
        };
        let told = head & 0x0f;
        let value = match fields.iter().find(|(id, _)| id == last) {
            Some((_, kind)) if kind.is(told) => Value::Known(*kind),
            Some(_) => return Err(nonsense("it has a field of another type than Parquet has there")),
            None => Value::Unknown(told),
        };
        Ok(Some(Field { id: *last, value }))
    }

    /// How many elements a list of `kind` has.
    pub(super) fn list_of(&mut self, kind: Kind) -> io::Result<u64> {
        let (told, size) = self.list()?;
        // Some writers state no type for an empty list.
        if size > 0 && !kind.is(told) {
            return Err(nonsense("it has a list of another type than Parquet has there"));
        }
        Ok(size)
    }

    /// Type of a list's elements, and how many.
    fn list(&mut self) -> io::Result<(u8, u64)> {
        let head = self.byte()?;
        let size = if head >> 4 == 15 { self.varint()? } else { u64::from(head >> 4) };
        // Every element takes at least one byte.
        if size > self.length.saturating_sub(self.read) {
            return Err(nonsense("a list claims more elements than there are bytes"));
        }
        Ok((head & 0x0f, size))
    }

    /// Skips the value of a field.
    pub(super) fn pass(&mut self, field: &Field) -> io::Result<()> {
        self.pass_within(field.value, MOST_DEEP)
    }

    fn pass_within(&mut self, value: Value, deep: u32) -> io::Result<()> {
        let kind = match value {
            Value::Known(kind) => kind,
            Value::Unknown(told) => return self.skip_within(told, deep),
        };
        // The nesting of known structs is bounded, but they can contain unknown ones.
        let Some(deep) = deep.checked_sub(1) else { return Err(nonsense("it nests too deep")) };
        match kind {
            Kind::Bool => Ok(()),
            Kind::I8 => self.byte().map(drop),
            Kind::I16 | Kind::I32 | Kind::I64 => self.varint().map(drop),
            Kind::Double => self.skip_bytes(8),
            Kind::Binary => {
                let length = self.varint()?;
                self.skip_bytes(length)
            }
            Kind::List(kind) => {
                let size = self.list_of(*kind)?;
                (0..size).try_for_each(|_| self.pass_within(Value::Known(*kind), deep))
            }
            Kind::Struct(fields) => {
                let mut last = 0;
                while let Some(field) = self.field(fields, &mut last)? {
                    self.pass_within(field.value, deep)?;
                }
                Ok(())
            }
        }
    }

    fn skip_within(&mut self, kind: u8, deep: u32) -> io::Result<()> {
        let Some(deep) = deep.checked_sub(1) else { return Err(nonsense("it nests too deep")) };
        match kind {
            // In a struct, a truth value is in the field's header.
            1 | 2 => Ok(()),
            3 => self.byte().map(drop),
            4..=6 => self.varint().map(drop),
            7 => self.skip_bytes(8),
            8 => {
                let length = self.varint()?;
                self.skip_bytes(length)
            }
            LIST | 10 => {
                let (kind, size) = self.list()?;
                (0..size).try_for_each(|_| self.skip_element(kind, deep))
            }
            11 => {
                let size = self.varint()?;
                if size == 0 {
                    return Ok(());
                }
                let kinds = self.byte()?;
                (0..size).try_for_each(|_| {
                    self.skip_element(kinds >> 4, deep).and_then(|()| self.skip_element(kinds & 0x0f, deep))
                })
            }
            STRUCT => {
                let mut last = 0;
                while let Some(field) = self.field(&[], &mut last)? {
                    self.pass_within(field.value, deep)?;
                }
                Ok(())
            }
            _ => Err(nonsense("a value has a type that does not exist")),
        }
    }

    /// Truth values in a list take a byte each by the format, but none in the decoder, so what follows them would be
    /// decoded at another place than it is checked. Parquet has no such lists.
    fn skip_element(&mut self, kind: u8, deep: u32) -> io::Result<()> {
        if kind <= 2 {
            return Err(nonsense("it has a list of truth values, which Parquet does not have"));
        }
        self.skip_within(kind, deep)
    }

    fn skip_bytes(&mut self, bytes: u64) -> io::Result<()> {
        let passed = io::copy(&mut self.input.by_ref().take(bytes), &mut io::sink())?;
        self.read += passed;
        if passed < bytes { Err(ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
    }
}

pub(super) fn nonsense(why: &'static str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, why)
}

#[cfg(test)]
mod tests {
    use super::super::structs::{FILE_META_DATA, PAGE_HEADER};
    use super::*;

    fn thrift(bytes: &[u8]) -> Thrift<&[u8]> {
        Thrift::new(bytes, bytes.len() as u64)
    }

    #[test]
    fn values_are_passed_over_whatever_they_are() {
        // {1: i32 5, 2: "ab", 3: [1, 2], 4: {1: double}, 9: {7: 8}}
        let bytes = [
            &[0x15, 10, 0x18, 2, b'a', b'b', 0x19, 0x25, 2, 4, 0x1c, 0x17, 0, 0, 0, 0, 0, 0, 0, 0, 0][..],
            &[0x0b, 18, 1, 0x55, 14, 16, 0],
        ]
        .concat();
        let mut reader = thrift(&bytes);
        reader.skip_within(STRUCT, MOST_DEEP).unwrap();
        assert_eq!(reader.position(), bytes.len() as u64);
    }

    /// The decoder skips them without reading a byte.
    #[test]
    fn truth_values_in_lists_and_maps_are_refused() {
        for (kind, bytes) in
            [(LIST, &[0x21, 1, 2][..]), (LIST, &[0x22, 1, 2]), (10, &[0x21, 1, 2]), (11, &[1, 0x15, 1, 2])]
        {
            let why = thrift(bytes).skip_within(kind, MOST_DEEP).unwrap_err().to_string();
            assert!(why.contains("truth values"), "{bytes:?}: {why}");
        }
        assert!(thrift(&[0x01]).skip_within(LIST, MOST_DEEP).is_ok(), "an empty one");
    }

    fn pass(fields: &'static Fields, bytes: &[u8]) -> io::Result<u64> {
        let mut reader = thrift(bytes);
        reader.pass_within(Value::Known(Kind::Struct(fields)), MOST_DEEP)?;
        Ok(reader.position())
    }

    /// The decoder reads the type that it expects, whatever type is stated: each of these hides bytes from the decoder
    /// or from the check.
    #[test]
    fn fields_of_another_type_are_refused() {
        for (name, fields, bytes) in [
            ("version as a text", FILE_META_DATA, &[0x18, 1, 0, 0][..]),
            ("rows as a list", FILE_META_DATA, &[0x39, 0x15, 2, 0]),
            ("a schema's name as a number", FILE_META_DATA, &[0x29, 0x1c, 0x45, 2, 0, 0]),
            ("a schema of numbers", FILE_META_DATA, &[0x29, 0x15, 2, 0]),
            ("a logical type as a text", FILE_META_DATA, &[0x29, 0x1c, 0xa8, 1, b'a', 0, 0]),
            ("a group's size as a text", FILE_META_DATA, &[0x49, 0x1c, 0x28, 1, b'a', 0, 0]),
            ("a chunk's offset as a text", FILE_META_DATA, &[0x49, 0x1c, 0x19, 0x1c, 0x28, 1, b'a', 0, 0, 0]),
            ("a column's codec as a text", FILE_META_DATA, &[0x49, 0x1c, 0x19, 0x1c, 0x3c, 0x48, 1, b'a', 0, 0, 0, 0]),
            ("a page's sum as a text", PAGE_HEADER, &[0x48, 1, b'a', 0]),
            ("an index's header as a text", PAGE_HEADER, &[0x68, 1, b'a', 0]),
            ("a page's encoding of levels as a text", PAGE_HEADER, &[0x5c, 0x38, 1, b'a', 0, 0]),
            ("a page's rows as a text", PAGE_HEADER, &[0x8c, 0x38, 1, b'a', 0, 0]),
            ("whether a dictionary is sorted, as a text", PAGE_HEADER, &[0x7c, 0x38, 1, b'a', 0, 0]),
        ] {
            let why = pass(fields, bytes).expect_err(name).to_string();
            assert!(why.contains("of another type"), "{name}: {why}");
        }
        // Fields that the decoder does not know have the type that they state.
        assert_eq!(pass(FILE_META_DATA, &[0x15, 2, 0xe8, 1, b'a', 0]).unwrap(), 6);
        assert_eq!(pass(PAGE_HEADER, &[0x15, 2, 0x7c, 0x15, 2, 0, 0xe8, 1, b'a', 0]).unwrap(), 10);
    }

    #[test]
    fn claims_cost_nothing() {
        // A list of 2⁶⁰ numbers, a text of 2⁶⁰ bytes, endlessly nested structs, an endless number.
        assert!(thrift(&[0xf5, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x10]).list().is_err());
        assert!(thrift(&[0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x10]).skip_within(8, MOST_DEEP).is_err());
        assert!(thrift(&[0x1c; 100_000]).skip_within(STRUCT, MOST_DEEP).unwrap_err().to_string().contains("too deep"));
        assert!(thrift(&[0xff; 20]).int().is_err());
    }
}
