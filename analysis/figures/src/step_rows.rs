//! A step as the passes keep it, not as its record, because a run may have millions: 20 million records would take 2 GB
//! more.

use super::stated_work::StatedWork;
use super::stats::{Distribution, total_if_known};
use candlescope_schema::accounts::Outermost;
use candlescope_schema::stretches::{StepTime, Stretch, merged};
use candlescope_schema::{GpuSource, PathInfo, Phase, Ran, Served, StepRecord, UnrecordedStep};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What is kept of a step's record: when and where it ran, its tokens, and the work it states.
#[derive(Debug, Clone)]
pub struct StepRow {
    /// Number of the step.
    pub step: u64,
    /// Phase, if it is one.
    pub phase: Option<Phase>,
    /// Request it works for.
    pub request: Option<u64>,
    /// The requests that it serves, if it states them.
    pub serves: Vec<Served>,
    /// Name of its interval.
    pub path: Arc<PathInfo>,
    /// Number of the thread that ran it.
    pub thread: u32,
    /// Start on the host, Unix nanoseconds.
    pub start_ns: i64,
    /// Duration on the host in nanoseconds, less [`warmup_ns`](Self::warmup_ns).
    pub dur_ns: u64,
    /// Time of warm-up requests inside it, in nanoseconds.
    pub warmup_ns: u64,
    /// Start on the device, Unix nanoseconds.
    pub gpu_start_ns: Option<i64>,
    /// Duration on the device in nanoseconds.
    pub gpu_ns: Option<u64>,
    /// What measured `gpu_ns`: marks in the stream or recorded kernels; `None` without it.
    pub gpu_source: Option<GpuSource>,
    /// Tokens processed, all sequences of the batch together; `None` if the step does not say.
    pub tokens: Option<u32>,
    /// Context length after the step.
    pub context_len: Option<u32>,
    /// Sequences in the batch.
    pub batch: Option<u32>,
    /// New tokens in it, of sequences that go on; `tokens` also counts padding and ended sequences.
    pub new_tokens: Option<u32>,
    /// Sum of the context lengths after the step, of sequences that go on.
    pub context_sum: Option<u64>,
    /// Sequences that go on.
    pub sequences: Option<u32>,
    /// FLOPs and bytes, analytic: sums over all intervals in it.
    pub work: StatedWork,
    /// Whether it is known what its thread did in it: its switches were recorded all the time.
    pub thread_known: bool,
    /// Intervals in it, itself included.
    pub intervals: u64,
    /// Intervals of it that were lost; `None` in runs that do not say.
    pub intervals_lost: Option<u32>,
    /// Steps without a record whose times became known with this one; `None` in runs that do not say.
    pub unrecorded: Option<Box<[UnrecordedStep]>>,
    /// How it ran, where the program says it.
    pub ran: Option<Ran>,
    /// Whether it is a span of the application, which is in no figure where phases are marked.
    pub is_application: bool,
}

const _: () = assert!(size_of::<StepRow>() <= 280, "20 million of them are kept: 20 MB for each byte");

/// Those of the steps, which are in order of start, that are not inside another one of the same thread.
pub fn outermost<'a>(steps: impl IntoIterator<Item = &'a StepRow>) -> Vec<&'a StepRow> {
    let mut outermost = Outermost::default();
    steps.into_iter().filter(|step| outermost.is(step.thread, step.end_ns())).collect()
}

impl StepRow {
    /// The part of a record that is kept.
    pub fn of(step: &StepRecord) -> Self {
        Self {
            step: step.step,
            phase: step.phase,
            request: step.request,
            serves: step.serves.clone(),
            path: step.path.clone(),
            thread: step.thread.index,
            thread_known: step.cpu_ns.is_some(),
            start_ns: step.host_start.0,
            dur_ns: step.host_dur_ns,
            warmup_ns: 0,
            gpu_start_ns: step.gpu.map(|gpu| gpu.start.0),
            gpu_ns: step.gpu.map(|gpu| gpu.dur_ns),
            gpu_source: step.gpu.map(|gpu| gpu.source),
            tokens: step.tokens,
            context_len: step.context_len,
            batch: step.batch,
            new_tokens: step.new_tokens,
            context_sum: step.context_sum,
            sequences: step.sequences,
            work: StatedWork::of_step(step),
            intervals: step.intervals,
            intervals_lost: step.intervals_lost.map(|n| u32::try_from(n).unwrap_or(u32::MAX)),
            unrecorded: step.unrecorded.clone().map(Vec::into_boxed_slice),
            ran: step.ran,
            is_application: step.is_application(),
        }
    }

    /// End on the host, Unix nanoseconds; warm-up inside, which its duration leaves out, lies before it.
    pub fn end_ns(&self) -> i64 {
        let open_ns = self.dur_ns.saturating_add(self.warmup_ns);
        self.start_ns.saturating_add(i64::try_from(open_ns).unwrap_or(i64::MAX))
    }

