//! The W3C `traceparent` header, <https://www.w3.org/TR/trace-context/>: by it a request states whose trace it belongs
//! to.

/// Trace id, parent's span id, and whether the caller's trace is recorded. `None` if the text is no such header.
pub fn parts(header: &str) -> Option<(u128, u64, bool)> {
    let mut parts = header.trim().split('-');
    let mut next = |digits| parts.next().and_then(|part| hex(part, digits));
    let version = next(2)?;
    let (trace_id, parent_id, flags) = (next(32)?, next(16)?, next(2)?);
    // Later versions may append further parts, version 0 may not; 255 is not a version.
    let more = parts.next().is_some();
    let parent_id = u64::try_from(parent_id).ok()?;
    if version == 0xff || (version == 0 && more) || trace_id == 0 || parent_id == 0 {
        return None;
    }
    Some((trace_id, parent_id, flags & 1 == 1))
}

/// Exactly `digits` lower-case hex digits, as the header requires.
pub fn hex(text: &str, digits: usize) -> Option<u128> {
    let lower = text.len() == digits && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    if lower {
        u128::from_str_radix(text, 16).ok()
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_header_says_whose_trace_it_is() {
        let read = Some((0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736, 0x00f0_67aa_0ba9_02b7, true));
        assert_eq!(parts(GOOD), read);
        assert_eq!(parts(&GOOD.replace("-01", "-00")).map(|(_, _, sampled)| sampled), Some(false));
        // A future version with a further part.
        assert_eq!(parts(&format!("cc{}-more", &GOOD[2..])), read);
    }

    #[test]
    fn anything_else_is_refused() {
        let bad = [
            "",
            "00",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
            "00-4bf92f3577b34da6a3ce929d0e0e473-00f067aa0ba902b7-01",
            "00-+bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
        ];
        for text in bad {
            assert_eq!(parts(text), None, "{text}");
        }
    }
}
