//! What the program says of runs that it recorded itself, with the fault made on purpose: what is found, what a gain may
//! be, and that the query of a finding returns its figures. Made-up rows cannot show that a rule reads what is written.
#![allow(missing_docs, reason = "a test")]
#![cfg(all(feature = "query", feature = "lab", feature = "gpu", feature = "prometheus", target_os = "linux"))]
#[path = "recorded/busy.rs"]
mod busy;
#[path = "recorded/codes.rs"]
mod codes;
mod common;
#[path = "recorded/disturbed.rs"]
mod disturbed;
#[path = "recorded/pages.rs"]
mod pages;
#[path = "recorded/panels.rs"]
mod panels;
#[path = "recorded/scenes.rs"]
mod scenes;
#[path = "../../sdk/core/tests/scripted/mod.rs"]
mod scripted;
#[path = "recorded/scripted_gpu.rs"]
mod scripted_gpu;

use candlescope_core::metric;
use candlescope_models::{GenerateOptions, LoadOptions, LoadedModel, ModelSource, generate};
use common::*;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock};
use tracing_subscriber::prelude::*;

/// Variable by which rayon and candle know how many threads compute.
const THREADS: &str = "RAYON_NUM_THREADS";

/// Runs of the built-in model that several tests look at.
struct Recorded {
    dir: PathBuf,
    /// By a program of its own, with the variable not set: candle 0.11 then reads /proc/cpuinfo at each product.
    unset: PathBuf,
    /// On one thread.
    one: PathBuf,
    /// On two, with the peaks of this machine, and several sequences that end at different tokens.
    batch: PathBuf,
    /// On one thread, while other threads keep all processors busy: some steps stall.
    stalled: PathBuf,
    /// A few steps.
    short: PathBuf,
}

/// A command whose peaks are those of `home`.
fn at(home: &Path, threads: Option<&str>, args: &[&str]) -> Command {
    let mut command = candlescope();
    command.args(args).env("XDG_CACHE_HOME", home).env_remove(THREADS);
    if let Some(threads) = threads {
        command.env(THREADS, threads);
    }
    command
}

fn profiled(dir: &Path, name: &str, threads: Option<&str>, args: &[&str]) -> PathBuf {
    let out = dir.join(name);
    let mut command = at(&dir.join("home"), threads, &["profile", "--model", "embedded", "--no-progress"]);
    let output = command.args(args).arg("--out").arg(&out).output().expect("the command runs");
    assert!(output.status.success(), "{name}: {}", text(&output.stderr));
    out
}

/// A run of a program that is not ours: this test as another process, `which` being what it does.
fn as_a_program(dir: &Path, name: &str, which: &str, threads: Option<&str>) -> PathBuf {
    let out = dir.join(name);
    let mut command = Command::new(std::env::current_exe().expect("this test"));
    command.args(["--exact", "--ignored", which]).env(OUT, &out).env_remove(THREADS);
    command.env_remove("CANDLESCOPE").envs(threads.map(|threads| (THREADS, threads)));
    let output = command.output().expect("it runs");
    assert!(output.status.success(), "{}", text(&output.stdout));
    out
}

/// Says to the program where its run is to be.
const OUT: &str = "CANDLESCOPE_TEST_RUN";

#[test]
#[ignore = "the program that others record"]
fn program() {
    let Some(out) = std::env::var_os(OUT) else { return };
    let builder = candlescope::builder().parquet(&out).host(true);
    let (layer, scope) = builder
        .session(|s| {
            let s = s.environment("candle", candlescope_core::run::CANDLE_VERSION).option("warmup", 2);
            s.option("model", "embedded").option("device", "cpu")
        })
        .layer()
        .expect("a session");
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        let load = LoadOptions::default();
        let mut loaded = LoadedModel::load(&ModelSource::Embedded, &load).expect("the model");
        let handle = scope.handle().expect("a handle");
        loaded.info.to_map().into_iter().for_each(|(key, value)| handle.set_model(&key, value));
        let how = GenerateOptions { max_new_tokens: 60, ignore_eos: true, ..GenerateOptions::default() };
        let prompts = vec![loaded.random_prompt(16, 1).expect("a prompt")];
        for _ in 0..8 {
            generate(&mut loaded, &prompts, &how, &mut |_| {}).expect("tokens");
        }
    });
    scope.finish().expect("a run");
}

