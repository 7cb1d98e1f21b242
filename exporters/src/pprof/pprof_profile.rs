//! Batches → a profile. Pure.

use super::pprof_messages::*;
use crate::call_stacks::{CallStacks, Frame};
use candlescope_core::run::{RunManifest, env_key};
use candlescope_core::{Batch, KERNEL_FRAME, PathInfo, Phase, StackSampleRecord, ThreadInfo, ThreadState};
use std::collections::HashMap;
use std::sync::Arc;

/// Stands for the stack of samples that have none.
const NO_STACK: &str = "[no stack]";

/// Counts of what [`write`](super::write) put into a profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ProfileCounts {
    /// Samples of threads on a CPU.
    pub samples: u64,
    /// Times off the CPU.
    pub off_cpu: u64,
    /// Distinct functions of all stacks, by name and file, with the names that stand for the kernel and for no stack.
    pub functions: u64,
}

/// What makes two samples add up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    stack: Option<u64>,
    in_kernel: bool,
    state: ThreadState,
    tid: u64,
    path: Option<u32>,
    phase: Option<Phase>,
}

/// Nanoseconds by what the thread did, and samples of it on a CPU.
#[derive(Debug)]
struct Sum {
    of: Key,
    thread: Arc<ThreadInfo>,
    path: Option<Arc<PathInfo>>,
    ns: u64,
    samples: u64,
}

/// Converts the batches of one run.
#[derive(Debug)]
pub(super) struct Pprof {
    profile: Profile,
    stacks: CallStacks,
    sums: Vec<Sum>,
    places: HashMap<Key, usize>,
    tables: Tables,
    written: ProfileCounts,
}

impl Pprof {
    pub(super) fn new(run: &RunManifest) -> Self {
        let mut tables = Tables::default();
        // The first string is the empty one.
        tables.text("");
        let mut value = |name, unit| ValueType { type_text: tables.text(name), unit_text: tables.text(unit) };
        let cpu = value("cpu", "nanoseconds");
        let others = [("blocked", "nanoseconds"), ("preempted", "nanoseconds"), ("samples", "count")];
        let mut sample_type = vec![cpu.clone()];
        sample_type.extend(others.map(|(name, unit)| value(name, unit)));
        let hz = env_key::STACKS_HZ.of(&run.environment).filter(|hz| (1..=1_000_000_000).contains(hz));
        let profile = Profile {
            sample_type,
            default_sample_type_text: cpu.type_text,
            period_type: Some(cpu),
            period: hz.map_or(0, |hz| (1_000_000_000 / hz) as i64),
            time_nanos: run.started_ns,
            duration_nanos: run.ended_ns.map_or(0, |end| end.saturating_sub(run.started_ns)),
            comment_text: vec![tables.text(&format!("candlescope run {}", run.run_id))],
            ..Profile::default()
        };
        Self {
            profile,
            stacks: CallStacks::default(),
            sums: Vec::new(),
            places: HashMap::new(),
            tables,
            written: ProfileCounts::default(),
        }
    }

    pub(super) fn batch(&mut self, batch: &Batch) {
        self.stacks.add(&batch.stacks);
        batch.stack_samples.iter().for_each(|sample| self.add(sample));
    }

    fn add(&mut self, sample: &StackSampleRecord) {
        let runs = sample.state == ThreadState::Running;
        self.written.samples += u64::from(runs);
        self.written.off_cpu += u64::from(!runs);
        let of = Key {
            stack: sample.stack.and_then(|stack| self.stacks.get(stack)).map(|held| held.stack),
            in_kernel: runs && sample.kernel == Some(true),
            state: sample.state,
            tid: sample.tid,
            path: sample.path.as_ref().map(|path| path.id),
            phase: sample.phase,
        };
        let sums = &mut self.sums;
        let place = *self.places.entry(of).or_insert_with(|| {
            sums.push(Sum { of, thread: sample.thread.clone(), path: sample.path.clone(), ns: 0, samples: 0 });
            sums.len() - 1
        });
        let sum = &mut self.sums[place];
        sum.ns = sum.ns.saturating_add(sample.weight_ns);
        sum.samples += u64::from(runs);
    }

