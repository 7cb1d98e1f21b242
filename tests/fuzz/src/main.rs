//! `fuzz [--target NAME] [--inputs N] [--seconds S] [--seed SEED] [--only INDEX]`: prints a table of results; fails if
//! anything went wrong.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program's own output")]

use anyhow::{Context, Result, bail};
use candlescope_fuzz::supervise::{self, Count, HEAD};
use candlescope_fuzz::targets::{self, Target};
use candlescope_fuzz::worker;
use std::fs::File;
use std::path::Path;
use std::time::Duration;

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [first, target, seed, from, to, scratch] = &args[..]
        && first == "--worker"
    {
        let scratch = Path::new(scratch);
        let at = File::options().write(true).open(scratch.join("at"))?;
        return Ok(worker::work(find(target)?, seed.parse()?, from.parse()?, to.parse()?, &at, scratch)?);
    }
    let value = |name: &str| args.iter().position(|arg| arg == name).and_then(|at| args.get(at + 1));
    let number = |name: &str, default: u64| -> Result<u64> {
        value(name).map_or(Ok(default), |text| text.parse().with_context(|| format!("{name} wants a number")))
    };
    let seed = number("--seed", 1)?;
    if let (Some(target), Some(index)) = (value("--target"), value("--only")) {
        let scratch = tempfile::tempdir()?;
        let target = find(target)?;
        let bytes = worker::input(&(target.seeds)(), seed, index.parse()?);
        std::fs::write("fuzz-input", &bytes)?;
        println!("the input is in ./fuzz-input; accepted: {}", (target.run)(scratch.path(), &bytes));
        return Ok(());
    }
    let chosen: Vec<&Target> = match value("--target") {
        Some(name) => vec![find(name)?],
        None => targets::ALL.iter().collect(),
    };
    let seconds = Duration::from_secs(number("--seconds", u64::from(u32::MAX))?);
    let exe = std::env::current_exe()?;
    let mut all = Count::default();
    println!("{HEAD}");
    for target in chosen {
        // Some inputs cost a process or a report, others a microsecond.
        let inputs = number("--inputs", u64::MAX)?.saturating_mul(target.weight) / 100;
        let count = supervise::run(&exe, target.name, seed, inputs, seconds)?;
        println!("| {:<16} | {count} |", target.name);
        all.add(&count);
    }
    println!("| {:<16} | {all} |", "all");
    all.findings.iter().for_each(|finding| eprintln!("{finding}"));
    if !all.is_clean() {
        bail!("{} inputs went wrong", all.findings.len());
    }
    Ok(())
}

fn find(name: &str) -> Result<&'static Target> {
    let known = || targets::ALL.iter().map(|t| t.name).collect::<Vec<_>>().join(", ");
    targets::ALL
        .iter()
        .chain(targets::WRONG)
        .find(|t| t.name == name)
        .with_context(|| format!("no target {name}; there are {}", known()))
}