fn recorded() -> &'static Recorded {
    static RECORDED: OnceLock<Recorded> = OnceLock::new();
    RECORDED.get_or_init(|| {
        // Shared by tests and never dropped, so the next time removes it.
        let dir = PathBuf::from(concat!(env!("CARGO_TARGET_TMPDIR"), "/recorded"));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).expect("a directory");
        let path = dir.as_path();
        // Other programs that use the machine can hide what a run is made to show, or make up what it must not show.
        let unset =
            take(|| as_a_program(path, "unset", "program", None), |run| constant_cost_leads(run) && is_whole(run));
        // Long enough for some samples of the processor on a machine that is quick.
        let long = ["--max-new-tokens", "60", "--repeats", "150", "--warmup", "2"];
        let one = take(|| profiled(path, "one", Some("1"), &long), |run| has_no_constant_cost(run) && is_whole(run));
        let short = profiled(path, "short", Some("1"), &["--max-new-tokens", "2", "--repeats", "1", "--warmup", "0"]);
        let stall = || {
            let _busy = Busy::begin();
            profiled(path, "stalled", Some("1"), &["--max-new-tokens", "60", "--repeats", "60", "--warmup", "0"])
        };
        let stalled = take(stall, |run| is_whole(run) && stalls(run) > 0);
        peaks(path);
        let four = ["--max-new-tokens", "40", "--repeats", "12", "--warmup", "1", "--batch", "4"];
        let batch = || profiled(path, "batch", Some("2"), &four);
        let batch = take(batch, |run| has_no_constant_cost(run) && is_whole(run));
        Recorded { unset, one, batch, stalled, short, dir }
    })
}

/// How often a run is recorded until it shows what it is made for. A fault of the program is in each of them.
const TAKES: usize = 4;

/// A run that is `good`, or the last of [`TAKES`], with which the tests then say what is wrong.
fn take(record: impl Fn() -> PathBuf, good: impl Fn(&Path) -> bool) -> PathBuf {
    for _ in 1..TAKES {
        let run = record();
        if good(&run) {
            return run;
        }
        println!("{} is recorded again: the machine was too busy", run.display());
        std::fs::remove_dir_all(&run).expect("removed");
    }
    record()
}

fn constant_cost_leads(run: &Path) -> bool {
    findings(&analysed_now(run)).first().is_some_and(|finding| finding["code"] == "constant_cost")
}

fn has_no_constant_cost(run: &Path) -> bool {
    findings(&analysed_now(run)).iter().all(|finding| finding["code"] != "constant_cost")
}

/// Whether most requests can be taken apart: a machine without room loses intervals of some.
fn is_whole(run: &Path) -> bool {
    let metrics = metrics_of(run);
    let rows = metrics["requests"]["rows"].as_array().expect("requests");
    rows.iter().filter(|row| !row["parts"].is_null()).count() * 2 > rows.len()
}

/// Slow requests with a step that stalled.
fn stalls(run: &Path) -> usize {
    let metrics = metrics_of(run);
    let slow = metrics["slow_requests"]["rows"].as_array().expect("slow requests");
    slow.iter().filter(|row| row["parts"]["slow_step"].is_object()).count()
}

fn metrics_of(run: &Path) -> Value {
    json(&pages::page(run, "metrics.json"))
}

/// Peaks as they are kept for this machine: of a quick look, which the command itself does not keep, written to where it
/// looks for them.
fn peaks(dir: &Path) {
    let study = dir.join("peaks");
    let mut command =
        at(&dir.join("home"), Some("2"), &["bench", "peaks", "--quick", "--no-progress", "--dtype", "f32"]);
    let output = command.arg("--out").arg(&study).output().expect("the command runs");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let own = candlescope_lab::peaks::DeviceIdentity::of("cpu").expect("a processor");
    let name = candlescope_lab::peaks::path(&own).expect("a place").file_name().expect("a name").to_os_string();
    let kept = dir.join("home/candlescope/peaks");
    std::fs::create_dir_all(&kept).expect("a directory");
    std::fs::copy(study.join("peaks.json"), kept.join(name)).expect("peaks");
}

/// Threads that keep every processor busy until they are dropped.
struct Busy {
    stop: &'static AtomicBool,
    threads: Vec<std::thread::JoinHandle<()>>,
}

