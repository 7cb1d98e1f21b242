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
        let what = if received_nothing(m, destination) { "sent nothing to" } else { "wrote" };
        text.push_str(&format!("candlescope: {what} {destination}\n"));
    }
    for finding in &m.verdict.findings {
        text.push_str(&format!("candlescope: {}: {}; {}\n", finding.code, finding.message(), finding.remedy()));
    }
    text
}

/// Whether a collector's address took none of the spans that there were for it.
fn received_nothing(m: &RunManifest, destination: &str) -> bool {
    let is_address = destination.starts_with("http://") || destination.starts_with("https://");
    let traces = m.exporters.iter().find(|exporter| is_address && exporter.name == "otlp");
    traces.is_some_and(|exporter| {
        let spans = |counts: &std::collections::BTreeMap<String, u64>| counts.get("spans").copied().unwrap_or(0);
        spans(&exporter.received) > 0 && spans(&exporter.exported) == 0
    })
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

    #[test]
    fn nothing_was_written_where_nobody_took_it() {
        use candlescope_core::run::ExporterReport;
        let report = |exported: u64| ExporterReport {
            name: "otlp".to_string(),
            received: [("spans".to_string(), 40)].into(),
            exported: [("spans".to_string(), exported)].into(),
            ..ExporterReport::default()
        };
        let places = ["http://127.0.0.1:9".to_string(), "runs/one".to_string()];
        let told = |exported: u64| {
            let m = RunManifest { exporters: vec![report(exported)], ..RunManifest::default() };
            account(&m, &places).lines().skip(1).map(str::to_string).collect::<Vec<_>>()
        };
        assert_eq!(told(0), ["candlescope: sent nothing to http://127.0.0.1:9", "candlescope: wrote runs/one"]);
        assert_eq!(told(40)[0], "candlescope: wrote http://127.0.0.1:9");
    }
}
