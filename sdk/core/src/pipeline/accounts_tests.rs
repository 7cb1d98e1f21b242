//! Shares of time, and energy that adds up to the counter.

use super::*;
use crate::record::{GpuTime, PathInfo, SampleRecord, SpanId, ThreadInfo, TraceId};
use crate::vocabulary::{GpuSource, Phase};
use crate::{HostNs, Served, metric};

const MS: i64 = 1_000_000;

/// A step of a thread, from one millisecond to another.
fn step(thread: u32, from: i64, to: i64, serves: &[Served]) -> StepRecord {
    let (path, thread) = (PathInfo::new(0, "decode", "decode", ""), ThreadInfo::new(thread, 0, "t"));
    let ns = (to - from) as u64 * MS as u64;
    let mut step = StepRecord::new(0, 0, TraceId(1), Arc::new(path), Arc::new(thread), HostNs(from * MS), ns);
    step.serves = serves.to_vec();
    step
}

fn on_device(mut step: StepRecord, ms: u64) -> StepRecord {
    let dur_ns = ms * MS as u64;
    step.gpu = Some(GpuTime { start: step.host_start, dur_ns, source: GpuSource::Event });
    step
}

fn for_one(request: u64, mut step: StepRecord) -> StepRecord {
    step.request = Some(request);
    step
}

fn request(number: u64, from: i64, to: i64) -> RequestRecord {
    let ns = (to - from) as u64 * MS as u64;
    RequestRecord::new(number, TraceId(1), SpanId(number), "chat", "m", HostNs(from * MS), ns)
}

fn batch(steps: Vec<StepRecord>, requests: Vec<RequestRecord>) -> Batch {
    let mut batch = Batch::default();
    (batch.steps, batch.requests) = (steps, requests);
    batch
}

/// Readings of a counter, at milliseconds.
fn counted(device: &str, readings: &[(i64, f64)]) -> Batch {
    let mut batch = Batch::default();
    let sample =
        |(ms, joules): &(i64, f64)| SampleRecord::new(HostNs(ms * MS), device, metric::GPU_ENERGY, *joules, "joules");
    batch.samples = readings.iter().map(sample).collect();
    batch
}

fn around(at: Instant, known_until: i64) -> BatchTime {
    let (known_until, now) = (known_until * MS, known_until * MS);
    BatchTime { known_until, now, at, without_record: 0, in_unrecorded: false, is_last: false }
}

/// Takes a batch as the drain does; what goes on at once.
fn pass(accounts: &mut Accounts, mut batch: Batch, at: Instant) -> Batch {
    accounts.add(&mut batch, at);
    accounts.hold(&mut batch, at);
    batch
}

/// The latest sums by whom: requests, other steps, idle, unattributed.
fn sums(settled: &Batch) -> [f64; 4] {
    let latest = |of: &str| settled.samples.iter().rev().find(|sample| sample.metric == of).map(|sample| sample.value);
    let of = [
        metric::ENERGY_OF_REQUESTS,
        metric::ENERGY_OF_OTHER_STEPS,
        metric::ENERGY_OF_IDLE,
        metric::ENERGY_UNATTRIBUTED,
    ];
    of.map(|of| latest(of).unwrap_or_else(|| panic!("no {of} among {:?}", settled.samples)))
}

fn assert_near(found: &[f64], expected: &[f64]) {
    let near = found.iter().zip(expected).all(|(found, expected)| (found - expected).abs() < 1e-6);
    assert!(near && found.len() == expected.len(), "{found:?}, not {expected:?}");
}

#[test]
fn time_on_the_host_and_on_the_device_goes_to_requests_by_their_work() {
    let mut accounts = Accounts::default();
    let both = [Served::new(1, 3, 1), Served::new(2, 1, 1)];
    let steps = vec![on_device(step(1, 0, 10, &both), 8), step(1, 10, 20, &[Served::new(1, 1, 1)])];
    let requests = vec![request(1, 0, 20), request(2, 0, 10), request(3, 0, 5)];
    let passed = pass(&mut accounts, batch(steps, requests), Instant::now());
    let ms = |ns: Option<u64>| ns.map(|ns| ns as f64 / MS as f64);
    let of = |r: &RequestRecord| {
        (r.step_count, ms(r.step_share_ns), r.device_step_count, ms(r.device_share_ns), r.energy_mj)
    };
    let found: Vec<_> = passed.requests.iter().map(of).collect();
    let expected = [
        (Some(2), Some(17.5), Some(1), Some(6.0), None),
        (Some(1), Some(2.5), Some(1), Some(2.0), None),
        (Some(0), Some(0.0), Some(0), None, None),
    ];
    assert_eq!(found, expected, "without a counter nothing waits");
    assert!(accounts.open.is_empty());
}

