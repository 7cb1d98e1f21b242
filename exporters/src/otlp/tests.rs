//! The conversion and the choice of spans, without a network.

use super::counts::Counts;
use super::otlp_spans;
use super::replay::Order;
use super::settings::{Settings, Signal};
use super::traces::{OutgoingSpan, Traces};
use super::{OtlpConfig, OtlpLimits, OtlpSampler};
use candlescope_core::run::RunManifest;
use candlescope_core::{Batch, GpuSource, GpuTime, HostNs, Ran, RequestRecord, SpanId, SpanRecord};
use candlescope_testkit::Decoder;
use opentelemetry::{Key, Value};
use opentelemetry_sdk::trace::SpanData;
use serde_json::json;
use std::collections::{HashMap, HashSet};
use std::time::{Duration, SystemTime};

/// Records of a request: a prefill and some decode steps, each in a batch of its own, then the request.
fn request(seed: u64, decodes: usize) -> (Vec<Batch>, RequestRecord) {
    let mut source = Decoder::new(seed);
    source.annotated = true;
    source.gpu = true;
    let started = HostNs(source.now - 1_234_567);
    let mut batches = vec![source.step("prefill")];
    batches.extend((0..decodes).map(|_| source.decode()));
    let record = source.request(1, started);
    let mut end = Batch::default();
    end.requests.push(record.clone());
    batches.push(end);
    (batches, record)
}

/// Gives the steps a parent: the interval in which the thread worked for the request.
fn with_entry(batches: &mut Vec<Batch>, record: &RequestRecord) -> SpanRecord {
    let mut entry = batches[0].spans[0].clone();
    entry.seq = 1 << 30;
    entry.span_id = SpanId(0xabcd);
    (entry.step, entry.phase, entry.parent_seq) = (None, None, None);
    (entry.host_start, entry.host_dur_ns) = (record.host_start, record.host_dur_ns);
    for batch in batches.iter_mut() {
        for span in batch.spans.iter_mut().filter(|s| s.parent_seq.is_none()) {
            span.parent_seq = Some(entry.seq);
        }
    }
    let mut batch = Batch::default();
    batch.spans.push(entry.clone());
    let at = batches.len() - 1;
    batches.insert(at, batch);
    entry
}

/// The spans of a request, as they are sent.
pub(super) fn made_spans() -> Vec<SpanData> {
    let (batches, _) = request(1, 1);
    run(OtlpLimits::default(), &batches).0.into_iter().map(|outgoing| outgoing.span).collect()
}

fn run(limits: OtlpLimits, batches: &[Batch]) -> (Vec<OutgoingSpan>, Counts) {
    run_sampled(limits, OtlpSampler::default(), batches)
}

fn run_sampled(limits: OtlpLimits, sampler: OtlpSampler, batches: &[Batch]) -> (Vec<OutgoingSpan>, Counts) {
    let mut traces = Traces::new(limits, sampler);
    batches.iter().for_each(|b| traces.take(b));
    traces.finish();
    traces.drain()
}

fn received(batches: &[Batch]) -> Counts {
    let mut all = Counts::default();
    for b in batches {
        all += Counts { spans: b.spans.len() as u64, steps: b.steps.len() as u64, requests: b.requests.len() as u64 };
    }
    all
}

/// Checks that no span is missing or extra, and that every parent is in the same trace and was sent.
fn check(batches: &[Batch], sent: &[OutgoingSpan], omitted: Counts) {
    let mut settled = omitted;
    sent.iter().for_each(|o| settled += o.records);
    assert_eq!(settled, received(batches), "every record is sent or left out");
    let ids: HashMap<_, _> =
        sent.iter().map(|o| (o.span.span_context.span_id(), o.span.span_context.trace_id())).collect();
    assert_eq!(ids.len(), sent.len(), "no span is sent twice");
    for o in sent {
        let parent = o.span.parent_span_id;
        if parent != opentelemetry::trace::SpanId::INVALID {
            assert_eq!(ids.get(&parent), Some(&o.span.span_context.trace_id()), "{}: a parent is missing", o.span.name);
        }
    }
}

