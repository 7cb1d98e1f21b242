//! What kernels, copies and memsets take in a step, by their names.

use candlescope_figures::figures::NOT_OF_KERNELS;
use candlescope_figures::known::RunContents;
use candlescope_figures::reading::Pass;
use candlescope_reader::Run;
use candlescope_schema::{Batch, RecordKind};
use std::collections::{BTreeMap, HashMap, HashSet};

/// Names of kernels that are kept apart; a program launches far fewer.
const MOST_NAMES: usize = 10_000;

/// All kernels of one name, or all copies of one direction or memsets, in the steps of one kind.
#[derive(Debug, Clone, PartialEq)]
pub struct KernelTime {
    /// Phase of the steps, or their name where no phases are marked.
    pub kind: String,
    /// Demangled name of the kernel; of a copy its direction.
    pub name: String,
    /// How often it ran in a recorded step, a mean.
    pub count: f64,
    /// Its time on the device in a recorded step, in nanoseconds: a mean; what overlaps counts twice.
    pub ns: f64,
}

/// What ran on the device in a run's measured steps whose kernels were recorded, the most time of a step first; nothing
/// without recorded kernels.
pub fn kernel_times(run: &Run) -> Vec<KernelTime> {
    let (known, rows) = RunContents::read(run);
    let warmup = known.warmup();
    let measured = known.steps.iter().filter(|step| !warmup.has_step(Some(step.step)));
    let mut pass = KernelTimes {
        of_step: measured.map(|step| (step.step, step.group().to_string())).collect(),
        ..KernelTimes::default()
    };
    // What is wrong with the files is in the run's facts.
    let _noticed = rows.to(&mut [&mut pass]);
    pass.finish()
}

#[derive(Debug, Default)]
struct KernelTimes {
    /// By number of a step: its kind.
    of_step: HashMap<u64, String>,
    /// By kind and name: how many, and their nanoseconds.
    sums: BTreeMap<(String, String), (u64, u64)>,
    recorded: BTreeMap<String, HashSet<u64>>,
}

impl KernelTimes {
    fn finish(self) -> Vec<KernelTime> {
        let Self { sums, recorded, .. } = self;
        let each = |((kind, name), (count, ns)): ((String, String), (u64, u64))| {
            let steps = recorded.get(&kind).map_or(1, |steps| steps.len().max(1)) as f64;
            KernelTime { count: count as f64 / steps, ns: ns as f64 / steps, kind, name }
        };
        let mut times: Vec<KernelTime> = sums.into_iter().map(each).collect();
        times.sort_by(|a, b| b.ns.total_cmp(&a.ns));
        times
    }
}

impl Pass for KernelTimes {
    fn tables(&self) -> &'static [RecordKind] {
        &[RecordKind::Kernel]
    }

    fn unread(&self, _table: RecordKind) -> &'static [&'static str] {
        NOT_OF_KERNELS
    }

    fn rows(&mut self, batch: &Batch) {
        for kernel in &batch.kernels {
            let Some((step, kind)) = kernel.step.and_then(|step| Some((step, self.of_step.get(&step)?))) else {
                continue;
            };
            let key = (kind.clone(), kernel.name.to_string());
            if self.sums.len() >= MOST_NAMES && !self.sums.contains_key(&key) {
                continue;
            }
            self.recorded.entry(kind.clone()).or_default().insert(step);
            let (count, ns) = self.sums.entry(key).or_default();
            (*count, *ns) = (*count + 1, ns.saturating_add(kernel.gpu_dur_ns));
        }
    }
}
