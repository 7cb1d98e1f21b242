//! Figures of many runs in a real Prometheus: what `candlescope summary --openmetrics` writes, of runs that were recorded on a GPU,
//! on days of the test's choice, and the dashboard that shows it.

use super::dashboards::{FLEET, queries};
use super::server_of_grafana::Grafana;
use super::{by_the_reader, dashboards};
use candlescope_figures::Analysis;
use candlescope_reader::{ReadLimits, Run};
use candlescope_sql::Sources;
use candlescope_testkit::ROOT;
use candlescope_testkit::services::Prometheus;
use candlescope_trends::{FIGURES, GroupBy, Summary, headlines, open_metrics, summarise};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

const DAY_S: i64 = 86_400;
const DAYS: i64 = 14;

/// A recorded run as one that began some days ago.
fn copy(recorded: &str, to: &Path, days_ago: i64, now_s: i64) {
    let from = Path::new(ROOT).join("cli/tests/recorded/gpu").join(recorded);
    fs::create_dir_all(to).expect("a directory");
    for table in fs::read_dir(&from).expect("a run").map(|entry| entry.expect("an entry").path()).filter(|p| p.is_dir())
    {
        let folder = to.join(table.file_name().expect("a name"));
        fs::create_dir_all(&folder).expect("a directory");
        for part in fs::read_dir(&table).expect("a table").map(|entry| entry.expect("an entry").path()) {
            fs::copy(&part, folder.join(part.file_name().expect("a name"))).expect("copied");
        }
    }
    let mut manifest: Value =
        serde_json::from_str(&fs::read_to_string(from.join("run.json")).expect("readable")).expect("JSON");
    manifest["started_ns"] = ((now_s - days_ago * DAY_S) * 1_000_000_000).into();
    manifest["run_id"] = to.file_name().expect("a name").to_str().into();
    fs::write(to.join("run.json"), manifest.to_string()).expect("written");
}

/// Two models in turns, by what tells them apart; and one after the other, by the device alone: a level that changes.
fn summaries(dir: &Path, now_s: i64) -> [Summary; 2] {
    let (apart, mixed) = (dir.join("apart"), dir.join("mixed"));
    for ago in 0..DAYS {
        copy("replays", &apart.join(format!("replays-{ago:02}")), ago, now_s);
        copy("unmodified", &apart.join(format!("unmodified-{ago:02}")), ago, now_s);
        copy(if ago < DAYS / 2 { "replays" } else { "unmodified" }, &mixed.join(format!("mixed-{ago:02}")), ago, now_s);
    }
    [(apart, vec![GroupBy::Model, GroupBy::Device]), (mixed, vec![GroupBy::Device])].map(|(folder, by)| {
        let limits = ReadLimits::default();
        let sources = Sources::open([folder], &limits).expect("runs");
        summarise(&headlines(sources, &by, None, &limits).expect("figures").runs, &by)
    })
}

/// The energy of a token is near that of the report, which follows the counter between its readings.
#[test]
fn the_energy_of_a_token_is_that_of_the_report() {
    let run = Path::new(ROOT).join("cli/tests/recorded/gpu/replays");
    let limits = ReadLimits::default();
    let sources = Sources::open([&run], &limits).expect("a run");
    let found = headlines(sources, &[GroupBy::Model], None, &limits).expect("figures").runs;
    let at = FIGURES.iter().position(|figure| figure.name == "energy_mj_per_token").expect("the figure");
    let headline = found[0].values[at].expect("there is one") / 1e3;
    let analysis = Analysis::of(&Run::open(&run).expect("a run"));
    let (report, _) = analysis.energy.per_output_token().expect("long enough");
    assert!((headline / report - 1.0).abs() < 0.1, "{headline} J here, {report} J in the report");
}