fn attribute(span: &SpanData, key: &str) -> Option<Value> {
    span.attributes.iter().find(|kv| kv.key == Key::from(key.to_string())).map(|kv| kv.value.clone())
}

fn nanos(time: SystemTime) -> i128 {
    time.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos() as i128
}

#[test]
fn a_request_tells_the_tokens_of_all_its_sequences_and_its_own_times() {
    // No step of it was recorded; the request is sent all the same.
    let (mut batches, _) = request(1, 0);
    batches.remove(0);
    let record = &mut batches[0].requests[0];
    (record.batch, record.prompt_tokens) = (Some(4), Some(32));
    (record.last_token_ns, record.queue_ns) = (Some(500_000_000), Some(250_000_000));
    (record.step_count, record.step_share_ns) = (Some(9), Some(125_000_000));
    (record.energy_mj, record.energy_high_mj) = (Some(1_500.0), Some(2_000.0));
    let (sent, omitted) = run(OtlpLimits::none(), &batches);
    check(&batches, &sent, omitted);
    let span = &sent[0].span;
    assert_eq!(attribute(span, "gen_ai.usage.input_tokens"), Some(128.into()));
    assert_eq!(attribute(span, "candlescope.time_to_last_token"), Some(0.5.into()));
    assert_eq!(attribute(span, "candlescope.queue_time"), Some(0.25.into()));
    assert_eq!(attribute(span, "candlescope.account.steps"), Some(9.into()));
    assert_eq!(attribute(span, "candlescope.account.step_time"), Some(0.125.into()));
    assert_eq!(attribute(span, "candlescope.account.device_time"), None, "not known is not zero");
    assert_eq!(attribute(span, "candlescope.account.energy_joules"), Some(1.5.into()));
    assert_eq!(attribute(span, "candlescope.account.energy_high_joules"), Some(2.0.into()));
}

