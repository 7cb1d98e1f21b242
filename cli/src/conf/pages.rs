//! The pages' tables of options: `UPDATE_DOCS=1 cargo test -p candlescope-cli --lib pages` writes them.

use super::declared::KEYS;
use super::key::Key;
use crate::command::Cli;
use candlescope_testkit::pages::hold_part;
use clap::CommandFactory;
use std::fmt::Write as _;

/// Help as a cell of a table, and the default that it names.
fn cells(help: &str) -> (String, String) {
    let (what, default) = help.split_once(" [default: ").unwrap_or((help, ""));
    let cell = |text: &str| text.replace('|', "\\|").replace('*', "\\*");
    (cell(what), cell(default.trim_end_matches(']')))
}

#[test]
fn options_of_profile() {
    let command = Cli::command();
    let profile = command.find_subcommand("profile").expect("the command");
    let mut text = String::from("| option | default | what |\n|---|---|---|\n");
    for arg in profile.get_arguments().filter(|arg| !arg.is_hide_set()) {
        let key = KEYS.iter().find(|key| !key.flag.is_empty() && key.option() == arg.get_id().as_str());
        let value = arg.get_value_names().map(|names| names.join(" ")).filter(|_| arg.get_action().takes_values());
        let mut names: Vec<String> = arg.get_short().map(|short| format!("-{short}")).into_iter().collect();
        match (key, arg.get_long(), value) {
            (Some(key), ..) => names.push(key.flag.to_string()),
            (None, Some(long), Some(value)) => names.push(format!("--{long} {value}")),
            (None, Some(long), None) => names.push(format!("--{long}")),
            (None, None, value) => names.extend(value),
        }
        let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
        let (what, default) = cells(&arg.get_help().map(ToString::to_string).unwrap_or_default());
        let _ = writeln!(text, "| {} | {default} | {what} |", names.join(", "));
    }
    hold_part("reference.md", "options of profile", &text);
}

#[test]
fn keys_of_groups() {
    let mut text = String::from("| group | keys |\n|---|---|\n");
    for group in super::keys::GROUPS.into_iter().chain([""]) {
        let keys: Vec<String> =
            KEYS.iter().filter(|key| key.group == group).map(|key| format!("`{}`", key.name)).collect();
        let group = if group.is_empty() { "none".to_string() } else { format!("`{group}`") };
        let _ = writeln!(text, "| {group} | {} |", keys.join(", "));
    }
    hold_part("configuration.md", "keys", &text);
}

/// Those of data sets have no flags for the most part, so the table of flags does not explain them.
#[test]
fn keys_of_data_sets() {
    let mut text = String::from("| key | what |\n|---|---|\n");
    let of_dataset =
        |key: &&Key| key.group == "dataset" && (key.flag.is_empty() || key.name == "path" || key.name == "variant");
    for key in KEYS.iter().filter(of_dataset) {
        let _ = writeln!(text, "| `{}` | {} |", key.path(), cells(&key.help()).0);
    }
    hold_part("configuration.md", "keys of data sets", &text);
}
