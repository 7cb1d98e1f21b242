//! What the engine does with cases.

use crate::scripted::*;
use candlescope_lab::method::*;
use std::time::Duration;

const MS: u64 = 1_000_000;

fn measure(method: Method, mut cases: Vec<Box<dyn Case>>) -> (InMemory, MeasurementEnd) {
    let mut kept = InMemory::default();
    let ended = Engine::new(method, &mut NoSurroundings).run(&mut cases, &mut kept).unwrap();
    (kept, ended)
}

fn reason(kept: &InMemory, name: &str) -> StopReason {
    let of = |stop: &&CaseEnd| stop.case.get("name") == Some(&ParamValue::from(name));
    kept.stopped.iter().find(of).expect("the case ended").reason
}

#[test]
fn each_case_ends_for_its_own_reason_and_the_others_go_on() {
    let log = Log::default();
    let memory = Err(CaseError::OutOfMemory("8 GiB asked for".into()));
    let noisy: Vec<_> = (0..4_000u64).map(|n| Ok(1_000 * MS + (n * 7_919 % 13) * 90 * MS)).collect();
    let cases = vec![
        case("level", &log, &[Ok(MS)]),
        case("noisy", &log, &noisy),
        case("large", &log, &[Ok(MS), memory]),
        case("broken", &log, &[Err(CaseError::Failed("no".into()))]),
        case("refused", &log, &[Err(CaseError::Refused("too large".into()))]),
    ];
    let (kept, ended) = measure(Method::default(), cases);
    assert_eq!(ended, MeasurementEnd::Done);
    assert_eq!(reason(&kept, "level"), StopReason::IntervalNarrow);
    assert_eq!(reason(&kept, "noisy"), StopReason::TimeLimit);
    assert_eq!(reason(&kept, "large"), StopReason::OutOfMemory);
    assert_eq!(reason(&kept, "broken"), StopReason::Failed);
    assert_eq!(reason(&kept, "refused"), StopReason::Refused);
    let large = kept.stopped.iter().find(|stop| stop.reason == StopReason::OutOfMemory).unwrap();
    assert_eq!(large.detail.as_deref(), Some("8 GiB asked for"));
    let released = log.borrow().iter().filter(|call| call.starts_with("release")).count();
    assert_eq!(released, 5, "each gives back what it took, once");
}

/// A machine on which one repetition takes longer than the case may.
#[test]
fn a_slow_case_has_a_sample_before_the_next_one_warms_up() {
    let log = Log::default();
    let cases = ["a", "b", "c"].map(|name| case(name, &log, &[Ok(30_000 * MS)])).into();
    let (kept, _) = measure(Method::default().time_limit(Duration::from_secs(12)), cases);
    assert_eq!(kept.samples.len(), 3, "each once");
    assert!(kept.stopped.iter().all(|stop| (stop.reason, stop.warmup) == (StopReason::TimeLimit, 0)), "{kept:?}");
    // The first repetition is the sample: another one would take as long as the case may once more.
    assert!(kept.samples.iter().all(|sample| sample.verdict == SampleVerdict::Cold && sample.mode == Mode::Plain));
    assert!(kept.stopped.iter().all(|stop| stop.detail.as_deref().is_some_and(|detail| detail.contains("cold"))));
    let calls = |log: &Log| -> Vec<String> {
        log.borrow().iter().map(|call| call.split(' ').next().unwrap().to_string()).collect()
    };
    assert_eq!(calls(&log), ["prepare", "warm", "release"].repeat(3), "{log:?}");
    // One that is shorter than the limit is warmed up first.
    let log = Log::default();
    let cases = ["a", "b"].map(|name| case(name, &log, &[Ok(8_000 * MS)])).into();
    let (kept, _) = measure(Method::default().time_limit(Duration::from_secs(12)), cases);
    assert!(kept.samples.iter().all(|sample| sample.verdict == SampleVerdict::Ok), "{kept:?}");
    assert_eq!(calls(&log)[..6], ["prepare", "warm", "run", "prepare", "warm", "run"], "{log:?}");
    // Whoever asks for a number of repetitions gets these.
    let log = Log::default();
    let (kept, _) = measure(Method::default().runs(Some(2)), vec![case("a", &log, &[Ok(30_000 * MS)])]);
    assert_eq!((kept.samples.len(), kept.stopped[0].warmup), (2, 1));
}