#[test]
fn figures_of_many_runs_are_in_prometheus_as_they_are_in_the_summary_and_every_panel_shows_some() {
    let dir = tempfile::tempdir().expect("a directory");
    let now_s =
        i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs()).expect("fits");
    let [apart, mixed] = summaries(dir.path(), now_s);
    assert_eq!((apart.groups.len(), mixed.groups.len()), (2, 1), "{apart:?}");
    let changes = mixed.groups[0].trends.iter().map(|trend| trend.changes.len()).sum::<usize>();
    assert!(changes > 0, "{mixed:?}");
    let texts = [open_metrics(&apart, "/data/a"), open_metrics(&mixed, "/data/b")];
    let prometheus = Prometheus::start_of(&[&texts[0], &texts[1]]);

    // Each value of each day, at noon: what the panels ask, which see the sample at the day's beginning.
    let mut compared = 0;
    for (summary, place) in [(&apart, "/data/a"), (&mixed, "/data/b")] {
        for (group, trend) in
            summary.groups.iter().flat_map(|group| group.trends.iter().map(move |trend| (group, trend)))
        {
            let labels: Vec<String> = group.keys.iter().map(|(key, value)| format!("{key}=\"{value}\"")).collect();
            let of = format!("instance=\"{place}\",stat=\"median\",{}", labels.join(","));
            let metric = trend.figure.metric;
            for point in &trend.days {
                let expr = format!("last_over_time(candlescope_fleet_{metric}{{{of}}}[1d])");
                let found = prometheus.query_at(&expr, point.number * DAY_S + DAY_S / 2).expect("answers");
                let [(_, value)] = &found[..] else { panic!("{expr}: {found:?}") };
                let expected = point.median * trend.figure.to_base;
                assert!((value / expected - 1.0).abs() < 1e-9, "{expr} on {}: {value}, not {expected}", point.day);
                compared += 1;
            }
        }
    }
    assert!(compared > 100, "{compared}");

    let today = now_s.div_euclid(DAY_S);
    let panels = queries(FLEET);
    assert!(panels.len() > 7, "{} queries are not all there are", panels.len());
    for query in panels {
        let expr = by_the_reader(&query.expr);
        let shown = (today - DAYS..=today).any(|day| {
            let values = prometheus.query_at(&expr, day * DAY_S + 60).unwrap_or_else(|error| panic!("{expr}: {error}"));
            values.iter().any(|(_, value)| value.is_finite())
        });
        assert!(shown, "{}: {expr} stays empty", query.of);
    }
    let change = "candlescope_fleet_level_change_ratio{instance=\"/data/b\"}";
    let listed = prometheus.query(&format!("count_over_time({change}[60d])")).expect("answers");
    assert_eq!(listed.len(), changes, "{listed:?}");
    dashboards::check(FLEET, &dashboards::read(FLEET));
}

/// The same panels as Grafana asks, of its own provisioning.
#[test]
#[ignore = "builds Grafana, a quarter of an hour: make test-grafana"]
fn panels_of_many_runs_answer_through_a_real_grafana() {
    let dir = tempfile::tempdir().expect("a directory");
    let now_s =
        i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs()).expect("fits");
    let [apart, mixed] = summaries(dir.path(), now_s);
    let prometheus = Prometheus::start_of(&[&open_metrics(&apart, "/data/a"), &open_metrics(&mixed, "/data/b")]);
    let grafana = Grafana::start(prometheus.address, prometheus.address);
    let written = dashboards::read(FLEET);
    let kept = grafana.get(&format!("/api/dashboards/uid/{}", written["uid"].as_str().expect("uid")));
    assert_eq!((&kept["meta"]["provisioned"], &kept["dashboard"]["panels"]), (&true.into(), &written["panels"]));
    let mut answered = 0;
    for (of, mut target) in dashboards::targets(FLEET) {
        target["expr"] = by_the_reader(target["expr"].as_str().expect("expr")).into();
        let values = grafana.query_since(&target, "now-20d", 6 * 3_600_000);
        assert!(values.iter().any(|value| value.is_finite()), "{of}: {target} stays empty");
        answered += 1;
    }
    assert!(answered > 7, "{answered} queries are not all there are");
    println!("{answered} queries of the dashboard of many runs answered by a real Grafana");
}
