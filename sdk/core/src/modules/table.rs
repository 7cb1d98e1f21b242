//! The rules of candle's own models, by callsite.

use super::Operation;
use super::rules::Rule;
use rustc_hash::FxHashMap;
use std::sync::OnceLock;
use tracing_core::Metadata;

const TEXT: &str = include_str!("candle-transformers-0.11.1.txt");

struct Entry {
    name: &'static str,
    rule: Rule,
}

/// By module path below `candle_transformers::`, and line.
type Table = FxHashMap<(String, u32), Entry>;

/// The rule of a callsite, if it is one of candle's models.
pub(crate) fn of(metadata: &Metadata<'_>) -> Option<Rule> {
    let module = metadata.module_path()?;
    if let Some(how) = module.strip_prefix(TRACED_CANDLE_NN) {
        return Some(of_layer(how, metadata.name()).unwrap_or(Rule::Unknown));
    }
    let inside = module.strip_prefix("candle_transformers::")?;
    Some(rule(inside, metadata.line()?, metadata.name()).unwrap_or(Rule::Unknown))
}

/// Where candle-nn makes its spans once `candlescope trace-candle-nn` has given it some. The names are ours, so that no
/// line of a source is needed.
const TRACED_CANDLE_NN: &str = "candle_nn::candlescope::";

fn of_layer(how: &str, name: &str) -> Option<Rule> {
    let operation = match name {
        "linear" => Operation::Linear,
        "embedding" => Operation::Embedding,
        "layer-norm" | "rms-norm" | "group-norm" | "batch-norm" => Operation::Norm,
        "conv1d" | "conv2d" | "conv-transpose1d" | "conv-transpose2d" => Operation::Convolution,
        _ => return None,
    };
    match how {
        "read" => Some(Rule::Layer(operation)),
        "given" => Some(Rule::Made { operation, matrix: None }),
        _ => None,
    }
}

/// The rule of the span `name` that is made in a line of a module of candle-transformers.
fn rule(module: &str, line: u32, name: &str) -> Option<Rule> {
    static TABLE: OnceLock<Table> = OnceLock::new();
    let table = TABLE.get_or_init(|| entries().collect());
    table.get(&(module.to_owned(), line)).filter(|entry| entry.name == name).map(|entry| entry.rule)
}

fn entries() -> impl Iterator<Item = ((String, u32), Entry)> {
    TEXT.lines().filter_map(entry)
}

/// One line; `None` for comments. The tests hold every line to being read.
fn entry(line: &'static str) -> Option<((String, u32), Entry)> {
    if line.starts_with('#') {
        return None;
    }
    let mut words = line.split(' ');
    let (file, number) = words.next()?.split_once(':')?;
    let name = words.next()?;
    let kind = words.next()?;
    let operation = |words: &mut std::str::Split<'static, char>| match words.next()? {
        "linear" => Some(Operation::Linear),
        "embedding" => Some(Operation::Embedding),
        "norm" => Some(Operation::Norm),
        "convolution" => Some(Operation::Convolution),
        _ => None,
    };
    let rule = match kind {
        "group" => Rule::Group,
        "work" => Rule::Work,
        "head" => Rule::Head,
        "unseen" => Rule::Unseen,
        "before" => Rule::Before(operation(&mut words)?),
        "given" => Rule::Given(operation(&mut words)?),
        "after" => Rule::After { operation: operation(&mut words)?, part: None, weights: words.next()?.parse().ok()? },
        "waits" => {
            Rule::After { operation: operation(&mut words)?, part: words.next(), weights: words.next()?.parse().ok()? }
        }
        "shares" => Rule::Shares { part: words.next()? },
        // Parsed once in a process: the patterns live as long as it does.
        "batch" => Rule::Batch(operation(&mut words)?, words.collect::<Vec<_>>().leak()),
        _ => return None,
    };
    let module = file.strip_suffix(".rs")?;
    let module = module.strip_suffix("/mod").unwrap_or(module).replace('/', "::");
    Some(((module, number.parse().ok()?), Entry { name, rule }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_table_is_a_rule_of_its_own() {
        let lines = TEXT.lines().filter(|line| !line.starts_with('#')).count();
        let table: Table = entries().collect();
        assert_eq!((lines, table.len()), (284, 284));
        assert_eq!(rule("models::with_tracing", 58, "linear"), Some(Rule::Before(Operation::Linear)));
        assert_eq!(rule("models::with_tracing", 58, "rms-norm"), None, "of another version");
        assert_eq!(rule("models::llava", 1, "x"), None);
    }
}