#[test]
fn a_step_around_others_has_only_what_they_have_not_and_the_applications_has_nothing() {
    let mut accounts = Accounts::default();
    let inner = for_one(1, on_device(step(1, 2, 5, &[]), 2));
    pass(&mut accounts, batch(vec![inner], Vec::new()), Instant::now());
    let outer = for_one(2, on_device(step(1, 0, 10, &[]), 6));
    let after = for_one(1, on_device(step(1, 10, 11, &[]), 1));
    let mut phase = for_one(1, step(2, 0, 1, &[]));
    phase.phase = Some(Phase::Decode);
    let mut handler = for_one(1, step(3, 0, 100, &[]));
    handler.path = Arc::new(PathInfo::new(0, "handler", "handler", "my_app"));
    let requests = vec![request(1, 0, 20), request(2, 0, 20)];
    let passed = pass(&mut accounts, batch(vec![outer, after, phase, handler], requests), Instant::now());
    let of = |r: &RequestRecord| {
        [r.step_count, r.step_share_ns.map(|ns| ns / MS as u64), r.device_share_ns.map(|ns| ns / MS as u64)]
    };
    let found: Vec<_> = passed.requests.iter().map(of).collect();
    assert_eq!(found, [[Some(3), Some(5), Some(3)], [Some(1), Some(7), Some(4)]]);
}

#[test]
fn a_request_waits_for_the_counter_and_all_that_is_charged_adds_up_to_it() {
    let (mut accounts, at) = (Accounts::default(), Instant::now());
    // 100 W, and 300 W from half a second on; the counter says 220 J where power integrates to 205 J.
    let mut first = counted("GPU-0", &[(0, 5.0)]);
    let watts = |ms: i64| if ms < 500 { 100.0 } else { 300.0 };
    let power = (0..=20)
        .map(|n| 50 * n)
        .map(|ms| SampleRecord::new(HostNs(ms * MS), "GPU-0", metric::GPU_POWER, watts(ms), "watts"));
    first.samples.extend(power);
    pass(&mut accounts, first, at);
    let both = [Served::new(1, 3, 1), Served::new(2, 1, 1)];
    // Half of the second step is beside the first one.
    let steps = vec![for_one(1, step(1, 100, 300, &[])), step(2, 200, 400, &[]), step(1, 600, 700, &both)];
    let passed =
        pass(&mut accounts, batch(steps, vec![request(1, 90, 710), request(2, 590, 710), request(3, 0, 9)]), at);
    assert_eq!(passed.requests.len(), 1, "one without a step has nothing to wait for");
    assert!(accounts.settle(&around(at, 1_000)).is_empty(), "the counter was read once");
    pass(&mut accounts, counted("GPU-0", &[(1_000, 225.0)]), at);
    assert!(accounts.settle(&around(at, 999)).is_empty(), "a step may have run of which no record has come");
    let settled = accounts.settle(&around(at, 1_000));
    let scale = 220.0 / 205.0;
    assert_near(&sums(&settled), &[45.0 * scale, 15.0 * scale, 145.0 * scale, 0.0]);
    assert_near(&[sums(&settled).iter().sum()], &[220.0]);
    let joules: Vec<f64> = settled.requests.iter().map(|r| r.energy_mj.expect("settled") / 1e3).collect();
    assert_near(&joules, &[37.5 * scale, 7.5 * scale]);
    for r in &settled.requests {
        let (low, high) = (r.energy_low_mj.expect("power was sampled"), r.energy_high_mj.expect("as well"));
        assert!(low < r.energy_mj.unwrap() && r.energy_mj.unwrap() < high && low > 0.0, "{r:?}");
    }
    assert!(accounts.open.is_empty() && accounts.held.is_empty());
    // Sums go on.
    pass(&mut accounts, counted("GPU-0", &[(2_000, 235.0)]), at);
    assert_near(&sums(&accounts.settle(&around(at, 2_500))), &[45.0 * scale, 15.0 * scale, 145.0 * scale + 10.0, 0.0]);
}

