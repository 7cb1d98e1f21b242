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
