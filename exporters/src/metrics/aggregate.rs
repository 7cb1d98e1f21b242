//! Batches → metrics. Pure: no thread, no socket, no clock.

use super::MAX_LABEL_BYTES;
use super::catalogue as cat;
use super::catalogue::Metric;
use super::computed;
use super::request_metrics::{Gap, Requests};
use super::sample_series::Samples;
use super::utilisation::Utilisation;
use candlescope_core::run::{RunManifest, env_key, model_key, option_key};
use candlescope_core::{
    Batch, DropReason, GpuSource, HostNs, KernelKind, Outcome, Phase, RequestRecord, Schedule, SpanRecord, Stats,
    StepRecord, cut_text,
};
use prometheus::core::Collector;
use prometheus::{
    Counter, CounterVec, Error, Gauge, GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec,
    Opts, Registry,
};
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The label value for paths and models beyond the limit.
pub(crate) const OVERFLOW: &str = "(overflow)";

/// Models that get series of their own.
const MAX_MODELS: usize = 100;

/// Values of the labels `clock` and `source`, in the order of [`PathSeries`]. The two sources of GPU time measure
/// different things and are never added up. The host has one source, so its label is empty, which for Prometheus is the
/// same as no label.
const CLOCKS: [[&str; 2]; 3] = [["host", ""], ["gpu", GpuSource::Event.as_str()], ["gpu", GpuSource::Cupti.as_str()]];
const HOST: usize = 0;

const fn clock_of(source: GpuSource) -> usize {
    match source {
        GpuSource::Event => 1,
        GpuSource::Cupti => 2,
    }
}

/// Series of one path; those of the GPU only once there is GPU time, because an empty histogram would say that there
/// was none.
#[derive(Debug, Clone)]
struct PathSeries {
    label: Arc<str>,
    clocks: [Option<Histogram>; 3],
}

impl PathSeries {
    fn new(label: &str) -> Self {
        Self { label: cut_text(label, MAX_LABEL_BYTES).into(), clocks: [const { None }; 3] }
    }
}

/// The gauges of [`super::utilisation::Figure`], in its order.
const FIGURES: &[Metric] = &[cat::MFU, cat::MBU, cat::TOKEN_RATE, cat::CONCURRENCY, cat::BUSY];

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Which series a rollup has, by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SeriesSlot {
    Unseen,
    Own(usize),
    Overflow,
}

#[derive(Debug, Clone)]
struct ModelSeries {
    label: Arc<str>,
    ttft: Histogram,
    tpot: Histogram,
    duration: Histogram,
    queue: Histogram,
}

/// A counter and a summed time of a phase.
#[derive(Debug, Clone)]
struct PhaseSeries {
    steps: IntCounter,
    host: Counter,
}

/// The aggregate of all batches so far.
#[derive(Debug)]
pub(crate) struct Aggregate {
    registry: Registry,
    max_paths: usize,
    requests: Requests,
    /// Shared with the collector of the registry, which computes its gauges.
    utilisation: Arc<Mutex<Utilisation>>,
    samples: Samples,

    spans: HistogramVec,
    places: Vec<SeriesSlot>,
    /// The last one is that of the overflow, once there is one.
    paths: Vec<PathSeries>,
    overflow_at: Option<usize>,
    paths_now: Gauge,
    overflowed: IntCounter,

    ttft: HistogramVec,
    tpot: HistogramVec,
    duration: HistogramVec,
    queue: HistogramVec,
    ended: IntCounterVec,
    request_steps: IntCounterVec,
    device_seconds: CounterVec,
    energy: CounterVec,
    models: HashMap<Arc<str>, ModelSeries>,
    itl: Histogram,
    tokens: IntCounterVec,