#[test]
fn time_of_which_nobody_knows_is_not_idle_and_requests_in_it_have_no_energy() {
    let (mut accounts, at) = (Accounts::default(), Instant::now());
    let every_second: Vec<(i64, f64)> = (0..8).map(|s| (1_000 * s, 100.0 * s as f64)).collect();
    pass(&mut accounts, counted("GPU-0", &every_second[..2]), at);
    let own = for_one(1, step(1, 500, 1_500, &[]));
    pass(&mut accounts, batch(vec![own], vec![request(1, 400, 1_600)]), at);
    // A step goes on since the beginning.
    assert!(accounts.settle(&around(at, 0)).is_empty());
    pass(&mut accounts, counted("GPU-0", &every_second[2..]), at);
    let settled = accounts.settle(&around(at, 0));
    assert_near(&sums(&settled), &[100.0, 0.0, 0.0, 100.0]);
    assert_eq!(settled.requests[0].energy_mj, None);
    // It comes too late for two of its seconds.
    let late = for_one(2, step(2, 0, 3_000, &[]));
    pass(&mut accounts, batch(vec![late], vec![request(2, 0, 3_100)]), at);
    let settled = accounts.settle(&around(at, 5_000));
    assert_near(&sums(&settled), &[200.0, 0.0, 200.0, 100.0]);
    assert_eq!(settled.requests[0].energy_mj, None);
    // A step without a record began in the sixth second; the one after is known.
    let unknown = BatchTime { without_record: 1, ..around(at, 6_000) };
    let (before, after) = (for_one(3, step(1, 5_200, 5_300, &[])), for_one(4, step(1, 6_200, 6_300, &[])));
    let requests = vec![request(3, 5_200, 5_300), request(4, 6_200, 6_300)];
    pass(&mut accounts, batch(vec![before, after], requests), at);
    let settled = accounts.settle(&unknown);
    assert_near(&sums(&settled), &[210.0, 0.0, 200.0, 190.0]);
    assert_eq!((settled.requests.len(), settled.requests[0].energy_mj), (1, None));
    let settled = accounts.settle(&BatchTime { without_record: 1, ..around(at, 7_000) });
    assert_near(&sums(&settled), &[220.0, 0.0, 290.0, 190.0]);
    assert_near(&[settled.requests[0].energy_mj.expect("its second is known")], &[10_000.0]);
    assert_eq!(settled.requests[0].energy_low_mj, None, "power was not sampled");
}

#[test]
fn only_the_gpus_of_the_program_count_and_none_for_one_on_processors() {
    let (mut accounts, at) = (Accounts::default(), Instant::now());
    for device in ["GPU-0", "GPU-1"] {
        pass(&mut accounts, counted(device, &[(0, 0.0), (1_000, 50.0)]), at);
    }
    pass(&mut accounts, batch(vec![for_one(1, step(1, 0, 500, &[]))], vec![request(1, 0, 500)]), at);
    accounts.works_on(&"GPU-1".into());
    let settled = accounts.settle(&around(at, 1_000));
    assert!(settled.samples.len() == 4 && settled.samples.iter().all(|sample| &*sample.device == "GPU-1"));
    assert_near(&[settled.requests[0].energy_mj.expect("settled")], &[25_000.0]);

    let mut accounts = Accounts::default();
    let mut run = RunManifest::default();
    run.options.insert("device".into(), "cpu".into());
    accounts.learn(&run);
    pass(&mut accounts, counted("GPU-0", &[(0, 0.0)]), at);
    assert!(!accounts.counts_energy(at));
    let passed = pass(&mut accounts, batch(vec![for_one(1, step(1, 0, 500, &[]))], vec![request(1, 0, 500)]), at);
    assert_eq!((passed.requests.len(), passed.requests[0].energy_mj), (1, None));
}

#[test]
fn nobody_waits_for_a_counter_that_was_reset_or_is_not_read_any_more() {
    let (mut accounts, at) = (Accounts::default(), Instant::now());
    pass(&mut accounts, counted("GPU-0", &[(0, 900.0), (1_000, 10.0), (2_000, 20.0)]), at);
    let steps = vec![for_one(1, step(1, 100, 200, &[])), for_one(2, step(1, 1_000, 2_000, &[]))];
    pass(&mut accounts, batch(steps, vec![request(1, 100, 200), request(2, 1_000, 2_000)]), at);
    let settled = accounts.settle(&around(at, 3_000));
    let found: Vec<_> = settled.requests.iter().map(|r| r.energy_mj).collect();
    assert_eq!(found, [None, Some(10_000.0)], "the first one began before the reset");
    assert_near(&sums(&settled), &[10.0, 0.0, 0.0, 0.0]);
    let waiting = batch(vec![for_one(3, step(1, 2_500, 2_600, &[]))], vec![request(3, 2_500, 2_600)]);
    assert!(pass(&mut accounts, waiting, at).requests.is_empty());
    assert!(accounts.settle(&around(at + Duration::from_secs(7), 3_000)).requests.is_empty());
    let settled = accounts.settle(&around(at + Duration::from_secs(9), 3_000));
    assert_eq!((settled.requests.len(), settled.requests[0].energy_mj), (1, None));
    assert!(!accounts.counts_energy(at + Duration::from_secs(9)));
}