    pub(super) fn end(mut self) -> (Profile, ProfileCounts) {
        let tables = &mut self.tables;
        for sum in &self.sums {
            let mut frames: Vec<Frame> = match sum.of.stack.map(|stack| self.stacks.frames(stack)) {
                Some(frames) => frames.into_iter().map(Frame::of).collect(),
                None => vec![Frame::named(NO_STACK)],
            };
            if sum.of.in_kernel {
                frames.push(Frame::named(KERNEL_FRAME));
            }
            let ns = i64::try_from(sum.ns).unwrap_or(i64::MAX);
            let of = |state| if sum.of.state == state { ns } else { 0 };
            let states = [ThreadState::Running, ThreadState::Blocked, ThreadState::Preempted];
            let path = sum.path.as_ref();
            let labels = [
                ("phase", sum.of.phase.map(|phase| phase.as_str())),
                ("path", path.map(|path| path.path.as_str())),
                ("module", path.and_then(|path| path.module.as_deref())),
                ("thread", Some(&*sum.thread.name)),
                ("state", Some(sum.of.state.as_str())),
            ];
            let label = |(key, value): (&str, Option<&str>)| {
                Some(Label { str_text: tables.text(value?), key_text: tables.text(key) })
            };
            let label = labels.into_iter().filter_map(label).collect();
            self.profile.sample.push(Sample {
                location_id: frames.into_iter().rev().map(|frame| tables.location(frame)).collect(),
                value: states.map(of).into_iter().chain([sum.samples as i64]).collect(),
                label,
            });
        }
        self.written.functions = self.tables.functions.len() as u64;
        self.tables.into(&mut self.profile);
        (self.profile, self.written)
    }
}

/// What samples refer to. Numbers of mappings, functions and locations are from 1.
#[derive(Debug, Default)]
struct Tables {
    strings: HashMap<Arc<str>, i64>,
    texts: Vec<String>,
    /// By file and build id.
    mapping_ids: HashMap<(i64, i64), u64>,
    mappings: Vec<Mapping>,
    /// By name and file.
    function_ids: HashMap<(i64, i64), u64>,
    functions: Vec<Function>,
    location_ids: HashMap<Frame, u64>,
    locations: Vec<Location>,
}

impl Tables {
    fn text(&mut self, text: &str) -> i64 {
        if let Some(at) = self.strings.get(text) {
            return *at;
        }
        let at = self.texts.len() as i64;
        self.texts.push(text.to_string());
        self.strings.insert(text.into(), at);
        at
    }

    fn location(&mut self, frame: Frame) -> u64 {
        if let Some(id) = self.location_ids.get(&frame) {
            return *id;
        }
        let (mapping_id, function_id) = (self.mapping(&frame), self.function(&frame));
        let id = self.locations.len() as u64 + 1;
        let line = vec![Line { function_id, line: frame.line.map_or(0, i64::from) }];
        self.locations.push(Location { id, mapping_id, address: frame.address, line });
        self.location_ids.insert(frame, id);
        id
    }

    fn mapping(&mut self, frame: &Frame) -> u64 {
        let (filename_text, build_id_text) =
            (self.text(&frame.binary), self.text(frame.build_id.as_deref().unwrap_or("")));
        let id = self.mappings.len() as u64 + 1;
        *self.mapping_ids.entry((filename_text, build_id_text)).or_insert_with(|| {
            // All is named that can be: pprof shall not look for the binary.
            let (has_functions, has_filenames, has_line_numbers, has_inline_frames) = (true, true, true, true);
            self.mappings.push(Mapping {
                id,
                filename_text,
                build_id_text,
                has_functions,
                has_filenames,
                has_line_numbers,
                has_inline_frames,
            });
            id
        })
    }

    fn function(&mut self, frame: &Frame) -> u64 {
        let (name_text, filename_text) = (self.text(&frame.name), self.text(frame.file.as_deref().unwrap_or("")));
        let id = self.functions.len() as u64 + 1;
        *self.function_ids.entry((name_text, filename_text)).or_insert_with(|| {
            self.functions.push(Function { id, name_text, filename_text });
            id
        })
    }

    fn into(self, profile: &mut Profile) {
        profile.string_table = self.texts;
        profile.mapping = self.mappings;
        profile.function = self.functions;
        profile.location = self.locations;
    }
}
