//! What is said of runs that were recorded beside a compiler on both processors: `busy/README.md` has how.

use super::common::*;
use super::{analysed, figure, findings};
use serde_json::{Value, json as object};
use std::path::{Path, PathBuf};

fn busy(name: &str) -> PathBuf {
    Path::new(ROOT).join("cli/tests/recorded/busy").join(name)
}

fn path_of(run: &Path) -> &str {
    run.to_str().expect("UTF-8")
}

/// A page of a run's report, which is written elsewhere.
fn page(run: &Path, name: &str) -> String {
    let dir = tempfile::tempdir().expect("a directory");
    ok(&["report", path_of(run), "--out", path_of(dir.path())]);
    std::fs::read_to_string(dir.path().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// The first sentence of a report.
fn head(run: &Path) -> String {
    let report = page(run, "report.md");
    let line = report.lines().find(|line| line.starts_with("**"));
    line.unwrap_or_else(|| panic!("{report}")).to_string()
}

fn said(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("{value:#}"))
}

#[test]
fn a_known_cost_of_products_leads_however_long_others_made_the_steps() {
    // In the one a single stall of 120 ms in the attention, which holds four products, made that look like one product;
    // in the other the median step is three times as long as alone, and the products take less than a quarter of it.
    for (name, of_step) in [("stalled", 0.42), ("stretched", 0.22)] {
        let object = analysed(&busy(name));
        let first = findings(&object).first().unwrap_or_else(|| panic!("{object:#}"));
        assert_eq!(first["code"], "constant_cost", "{name}: {object:#}");
        assert!(said(&first["message"]).contains("RAYON_NUM_THREADS is not set"), "{first:#}");
        assert_eq!((&first["confidence"]["level"], &first["disturbed"]), (&"high".into(), &false.into()), "{first:#}");
        // What the program measured when it began: 33.0 and 32.8 µs.
        let each = figure(first, "each_ns").expect("a figure");
        assert!((32_500.0..33_500.0).contains(&each) && figure(first, "calls") == Some(29.0), "{first:#}");
        assert!((figure(first, "of_step").expect("a figure") - of_step).abs() < 0.01, "{first:#}");
        assert!(first["gain"]["low"].as_f64().unwrap() > 0.7 * of_step, "each call costs that: {first:#}");
    }
}

#[test]
fn the_head_names_what_usual_steps_spend_their_time_on_and_stalls_apart() {
    // A call of 48 ms, in 120 ms of decoding steps, put `gate_proj` at 39.1 % of all step time; three products take a
    // tenth each.
    let head = head(&busy("server"));
    assert!(head.contains("10.4 % of a usual step `decode` is in `decode/block/mlp/"), "{head}");
    assert!(head.contains("and 70.5 % of all step time is what single steps took beyond twice the median"), "{head}");
    let plain = page(&busy("server"), "stakeholder_summary.md");
    assert!(plain.contains("10.4 % of a usual step") && !plain.contains("39.1 %"), "{plain}");
}

#[test]
fn what_others_took_between_steps_is_not_the_programs() {
    let object = analysed(&busy("server"));
    let found = findings(&object).iter().find(|finding| finding["code"] == "between_steps");
    let found = found.unwrap_or_else(|| panic!("{object:#}"));
    // Two gaps of 8 and 10 ms among 131 of 3 to 18 µs.
    let (each, mean) = (figure(found, "each_step_ns").expect("a figure"), figure(found, "mean_ns").expect("a figure"));
    assert!((10e3..20e3).contains(&each) && mean > 150e3, "{found:#}");
    assert!(found["gain"]["high"].as_f64().unwrap() < 0.09, "{found:#}");
    assert_eq!((&found["disturbed"], &found["confidence"]["level"]), (&true.into(), &"low".into()), "{found:#}");
    let order: Vec<bool> = findings(&object).iter().map(|finding| finding["disturbed"] == true).collect();
    assert!(order.is_sorted(), "{order:?}");
}

#[test]
fn a_run_too_short_to_tell_says_the_load_and_so_does_a_comparison() {
    // 23 ms of samples, load 5.7 on two processors.
    let short = busy("short");
    let (head, report) = (head(&short), page(&short, "report.md"));
    assert!(head.contains("the machine was busy (load 5.7 on 2 processors): times may not be"), "{head}");
    assert!(!report.contains("the data can be trusted") && report.contains("too short to tell"), "{report}");
    let compared = ok_or_outcome(&["compare", path_of(&short), path_of(&busy("stalled"))]);
    assert!(compared.contains("The run of A was disturbed: the load average was 5.73 on 2 processors"), "{compared}");
    assert!(compared.contains("The run of B was disturbed: other processes used 1.78 of 2 processors"), "{compared}");
}

/// What `compare` says, whatever its outcome.
fn ok_or_outcome(args: &[&str]) -> String {
    let output = run(args);
    assert!(matches!(output.status.code(), Some(0..=2)), "{}", text(&output.stderr));
    text(&output.stdout)
}

#[test]
fn whoever_reads_figures_reads_first_that_the_machine_was_busy() {
    let server = busy("server");
    let verdict = "the data are whole, but the machine was busy: times are not the program's alone";
    let first = ok(&["analyze", path_of(&server)]).lines().next().unwrap_or_default().to_lowercase();
    assert_eq!(first.trim_end_matches('.'), verdict);
    let trust = &analysed(&server)["runs"][0]["trust"];
    assert_eq!((&trust["ok"], &trust["disturbed"], said(&trust["text"])), (&true.into(), &true.into(), verdict));
    let dir = tempfile::tempdir().expect("a directory");
    let out = dir.path().to_str().expect("UTF-8");
    let roofline = ok(&["roofline", path_of(&server), "--gpu", "EPYC-9654", "--out", out]);
    assert!(roofline.contains(verdict) && roofline.contains("over wall time of a usual step"), "{roofline}");
    let page = std::fs::read_to_string(dir.path().join("roofline.html")).expect("a page");
    assert!(page.contains("the machine was busy"), "on the page as well");
    let told = std::fs::read_to_string(dir.path().join("dynamic_analysis.json")).expect("figures");
    let told = &json(&told)["runs"][0];
    assert_eq!(said(&told["verdict"]), verdict);
    // 913 µs is the mean of the decoding steps, which a few stalls make; a usual one takes 175.
    let points = told["points"].as_array().expect("points");
    let decode = points.iter().find(|point| point["name"] == "decode" && point["over"] == "wall").expect("a phase");
    assert!((150e3..200e3).contains(&decode["ns"].as_f64().unwrap()), "{decode:#}");
}

#[test]
fn peaks_that_were_measured_beside_others_say_so_where_they_are_used() {
    let dir = tempfile::tempdir().expect("a directory");
    let run = dir.path().join("run");
    copy(&busy("server"), &run);
    let mut manifest = manifest(&run);
    manifest["environment"]["measured_peaks"] = object!([
        { "kind": "flops", "value": 1e12, "label": "measured", "source": "a bench", "dtype": "f32", "disturbed": true },
        { "kind": "bandwidth", "value": 2e11, "label": "measured", "source": "a bench", "disturbed": true },
    ]);
    std::fs::write(run.join("run.json"), manifest.to_string()).expect("written");
    let beside = "measured while others were at work";
    for name in ["assumptions.md", "report.md", "operators.md"] {
        let page = page(&run, name);
        assert!(page.contains(beside), "{name}: {page}");
    }
    let object = analysed(&run);
    let of_program = findings(&object).iter().filter(|finding| finding["disturbed"] == false);
    let held = of_program.filter(|finding| figure(finding, "bandwidth").is_some());
    let levels: Vec<&str> = held.map(|finding| said(&finding["confidence"]["level"])).collect();
    assert!(!levels.is_empty() && levels.iter().all(|level| *level == "low"), "{levels:?}: {object:#}");
    let out = dir.path().join("roofline");
    let roofline = ok(&["roofline", path_of(&run), "--out", path_of(&out)]);
    assert!(roofline.contains(beside), "{roofline}");
}

#[test]
fn a_range_of_the_unobserved_step_has_two_ends_and_none_below_six_steps() {
    let object = analysed(&busy("stretched"));
    let steps = object["runs"][0]["steps"].as_array().expect("steps");
    let of = |phase: &str| steps.iter().find(|step| step["phase"] == phase).unwrap_or_else(|| panic!("{object:#}"));
    let (decode, prefill) = (of("decode"), of("prefill"));
    let [low, high] = [0_usize, 1].map(|at| decode["range_ns"][at].as_f64().unwrap_or_else(|| panic!("{decode:#}")));
    let unobserved = decode["unobserved_ns"].as_f64().expect("a number");
    assert!(0.0 < low && low <= unobserved && unobserved <= high, "{decode:#}");
    assert_eq!((&prefill["n"], &prefill["range_ns"], &prefill["bound_ns"]), (&1.into(), &Value::Null, &Value::Null));
    let text = ok(&["analyze", path_of(&busy("stretched"))]);
    assert!(!text.contains('±') && text.contains(" ms) unobserved ("), "{text}");
}