#[test]
fn ids_parents_times_and_attributes_are_the_records_own() {
    let (mut batches, record) = request(1, 3);
    batches[1].steps[0].ran = Some(Ran::Replay);
    let entry = with_entry(&mut batches, &record);
    let (sent, omitted) = run(OtlpLimits::none(), &batches);
    check(&batches, &sent, omitted);
    assert_eq!(omitted, Counts::default());

    let by_id: HashMap<u64, &SpanData> =
        sent.iter().map(|o| (u64::from_be_bytes(o.span.span_context.span_id().to_bytes()), &o.span)).collect();
    let records: HashMap<u64, &SpanRecord> = batches.iter().flat_map(|b| &b.spans).map(|s| (s.seq, s)).collect();
    for r in records.values().filter(|r| r.step.is_some()) {
        let span = by_id[&r.span_id.0];
        assert_eq!(span.span_context.trace_id().to_bytes(), r.trace_id.0.to_be_bytes());
        let parent = match r.parent_seq {
            Some(seq) if seq == entry.seq => record.span_id,
            Some(seq) => records[&seq].span_id,
            None => unreachable!("every step has a parent here"),
        };
        assert_eq!(span.parent_span_id.to_bytes(), parent.0.to_be_bytes());
        assert_eq!(nanos(span.start_time), i128::from(r.host_start.0));
        assert_eq!(nanos(span.end_time), i128::from(r.host_start.0) + i128::from(r.host_dur_ns));
        assert_eq!(span.name, *r.path.name);
        assert_eq!(attribute(span, "candlescope.path"), Some(r.path.path.clone().into()));
        assert_eq!(attribute(span, "candlescope.phase"), r.phase.map(|p| p.as_str().into()));
        let gpu = r.gpu.unwrap();
        assert_eq!(attribute(span, "candlescope.gpu.duration"), Some((gpu.dur_ns as f64 / 1e9).into()));
        assert_eq!(attribute(span, "candlescope.gpu.start_time_unix_nano"), Some(gpu.start.0.into()));
        if !matches!(&*r.path.name, "prefill" | "decode") {
            assert_eq!(attribute(span, "candlescope.flops"), r.flops.map(|n| (n as i64).into()));
            assert_eq!(attribute(span, "candlescope.bytes"), r.bytes.map(|n| (n as i64).into()));
            assert_eq!(attribute(span, "candlescope.io_bytes"), r.io_bytes.map(|n| (n as i64).into()));
            assert_eq!(attribute(span, "candlescope.shape"), r.shape.map(|s| s.to_string().into()));
        }
    }
    // A step has the sums over everything in it.
    let step = &batches[1].steps[0];
    let root = by_id[&records[&step.seq].span_id.0];
    assert_eq!(attribute(root, "candlescope.flops"), step.flops.map(|n| (n as i64).into()));
    assert_eq!(attribute(root, "candlescope.intervals"), Some((step.intervals as i64).into()));
    let ran = sent.iter().filter_map(|o| attribute(&o.span, "candlescope.ran")).collect::<Vec<_>>();
    assert_eq!((ran, attribute(root, "candlescope.ran")), (vec!["replay".into()], Some("replay".into())));

    let span = by_id[&record.span_id.0];
    assert_eq!(span.name, "text_completion smollm2-135m");
    assert_eq!(span.span_kind, opentelemetry::trace::SpanKind::Internal);
    assert_eq!(span.parent_span_id, opentelemetry::trace::SpanId::INVALID);
    assert_eq!(attribute(span, "gen_ai.operation.name"), Some("text_completion".into()));
    assert_eq!(attribute(span, "gen_ai.provider.name"), Some("candle".into()));
    assert_eq!(attribute(span, "gen_ai.usage.input_tokens"), Some(64.into()));
    assert_eq!(attribute(span, "gen_ai.usage.output_tokens"), Some(4.into()));
    assert_eq!(attribute(span, "gen_ai.response.time_to_first_chunk"), Some(0.012.into()));
    assert_eq!(attribute(span, "candlescope.decode.steps"), Some(3.into()));
    assert_eq!(attribute(span, "candlescope.spans_omitted"), None);
    assert_eq!(span.events.len(), 1);
    assert_eq!(nanos(span.events[0].timestamp), i128::from(entry.host_start.0));
    assert_eq!(span.instrumentation_scope.schema_url(), Some("https://opentelemetry.io/schemas/1.42.0"));
}

/// A request of one prefill of 7 ms and 20 decode steps. Ten decode steps have marks, of 2 ms each; four others were
/// recorded, with kernels of 1 ms; six were not measured. By marks the request took 7 + 20 × 2 = 47 ms on the GPU, and
/// kernels are not added to that.
#[test]
fn gpu_time_of_a_request_is_of_one_source_and_says_how_much_of_it_was_measured() {
    let (mut batches, _) = request(12, 20);
    let of = |source, ms: u64| Some(GpuTime { start: HostNs(0), dur_ns: ms * 1_000_000, source });
    for (n, batch) in batches.iter_mut().take(21).enumerate() {
        batch.steps[0].gpu = match n {
            0 => of(GpuSource::Event, 7),
            1..=10 => of(GpuSource::Event, 2),
            11..=14 => of(GpuSource::Cupti, 1),
            _ => None,
        };
    }
    let told = |batches: &[Batch], limits: OtlpLimits| {
        let (sent, _) = run(limits, batches);
        let root = sent.iter().find(|o| o.records.requests == 1).map(|o| o.span.clone()).expect("the request");
        let keys = ["duration", "measured_duration", "measured_steps", "source"];
        (keys.map(|key| attribute(&root, &format!("candlescope.gpu.{key}"))), root)
    };
    let (all, root) = told(&batches, OtlpLimits::default().max_depth(0));
    assert_eq!(all, [Some(0.047.into()), Some(0.027.into()), Some(11.into()), Some("event".into())]);
    // Each group of decode steps has the same for its own steps.
    let groups: Vec<_> = root.events.iter().filter(|e| e.name == "candlescope.decoded").collect();
    assert_eq!(groups.len(), 20);
    let keys = |n: usize| -> Vec<&str> {
        let of_gpu = groups[n].attributes.iter().map(|kv| kv.key.as_str()).filter(|key| key.contains(".gpu."));
        of_gpu.collect()
    };
    assert_eq!(keys(0).len(), 4);
    assert!(groups[12].attributes.iter().any(|kv| kv.value.as_str() == "cupti"));
    assert!(keys(19).is_empty(), "not measured is not zero");

    // If no decode step was measured, there is no estimate for all steps, only the measured ones.
    for batch in batches.iter_mut().take(21).skip(1) {
        batch.steps[0].gpu = None;
    }
    let (prefill_alone, _) = told(&batches, OtlpLimits::default());
    assert_eq!(prefill_alone, [None, Some(0.007.into()), Some(1.into()), Some("event".into())]);
}

