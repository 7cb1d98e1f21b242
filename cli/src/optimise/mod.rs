//! `candlescope optimise`: remedies applied, and proven.

mod final_state;
mod optimise_args;
mod rests_on;

pub(crate) use optimise_args::{EXAMPLES, GoalName, OptimiseArgs};

use crate::bench::operations::cancel_on_interrupt;
use crate::conf::is_private;
use crate::kept_between_runs::ledger_path;
use crate::limits::limits;
use crate::output::{note, say};
use crate::progress::Progress;
use crate::this_program::this_program;
use anyhow::{Context, Result, bail};
use candlescope_core::numbers::percent;
use candlescope_optimise::{
    Account, Aim, Change, Goal, OptimiseEnd, OptimiseOptions, Phase, Program, SUMMARY, Setting, Verdict, gain,
    optimise, read,
};
use serde_json::json;
use std::path::Path;

/// Optimises, and returns the exit status: 130 after an interrupt.
pub(crate) fn run(args: &OptimiseArgs) -> Result<u8> {
    if cfg!(windows) {
        bail!(
            "optimise starts programs by a shell that Windows does not have: use it in the Windows Subsystem for Linux"
        );
    }
    let (options, done) = prepared(args)?;
    let quiet = args.no_progress || args.json;
    // What is started is said whatever else is: on standard error, so that an object on standard output stays alone.
    note(&format!(
        "Starts programs for up to {:.0} s in all, and names each before; every start has a directory of its own below {}, for \
         which {{out}} stands",
        options.budget.as_secs_f64(),
        options.out.display()
    ));
    let cancel = cancel_on_interrupt(|| note("ending; what is known is kept"));
    let progress = Progress::new(!quiet);
    let mut told = String::new();
    let account = optimise(&options, done, &cancel, &mut |course| {
        if !course.starts.is_empty() {
            progress.aside(|| course.starts.iter().for_each(|line| note(line)));
            return;
        }
        let left = course.left.as_secs();
        let doing = format!("{} ({}:{:02} left)", course.doing, left / 60, left % 60);
        progress.wait(&doing);
        // Without a terminal, each step once.
        let step = course.doing.split(':').next().unwrap_or_default();
        if progress.in_lines() && told != step {
            told = step.to_string();
            note(&format!("progress: {doing}"));
        }
    });
    progress.clear();
    let account = account?;
    // Of commands that somebody wrote, there is no last state.
    let program = options.tries.is_empty().then_some(&options.program);
    let kept = if program.is_some() && account.setting != account.baseline {
        final_state::write(&account, &options)?
    } else {
        Vec::new()
    };
    show(&account, &kept, program, &options.out, args.json)?;
    // With the time used up before anything was tried there is nothing that anybody could use.
    let nothing = account.ended == OptimiseEnd::Budget && account.phases.is_empty();
    if let Some(error) = &account.error {
        let word = if account.ended == OptimiseEnd::Budget && !nothing { "note" } else { "error" };
        note(&format!("{word}: {error}"));
    }
    Ok(match account.ended {
        OptimiseEnd::Interrupted => 130,
        OptimiseEnd::Failed => 1,
        _ if nothing => 1,
        _ => 0,
    })
}

fn prepared(args: &OptimiseArgs) -> Result<(OptimiseOptions, Option<Account>)> {
    let (mut change, mut words) = (Change::default(), Vec::new());
    let is_setting = |word: &str| word.split_once('=').is_some_and(|(key, _)| !key.contains(['/', '\\']));
    match args.words.split_first() {
        Some((model, rest)) if !is_setting(model) => {
            change = change.option("model", model);
            words.extend(rest.iter().cloned());
        }
        _ => words.extend(args.words.iter().cloned()),
    }
    if let Some(word) = words.iter().find(|word| !is_setting(word)) {
        bail!("`{word}` is neither a group's file nor a key's value, such as runtime=short or repeats=3");
    }
    let rests_on = rests_on::rests_on(change.options.get("model").and_then(Option::as_deref), &words, &args.flags)?;
    let (mut private, words): (Vec<String>, Vec<String>) =
        words.into_iter().partition(|word| word.split_once('=').is_some_and(|(key, _)| is_private(key)));
    let mut out = None;
    for (option, value) in args.flags.words() {
        match option {
            "out" => out = Some(std::path::PathBuf::from(value)),
            option if is_private(option) => private.push(format!("--{option}={value}")),
            option => change = change.option(option, value),
        }
    }
    let out = crate::out_dir::chosen(out.as_deref(), "optimise", args.resume)?;
    let out = std::path::absolute(&out).with_context(|| format!("cannot use {}", out.display()))?;
    if !args.resume {
        crate::out_dir::must_be_empty(&out, ", or go on with --resume")?;
    }
    let program = this_program()?;
    let baseline = Setting::default().with(&change);
    let mut options = OptimiseOptions::new(Program { program, words, private }, baseline, out);
    options.goal = Goal::new(args.goal.into(), args.slo.unwrap_or_default(), args.quality);
    options.budget = args.budget;
    options.pairs = usize::from(args.pairs);
    options.tries.clone_from(&args.tries);
    options.promises.clone_from(&args.promises);
    if options.promises.len() > options.tries.len() {
        let (promises, tries) = (options.promises.len(), options.tries.len());
        bail!("there are {promises} promises for {tries} commands: give a --try for each");
    }
    options.run.clone_from(&args.run);
    options.ledger = ledger_path().filter(|_| !args.no_ledger);
    options.limits = limits(&args.limits)?;
    options.prepare = crate::kept_between_runs::add_kept;
    options.rests_on = rests_on;
    if args.slo.is_none() && options.goal.aim == Aim::Goodput {
        bail!("goodput is that of requests within limits: give them with --slo, such as --slo tpot=50ms");
    }
    let done = if args.resume { Some(read(&options)?) } else { None };
    Ok((options, done))
}

