//! A scripted GPU: work is queued with its duration, marks are read off the queue, and each kernel knows who launched
//! it.
#![allow(dead_code, unreachable_pub, missing_docs, reason = "shared by several test binaries")]

use candlescope_core::gpu::*;
use candlescope_core::{HostNs, KernelKind, SpanId};
use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

thread_local! {
    /// Innermost interval, as reported to the correlator on this thread.
    static OPEN: RefCell<Vec<SpanId>> = const { RefCell::new(Vec::new()) };
    /// The same, with the intervals of steps outside of windows.
    static CAPTURES: RefCell<Vec<SpanId>> = const { RefCell::new(Vec::new()) };
}

#[derive(Default)]
struct State {
    /// End of the queue on the device's clock.
    end: i64,
    marks: Vec<(u32, MarkId, i64)>,
    reported: usize,
    announced: bool,
    kernels: Vec<RawKernel>,
    /// When each of them was launched.
    launched: Vec<Instant>,
    correlation: u32,
    on: bool,
    /// Nodes of graphs that were not taken, and how many there were.
    nodes: Vec<GraphNode>,
    made: u64,
    /// Graphs that were made to be launched.
    graphs: u64,
    /// Lost records that were not told: whose they are, if anybody knows.
    lost: Vec<Option<SpanId>>,
    /// What is captured while launches are: name, nanoseconds, node.
    capturing: Option<Graph>,
}

/// What a graph runs: name, nanoseconds and node of each kernel. The upper half of a node is its graph, as CUPTI numbers
/// them.
pub type Graph = Vec<(&'static str, i64, u64)>;

/// What the recorder says of records that it lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Says {
    /// That they were lost.
    ThatTheyAre,
    /// Whose they were, too.
    Whose,
    /// Nothing.
    Nothing,
}

/// Clones are the same device.
#[derive(Clone)]
pub struct Device {
    state: Arc<Mutex<State>>,
    /// Whether the device works off its queue.
    pub running: Arc<AtomicBool>,
    /// Time that a mark or a launch takes on the host.
    pub call: Duration,
    /// All marks except one in this many wait this long in addition, as if the launch queue were full or other threads
    /// launched.
    pub waits: Option<(u64, Duration)>,
    marked: Arc<AtomicU64>,
    pub refuse: Arc<Mutex<Option<NoMark>>>,
    pub lose: Arc<AtomicBool>,
    pub enables: Arc<AtomicU64>,
    pub kernel_error: Arc<Mutex<Option<&'static str>>>,
    /// What the host's clock read when the device's read zero.
    pub origin: i64,
    pub anchor_bound: u64,
    /// Time from the beginning of a launch call, which takes 400 ns, to the start of its kernel.
    pub start_after: i64,
    /// The clock's error bound, as the recorder states it.
    pub recorder_bound: Option<u64>,
    /// How long after its launch a kernel is finished; the recorder hands nothing over while one is not, or loses it.
    pub lag: Option<Duration>,
    /// Whether the recorder wants to know the intervals of all steps.
    pub follows_graphs: bool,
}

impl Device {
    pub fn new() -> Self {
        let mut state = State::default();
        state.marks.reserve(1 << 16);
        state.kernels.reserve(1 << 16);
        Self {
            state: Arc::new(Mutex::new(state)),
            running: Arc::new(AtomicBool::new(true)),
            call: Duration::ZERO,
            waits: None,
            marked: Arc::default(),
            refuse: Arc::default(),
            lose: Arc::default(),
            enables: Arc::default(),
            kernel_error: Arc::default(),
            origin: HostNs::now().0,
            anchor_bound: 25,
            start_after: 900,
            recorder_bound: None,
            lag: None,
            follows_graphs: false,
        }
    }

    /// Others use the device, too: a kernel is finished this long after its launch.
    pub fn lags(mut self, lag: Duration) -> Self {
        self.lag = Some(lag);
        self
    }

    /// The recorder wants to know the intervals of all steps.
    pub fn follows_graphs(mut self) -> Self {
        self.follows_graphs = true;
        self
    }

    pub fn calls_take(mut self, call: Duration) -> Self {
        self.call = call;
        self
    }

    /// Makes all marks except one in `every` wait this long in addition.
    pub fn marks_wait(mut self, every: u64, wait: Duration) -> Self {
        self.waits = Some((every, wait));
        self
    }

    fn spend(&self) {
        spin(self.call);
    }

    /// Whether kernels are being recorded.
    pub fn recording(&self) -> bool {
        self.state.lock().unwrap().on
    }