#[test]
fn by_default_a_trace_is_small_and_says_so() {
    let (batches, record) = request(2, 100);
    let limits = OtlpLimits::default();
    let (sent, omitted) = run(limits, &batches);
    check(&batches, &sent, omitted);
    assert_eq!(sent.len(), limits.max_spans);
    let steps = sent.iter().filter(|o| o.records.steps == 1).count();
    assert_eq!(steps, 101, "steps go before what is below them");
    let span = &sent[0].span;
    assert_eq!(span.span_context.span_id().to_bytes(), record.span_id.0.to_be_bytes());
    assert_eq!(attribute(span, "candlescope.spans_omitted"), Some((omitted.spans as i64).into()));
    assert_eq!(attribute(span, "candlescope.decode.steps"), Some(100.into()), "sums are of all steps");
    // The groups of decode steps cover all of them.
    let decoded: Vec<_> = span.events.iter().filter(|e| e.name == "candlescope.decoded").collect();
    assert_eq!(decoded.len(), 50, "a hundred steps in pairs");
    let start = batches[1].steps[0].host_start;
    assert_eq!(nanos(decoded[0].timestamp), i128::from(start.0));
    let steps: u64 = batches[1..=100].iter().map(|b| b.steps[0].host_dur_ns).sum();
    let told: f64 = decoded
        .iter()
        .flat_map(|e| &e.attributes)
        .filter(|kv| kv.key.as_str() == "candlescope.decode.duration")
        .map(|kv| if let Value::F64(s) = kv.value { s } else { f64::NAN })
        .sum();
    assert!((told - steps as f64 / 1e9).abs() < 1e-9, "{told}");
}

#[test]
fn every_nth_decode_step_is_sent_in_full() {
    let (batches, _) = request(3, 9);
    let per_step = batches[1].spans.len();
    let limits = OtlpLimits::none().detail_every(4);
    let (sent, omitted) = run(limits, &batches);
    check(&batches, &sent, omitted);
    // The request, the prefill, decode steps 0, 4 and 8 in full, six more decode steps.
    assert_eq!(sent.len(), 1 + 4 * per_step + 6);
    let (sent, omitted) = run(limits.detail_every(0), &batches);
    check(&batches, &sent, omitted);
    assert_eq!(sent.len(), 1 + per_step + 9);
}

#[test]
fn depth_is_limited() {
    let (batches, _) = request(4, 2);
    let (sent, omitted) = run(OtlpLimits::none().max_depth(1), &batches);
    check(&batches, &sent, omitted);
    let deepest =
        sent.iter().filter_map(|o| attribute(&o.span, "candlescope.path")).map(|p| p.as_str().matches('/').count());
    assert_eq!(deepest.max(), Some(1));
}