    /// Start and end, Unix nanoseconds.
    pub fn window(&self) -> Stretch {
        (self.start_ns, self.end_ns())
    }

    /// Subtracts warm-up from the time of a step around it. `warm` are the warm-up steps of the same thread, ordered by
    /// start; `windows`, ordered and disjoint, is the time that this thread spent in them and in their requests.
    pub fn leave_out(&mut self, warm: &[&StepRow], windows: &[Stretch]) {
        let (start, end) = self.window();
        let from = windows.partition_point(|window| window.0 < start);
        let inside = windows[from..].iter().take_while(|window| window.0 < end).filter(|window| window.1 <= end);
        let warmup_ns = inside.fold(0, |sum: u64, window| sum.saturating_add(window.1.abs_diff(window.0)));
        if warmup_ns == 0 {
            return;
        }
        self.warmup_ns = warmup_ns;
        self.dur_ns = self.dur_ns.saturating_sub(warmup_ns);
        // The rest of its time on the device is not contiguous.
        self.gpu_start_ns = None;
        let from = warm.partition_point(|step| step.start_ns < start);
        let inside = warm[from..].iter().take_while(|step| step.start_ns < end).filter(|step| step.end_ns() <= end);
        let outermost = outermost(inside.copied());
        // Its GPU time includes theirs, which can be subtracted only if it is known for each.
        if let Some(source) = self.gpu_source {
            let theirs = total_if_known(outermost.iter().map(|step| match step.gpu_source {
                Some(theirs) if theirs == source => step.gpu_ns,
                // With recorded kernels, it may have launched none.
                None if source == GpuSource::Cupti => Some(0),
                _ => None,
            }));
            self.gpu_ns = self.gpu_ns.zip(theirs).map(|(own, theirs)| own.saturating_sub(theirs));
            self.gpu_source = self.gpu_source.filter(|_| self.gpu_ns.is_some());
        }
    }

    /// When and where it ran.
    pub fn time(&self) -> StepTime {
        StepTime { step: self.step, thread: self.thread, start_ns: self.start_ns, end_ns: self.end_ns() }
    }

    /// Start and end on the device, Unix nanoseconds.
    pub fn gpu_window(&self) -> Option<(i64, i64)> {
        let start = self.gpu_start_ns?;
        Some((start, start.saturating_add(i64::try_from(self.gpu_ns?).unwrap_or(i64::MAX))))
    }

    /// Tokens that count for throughput: new tokens of sequences that go on if the step states them, else all that it
    /// processed.
    pub fn counted_tokens(&self) -> Option<u32> {
        self.new_tokens.or(self.tokens)
    }

    /// Whether it is measured, and not part of a warm-up request.
    pub fn is_measured(&self, warmup: &BTreeSet<u64>) -> bool {
        !self.is_warmup(warmup)
    }

    /// Whether all requests that it works for are among those of the warm-up. A step without a request is not.
    pub fn is_warmup(&self, warmup: &BTreeSet<u64>) -> bool {
        if self.serves.is_empty() {
            return self.request.is_some_and(|request| warmup.contains(&request));
        }
        self.serves.iter().all(|served| warmup.contains(&served.request))
    }

    /// Name of its span without an ordinal, or its module's: by it the run has what recording costs in place.
    pub fn span(&self) -> &str {
        self.path.rollup.rsplit('/').next().unwrap_or_default()
    }

    /// The name under which steps of its kind are grouped: the phase, or else the step's name.
    pub fn group(&self) -> &str {
        self.phase.map_or(self.path.rollup.as_str(), |phase| phase.as_str())
    }
}

/// Statistics of a figure of single steps. Steps of one request are correlated, so the interval is by request; a step
/// without a request is a unit of its own. Steps without the figure are left out.
pub fn spread_by_request<'a>(
    steps: impl IntoIterator<Item = &'a StepRow>,
    figure: impl Fn(&StepRow) -> Option<f64>,
) -> Option<Distribution> {
    let mut requests: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
    let mut clusters: Vec<Vec<f64>> = Vec::new();
    for step in steps {
        match (step.request, figure(step)) {
            (_, None) => {}
            (Some(request), Some(value)) => requests.entry(request).or_default().push(value),
            (None, Some(value)) => clusters.push(vec![value]),
        }
    }
    clusters.extend(requests.into_values());
    Distribution::clustered(clusters)
}

/// Start and end of the time in which at least one of `steps` ran, in order, Unix nanoseconds.
pub fn windows<'a>(steps: impl IntoIterator<Item = &'a StepRow>) -> Vec<Stretch> {
    merged(steps.into_iter().map(StepRow::window))
}
