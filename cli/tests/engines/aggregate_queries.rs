//! Questions that use the aggregates of our own, so that what stands for them in other engines is held against them.

/// An interval of `spans`, `steps` and `requests`.
const INTERVAL: &str = "host_start_ns, host_start_ns + host_dur_ns";

/// Each with its name.
pub fn aggregate_queries() -> Vec<(&'static str, String)> {
    let all = format!(
        "merged_ns({INTERVAL}) AS ns, median_low(host_dur_ns) AS low, median_high(host_dur_ns) AS high, count(*) AS n"
    );
    vec![
        ("aggregates of phases", format!("SELECT run, phase, {all} FROM steps GROUP BY run, phase")),
        // Whole requests contain their steps, and these their parts.
        ("aggregates of intervals within others", format!("SELECT run, step, {all} FROM spans GROUP BY run, step")),
        ("aggregates of operators", format!("SELECT run, operator, {all} FROM spans GROUP BY run, operator")),
        ("aggregates of all intervals", format!("SELECT {all} FROM spans")),
        ("aggregates of one row", format!("SELECT run, step, {all} FROM steps GROUP BY run, step")),
        ("aggregates of no row", format!("SELECT {all} FROM steps WHERE step < 0")),
        ("no group", format!("SELECT phase, {all} FROM steps WHERE step < 0 GROUP BY phase")),
        (
            "aggregates of nulls",
            "SELECT run, phase, merged_ns(CASE WHEN step % 3 = 0 THEN host_start_ns END,
                    CASE WHEN step % 2 = 0 THEN host_start_ns + host_dur_ns END) AS some_ns,
                    merged_ns(CASE WHEN step < 0 THEN host_start_ns END, host_start_ns) AS no_ns,
                    median_low(gpu_dur_ns) AS gpu, median_low(CASE WHEN step % 2 = 0 THEN host_dur_ns END) AS even,
                    median_high(CASE WHEN step < 5 THEN host_dur_ns END) AS few,
                    median_high(CASE WHEN step < 0 THEN host_dur_ns END) AS none
             FROM steps GROUP BY run, phase"
                .to_string(),
        ),
        (
            "aggregates of made intervals",
            "SELECT merged_ns(host_start_ns, host_start_ns) AS empty,
                    merged_ns(host_start_ns + host_dur_ns, host_start_ns) AS backwards,
                    merged_ns(step * 10, step * 10 + 10) AS touching, merged_ns(step * 10, step * 10 + 15) AS overlapping,
                    merged_ns(step * 10, step * 10 + 5) AS apart, merged_ns(0, step) AS nested,
                    merged_ns(-step, step % 7) AS below
             FROM steps"
                .to_string(),
        ),
        // 1, 2, 3, … values.
        (
            "aggregates of every number of values",
            "SELECT b.run, b.step, count(*) AS n, median_low(a.step) AS low, median_high(a.step) AS high,
                    median_low(a.host_dur_ns) AS low_ns, median_high(a.host_dur_ns) AS high_ns
             FROM steps AS a JOIN steps AS b ON a.run = b.run AND a.step <= b.step WHERE b.step < 200 GROUP BY b.run, b.step"
                .to_string(),
        ),
        (
            "aggregates of gauges",
            "SELECT run, device, metric, median_low(value) AS low, median_high(value) AS high FROM samples
             GROUP BY run, device, metric"
                .to_string(),
        ),
        (
            "aggregates of values that are not finite",
            "SELECT run, median_low(CASE step % 3 WHEN 0 THEN CAST('Infinity' AS DOUBLE) WHEN 1 THEN CAST('NaN' AS DOUBLE)
                    ELSE host_dur_ns END) AS low,
                    median_high(CASE step % 3 WHEN 0 THEN CAST('-Infinity' AS DOUBLE) WHEN 1 THEN host_dur_ns END) AS high
             FROM steps GROUP BY run"
                .to_string(),
        ),
        (
            "aggregates in expressions",
            format!(
                "SELECT phase, (median_high(host_dur_ns) - median_low(host_dur_ns)) / median(host_dur_ns) AS width,
                        CAST(sum(host_dur_ns) AS DOUBLE) / merged_ns({INTERVAL}) AS at_once
                 FROM steps GROUP BY phase HAVING median_low(host_dur_ns) > 0 ORDER BY width"
            ),
        ),
        // As many rows as the views have: what they say in plain SQL is the same.
        (
            "phases by merged_ns",
            format!(
                "SELECT phases.run, phases.phase, merged.ns FROM phases
                 JOIN (SELECT run, phase, merged_ns({INTERVAL}) AS ns FROM measured_steps GROUP BY run, phase) AS merged
                   ON merged.run = phases.run AND merged.phase = phases.phase AND merged.ns = phases.union_ns"
            ),
        ),
        (
            "device_time by merged_ns",
            "SELECT d.run, d.device, merged.ns FROM device_time AS d
             JOIN (SELECT run, device, merged_ns(gpu_start_ns, gpu_start_ns + gpu_dur_ns) AS ns FROM kernels
                   GROUP BY run, device) AS merged
               ON merged.run = d.run AND merged.device = d.device AND merged.ns = d.busy_ns"
                .to_string(),
        ),
        // The stretches of a device follow one another from its first activity to the end of its last, and have all of them.
        (
            "device_time by device_timeline",
            "SELECT d.run, d.device, line.busy_ns, line.all_ns, line.activities FROM device_time AS d
             JOIN (SELECT run, device, CAST(sum(CASE WHEN state = 'busy' THEN dur_ns ELSE 0 END) AS BIGINT) AS busy_ns,
                          CAST(sum(dur_ns) AS BIGINT) AS all_ns, CAST(sum(activities) AS BIGINT) AS activities
                   FROM device_timeline GROUP BY run, device) AS line
               ON line.run = d.run AND line.device = d.device AND line.busy_ns = d.busy_ns AND line.all_ns = d.span_ns
                  AND line.activities = d.activities"
                .to_string(),
        ),
    ]
}
