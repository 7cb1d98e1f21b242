//! Disturbances as a person reads them: each once, with the process starts that it was found before.

use std::collections::BTreeSet;

/// What [`Records`](super::Records) puts before a sentence: `process 0: `.
pub(super) const PROCESS: &str = "process ";

/// Sentences of a study's process starts, as `study.json` has them, each once: those that differ in their numbers alone
/// have the range of these. Starts are counted from 1.
///
/// ```
/// use candlescope_lab::study::told_once;
/// let kept = ["process 0: others use 2.0 of 2 cores", "process 1: others use 1.7 of 2 cores"].map(str::to_string);
/// assert_eq!(told_once(&kept), ["starts 1 and 2: others use 1.7 to 2.0 of 2 cores"]);
/// ```
pub fn told_once(disturbances: &[String]) -> Vec<String> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    for text in disturbances {
        let (process, sentence) = parted(text);
        let words: Vec<&str> = sentence.split(' ').collect();
        match groups.iter_mut().find(|group| group.takes(&words)) {
            Some(group) => group.add(process, &words),
            None => groups.push(Group::new(process, &words)),
        }
    }
    groups.into_iter().map(Group::told).collect()
}

fn parted(text: &str) -> (Option<u32>, &str) {
    let parts = text.strip_prefix(PROCESS).and_then(|rest| rest.split_once(": "));
    match parts.and_then(|(number, sentence)| Some((number.parse().ok()?, sentence))) {
        Some((process, sentence)) => (Some(process), sentence),
        None => (None, text),
    }
}

/// Sentences with the same words, and numbers at the same places.
struct Group<'a> {
    processes: BTreeSet<u32>,
    /// Of each word the smallest and the largest; both are the same but for numbers.
    words: Vec<(&'a str, &'a str)>,
}

impl<'a> Group<'a> {
    fn new(process: Option<u32>, words: &[&'a str]) -> Self {
        Self { processes: process.into_iter().collect(), words: words.iter().map(|word| (*word, *word)).collect() }
    }

    fn takes(&self, words: &[&str]) -> bool {
        let same = |((known, _), word): (&(&str, &str), &&str)| known == word || (number(known) && number(word));
        self.words.len() == words.len() && self.words.iter().zip(words).all(same)
    }

    fn add(&mut self, process: Option<u32>, words: &[&'a str]) {
        self.processes.extend(process);
        for ((low, high), word) in self.words.iter_mut().zip(words) {
            if value(word) < value(low) {
                *low = word;
            }
            if value(word) > value(high) {
                *high = word;
            }
        }
    }

    fn told(self) -> String {
        let word =
            |(low, high): &(&str, &str)| if low == high { (*low).to_string() } else { format!("{low} to {high}") };
        let sentence = self.words.iter().map(word).collect::<Vec<_>>().join(" ");
        match starts(&self.processes) {
            Some(starts) => format!("{starts}: {sentence}"),
            None => sentence,
        }
    }
}

fn number(word: &str) -> bool {
    word.parse::<f64>().is_ok()
}

/// Not a number where it is none, which is neither smaller nor larger than anything.
fn value(word: &str) -> f64 {
    word.parse().unwrap_or(f64::NAN)
}

/// `start 1`, `starts 1 and 2`, `starts 1 to 3`, `starts 1 to 3 and 5`.
fn starts(processes: &BTreeSet<u32>) -> Option<String> {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for start in processes.iter().map(|process| process + 1) {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == start => *last = start,
            _ => runs.push((start, start)),
        }
    }
    let shown = |(first, last): &(u32, u32)| match last - first {
        0 => first.to_string(),
        1 => format!("{first} and {last}"),
        _ => format!("{first} to {last}"),
    };
    let list: Vec<String> = runs.iter().map(shown).collect();
    let word = if processes.len() == 1 { "start" } else { "starts" };
    (!list.is_empty()).then(|| format!("{word} {}", list.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disturbance_of_several_starts_is_told_once() {
        let busy = |process: u32, cores: &str| {
            format!("process {process}: other processes use {cores} of 2 cores: times are longer")
        };
        let kept = [busy(0, "2.0"), busy(1, "2.0"), busy(2, "2.0"), "process 1: the GPU is shared".to_string()];
        assert_eq!(
            told_once(&kept),
            ["starts 1 to 3: other processes use 2.0 of 2 cores: times are longer", "start 2: the GPU is shared"]
        );
        let kept = [busy(0, "0.9"), busy(1, "10.5"), busy(4, "2.0")];
        let told = told_once(&kept);
        assert_eq!(told, ["starts 1 and 2, 5: other processes use 0.9 to 10.5 of 2 cores: times are longer"]);
        assert_eq!(told_once(&["of another form".to_string()]), ["of another form"]);
        assert!(told_once(&[]).is_empty());
    }
}