    /// Launches a kernel of `ns` nanoseconds with a call that takes from `call.0` to `call.1`. It begins `latency` after
    /// the call has returned, or when the one before has ended.
    pub fn launch_at(&self, name: &'static str, call: (HostNs, HostNs), latency: i64, ns: i64) {
        let mut s = self.state.lock().unwrap();
        let start = s.end.max(call.1.0 + latency - self.origin);
        s.end = start + ns;
        s.correlation += 1;
        if s.on {
            let span = OPEN.with(|open| open.borrow().last().copied());
            let (launch_start, start) = (call.0, HostNs(self.origin + start));
            let launch_dur_ns = Some((call.1.0 - call.0.0) as u64);
            let correlation = s.correlation;
            s.kernels.push(RawKernel { launch_dur_ns, ..raw(name, span, launch_start, start, ns, correlation) });
        }
    }

    /// Work of `ns` nanoseconds that begins on the device at `start`, whatever it does else, launched by a call that
    /// takes from `call.0` to `call.1`. `change` makes its record, which is that of a kernel, one of something else.
    pub fn runs_at(
        &self,
        name: &'static str,
        call: (HostNs, HostNs),
        (start, ns): (HostNs, i64),
        change: impl FnOnce(&mut RawKernel),
    ) {
        let mut s = self.state.lock().unwrap();
        s.end = s.end.max(start.0 - self.origin + ns);
        s.correlation += 1;
        if s.on {
            let span = OPEN.with(|open| open.borrow().last().copied());
            let launch_dur_ns = Some((call.1.0 - call.0.0) as u64);
            let mut kernel = RawKernel { launch_dur_ns, ..raw(name, span, call.0, start, ns, s.correlation) };
            change(&mut kernel);
            s.kernels.push(kernel);
        }
    }

    /// Launches go into a graph from now on.
    pub fn begin_capture(&self) {
        self.state.lock().unwrap().capturing = Some(Vec::new());
    }