#[test]
fn slow_requests_are_whole_and_quick_ones_are_not() {
    let (batches, record) = request(5, 20);
    let took = Duration::from_nanos(record.host_dur_ns);
    let limits = OtlpLimits::default().slow_max_spans(100_000).slow_request(took);
    let (sent, omitted) = run(limits, &batches);
    check(&batches, &sent, omitted);
    assert_eq!(omitted, Counts::default());
    let limits = limits.slow_request(took + Duration::from_nanos(1));
    let (sent, omitted) = run(limits, &batches);
    check(&batches, &sent, omitted);
    assert_eq!(sent.len(), limits.max_spans);
    // A request that has many spans but is not slow is cut like any other.
    let limits = limits.max_spans(100);
    let (sent, omitted) = run(limits, &batches);
    check(&batches, &sent, omitted);
    assert_eq!(sent.len(), 100);
    assert_eq!(sent.iter().filter(|o| o.records.steps == 1).count(), 21, "steps go before what is below them");
    // A slow request that exceeds its limit while it runs has that many spans, with the first levels of every step.
    let (sent, omitted) = run(limits.slow_request(Duration::ZERO).slow_max_spans(2_000), &batches);
    check(&batches, &sent, omitted);
    assert_eq!(sent.len(), 2_000);
    let per_step = |level: usize| {
        let mut steps: HashMap<String, usize> = HashMap::new();
        for o in &sent {
            let path = attribute(&o.span, "candlescope.path").map(|p| p.to_string()).unwrap_or_default();
            let step = attribute(&o.span, "candlescope.step").map(|s| s.to_string()).unwrap_or_default();
            *steps.entry(step).or_default() += usize::from(path.matches('/').count() == level);
        }
        let counts: HashSet<usize> = steps.into_iter().filter(|(step, _)| !step.is_empty()).map(|(_, n)| n).collect();
        counts
    };
    let blocks = per_step(1);
    assert!(blocks.len() <= 2 && blocks.iter().all(|n| *n > 1), "every step, not every sixteenth: {blocks:?}");
}

#[test]
fn conservation_and_trees_hold_whatever_the_limits_and_the_batches() {
    for seed in 1..40u64 {
        let (mut whole, record) = request(seed, (seed % 7) as usize * 3);
        if seed % 2 == 0 {
            with_entry(&mut whole, &record);
        }
        // The same records in pieces: a step's intervals before the step itself, the request sometimes before its
        // last step.
        let mut batches = Vec::new();
        for batch in &whole {
            for piece in batch.spans.chunks(1 + (seed as usize * 37) % 200) {
                let mut part = Batch::default();
                part.spans = piece.to_vec();
                batches.push(part);
            }
            let mut rest = Batch::default();
            (rest.steps, rest.requests) = (batch.steps.clone(), batch.requests.clone());
            batches.push(rest);
        }
        if seed % 3 == 0 {
            let last = batches.len() - 1;
            batches.swap(last, last - 1);
        }
        let limits = OtlpLimits::none()
            .max_depth((seed % 5) as u32)
            .max_spans(1 + (seed as usize * 97) % 900)
            .detail_every(seed % 4)
            .slow_request((seed % 2 == 1).then_some(Duration::from_millis(seed)))
            .slow_max_spans(700)
            .max_held(50 + (seed as usize * 53) % 2_000)
            .spans_per_second(if seed % 5 == 0 { seed % 3 } else { 2_000 });
        let sampler = OtlpSampler::new(f64::from(u8::from(seed % 11 != 0))).parent_based(seed % 4 == 0);
        let (sent, omitted) = run_sampled(limits, sampler, &batches);
        check(&batches, &sent, omitted);
    }
}