/// Energy of the requests, joules, in order of their numbers.
fn joules(requests: &[RequestRecord]) -> Vec<Option<f64>> {
    let mut requests: Vec<&RequestRecord> = requests.iter().collect();
    requests.sort_by_key(|request| request.request);
    requests.iter().map(|request| request.energy_mj.map(|mj| (mj / 1e3 * 1e6).round() / 1e6)).collect()
}

#[test]
fn energy_goes_to_the_innermost_step_of_a_thread_and_to_the_one_around_it_what_is_left() {
    let (mut accounts, at) = (Accounts::default(), Instant::now());
    pass(&mut accounts, counted("GPU-0", &[(0, 0.0), (1_000, 100.0)]), at);
    let inside = [for_one(2, step(1, 200, 300, &[])), for_one(3, step(1, 400, 600, &[]))];
    let around_them = for_one(1, step(1, 100, 900, &[]));
    // Another thread has half of what comes in the meantime.
    let beside = for_one(4, step(2, 500, 600, &[]));
    let steps = inside.into_iter().chain([around_them, beside]).collect();
    let requests = (1..=4).map(|number| request(number, 0, 1_000)).collect();
    pass(&mut accounts, batch(steps, requests), at);
    let settled = accounts.settle(&around(at, 1_000));
    assert_eq!(joules(&settled.requests), [Some(50.0), Some(10.0), Some(15.0), Some(5.0)]);
    assert_near(&sums(&settled), &[80.0, 0.0, 20.0, 0.0]);
}

#[test]
fn nothing_is_known_until_a_step_without_a_record_has_ended() {
    let (mut accounts, at) = (Accounts::default(), Instant::now());
    pass(&mut accounts, batch(vec![step(1, 10, 20, &[])], Vec::new()), at);
    pass(&mut accounts, counted("GPU-0", &[(0, 0.0), (1_000, 100.0)]), at);
    let begun = BatchTime { without_record: 1, in_unrecorded: true, ..around(at, 1_000) };
    assert_near(&sums(&accounts.settle(&begun)), &[0.0, 0.0, 0.0, 100.0]);
    // It goes on through the whole second stretch, beside a step of a request.
    pass(&mut accounts, batch(vec![for_one(1, step(1, 1_500, 1_600, &[]))], vec![request(1, 1_500, 1_600)]), at);
    pass(&mut accounts, counted("GPU-0", &[(2_000, 200.0)]), at);
    let settled = accounts.settle(&BatchTime { now: 2_000 * MS, known_until: 2_000 * MS, ..begun });
    assert_near(&sums(&settled), &[10.0, 0.0, 0.0, 190.0]);
    assert_eq!(joules(&settled.requests), [None]);
    // It ends in the third.
    pass(&mut accounts, counted("GPU-0", &[(3_000, 300.0)]), at);
    let ended = BatchTime { without_record: 2, ..around(at, 3_000) };
    assert_near(&sums(&accounts.settle(&ended)), &[10.0, 0.0, 0.0, 290.0]);
    pass(&mut accounts, batch(vec![for_one(2, step(1, 3_500, 3_600, &[]))], vec![request(2, 3_500, 3_600)]), at);
    pass(&mut accounts, counted("GPU-0", &[(4_000, 400.0)]), at);
    let settled = accounts.settle(&BatchTime { without_record: 2, ..around(at, 4_000) });
    assert_near(&sums(&settled), &[20.0, 0.0, 90.0, 290.0]);
    assert_eq!(joules(&settled.requests), [Some(10.0)]);
}

