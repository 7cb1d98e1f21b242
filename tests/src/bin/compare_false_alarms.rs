//! How often `candlescope compare --run` is wrong on this machine: `make compare-false-alarms`.
//!
//! Compares a program with itself, and with a build of it in which one layer takes 5 % of a step longer, as a user
//! would, and counts. Each comparison appends a line to DIR/results.jsonl; a run that was stopped goes on there. Fails if
//! there are more than 4 false alarms in 200 comparisons of equals, or fewer than 57 of 60 changes are found with the
//! layer named.
use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

const USAGE: &str = "usage: compare_false_alarms DIR [--equals 200] [--changes 60] [--pairs 40] [--equal-pairs N]";
/// What the slowed layer's path ends in.
const SLOWED: &str = "[2]/mlp";

struct Plan {
    dir: PathBuf,
    equals: usize,
    changes: usize,
    /// Most pairs of a comparison.
    pairs: usize,
    /// Most pairs of one of equals, which is hardly ever decided before.
    equal_pairs: Option<usize>,
}

fn main() -> Result<()> {
    let plan = plan()?;
    std::fs::create_dir_all(&plan.dir)?;
    let results = plan.dir.join("results.jsonl");
    let known: Vec<Value> = std::fs::read_to_string(&results)
        .unwrap_or_default()
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect();
    let count = |kind: &str| known.iter().filter(|line| line["kind"] == kind).count();
    let (mut equals, mut changes) = (count("equal"), count("change"));
    let mut lines = known.clone();
    let spin = calibrated(&plan)?;
    while equals < plan.equals || changes < plan.changes {
        // In turns, so that both see the same machine.
        let change =
            changes < plan.changes && (changes * plan.equals <= equals * plan.changes || equals >= plan.equals);
        let n = if change { changes } else { equals };
        let line = one(&plan, change, n, spin)?;
        let mut file = std::fs::OpenOptions::new().create(true).append(true).open(&results)?;
        writeln!(file, "{line}")?;
        println!("{line}");
        lines.push(line);
        if change { changes += 1 } else { equals += 1 }
    }
    summary(&lines, &plan)
}

fn plan() -> Result<Plan> {
    let mut args = std::env::args().skip(1);
    let dir = args.next().filter(|arg| !arg.starts_with('-')).context(USAGE)?.into();
    let mut plan = Plan { dir, equals: 200, changes: 60, pairs: 40, equal_pairs: None };
    while let Some(name) = args.next() {
        let value = args.next().context(USAGE)?.parse()?;
        match name.as_str() {
            "--equals" => plan.equals = value,
            "--changes" => plan.changes = value,
            "--pairs" => plan.pairs = value,
            "--equal-pairs" => plan.equal_pairs = Some(value),
            _ => bail!("{name} is not known; {USAGE}"),
        }
    }
    Ok(plan)
}

/// A program built beside this one.
fn beside(name: &str) -> Result<PathBuf> {
    let path = std::env::current_exe()?.with_file_name(name);
    if !path.exists() {
        bail!("{} is missing: make compare-false-alarms builds it", path.display());
    }
    Ok(path)
}

/// The count that adds 5 % to a step, measured once for all comparisons: each try says what its count added, and the
/// median of what one count adds decides.
fn calibrated(plan: &Plan) -> Result<u64> {
    let file = plan.dir.join("calibration.json");
    if !file.exists() {
        let tries = (0..5).map(|_| -> Result<Value> {
            let output = program("slow_layer")?.args(["--share", "0.05"]).output()?;
            serde_json::from_slice(&output.stdout).context("slow_layer --share")
        });
        let tries = tries.collect::<Result<Vec<Value>>>()?;
        let each = |one: &Value| Some(one["measured_share"].as_f64()? / one["spin"].as_f64()?);
        let mut shares: Vec<f64> = tries.iter().filter_map(each).filter(|share| *share > 0.0).collect();
        shares.sort_by(f64::total_cmp);
        let share = shares.get(shares.len() / 2).context("slow_layer --share measured nothing")?;
        let spin = (0.05 / share).round();
        std::fs::write(&file, json!({ "spin": spin as u64, "tries": tries }).to_string())?;
    }
    let text = std::fs::read_to_string(&file)?;
    println!("calibration: {}", text.trim());
    let calibration: Value = serde_json::from_str(&text)?;
    calibration["spin"].as_u64().context("the calibration tells no count: delete it")
}