    phases: HashMap<Option<Phase>, PhaseSeries>,
    steps: IntCounterVec,
    steps_begun: IntCounterVec,
    /// Requests up to this number warm up.
    warmup: u64,
    /// Whether any step had a phase.
    phased: bool,
    warmup_steps: IntCounterVec,
    warmup_requests: IntCounter,
    phase_seconds: CounterVec,
    step_tokens: IntCounterVec,
    flops: IntCounterVec,
    bytes: IntCounterVec,
    gpu_steps: IntCounterVec,
    step_runs: IntCounterVec,
    active: Gauge,
    in_flight: Gauge,
    /// Whether the two values above come from the session, which also knows requests without a recorded step.
    told_in_flight: bool,

    kernels: IntCounterVec,
    kernel_seconds: CounterVec,

    records: IntCounterVec,
    pending: GaugeVec,
    pending_limit: GaugeVec,
    intervals: IntCounterVec,
    lost: IntCounterVec,
    /// Registered with the first value: no overhead is known before the first step.
    overhead: Option<Gauge>,
    run_info: Arc<Mutex<Vec<String>>>,
}

fn opts(metric: &Metric) -> Opts {
    Opts::new(metric.name, metric.help)
}

fn registered<C: Collector + Clone + 'static>(registry: &Registry, collector: Result<C, Error>) -> Result<C, Error> {
    let collector = collector?;
    registry.register(Box::new(collector.clone()))?;
    Ok(collector)
}

impl Aggregate {
    /// Nothing aggregated yet; `max_paths` paths get series of their own.
    pub(crate) fn new(max_paths: usize) -> Result<Self, Error> {
        let registry = Registry::new();
        let r = &registry;
        let counters = |m: &Metric| registered(r, IntCounterVec::new(opts(m), m.labels));
        let seconds = |m: &Metric| registered(r, CounterVec::new(opts(m), m.labels));
        let gauges = |m: &Metric| registered(r, GaugeVec::new(opts(m), m.labels));
        let gauge = |m: &Metric| registered(r, Gauge::with_opts(opts(m)));
        let buckets = |m: &Metric, buckets: &[f64]| HistogramOpts::from(opts(m)).buckets(buckets.to_vec());
        let histograms = |m: &Metric, b: &[f64]| registered(r, HistogramVec::new(buckets(m, b), m.labels));
        let utilisation = Arc::new(Mutex::new(Utilisation::default()));
        let shown = utilisation.clone();
        computed::register(r, FIGURES, move || {
            let rows = lock(&shown).rows();
            rows.into_iter().map(|(figure, labels, value)| (figure as usize, labels, value)).collect()
        })?;
        let run_info = Arc::new(Mutex::new(Vec::new()));
        let shown = run_info.clone();
        computed::register(r, &[cat::RUN_INFO], move || {
            let labels: Vec<String> = lock(&shown).clone();
            if labels.is_empty() { Vec::new() } else { vec![(0, labels, 1.0)] }
        })?;
        Ok(Self {
            max_paths,
            requests: Requests::default(),
            utilisation,
            samples: Samples::new(registry.clone()),
            spans: histograms(&cat::SPAN, cat::SPAN_BUCKETS)?,
            places: Vec::new(),
            paths: Vec::new(),
            overflow_at: None,
            paths_now: gauge(&cat::PATHS)?,
            overflowed: registered(r, IntCounter::with_opts(opts(&cat::PATHS_OVERFLOW)))?,
            ttft: histograms(&cat::TTFT, cat::TTFT_BUCKETS)?,
            tpot: histograms(&cat::TPOT, cat::TPOT_BUCKETS)?,
            duration: histograms(&cat::REQUEST, cat::REQUEST_BUCKETS)?,
            queue: histograms(&cat::QUEUE, cat::REQUEST_BUCKETS)?,
            ended: counters(&cat::REQUESTS)?,
            request_steps: counters(&cat::REQUEST_STEPS)?,
            device_seconds: seconds(&cat::REQUEST_DEVICE_SECONDS)?,
            energy: seconds(&cat::REQUEST_ENERGY)?,
            models: HashMap::new(),
            itl: registered(r, Histogram::with_opts(buckets(&cat::ITL, cat::TPOT_BUCKETS)))?,
            tokens: counters(&cat::TOKENS)?,
            phases: HashMap::new(),
            steps: counters(&cat::STEPS)?,
            steps_begun: counters(&cat::STEPS_BEGUN)?,
            warmup: 0,
            phased: false,
            warmup_steps: counters(&cat::WARMUP_STEPS)?,
            warmup_requests: registered(r, IntCounter::with_opts(opts(&cat::WARMUP_REQUESTS)))?,
            phase_seconds: seconds(&cat::PHASE_SECONDS)?,
            step_tokens: counters(&cat::STEP_TOKENS)?,
            flops: counters(&cat::FLOPS)?,
            bytes: counters(&cat::BYTES)?,
            gpu_steps: counters(&cat::GPU_STEPS)?,
            step_runs: counters(&cat::STEP_RUNS)?,
            active: gauge(&cat::REQUESTS_ACTIVE)?,
            in_flight: gauge(&cat::TOKENS_IN_FLIGHT)?,
            told_in_flight: false,
            kernels: counters(&cat::KERNELS)?,
            kernel_seconds: seconds(&cat::KERNEL_SECONDS)?,
            records: counters(&cat::RECORDS)?,
            pending: gauges(&cat::RECORDS_PENDING)?,
            pending_limit: gauges(&cat::RECORDS_PENDING_LIMIT)?,
            intervals: counters(&cat::INTERVALS)?,
            lost: counters(&cat::LOST)?,
            overhead: None,
            run_info,
            registry,
        })
    }

