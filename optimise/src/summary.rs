//! The account for people, as Markdown.

use crate::account::{Account, OptimiseEnd, Phase, Verdict};
use crate::goal::Aim;
use crate::words::GOODPUT;
use crate::words::{gain, signed};
use candlescope_core::numbers::{bytes, duration, percent, significant};
use std::fmt::Write;

/// The text of `FINAL_OPTIMIZATION_SUMMARY.md`: what was gained, a row for each attempt, and the command to use.
pub fn markdown(account: &Account) -> String {
    let mut page = String::new();
    let _ = write!(page, "# Optimisation of {}\n\n", or(&account.model, "a program"));
    let device = match (account.hardware.as_str(), account.device.as_str()) {
        ("", device) => device.to_string(),
        // A journey knows the machine, and not what was asked for.
        (hardware, "") => hardware.to_string(),
        (hardware, device) => format!("{hardware} ({device})"),
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
    interactions(&mut page, account);
    second_looks(&mut page, account);
    by_hand(&mut page, account);
    setting(&mut page, account);
    page += "Gains are shares of the run's step time (all kinds of steps, each by its share; of several sequences, of each), \
             or of its requests' time where steps are others than before, \
             with 98 % intervals over pairs of runs in turns. Promised: the finding's gain, a replay of the step, or what the \
             run's texts foretell; labels and formulas: docs/findings.md, docs/what-if.md, docs/optimise.md. Runs are kept in `trials/` and `recorded/`, every sample is in \
             `study.json`.\n";
    page
}

fn or<'a>(text: &'a str, other: &'a str) -> &'a str {
    if text.is_empty() { other } else { text }
}

fn ended(account: &Account) -> &'static str {
    match account.ended {
        OptimiseEnd::Running => "It has not ended yet.",
        OptimiseEnd::AllTried => "Everything was tried.",
        OptimiseEnd::Budget => "The time was used up: a larger `--budget` tries more, and `--resume` goes on.",
        OptimiseEnd::Interrupted => "It was interrupted; `--resume` goes on.",
        OptimiseEnd::Failed => "A state could not be recorded, and it ended there.",
    }
}

fn head(page: &mut String, account: &Account) {
    let kept = account.phases.iter().filter(|phase| phase.verdict == Verdict::Kept).count();
    let good = account.goodput_in_words().filter(|_| kept > 0);
    match (account.total(), kept) {
        (_, 0) if account.phases.is_empty() => *page += "Nothing has been tried yet.\n\n",
        (total, _) if good.is_some() => good_head(page, account, &good.unwrap_or_default(), total),
        (_, 0) if account.aim == Aim::Goodput => {
            let is_judged = account.phases.iter().any(|phase| phase.verdict != Verdict::NotTried);
            let why = if is_judged {
                "nothing that was tried lets more requests keep all limits"
            } else {
                "nothing was judged"
            };
            let _ = write!(page, "**Nothing was kept: {why}.**\n\n");
        }
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
                "**{} of the {} is gone ({faster:.2} times as fast)**{measured}.\n",
                percent(total),
                account.total_of()
            );
        }
        _ => *page += "**Nothing was kept: nothing that was tried makes it faster.**\n\n",
    }
    let (promises, came_true) = account.promises();
    if promises > 0 {
        let _ = writeln!(page, "Of {promises} promises that were put to the test {came_true} came true.\n");
    }
}

