//! Cost of one enter and exit, compared with peers.
//!
//! Every case runs in child processes of its own, because an application has one subscriber for its whole life; the
//! children of all cases take turns over several rounds, in an order that changes with the round, so that a busy phase
//! of the machine affects all of them. A child times many short bursts and reports each; a child's figure is the median
//! of its bursts, a case's figure the median of its children.

use anyhow::{Context, Result, bail, ensure};
use candlescope_bench::stats::Spread;
use candlescope_bench::work::{Mode, PAIRS};
use candlescope_bench::{alloc, cases, machine, output};
use clap::Parser;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::process::Command;
use std::time::{Duration, Instant};

#[global_allocator]
static GLOBAL: alloc::Counting = alloc::Counting;

/// Measures the cost of one enter+exit of a span, beside peers.
#[derive(Parser)]
struct Options {
    /// Rounds; each runs every case once in every mode.
    #[arg(long, default_value_t = 9)]
    rounds: usize,
    /// Bursts a child times.
    #[arg(long, default_value_t = 60)]
    bursts: u64,
    /// Only these cases.
    #[arg(long)]
    only: Vec<String>,
    /// Only these modes.
    #[arg(long, value_enum)]
    mode: Vec<Mode>,
    /// Do not write a file.
    #[arg(long)]
    dry: bool,
    /// Runs one case in this process: what the children do.
    #[arg(long, hide = true)]
    case: Option<String>,
}

/// What a child prints.
#[derive(Serialize, Deserialize)]
struct Child {
    /// Nanoseconds per enter and exit, one value per burst.
    ns: Vec<f64>,
    allocations: f64,
}

fn main() -> Result<()> {
    let options = Options::parse();
    match &options.case {
        Some(case) => child(case, &options),
        None => parent(&options),
    }
}

fn child(name: &str, options: &Options) -> Result<()> {
    let mode = *options.mode.first().context("a child needs a mode")?;
    let mut case = cases::start(name, mode)?;
    const WARM_UP: u64 = 5;
    let mut ns = Vec::new();
    for burst in 0..WARM_UP + options.bursts {
        let start = Instant::now();
        case.burst();
        let elapsed = start.elapsed();
        case.settle()?;
        // All cases pause equally long, whether or not they had something to wait for.
        std::thread::sleep(Duration::from_millis(1));
        if burst >= WARM_UP {
            ns.push(elapsed.as_nanos() as f64 / PAIRS as f64);
        }
    }
    let allocations = alloc::allocations_in(|| case.burst()) as f64 / PAIRS as f64;
    case.settle()?;
    case.finish(WARM_UP + options.bursts + 1)?;
    println!("{}", serde_json::to_string(&Child { ns, allocations })?);
    Ok(())
}

/// All measurements of one case in one mode.
#[derive(Default)]
struct CaseTimes {
    children: Vec<f64>,
    bursts: Vec<f64>,
    allocations: f64,
}

type Results = BTreeMap<(Mode, &'static str), CaseTimes>;

fn parent(options: &Options) -> Result<()> {
    let modes = if options.mode.is_empty() { Mode::ALL.to_vec() } else { options.mode.clone() };
    let wanted = |name: &&str| options.only.is_empty() || options.only.iter().any(|o| o == name);
    let names: Vec<_> = cases::names().into_iter().filter(wanted).collect();
    ensure!(!names.is_empty(), "no such case: use some of {}", cases::names().join(", "));
    let plan: Vec<_> = modes
        .iter()
        .flat_map(|&mode| names.iter().map(move |&name| (mode, name)))
        .filter(|&(mode, name)| cases::applies(name, mode))
        .collect();
    let mut results = Results::new();
    let load_before = machine::load();
    for round in 0..options.rounds {
        for at in 0..plan.len() {
            // Each round starts elsewhere, and every other one runs backwards.
            let at = (at + round * 5) % plan.len();
            let (mode, name) = plan[if round % 2 == 0 { at } else { plan.len() - 1 - at }];
            let child = spawn(name, mode, options.bursts).with_context(|| format!("case {name}, {}", mode.word()))?;
            let spread = Spread::of(&child.ns).context("a child timed nothing")?;
            let measured = results.entry((mode, name)).or_default();
            measured.children.push(spread.p50);
            measured.bursts.extend(child.ns);
            measured.allocations = child.allocations;
        }
        eprintln!("round {} of {}", round + 1, options.rounds);
    }
    let report = report(&results, options, load_before);
    print_table(&report, &modes);
    if !options.dry {
        println!("{}", output::write("interval", &report)?.display());
    }
    Ok(())
}

fn spawn(name: &str, mode: Mode, bursts: u64) -> Result<Child> {
    let output = Command::new(std::env::current_exe()?)
        .args(["--case", name, "--mode", mode.word(), "--bursts", &bursts.to_string()])
        .output()?;
    if !output.status.success() {
        bail!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

fn report(results: &Results, options: &Options, load_before: f64) -> Value {
    let mut report = Map::new();
    let mut modes: BTreeMap<&str, Map<String, Value>> = BTreeMap::new();
    for ((mode, name), measured) in results {
        let children = Spread::of(&measured.children);
        let Some(figure) = children.map(|s| (s.p50 * 100.0).round() / 100.0) else { continue };
        let here = modes.entry(mode.word()).or_default();
        here.insert(format!("{name}_ns"), figure.into());
        here.insert(
            format!("{name}_spread"),
            json!({"children": children, "bursts": Spread::of(&measured.bursts), "allocations": measured.allocations}),
        );
        if *mode == Mode::Reenter || (*name == "nvtx_layer" && *mode == Mode::New) {
            report.insert(format!("{name}_ns"), figure.into());
        }
    }
    let get = |name: &str| report.get(&format!("{name}_ns")).and_then(Value::as_f64);
    let mut derived = Map::new();
    if let (Some(ours), Some(registry)) = (get("ours"), get("registry")) {
        derived.insert("ours_added_ns".into(), (ours - registry).into());
        if let Some(chrome) = get("tracing_chrome") {
            derived.insert("tracing_chrome_over_ours_total".into(), (chrome / ours).into());
            derived.insert("tracing_chrome_over_ours_added".into(), ((chrome - registry) / (ours - registry)).into());
        }
    }
    report.insert("derived".into(), derived.into());
    report.insert("modes".into(), json!(modes));
    report.insert("rounds".into(), options.rounds.into());
    report.insert("bursts".into(), options.bursts.into());
    report.insert("pairs_in_a_burst".into(), PAIRS.into());
    report.insert("load_before".into(), load_before.into());
    report.insert("machine".into(), machine::describe());
    report.insert("versions".into(), machine::versions());
    report.into()
}

fn print_table(report: &Value, modes: &[Mode]) {
    for mode in modes {
        let here = &report["modes"][mode.word()];
        println!("{:24} {:>8} {:>8} {:>8} {:>8} {:>7}", mode.word(), "ns", "p10", "p90", "min", "allocs");
        for name in cases::names() {
            let Some(ns) = here[format!("{name}_ns")].as_f64() else { continue };
            let spread = &here[format!("{name}_spread")];
            let at = |key: &str| spread["bursts"][key].as_f64().unwrap_or(f64::NAN);
            let allocations = spread["allocations"].as_f64().unwrap_or(f64::NAN);
            println!("{name:24} {ns:8.1} {:8.1} {:8.1} {:8.1} {allocations:7.2}", at("p10"), at("p90"), at("min"));
        }
    }
    println!("{}", report["derived"]);
}
