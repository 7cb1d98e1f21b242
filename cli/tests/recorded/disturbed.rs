//! What is said of a run beside which other programs kept the machine busy: what these can have done by themselves stands
//! behind what they cannot.

use super::common::*;
use super::{Busy, OUT, analysed, as_a_program, findings};
use candlescope::llm::{self, Tokens};
use std::hint::black_box;
use std::path::Path;
use tracing_subscriber::prelude::*;

/// Layers of the program's steps, and the one that takes many times as long as its siblings: how often each loses its
/// processor differs, and would hide less.
const LAYERS: usize = 8;
const LATE: usize = 3;

fn work(units: u64) {
    for n in 0..units * 10_000 {
        black_box(n);
    }
}

#[test]
#[ignore = "the program that the test records"]
fn uneven_layers() {
    let Some(out) = std::env::var_os(OUT) else { return };
    let (layer, scope) = candlescope::builder().parquet(&out).host(true).layer().expect("a session");
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        let begun = std::time::Instant::now();
        let mut context = 1;
        while begun.elapsed().as_millis() < 3_000 {
            let _step = llm::decode(Tokens::new(1).context(context));
            for n in 0..LAYERS {
                let _block = tracing::info_span!("block").entered();
                work(if n == LATE { 20 } else { 1 });
            }
            let _sample = llm::sample();
            work(4);
            context += 1;
        }
    });
    scope.finish().expect("a run");
}

fn is_busy(run: &Path) -> bool {
    let all = manifest(run)["verdict"]["findings"].as_array().expect("findings").clone();
    all.iter().any(|finding| finding["code"] == "machine_busy")
}

#[test]
fn what_other_programs_can_have_done_stands_behind_what_they_cannot() {
    let dir = tempfile::tempdir().expect("a directory");
    let disturbed = {
        let _busy = Busy::begin();
        as_a_program(dir.path(), "disturbed", "disturbed::uneven_layers", Some("1"))
    };
    assert!(is_busy(&disturbed), "{:#}", manifest(&disturbed)["machine"]);
    let object = analysed(&disturbed);
    let all = findings(&object);
    let late = all.iter().find(|finding| finding["code"] == "straggler_layer").unwrap_or_else(|| panic!("{object:#}"));
    assert_eq!(late["place"]["path"], format!("decode/block[{LATE}]"), "{late:#}");
    assert_eq!((&late["disturbed"], &late["confidence"]["level"]), (&true.into(), &"low".into()), "{late:#}");
    assert_eq!(late["severity"], "low", "{late:#}");
    let told = [late["message"].as_str().unwrap(), late["remedy"].as_str().unwrap()];
    assert!(told[0].contains("the machine was disturbed") && told[1].starts_with("Record again"), "{told:?}");
    // It gains more than choosing the token, and comes after it.
    let at = |code: &str| all.iter().position(|finding| finding["code"] == code);
    assert!(at("host_sampling") < at("straggler_layer") && at("host_sampling").is_some(), "{object:#}");
    let of = |finding: &serde_json::Value| finding["gain_of_run"]["mid"].as_f64().unwrap();
    assert!(of(late) > of(&all[at("host_sampling").unwrap()]), "{object:#}");
    let order: Vec<bool> = all.iter().map(|finding| finding["disturbed"] == true).collect();
    assert!(order.is_sorted(), "{order:?}");
    assert!(!object["runs"][0]["together"].to_string().contains("straggler_layer"), "{object:#}");

    // On a machine that does nothing else, as far as the run tells, the same layer comes first.
    let quiet = as_a_program(dir.path(), "quiet", "disturbed::uneven_layers", Some("1"));
    if !is_busy(&quiet) {
        let object = analysed(&quiet);
        assert_eq!(findings(&object)[0]["code"], "straggler_layer", "{object:#}");
        assert_eq!(findings(&object)[0]["disturbed"], false, "{object:#}");
    }
}