#[test]
fn beyond_the_rate_a_request_is_one_span_and_later_ones_are_whole_again() {
    let mut source = Decoder::new(10);
    let (mut batches, mut records) = (Vec::new(), Vec::new());
    for number in 1..=12 {
        // After ten of them nothing happens for long.
        source.now += if number == 11 { 3_600_000_000_000 } else { 1_000_000 };
        let started = HostNs(source.now);
        let mut step = source.decode();
        step.steps[0].request = Some(number);
        let mut end = Batch::default();
        records.push(source.request(number, started));
        end.requests.push(records[records.len() - 1].clone());
        batches.extend([step, end]);
    }
    let per_step = batches[0].spans.len();
    // Ten seconds' worth is slightly more than the spans of four requests.
    let limits = OtlpLimits::none().spans_per_second((4 * per_step as u64).div_ceil(10) + 1);
    let (sent, omitted) = run(limits, &batches);
    check(&batches, &sent, omitted);
    let spans_of = |record: &RequestRecord| {
        let own = record.span_id.0.to_be_bytes();
        let root = sent.iter().find(|o| o.span.span_context.span_id().to_bytes() == own).unwrap();
        let whole = sent.iter().any(|o| o.span.parent_span_id.to_bytes() == own);
        (whole, attribute(&root.span, "candlescope.spans_omitted"), attribute(&root.span, "candlescope.decode.steps"))
    };
    for (i, record) in records.iter().enumerate() {
        let (whole, left_out, steps) = spans_of(record);
        let expected = (5..10).contains(&i);
        assert_eq!((whole, left_out), (!expected, expected.then(|| (per_step as i64).into())), "request {}", i + 1);
        assert_eq!(steps, Some(1.into()), "sums are of all steps");
    }
    // Slow requests are always sent.
    let slow = limits.slow_request(Duration::ZERO);
    assert_eq!(run(slow, &batches).1, Counts::default());
    let none_slow = limits.slow_request(Duration::MAX);
    let (sent, omitted) = run(none_slow, &batches);
    check(&batches, &sent, omitted);
    assert!(omitted.steps >= 5, "{omitted:?}");
}

#[test]
fn a_caller_that_does_not_record_its_trace_gets_no_spans() {
    let (mut batches, mut record) = request(11, 3);
    with_entry(&mut batches, &record);
    let last = batches.len() - 1;
    for (said, sampler, sent_at_all) in [
        (Some(false), OtlpSampler::default(), false),
        (Some(true), OtlpSampler::new(0.0), true),
        (Some(true), OtlpSampler::new(0.0).parent_based(false), false),
        (Some(false), OtlpSampler::new(1.0).parent_based(false), true),
        (None, OtlpSampler::new(0.0), false),
    ] {
        record.caller_sampled = said;
        batches[last].requests = vec![record.clone()];
        let (sent, omitted) = run_sampled(OtlpLimits::none(), sampler, &batches);
        check(&batches, &sent, omitted);
        assert_eq!(!sent.is_empty(), sent_at_all, "{said:?} {sampler:?}");
        assert_eq!(omitted == Counts::default(), sent_at_all);
    }
    // For steps outside of requests, and requests that never end, only our sampler decides.
    let off = OtlpSampler::new(0.0);
    for batch in &mut batches {
        batch.requests.clear();
    }
    let (sent, omitted) = run_sampled(OtlpLimits::none(), off, &batches);
    check(&batches, &sent, omitted);
    assert!(sent.is_empty());
    batches.iter_mut().flat_map(|b| &mut b.steps).for_each(|s| s.request = None);
    let (sent, omitted) = run_sampled(OtlpLimits::none(), off, &batches);
    check(&batches, &sent, omitted);
    assert!(sent.is_empty());
}

#[test]
fn ranges_that_are_part_of_nothing_are_sent_as_they_come() {
    let (batches, _) = request(1, 1);
    let mut range = batches[0].spans[0].clone();
    (range.step, range.phase, range.parent_seq) = (None, None, Some(range.seq));
    (range.seq, range.span_id) = (1 << 30, SpanId(0xabcd));
    range.path = candlescope_core::PathInfo::new(1_000, "load", "load", "nvtx::start_end").into();
    let mut batch = Batch::default();
    batch.spans.push(range);
    let mut traces = Traces::new(OtlpLimits::default(), OtlpSampler::default());
    traces.take(&batch);
    let (sent, omitted) = traces.drain();
    assert_eq!((sent.len(), traces.held(), omitted), (1, 0, Counts::default()), "they wait for no request");
}

