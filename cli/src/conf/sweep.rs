//! Several values for a key: the combinations of all of them.

use super::keys::is_private;
use anyhow::{Result, anyhow, bail};

/// Most combinations of one command: each is a process and a folder.
const MOST: usize = 1000;

/// One value for each argument.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Combination {
    /// All arguments.
    pub(super) arguments: Vec<String>,
    /// Those of which there were several.
    pub(super) swept: Vec<String>,
}

/// The combinations of the arguments' values, the last argument changing fastest.
pub(super) fn combinations(arguments: &[String]) -> Result<Vec<Combination>> {
    let mut all = vec![Combination { arguments: Vec::new(), swept: Vec::new() }];
    for argument in arguments {
        let (name, values) = argument.split_once('=').unwrap_or((argument, ""));
        let values = values_of(values).ok_or_else(|| {
            anyhow!("`{argument}` has a quote that is not closed; close it, or quote the whole value otherwise")
        })?;
        if let Some(empty) = values.iter().find(|value| value.is_empty() && values.len() > 1) {
            bail!("`{argument}` has an empty value{empty} between commas; give one value after the other: {name}=a,b");
        }
        if all.len().saturating_mul(values.len()) > MOST {
            bail!("there are more than {MOST} combinations; give fewer values, or several commands");
        }
        let is_swept = values.len() > 1;
        // Texts and addresses with their passwords would stand in names of folders and of runs.
        let shown = |at: usize, one: &str| {
            if is_private(name) { format!("{name}=value-{}", at + 1) } else { one.to_string() }
        };
        let longer = |before: &Combination, at: usize, value: &str| {
            // What has no `=` is refused where arguments are read.
            let one = if argument.contains('=') { format!("{name}={value}") } else { argument.clone() };
            let mut combination = Combination { arguments: before.arguments.clone(), swept: before.swept.clone() };
            combination.swept.extend(is_swept.then(|| shown(at, &one)));
            combination.arguments.push(one);
            combination
        };
        let each = |before| values.iter().enumerate().map(move |(at, value)| longer(before, at, value));
        all = all.iter().flat_map(each).collect();
    }
    Ok(all)
}

/// The parts between commas, of which those in quotes are none; a quote opens at the beginning of a value. `None` if one
/// is not closed.
fn values_of(text: &str) -> Option<Vec<&str>> {
    let (mut values, mut from, mut quote) = (Vec::new(), 0, None);
    for (at, c) in text.char_indices() {
        match (c, quote) {
            (',', None) => {
                values.push(text[from..at].trim());
                from = at + 1;
            }
            ('"' | '\'', None) if text[from..at].trim().is_empty() => quote = Some(c),
            (c, Some(open)) if c == open => quote = None,
            _ => {}
        }
    }
    values.push(text[from..].trim());
    quote.is_none().then_some(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn swept(arguments: &[&str]) -> Result<Vec<String>, String> {
        let arguments: Vec<String> = arguments.iter().map(ToString::to_string).collect();
        let all = combinations(&arguments).map_err(|e| e.to_string())?;
        Ok(all.iter().map(|c| c.swept.join(" ")).collect())
    }

    #[test]
    fn the_product_of_all_values() {
        assert_eq!(
            swept(&["model=a,b", "repeats=3", "batch=1,2"]).unwrap(),
            ["model=a batch=1", "model=a batch=2", "model=b batch=1", "model=b batch=2"]
        );
        assert_eq!(swept(&["repeats=3"]).unwrap(), [""]);
        assert_eq!(swept(&["model=\"a, b\",'c'"]).unwrap(), ["model=\"a, b\"", "model='c'"]);
        assert_eq!(swept(&["device=What's new,Tell me"]).unwrap(), ["device=What's new", "device=Tell me"]);
        assert!(swept(&["model='a,b"]).unwrap_err().contains("not closed"));
        assert!(swept(&["model=a,"]).unwrap_err().contains("empty value"));
        let many: Vec<String> = (0..200).map(|n| n.to_string()).collect();
        let many = format!("seed={}", many.join(","));
        assert!(swept(&[&many, &many.replace("seed", "batch")]).unwrap_err().contains("more than 1000"));
    }

    #[test]
    fn what_is_private_stands_in_no_name() {
        assert_eq!(
            swept(&["dataset.prompt=my secret A,my secret B"]).unwrap(),
            ["dataset.prompt=value-1", "dataset.prompt=value-2"]
        );
        assert_eq!(swept(&["otlp=http://u:pw@a,http://b"]).unwrap(), ["otlp=value-1", "otlp=value-2"]);
    }
}