#[test]
fn the_first_round_begins_with_the_smallest_and_each_has_a_sample_early() {
    struct Sized(CaseId, u64, Log);
    impl Case for Sized {
        fn id(&self) -> &CaseId {
            &self.0
        }
        fn size(&self) -> u64 {
            self.1
        }
        fn run(&mut self, mode: Mode) -> Result<Measurement, CaseError> {
            self.2.borrow_mut().push(format!("{} {}", if mode == Mode::WarmUp { "warm" } else { "run" }, self.1));
            Ok(Measurement::new(self.1 * MS))
        }
    }
    let calls = |round: u32| {
        let log = Log::default();
        let one = |size: u64| -> Box<dyn Case> {
            Box::new(Sized(CaseId::new("sized").param("size", size as i64), size, log.clone()))
        };
        let mut cases: Vec<Box<dyn Case>> = [50, 7, 90, 1, 30, 4].map(one).into();
        let mut kept = InMemory::default();
        let method = Method::default().runs(Some(3)).warmup_min(1).warmup_max(1);
        Engine::new(method, &mut NoSurroundings).place(0, round).run(&mut cases, &mut kept).unwrap();
        log.take()
    };
    let early: Vec<String> =
        [1, 4, 7, 30, 50, 90].iter().flat_map(|n| [format!("warm {n}"), format!("run {n}")]).collect();
    assert_eq!(calls(0)[..12], early);
    let later = calls(1);
    assert!(later[..6].iter().all(|call| call.starts_with("warm")), "in random order, and interleaved: {later:?}");
}

#[test]
fn warming_up_takes_of_the_limit() {
    let log = Log::default();
    // Repetitions of 4 s: one to warm up is a quarter of the limit, and is in it.
    let (kept, _) = measure(Method::default(), vec![case("a", &log, &[Ok(4_000 * MS)])]);
    assert_eq!((kept.stopped[0].warmup, kept.stopped[0].samples), (1, 3), "4 repetitions of 4 s in 15 s");
    // A first one that is not long by itself loads kernels, which is no part of what the limit is for.
    let (kept, _) = measure(Method::default(), vec![case("a", &log, &[Ok(3_000 * MS)])]);
    assert_eq!((kept.stopped[0].warmup, kept.stopped[0].samples), (3, 3), "one for loading, 5 of 3 s");
}