#[test]
fn requests_that_never_end_are_bounded_and_accounted_for() {
    let mut source = Decoder::new(6);
    let limits = OtlpLimits::default().max_held(2_000);
    let mut traces = Traces::new(limits, OtlpSampler::default());
    let mut batches = Vec::new();
    for number in 0..50 {
        let mut batch = source.decode();
        batch.steps[0].request = Some(number);
        traces.take(&batch);
        assert!(traces.held() <= limits.max_held, "{}", traces.held());
        batches.push(batch);
    }
    traces.finish();
    let (sent, omitted) = traces.drain();
    check(&batches, &sent, omitted);
    assert!(sent.len() > 1_000, "what was within the bound is sent in the end");
}

#[test]
fn two_requests_of_one_caller_keep_their_own_steps() {
    let (mut first, one) = request(7, 1);
    let (mut second, mut two) = request(7, 1);
    let shift = 1 << 20;
    for batch in &mut second {
        for span in &mut batch.spans {
            span.seq += shift;
            span.span_id = SpanId(span.span_id.0 + shift);
            span.parent_seq = span.parent_seq.map(|p| p + shift);
            span.step = span.step.map(|s| s + 100);
        }
        for step in &mut batch.steps {
            (step.seq, step.step, step.request) = (step.seq + shift, step.step + 100, Some(2));
        }
    }
    (two.request, two.span_id) = (2, SpanId(one.span_id.0 ^ 1));
    if let Some(end) = second.last_mut() {
        end.requests = vec![two.clone()];
    }
    // Interleaved, as from two threads.
    let last = first.pop().into_iter().chain(second.pop());
    let batches: Vec<Batch> =
        first.into_iter().zip(second).flat_map(|(a, b)| [a, b]).collect::<Vec<_>>().into_iter().chain(last).collect();
    let (sent, omitted) = run(OtlpLimits::none(), &batches);
    check(&batches, &sent, omitted);
    for (request, below) in [(&one, 0..shift), (&two, shift..2 * shift)] {
        let steps: HashSet<i64> = sent
            .iter()
            .filter(|o| o.span.parent_span_id.to_bytes() == request.span_id.0.to_be_bytes())
            .filter_map(|o| match attribute(&o.span, "candlescope.seq") {
                Some(Value::I64(seq)) => Some(seq),
                _ => None,
            })
            .collect();
        assert_eq!(steps.len(), 2);
        assert!(steps.iter().all(|seq| below.contains(&(*seq as u64))), "{steps:?}");
    }
}

#[test]
fn steps_outside_requests_go_out_at_once() {
    let mut source = Decoder::new(8);
    let mut batch = source.step("embed");
    batch.steps[0].request = None;
    let mut traces = Traces::new(OtlpLimits::none(), OtlpSampler::default());
    traces.take(&batch);
    let (sent, omitted) = traces.drain();
    check(&[batch], &sent, omitted);
    assert_eq!(sent[0].span.parent_span_id, opentelemetry::trace::SpanId::INVALID);
}

#[test]
fn times_before_the_epoch_do_not_panic() {
    assert_eq!(otlp_spans::system_time(HostNs(-5)), SystemTime::UNIX_EPOCH - Duration::from_nanos(5));
    assert_eq!(nanos(otlp_spans::system_time(HostNs(1_760_000_000_123_456_789))), 1_760_000_000_123_456_789);
    let _ = otlp_spans::system_time(HostNs(i64::MIN));
}

