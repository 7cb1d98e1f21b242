//! Windows of simulated servers.

use super::options::CompareOptions;
use super::outcome::Outcome;
use super::traffic::{PROMPT_TOKENS, REQUESTS};
use super::windowed::{Window, WindowedFigure};
use super::windows::{LEAST_VALUES, ServerWindows, compare_windows};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;

/// About normal, with a standard deviation of 1.
fn normal(random: &mut StdRng) -> f64 {
    (0..12).map(|_| random.random::<f64>() - 0.5).sum()
}

/// By how much windows differ, how much of that is passed on, and how many there are before.
type Differ = (f64, f64, usize);

/// Windows that differ by `differ`, of which `passed_on` is there in the next one, and a last one of a program that
/// is slower by `slower`.
fn figure(name: &str, random: &mut StdRng, (differ, passed_on, windows): Differ, slower: f64) -> WindowedFigure {
    let mut level = differ * normal(random);
    let mut window = |slower: f64, random: &mut StdRng| {
        level = passed_on * level + (1.0f64 - passed_on * passed_on).sqrt() * differ * normal(random);
        let value = |_| 1e8 * (level + slower + 0.05 * normal(random)).exp();
        Window { from_ns: 0, values: (0..12).map(value).collect() }
    };
    let before = (0..windows).map(|_| window(0.0, random)).collect();
    WindowedFigure { name: name.to_string(), before, now: window(slower, random) }
}

fn server(random: &mut StdRng, how: Differ, slower: f64) -> ServerWindows {
    let of = |name: &str, random: &mut StdRng| figure(name, random, how, slower);
    let names = ["ttft_ns", "tpot_ns", "itl_ns"];
    ServerWindows { figures: names.map(|name| of(name, random)).into(), ..ServerWindows::default() }
}

#[test]
fn what_it_was_is_what_the_change_is_from_however_few_windows_there_are() {
    let window = |level: f64| Window { from_ns: 0, values: (0..12).map(|n| level + 1e-3 * f64::from(n)).collect() };
    for before in [&[1.0, 1.0, 2.0][..], &[1.0, 2.0], &[1.0, 1.0, 1.0, 1.0, 2.0]] {
        let figure = WindowedFigure {
            name: "tpot_ns".to_string(),
            before: before.iter().map(|level| window(*level)).collect(),
            now: window(1.5),
        };
        let server = ServerWindows { figures: vec![figure], ..ServerWindows::default() };
        let found = compare_windows(&server, false, &CompareOptions::default());
        let change = &found.figures[0].change;
        let said = change.estimate.expect("there is a change").change;
        assert!((change.b / change.a - 1.0).signum() == said.signum(), "{before:?}: {change:?}");
    }
}

#[test]
fn windows_that_differ_are_no_change() {
    let mut random = StdRng::seed_from_u64(1);
    for how in [(0.01, 0.0, 7), (0.05, 0.0, 14), (0.05, 0.8, 7), (0.002, 0.0, 14)] {
        let mut wrong = || {
            let found = compare_windows(&server(&mut random, how, 0.0), false, &CompareOptions::default());
            matches!(found.outcome, Outcome::Worse | Outcome::Better)
        };
        let wrong = (0..60).filter(|_| wrong()).count();
        assert!(wrong <= 4, "{wrong} of 60 with windows that differ by {how:?}");
    }
}

/// The simulations of [`windows_that_differ_are_no_change`], more of them, and of servers that became slower.
#[test]
#[ignore = "minutes"]
fn windows_that_differ_are_no_change_in_2000_servers() {
    let mut random = StdRng::seed_from_u64(7);
    let differences = [(0.01, 0.0), (0.01, 0.8), (0.05, 0.0), (0.05, 0.5), (0.05, 0.8), (0.15, 0.0), (0.15, 0.8)];
    for (windows, (differ, passed_on)) in [7, 14].into_iter().flat_map(|n| differences.map(|how| (n, how))) {
        for slower in [0.0, 0.262] {
            let mut outcomes = BTreeMap::new();
            for _ in 0..2_000 {
                let server = server(&mut random, (differ, passed_on, windows), slower);
                let found = compare_windows(&server, false, &CompareOptions::default().margin(0.1));
                *outcomes.entry(found.outcome.as_str()).or_insert(0) += 1;
            }
            let of = |outcome: &str| outcomes.get(outcome).copied().unwrap_or(0);
            println!("{windows} windows, {differ} apart, {passed_on} passed on, slower by {slower}: {outcomes:?}");
            let wrong = of("better") + if slower > 0.0 { of("equivalent") } else { of("worse") };
            assert!(wrong <= 60, "{wrong} of 2,000 are wrong");
        }
    }
}