    /// The graph, with nodes that are copies of those captured.
    pub fn end_capture(&self) -> Graph {
        let mut s = self.state.lock().unwrap();
        let captured = s.capturing.take().expect("a capture was begun");
        s.graphs += 1;
        let copy = |(name, ns, original): (&'static str, i64, u64)| (name, ns, s.make_node(Some(original)));
        captured.into_iter().map(copy).collect()
    }

    /// Launches a graph, one call for all of it.
    pub fn replay(&self, graph: &Graph) {
        self.replay_with(graph, 0);
    }

    /// The same, with a record of the first kernel that ends so much too late.
    pub fn replay_with(&self, graph: &Graph, late: u64) {
        self.replayed(graph, late, None);
    }

    /// The same, without the records of the last kernels, so many.
    pub fn replay_losing(&self, graph: &Graph, lost: usize, says: Says) {
        self.replayed(graph, 0, Some((lost, says)));
    }

    fn replayed(&self, graph: &Graph, late: u64, lost: Option<(usize, Says)>) {
        self.spend();
        let mut s = self.state.lock().unwrap();
        s.correlation += 1;
        let (correlation, first) = (s.correlation, s.end);
        for (at, (name, ns, node)) in graph.iter().enumerate() {
            let start = s.end;
            s.end += ns;
            let span = OPEN.with(|open| open.borrow().last().copied());
            if !s.on {
                continue;
            }
            if let Some((_, says)) = lost.filter(|(lost, _)| at + lost >= graph.len()) {
                if says != Says::Nothing {
                    s.lost.push(span.filter(|_| says == Says::Whose));
                }
            } else {
                let launch = HostNs(self.origin + first - self.start_after);
                let kernel = raw(name, span, launch, HostNs(self.origin + start), *ns, correlation);
                let dur_ns = kernel.dur_ns + if at == 0 { late } else { 0 };
                let graph = Some((*node >> 32) as u32);
                s.kernels.push(RawKernel { dur_ns, graph, graph_node: Some(*node), ..kernel });
                s.launched.push(Instant::now());
            }
        }
    }

    /// Records of a replay that was launched before the recorder saw any interval, and runs on now; with when that was, if the
    /// recorder saw the call.
    pub fn runs_on(&self, graph: &Graph, launched: Option<HostNs>) {
        let mut s = self.state.lock().unwrap();
        s.correlation += 1;
        let correlation = s.correlation;
        for (name, ns, node) in graph {
            let kernel = raw(name, None, HostNs::now(), HostNs::now(), *ns, correlation);
            let (launch, launch_dur_ns) = (launched.and(kernel.launch), launched.and(kernel.launch_dur_ns));
            let (graph, graph_node) = (Some((*node >> 32) as u32), Some(*node));
            let kernel = RawKernel { launch, launch_start: launched, launch_dur_ns, graph, graph_node, ..kernel };
            s.kernels.push(kernel);
            s.launched.push(Instant::now());
        }
    }

    /// Queues a kernel of `ns` nanoseconds.
    pub fn launch(&self, name: &'static str, ns: i64) {
        {
            let mut s = self.state.lock().unwrap();
            if s.capturing.is_some() {
                let node = s.make_node(None);
                s.capturing.iter_mut().for_each(|graph| graph.push((name, ns, node)));
                return;
            }
        }
        // A launch takes longer than a mark.
        self.spend();
        self.spend();
        let mut s = self.state.lock().unwrap();
        let start = s.end;
        s.end += ns;
        s.correlation += 1;
        if s.on {
            let span = OPEN.with(|open| open.borrow().last().copied());
            // A launch outside of all steps is judged by its time, so its time must be real.
            let (launch_start, start) = match span {
                Some(_) => (HostNs(self.origin + start - self.start_after), HostNs(self.origin + start)),
                None => (HostNs::now(), HostNs::now().plus_ns(900)),
            };
            let kernel = raw(name, span, launch_start, start, ns, s.correlation);
            s.kernels.push(kernel);
            s.launched.push(Instant::now());
        }
    }
}

fn raw(
    name: &'static str,
    span: Option<SpanId>,
    launch_start: HostNs,
    start: HostNs,
    ns: i64,
    correlation: u32,
) -> RawKernel {
    RawKernel {
        kind: KernelKind::Kernel,
        name: name.into(),
        span,
        device: "GPU-paper".into(),
        stream: 7,
        start,
        dur_ns: ns as u64,
        grid: Some([4, 2, 1]),
        block: Some([128, 1, 1]),
        registers: Some(32),
        shared_static: Some(0),
        shared_dynamic: Some(1024),
        bytes: None,
        launch: Some("cuLaunchKernel"),
        launch_start: Some(launch_start),
        launch_dur_ns: Some(400),
        correlation,
        graph: None,
        graph_node: None,
    }
}

/// Keeps the thread busy for this time.
pub fn spin(time: Duration) {
    let start = Instant::now();
    while start.elapsed() < time {
        std::hint::spin_loop();
    }
}

pub struct Clock(pub Device);
struct Lanes(Device);
struct Lane(Device, u32, MarkId);

impl GpuLane for Lane {
    fn mark(&mut self) -> Result<MarkId, NoMark> {
        if let Some(why) = *self.0.refuse.lock().unwrap() {
            return Err(why);
        }
        self.0.spend();
        if let Some((every, wait)) = self.0.waits
            && !self.0.marked.fetch_add(1, Ordering::Relaxed).is_multiple_of(every)
        {
            spin(wait);
        }
        let id = self.2;
        self.2 = id.next();
        let mut s = self.0.state.lock().unwrap();
        let at = s.end;
        s.marks.push((self.1, id, at));
        Ok(id)
    }
}

impl GpuLanes for Lanes {
    fn lane(&self, thread: u32) -> Box<dyn GpuLane> {
        Box::new(Lane(self.0.clone(), thread, MarkId::FIRST))
    }
}

impl GpuClock for Clock {
    fn name(&self) -> &'static str {
        "scripted"
    }

    fn lanes(&self) -> Arc<dyn GpuLanes> {
        Arc::new(Lanes(self.0.clone()))
    }

    fn poll(&mut self, _host: &dyn Fn() -> HostNs, report: &mut dyn FnMut(GpuReport)) {
        if !self.0.running.load(Ordering::Relaxed) {
            return;
        }
        let mut s = self.0.state.lock().unwrap();
        if !s.announced {
            s.announced = true;
            let info = DeviceInfo { uuid: "GPU-paper".into(), name: "Paper".into() };
            report(GpuReport::Device { device: 0, info });
            let bound_ns = self.0.anchor_bound;
            report(GpuReport::Anchor { device: 0, at: DeviceNs(0), host: HostNs(self.0.origin), bound_ns });
        }
        let from = s.reported;
        s.reported = s.marks.len();
        for &(thread, id, at) in &s.marks[from..] {
            let at = (!self.0.lose.load(Ordering::Relaxed)).then_some(DeviceNs(at));
            report(GpuReport::Mark { thread, id, device: 0, at });
        }
    }
}

pub struct Recorder(pub Device);
struct Stack(Device);