impl Busy {
    fn begin() -> Self {
        let stop: &'static AtomicBool = Box::leak(Box::new(AtomicBool::new(false)));
        let n = 2 * std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
        let spin = || while !stop.load(Ordering::Relaxed) {};
        Self { stop, threads: (0..n).map(|_| std::thread::spawn(spin)).collect() }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
    }
}

impl Recorded {
    fn all(&self) -> [&Path; 5] {
        [&self.unset, &self.one, &self.batch, &self.stalled, &self.short]
    }
}

/// Runs with kernels, recorded on an H200 by `tests/gpu/recorded.sh`.
fn on_gpu() -> [PathBuf; 5] {
    ["replays", "decode", "unmodified", "threads", "host"]
        .map(|name| Path::new(ROOT).join("cli/tests/recorded/gpu").join(name))
}

/// All of them, and those of programs that are made up.
fn every() -> Vec<PathBuf> {
    let own = recorded().all().into_iter().chain(scenes::made().sound()).map(Path::to_path_buf);
    own.chain(on_gpu()).chain([scripted_gpu::scripted().whole.clone()]).collect()
}

/// What `analyze` says of a run. It is asked once: no run changes after it was recorded, and most tests look at all of
/// them.
fn analysed(run: &Path) -> Value {
    static KNOWN: Mutex<BTreeMap<PathBuf, Value>> = Mutex::new(BTreeMap::new());
    let known = |run: &Path| KNOWN.lock().expect("no panic while it is held").get(run).cloned();
    known(run).unwrap_or_else(|| {
        let found = analysed_now(run);
        KNOWN.lock().expect("no panic while it is held").insert(run.to_path_buf(), found.clone());
        found
    })
}

/// The same of a run that may be recorded again in its place.
fn analysed_now(run: &Path) -> Value {
    json(&ok(&["analyze", run.to_str().expect("UTF-8"), "--json", "--top", "0"]))
}

fn findings(analysed: &Value) -> &Vec<Value> {
    analysed["findings"].as_array().expect("findings")
}

fn figure(finding: &Value, name: &str) -> Option<f64> {
    let all = finding["evidence"].as_array().expect("evidence");
    all.iter().find(|figure| figure["name"] == name).and_then(|figure| figure["value"].as_f64())
}

#[test]
fn products_that_wait_for_the_kernel_come_first_and_only_while_they_do() {
    let recorded = recorded();
    let object = analysed(&recorded.unset);
    let first = &findings(&object)[0];
    assert_eq!(first["code"], "constant_cost", "{object:#}");
    let (message, remedy) = (first["message"].as_str().unwrap(), first["remedy"].as_str().unwrap());
    assert!(message.contains("whatever its size") && remedy.contains(THREADS), "{first:#}");
    if manifest(&recorded.unset)["environment"].as_object().unwrap().contains_key("rayon_num_threads") {
        assert!(message.contains("/proc/cpuinfo") && first["confidence"]["level"] == "high", "{first:#}");
    }
    // Nothing leads elsewhere: to other kernels for these products, or to threads.
    let paths = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "lm_head"];
    for other in &findings(&object)[1..] {
        let at = other["place"]["path"].as_str().unwrap_or_default();
        assert!(other["code"] != "threads_wait", "{other:#}");
        assert!(other["code"] != "below_roof" || !paths.iter().any(|path| at.ends_with(path)), "{other:#}");
    }
    for run in [&recorded.one, &recorded.batch] {
        let object = analysed(run);
        assert!(findings(&object).iter().all(|finding| finding["code"] != "constant_cost"), "{object:#}");
    }
}

