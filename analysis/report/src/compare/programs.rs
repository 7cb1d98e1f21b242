//! Two programs side by side, as a document.

use super::layout;
use super::words::before_times;
use crate::format::{count, duration, printable, significant};
use candlescope_compare::{Program, ProgramSteps, Programs};
use candlescope_document::terminal::draw;
use candlescope_document::{Block, Document, Fact, Section, Table};
use candlescope_work::estimate::Estimate;

/// Classes that a conclusion names.
const NAMED: usize = 3;
/// The least share of the difference that is worth a name.
const WORTH: f64 = 0.05;

/// Two programs as text.
pub fn text_of_programs(programs: &Programs, color: bool) -> String {
    draw(&document_of_programs(programs), layout(color))
}

/// What text and page of two programs show.
pub fn document_of_programs(programs: &Programs) -> Document {
    let (a, b) = programs.steps();
    let side = |program: &Program, steps: &ProgramSteps| {
        let outside = program.program.as_ref().map_or(String::new(), |name| format!(", {} as it is", printable(name)));
        let recorded = count(steps.recorded);
        format!(
            "{}{outside}; {} steps `{}`, kernels of {recorded}",
            printable(&program.dir),
            count(steps.steps),
            printable(&steps.kind)
        )
    };
    let mut before = before_times(&[], &programs.differences);
    if !programs.unknown.is_empty() {
        before.push(format!(
            "Not known on both sides, so that it may differ: {}. `candlescope record --model-config FILE --work batch=1,prompt=64,dtype=bf16` says it.",
            programs.unknown.join(", ")
        ));
    }
    if programs.kinds.0 != programs.kinds.1 {
        before
            .push("No kind of step is the same in both: what each spends most of its time in is compared.".to_string());
    }
    Document {
        kind: "two programs".to_string(),
        title: format!("{} and {}", printable(&programs.a.name), printable(&programs.b.name)),
        before,
        conclusion: conclusion(programs),
        facts: vec![
            Fact::new("A", side(&programs.a, a)),
            Fact::new("B", side(&programs.b, b)),
            Fact::new("device", programs.a.device.clone().unwrap_or_else(|| "not known".to_string())),
            Fact::new("judged", "nothing: one run of each says nothing of other days and process starts"),
        ],
        sections: vec![steps(programs, a, b), classes(programs)],
        ..Document::default()
    }
}

fn or_none(text: Option<String>) -> String {
    text.unwrap_or_else(|| "–".to_string())
}

