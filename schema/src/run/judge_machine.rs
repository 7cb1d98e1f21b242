//! What the use of the machine says about a run: the rules of [`judge`](super::judge) for it.

use super::{Code, Finding, MachineUse, RayonThreads, RunManifest, env_key, option_key};
use serde_json::Value;

/// Share of the time that a quota may take before the run says so.
const THROTTLED: f64 = 0.05;
/// Share of the program's CPU time in the kernel from which on that is worth a look on a CPU.
const SYSTEM: f64 = 0.3;

/// What the use of the machine says about the run's times.
pub(super) fn findings(manifest: &RunManifest, found: &mut Vec<Finding>) {
    let machine = manifest.machine.unwrap_or_default();
    let on_gpu = manifest.gpu.as_ref().is_some_and(|gpu| !gpu.devices.is_empty());
    match machine.is_disturbed() {
        Some(true) if machine.overload().is_none() => found.extend(disturbed(&machine, threads(manifest))),
        Some(true) => found.extend(disturbed_before(manifest).or_else(|| overloaded(&machine))),
        // Others were at work before, and not while it ran; a GPU's other users do not show in the host's samples.
        Some(false) if !on_gpu => {}
        _ => found.extend(disturbed_before(manifest)),
    }
    let cpu = machine.user_s + machine.system_s;
    if let Some(throttled) = machine.throttled_s.filter(|_| machine.is_known() && cpu > 0.0)
        && throttled / machine.sampled_s >= THROTTLED
    {
        let finding = Finding::new(
            Code::CpuThrottled,
            "the control group's quota kept the program from running for {throttled} of {sampled} in which steps were \
             sampled: times are the quota's as well",
            "raise the CPU quota, or let fewer threads compute (RAYON_NUM_THREADS at most as large as the quota)",
        );
        found.push(seconds(seconds(finding, "throttled", throttled), "sampled", machine.sampled_s));
    }
    if let Some(share) = machine.system_share().filter(|share| *share >= SYSTEM && !on_gpu) {
        found.push(system(manifest, &machine, share));
    }
}

fn seconds(finding: Finding, name: &'static str, seconds: f64) -> Finding {
    finding.ns(name, (seconds * 1e9) as u64)
}

/// Threads that computed on the processors; `None` where a GPU computes, or nobody says.
fn threads(manifest: &RunManifest) -> Option<u64> {
    let device = option_key::DEVICE.of(&manifest.options);
    let on_cpu =
        device.is_none_or(|device| device == "cpu") && manifest.gpu.as_ref().is_none_or(|g| g.devices.is_empty());
    env_key::COMPUTE_THREADS.of(&manifest.environment).filter(|_| on_cpu)
}

fn disturbed(machine: &MachineUse, threads: Option<u64>) -> Option<Finding> {
    let mut finding = Finding::new(
        Code::MachineBusy,
        "the machine was busy: while steps ran, other processes used {others:.1} of {processors:raw} processors, and in \
         {share} of the time they took time from the program[, whose threads lost their processor {switches} times]: \
         times are not the program's alone",
        "end the other programs, or use processors that they do not use, and record again[; {threads} threads compute where \
         others leave {free}: fewer may be faster (`--threads {free:raw}`, or RAYON_NUM_THREADS), `candlescope tune threads` \
         compares them]; counts and shares of FLOPs and bytes hold",
    )
    .number("others", "cores", machine.others_cores()?)
    .count("processors", machine.processors? as u64)
    .ratio("share", machine.disturbed_share()?);
    // Threads of one product wait for the one that lost its processor.
    let free = ((machine.processors? - machine.others_cores()?).round() as u64).max(1);
    if let Some(threads) = threads.filter(|threads| *threads > free) {
        finding = finding.count("threads", threads).count("free", free);
    }
    if let Some(switches) = machine.switches_involuntary {
        finding = finding.count("switches", switches);
    }
    Some(finding)
}

/// Of a run of which samples do not tell what others took from it: more threads waited for processors than there are.
fn overloaded(machine: &MachineUse) -> Option<Finding> {
    let finding = Finding::new(
        Code::MachineBusy,
        "the machine was busy: the load average was {load:.1} on {processors:raw} processors[, and {sampled}, in which \
         steps were sampled, are too short to tell what others took from the program]: times may not be the program's \
         alone",
        "end the other programs, or use processors that they do not use, and record again, for longer; counts and shares \
         of FLOPs and bytes hold",
    )
    .number("load", "threads", machine.overload()?)
    .count("processors", machine.processors? as u64);
    Some(if machine.is_known() { finding } else { seconds(finding, "sampled", machine.sampled_s) })
}