#[test]
fn what_a_gpu_counted_before_it_was_known_as_the_programs_is_no_requests() {
    let (mut accounts, at) = (Accounts::default(), Instant::now());
    accounts.works_on(&"GPU-0".into());
    let both = |accounts: &mut Accounts, readings: &[(i64, f64)]| {
        ["GPU-0", "GPU-1"].iter().for_each(|device| _ = pass(accounts, counted(device, readings), at));
    };
    both(&mut accounts, &[(0, 0.0), (1_000, 50.0)]);
    let (first, long) = (for_one(1, step(1, 0, 500, &[])), for_one(2, step(1, 600, 700, &[])));
    pass(&mut accounts, batch(vec![first, long], vec![request(1, 0, 500)]), at);
    let settled = accounts.settle(&around(at, 1_000));
    assert_eq!(joules(&settled.requests), [Some(25.0)]);
    assert!(settled.samples.iter().all(|sample| &*sample.device == "GPU-0"));
    accounts.works_on(&"GPU-1".into());
    both(&mut accounts, &[(2_000, 100.0)]);
    let last = for_one(3, step(1, 1_000, 1_500, &[]));
    pass(&mut accounts, batch(vec![last], vec![request(2, 600, 1_500), request(3, 1_000, 1_500)]), at);
    let settled = accounts.settle(&around(at, 2_000));
    assert_eq!(
        joules(&settled.requests),
        [None, Some(50.0)],
        "the first of them had a step when only one GPU was known"
    );
    // The latest sums are the second GPU's.
    assert_near(&sums(&settled), &[25.0, 0.0, 25.0, 50.0]);
}

#[test]
fn a_gpu_that_falls_out_goes_on_adding_up_and_requests_charged_for_it_have_no_energy() {
    let (mut accounts, at) = (Accounts::default(), Instant::now());
    for device in ["GPU-0", "GPU-1"] {
        pass(&mut accounts, counted(device, &[(0, 0.0), (1_000, 50.0)]), at);
    }
    pass(&mut accounts, batch(vec![for_one(1, step(1, 0, 500, &[]))], Vec::new()), at);
    assert_eq!(accounts.settle(&around(at, 1_000)).samples.len(), 8, "nobody knows which GPU it is");
    accounts.works_on(&"GPU-0".into());
    let passed = pass(&mut accounts, batch(Vec::new(), vec![request(1, 0, 600)]), at);
    assert!(passed.requests.is_empty());
    assert_eq!(joules(&accounts.settle(&around(at, 1_000)).requests), [None]);
    pass(&mut accounts, counted("GPU-1", &[(2_000, 100.0)]), at);
    assert_near(&sums(&accounts.settle(&around(at, 2_000))), &[25.0, 0.0, 25.0, 50.0]);
}

#[test]
fn a_request_has_no_energy_unless_every_gpu_that_it_may_have_used_has_a_counter() {
    let of = |other: Option<&'static str>| {
        let (mut accounts, at) = (Accounts::default(), Instant::now());
        ["GPU-0", "GPU-1"].iter().for_each(|device| accounts.works_on(&Arc::from(*device)));
        let mut samples = counted("GPU-0", &[(0, 0.0), (1_000, 50.0)]);
        samples.samples.extend(other.map(|metric| SampleRecord::new(HostNs(0), "GPU-1", metric, 9.0, "")));
        pass(&mut accounts, samples, at);
        pass(&mut accounts, counted("GPU-2", &[(0, 0.0), (1_000, 50.0)]), at);
        pass(&mut accounts, batch(vec![for_one(1, step(1, 0, 500, &[]))], vec![request(1, 0, 500)]), at);
        if other == Some(metric::GPU_ENERGY) {
            pass(&mut accounts, counted("GPU-1", &[(1_000, 19.0)]), at);
        }
        joules(&accounts.settle(&BatchTime { is_last: true, ..around(at, 1_000) }).requests)
    };
    assert_eq!(of(None), [None], "it is not sampled");
    assert_eq!(of(Some(metric::GPU_POWER)), [None], "only its power is");
    assert_eq!(of(Some(metric::GPU_ENERGY)), [Some(30.0)]);
}