#[test]
fn warm_up_is_in_no_sample() {
    let log = Log::default();
    let mut script: Vec<_> = [900, 700, 500, 300].map(|ms| Ok(ms * MS)).into();
    script.extend(vec![Ok(100 * MS); 6]);
    script.push(Ok(101 * MS));
    let (kept, _) = measure(Method::default().runs(Some(5)), vec![case("a", &log, &script)]);
    assert_eq!(kept.samples.len(), 5);
    assert!(kept.samples.iter().all(|s| s.measurement.host_ns <= 101 * MS), "{:?}", kept.samples);
    assert!(kept.stopped[0].warmup >= 4 && kept.stopped[0].warmup_settled);
    assert_eq!(kept.samples.iter().map(|s| s.repetition).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
}

#[test]
fn cases_are_interleaved_in_an_order_that_the_seed_decides() {
    let order = |seed: u64| {
        let log = Log::default();
        let cases = ["a", "b", "c"].map(|name| case(name, &log, &[Ok(MS)])).into();
        let (kept, _) = measure(Method::default().runs(Some(20)).seed(seed), cases);
        kept.samples.iter().map(|s| s.case.get("name").unwrap().to_string()).collect::<Vec<_>>()
    };
    let one = order(1);
    for pass in one.chunks(3) {
        let mut pass = pass.to_vec();
        pass.sort();
        assert_eq!(pass, ["a", "b", "c"], "each case once in each pass");
    }
    let firsts: std::collections::BTreeSet<&String> = one.iter().step_by(3).collect();
    assert_eq!(firsts.len(), 3, "each comes first at times");
    assert_eq!(order(1), one);
    assert_ne!(order(2), one);
}

#[test]
fn groups_bound_what_is_prepared_at_once() {
    let log = Log::default();
    let cases = ["a", "b", "c", "d", "e"].map(|name| case(name, &log, &[Ok(MS)])).into();
    let (kept, _) = measure(Method::default().runs(Some(2)).interleave(2), cases);
    assert_eq!(kept.samples.len(), 10);
    let (mut open, mut most) = (0i32, 0);
    for call in log.borrow().iter() {
        open += i32::from(call.starts_with("prepare")) - i32::from(call.starts_with("release"));
        most = most.max(open);
    }
    assert_eq!((open, most), (0, 2));
}

#[test]
fn throttled_samples_are_kept_and_taken_again() {
    let log = Log::default();
    let mut cases = vec![case("a", &log, &[Ok(MS)])];
    let mut kept = InMemory::default();
    let mut throttling = Throttling { samples: vec![1, 2], at: 0, recovered: 0 };
    Engine::new(Method::default().runs(Some(4)), &mut throttling).run(&mut cases, &mut kept).unwrap();
    let verdicts: Vec<_> = kept.samples.iter().map(|s| s.verdict).collect();
    use SampleVerdict::{Ok as Counts, Retaken};
    assert_eq!(verdicts, [Counts, Retaken, Retaken, Counts, Counts, Counts]);
    assert_eq!((throttling.recovered, kept.stopped[0].samples), (2, 4));
    assert_eq!(kept.disturbances, ["somebody else is here"]);

    // A device that never recovers ends all the same, and the end says so.
    let mut cases = vec![case("a", &log, &[Ok(MS)])];
    let mut kept = InMemory::default();
    let mut throttling = Throttling { samples: (0..100).collect(), at: 0, recovered: 0 };
    let method = Method::default().runs(Some(4)).retakes(3);
    Engine::new(method, &mut throttling).run(&mut cases, &mut kept).unwrap();
    assert_eq!((kept.samples.len(), kept.stopped[0].samples), (7, 4));
    assert!(kept.stopped[0].detail.as_ref().unwrap().contains("4 samples"), "{:?}", kept.stopped[0].detail);
}

#[test]
fn cycles_come_from_the_device_time_and_the_clock() {
    struct OnDevice(CaseId);
    impl Case for OnDevice {
        fn id(&self) -> &CaseId {
            &self.0
        }
        fn run(&mut self, _: Mode) -> Result<Measurement, CaseError> {
            Ok(Measurement::new(5_000).device_ns(3_000))
        }
    }
    let mut cases: Vec<Box<dyn Case>> = vec![Box::new(OnDevice(CaseId::new("device")))];
    let mut kept = InMemory::default();
    let mut surroundings = Throttling { samples: vec![], at: 0, recovered: 0 };
    Engine::new(Method::default().runs(Some(1)), &mut surroundings).run(&mut cases, &mut kept).unwrap();
    assert_eq!(kept.samples[0].measurement.cycles, Some(3_000), "3 µs at 1000 MHz");
}

#[test]
fn cancelling_keeps_what_there_is() {
    let log = Log::default();
    let cancel = Cancel::new();
    let id = CaseId::new("scripted").param("name", "b");
    let (script, cancels) = (vec![Ok(MS)], Some((12, cancel.clone())));
    let cancelling: Box<dyn Case> = Box::new(Scripted { id, script, at: 0, log: log.clone(), cancels });
    let mut cases = vec![case("a", &log, &[Ok(MS)]), cancelling];
    let mut kept = InMemory::default();
    let mut unknown = NoSurroundings;
    let engine = Engine::new(Method::default().runs(Some(50)), &mut unknown).cancel(&cancel);
    assert_eq!(engine.run(&mut cases, &mut kept).unwrap(), MeasurementEnd::Cancelled);
    assert!(!kept.samples.is_empty() && kept.samples.len() < 50, "{}", kept.samples.len());
    assert!(kept.stopped.iter().all(|stop| stop.reason == StopReason::Cancelled));
    assert_eq!(kept.stopped.len(), 2);
    assert_eq!(log.borrow().iter().filter(|call| call.starts_with("release")).count(), 2);
}

#[test]
fn recorded_repetitions_come_after_the_plain_ones() {
    let log = Log::default();
    let (kept, _) = measure(Method::default().runs(Some(2)).profiled_runs(3), vec![case("a", &log, &[Ok(MS)])]);
    let modes: Vec<Mode> = kept.samples.iter().map(|s| s.mode).collect();
    assert_eq!(modes, [Mode::Plain, Mode::Plain, Mode::Profiled, Mode::Profiled, Mode::Profiled]);
    let log = log.borrow();
    let calls: Vec<&str> = log.iter().map(String::as_str).filter(|call| !call.starts_with("warm")).collect();
    assert_eq!(calls[..4], ["prepare a", "run a", "run a", "record 3 a"]);
    assert_eq!(calls[7..], ["recorded a", "release a"]);
}

#[test]
fn what_was_done_is_skipped_and_progress_ends_at_one() {
    let log = Log::default();
    let mut cases: Vec<Box<dyn Case>> = ["a", "b"].map(|name| case(name, &log, &[Ok(MS)])).into();
    let skip = cases[0].id().key();
    let mut kept = InMemory::default();
    let mut shares = Vec::new();
    Engine::new(Method::default().runs(Some(4)), &mut NoSurroundings)
        .skip([skip])
        .place(3, 2)
        .observe(|event| {
            if let Event::Sampled { share, .. } | Event::Stopped { share, .. } = event {
                shares.push(*share);
            }
        })
        .run(&mut cases, &mut kept)
        .unwrap();
    assert!(kept.samples.iter().all(|s| s.case.get("name") == Some(&"b".into()) && s.process == 3));
    assert_eq!((kept.stopped[0].process, kept.stopped[0].round), (3, 2));
    assert!(shares.is_sorted() && shares.last() == Some(&1.0), "{shares:?}");
}

#[test]
fn a_round_is_its_part_of_the_plan() {
    let method = Method::default().runs(Some(10)).processes(4).time_limit(Duration::from_secs(20));
    let runs: Vec<u32> = (0..4).map(|round| method.round(round).runs.unwrap()).collect();
    assert_eq!(runs, [3, 3, 2, 2]);
    assert_eq!(method.round(0).time_limit, Duration::from_secs(5));
    assert_ne!(method.round(0).seed, method.round(1).seed, "each round has an order of its own");
}