#[test]
fn no_gain_is_above_what_an_operation_takes() {
    let (mut seen, mut spread) = (0, 0);
    for run in every() {
        let object = analysed(&run);
        for finding in findings(&object) {
            let gain = |key: &str| finding["gain"][key].as_f64().unwrap();
            assert!(gain("low") <= gain("mid") && gain("mid") <= gain("high"), "{finding:#}");
            // Of most steps, which is what gains rest on; a stall in a few of them is in `share`.
            let Some(share) = figure(finding, "usual_share").or_else(|| figure(finding, "share")) else { continue };
            seen += 1;
            // What zeroed pages put out of the caches is not in the pages' own time, nor what is slower behind a wait in the wait.
            let step = object["runs"][0]["steps"]
                .as_array()
                .unwrap()
                .iter()
                .find(|step| step["phase"] == finding["place"]["phase"]);
            let step_ns = step.and_then(|step| step["unobserved_ns"].as_f64()).unwrap_or(f64::INFINITY);
            let beside = ["evicted_ns", "resumed_ns"].iter().filter_map(|name| figure(finding, name)).sum::<f64>();
            // What samples tell may be as much more as they err.
            let counted = 2.0 * figure(finding, "share_error").unwrap_or(0.0);
            let share = share + beside / step_ns + counted;
            assert!(gain("high") <= share + 1e-6, "{}: {finding:#}", run.display());
            // Where nothing is left but the operation itself, both ends are its share.
            spread += usize::from(gain("low") < gain("high") * 0.999);
        }
        for together in object["runs"][0]["together"].as_array().into_iter().flatten() {
            assert!(together["gain"]["high"].as_f64().unwrap() < 1.0, "a step takes time: {together:#}");
        }
    }
    assert!(seen > 0, "no finding of an operation");
    assert!(spread * 2 >= seen, "intervals show the spread: {spread} of {seen}");
}

#[test]
fn a_quantised_product_is_no_waiting_for_the_pool_that_shares_it() {
    // One thread has nobody to wait for. It calls candle's pool all the same, which calls the product.
    let args = ["--quantize", "q8_0", "--max-new-tokens", "60", "--repeats", "150", "--warmup", "1"];
    let run = profiled(&recorded().dir, "quantised", Some("1"), &args);
    let sampled = "SELECT count(*) AS n FROM stack_samples JOIN stacks USING (run, stack) WHERE state = 'running' AND \
                   function LIKE '%candle_core::quantized%'";
    let answer = json(&ok(&["query", sampled, run.to_str().unwrap(), "--json"]));
    assert!(answer["rows"][0]["n"].as_u64().unwrap() >= 36, "the product is seen: {answer}");
    let object = analysed(&run);
    let waits = findings(&object).iter().find(|finding| finding["place"]["cause"] == "pool_sync");
    assert!(waits.is_none(), "{waits:#?}");
}

#[test]
fn recording_seen_in_eight_samples_is_no_finding() {
    let [.., host] = on_gpu();
    let object = analysed(&host);
    assert!(findings(&object).iter().all(|finding| finding["code"] != "hot_overhead"), "{object:#}");
}

#[test]
fn an_unobserved_step_is_not_slower_than_an_observed_one() {
    for run in every() {
        let object = analysed(&run);
        for step in object["runs"][0]["steps"].as_array().unwrap() {
            let of = |key: &str| step[key].as_f64().unwrap();
            assert!(of("unobserved_ns") <= of("observed_ns"), "{}: {step:#}", run.display());
            assert!(of("unobserved_ns") > 0.3 * of("observed_ns"), "{step:#}");
        }
    }
}

/// Figures that stand in no table, with the reason.
const NOT_IN_TABLES: &[(&str, &str, &str)] = &[
    ("cache_copied", "slope_ns", "a regression over the rows"),
    ("cache_copied", "slope_error_ns", "a regression over the rows"),
    ("cache_copied", "mean_context", "the query returns the rows that it is the mean of"),
];

#[test]
fn the_query_of_a_finding_returns_its_figures() {
    let mut compared = 0;
    for run in every() {
        let mut of_code = BTreeMap::new();
        for finding in findings(&analysed(&run)) {
            let (code, sql) = (finding["code"].as_str().unwrap(), finding["query"].as_str().unwrap());
            // Further ones of a run differ in the path that they name.
            let seen = of_code.entry(code.to_string()).or_insert(0);
            *seen += 1;
            if *seen > 2 {
                continue;
            }
            let answer = json(&ok(&["query", sql, run.to_str().unwrap(), "--json", "--limit", "0"]));
            let rows = answer["rows"].as_array().unwrap_or_else(|| panic!("{answer}"));
            assert!(!rows.is_empty(), "{code}: {sql}");
            for one in finding["evidence"].as_array().unwrap() {
                let name = one["name"].as_str().unwrap();
                let exempt = NOT_IN_TABLES.iter().any(|(of, figure, _)| (*of, *figure) == (code, name));
                // A peak is in `run.json`.
                if one["source"] != "measured" || name == "bandwidth" || exempt {
                    continue;
                }
                let sum: Option<f64> = rows.iter().map(|row| row[name].as_f64()).sum();
                let sum = sum.unwrap_or_else(|| panic!("{code}: no column {name}: {sql}\n{answer:#}"));
                let value = one["value"].as_f64().unwrap();
                assert!((sum - value).abs() <= 1e-6 * value.abs(), "{code}: {name} {value}, by its query {sum}: {sql}");
                compared += 1;
            }
        }
    }
    assert!(compared >= 30, "{compared} figures");
}

