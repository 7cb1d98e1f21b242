//! Looks at everything, once a period: GPUs, processes, programs that serve metrics.

use crate::children::descendants;
use crate::endpoint;
use crate::error::MonitorError;
use crate::figures::{MachineFigures, ProcessFigures, named};
use crate::gpu::Gpus;
use crate::options::MonitorOptions;
use crate::program::{Counters, clean, clean_long};
use crate::reading::{Answer, ProcessReading, ProgramReading, Reading, Work};
use candlescope_collectors::host::HostCollector;
use candlescope_core::{CollectError, Collector, HostNs, RedactedUrl, SampleRecord, Samples};
use candlescope_exporters::prometheus::{announced, at_work};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Failures after which an endpoint counts as gone that nothing else is known of.
const MOST_FAILURES: u32 = 3;

/// What is watched, with what is needed to look at it.
#[derive(Debug)]
pub struct Sampler {
    options: MonitorOptions,
    began: Instant,
    machine: HostCollector,
    gpus: Gpus,
    processes: BTreeMap<u32, Process>,
    programs: Vec<Program>,
}

#[derive(Debug)]
struct Process {
    name: String,
    collector: HostCollector,
    /// Of a process that was named: those that it has started, which count as its own.
    children: BTreeMap<u32, HostCollector>,
    work: Option<Work>,
}

/// A program that serves metrics.
#[derive(Debug)]
struct Program {
    url: RedactedUrl,
    endpoint: String,
    name: String,
    pid: Option<u32>,
    /// Whether it was found by its file, and ends with that.
    found: bool,
    failures: u32,
}

impl Sampler {
    /// Looks for what `options` name.
    ///
    /// # Errors
    /// If something that is named is not there.
    pub fn new(options: MonitorOptions) -> Result<Self, MonitorError> {
        let gpus = Gpus::open(&options.gpus)?;
        let mut processes = BTreeMap::new();
        for pid in &options.pids {
            processes.insert(*pid, Process::open(*pid).map_err(|error| MonitorError::NoProcess(error.to_string()))?);
        }
        let mut programs = Vec::new();
        for address in &options.endpoints {
            let url = endpoint::url(address);
            endpoint::read(&url, options.timeout).map_err(|why| MonitorError::NoMetrics { url: url.clone(), why })?;
            programs.push(Program::named(url));
        }
        let machine = HostCollector::new();
        Ok(Self { options, began: Instant::now(), machine, gpus, processes, programs })
    }

    /// Whether everything that was named has ended.
    pub fn is_over(&self) -> bool {
        let runs = |pid: &u32| self.processes.contains_key(pid);
        let serves = |program: &Program| !program.found;
        self.options.names_something() && !self.options.pids.iter().any(runs) && !self.programs.iter().any(serves)
    }

    /// Looks at everything. Programs that do not answer in time have no figures.
    pub fn look(&mut self) -> Reading {
        let mut reading = Reading::new(self.began.elapsed(), HostNs::now());
        reading.machine =
            round(&mut self.machine).map_or_else(|_| MachineFigures::default(), |s| MachineFigures::of(named(&s)));
        (reading.gpus, reading.gpu_trouble) = self.gpus.look(reading.at);
        self.find_children();
        self.find();
        // Of a process that has ended there is nothing to read any more: it is told of once.
        self.processes.retain(|pid, process| {
            let figures = round(&mut process.collector).ok().map(|samples| ProcessFigures::of(named(&samples)));
            let of_children = process.look_at_children();
            let (runs, children) = (figures.is_some(), of_children.len());
            let figures = figures.map(|own| own.and(of_children));
            let read = ProcessReading::new(*pid, process.name.clone(), figures);
            reading.processes.push(read.with_children(children).at(process.work.take()));
            runs
        });
        let there = announced();
        let is_told = |program: &Program| there.iter().any(|a| Some(a.pid) == program.pid && program.is_at(a.address));
        let is_gone = |program: &Program| {
            let has_ended = program.pid.is_some_and(|pid| !self.processes.contains_key(&pid));
            (program.found && !is_told(program)) || has_ended
        };
        let asked: Vec<Option<&RedactedUrl>> =
            self.programs.iter().map(|program| Some(&program.url).filter(|_| !is_gone(program))).collect();
        let mut answers = read_all(&asked, self.options.timeout).into_iter();
        self.programs.retain_mut(|program| {
            let is_told = is_told(program);
            let answer = match answers.next().flatten() {
                Some(answer) => program.answered(answer, is_told),
                None => Answer::Ended,
            };
            let goes_on = answer != Answer::Ended;
            reading.programs.push(ProgramReading::new(&program.endpoint, program.pid, &program.name, answer));
            goes_on
        });
        reading
    }