    /// The registry from which metrics are gathered.
    pub(crate) fn registry(&self) -> Registry {
        self.registry.clone()
    }

    /// Takes the facts of the run's manifest.
    pub(crate) fn learn(&mut self, run: &RunManifest) {
        lock(&self.utilisation).learn(run);
        let paused = option_key::PAUSED.of(&run.options) == Some(true);
        let schedule = option_key::SCHEDULE.raw(&run.options).and_then(|s| serde_json::from_value(s.clone()).ok());
        if schedule.is_some() || paused {
            self.sampled(schedule.filter(|_| !paused));
        }
        self.warmup = run.warmup_requests();
        let model = model_key::NAME.of(&run.model).unwrap_or_default();
        let version = env_key::CANDLESCOPE.of(&run.environment).unwrap_or_default();
        let labels = [run.run_id.as_str(), run.host.as_str(), model, version];
        *lock(&self.run_info) = labels.map(|label| cut_text(label, MAX_LABEL_BYTES).into_owned()).into();
    }

    /// Notes that some steps have no record: those that `schedule` leaves out, if nothing else leaves out steps.
    fn sampled(&mut self, schedule: Option<Schedule>) {
        self.requests.sampled(schedule);
        lock(&self.utilisation).sampled();
    }

    fn step_warms_up(&self, step: &StepRecord) -> bool {
        super::step_warms_up(step, self.warmup)
    }

    fn warms_up(&self, request: Option<u64>) -> bool {
        super::warms_up(request, self.warmup)
    }

