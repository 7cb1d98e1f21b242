//! The hot path allocates nothing once warm: allocations are counted.
#![allow(missing_docs, reason = "a test")]
mod common;
mod scripted;
use candlescope_core::{Annotation, DType, annotate};
use candlescope_testkit::allocations::{Counting, allocator_calls, assert_counting};
use tracing::trace_span;

#[global_allocator]
static GLOBAL: Counting = Counting;

#[test]
fn enter_exit_and_annotate_allocate_nothing_once_warm() {
    let (batch, m) = common::record_default(|| {
        let spans: Vec<_> = (0..400).map(|_| trace_span!("linear", flops = tracing::field::Empty)).collect();
        let block = trace_span!("block");
        let forward = || {
            let _b = block.enter();
            for span in &spans {
                let _e = span.enter();
                annotate(Annotation::new().flops(10).bytes(20).dtype(DType::F32).shape(&[1, 2, 3]));
                annotate(Annotation::new().flops_executed(12).io_bytes(30).new_tokens(1).sequences(1).context_sum(9));
            }
        };
        forward();
        let during = allocator_calls(|| (0..50).for_each(|_| forward()));
        assert_eq!(during, 0, "allocations in 50 forwards of 401 intervals");
    });
    assert_eq!(m.loss.emitted, 51 * 401);
    assert_eq!(batch.spans.len() as u64 + m.loss.ring_full, 51 * 401);
    assert_counting();
}

#[test]
fn ranges_allocate_nothing_once_warm() {
    use candlescope_core::{MemoryExporter, RangeKind, Session};
    let memory = MemoryExporter::new();
    let (_layer, session) = Session::builder().exporter(memory.clone()).start().expect("starts");
    let ranges = session.handle().ranges();
    let (step, linear) =
        (ranges.name("step", "m", RangeKind::Interval), ranges.name("linear", "m", RangeKind::Interval));
    let beside = ranges.with_target(linear, "m::start_end");
    let forward = || {
        ranges.enter(step, 1);
        let open = ranges.begin(beside).expect("it records");
        for _ in 0..400 {
            ranges.enter(linear, 2);
            ranges.exit(2);
        }
        ranges.exit(1);
        ranges.end(open);
    };
    forward();
    assert_eq!(allocator_calls(|| (0..50).for_each(|_| forward())), 0, "allocations in 50 steps of 402 ranges");
    let manifest = session.finish();
    assert_eq!(manifest.loss.emitted, 51 * 402);
    assert_counting();
}

#[test]
fn a_step_that_says_whom_it_serves_allocates_nothing_once_warm() {
    use candlescope_core::llm::{self, Request, Tokens};
    let (batch, m) = common::record_default(|| {
        let requests: Vec<Request> = (0..8).map(|_| Request::new("chat", "m")).collect();
        let step = trace_span!("step");
        let serve = || {
            let _step = step.enter();
            requests.iter().for_each(|request| llm::serves(request, Tokens::new(1).context(9), 1));
        };
        // The first token of a request is recorded with its span.
        serve();
        assert_eq!(allocator_calls(|| (0..50).for_each(|_| serve())), 0, "allocations in 50 steps for 8 requests");
    });
    assert_eq!((batch.steps.len(), m.loss.emitted), (51, 51));
    assert!(batch.steps.iter().all(|step| step.serves.len() == 8));
}

#[test]
fn marking_allocates_nothing_once_warm() {
    use candlescope_core::gpu::GpuTiming;
    use candlescope_core::{GpuTier, Session};
    let device = scripted::Device::new();
    for tier in [GpuTier::Blocks, GpuTier::All, GpuTier::Adaptive] {
        let builder = Session::builder().gpu(scripted::Clock(device.clone()), GpuTiming::tier(tier));
        let (batch, m) = common::record(builder, |_| {
            let block = trace_span!("block");
            let spans: Vec<_> = (0..20).map(|_| trace_span!("linear")).collect();
            let forward = || {
                let _b = block.enter();
                spans.iter().for_each(|span| span.in_scope(|| ()));
            };
            forward();
            assert_eq!(allocator_calls(|| (0..50).for_each(|_| forward())), 0, "allocations in 50 forwards, {tier}");
        });
        assert_eq!(batch.spans.len(), 51 * 21);
        assert!(m.gpu.unwrap().marks["recorded"] > 50);
    }
}

#[test]
fn steps_that_are_left_out_allocate_nothing_once_warm() {
    use candlescope_core::Session;
    let device = scripted::Device::new();
    let builder = Session::builder().kernels(scripted::Recorder(device.clone()), None).overhead_probe(3);
    let (batch, _) = common::record(builder, |_| {
        let block = trace_span!("block");
        let spans: Vec<_> = (0..20).map(|_| trace_span!("linear")).collect();
        let forward = || {
            let _b = block.enter();
            spans.iter().for_each(|span| span.in_scope(|| ()));
        };
        (0..10).for_each(|_| forward());
        assert_eq!(
            allocator_calls(|| (0..53).for_each(|_| forward())),
            0,
            "allocations in 53 forwards, a third of them plain"
        );
    });
    assert_eq!(batch.steps.len(), 3 + 40);
}

#[test]
fn making_plain_spans_allocates_nothing_once_warm() {
    const SPANS: usize = 3_000;
    let (batch, m) = common::record_default(|| {
        let step = trace_span!("step");
        let steps = |n: usize| {
            let _s = step.enter();
            for _ in 0..n {
                let _e = trace_span!("plain").entered();
            }
        };
        // Fills the registry's own pool.
        steps(SPANS);
        assert_eq!(allocator_calls(|| steps(SPANS)), 0, "allocations in {SPANS} new spans");
    });
    assert_eq!(m.loss.emitted, 2 + 2 * SPANS as u64);
    assert!(batch.spans.iter().all(|s| matches!(&*s.path.name, "step" | "plain")));
}

#[test]
fn steps_and_tokens_of_a_request_allocate_nothing_whether_recorded_or_not() {
    use candlescope_core::{Schedule, Session, llm::Request};
    const STEPS: usize = 1_000;
    let schedule = Schedule { skip_first: 0, wait: 7, warmup: 0, active: 3, repeat: 0 };
    let (batch, m) = common::record(Session::builder().schedule(schedule), |_| {
        let step = trace_span!("step");
        let work = |request: &Request| {
            let _in_request = request.enter();
            for _ in 0..STEPS {
                step.in_scope(|| request.token());
            }
        };
        let (first, second) = (Request::new("chat", "m"), Request::new("chat", "m"));
        work(&first);
        // The first token is recorded on the request's span.
        second.token();
        drop(second.enter());
        assert_eq!(allocator_calls(|| work(&second)), 0, "allocations in {STEPS} steps of a request");
    });
    assert_eq!((batch.steps.len(), m.steps.expect("told").begun), (STEPS / 10 * 6, 2 * STEPS as u64));
    assert!(batch.requests.iter().all(|r| r.queue_ns.is_some() && r.last_token_ns.is_some()));
}