/// Where goodput is the goal, it comes before the time of a step.
fn good_head(page: &mut String, account: &Account, good: &str, total: Option<f64>) {
    let whole = account.whole.as_ref().and_then(|whole| whole.obtained);
    let measured = if whole.is_some() { ", measured from the first state to the last" } else { "" };
    let _ = writeln!(page, "**{good}**{measured}.\n");
    if let Some(total) = total.filter(|_| account.has_step_times()) {
        let interval = whole.map_or_else(String::new, |whole| interval(whole.low, whole.high));
        let _ = writeln!(page, "The step time gains {}{interval}.\n", gain(total));
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

/// Remedies of which findings or a replay say that their gains are not to be added up.
fn interactions(page: &mut String, account: &Account) {
    if account.together.is_empty() {
        return;
    }
    *page += "## Remedies that interact\n\nGains as findings or the replay of a step have them: each by itself, and all at once.\n\n\
              | Remedies | Change | By themselves | Together | |\n|---|---|---|---|---|\n";
    for one in &account.together {
        let alone: Vec<String> = one.alone.iter().map(|share| gain(*share)).collect();
        let (low, mid, high) = one.together;
        let what = match one.tried_as_one {
            true if account.tried_as_one(one) => "more than their sum: tried as one",
            true => "more than their sum: a candidate for one",
            false => "no more than the larger: their sum is not promised",
        };
        let _ = writeln!(
            page,
            "| {} | `{}` | {} | {} ({} to {}) | {what} |",
            one.members.join(" + "),
            one.change.words(),
            alone.join(" + "),
            gain(mid),
            gain(low),
            gain(high)
        );
    }
    page.push('\n');
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
    if let Some(good) = step.and_then(|phase| phase.figure(GOODPUT)) {
        let (before, after) = (significant(good.before), significant(good.after));
        let _ = writeln!(page, "{before} requests a second kept all limits, and {after} do.\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::account::{BeforeAfter, Interaction, MeasuredGain};
    use crate::remedies::Answers;
    use crate::search::blank;
    use crate::setting::Change;

    #[test]
    fn goodput_comes_before_the_time_of_a_step_where_it_is_the_goal() {
        let figure =
            |name: &str, before: f64, after: f64| BeforeAfter { name: name.into(), before, after, change: None };
        let kept = |before: f64, after: f64| Phase {
            verdict: Verdict::Kept,
            obtained: Some(MeasuredGain { gain: -0.1, low: None, high: None }),
            figures: vec![figure("step_ns", 1e6, 1.1e6), figure(GOODPUT, before, after)],
            ..blank("batch", "More sequences", &Change::default().option("batch", 4), Answers::Rounded)
        };
        let mut account =
            Account { aim: Aim::Goodput, phases: vec![kept(2.0, 2.5), kept(2.4, 3.0)], ..Account::default() };
        let page = markdown(&account);
        let good = "**2.00 requests a second kept all limits, and 3.00 do (1.50 times as many)**.";
        let step = "The step time gains −21.0 %.";
        assert!(page.find(good).is_some_and(|at| page.find(step).is_some_and(|step| at < step)), "{page}");
        assert!(!page.contains("of the step time is gone"), "{page}");
        // What was measured as a whole counts.
        account.whole = Some(Box::new(kept(2.0, 4.0)));
        let page = markdown(&account);
        assert!(
            page.contains("and 4.00 do (2.00 times as many)**, measured from the first state to the last."),
            "{page}"
        );
        // For another aim, and where no request keeps the limits, the time of a step is all that there is.
        account.aim = Aim::Latency;
        assert!(markdown(&account).contains("of the step time is gone") && account.goodput().is_none());
        account = Account { aim: Aim::Goodput, phases: vec![kept(0.0, 0.0)], ..Account::default() };
        assert!(markdown(&account).contains("of the step time is gone") && account.goodput().is_none());
        account.phases[0].verdict = Verdict::Rejected;
        assert!(markdown(&account).contains("**Nothing was kept: nothing that was tried lets more requests keep"));
    }

    #[test]
    fn what_is_gone_is_called_what_it_is_a_share_of() {
        let kept = |other_steps| Phase {
            verdict: Verdict::Kept,
            obtained: Some(MeasuredGain { gain: 0.5, low: None, high: None }),
            other_steps,
            ..blank("one", "One", &Change::default(), Answers::Same)
        };
        let head = |phases: Vec<Phase>, whole: Option<bool>| {
            let whole = whole.map(|other_steps| Box::new(kept(other_steps)));
            markdown(&Account { phases, whole, ..Account::default() })
        };
        let says = |page: String, words: &str| assert!(page.contains(words), "{words}: {page}");
        says(head(vec![kept(false)], None), "**50.0 % of the step time is gone");
        says(head(vec![kept(true)], None), "**50.0 % of the time of requests is gone");
        says(head(vec![kept(false), kept(true)], None), "**75.0 % of the time is gone");
        says(head(vec![kept(false), kept(true)], Some(true)), "**50.0 % of the time of requests is gone");
        // What requests gained by the one that steps decided of: 20 %, and half of what was left.
        let mut steps = kept(false);
        let mean = BeforeAfter { name: "e2e_mean_ns".into(), before: 10.0, after: 8.0, change: None };
        steps.figures = vec![mean];
        says(head(vec![steps.clone(), kept(true)], None), "**60.0 % of the time of requests is gone");
        says(head(vec![steps], None), "**50.0 % of the step time is gone");
    }

    #[test]
    fn remedies_that_interact_are_named_with_what_was_said_of_them() {
        let told = |members: [&str; 2], tried_as_one| Interaction {
            members: members.map(str::to_string).to_vec(),
            change: Change::default().option("max-num-seqs", 1).option("quantize", "q8_0"),
            alone: vec![0.04, 0.08],
            together: (0.1, 0.2, 0.3),
            tried_as_one,
        };
        let mut account = Account::default();
        account.interact(vec![told(["slots", "weight_bits"], true), told(["slots", "threads"], false)]);
        let page = markdown(&account);
        let row = "| slots + weight_bits | `--max-num-seqs=1 --quantize=q8_0` | 4.0 % + 8.0 % | 20.0 % (10.0 % to 30.0 %) | \
                   more than their sum: a candidate for one |";
        assert!(page.contains(row), "{page}");
        assert!(page.contains("| no more than the larger: their sum is not promised |"), "{page}");
        // Only what was put to the test is said to have been.
        let of = |verdict| Phase {
            members: told(["slots", "weight_bits"], true).members,
            verdict,
            ..blank("slots+weight_bits", "Both", &told(["slots", "weight_bits"], true).change, Answers::Same)
        };
        account.phases = vec![of(Verdict::NotTried)];
        assert!(markdown(&account).contains("| more than their sum: a candidate for one |"));
        account.phases = vec![of(Verdict::Rejected)];
        assert!(markdown(&account).contains("| more than their sum: tried as one |"));
        account.phases.clear();
        // What a later state says of them takes its place.
        account.interact(vec![told(["slots", "weight_bits"], false)]);
        assert_eq!(account.together.len(), 2);
        assert!(!markdown(&account).contains("as one") && !markdown(&account).contains("a candidate for one"));
        assert!(!markdown(&Account::default()).contains("interact"));
    }
}