    /// Takes a batch; returns how many of its samples had no room.
    pub(crate) fn add(&mut self, batch: &Batch) -> u64 {
        let recorded = recorded_steps(batch);
        // A step's intervals and kernels come in the same batch; those of a very long step may come earlier, and then
        // they count.
        let warm = batch.steps.iter().filter(|step| self.step_warms_up(step)).map(|step| step.step);
        let warm: HashSet<u64> = warm.collect();
        // Where phases are marked, spans of the application are no steps; those that began before the first phase are.
        self.phased |= batch.steps.iter().any(|step| step.phase.is_some());
        let application = batch.steps.iter().filter(|step| self.phased && step.is_application());
        let application: HashSet<u64> = application.map(|step| step.step).collect();
        let counts = |step: Option<u64>| step.is_none_or(|step| !warm.contains(&step) && !application.contains(&step));
        for span in batch.spans.iter().filter(|span| counts(span.step)) {
            // An entry of a request's span stands above steps: one poll of its future, or all of it.
            if let Some(step) = span.step {
                self.span(span, recorded.contains(&step));
            }
        }
        for step in batch.steps.iter().filter(|step| !application.contains(&step.step)) {
            self.step(step);
        }
        for request in &batch.requests {
            self.request(request);
        }
        let gaps = self.requests.gaps(HostNs(i64::MIN));
        self.observe_gaps(gaps);
        for kernel in batch.kernels.iter().filter(|kernel| counts(kernel.step)) {
            let kind: KernelKind = kernel.kind;
            self.kernels.with_label_values(&[kind.as_str()]).inc();
            self.kernel_seconds.with_label_values(&[kind.as_str()]).inc_by(kernel.gpu_dur_ns as f64 / 1e9);
        }
        if !self.told_in_flight && (!batch.steps.is_empty() || !batch.requests.is_empty()) {
            self.active.set(self.requests.active() as f64);
            self.in_flight.set(self.requests.context() as f64);
        }
        lock(&self.utilisation).add(batch);
        batch.samples.iter().map(|sample| u64::from(!self.samples.add(sample))).sum()
    }

    /// Removes what is older than the time window, even if no batch comes.
    pub(crate) fn expire(&mut self, now: HostNs) {
        lock(&self.utilisation).expire(now);
        let gaps = self.requests.gaps(now);
        self.observe_gaps(gaps);
    }

    /// Shows what is held back for records that might still come, because all have come.
    pub(crate) fn settle(&mut self) {
        let gaps = self.requests.all_gaps();
        self.observe_gaps(gaps);
    }

    fn observe_gaps(&self, gaps: Vec<Gap>) {
        for gap in gaps.into_iter().filter(|gap| !self.warms_up(Some(gap.request))) {
            self.itl.observe(gap.ns as f64 / 1e9);
        }
    }

    fn request(&mut self, request: &RequestRecord) {
        let per_token = self.requests.end(request);
        if self.warms_up(Some(request.request)) {
            return self.warmup_requests.inc();
        }
        let series = self.model(&request.model);
        // The times of one that an experiment made slower are no sample; its tokens are tokens.
        if request.perturbed != Some(true) {
            series.duration.observe(request.host_dur_ns as f64 / 1e9);
            for (histogram, ns) in [(&series.ttft, request.ttft_ns), (&series.queue, request.queue_ns)] {
                if let Some(ns) = ns {
                    histogram.observe(ns as f64 / 1e9);
                }
            }
            if let Some(ns) = per_token {
                series.tpot.observe(ns / 1e9);
            }
        }
        let model = series.label.clone();
        let outcome = request.outcome.map_or(cat::UNSTATED, Outcome::as_str);
        self.ended.with_label_values(&[&*model, outcome]).inc();
        self.account_of(request, &model);
        for (kind, tokens) in [("input", request.input_tokens()), ("output", request.output_tokens)] {
            if let Some(tokens) = tokens {
                self.tokens.with_label_values(&[kind]).inc_by(tokens);
            }
        }
    }

    /// Takes what a request caused, as far as it is known.
    fn account_of(&self, request: &RequestRecord, model: &str) {
        if let Some((steps, measured)) = request.step_count.zip(request.device_step_count) {
            for (known, n) in [("yes", measured), ("no", steps.saturating_sub(measured))] {
                self.request_steps.with_label_values(&[model, known]).inc_by(n);
            }
        }
        if let Some(ns) = request.device_share_ns {
            self.device_seconds.with_label_values(&[model]).inc_by(ns as f64 / 1e9);
        }
        // The crate panics on what is negative or no number.
        if let Some(mj) = request.energy_mj.filter(|mj| *mj >= 0.0) {
            self.energy.with_label_values(&[model]).inc_by(mj / 1e3);
        }
    }

