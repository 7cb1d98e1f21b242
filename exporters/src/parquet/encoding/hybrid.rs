//! Parquet's RLE / bit-packing hybrid, the encoding of dictionary indices and definition levels.
//!
//! Format: <https://parquet.apache.org/docs/file-format/data-pages/encodings/>.

/// Runs at least this long are cheaper as a run than bit-packed.
const MIN_RUN: usize = 8;

/// Bits needed for indices below `len`; at least one, because not every reader takes zero.
pub(in crate::parquet) fn bit_width(len: usize) -> u8 {
    let largest = u32::try_from(len.saturating_sub(1)).unwrap_or(u32::MAX);
    (32 - largest.leading_zeros()).max(1) as u8
}

/// Appends `count` times `value`.
pub(in crate::parquet) fn put_run(out: &mut Vec<u8>, value: u32, count: usize, width: u8) {
    if count > 0 {
        put_varint(out, (count as u64) << 1);
        let bytes = usize::from(width).div_ceil(8);
        out.extend_from_slice(&value.to_le_bytes()[..bytes]);
    }
}

/// Appends `values`, each below `2^width`. Only the last call for a page may have a length that is not a multiple of
/// eight, as bit-packed groups are padded.
pub(in crate::parquet) fn put_values(out: &mut Vec<u8>, values: &[u32], width: u8) {
    let mut at = 0;
    // Start of the values collected for the bit-packed run that is open.
    let mut packed_from = 0;
    while at < values.len() {
        let run = run_length(&values[at..]);
        if run >= MIN_RUN {
            put_packed(out, &values[packed_from..at], width);
            put_run(out, values[at], run, width);
            at += run;
            packed_from = at;
        } else {
            // Bit-packed runs hold whole groups of eight, so a run may begin only at a group's border.
            at = (at + 8).min(values.len());
        }
    }
    put_packed(out, &values[packed_from..], width);
}

fn run_length(values: &[u32]) -> usize {
    let first = values[0];
    values.iter().position(|v| *v != first).unwrap_or(values.len())
}

fn put_packed(out: &mut Vec<u8>, values: &[u32], width: u8) {
    if values.is_empty() {
        return;
    }
    let groups = values.len().div_ceil(8);
    put_varint(out, ((groups as u64) << 1) | 1);
    out.reserve(groups * usize::from(width));
    let (mut bits, mut filled) = (0u64, 0u32);
    let padding = groups * 8 - values.len();
    for value in values.iter().copied().chain(std::iter::repeat_n(0, padding)) {
        bits |= u64::from(value) << filled;
        filled += u32::from(width);
        if filled >= 32 {
            out.extend_from_slice(&(bits as u32).to_le_bytes());
            bits >>= 32;
            filled -= 32;
        }
    }
    // Eight values of `width` bits are `width` whole bytes.
    while filled > 0 {
        out.push(bits as u8);
        bits >>= 8;
        filled -= 8;
    }
}

fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn decode(bytes: &[u8], count: usize, width: u8) -> Vec<u32> {
        let mut out = Vec::new();
        let mut at = 0;
        while out.len() < count {
            let (mut header, mut shift) = (0u64, 0);
            loop {
                let byte = bytes[at];
                at += 1;
                header |= u64::from(byte & 0x7f) << shift;
                shift += 7;
                if byte & 0x80 == 0 {
                    break;
                }
            }
            if header & 1 == 0 {
                let n = usize::from(width).div_ceil(8);
                let mut value = [0u8; 4];
                value[..n].copy_from_slice(&bytes[at..at + n]);
                at += n;
                out.extend(std::iter::repeat_n(u32::from_le_bytes(value), (header >> 1) as usize));
            } else {
                let values = (header >> 1) as usize * 8;
                for i in 0..values {
                    let mut value = 0u32;
                    for bit in 0..usize::from(width) {
                        let position = i * usize::from(width) + bit;
                        value |= u32::from(bytes[at + position / 8] >> (position % 8) & 1) << bit;
                    }
                    out.push(value);
                }
                at += values * usize::from(width) / 8;
            }
        }
        assert_eq!(at, bytes.len(), "bytes left over");
        out.truncate(count);
        out
    }

    #[test]
    fn widths() {
        assert_eq!([1, 2, 3, 4, 5, 256, 257].map(bit_width), [1, 1, 2, 2, 3, 8, 9]);
    }

    #[test]
    fn a_constant_costs_a_few_bytes() {
        let mut out = Vec::new();
        put_run(&mut out, 0, 120_000, 1);
        assert_eq!(out.len(), 4);
        assert_eq!(decode(&out, 120_000, 1), vec![0; 120_000]);
    }

    proptest! {
        #[test]
        fn round_trips(runs in prop::collection::vec((0u32..1000, 1usize..40), 0..60), wide in prop::bool::ANY) {
            let width = if wide { 17 } else { 10 };
            let values: Vec<u32> = runs.into_iter().flat_map(|(v, n)| std::iter::repeat_n(v, n)).collect();
            let mut out = Vec::new();
            put_values(&mut out, &values, width);
            prop_assert_eq!(decode(&out, values.len(), width), values);
        }
    }
}