    /// Looks which processes those that were named have started by now.
    fn find_children(&mut self) {
        for pid in &self.options.pids {
            let Some(process) = self.processes.get_mut(pid) else { continue };
            let there = descendants(*pid);
            process.children.retain(|child, _| there.contains(child));
            for child in there {
                if let std::collections::btree_map::Entry::Vacant(place) = process.children.entry(child)
                    && let Ok(collector) = HostCollector::of_process(child)
                {
                    place.insert(collector);
                }
            }
        }
    }

    /// Whether a process is one that was named, or was started by one: the one that was named.
    fn named_by(&self, pid: u32) -> Option<u32> {
        let is_of = |named: &&u32| {
            **named == pid || self.processes.get(*named).is_some_and(|process| process.children.contains_key(&pid))
        };
        self.options.pids.iter().find(is_of).copied()
    }

    /// Adds programs that have started meanwhile, processes that say what they are at, and the processes of all programs
    /// that are known.
    fn find(&mut self) {
        for there in at_work() {
            let work = Work::new(clean_long(&there.what), clean_long(&there.state));
            let shown = match (self.options.names_something(), self.named_by(there.pid)) {
                (true, Some(named)) => named,
                (false, _) if there.pid != std::process::id() => there.pid,
                _ => continue,
            };
            if !self.processes.contains_key(&shown)
                && let Ok(process) = Process::open(shown)
            {
                self.processes.insert(shown, process);
            }
            if let Some(process) = self.processes.get_mut(&shown) {
                process.work = Some(work);
            }
        }
        for there in announced() {
            if let Some(known) = self.programs.iter_mut().find(|program| program.is_at(there.address)) {
                known.learn(there.pid, &there.program);
                continue;
            }
            let wanted = if self.options.pids.is_empty() {
                self.options.endpoints.is_empty()
            } else {
                self.named_by(there.pid).is_some()
            };
            // Ourselves we do not watch: a program may run this inside.
            if wanted && there.pid != std::process::id() {
                let mut program = Program::named(endpoint::url(&there.address.to_string()));
                program.learn(there.pid, &there.program);
                program.found = true;
                self.programs.push(program);
            }
        }
        for pid in self.programs.iter().filter_map(|program| program.pid) {
            if !self.processes.contains_key(&pid)
                && let Ok(process) = Process::open(pid)
            {
                self.processes.insert(pid, process);
            }
        }
    }
}

impl Process {
    fn open(pid: u32) -> Result<Self, CollectError> {
        let collector = HostCollector::of_process(pid)?;
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let name = clean(&whole_name(name.trim(), &command));
        let name = if name.is_empty() { "process".to_string() } else { name };
        Ok(Self { name, collector, children: BTreeMap::new(), work: None })
    }

    /// The figures of those that it has started and that still run.
    fn look_at_children(&mut self) -> Vec<ProcessFigures> {
        let mut figures = Vec::with_capacity(self.children.len());
        self.children.retain(|_, collector| {
            let read = round(collector).ok().map(|samples| ProcessFigures::of(named(&samples)));
            let runs = read.is_some();
            figures.extend(read);
            runs
        });
        figures
    }
}