/// A program beside this one, with one thread for matrix products: two on two busy processors mostly wait for each other.
fn program(name: &str) -> Result<Command> {
    let mut command = Command::new(beside(name)?);
    command.env("RAYON_NUM_THREADS", "1").env_remove("CANDLESCOPE");
    Ok(command)
}

fn one(plan: &Plan, change: bool, n: usize, spin: u64) -> Result<Value> {
    let out = plan.dir.join("comparison");
    let _ = std::fs::remove_dir_all(&out);
    let (a, b) = if change {
        let program = beside("slow_layer")?;
        let same = format!("{} --requests 14 --tokens 64", program.display());
        (format!("{same} --spin 0"), format!("{same} --spin {spin}"))
    } else {
        let program = beside("candlescope")?;
        let same = format!(
            "{} profile --model embedded --prompt-tokens 16 --max-new-tokens 64 --repeats 12 --warmup 2",
            program.display()
        );
        (same.clone(), same)
    };
    let pairs = plan.equal_pairs.filter(|_| !change).unwrap_or(plan.pairs);
    let began = Instant::now();
    let output = program("candlescope")?
        .args(["compare", "--run", &a, &b, "--json", "--pairs", &pairs.to_string(), "--seed", &n.to_string()])
        .arg("--out")
        .arg(&out)
        .output()?;
    let found: Value = serde_json::from_slice(&output.stdout)
        .with_context(|| format!("compare: {}", String::from_utf8_lossy(&output.stderr)))?;
    let estimate = &found["step"]["estimate"];
    let changed = found["paths"]["changed"].as_array().cloned().unwrap_or_default();
    let paths: Vec<&Value> = changed.iter().map(|path| &path["path"]).take(3).collect();
    let named = changed.iter().any(|path| is_slowed(path["path"].as_str()));
    Ok(json!({
        "kind": if change { "change" } else { "equal" },
        "n": n,
        "outcome": found["outcome"],
        "exit": output.status.code(),
        "pairs": estimate["n"][0],
        "change": estimate["change"], "low": estimate["low"], "high": estimate["high"],
        "floor": found["step"]["floor"]["share"],
        "named": named, "changed_paths": changed.len(), "paths": paths,
        "load": load(),
        "seconds": began.elapsed().as_secs_f64(),
    }))
}

fn is_slowed(path: Option<&str>) -> bool {
    path.is_some_and(|path| path.ends_with(SLOWED))
}

/// Processes that want to run, over the last minute.
fn load() -> Option<f64> {
    std::fs::read_to_string(Path::new("/proc/loadavg")).ok()?.split(' ').next()?.parse().ok()
}

fn summary(lines: &[Value], plan: &Plan) -> Result<()> {
    let of = |kind: &'static str| lines.iter().filter(move |line| line["kind"] == kind);
    let outcome = |kind: &'static str, word: &str| of(kind).filter(|line| line["outcome"] == word).count();
    let false_alarms = outcome("equal", "worse") + outcome("equal", "better");
    let found = of("change").filter(|line| line["outcome"] == "worse" && line["named"] == true).count();
    let false_paths = of("equal").filter(|line| line["changed_paths"] != 0).count();
    println!(
        "equal: {} comparisons, {} worse, {} better, {} equivalent, {} undecided; {false_paths} named a path",
        of("equal").count(),
        outcome("equal", "worse"),
        outcome("equal", "better"),
        outcome("equal", "equivalent"),
        outcome("equal", "undecided")
    );
    println!("changed by 5 %: {} comparisons, {found} found with the layer named", of("change").count());
    // The limits are those of 200 and 60; other numbers are held to the same shares.
    let most = plan.equals * 4 / 200;
    let least = (plan.changes * 57).div_ceil(60);
    if false_alarms > most || found < least {
        bail!("at most {most} false alarms and at least {least} changes found were wanted");
    }
    Ok(())
}