    /// Takes an interval; `recorded` says that the kernels of its step were recorded.
    fn span(&mut self, span: &SpanRecord, recorded: bool) {
        let at = self.place(span.path.rollup_id, &span.path.rollup);
        if let Some((_, ns)) = span.host_time() {
            self.observe(at, HOST, ns);
        }
        match span.gpu {
            Some(gpu) => self.observe(at, clock_of(gpu.source), gpu.dur_ns),
            // It launched nothing, which is a measurement of zero: without it the mean would be over those that did
            // only.
            None if recorded => self.observe(at, clock_of(GpuSource::Cupti), 0),
            None => {}
        }
    }

    fn observe(&mut self, at: usize, clock: usize, ns: u64) {
        let Some(path) = self.paths.get_mut(at) else { return };
        let label = &path.label;
        let histogram = path.clocks[clock].get_or_insert_with(|| {
            let [name, source] = CLOCKS[clock];
            self.spans.with_label_values(&[&**label, name, source])
        });
        histogram.observe(ns as f64 / 1e9);
    }

    /// Index of the series of a rollup. Numbers of rollups are dense, so they are looked up in a table.
    fn place(&mut self, rollup: u32, label: &str) -> usize {
        let id = rollup as usize;
        if self.places.len() <= id {
            self.places.resize(id + 1, SeriesSlot::Unseen);
        }
        if self.places[id] == SeriesSlot::Unseen {
            let own = self.paths.len() - usize::from(self.overflow_at.is_some());
            self.places[id] = if own < self.max_paths {
                self.paths.push(PathSeries::new(label));
                self.paths_now.set((own + 1) as f64);
                SeriesSlot::Own(self.paths.len() - 1)
            } else {
                SeriesSlot::Overflow
            };
        }
        match self.places[id] {
            SeriesSlot::Own(at) => at,
            _ => {
                self.overflowed.inc();
                let next = self.paths.len();
                *self.overflow_at.get_or_insert_with(|| {
                    self.paths.push(PathSeries::new(OVERFLOW));
                    next
                })
            }
        }
    }

    fn step(&mut self, step: &StepRecord) {
        let phase = step.phase.map_or("none", Phase::as_str);
        self.requests.step(step);
        if self.step_warms_up(step) {
            return self.warmup_steps.with_label_values(&[phase]).inc();
        }
        let series = self.phases.entry(step.phase).or_insert_with(|| PhaseSeries {
            steps: self.steps.with_label_values(&[phase]),
            host: self.phase_seconds.with_label_values(&[phase, "host", ""]),
        });
        series.steps.inc();
        series.host.inc_by(step.host_dur_ns as f64 / 1e9);
        if let Some(gpu) = step.gpu {
            let source = gpu.source.as_str();
            self.phase_seconds.with_label_values(&[phase, "gpu", source]).inc_by(gpu.dur_ns as f64 / 1e9);
            self.gpu_steps.with_label_values(&[phase, source]).inc();
        }
        if let Some(ran) = step.ran {
            self.step_runs.with_label_values(&[phase, ran.as_str()]).inc();
        }
        // A sequence that has ended is still computed with the others, but yields no token.
        let tokens = step.new_tokens.or(step.tokens).map(u64::from);
        let told = [(&self.flops, step.flops), (&self.bytes, step.bytes), (&self.step_tokens, tokens)];
        for (counter, amount) in told {
            if let Some(amount) = amount {
                counter.with_label_values(&[phase]).inc_by(amount);
            }
        }
    }

    fn model(&mut self, model: &Arc<str>) -> &ModelSeries {
        let label: Arc<str> = match cut_text(model, MAX_LABEL_BYTES) {
            Cow::Borrowed(_) => model.clone(),
            Cow::Owned(cut) => cut.into(),
        };
        let known = self.models.contains_key(&label);
        let label: Arc<str> = if known || self.models.len() < MAX_MODELS { label } else { OVERFLOW.into() };
        self.models.entry(label.clone()).or_insert_with(|| ModelSeries {
            ttft: self.ttft.with_label_values(&[&*label]),
            tpot: self.tpot.with_label_values(&[&*label]),
            duration: self.duration.with_label_values(&[&*label]),
            queue: self.queue.with_label_values(&[&*label]),
            label,
        })
    }

