//! `candlescope explain`: what the code of a finding means.

use crate::output::say;
use anyhow::{Error, Result};
use candlescope_core::nearest::suggest;
use candlescope_figures::ExplainedCode;
use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use clap::{Arg, Args, Command};
use std::ffi::OsStr;

pub(crate) const EXAMPLES: &str = "\
Examples:
  candlescope explain launch_bound
      when a finding of `analyze` is reported, and how its gain is computed
  candlescope explain ring_full
      what a finding of the verdict means, and what to do";

#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    /// Code of a finding, or name of what a run lacks to judge one
    #[arg(value_name = "CODE", value_parser = CodeParser, hide_possible_values = true)]
    code: String,
    /// Print one machine-readable object on standard output instead of text
    #[arg(long)]
    json: bool,
}

/// Takes any text, so that an unknown code is answered with the nearest one and not with all; shells complete the known
/// ones.
#[derive(Debug, Clone)]
struct CodeParser;

impl TypedValueParser for CodeParser {
    type Value = String;

    fn parse_ref(&self, command: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<String, clap::Error> {
        StringValueParser::new().parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(ExplainedCode::all().map(|known| PossibleValue::new(known.code))))
    }
}

pub(crate) fn run(args: &ExplainArgs) -> Result<()> {
    let found = explained(&args.code).map_err(Error::msg)?;
    if args.json { say(&serde_json::to_string(&found)?) } else { say(&text(&found)) }
}

/// What a code means.
///
/// # Errors
/// If there is none of this name, with one that may be meant.
pub(crate) fn explained(code: &str) -> Result<ExplainedCode, String> {
    ExplainedCode::named(code).ok_or_else(|| {
        let meant = suggest(code, ExplainedCode::all().map(|known| known.code));
        format!("there is no finding `{code}`{meant}: codes stand in the answers of `overview` and `analyze`")
    })
}

fn text(found: &ExplainedCode) -> String {
    let mut lines = vec![format!("{}, about {}", found.code, found.about), found.meaning.to_string()];
    let severity = found.severity.map(|severity| severity.as_str());
    let parts = [
        ("Severity", severity),
        ("Reported when", found.reported_when),
        ("Gain", found.gain),
        ("What to do", found.remedy),
        ("How to record it", found.record),
    ];
    lines.extend(parts.into_iter().filter_map(|(what, says)| says.map(|says| format!("{what}: {says}"))));
    lines.push(format!("See {}", found.page));
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_told_in_the_words_of_its_list_and_an_unknown_one_leads_to_the_nearest() {
        let told = |code: &str| text(&explained(code).unwrap());
        assert!(told("launch_bound").contains("\nReported when: gaps whose launch"), "{}", told("launch_bound"));
        assert!(told("ring_full").contains("\nSeverity: error\nWhat to do: "), "{}", told("ring_full"));
        assert!(told("kernels").contains("\nHow to record it: "), "{}", told("kernels"));
        assert!(explained("launch_bond").unwrap_err().contains("launch_bound"));
    }
}
