//! Cuts an answer to what a client's context has room for, and says what was cut.

use serde_json::{Value, json};

/// Most bytes of an answer.
pub(super) const MOST_BYTES: usize = 32_000;
/// Of these, for saying what was cut.
const OF_CUTS: usize = 1_500;
/// Cuts that are told one by one.
const MOST_CUTS: usize = 12;
/// Characters of a text, where there is nothing else to cut.
const TEXTS: [usize; 2] = [2_000, 200];

/// The answer as text: an object with `cut` and `more` where something was left out.
///
/// # Errors
/// If it has too many keys to be made smaller, with what to ask instead.
pub(super) fn fitted(mut answer: Value, more: &str) -> Result<String, String> {
    if size(&answer) <= MOST_BYTES {
        return Ok(answer.to_string());
    }
    let most = MOST_BYTES - OF_CUTS;
    let mut cuts: Vec<(String, usize, usize)> = Vec::new();
    while size(&answer) > most {
        let over = size(&answer) - most;
        let Some(longest) = longest_list(&answer, String::new()) else { break };
        let Some(list) = answer.pointer_mut(&longest.at).and_then(Value::as_array_mut) else { break };
        let before = list.len();
        list.truncate(kept(before, longest.own, over));
        match cuts.iter_mut().find(|(at, ..)| *at == longest.at) {
            Some((_, kept, _)) => *kept = list.len(),
            None => cuts.push((longest.at, list.len(), before)),
        }
    }
    for characters in TEXTS {
        if size(&answer) > most {
            shorten(&mut answer, characters);
        }
    }
    if size(&answer) > most {
        return Err(format!("the answer has too many columns to be given in {MOST_BYTES} bytes: name fewer. {more}"));
    }
    if let Value::Object(object) = &mut answer {
        let told = cuts.iter().take(MOST_CUTS).map(|(at, kept, of)| json!({ "at": at, "kept": kept, "of": of }));
        object.insert("cut".into(), told.collect());
        object.insert("more".into(), more.into());
    }
    Ok(answer.to_string())
}

fn size(value: &Value) -> usize {
    value.to_string().len()
}

/// How many of a list stay that has so many bytes by itself, where so many are too much: half of it at least, so that each
/// of several long lists gives some.
fn kept(length: usize, own: usize, over: usize) -> usize {
    let room = own.saturating_sub(over);
    (length * room / own.max(1)).max(length / 2).clamp(1, length - 1)
}

/// A list, and its bytes without those of lists in it that can be cut.
struct LongestList {
    at: String,
    own: usize,
}

/// The list with the most bytes of its own, of more than one element.
fn longest_list(value: &Value, at: String) -> Option<LongestList> {
    fn look(value: &Value, at: &str, best: &mut Option<LongestList>) -> usize {
        let inside: usize = match value {
            Value::Array(list) => list.iter().enumerate().map(|(n, one)| look(one, &format!("{at}/{n}"), best)).sum(),
            Value::Object(map) => {
                let of = |(key, one): (&String, &Value)| {
                    look(one, &format!("{at}/{}", key.replace('~', "~0").replace('/', "~1")), best) + key.len() + 4
                };
                map.iter().map(of).sum()
            }
            other => other.to_string().len(),
        };
        if value.as_array().is_some_and(|list| list.len() > 1) {
            if best.as_ref().is_none_or(|best| inside > best.own) {
                *best = Some(LongestList { at: at.to_string(), own: inside });
            }
            // It can be cut by itself: around it, it does not count.
            return 0;
        }
        inside
    }
    let mut best = None;
    look(value, &at, &mut best);
    best
}

fn shorten(value: &mut Value, characters: usize) {
    match value {
        Value::String(text) => {
            if let Some((end, _)) = text.char_indices().nth(characters) {
                text.truncate(end);
                text.push('…');
            }
        }
        Value::Array(list) => list.iter_mut().for_each(|one| shorten(one, characters)),
        Value::Object(map) => map.values_mut().for_each(|one| shorten(one, characters)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fits_stays_as_it_is() {
        let small = json!({ "rows": [1, 2, 3] });
        assert_eq!(fitted(small.clone(), "more").unwrap(), small.to_string());
    }

    #[test]
    fn the_longest_list_is_cut_and_it_is_said() {
        let rows: Vec<Value> = (0..5_000).map(|n| json!({ "a": n, "b": "x" })).collect();
        let text = fitted(json!({ "columns": ["a", "b"], "rows": rows, "inner": [[1, 2], [3, 4]] }), "LIMIT").unwrap();
        let found: Value = serde_json::from_str(&text).unwrap();
        let kept = found["rows"].as_array().unwrap().len();
        assert!(text.len() <= MOST_BYTES && kept > 1_000, "{} bytes, {kept} rows", text.len());
        assert_eq!(found["cut"], json!([{ "at": "/rows", "kept": kept, "of": 5_000 }]));
        assert_eq!((&found["more"], &found["columns"]), (&json!("LIMIT"), &json!(["a", "b"])));
    }

    #[test]
    fn texts_and_many_keys() {
        let text = fitted(json!({ "a": "ä".repeat(1_000_000), "b": ["x".repeat(100_000), "y"] }), "more").unwrap();
        assert!(text.len() <= MOST_BYTES && text.contains('…'));
        let many: serde_json::Map<String, Value> = (0..10_000).map(|n| (format!("column {n}"), json!(n))).collect();
        assert!(fitted(Value::Object(many), "ask for less").unwrap_err().contains("ask for less"));
    }

    #[test]
    fn lists_of_lists_keep_their_outer_elements_where_they_can() {
        let inner: Vec<Value> = (0..4_000).map(|n| json!(n)).collect();
        let text = fitted(json!({ "devices": [{ "paths": inner.clone() }, { "paths": inner }] }), "more").unwrap();
        let found: Value = serde_json::from_str(&text).unwrap();
        assert!(text.len() <= MOST_BYTES);
        let kept = [0, 1].map(|at| found["devices"][at]["paths"].as_array().unwrap().len());
        assert!(kept.iter().all(|kept| *kept > 500), "both are cut alike: {kept:?}");
    }
}
