//! What is printed at the end of a run.

use candlescope_core::run::RunManifest;

/// The account that is printed at the end of a run.
pub(crate) fn account(m: &RunManifest, destinations: &[String]) -> String {
    let intervals = m.counts.get("spans").copied().unwrap_or(0);
    let mut text = format!(
        "candlescope: {intervals} intervals in {} steps, {} lost; own cost {:.0} ns an interval (measured){}\n",
        m.counts.get("steps").copied().unwrap_or(0),
        m.loss.lost(),
        m.overhead.per_interval_ns,
        m.overhead.ratio.map(|r| format!(", {:.3} % of step time (derived)", r * 100.0)).unwrap_or_default(),
    );
    if let Some(steps) = m.steps.filter(|steps| steps.without_record() + steps.captured > 0) {
        let requests = m.counts.get("requests").copied().unwrap_or(0);
        text.push_str(&format!("candlescope: {steps}; {requests} requests, which no schedule leaves out\n"));
    }
    for destination in destinations {
        text.push_str(&format!("candlescope: wrote {destination}\n"));
    }
    for finding in &m.verdict.findings {
        text.push_str(&format!("candlescope: {}: {}; {}\n", finding.code, finding.message(), finding.remedy()));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use candlescope_core::run::StepCounts;

    #[test]
    fn the_end_of_a_run_says_how_its_steps_were_sampled() {
        let mut m = RunManifest { counts: [("requests".to_string(), 531)].into(), ..RunManifest::default() };
        m.steps = Some(StepCounts { begun: 12_744, recorded: 12_744, ..StepCounts::default() });
        assert_eq!(account(&m, &[]).lines().count(), 1, "nothing to say where all were recorded");
        m.steps = Some(StepCounts {
            begun: 12_744,
            recorded: 1_270,
            captured: 50,
            scheduled_out: 11_424,
            ..StepCounts::default()
        });
        let text = account(&m, &[]);
        let said = text.lines().nth(1).expect("a second line");
        assert_eq!(
            said,
            "candlescope: recorded 1,320 of 12,744 steps (50 only because a capture asked for them, \
             11,424 left out by the schedule); 531 requests, which no schedule leaves out"
        );
    }
}
