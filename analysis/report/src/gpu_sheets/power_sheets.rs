//! Energy and devices.

use super::super::format::{bytes, count, duration, head, joules, percent, plural, printable, significant, watts};
use super::cells::{sheet, time};
use candlescope_document::{Cell, Row, Section, Table, cell, column, maybe, missing, sorted, wide};
use candlescope_figures::sensor::{ACCURACY, Idle, IdleFrom, Joules};
use candlescope_figures::{Analysis, Device, RequestFigures};

/// Requests of which the energy is listed; `metrics.json` has all.
const MOST_REQUESTS: usize = 100;

pub(super) fn energy(analysis: &Analysis) -> Section {
    let energy = &analysis.energy;
    let row = |name: &str, e: &Joules, tokens: Option<u64>| {
        let per_token = tokens.filter(|&n| n > 0 && !e.below_resolution).map(|n| e.joules / n as f64);
        Row::new(
            name,
            vec![
                maybe(Some(e.joules), |v| if e.below_resolution { format!("~{}", joules(v)) } else { joules(v) }),
                sorted(format!("{} – {}", joules(e.low), joules(e.high)), e.high - e.low),
                net(e),
                maybe(e.watts(), watts),
                maybe(per_token, joules),
                time(Some(e.time_ns as f64)),
                sorted(
                    if e.below_resolution { "below" } else { "resolved" }.to_string(),
                    f64::from(u8::from(!e.below_resolution)),
                ),
                sorted(format!("−{} +{}", joules(e.by_period.0), joules(e.by_period.1)), e.by_period.0 + e.by_period.1),
                cell(format!("±{}", joules(e.by_accuracy)), e.by_accuracy),
            ],
        )
    };
    let mut rows: Vec<Row> = Vec::new();
    rows.extend(energy.run.as_ref().map(|e| row("measured steps", e, None)));
    rows.extend(energy.phases.iter().map(|phase| row(&phase.name, &phase.energy, phase.tokens)));
    rows.extend(energy.requests.as_ref().map(|e| row("measured requests", e, energy.output_tokens)));
    rows.extend(energy.warmup.as_ref().map(|e| row("warm-up", e, None)));
    rows.extend(energy.loading.as_ref().map(|e| row("loading", e, None)));
    rows.extend(analysis.shares.counted.as_ref().map(|e| row("all that was counted", e, None)));
    let gpus = plural(energy.sensors.len() as u64, "GPU");
    let checks =
        energy.sensors.iter().filter_map(|(_, s)| s.check?.ratio()).map(|r| format!("{} of the counter", percent(r)));
    let checks = checks.collect::<Vec<_>>().join(", ");
    let from = match (energy.sensors.iter().any(|(_, s)| s.has_counter), checks.is_empty()) {
        (true, false) => {
            format!(
                "From the energy counter, interpolated by power between its readings; power integrates to {checks}."
            )
        }
        (true, true) => "From the energy counter.".to_string(),
        (false, _) => "From power, integrated; there is no energy counter.".to_string(),
    };
    let period = energy.sensors.iter().map(|(_, s)| s.period_ns).max().unwrap_or(0);
    let columns = vec![
        column("energy", "gross"),
        column(
            "bound",
            "uncertainty from the sensor's period and its accuracy; power that swings between two samples is not included",
        ),
        column("net", "less idle power × time; unknown if idle power is unknown or above the mean power"),
        column("power", "mean over the time"),
        column("a token", "gross energy for each token processed; of requests, for each output token"),
        column("time", "time in which at least one of these ran"),
        wide("resolution", "whether the time is long enough for the sensors"),
        wide("by period", "what the sensor's period misplaces at most, down and up"),
        wide("by accuracy", "the sensor's stated accuracy, datasheet"),
    ];
    let note = format!(
        "{gpus}. {from}{} The bound adds the energy that the sensors' period of {} can misplace and their \
             accuracy of ±{:.0} % (datasheet); below resolution it is power × time, of which only the bound is \
             meaningful.",
        idle(analysis),
        duration(period as f64),
        ACCURACY * 100.0
    );
    let table = Table::new("of", columns, rows);
    sheet("energy", "Energy", note, table, 8, "kinds of step")
}

/// What each request used, and that this adds up.
pub(super) fn energy_of_requests(analysis: &Analysis) -> Section {
    let shares = &analysis.shares;
    let row = |figures: &RequestFigures| {
        let share = shares.of_request(figures.request)?;
        let used = share.joules?;
        let resolved = !share.below_resolution;
        let per_token =
            figures.output_tokens.filter(|n| *n > 0 && resolved && share.is_covered).map(|n| used / n as f64);
        let name = format!("request {}{}", figures.request, if share.warmup { " (warm-up)" } else { "" });
        let bound = share
            .bound
            .map_or(missing(), |(low, high)| sorted(format!("{} – {}", joules(low), joules(high)), high - low));
        let cells = vec![
            cell(
                match (share.is_covered, resolved) {
                    (false, _) => format!("at least {}", joules(used)),
                    (true, false) => format!("~{}", joules(used)),
                    (true, true) => joules(used),
                },
                used,
            ),
            bound,
            maybe(per_token, joules),
            time(Some(share.step_ns)),
            time(share.device_ns),
        ];
        Some(Row::new(name, cells))
    };
    let mut most: Vec<&RequestFigures> = analysis.latency.requests.iter().collect();
    let used = |figures: &RequestFigures| shares.of_request(figures.request).and_then(|share| share.joules);
    most.sort_by(|a, b| used(b).unwrap_or(0.0).total_cmp(&used(a).unwrap_or(0.0)));
    let rows: Vec<Row> = most.into_iter().filter_map(row).take(MOST_REQUESTS).collect();
    let columns = vec![
        column("energy", "its share of its steps' energy"),
        column("bound", "uncertainty from the sensor's period and its accuracy, over the time in which its steps ran"),
        column("a token", "for each output token"),
        column("step time", "its share of its steps' time on the host"),
        column(
            "device time",
            "its share of its steps' time on the device; where some of them have none, it is not known",
        ),
    ];
    let known = |value: Option<f64>| value.map_or("unknown".to_string(), joules);
    let note = format!(
        "A step for several requests is divided by the work that each causes: by tokens, and what it reads of keys and values \
         by contexts. Listed are those that used most. Requests {} + steps for no request {} + no step running {} = {}; the sensors counted {}.",
        known(shares.of_requests()),
        known(shares.other_steps),
        known(shares.outside),
        known(shares.sum()),
        known(shares.counted.map(|counted| counted.joules)),
    );
    sheet("energy-of-requests", "Energy of requests", note, Table::new("of", columns, rows), 8, "requests")
}