/// The name of a process without the kernel's limit of 15 bytes: that of the program in its command line, where what the
/// kernel says is its beginning.
fn whole_name(comm: &str, cmdline: &[u8]) -> String {
    let program = cmdline.split(|byte| *byte == 0).next().unwrap_or_default();
    let program = String::from_utf8_lossy(program);
    let file = program.rsplit('/').next().unwrap_or_default();
    if comm.len() >= 15 && file.starts_with(comm) { file.to_string() } else { comm.to_string() }
}

impl Program {
    fn named(url: RedactedUrl) -> Self {
        let endpoint = clean(&endpoint::place(&url));
        Self { url, name: endpoint.clone(), endpoint, pid: None, found: false, failures: 0 }
    }

    fn is_at(&self, address: std::net::SocketAddr) -> bool {
        self.endpoint == address.to_string()
    }

    fn learn(&mut self, pid: u32, name: &str) {
        if self.pid.is_none() {
            self.pid = Some(pid);
            self.name = clean(name);
        }
    }

    fn answered(&mut self, answer: Result<Counters, String>, is_told: bool) -> Answer {
        match answer {
            Ok(counters) => {
                self.failures = 0;
                Answer::Metrics(Box::new(counters))
            }
            Err(why) => {
                self.failures += 1;
                // One that still says that it serves them is only slow.
                if !is_told && self.failures >= MOST_FAILURES { Answer::Ended } else { Answer::Silent(why) }
            }
        }
    }
}

/// Most endpoints that are read at once.
const AT_ONCE: usize = 64;

/// What the endpoints answer, all at the same time: one that is slow does not keep the others waiting.
fn read_all(urls: &[Option<&RedactedUrl>], timeout: Duration) -> Vec<Option<Result<Counters, String>>> {
    let mut answers = Vec::with_capacity(urls.len());
    for part in urls.chunks(AT_ONCE) {
        std::thread::scope(|scope| {
            let ask = |url: &RedactedUrl| {
                let (own, name) = (url.clone(), "cs-monitor-read".to_string());
                let read = move || endpoint::read(&own, timeout);
                std::thread::Builder::new().name(name).spawn_scoped(scope, read)
            };
            let asked: Vec<_> = part.iter().map(|url| url.map(ask)).collect();
            answers.extend(asked.into_iter().map(|thread| {
                let answer = thread?.map_err(|error| format!("no thread can be started to read it: {error}"));
                Some(answer.and_then(|thread| thread.join().unwrap_or_else(|_| Err("reading it failed".to_string()))))
            }));
        });
    }
    answers
}

fn round(collector: &mut HostCollector) -> Result<Vec<SampleRecord>, CollectError> {
    let mut samples = Vec::new();
    collector.sample(&mut Samples::new(HostNs::now(), &mut samples))?;
    Ok(samples)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    /// Programs that take a connection and say nothing.
    #[test]
    fn silent_endpoints_are_waited_for_at_the_same_time() {
        let silent: Vec<TcpListener> = (0..20).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let url = |listener: &TcpListener| endpoint::url(&listener.local_addr().unwrap().to_string());
        let urls: Vec<RedactedUrl> = silent.iter().map(url).collect();
        let mut asked: Vec<Option<&RedactedUrl>> = urls.iter().map(Some).collect();
        asked.push(None);
        let (began, timeout) = (Instant::now(), Duration::from_millis(500));
        let answers = read_all(&asked, timeout);
        // One after another they take ten seconds.
        assert!(began.elapsed() < timeout * 12, "{:?}", began.elapsed());
        assert!(
            answers[..20].iter().all(|answer| answer.as_ref().is_some_and(Result::is_err)) && answers[20].is_none()
        );
    }

    #[test]
    fn a_long_name_is_not_cut() {
        let command = b"/opt/bin/candlescope-server\0--port\x008080\0";
        assert_eq!(whole_name("candlescope-ser", command), "candlescope-server");
        assert_eq!(whole_name("cs-worker-with-", command), "cs-worker-with-", "a name of its own");
        assert_eq!(whole_name("make", b"/usr/bin/make\0"), "make");
        assert_eq!(whole_name("kworker/u8:0-ex", b""), "kworker/u8:0-ex");
    }
}