#[test]
fn thirty_percent_more_is_worse_and_less_is_better() {
    let mut random = StdRng::seed_from_u64(2);
    for (slower, outcome) in [(0.262, Outcome::Worse), (-0.262, Outcome::Better)] {
        let all: Vec<_> = (0..20)
            .map(|_| compare_windows(&server(&mut random, (0.02, 0.0, 7), slower), false, &CompareOptions::default()))
            .collect();
        let found = all.iter().filter(|found| found.outcome == outcome).count();
        assert!(found >= 19, "{outcome:?} in {found} of 20");
    }
    let faster = WindowedFigure { name: "working_tps".into(), ..figure("", &mut random, (0.02, 0.0, 7), 0.262) };
    let server = ServerWindows { figures: vec![faster], ..ServerWindows::default() };
    assert_eq!(compare_windows(&server, false, &CompareOptions::default()).outcome, Outcome::Better);
}

#[test]
fn what_windows_differ_by_is_not_exceeded() {
    let mut random = StdRng::seed_from_u64(3);
    let of = |slower: f64, random: &mut StdRng| {
        compare_windows(&server(random, (0.15, 0.0, 7), slower), false, &CompareOptions::default()).outcome
    };
    let found = (0..20).filter(|_| of(0.1, &mut random) == Outcome::Undecided).count();
    assert!(found >= 19, "{found} of 20");
}

#[test]
fn few_windows_and_few_values_decide_nothing() {
    let mut random = StdRng::seed_from_u64(4);
    let mut figure = figure("ttft_ns", &mut random, (0.01, 0.0, 7), 0.3);
    figure.before.drain(..4);
    let of = |figure: &WindowedFigure, options: &CompareOptions| {
        compare_windows(&ServerWindows { figures: vec![figure.clone()], ..ServerWindows::default() }, false, options)
    };
    let found = of(&figure, &CompareOptions::default());
    assert_eq!((found.outcome, found.figures[0].windows), (Outcome::Undecided, 3), "{found:?}");
    assert!(found.figures[0].change.estimate.is_some_and(|estimate| estimate.low.is_none()));
    let told = of(&figure, &CompareOptions::default().floor(Some(0.05)));
    assert_eq!(told.outcome, Outcome::Worse, "the user knows what windows differ by");
    figure.now.values.truncate(LEAST_VALUES - 1);
    let found = of(&figure, &CompareOptions::default());
    assert_eq!((found.outcome, found.too_few), (Outcome::Undecided, vec!["ttft_ns".to_string()]));
}

#[test]
fn other_traffic_withholds_unless_any_will_do() {
    let mut random = StdRng::seed_from_u64(5);
    let mut server = server(&mut random, (0.01, 0.0, 7), 0.3);
    server.figures.push(figure("energy_per_token_j", &mut random, (0.01, 0.0, 7), 0.3));
    let traffic = |name: &str, before: f64, now: f64| {
        let window = |value: f64| Window { from_ns: 0, values: vec![value; 3] };
        WindowedFigure { name: name.into(), before: vec![window(before); 5], now: window(now) }
    };
    let options = CompareOptions::default();
    server.traffic = vec![traffic(REQUESTS, 2.0, 2.5), traffic(PROMPT_TOKENS, 100.0, 110.0)];
    assert_eq!(compare_windows(&server, false, &options).outcome, Outcome::Worse);
    server.traffic[1] = traffic(PROMPT_TOKENS, 100.0, 150.0);
    let found = compare_windows(&server, false, &options);
    assert!(found.outcome == Outcome::Undecided && found.figures.iter().all(|f| f.withheld == Some(PROMPT_TOKENS)));
    assert_eq!(compare_windows(&server, true, &options).outcome, Outcome::Worse);
    // Too slow for more: what follows the load downwards says nothing, what requests take does.
    server.traffic = vec![traffic(REQUESTS, 2.0, 0.8)];
    let found = compare_windows(&server, false, &options);
    let withheld: Vec<_> =
        found.figures.iter().filter(|f| f.withheld.is_some()).map(|f| f.change.name.as_str()).collect();
    assert_eq!((found.outcome, withheld), (Outcome::Worse, vec!["energy_per_token_j"]));
}

#[test]
fn layers_that_grew_are_named_and_others_are_not() {
    let mut random = StdRng::seed_from_u64(6);
    let mut layer = |name: String, before: f64, now: f64| {
        let mut window = |value: f64| Window { from_ns: 0, values: vec![value * (1.0 + 0.01 * normal(&mut random))] };
        WindowedFigure { name, before: (0..7).map(|_| window(before)).collect(), now: window(now) }
    };
    let mut layers = vec![layer("decode/attn".into(), 0.3, 0.42), layer("decode/norm".into(), 0.002, 0.004)];
    layers.extend((0..20).map(|n| layer(format!("decode/{n}"), 0.05, 0.05)));
    let server = ServerWindows { layers, ..ServerWindows::default() };
    let found = compare_windows(&server, false, &CompareOptions::default());
    let named: Vec<&str> = found.layers.iter().map(|layer| layer.path.as_str()).collect();
    assert_eq!((named, found.layers_tested), (vec!["decode/attn"], 22), "{found:?}");
}
