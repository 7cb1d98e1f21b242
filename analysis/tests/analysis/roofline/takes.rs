//! The latencies of two CPU cores that `docs/measurements/prediction` keeps, fitted again: predictions and errors of the
//! page are those of the code as it is. `UPDATE_DOCS=1` writes the predicted columns and `cpu-calibration.md` anew.

use candlescope_predict::roofline::{
    Calibration, CalibrationRun, Figure, Form, LeftOut, Scenario, calibrate, step_times,
};
use candlescope_report::roofline::calibration_markdown;
use candlescope_work::devices::{Device, DeviceKind, Format};
use candlescope_work::known_models::known_model;
use std::path::PathBuf;

/// A kept prediction may be so far off: what was measured has three or four digits there.
const ROUNDED: f64 = 0.005;

/// The columns that a latency is known by, and those that follow from the code.
const KNOWN_BY: usize = 6;

fn file(name: &str) -> PathBuf {
    PathBuf::from(candlescope_testkit::ROOT).join("docs/measurements/prediction").join(name)
}

/// The rows of a table, its head first.
fn rows(name: &str) -> Vec<Vec<String>> {
    let text = std::fs::read_to_string(file(name)).unwrap();
    text.lines().map(|line| line.split(',').map(str::to_string).collect()).collect()
}

fn run_name(row: &[String]) -> String {
    row[..4].join(".")
}

fn figure(row: &[String]) -> Figure {
    if row[4] == "ttft" { Figure::Ttft } else { Figure::Tpot }
}

fn scenario(row: &[String]) -> Scenario {
    let asked = |at: usize| row[at].parse().unwrap();
    Scenario::new(Format::named("f32").unwrap()).batch(asked(1)).tokens(asked(2), 12)
}

/// The runs of a table, in the order of their names.
fn runs(rows: &[Vec<String>]) -> Vec<CalibrationRun> {
    let mut runs: std::collections::BTreeMap<String, CalibrationRun> = std::collections::BTreeMap::new();
    for row in &rows[1..] {
        let run = runs.entry(run_name(row)).or_insert_with(|| CalibrationRun {
            name: run_name(row),
            shape: known_model(&row[0]).unwrap(),
            scenario: scenario(row),
            measured: Vec::new(),
        });
        run.measured.push((figure(row), row[5].parse::<f64>().unwrap() * 1e6));
        run.measured.sort_by_key(|(figure, _)| *figure);
    }
    runs.into_values().collect()
}

fn fitted(rows: &[Vec<String>]) -> Calibration {
    calibrate(&runs(rows), &Device::without_peaks("AMD EPYC", DeviceKind::Cpu)).unwrap()
}

/// Holds the predicted columns of a table to `predicted`, milliseconds by row.
fn hold(name: &str, rows: &[Vec<String>], predicted: impl Fn(&[String]) -> Vec<f64>) {
    let mut text = rows[0].join(",") + "\n";
    let mut wrong = Vec::new();
    for row in &rows[1..] {
        let now = predicted(row);
        let there = row[KNOWN_BY..].iter().map(|cell| cell.parse::<f64>().unwrap());
        if now.len() != row.len() - KNOWN_BY || there.zip(&now).any(|(there, now)| (there / now - 1.0).abs() > ROUNDED)
        {
            wrong.push(format!("{}: {now:?}", row.join(",")));
        }
        let cells = row[..KNOWN_BY].iter().cloned().chain(now.iter().map(|ms| format!("{ms:.1}")));
        text += &(cells.collect::<Vec<_>>().join(",") + "\n");
    }
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(file(name), text).unwrap();
    } else {
        assert!(wrong.is_empty(), "{name}, UPDATE_DOCS=1 writes it anew:\n{}", wrong.join("\n"));
    }
}

/// What was predicted for a row without its case and without its model.
fn left_out(found: &Calibration, row: &[String]) -> Vec<f64> {
    let without = |left_out| {
        let mut of = found.held_out.iter().filter(|held| held.left_out == left_out && held.figure == figure(row));
        of.find(|held| held.run == run_name(row)).unwrap().predicted_ns / 1e6
    };
    vec![without(LeftOut::Case), without(LeftOut::Model)]
}

