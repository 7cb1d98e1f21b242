//! Ranges of whole numbers, as llama-bench writes them.

/// A text is no list of whole numbers.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is no list of numbers ({reason}); write 1,4,16 or 128-512+128 or 1-32*2")]
pub struct RangeError {
    text: String,
    reason: String,
}

/// Most values of one list.
const MOST: usize = 1_000;

/// How a range goes on.
#[derive(Clone, Copy)]
enum Step {
    Plus(usize),
    Times(usize),
}

/// Reads `a,b,c`, `a-b` (step 1), `a-b+step` and `a-b*factor`, and lists of these. Values are at least 1, in the order
/// given, each once.
///
/// # Errors
/// When the text is something else.
///
/// ```
/// use candlescope_lab::suites::parse_range;
/// assert_eq!(parse_range("10,100-300+100,1-32*4")?, [10, 100, 200, 300, 1, 4, 16]);
/// # Ok::<(), candlescope_lab::suites::RangeError>(())
/// ```
pub fn parse_range(text: &str) -> Result<Vec<usize>, RangeError> {
    let mut values = expand(text, MOST)?;
    if values.len() > MOST {
        return Err(RangeError { text: text.to_string(), reason: format!("it has more than {MOST} values") });
    }
    let mut seen = std::collections::BTreeSet::new();
    values.retain(|value| seen.insert(*value));
    Ok(values)
}

/// All values that `text` names, in its order; one more than `most` where it names more than that.
pub(crate) fn expand(text: &str, most: usize) -> Result<Vec<usize>, RangeError> {
    let wrong = |reason: &str| RangeError { text: text.to_string(), reason: reason.to_string() };
    let number = |part: &str| match part.trim().parse::<usize>() {
        Ok(0) => Err(wrong("values are at least 1")),
        Ok(value) => Ok(value),
        Err(_) => Err(wrong(&format!("`{}` is no whole number", part.trim()))),
    };
    let mut values: Vec<usize> = Vec::new();
    for part in text.split(',') {
        let Some((first, rest)) = part.split_once('-') else {
            values.push(number(part)?);
            continue;
        };
        let (last, step) = match (rest.split_once('+'), rest.split_once('*')) {
            (Some((last, step)), _) => (last, Step::Plus(number(step)?)),
            (None, Some((last, factor))) => match number(factor)? {
                1 => return Err(wrong("a factor is at least 2")),
                factor => (last, Step::Times(factor)),
            },
            (None, None) => (rest, Step::Plus(1)),
        };
        let (first, last) = (number(first)?, number(last)?);
        if last < first {
            return Err(wrong("a range ends behind its beginning"));
        }
        let mut next = Some(first);
        while let Some(value) = next.filter(|value| *value <= last && values.len() <= most) {
            values.push(value);
            next = match step {
                Step::Plus(step) => value.checked_add(step),
                Step::Times(factor) => value.checked_mul(factor),
            };
        }
    }
    values.truncate(most + 1);
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form() {
        assert_eq!(parse_range("7").unwrap(), [7]);
        assert_eq!(parse_range("1,4, 8").unwrap(), [1, 4, 8]);
        assert_eq!(parse_range("3-6").unwrap(), [3, 4, 5, 6]);
        assert_eq!(parse_range("100-350+100").unwrap(), [100, 200, 300]);
        assert_eq!(parse_range("1-32*2").unwrap(), [1, 2, 4, 8, 16, 32]);
        assert_eq!(parse_range("4,1-4*2").unwrap(), [4, 1, 2], "each once");
    }

    #[test]
    fn mistakes_are_named() {
        for (text, why) in [
            ("", "no whole number"),
            ("a", "`a` is no whole number"),
            ("0", "at least 1"),
            ("1-", "no whole number"),
            ("9-3", "ends behind"),
            ("1-9+0", "at least 1"),
            ("1-9*1", "at least 2"),
            ("1-100000", "more than 1000"),
            ("-3", "no whole number"),
        ] {
            let message = parse_range(text).unwrap_err().to_string();
            assert!(message.contains(why) && message.contains("128-512+128"), "{text}: {message}");
        }
    }
}