#[test]
fn no_rule_abstains_for_samples_that_are_there() {
    let recorded = recorded();
    for run in [&recorded.unset, &recorded.one, &recorded.stalled] {
        let sampled = json(&ok(&[
            "query",
            &format!("SELECT count(*) AS n FROM samples WHERE metric = '{}'", metric::CPU_RATIO),
            run.to_str().unwrap(),
            "--json",
        ]));
        assert!(sampled["rows"][0]["n"].as_u64().unwrap() >= 5, "{sampled}");
        let object = analysed(run);
        for abstained in object["abstained"].as_array().unwrap() {
            let missing = abstained["missing"].as_str().unwrap();
            assert!(!["cpu_samples", "clock_samples"].contains(&missing), "{}: {abstained:#}", run.display());
        }
    }
    // Too few are told as that, and not as none.
    let short = analysed(&recorded.short);
    let of = |code: &str| {
        let mut all = short["abstained"].as_array().unwrap().iter();
        all.find(|abstained| abstained["code"] == code).map(|abstained| abstained["missing"].clone())
    };
    assert_eq!(of("straggler_layer").unwrap(), "more_layers", "four blocks are numbered siblings: {short:#}");
}

#[test]
fn stalls_are_told_as_stalls_and_a_cold_step_as_warm_up() {
    let object = analysed(&recorded().stalled);
    for finding in findings(&object) {
        let message = finding["message"].as_str().unwrap();
        assert!(!message.contains("first 1 steps") && !message.contains(" 1 of the steps"), "{message}");
        match finding["code"].as_str().unwrap() {
            "straggler_step" => assert!(message.contains("stall of single steps"), "{message}"),
            // It gains the program nothing, and stands behind what does.
            "warmup_unsettled" => assert_eq!(finding["severity"], "low", "{finding:#}"),
            _ => {}
        }
    }
    let order: Vec<bool> = findings(&object).iter().map(|finding| finding["code"] == "warmup_unsettled").collect();
    assert!(order.is_sorted(), "{order:?}");
}