/// What was seen before the work began, where samples do not say what came of it.
fn disturbed_before(manifest: &RunManifest) -> Option<Finding> {
    let told = env_key::DISTURBANCES.of(&manifest.environment)?;
    let told: Vec<&str> = told.iter().filter_map(Value::as_str).collect();
    let finding = Finding::new(
        Code::MachineBusy,
        "the machine was busy before the work began: {what}; times may not be the program's alone",
        "end the other programs, or use a device that they do not use, and record again",
    );
    (!told.is_empty()).then(|| finding.text("what", told.join("; ")))
}

fn system(manifest: &RunManifest, machine: &MachineUse, share: f64) -> Finding {
    let unset = RayonThreads::of(manifest) == RayonThreads::Unset;
    let remedy = if unset {
        "set RAYON_NUM_THREADS: without it candle asks the kernel for the number of cores at each product of dense \
         matrices; if that is not it, `perf record -g` says which calls they are"
    } else {
        "`perf record -g` says which calls they are: memory that is mapped and given back, threads that wait for each \
         other, files that are read at every step"
    };
    let finding = Finding::new(
        Code::SystemTimeHigh,
        "{share} of the program's CPU time while steps ran was spent in the kernel ({system} of {cpu})[, with {waits} \
         waits][ and {faults} page faults]",
        remedy,
    )
    .ratio("share", share);
    let mut finding = seconds(seconds(finding, "system", machine.system_s), "cpu", machine.user_s + machine.system_s);
    if let Some(waits) = machine.switches_voluntary {
        finding = finding.count("waits", waits);
    }
    if let Some(faults) = machine.faults_minor {
        finding = finding.count("faults", faults);
    }
    finding
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn a_run_says_that_others_were_at_work() {
        let machine = MachineUse {
            sampled_s: 0.4,
            user_s: 0.2,
            system_s: 0.2,
            processors: Some(2.0),
            others_s: Some(0.4),
            disturbed_s: Some(0.4),
            switches_involuntary: Some(20),
            ..MachineUse::default()
        };
        let mut manifest = RunManifest { machine: Some(machine), ..RunManifest::default() };
        let told = |manifest: &RunManifest| {
            let mut found = Vec::new();
            findings(manifest, &mut found);
            found.iter().map(|f| (f.code.clone(), f.message())).collect::<HashMap<_, _>>()
        };
        let text = told(&manifest)[&Code::MachineBusy].clone();
        assert!(text.contains("other processes used 1.0 of 2 processors") && text.contains("20 times"), "{text}");
        // More threads than others leave processors to wait for each other, and the remedy says how many these are.
        let remedy = |manifest: &RunManifest| {
            let mut found = Vec::new();
            findings(manifest, &mut found);
            found.iter().find(|f| f.code == Code::MachineBusy).expect("busy").remedy()
        };
        assert!(!remedy(&manifest).contains("threads"), "nobody says how many: {}", remedy(&manifest));
        manifest.environment.insert(env_key::COMPUTE_THREADS.name().into(), 2.into());
        let text = remedy(&manifest);
        assert!(
            text.contains("2 threads compute where others leave 1: fewer") && text.contains("`--threads 1`"),
            "{text}"
        );
        assert!(text.contains("`candlescope tune threads`"), "{text}");
        manifest.environment.insert(env_key::COMPUTE_THREADS.name().into(), 1.into());
        assert!(!remedy(&manifest).contains("threads compute"));
        // What was seen before counts where nothing was sampled.
        let before = serde_json::json!(["other processes use 1.9 of 2 cores"]);
        manifest.environment.insert(env_key::DISTURBANCES.name().into(), before);
        manifest.machine = None;
        assert!(told(&manifest)[&Code::MachineBusy].contains("use 1.9 of 2 cores"));
        manifest.machine = Some(MachineUse { others_s: Some(0.01), disturbed_s: Some(0.0), ..machine });
        assert!(!told(&manifest).contains_key(&Code::MachineBusy), "they had ended");
        let text = told(&manifest)[&Code::SystemTimeHigh].clone();
        assert!(text.starts_with("50.0 % of the program's CPU time"), "{text}");
        // A run of 23 ms on a machine for whose two processors six threads wait cannot be called free.
        let short = MachineUse { sampled_s: 0.023, user_s: 0.003, system_s: 0.009, load: Some(5.73), ..machine };
        let mut manifest = RunManifest { machine: Some(short), ..RunManifest::default() };
        let text = told(&manifest)[&Code::MachineBusy].clone();
        assert!(text.contains("the load average was 5.7 on 2 processors, and 23.0 ms, in which"), "{text}");
        manifest.machine = Some(MachineUse { load: Some(0.4), ..short });
        assert!(!told(&manifest).contains_key(&Code::MachineBusy), "nobody waited");
        assert!(told(&RunManifest::default()).is_empty(), "nothing is known");
    }
}