fn share(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

fn millijoules(joules: f64) -> String {
    format!("{} mJ", significant(joules * 1e3))
}

/// Energy of a token in joules: that of a step by its tokens. `None` if one of them is not known.
fn a_token(steps: &ProgramSteps) -> Option<f64> {
    let tokens = steps.work.get("tokens")?.as_f64().filter(|tokens| *tokens > 0.0)?;
    Some(steps.joules? / tokens)
}

fn graph(estimate: &Estimate) -> String {
    format!("{} ({} to {})", duration(estimate.mid * 1e9), duration(estimate.low * 1e9), duration(estimate.high * 1e9))
}

fn steps(programs: &Programs, a: &ProgramSteps, b: &ProgramSteps) -> Section {
    let factor = |a: Option<f64>, b: Option<f64>| {
        let ratio = a.zip(b).filter(|(a, _)| *a > 0.0).map(|(a, b)| b / a);
        or_none(ratio.map(|ratio| format!("× {}", significant(ratio))))
    };
    let row = |name: &str, a: Option<f64>, b: Option<f64>, show: &dyn Fn(f64) -> String| {
        vec![name.to_string(), or_none(a.map(show)), or_none(b.map(show)), factor(a, b)]
    };
    let counted = |steps: &ProgramSteps, key: &str| steps.counts.get(key).copied();
    let number = |n: f64| if n.fract() == 0.0 { count(n as u64) } else { significant(n) };
    let host = |steps: &ProgramSteps| Some(steps.host_ns.value);
    let mut rows = vec![
        row("time of a step", host(a), host(b), &duration),
        row("its kernels and copies take", a.device_ns(), b.device_ns(), &duration),
        row("its device waits", a.waits(), b.waits(), &share),
        row("kernels", counted(a, "kernels"), counted(b, "kernels"), &number),
        row("calls that launch them", counted(a, "launches"), counted(b, "launches"), &number),
        row("copies", counted(a, "copies"), counted(b, "copies"), &number),
        row("as one CUDA graph, derived", a.graph.map(|g| g.mid * 1e9), b.graph.map(|g| g.mid * 1e9), &duration),
        row("energy of its GPU", a.joules, b.joules, &millijoules),
        row("the same, a token", a_token(a), a_token(b), &millijoules),
    ];
    for (name, of) in [(1, a.graph), (2, b.graph)] {
        if let Some(estimate) = of {
            rows[6][name] = graph(&estimate);
        }
    }
    rows.retain(|row| row[1] != "–" || row[2] != "–");
    let heads = ["of a step", &*printable(&programs.a.name), &*printable(&programs.b.name), "B ÷ A"];
    let note = "Times are medians over all measured steps of that kind, the rest means over those whose kernels were recorded, which takes time \
                itself: record both alike. Energy is that of the GPU while steps of the kind ran, by all of them; a token's is that by the tokens \
                of a step, of all its sequences, where steps say them.";
    Section::new("steps", "A step", "").with(Block::Text(note.to_string())).with(Table::of_texts(&heads, rows))
}

fn classes(programs: &Programs) -> Section {
    let rows = programs.classes().into_iter().map(|(class, a, b)| {
        let cell = |time: candlescope_compare::ClassTime| {
            let n = if time.kernels.fract() == 0.0 { count(time.kernels as u64) } else { significant(time.kernels) };
            if time.kernels > 0.0 { format!("{} ({n})", duration(time.ns)) } else { "–".to_string() }
        };
        vec![class.name().to_string(), cell(a), cell(b), signed(b.ns - a.ns)]
    });
    let heads = ["computes", &*printable(&programs.a.name), &*printable(&programs.b.name), "B − A"];
    let note = "Time of the device in a step, and kernels; what a kernel computes is told by its name.";
    Section::new("classes", "What the device does", "")
        .with(Block::Text(note.to_string()))
        .with(Table::of_texts(&heads, rows.collect()))
}

fn signed(ns: f64) -> String {
    format!("{}{}", if ns < 0.0 { "−" } else { "+" }, duration(ns.abs()))
}

/// What each takes, and where the difference is.
fn conclusion(programs: &Programs) -> String {
    let (a, b) = programs.steps();
    let one = |program: &Program, steps: &ProgramSteps| {
        let kernels = steps
            .counts
            .get("kernels")
            .map_or(String::new(), |n| format!("{} kernels a step, ", count(n.round() as u64)));
        let waits =
            steps.waits().map_or(String::new(), |waits| format!(", in which its device waits {}", share(waits)));
        format!("{}: {kernels}{}{waits}", printable(&program.name), duration(steps.host_ns.value))
    };
    let mut said = format!("{}; {}.", one(&programs.a, a), one(&programs.b, b));
    if let (Some(of_a), Some(of_b)) = (a.graph, b.graph) {
        said.push_str(&format!(" As CUDA graphs {} and {}.", duration(of_a.mid * 1e9), duration(of_b.mid * 1e9)));
    }
    if let (Some(on_a), Some(on_b)) = (a.device_ns(), b.device_ns()) {
        said.push_str(&difference(programs, (a.host_ns.value, on_a), (b.host_ns.value, on_b)));
    }
    said
}

/// A step is what its device works and what it waits: the difference of both, and of the former by class.
fn difference(programs: &Programs, (host_a, device_a): (f64, f64), (host_b, device_b): (f64, f64)) -> String {
    let whole = host_b - host_a;
    let (longer, sign) = if whole >= 0.0 { (&programs.b.name, 1.0) } else { (&programs.a.name, -1.0) };
    let (device, waits) = ((device_b - device_a) * sign, (whole - (device_b - device_a)) * sign);
    let mut said = format!(
        " {} takes {} longer: {} of waiting for the host, {} of work of the device",
        printable(longer),
        duration(whole.abs()),
        signed(waits),
        signed(device)
    );
    let classes = programs.classes();
    let named: Vec<String> = classes
        .iter()
        .map(|(class, a, b)| (class, (b.ns - a.ns) * sign))
        .filter(|(_, ns)| ns.abs() >= WORTH * device.abs().max(WORTH * whole.abs()))
        .take(NAMED)
        .map(|(class, ns)| format!("{} {}", class.name(), signed(ns)))
        .collect();
    if !named.is_empty() {
        said.push_str(&format!(" ({})", named.join(", ")));
    }
    said.push('.');
    said
}

#[cfg(test)]
mod tests {
    use super::*;
    use candlescope_compare::{CompareOptions, Facts, RunFigure};
    use std::collections::BTreeMap;

    /// A program with one kind of step, of a millisecond.
    fn program(name: &str, joules: Option<f64>, tokens: Option<f64>) -> Program {
        let steps = ProgramSteps {
            kind: "decode".into(),
            steps: 10,
            recorded: 0,
            host_ns: RunFigure::whole(1e6),
            counts: BTreeMap::new(),
            classes: BTreeMap::new(),
            joules,
            graph: None,
            work: tokens.map(|tokens| ("tokens".to_string(), tokens.into())).into_iter().collect(),
        };
        Program {
            name: name.into(),
            dir: name.into(),
            program: None,
            device: None,
            model: Facts::new(),
            steps: vec![steps],
            noticed: Vec::new(),
        }
    }

    /// What is shown of them, with one space in place of several.
    fn shown(a: Program, b: Program) -> String {
        let options = CompareOptions::default().allow(vec!["all".to_string()]);
        let text = text_of_programs(&Programs::of(a, b, &options).expect("they may be compared"), false);
        text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ") + "\n").collect()
    }

    #[test]
    fn energy_is_of_a_step_and_where_its_tokens_are_known_of_a_token() {
        let text = shown(program("a", Some(1.5), Some(1.0)), program("b", Some(6.0), Some(8.0)));
        assert!(text.contains("energy of its GPU 1,500 mJ 6,000 mJ × 4.00"), "{text}");
        assert!(text.contains("the same, a token 1,500 mJ 750 mJ × 0.50"), "{text}");
        let text = shown(program("a", Some(0.0125), None), program("b", None, Some(1.0)));
        assert!(text.contains("energy of its GPU 12.5 mJ – –"), "{text}");
        assert!(!text.contains("a token 12") && !text.contains("the same, a token"), "{text}");
        assert!(!shown(program("a", None, None), program("b", None, None)).contains("energy of"));
    }
}