#[test]
fn a_replay_has_the_layers_that_were_captured_and_steps_that_left_their_graph_are_told() {
    let [replays, ..] = on_gpu();
    let ask = |sql: &str| json(&ok(&["query", sql, replays.to_str().expect("UTF-8"), "--json"]))["rows"][0].clone();
    let lost = ask(
        "SELECT count(*) AS n FROM kernels AS k LEFT JOIN spans AS s ON k.seq = s.seq WHERE k.graph IS NOT NULL AND \
         (s.seq IS NULL OR s.path <> k.path OR s.step <> k.step OR k.graph_node IS NULL)",
    );
    assert_eq!(lost["n"], 0, "each kernel of a graph is in the interval that captured it");
    // A replay runs each node of its graph once. Some records were wrong, and are not there.
    let nodes = ask(
        "SELECT max(n) AS most, sum(n - nodes) AS twice, count(*) AS replays FROM (SELECT step, graph, count(*) AS n, \
         count(DISTINCT graph_node) AS nodes FROM kernels WHERE graph IS NOT NULL GROUP BY step, graph)",
    );
    assert_eq!((&nodes["most"], &nodes["twice"], &nodes["replays"]), (&732.into(), &0.into(), &28.into()));
    // What does not depend on the context takes as long as call by call, in the steps of the same run that were so.
    for path in ["mlp/down_proj", "mlp/gate_proj", "self_attn/q_proj", "input_layernorm"] {
        let sql = format!(
            "SELECT avg(CASE WHEN graph IS NULL THEN gpu_dur_ns END) AS eager, avg(CASE WHEN graph IS NOT NULL THEN \
             gpu_dur_ns END) AS replayed FROM kernels WHERE phase = 'decode' AND path LIKE '%{path}'"
        );
        let times = ask(&sql);
        let [eager, replayed] = ["eager", "replayed"].map(|name| times[name].as_f64().expect("a number"));
        assert!((replayed / eager - 1.0).abs() < 0.1, "{path}: {times}");
    }
    // A replayed interval states its work and has no time on the host.
    let rows = ask("SELECT count(*) AS n, sum(host_dur_ns) AS host_ns, count(DISTINCT step) AS steps, \
         sum(CASE WHEN path LIKE '%_proj' AND flops > 0 THEN 1 ELSE 0 END) AS products FROM spans WHERE graph IS NOT NULL");
    assert_eq!((&rows["host_ns"], &rows["steps"]), (&0.into(), &28.into()), "{rows}");
    assert_eq!(rows["products"].as_u64(), Some(28 * 30 * 7), "{rows}");
    let analysed = analysed(&replays);
    let found = findings(&analysed).iter().find(|finding| finding["code"] == "left_graph");
    let found = found.unwrap_or_else(|| panic!("{analysed:#}"));
    assert_eq!((figure(found, "eager_steps"), figure(found, "warm_up")), (Some(6.0), Some(6.0)), "{found:#}");
    assert_eq!(figure(found, "capture_failed"), None, "{found:#}");
    let gain = found["gain"]["mid"].as_f64().unwrap();
    assert!((0.005..0.02).contains(&gain), "six steps of 7.5 ms more in 3.9 s: {found:#}");
    // The shapes of those without kernels, by what was replayed: nothing in these runs states it of a step itself.
    let shapes = found["place"]["shapes"].as_array().unwrap_or_else(|| panic!("{found:#}"));
    let mut named: Vec<(&str, u64, u64)> = Vec::new();
    for shape in shapes {
        let number = |key: &str| shape[key].as_u64().unwrap_or_else(|| panic!("{found:#}"));
        named.push((shape["shape"].as_str().expect("a text"), number("steps"), number("tokens")));
        assert!(number("excess_ns") < number("took_ns"), "{found:#}");
    }
    assert_eq!(named, [("1x256", 2, 2), ("1x2048", 2, 2), ("1x1024", 2, 2)], "the costliest first");
    let message = found["message"].as_str().expect("a text");
    assert!(message.contains("slots × context: 1x256 (2 steps, ") && message.contains("for 6 tokens"), "{message}");
}

#[test]
fn kernels_of_a_replay_can_be_changed_and_its_step_can_leave_the_graph() {
    let [replays, ..] = on_gpu();
    let run = replays.to_str().expect("UTF-8");
    let asked = ["--what-if", "path=mlp@device×0.5", "--what-if", "kernel=rmsnorm×0.5", "--what-if", "eager"];
    let analysed = json(&ok(&[&["analyze", run, "--json"][..], &asked].concat()));
    let decode = &analysed["runs"][0]["what_if"]["steps"][0];
    assert_eq!(decode["name"], "decode");
    let ns = |estimate: &Value, end: &str| estimate["seconds"][end].as_f64().expect("a number") * 1e9;
    let unobserved = ns(&decode["typical"]["unobserved"], "mid");
    let outcome = |nth: usize| &decode["scenarios"][nth]["outcome"];
    let ask = |sql: &str| json(&ok(&["query", sql, run, "--json"]))["rows"][0]["ns"].as_f64().expect("a number");
    // Half of what such kernels take in a replay of which no record is missing, but for the first microseconds of it, in which the
    // host is not back yet and does not wait.
    for (nth, kernels) in [(0, "path LIKE '%/mlp%'"), (1, "name LIKE 'rmsnorm%'")] {
        let all = ask(&format!(
            "SELECT sum(CASE WHEN {kernels} THEN gpu_dur_ns ELSE 0 END) * 1.0 / count(DISTINCT step) AS ns FROM kernels \
             WHERE step IN (SELECT step FROM kernels WHERE graph IS NOT NULL GROUP BY step HAVING count(*) = 732)"
        ));
        let saved = unobserved - ns(outcome(nth), "mid");
        let hidden = all / 2.0 - saved;
        assert!((-1_000.0..60_000.0).contains(&hidden), "{kernels}: {saved} of {all}");
    }
    // Eager steps of this run are the first two of each shape. Two have their kernels, and from them follows what launches
    // cost; the others, without kernels, take 8.0 to 10.8 ms, and the very first, which loads kernels, 17.2.
    let launches = &decode["facts"]["eager_launches"];
    assert!(launches["source"].as_str().expect("a text").starts_with("measured: 2 of these steps"), "{launches}");
    let others = "FROM steps WHERE ran = 'warm_up' AND step NOT IN (SELECT step FROM kernels WHERE step IS NOT NULL)";
    let quickest = ask(&format!("SELECT min(host_dur_ns) * 1.0 AS ns {others}"));
    // The second of each shape: kernels are loaded.
    let second = ask(&format!("SELECT median(host_dur_ns) * 1.0 AS ns {others} AND step IN (2, 194, 450, 962)"));
    let eager = outcome(2);
    assert!((ns(eager, "low")..ns(eager, "high")).contains(&quickest), "{eager}: {quickest}");
    assert!((ns(eager, "mid") / second - 1.0).abs() < 0.3, "{eager}: {second}");
    assert!(eager["share_of_step"]["high"].as_f64().expect("a number") < -0.3, "{eager}");
}

