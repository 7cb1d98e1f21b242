//! Combines the programs' results in one table and one file, with each goal and whether it is reached.

use anyhow::{Result, ensure};
use candlescope_bench::output;
use clap::Parser;
use serde_json::{Map, Value, json};

/// Writes overhead.json from the available results, and prints the table.
#[derive(Parser)]
struct Options {
    /// Fail if a goal is missed or a result is missing.
    #[arg(long)]
    strict: bool,
}

/// A number, its upper or lower limit, and its wording.
struct Goal {
    name: &'static str,
    what: &'static str,
    value: Option<f64>,
    bound: Bound,
    unit: &'static str,
}

#[derive(Clone, Copy)]
enum Bound {
    AtMost(f64),
    AtLeast(f64),
}

impl Goal {
    fn reached(&self) -> Option<bool> {
        self.value.map(|v| match self.bound {
            Bound::AtMost(most) => v <= most,
            Bound::AtLeast(least) => v >= least,
        })
    }
}

fn main() -> Result<()> {
    let options = Options::parse();
    let mut all = match output::read("interval")? {
        Some(Value::Object(map)) => map,
        _ => Map::new(),
    };
    for name in ["throughput", "decode", "decode_instrumented", "soak"] {
        if let Some(result) = output::read(name)? {
            all.insert(name.into(), result);
        }
    }
    // The samples of each second are in the soak run's own file only.
    if let Some(Value::Object(soak)) = all.get_mut("soak") {
        soak.remove("samples");
    }
    let goals = goals(&Value::Object(all.clone()));
    print_peers(&all);
    print_goals(&goals);
    let judged = goals.iter().map(|g| (g.name.to_string(), json!({"value": g.value, "reached": g.reached()})));
    all.insert("goals".into(), Value::Object(judged.collect()));
    println!("{}", output::write("overhead", &Value::Object(all))?.display());
    let missed: Vec<_> = goals.iter().filter(|g| g.reached() != Some(true)).map(|g| g.name).collect();
    ensure!(!options.strict || missed.is_empty(), "missed or not measured: {}", missed.join(", "));
    Ok(())
}

fn goals(all: &Value) -> Vec<Goal> {
    let at = |path: &str| all.pointer(path).and_then(Value::as_f64);
    let percent = |path: &str| at(path).map(|ratio| (ratio - 1.0) * 100.0);
    let goal = |name, what, value, bound, unit| Goal { name, what, value, bound, unit };
    vec![
        goal(
            "interval",
            "one interval adds to a bare registry",
            at("/derived/ours_added_ns"),
            Bound::AtMost(60.0),
            "ns",
        ),
        goal(
            "against_tracing_chrome",
            "tracing-chrome costs as much as this many of ours",
            at("/derived/tracing_chrome_over_ours_total"),
            Bound::AtLeast(5.0),
            "x",
        ),
        goal(
            "throughput",
            "drain to Parquet, for each CPU second",
            at("/throughput/by_cpu_time/parquet/per_cpu_second").map(|n| n / 1e6),
            Bound::AtLeast(1.0),
            "million/s",
        ),
        goal(
            "throughput_one_core",
            "drain to Parquet, all threads on one core, nothing lost",
            at("/throughput/one_core/parquet/without_loss_per_second").map(|n| (n / 1e4).round() / 100.0),
            Bound::AtLeast(1.0),
            "million/s",
        ),
        goal("decode", "decode of candle's model, recorded", percent("/decode/decode/ratio"), Bound::AtMost(1.0), "%"),
        goal(
            "decode_interval",
            "  upper end of its 95 % confidence interval",
            percent("/decode/decode/high"),
            Bound::AtMost(1.0),
            "%",
        ),
        goal(
            "decode_instrumented",
            "decode of the wrapped model, recorded",
            percent("/decode_instrumented/decode/ratio"),
            Bound::AtMost(1.0),
            "%",
        ),
        goal(
            "soak_memory",
            "growth of resident memory over the long run",
            at("/soak/resident_mib/growth"),
            Bound::AtMost(at("/soak/resident_mib/growth_allowed").unwrap_or(4.0)),
            "MiB",
        ),
    ]
}

fn print_peers(all: &Map<String, Value>) {
    const ROWS: [(&str, &str); 14] = [
        ("no_subscriber", "no subscriber"),
        ("two_clock_reads", "two clock reads"),
        ("floor", "two clock reads, 64 bytes into a ring"),
        ("registry", "tracing-subscriber's registry"),
        ("empty_layer", "registry + a layer that does nothing"),
        ("ours", "candlescope"),
        ("ours_live", "candlescope, drained meanwhile"),
        ("ours_off", "candlescope, paused"),
        ("ours_annotate", "candlescope, annotated"),
        ("fastrace", "fastrace (scope)"),
        ("tracing_opentelemetry", "tracing-opentelemetry (exports once)"),
        ("tracing_flame", "tracing-flame"),
        ("tracing_chrome", "tracing-chrome"),
        ("nvtx_layer", "nvtx's NvtxLayer (cannot re-enter)"),
    ];
    let Some(modes) = all.get("modes") else { return };
    println!("{:40} {:>10} {:>10} {:>10}", "ns an enter+exit", "re-entered", "400 spans", "new span");
    for (key, words) in ROWS {
        let cell = |mode: &str| match modes[mode][format!("{key}_ns")].as_f64() {
            Some(ns) => format!("{ns:.1}"),
            None => "-".into(),
        };
        println!("{words:40} {:>10} {:>10} {:>10}", cell("reenter"), cell("many"), cell("new"));
    }
}

fn print_goals(goals: &[Goal]) {
    println!();
    for goal in goals {
        let (sign, bound) = match goal.bound {
            Bound::AtMost(most) => ("<=", most),
            Bound::AtLeast(least) => (">=", least),
        };
        let value = goal.value.map_or("-".into(), |v| format!("{v:.2}"));
        let verdict = match goal.reached() {
            Some(true) => "reached",
            Some(false) => "MISSED",
            None => "not measured",
        };
        println!("{:56} {value:>8} {:10} goal {sign} {bound:<5} {verdict}", goal.what, goal.unit);
    }
}
