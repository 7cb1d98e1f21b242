//! GPU time of steps, and how the device's time divides.

use super::super::format::duration;
use super::cells::{number, of, rate, share, sheet, time};
use candlescope_document::{Row, Section, Table, column, sorted, wide};
use candlescope_figures::Analysis;
use candlescope_figures::busy::Busy;
use candlescope_figures::gpu_of_steps::SourceTime;
use candlescope_figures::gpu_time::source_name;

pub(super) fn steps(analysis: &Analysis) -> Section {
    let rows = analysis.gpu.kinds.iter().flat_map(|kind| {
        kind.elapsed.iter().map(|e: &SourceTime| {
            let d = e.duration.as_ref();
            Row::new(
                kind.name.clone(),
                vec![
                    sorted(source_name(e.source), e.source as u8 as f64),
                    of(e.measured, kind.steps),
                    time(d.map(|d| d.median)),
                    time(d.and_then(|d| d.p95)),
                    time(d.map(|d| d.mean)),
                    time(Some(e.total_ns)),
                    share(e.of_wall()),
                    rate(e.tflops),
                    rate(e.io_gbytes),
                ],
            )
        })
    });
    let columns = vec![
        column("source", "what measured it"),
        column("measured", "steps with GPU time from this source, of all"),
        column("median", "GPU time of one step"),
        column("p95", ""),
        wide("mean", ""),
        column("total", "mean × all steps: extrapolated where not all were measured"),
        column("of wall", "GPU time ÷ duration on the host, of the measured steps"),
        column("TFLOP/s", "analytic FLOPs ÷ GPU time, of the measured steps; what overlaps counts once"),
        column("GB/s", "analytic bytes with activations ÷ GPU time, of the measured steps"),
    ];
    let note = "Stream elapsed is the time between two marks in the stream, queue gaps included: over wall time it is not a busy share. \
               Kernels is the sum of the kernels launched inside. Totals are the mean of the measured steps × all steps.";
    let table = Table::new("steps", columns, rows.collect());
    sheet("gpu-steps", "GPU time of steps", note, table, 8, "kinds of step")
}

pub(super) fn busy(analysis: &Analysis) -> Section {
    let row = |name: &str, busy: &Busy| {
        let part = |ns: u64| share(busy.of_wall(ns as f64));
        let delay = busy.queue_delay.as_ref();
        Row::new(
            name,
            vec![
                number(busy.steps),
                share(busy.busy_share()),
                share(busy.launch_bound_share()),
                part(busy.launch_overhead.ns),
                part(busy.uncertain.ns),
                part(busy.other.ns),
                share(busy.unattributed_share()),
                rate(busy.launches_per_step()),
                rate((busy.steps > 0).then(|| busy.copies as f64 / busy.steps as f64)),
                time((busy.steps > 0).then(|| busy.open_ns as f64 / busy.steps as f64)),
                rate(busy.steps_at_once()),
                rate(busy.streams_at_once()),
                time(delay.map(|d| d.median)),
                time(delay.and_then(|d| d.p95)),
            ],
        )
    };
    let kinds = analysis.gpu.kinds.iter().filter_map(|kind| Some((kind.name.as_str(), kind.busy.as_ref()?)));
    let mut rows: Vec<Row> = kinds.map(|(name, busy)| row(name, busy)).collect();
    if let Some(busy) = analysis.gpu.busy.as_ref().filter(|_| rows.len() > 1) {
        rows.push(row("all recorded steps", busy));
    }
    if analysis.gpu.devices.len() > 1 {
        rows.extend(analysis.gpu.devices.iter().map(|(uuid, busy)| row(uuid, busy)));
    }
    let clocks = match analysis.gpu.clock_bound_ns {
        Some(ns) => format!("The clocks are within {} of each other", duration(ns as f64)),
        None => "The run does not say how far apart the clocks may be".to_string(),
    };
    let columns = vec![
        column("recorded", "steps whose kernels were recorded"),
        column("busy", "something ran"),
        column("host-bound", "gaps that the host caused, until the work began: launch-bound share"),
        column("overhead", "gaps under 1.5 µs"),
        wide("unclear", "gaps within the clocks' error"),
        column("other", "all other gaps"),
        column("unattr.", "wall time before the first kernel and after the last"),
        column("launches", "kernels a step"),
        wide("copies", "copies and memsets a step"),
        wide("wall a step", "mean duration on the host"),
        wide("steps at once", "open at once, on average"),
        wide("streams at once", "at work at once, on average over the busy time"),
        column("queue", "median time from the end of the launching call to the start on the device"),
        wide("queue p95", ""),
    ];
    let note = format!(
        "Shares of the time in which recorded steps were open on the GPU, which they add up to: steps of several threads that overlap \
             count once. Kernels, copies and memsets are merged first. A gap is host-bound if the launch of what follows \
             returned after the GPU had run out of work, launch overhead if it is under 1.5 µs, unclear if the clocks cannot \
             tell which of the two came first. {clocks}. \
             Unattributed is before the first kernel and after the last."
    );
    let table = Table::new("steps", columns, rows);
    sheet("gpu-busy", "How the GPU's time divides", note, table, 6, "kinds of step")
}
