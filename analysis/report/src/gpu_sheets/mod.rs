//! What reports show of the GPU: GPU time of steps, how the device's time divides, kernels, copies, energy, devices.

mod account_lines;
mod cells;
mod kernel_sheets;
mod power_sheets;
mod time_sheets;

pub(super) use cells::MOST_ROWS;

use super::format::{count, joules, percent, printable, significant, watts, with_error};
use candlescope_document::Section;
use candlescope_figures::Analysis;
use candlescope_figures::peaks::{Metric, TimeBase, utilisation};
use candlescope_schema::GpuSource;

/// Every table about the GPU, in the order of the reports; each has a section of its own, which is empty without rows.
pub(super) fn sheets(analysis: &Analysis) -> Vec<Section> {
    vec![
        time_sheets::steps(analysis),
        time_sheets::busy(analysis),
        kernel_sheets::kernels(analysis),
        kernel_sheets::paths(analysis),
        kernel_sheets::copies(analysis),
        power_sheets::energy(analysis),
        power_sheets::energy_of_requests(analysis),
        power_sheets::devices(analysis),
    ]
}

/// How close phases come to the machine's peaks, over each kind of time: MFU for prefill, MBU for decode.
pub(super) fn peaks(analysis: &Analysis) -> Vec<String> {
    let mut texts: Vec<(String, String)> = Vec::new();
    for used in utilisation(analysis) {
        let metric = used.metric.name();
        if matches!(
            (used.phase.as_str(), used.metric),
            ("prefill", Metric::Mbu) | ("decode", Metric::Mfu | Metric::Hfu)
        ) {
            continue;
        }
        let head = format!("{metric} of {} ({})", printable(&used.phase), printable(&used.peak.label_in_words()));
        let over = match used.over {
            TimeBase::Wall => "over wall time",
            TimeBase::Gpu(GpuSource::Event) => "over stream elapsed",
            TimeBase::Gpu(GpuSource::Cupti) => "over kernel time",
        };
        let value = format!("{} {over}", with_error(percent(used.ratio), used.error));
        match texts.iter_mut().find(|(known, _)| *known == head) {
            Some((_, values)) => values.push_str(&format!(", {value}")),
            None => texts.push((head, value)),
        }
    }
    texts.into_iter().map(|(head, values)| format!("{head} {values}")).collect()
}

/// The most important figures about the GPU, each with a one-word label.
pub(super) fn lines(analysis: &Analysis) -> Vec<(&'static str, String)> {
    let mut lines = Vec::new();
    if let Some(busy) = &analysis.gpu.busy {
        let launches =
            busy.launches_per_step().map_or(String::new(), |n| format!(" · {} kernels a step", significant(n)));
        let busy_share = busy.busy_share().map_or("unknown".to_string(), percent);
        let bound = busy.launch_bound_share().map_or("unknown".to_string(), percent);
        lines.push((
            "busy",
            format!("{busy_share} of {} recorded steps' wall time · launch-bound {bound}{launches}", count(busy.steps)),
        ));
    }
    let elapsed = analysis.gpu.kinds.iter().flat_map(|kind| kind.elapsed.iter().map(move |e| (kind, e)));
    let of_wall: Vec<String> = elapsed
        .filter(|(_, e)| e.source == GpuSource::Event)
        .take(4)
        .filter_map(|(kind, e)| {
            Some(format!(
                "{} {} ({} of {} steps)",
                printable(&kind.name),
                percent(e.of_wall()?),
                count(e.measured),
                count(kind.steps)
            ))
        })
        .collect();
    if !of_wall.is_empty() {
        lines.push(("stream", format!("stream elapsed / wall: {}", of_wall.join(", "))));
    }
    let used = peaks(analysis);
    if !used.is_empty() && !analysis.gpu.kinds.is_empty() {
        lines.push(("peak", used.join("; ")));
    }
    if let Some(run) = &analysis.energy.run {
        let mut text = match run.watts() {
            Some(mean) => {
                let most: Vec<String> =
                    analysis.devices.iter().filter_map(|d| d.power_watts).map(|(_, most)| watts(most)).collect();
                let most = if most.is_empty() { String::new() } else { format!(" · {} at most", most.join(", ")) };
                format!("{} mean{most} · {} while measured steps ran", watts(mean), joules(run.joules))
            }
            None => joules(run.joules),
        };
        if let Some((gross, net)) = analysis.energy.per_output_token() {
            text.push_str(&format!(" · {} an output token", joules(gross)));
            text.push_str(&match net {
                Some(net) => format!(", {} net of idle", joules(net)),
                None => ", net of idle unknown".to_string(),
            });
        }
        lines.push(("power", text));
    }
    lines.extend(account_lines::lines(&analysis.manifest));
    lines
}