    /// Takes the session's own account.
    pub(crate) fn account(&mut self, stats: &Stats) {
        let raise = |counter: IntCounter, to: u64| counter.inc_by(to.saturating_sub(counter.get()));
        for exporter in &stats.exporters {
            let name = exporter.name.as_str();
            let exported: u64 = exporter.exported.values().sum();
            let mut dropped: HashMap<&str, u64> = HashMap::new();
            for (reason, n) in exporter.dropped.values().flatten() {
                *dropped.entry(reason).or_default() += n;
            }
            // What a budget removed again had been exported, and a counter does not fall.
            let removed = dropped.get(DropReason::DiskBudget.as_str()).copied().unwrap_or(0);
            raise(self.records.with_label_values(&[name, "exported"]), exported + removed);
            for (reason, n) in &dropped {
                raise(self.records.with_label_values(&[name, *reason]), *n);
            }
        }
        for queue in &stats.queues {
            let name = queue.exporter.as_str();
            self.pending.with_label_values(&[name]).set(queue.queued as f64);
            self.pending_limit.with_label_values(&[name]).set(queue.limit as f64);
        }
        let loss = &stats.loss;
        for (outcome, n) in [
            ("recorded", loss.emitted.saturating_sub(loss.lost())),
            ("ring_full", loss.ring_full),
            ("too_deep", loss.too_deep),
            ("no_ring", loss.no_ring),
            ("after_shutdown", loss.after_shutdown),
            ("unresolved", loss.unresolved),
        ] {
            raise(self.intervals.with_label_values(&[outcome]), n);
        }
        let steps = &stats.steps;
        for (outcome, n) in [
            ("recorded", steps.recorded),
            ("captured", steps.captured),
            ("scheduled_out", steps.scheduled_out),
            ("left_plain", steps.left_plain),
            ("perturbed", steps.perturbed),
            ("paused", steps.paused),
            ("lost", steps.lost),
        ] {
            raise(self.steps_begun.with_label_values(&[outcome]), n);
        }
        if steps.without_record() > 0 {
            self.sampled(
                steps.schedule.filter(|_| steps.left_plain + steps.perturbed + steps.paused + steps.lost == 0),
            );
        }
        self.told_in_flight = true;
        self.active.set(stats.requests_open as f64);
        self.in_flight.set(stats.tokens_in_flight as f64);
        raise(self.lost.with_label_values(&["requests"]), loss.requests_lost);
        raise(self.lost.with_label_values(&["samples"]), loss.samples_lost);
        if let Some(ratio) = stats.overhead_ratio {
            if self.overhead.is_none() {
                // Its name is registered only here, so this does not fail.
                self.overhead = registered(&self.registry, Gauge::with_opts(opts(&cat::OVERHEAD))).ok();
            }
            if let Some(gauge) = &self.overhead {
                gauge.set(ratio);
            }
        }
    }
}

/// Steps of the batch whose kernels were recorded. An interval's kernels come in the same batch.
fn recorded_steps(batch: &Batch) -> HashSet<u64> {
    let by_kernels = batch.kernels.iter().filter_map(|kernel| kernel.step);
    let of_cupti = |gpu: Option<candlescope_core::GpuTime>| gpu.is_some_and(|gpu| gpu.source == GpuSource::Cupti);
    let by_steps = batch.steps.iter().filter(|step| of_cupti(step.gpu)).map(|step| step.step);
    by_kernels.chain(by_steps).collect()
}

#[cfg(test)]
#[path = "aggregate_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "device_tests.rs"]
mod device_tests;
