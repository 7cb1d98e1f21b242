//! The account for people, as Markdown.

use crate::account::{Account, Ended, Phase, Verdict};
use crate::words::{gain, signed};
use candlescope_core::numbers::{bytes, duration, percent};
use std::fmt::Write;

/// `FINAL_OPTIMIZATION_SUMMARY.md`.
pub fn markdown(account: &Account) -> String {
    let mut page = String::new();
    let _ = write!(page, "# Optimisation of {}\n\n", or(&account.model, "a program"));
    let device = if account.hardware.is_empty() {
        account.device.clone()
    } else {
        format!("{} ({})", account.hardware, account.device)
    };
    let _ = writeln!(
        page,
        "{}, for {}, {:.0} s. {}\n",
        or(&device, "this machine"),
        account.aim.as_str(),
        account.seconds,
        ended(account)
    );
    if let Some(error) = &account.error {
        let _ = writeln!(page, "Error: {}\n", cell(error));
    }
    head(&mut page, account);
    table(&mut page, account);
    second_looks(&mut page, account);
    by_hand(&mut page, account);
    setting(&mut page, account);
    page += "Gains are shares of the run's step time (all kinds of steps, each by its share; of several sequences, of each), \
             with 98 % intervals over pairs of runs in turns. Promised: the finding's gain, or a replay of the step; labels \
             and formulas: docs/findings.md, docs/what-if.md. Runs are kept in `trials/` and `recorded/`, every sample is in \
             `study.json`.\n";
    page
}

fn or<'a>(text: &'a str, other: &'a str) -> &'a str {
    if text.is_empty() { other } else { text }
}

fn ended(account: &Account) -> &'static str {
    match account.ended {
        Ended::Running => "It has not ended yet.",
        Ended::AllTried => "Everything was tried.",
        Ended::Budget => "The time was used up: a larger `--budget` tries more, and `--resume` goes on.",
        Ended::Interrupted => "It was interrupted; `--resume` goes on.",
        Ended::Failed => "A state could not be recorded, and it ended there.",
    }
}

fn head(page: &mut String, account: &Account) {
    let kept = account.phases.iter().filter(|phase| phase.verdict == Verdict::Kept).count();
    match (account.total(), kept) {
        (_, 0) if account.phases.is_empty() => *page += "Nothing has been tried yet.\n\n",
        (Some(total), kept) if kept > 0 => {
            let measured = match account.whole.as_ref().and_then(|whole| whole.obtained) {
                Some(whole) => {
                    format!(", measured from the first state to the last{}", interval(whole.low, whole.high))
                }
                None if kept > 1 => ", what its steps come to (not measured as a whole)".to_string(),
                None => String::new(),
            };
            let faster = account.times_as_fast().unwrap_or(1.0);
            let _ = writeln!(
                page,
                "**{} of the step time is gone ({faster:.2} times as fast)**{measured}.\n",
                percent(total)
            );
        }
        _ => *page += "**Nothing was kept: nothing that was tried makes it faster.**\n\n",
    }
    let (promises, came_true) = account.promises();
    if promises > 0 {
        let _ = writeln!(
            page,
            "Of {promises} promises that were put to the test {came_true} came true within their bounds.\n"
        );
    }
}

fn table(page: &mut String, account: &Account) {
    if account.phases.is_empty() {
        return;
    }
    *page += "| # | Remedy | Change | Promised | Obtained | Quality | Memory | May cost | |\n|---|---|---|---|---|---|---|---|---|\n";
    for (at, phase) in account.phases.iter().chain(account.whole.as_deref()).enumerate() {
        let promised = phase.promised.as_ref().map_or_else(dash, |promised| {
            let by =
                promised.simulated.as_ref().map_or(promised.code.clone(), |change| format!("`--what-if {change}`"));
            format!("{} ({} to {}), {by}", gain(promised.mid), gain(promised.low), gain(promised.high))
        });
        let obtained = phase
            .obtained
            .map_or_else(dash, |obtained| format!("{}{}", gain(obtained.gain), interval(obtained.low, obtained.high)));
        let change = match phase.change.words() {
            words if words.is_empty() => dash(),
            words => format!("`{words}`"),
        };
        let _ = writeln!(
            page,
            "| {} | {} | {change} | {promised} | {obtained} | {} | {} | {} | **{}**: {} |",
            at + 1,
            phase.title,
            quality(phase),
            memory(phase),
            or(&phase.cost, "–"),
            phase.verdict.words(),
            cell(&phase.why)
        );
    }
    page.push('\n');
}

fn dash() -> String {
    "–".to_string()
}

/// A text inside a cell.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

fn interval(low: Option<f64>, high: Option<f64>) -> String {
    low.zip(high).map_or_else(String::new, |(low, high)| format!(" ({} to {})", gain(low), gain(high)))
}

fn quality(phase: &Phase) -> String {
    match (&phase.quality, phase.same_tokens) {
        (Some(found), _) => {
            let error = found.kl_error.map_or_else(String::new, |error| format!(" ± {error:.4}"));
            format!("KL {:.4}{error}, same top token {}", found.kl, percent(found.same_top))
        }
        (None, Some(true)) => "same tokens".to_string(),
        (None, Some(false)) => "other tokens".to_string(),
        (None, None) => dash(),
    }
}

fn memory(phase: &Phase) -> String {
    let figure = phase.figure("gpu_memory_bytes").or_else(|| phase.figure("peak_memory_bytes"));
    figure.map_or_else(dash, |figure| {
        let change = figure.after / figure.before - 1.0;
        let change = if change.is_finite() { format!(" ({})", signed(change)) } else { String::new() };
        format!("{}{change}", bytes(figure.after))
    })
}

fn second_looks(page: &mut String, account: &Account) {
    let missed: Vec<(usize, &Phase)> =
        account.phases.iter().enumerate().filter(|(_, phase)| !phase.second_look.is_empty()).collect();
    if missed.is_empty() {
        return;
    }
    *page += "## Promises that did not come true\n\n";
    for (at, phase) in missed {
        let _ = writeln!(
            page,
            "{}. {} (`{}`): {}.\n",
            at + 1,
            phase.title,
            phase.change.words(),
            phase.second_look.join("; ")
        );
    }
}

fn by_hand(page: &mut String, account: &Account) {
    if account.by_hand.is_empty() {
        return;
    }
    *page += "## Left for people\n\nNo option of the program answers these. `candlescope optimise --try 'COMMAND'` measures a \
              change that a command makes: a variable, a flag, another binary.\n\n| Finding | Where | Would gain | |\n|---|---|---|---|\n";
    for left in &account.by_hand {
        let (low, mid, high) = left.gain;
        let _ = writeln!(
            page,
            "| `{}` | `{}` | {} ({} to {}) | {} |",
            left.code,
            left.place,
            gain(mid),
            gain(low),
            gain(high),
            cell(&left.remedy)
        );
    }
    page.push('\n');
}

fn setting(page: &mut String, account: &Account) {
    if account.setting == account.baseline {
        return;
    }
    let _ = writeln!(page, "## What it came to\n\n```sh\n{}\n```\n", account.last_command);
    let step = account.whole.as_deref().or_else(|| account.phases.iter().rfind(|phase| phase.verdict == Verdict::Kept));
    let per_sequence = step.is_some_and(|phase| phase.per_sequence);
    if let Some(step) = step.and_then(|phase| phase.figure("step_ns")) {
        let each = if per_sequence { ", for each sequence" } else { "" };
        let (before, after) = (duration(step.before), duration(step.after));
        let _ = writeln!(page, "A typical step took {before} and takes {after}{each}.\n");
    }
}