/// The median size of an error, over all models.
fn error(found: &Calibration, without: LeftOut, figure: Figure) -> f64 {
    let mut all = found.errors.iter().filter(|error| error.left_out == without && error.figure == figure);
    all.find(|error| error.model.is_none()).unwrap().median_absolute
}

#[test]
fn two_cores_are_predicted_as_the_page_says() {
    let name = "cpu-latencies.csv";
    let rows = rows(name);
    let found = fitted(&rows);
    assert_eq!((found.form, found.runs, found.cases, found.models), (Form::Roof, 28, 14, 2));
    hold(name, &rows, |row| left_out(&found, row));

    let page = calibration_markdown(&found);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(file("cpu-calibration.md"), &page).unwrap();
    }
    let kept = std::fs::read_to_string(file("cpu-calibration.md")).unwrap();
    let words = |page: &str| page.replace(|c: char| c.is_ascii_digit() || "+-.".contains(c), "");
    assert_eq!(words(&kept), words(&page), "UPDATE_DOCS=1 writes it anew");
    let median = |page: &str, figure: Figure, without: LeftOut| -> f64 {
        let begin = format!("| {} | {} |", figure.name(), without.name());
        let row = page.lines().find(|line| line.starts_with(&begin)).expect("a row");
        row.split('|').nth(5).unwrap().trim().trim_end_matches(" %").parse().unwrap()
    };
    for figure in [Figure::Ttft, Figure::Tpot] {
        for without in [LeftOut::Nothing, LeftOut::Case, LeftOut::Model] {
            let (there, now) = (median(&kept, figure, without), 100.0 * error(&found, without, figure));
            assert!((there - now).abs() < 0.3, "{figure:?} without {without:?}: {there} on the page, {now} now");
        }
    }

    // A model alone does not tell what an operation takes itself from a lower bandwidth. With reading and multiplying at
    // once tokens of the other one were 20.9 % off with both fitted, and 10.6 % without an operation's own time.
    assert!(found.fitted.iter().all(|fitted| fitted.kind != "kernel_floor"), "{:?}", found.fitted);
    assert!(error(&found, LeftOut::Model, Figure::Tpot) < 0.08);
    assert!(error(&found, LeftOut::Model, Figure::Ttft) < 0.13);
    assert!(error(&found, LeftOut::Case, Figure::Tpot) < 0.07 && error(&found, LeftOut::Case, Figure::Ttft) < 0.07);
}

/// In the take of before each product read a file first, which took tens of microseconds.
#[test]
fn what_an_operation_takes_itself_is_found_where_it_takes_long() {
    let name = "cpu-latencies-unset.csv";
    let rows_of_take = rows(name);
    let found = fitted(&rows_of_take);
    hold(name, &rows_of_take, |row| left_out(&found, row));
    let floor = found.fitted.iter().find(|fitted| fitted.kind == "kernel_floor").expect("fitted");
    assert!(floor.determined && (30e-6..60e-6).contains(&floor.value), "{floor:?}");

    // Cases that were recorded afterwards.
    let name = "cpu-other-cases.csv";
    let others = rows(name);
    let predicted = |row: &[String]| {
        let (ttft, tpot) = step_times(&known_model(&row[0]).unwrap(), &found.device, &scenario(row));
        let ns = if figure(row) == Figure::Ttft { ttft } else { tpot };
        ns.unwrap().mid / 1e6
    };
    hold(name, &others, |row| vec![predicted(row)]);
    let median = |wanted: Figure| {
        let own = others[1..].iter().filter(|row| figure(row) == wanted);
        let mut all: Vec<f64> = own.map(|row| (predicted(row) / row[5].parse::<f64>().unwrap() - 1.0).abs()).collect();
        all.sort_by(f64::total_cmp);
        f64::midpoint(all[all.len() / 2 - 1], all[all.len() / 2])
    };
    assert!(
        median(Figure::Tpot) < 0.075 && median(Figure::Ttft) < 0.09,
        "{} {}",
        median(Figure::Tpot),
        median(Figure::Ttft)
    );
}
