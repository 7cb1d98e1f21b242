//! `candlescope doctor`: what this machine has, and what is not available because something is missing.

mod check;
mod gpu;
mod host;
mod surroundings;

use crate::args::DoctorArgs;
use crate::output::say;
use anyhow::Result;
use check::{Check, Group};
use comfy_table::{ContentArrangement, Table, presets};

pub(crate) fn run(args: &DoctorArgs) -> Result<()> {
    let (has_gpu, checks) = checks()?;
    if args.json {
        return say(&serde_json::to_string(&serde_json::json!({ "checks": checks }))?);
    }
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_content_arrangement(ContentArrangement::Dynamic);
    if table.width().is_none() {
        // Not a terminal. The reason why something is missing can be long.
        table.set_width(140);
    }
    table.set_header(["", "what", "found", "what you go without"]);
    for group in Group::ALL {
        table.add_row(["", group.title(), "", ""]);
        // Without a GPU, everything for one is missing: one line says so, and what is there nevertheless.
        let all = has_gpu || group != Group::Gpu;
        if !all {
            let [name, found, cost] = gpu::NONE;
            table.add_row(["–", &format!("  {name}"), found, cost]);
        }
        for check in checks.iter().filter(|check| check.group == group && (all || check.ok)) {
            table.add_row([check.mark(), &format!("  {}", check.name), &check.found, &check.cost]);
        }
    }
    say(&table.to_string())?;
    say(&conclusion(&checks))
}

/// What is to be put right, by name.
fn conclusion(checks: &[Check]) -> String {
    let faults: Vec<&str> = checks.iter().filter(|check| check.is_fault()).map(|check| check.name).collect();
    let rest = "What is marked – is not here, and nothing is wrong without it.";
    match faults.len() {
        0 => format!("Nothing has to be put right. {rest}"),
        1 => format!("One thing is worth putting right (✗): {}. {rest}", faults[0]),
        n => format!("{n} things are worth putting right (✗): {}. {rest}", faults.join(", ")),
    }
}

/// Whether the machine has a GPU that is of use here, and everything that was checked.
fn checks() -> Result<(bool, Vec<Check>)> {
    let mut checks = host::checks()?;
    let (has_gpu, of_gpu) = gpu::checks();
    checks.extend(of_gpu);
    checks.extend(surroundings::checks());
    Ok((has_gpu, checks))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_faults_are_to_be_put_right() {
        let all = || {
            vec![
                Check::judged(Group::Cpu, "clock", true, "tsc", ""),
                Check::new(Group::Gpu, "NVML", None, "no power").optional(),
            ]
        };
        assert!(conclusion(&all()).starts_with("Nothing has to be put right."), "{}", conclusion(&all()));
        let mut some = all();
        some.push(Check::new(Group::Cpu, "SIMD kernels", None, "slow"));
        assert!(conclusion(&some).starts_with("One thing is worth putting right (✗): SIMD kernels."));
    }
}