#[test]
fn steps_are_not_kept_for_a_counter_that_is_not_read_and_their_time_is_not_idle() {
    let (mut accounts, at) = (Accounts::default(), Instant::now());
    pass(&mut accounts, counted("GPU-0", &[(0, 0.0), (1_000, 100.0)]), at);
    pass(&mut accounts, batch(vec![for_one(1, step(1, 500, 600, &[]))], vec![request(1, 500, 600)]), at);
    assert_near(&sums(&accounts.settle(&around(at, 1_000))), &[10.0, 0.0, 90.0, 0.0]);
    let later = at + Duration::from_secs(6);
    let passed =
        pass(&mut accounts, batch(vec![for_one(2, step(1, 6_000, 6_100, &[]))], vec![request(2, 6_000, 6_100)]), later);
    assert_eq!(joules(&passed.requests), [None], "nothing is waited for");
    pass(&mut accounts, counted("GPU-0", &[(8_000, 800.0), (9_000, 900.0)]), later);
    assert_near(&sums(&accounts.settle(&around(later, 9_000))), &[10.0, 0.0, 190.0, 700.0]);
}

#[test]
fn of_more_steps_than_are_kept_the_time_is_not_known() {
    let (mut accounts, at) = (Accounts::default(), Instant::now());
    pass(&mut accounts, counted("GPU-0", &[(0, 0.0), (1_000, 100.0)]), at);
    let thousand: Vec<Served> = (1..=1_000).map(|number| Served::new(number, 1, 1)).collect();
    let steps = (0..300).map(|n| step(1, n, n + 1, &thousand)).collect();
    pass(&mut accounts, batch(steps, vec![request(1, 0, 300)]), at);
    // Half of the first 262 are gone.
    let settled = accounts.settle(&around(at, 1_000));
    assert_near(&sums(&settled), &[16.9, 0.0, 0.0, 83.1]);
    assert_eq!(joules(&settled.requests), [None]);
}

#[test]
fn what_a_counter_counted_before_it_was_reset_stays_in_the_sums() {
    let (mut accounts, at) = (Accounts::default(), Instant::now());
    // The reset comes before anything was settled.
    pass(
        &mut accounts,
        counted("GPU-0", &[(0, 900.0), (1_000, 950.0), (2_000, 960.0), (3_000, 10.0), (4_000, 30.0)]),
        at,
    );
    let steps = vec![for_one(1, step(1, 500, 1_000, &[])), for_one(2, step(1, 3_000, 3_500, &[]))];
    pass(&mut accounts, batch(steps, vec![request(1, 500, 1_000), request(2, 3_000, 3_500)]), at);
    let settled = accounts.settle(&around(at, 4_000));
    assert_near(&sums(&settled), &[10.0, 0.0, 10.0, 60.0]);
    assert_eq!(joules(&settled.requests), [None, Some(10.0)]);
}

#[test]
fn a_step_that_comes_after_its_requests_record_opens_no_account() {
    let (mut accounts, at) = (Accounts::default(), Instant::now());
    let of_one = |from| for_one(1, step(1, from, from + 1, &[]));
    let passed = pass(&mut accounts, batch(vec![of_one(0)], vec![request(1, 0, 1), request(2, 0, 1)]), at);
    assert_eq!(passed.requests.iter().map(|r| r.step_count).collect::<Vec<_>>(), [Some(1), Some(0)]);
    pass(&mut accounts, batch(vec![of_one(1), for_one(2, step(1, 2, 3, &[]))], Vec::new()), at);
    assert!(accounts.open.is_empty(), "{:?}", accounts.open);
}

#[test]
fn of_too_many_requests_those_whose_last_step_is_the_oldest_lose_their_account() {
    let (mut accounts, at) = (Accounts::default(), Instant::now());
    let most = MOST_OPEN as u64;
    // The first request goes on; the others have one step each.
    let mut steps = vec![for_one(1, step(1, 0, 1, &[]))];
    steps.extend((2..=most).map(|number| for_one(number, step(1, number as i64, number as i64 + 1, &[]))));
    steps.push(for_one(1, step(1, most as i64 + 1, most as i64 + 2, &[])));
    steps.push(for_one(most + 1, step(1, most as i64 + 2, most as i64 + 3, &[])));
    pass(&mut accounts, batch(steps, Vec::new()), at);
    assert_eq!(accounts.open.len() as u64, most + 1 - most / 8);
    // A late step of one that has lost its account is not all that it had.
    let late = for_one(2, step(1, most as i64 + 3, most as i64 + 4, &[]));
    let requests = vec![request(1, 0, 20_000), request(2, 0, 20_000), request(most + 1, 0, 20_000)];
    let passed = pass(&mut accounts, batch(vec![late], requests), at);
    assert_eq!(passed.requests.iter().map(|r| r.step_count).collect::<Vec<_>>(), [Some(2), None, Some(1)]);
}