#[test]
fn the_resource_names_service_host_gpu_and_model() {
    let mut run = RunManifest { run_id: "r1".into(), host: "node7".into(), rank: 3, ..RunManifest::default() };
    run.environment.insert("nvidia_driver".into(), "580.1".into());
    run.environment.insert("gpus".into(), json!([{ "name": "NVIDIA H200", "uuid": "GPU-1" }]));
    run.options.insert("schedule".into(), json!({ "wait": 90, "active": 10 }));
    run.model.insert("name".into(), "smollm2".into());
    run.model.insert("parameters".into(), json!(134_515_008));
    let config = OtlpConfig::new("http://localhost:4318").service_name("chat").resource("host.name", "told");
    let settings = Settings::resolve(&config, Signal::Traces, "app", |_| None).unwrap();
    let resource = otlp_spans::resource(&run, &settings.common);
    let get = |key: &str| resource.get(&Key::from(key.to_string())).map(|v| v.to_string());
    assert_eq!(get("service.name").as_deref(), Some("chat"));
    assert_eq!(get("host.name").as_deref(), Some("told"), "what the user says wins");
    assert_eq!(get("candlescope.run_id").as_deref(), Some("r1"));
    assert_eq!(get("candlescope.gpu.name").as_deref(), Some("[\"NVIDIA H200\"]"));
    assert_eq!(get("candlescope.gpu.driver").as_deref(), Some("580.1"));
    assert_eq!(get("candlescope.model.name").as_deref(), Some("smollm2"));
    assert_eq!(get("candlescope.model.parameters").as_deref(), Some("134515008"));
    assert_eq!(get("candlescope.schedule").as_deref(), Some("{\"active\":10,\"wait\":90}"));
    assert_eq!(get("candlescope.cuda.driver"), None, "what is not known stays out");
}

/// Prometheus tells the series of two processes apart by nothing else.
#[test]
fn every_process_of_a_service_is_an_instance_of_its_own() {
    let of = |run: &RunManifest, config: OtlpConfig, variables: Option<&str>| {
        let env = |name: &str| variables.filter(|_| name == "OTEL_RESOURCE_ATTRIBUTES").map(str::to_string);
        let settings = Settings::resolve(&config, Signal::Metrics, "app", env).unwrap();
        let resource = otlp_spans::resource(run, &settings.common);
        resource.get(&Key::from("service.instance.id")).map(|id| id.to_string()).expect("an id")
    };
    let config = || OtlpConfig::new("http://localhost:4318").service_name("chat");
    let run = |pid: u64, rank| {
        let mut run = RunManifest { run_id: "r1".into(), host: "node7".into(), rank, ..RunManifest::default() };
        run.environment.insert("pid".into(), json!(pid));
        run
    };
    let ids = [run(11, 0), run(12, 0), run(11, 1)].map(|run| of(&run, config(), None));
    assert_eq!(ids, ["node7:11:0:r1", "node7:12:0:r1", "node7:11:1:r1"]);
    assert!(!of(&RunManifest::default(), config(), None).is_empty());
    let mut later = run(11, 0);
    later.model.insert("name".into(), "smollm2".into());
    assert_eq!(of(&later, config(), None), ids[0], "it stays when more is known");
    let told = of(&run(11, 0), config(), Some("service.instance.id=replica-3"));
    assert_eq!(told, "replica-3", "what the user says wins");
    assert_eq!(of(&run(11, 0), config().resource("service.instance.id", "mine"), None), "mine");
}

#[test]
fn a_run_read_table_by_table_is_sent_as_it_happened() {
    let (mut batches, record) = request(9, 12);
    with_entry(&mut batches, &record);
    let (live, _) = run(OtlpLimits::default(), &batches);
    // As a reader delivers them: requests, steps, then spans in pieces that do not match steps.
    let mut tables = vec![Batch::default(), Batch::default()];
    tables[0].requests = batches.iter().flat_map(|b| b.requests.clone()).collect();
    tables[1].steps = batches.iter().flat_map(|b| b.steps.clone()).collect();
    let spans: Vec<SpanRecord> = batches.iter().flat_map(|b| b.spans.clone()).collect();
    for piece in spans.chunks(1_000) {
        let mut batch = Batch::default();
        batch.spans = piece.to_vec();
        tables.push(batch);
    }
    let mut order = Order::default();
    let mut replayed: Vec<Batch> = tables.into_iter().map(|b| order.take(b)).collect();
    replayed.push(order.finish());
    assert_eq!(received(&replayed), received(&batches));
    let (again, omitted) = run(OtlpLimits::default(), &replayed);
    check(&replayed, &again, omitted);
    let spans = |sent: &[OutgoingSpan]| sent.iter().map(|o| o.span.clone()).collect::<Vec<_>>();
    assert_eq!(spans(&again), spans(&live));
}