/// Net energy, or why there is none.
fn net(e: &Joules) -> Cell {
    match e.idle_above_mean {
        true => sorted("unknown: idle above mean", f64::MIN),
        false => maybe(e.net.filter(|_| !e.below_resolution), joules),
    }
}

/// The idle power that is subtracted for net energy.
fn idle(analysis: &Analysis) -> String {
    let known = analysis.energy.sensors.iter().map(|(_, sensor)| match sensor.idle {
        Some(Idle { watts: w, from: IdleFrom::Between(n) }) => {
            format!("{} idle (median of {} samples after the first step, outside all)", watts(w), count(n as u64))
        }
        Some(Idle { watts: w, from: IdleFrom::Lowest }) => {
            format!(
                "at most {} idle (lowest level outside steps, loading included), so it is no less than this",
                watts(w)
            )
        }
        None => "idle power, which is not known".to_string(),
    });
    let known = known.collect::<Vec<_>>().join(", ");
    if known.is_empty() { known } else { format!(" Net is less {known}.") }
}

pub(super) fn devices(analysis: &Analysis) -> Section {
    let rows = analysis.devices.iter().map(|d: &Device| {
        let energy = analysis.energy.sensors.iter().position(|(uuid, _)| *uuid == d.uuid);
        let energy = energy.and_then(|i| analysis.energy.run_by_device.get(i).copied().flatten());
        let name = d.name.clone().map_or(d.uuid.clone(), |name| format!("{name} {}", head(&d.uuid, 13)));
        let pair = |v: Option<(f64, f64)>, show: &dyn Fn(f64) -> String| {
            v.map_or(missing(), |(mean, most)| cell(format!("{} / {}", show(mean), show(most)), mean))
        };
        let memory = match (d.memory_bytes, d.memory_limit_bytes) {
            (Some(used), Some(limit)) => cell(format!("{} of {}", bytes(used), bytes(limit)), used),
            (used, _) => maybe(used, bytes),
        };
        let pool = match d.pool_bytes {
            (Some(used), Some(reserved)) => cell(format!("{} of {}", bytes(used), bytes(reserved)), used),
            (used, _) => maybe(used, bytes),
        };
        let row = Row::new(
            name,
            vec![
                pair(d.utilisation, &percent),
                pair(d.power_watts, &significant),
                maybe(d.power_limit_watts, watts),
                maybe(energy.map(|e| e.joules), joules),
                memory,
                pool,
                d.clock_hertz.map_or(missing(), |(low, mean, high)| {
                    let ghz = |hz: f64| format!("{:.2}", hz / 1e9);
                    cell(format!("{} – {}, mean {} GHz", ghz(low), ghz(high), ghz(mean)), mean)
                }),
                maybe(d.memory_clock_hertz, |hz| format!("{:.2} GHz", hz / 1e9)),
                maybe(d.celsius.map(|c| c.1), |c| format!("{c:.0} °C")),
                throttled(d),
                time(d.period_ns.map(|ns| ns as f64)),
            ],
        );
        Row { whole: Some(d.uuid.clone()), ..row }
    });
    let columns = vec![
        column("utilisation", "mean / largest"),
        column("power, W", "mean / largest"),
        wide("limit", "enforced power limit"),
        wide("energy", "while measured steps ran"),
        column("memory", "largest in use by anyone over the whole run, of all"),
        wide("candle's pool", "largest used over the whole run, of largest reserved"),
        wide("clock", "of the multiprocessors"),
        wide("memory clock", "mean"),
        column("heat", "largest temperature of the die"),
        wide("throttled", "share of samples in which clocks were held down, by reason; idle left out"),
        wide("sampled every", "median time between two samples of power"),
    ];
    let note = format!(
        "{}; mean / largest. Memory is the largest of the whole run. Utilisation is the driver's: the share of its sampling period \
             in which any kernel ran, not how much of the GPU it used.",
        match analysis.devices.iter().any(|d| d.whole_run) {
            true => "As sampled over the whole run, which has no measured steps",
            false => "As sampled while measured steps ran",
        }
    );
    let table = Table::new("GPU", columns, rows.collect());
    sheet("devices", "Devices", note, table, 4, "GPUs")
}

fn throttled(device: &Device) -> Cell {
    if !device.throttling_known {
        return missing();
    }
    let reasons: Vec<String> =
        device.throttled.iter().map(|(reason, share)| format!("{} {}", printable(reason), percent(*share))).collect();
    match reasons.first() {
        None => sorted("never", 0.0),
        Some(_) => sorted(reasons.join(", "), device.throttled.first().map_or(0.0, |t| t.1)),
    }
}