#[test]
fn threads_that_launch_at_once_wait_for_one_another_in_the_driver() {
    let [.., threads, host] = on_gpu();
    let analysed_threads = analysed(&threads);
    let found = findings(&analysed_threads).iter().find(|finding| finding["code"] == "contended_launches");
    let found = found.unwrap_or_else(|| panic!("{analysed_threads:#}"));
    // Alone a thread takes 8.6 ms for a step, beside three others 43.8.
    let step = 43.8e6;
    let [off_cpu, locks] = ["off_cpu_ns", "locks_ns"].map(|name| figure(found, name).expect("a figure"));
    assert_eq!(figure(found, "threads"), Some(4.0), "{found:#}");
    assert!((0.3 * step..0.7 * step).contains(&off_cpu) && (0.05 * step..0.3 * step).contains(&locks), "{found:#}");
    let gain = |end: &str| found["gain"][end].as_f64().unwrap();
    assert!(gain("low") > 0.3 && gain("high") < 1.0 - 8.6e6 / step, "{found:#}");
    // Its steps overlap, so that none can be replayed: nothing refers to a replay, and no gain is all of the waiting.
    let bound = findings(&analysed_threads).iter().find(|finding| finding["code"] == "launch_bound");
    let bound = bound.unwrap_or_else(|| panic!("{analysed_threads:#}"));
    assert!(!bound["remedy"].as_str().unwrap().contains("--what-if"), "{bound:#}");
    let of = |end: &str| bound["gain"][end].as_f64().unwrap();
    assert!(of("low") < 0.8 * of("high") && of("mid") < 0.9 * of("high"), "{bound:#}");
    // The calls that launch are no slower for it: what waits are those around them.
    assert!(figure(found, "call_ns").unwrap() < 1.3 * figure(found, "alone_ns").unwrap(), "{found:#}");
    assert!(!findings(&analysed(&host)).iter().any(|finding| finding["code"] == "contended_launches"), "one thread");
}

#[test]
fn the_host_s_part_of_a_launch_bound_step_is_told_by_whose_code_it_is() {
    let [.., host] = on_gpu();
    let analysed = analysed(&host);
    let found = findings(&analysed).iter().find(|finding| finding["code"] == "host_of_launches");
    let found = found.unwrap_or_else(|| panic!("{analysed:#}"));
    let part = |name: &str| figure(found, name).unwrap_or(0.0);
    // Three fifths of the host's time are launches of the driver and cuBLAS; some steps are recorded with their kernels, by
    // CUPTI. The command line's own crates, which are around the model, are no recording.
    assert!(part("driver") > 0.25 && part("driver") + part("cublas") > 0.4, "{found:#}");
    assert!(part("candle") > 0.05 && part("recording") < 0.35 && part("allocation") > 0.005, "{found:#}");
    let parts =
        ["driver", "cublas", "cudarc", "candle", "model", "allocation", "recording", "other", "waiting", "off_cpu"];
    assert!((parts.map(part).iter().sum::<f64>() - 1.0).abs() < 1e-6, "{found:#}");
    let gain = |end: &str| found["gain"][end].as_f64().unwrap();
    assert!(gain("low") < gain("high") && gain("high") < 0.6, "{found:#}");
}