/// Says what came out, as one object or in lines. `program` is what the last state is run with, if that is known.
pub(crate) fn show(
    account: &Account,
    kept: &[String],
    program: Option<&Program>,
    out: &Path,
    as_json: bool,
) -> Result<()> {
    if as_json {
        let object = json!({ "schema": 1, "study": out, "account": account, "total_gain": account.total() });
        return say(&object.to_string());
    }
    for phase in &account.phases {
        let promised = phase.promised.as_ref().map_or_else(String::new, |promised| {
            format!(", promised {} ({} to {})", gain(promised.mid), gain(promised.low), gain(promised.high))
        });
        let obtained =
            phase.obtained.map_or_else(String::new, |obtained| format!(", obtained {}", gain(obtained.gain)));
        let change = phase.change.words();
        let change = if change.is_empty() { phase.title.clone() } else { change };
        say(&format!("{:>9}  {change}{promised}{obtained}: {}", phase.verdict.words(), phase.why))?;
    }
    for one in &account.together {
        let (members, (low, mid, high)) = (one.members.join(" + "), one.together);
        let alone: Vec<String> = one.alone.iter().map(|share| gain(*share)).collect();
        let what = match one.tried_as_one {
            true if account.tried_as_one(one) => "so they were tried as one",
            true => "so they are a candidate for one",
            false => "so no sum of them is promised",
        };
        say(&format!(
            " together  {members}: {} ({} to {}) at once, and {} each by itself; {what}",
            gain(mid),
            gain(low),
            gain(high),
            alone.join(", ")
        ))?;
    }
    let (promises, came_true) = account.promises();
    if promises > 0 {
        say(&format!("{came_true} of {promises} promises came true."))?;
    }
    let is_not_tried = |phase: &Phase| phase.verdict == Verdict::NotTried;
    let use_it = || match program {
        Some(program) => say(&format!("Use it: {}", program.to_use(&account.setting))),
        None => Ok(()),
    };
    let kept_any = account.phases.iter().any(|phase| phase.verdict == Verdict::Kept);
    let good = account.goodput_in_words().filter(|_| kept_any);
    match (good, account.total().zip(account.times_as_fast())) {
        (Some(good), total) => {
            say(&format!("{good}."))?;
            if let Some((total, _)) = total.filter(|_| account.has_step_times()) {
                say(&format!("The step time gains {}.", gain(total)))?;
            }
            use_it()?;
        }
        (None, Some((total, factor))) if kept_any => {
            let (first, rest) = account.total_of().split_at(1);
            say(&format!("{}{rest}: {} less, {factor:.2} times as fast.", first.to_uppercase(), percent(total)))?;
            use_it()?;
        }
        _ if account.aim == Aim::Goodput && account.phases.iter().all(is_not_tried) => say("Nothing was judged.")?,
        _ if account.aim == Aim::Goodput => say("Nothing that was tried lets more requests keep all limits.")?,
        _ if account.phases.is_empty() => say("Nothing was tried.")?,
        _ => say("Nothing that was tried makes it faster.")?,
    }
    if account.ended == OptimiseEnd::Budget {
        say("The time was used up: --resume with a larger --budget goes on.")?;
    }
    let files: String = kept.iter().map(|file| format!(", {file}")).collect();
    say(&format!("Study: {} ({SUMMARY}{files})", out.display()))
}
