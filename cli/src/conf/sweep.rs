//! Several values for a key: the combinations of all of them.

use anyhow::{Result, bail};

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
        let values = values_of(values);
        if let Some(empty) = values.iter().find(|value| value.is_empty() && values.len() > 1) {
            bail!("`{argument}` has an empty value{empty} between commas; give one value after the other: {name}=a,b");
        }
        if all.len().saturating_mul(values.len()) > MOST {
            bail!("there are more than {MOST} combinations; give fewer values, or several commands");
        }
        let is_swept = values.len() > 1;
        let longer = |before: &Combination, value: &&str| {
            // What has no `=` is refused where arguments are read.
            let one = if argument.contains('=') { format!("{name}={value}") } else { argument.clone() };
            let mut combination = Combination { arguments: before.arguments.clone(), swept: before.swept.clone() };
            combination.swept.extend(is_swept.then(|| one.clone()));
            combination.arguments.push(one);
            combination
        };
        all = all.iter().flat_map(|before| values.iter().map(move |value| longer(before, value))).collect();
    }
    Ok(all)
}

/// The parts between commas, of which those in quotes are none.
fn values_of(text: &str) -> Vec<&str> {
    let (mut values, mut from, mut quote) = (Vec::new(), 0, None);
    for (at, c) in text.char_indices() {
        match (c, quote) {
            (',', None) => {
                values.push(text[from..at].trim());
                from = at + 1;
            }
            ('"' | '\'', None) => quote = Some(c),
            (c, Some(open)) if c == open => quote = None,
            _ => {}
        }
    }
    values.push(text[from..].trim());
    values
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
        assert_eq!(swept(&["prompt=\"a, b\",'c'"]).unwrap(), ["prompt=\"a, b\"", "prompt='c'"]);
        assert!(swept(&["model=a,"]).unwrap_err().contains("empty value"));
        let many: Vec<String> = (0..200).map(|n| n.to_string()).collect();
        let many = format!("seed={}", many.join(","));
        assert!(swept(&[&many, &many.replace("seed", "batch")]).unwrap_err().contains("more than 1000"));
    }
}