impl Correlator for Stack {
    fn push(&self, span: SpanId) {
        OPEN.with(|open| open.borrow_mut().push(span));
        CAPTURES.with(|open| open.borrow_mut().push(span));
    }
    fn pop(&self) {
        OPEN.with(|open| open.borrow_mut().pop().expect("pushes and pops balance"));
        CAPTURES.with(|open| open.borrow_mut().pop().expect("pushes and pops balance"));
    }
    fn follows_graphs(&self) -> bool {
        self.0.follows_graphs
    }
    fn push_outside_window(&self, span: SpanId) {
        OPEN.with(|open| open.borrow_mut().push(OUTSIDE_WINDOW));
        CAPTURES.with(|open| open.borrow_mut().push(span));
    }
    fn graph_nodes(&self, into: &mut Vec<GraphNode>) {
        into.append(&mut self.0.state.lock().unwrap().nodes);
    }
}

impl State {
    fn make_node(&mut self, original: Option<u64>) -> u64 {
        self.made += 1;
        // As CUPTI tells it: a copy is made like any node, and then said to be one.
        let span = CAPTURES.with(|open| open.borrow().last().copied()).filter(|span| *span != OUTSIDE_WINDOW);
        let graph = if original.is_some() { self.graphs + 2 } else { 2 };
        let node = (graph << 32) + self.made;
        let made = GraphNode { node, original: None, span };
        self.nodes.push(made);
        if original.is_some() {
            self.nodes.push(GraphNode { original, ..made });
        }
        node
    }

    /// As CUPTI does it: a buffer with an unfinished record is kept, or handed over with that record lost.
    fn hand_over(&mut self, lag: Duration, all: bool, into: &mut ActivitySink) {
        let finished = |at: &Instant| at.elapsed() >= lag;
        if all || self.launched.iter().all(finished) {
            for (kernel, at) in self.kernels.drain(..).zip(self.launched.drain(..)) {
                match kernel.span {
                    _ if finished(&at) => into.kernels.push(kernel),
                    Some(OUTSIDE_WINDOW) => into.outside_unfinished += 1,
                    span => {
                        into.dropped += 1;
                        into.dropped_of.extend(span);
                    }
                }
            }
        }
        let inside = |kernel: &RawKernel| kernel.span.is_some_and(|span| span != OUTSIDE_WINDOW);
        let of_windows = self.kernels.iter().zip(&self.launched).filter(|(kernel, _)| inside(kernel));
        let earliest = of_windows.map(|(_, at)| HostNs(HostNs::now().0 - at.elapsed().as_nanos() as i64)).min();
        into.undelivered = earliest.map_or(UndeliveredWork::Nothing, UndeliveredWork::Since);
    }
}

impl Recorder {
    fn outcome(&self) -> Result<(), ActivityError> {
        let wanted = *self.0.kernel_error.lock().unwrap();
        match wanted {
            // Without calling the panic hook: on a busy machine its backtrace takes longer than a session waits for its
            // recorder.
            Some("panic") => std::panic::resume_unwind(Box::new("as the test asked")),
            Some(why) => Err(ActivityError(why.into())),
            None => Ok(()),
        }
    }
}

impl Activity for Recorder {
    fn name(&self) -> &'static str {
        "paper"
    }
    fn correlator(&self) -> Arc<dyn Correlator> {
        Arc::new(Stack(self.0.clone()))
    }
    fn prepare(&mut self) -> Result<(), ActivityError> {
        self.outcome()
    }
    fn enable(&mut self) -> Result<(), ActivityError> {
        self.0.enables.fetch_add(1, Ordering::Relaxed);
        self.0.state.lock().unwrap().on = true;
        self.outcome()
    }
    fn disable(&mut self) -> Result<(), ActivityError> {
        self.0.state.lock().unwrap().on = false;
        self.outcome()
    }
    fn collect(&mut self, all: bool, _: &dyn Fn() -> HostNs, into: &mut ActivitySink) -> Result<(), ActivityError> {
        let mut s = self.0.state.lock().unwrap();
        into.clock_bound_ns = self.0.recorder_bound;
        let lost = std::mem::take(&mut s.lost);
        into.dropped += lost.len() as u64;
        into.dropped_of.extend(lost.into_iter().flatten());
        if let Some(lag) = self.0.lag {
            s.hand_over(lag, all, into);
            drop(s);
            return self.outcome();
        }
        // A recorder may keep kernels back until it is told that all have finished.
        let keep = if all || !s.on { 0 } else { s.kernels.len() / 2 };
        into.undelivered = if keep == 0 { UndeliveredWork::Nothing } else { UndeliveredWork::Unknown };
        let give = s.kernels.len() - keep;
        into.kernels.extend(s.kernels.drain(..give));
        s.launched.clear();
        drop(s);
        self.outcome()
    }
}
