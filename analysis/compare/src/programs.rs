//! Two programs that do the same work, side by side: one of candle and one of PyTorch, each recorded as it is.
//!
//! Nothing is judged: such programs differ in everything, and one run of each says nothing of days and process starts.
//! What is shown is what a step takes, what of that the device works, by what it computes, and what is left once the
//! host no longer launches.

use super::comparability::{CompareError, Difference, differing_facts, stop};
use super::fingerprint::Facts;
use super::options::CompareOptions;
use super::sampled::RunFigure;
use super::step_times::{DeviceCounts, by_kind, sampled};
use candlescope_figures::figures::{Figures, NOT_OF_KERNELS};
use candlescope_figures::kernel_class::KernelClass;
use candlescope_figures::known::RunContents;
use candlescope_figures::reading::Pass;
use candlescope_figures::{Analysis, StepRow};
use candlescope_reader::Run;
use candlescope_schema::injected::PROGRAM_STEP;
use candlescope_schema::run::{Finding, env_key, model_key};
use candlescope_schema::{Batch, KernelKind, Phase, RecordKind};
use candlescope_work::estimate::Estimate;
use serde::Serialize;
use serde_json::Value;
use std::collections::{BTreeMap, HashMap, HashSet};

/// Contexts that differ by less than this share are the same work: what attention does over them is a small part of a step.
const CONTEXT: f64 = 0.1;

/// Facts of a model that both programs have to have in common.
const OF_MODEL: [&str; 5] = [
    model_key::LAYERS.name(),
    model_key::HIDDEN_SIZE.name(),
    model_key::HEADS.name(),
    model_key::KV_HEADS.name(),
    model_key::VOCAB_SIZE.name(),
];

/// What kernels of a class take in a step.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct ClassTime {
    /// Kernels of the class in a recorded step, a mean; of [`KernelClass::Copy`] also copies and memsets.
    pub kernels: f64,
    /// Their time in nanoseconds.
    pub ns: f64,
}

/// The steps of one kind of a program.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ProgramSteps {
    /// The phase, or the steps' name.
    pub kind: String,
    /// How many were measured.
    pub steps: u64,
    /// Of these, those whose kernels were recorded.
    pub recorded: u64,
    /// Median time on the host in nanoseconds.
    pub host_ns: RunFigure,
    /// Kernels, launches and copies of a recorded step.
    pub counts: BTreeMap<String, f64>,
    /// The device's work in a recorded step.
    pub classes: BTreeMap<KernelClass, ClassTime>,
    /// Energy of a step in joules, if its GPU was sampled for long enough.
    pub joules: Option<f64>,
    /// A step as a CUDA graph in seconds, by replay; see [`Program::with_graphs`].
    pub graph: Option<Estimate>,
    /// Tokens of a step, sequences and context, if they are known.
    pub work: Facts,
}

impl ProgramSteps {
    /// What kernels take in a recorded step, in nanoseconds; `None` if none was recorded.
    pub fn device_ns(&self) -> Option<f64> {
        (self.recorded > 0).then(|| self.classes.values().map(|class| class.ns).sum())
    }

    /// The share of a step in which its device has nothing to do, by the mean work of steps whose kernels were recorded
    /// and the median time of all: where steps of a kind differ much, as prompts do, it is as rough as that. Work of
    /// several streams counts twice.
    pub fn waits(&self) -> Option<f64> {
        self.device_ns().map(|ns| (1.0 - ns / self.host_ns.value).max(0.0))
    }
}

/// A program, by one run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Program {
    /// What people call it.
    pub name: String,
    /// Directory that the run was read from.
    pub dir: String,
    /// File name of a program that was recorded from outside.
    pub program: Option<String>,
    /// The device that it ran on.
    pub device: Option<String>,
    /// The model, as far as the run knows it.
    pub model: Facts,
    /// Its steps by kind, those that take the most time first.
    pub steps: Vec<ProgramSteps>,
    /// What is wrong with the run's files, to be told.
    #[serde(skip)]
    pub noticed: Vec<Finding>,
}

impl Program {
    /// Whether a run is of a program that does not link candlescope.
    pub fn is_outside(run: &Run) -> bool {
        run.manifest().is_some_and(|manifest| env_key::INJECTED_PROGRAM.of(&manifest.environment).is_some())
    }

    /// Reads it.
    ///
    /// # Errors
    /// If the run has no measured step.
    pub fn of(name: &str, run: &Run) -> Result<Self, CompareError> {
        let (known, rows) = RunContents::read(run);
        let mut pass = Figures::of(&known);
        let steps: Vec<StepRow> =
            known.steps.iter().filter(|step| !pass.warmup.has_step(Some(step.step))).cloned().collect();
        let kinds = by_kind(&steps);
        let (mut counts, mut classes) = (DeviceCounts::of(&kinds), ClassTimes::of(&steps));
        let noticed = rows.to(&mut [&mut pass, &mut counts, &mut classes]);
        let analysis = Analysis::finish(pass, &noticed);
        let mut found: Vec<ProgramSteps> = kinds
            .iter()
            .filter_map(|(kind, rows)| {
                let parts = HashMap::new();
                Some(ProgramSteps {
                    kind: kind.clone(),
                    steps: rows.steps.len() as u64,
                    recorded: classes.recorded.get(kind).map_or(0, |steps| steps.len() as u64),
                    host_ns: sampled(&rows.steps, &parts, |step| Some(step.dur_ns as f64))?,
                    counts: counts.each(kind),
                    classes: classes.of_kind(kind),
                    joules: joules(&analysis, kind, rows.steps.len()),
                    graph: None,
                    work: work(&rows.steps),
                })
            })
            .collect();
        if found.is_empty() {
            return Err(CompareError::NoSteps(run.dir().display().to_string()));
        }
        found.sort_by(|a, b| (b.host_ns.value * b.steps as f64).total_cmp(&(a.host_ns.value * a.steps as f64)));
        let manifest = &analysis.manifest;
        Ok(Self {
            name: name.to_string(),
            dir: run.dir().display().to_string(),
            program: env_key::INJECTED_PROGRAM.of(&manifest.environment).map(str::to_string),
            device: manifest.gpu_name().map(str::to_string),
            model: manifest.model.clone().into_iter().filter(|(_, value)| !value.is_null()).collect(),
            steps: found,
            noticed: noticed.findings,
        })
    }

    /// The same with what steps of a kind would take as CUDA graphs, in seconds.
    #[must_use]
    pub fn with_graphs(mut self, of: impl Fn(&str) -> Option<Estimate>) -> Self {
        self.steps.iter_mut().for_each(|steps| steps.graph = of(&steps.kind));
        self
    }

    fn kind(&self, kind: &str) -> Option<&ProgramSteps> {
        self.steps.iter().find(|steps| steps.kind == kind)
    }
}

fn joules(analysis: &Analysis, kind: &str, steps: usize) -> Option<f64> {
    let energy = &analysis.energy.phases.iter().find(|phase| phase.name == kind)?.energy;
    (energy.joules > 0.0 && !energy.below_resolution && steps > 0).then(|| energy.joules / steps as f64)
}

/// Means over the steps that say them.
fn work(steps: &[&StepRow]) -> Facts {
    let mean = |of: &dyn Fn(&StepRow) -> Option<u32>| {
        let known: Vec<f64> = steps.iter().filter_map(|step| of(step).map(f64::from)).collect();
        (!known.is_empty()).then(|| known.iter().sum::<f64>() / known.len() as f64)
    };
    let facts = [
        ("batch", mean(&|step| step.batch)),
        ("context", mean(&|step| step.context_len)),
        ("tokens", mean(&|step| step.counted_tokens())),
    ];
    facts.into_iter().filter_map(|(key, value)| Some((key.to_string(), value?.into()))).collect()
}

/// Two programs side by side. Its JSON is stable: keys are added, and none changes its meaning within a schema.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Programs {
    /// Version of this object.
    pub schema: u32,
    /// The kinds of steps that are compared.
    pub kinds: (String, String),
    /// The program that is side A of `differences` and stands first in pairs.
    pub a: Program,
    /// The program that is side B of `differences` and stands second in pairs.
    pub b: Program,
    /// What differs in the work of both.
    pub differences: Vec<Difference>,
    /// What is not known of either, so that it may differ.
    pub unknown: Vec<String>,
}

impl Programs {
    /// Puts them side by side: the phase or name that both have and in which most time goes, decoding before all
    /// others; where they have none in common, what each spends most of its time in.
    ///
    /// # Errors
    /// If they do not do the same work, as far as that is known, and nobody [allowed](CompareOptions::allow) it.
    pub fn of(a: Program, b: Program, options: &CompareOptions) -> Result<Self, CompareError> {
        let allow = &options.allow[..];
        let decode = Phase::Decode.as_str();
        let common = a.steps.iter().map(|steps| steps.kind.as_str()).filter(|kind| b.kind(kind).is_some());
        // What a program does outside of all that it marks or repeats is as little the same work as it has a name.
        let is_named = |kind: &&str| *kind != PROGRAM_STEP;
        let first = common.clone().find(is_named).or_else(|| common.clone().next());
        let kind = common.clone().find(|kind| *kind == decode).or(first).map(str::to_string);
        let most = |program: &Program| program.steps[0].kind.clone();
        let kinds = kind.map_or_else(|| (most(&a), most(&b)), |kind| (kind.clone(), kind));
        let (of_a, of_b) = (a.kind(&kinds.0), b.kind(&kinds.1));
        let (work_a, work_b) = (of_a.map(|steps| &steps.work), of_b.map(|steps| &steps.work));
        let (mut found, mut unknown) = (Vec::new(), Vec::new());
        let model = |program: &Program, keys: &[&str]| -> Facts {
            keys.iter().filter_map(|key| Some((key.to_string(), program.model.get(*key)?.clone()))).collect()
        };
        let device = |program: &Program| -> Facts {
            program.device.iter().map(|name| ("device".to_string(), Value::from(name.as_str()))).collect()
        };
        let dtype = [model_key::DTYPE.name()];
        let mut compare = |what, keys: &[&str], (a, b): (Facts, Facts), close: f64, refused: bool| {
            unknown.extend(keys.iter().filter(|key| !(a.contains_key(**key) && b.contains_key(**key))).map(|key| {
                match what {
                    "model" => format!("{what} {key}"),
                    _ => key.to_string(),
                }
            }));
            found.extend(differing_facts(what, (&a, &b), close, refused, allow));
        };
        compare("model", &OF_MODEL, (model(&a, &OF_MODEL), model(&b, &OF_MODEL)), 0.0, true);
        compare("dtype", &dtype, (model(&a, &dtype), model(&b, &dtype)), 0.0, false);
        compare("machine", &["device"], (device(&a), device(&b)), 0.0, false);
        let of = |work: Option<&Facts>, keys: &[&str]| -> Facts {
            let known = keys.iter().filter_map(|key| Some((key.to_string(), work?.get(*key)?.clone())));
            known.collect()
        };
        compare("batch", &["batch"], (of(work_a, &["batch"]), of(work_b, &["batch"])), 0.0, false);
        let tokens = ["context", "tokens"];
        compare("tokens", &tokens, (of(work_a, &tokens), of(work_b, &tokens)), CONTEXT, false);
        match stop(&found) {
            Some(error) => Err(error),
            None => Ok(Self { schema: 1, kinds, a, b, differences: found, unknown }),
        }
    }

    /// The steps that are compared.
    pub fn steps(&self) -> (&ProgramSteps, &ProgramSteps) {
        let of =
            |program: &'_ Program, kind: &str| program.steps.iter().position(|steps| steps.kind == kind).unwrap_or(0);
        (&self.a.steps[of(&self.a, &self.kinds.0)], &self.b.steps[of(&self.b, &self.kinds.1)])
    }

    /// Classes of either, those that differ most first.
    pub fn classes(&self) -> Vec<(KernelClass, ClassTime, ClassTime)> {
        let (a, b) = self.steps();
        let all: std::collections::BTreeSet<_> = a.classes.keys().chain(b.classes.keys()).copied().collect();
        let of = |steps: &ProgramSteps, class| steps.classes.get(&class).copied().unwrap_or_default();
        let mut rows: Vec<_> = all.into_iter().map(|class| (class, of(a, class), of(b, class))).collect();
        rows.sort_by(|x, y| (y.2.ns - y.1.ns).abs().total_cmp(&(x.2.ns - x.1.ns).abs()));
        rows
    }
}

/// What kernels take, by kind of step and class.
#[derive(Debug)]
struct ClassTimes {
    /// By number of a step: its kind.
    of_step: HashMap<u64, String>,
    sums: HashMap<String, BTreeMap<KernelClass, ClassTime>>,
    recorded: HashMap<String, HashSet<u64>>,
    /// Programs launch few different kernels.
    names: HashMap<String, KernelClass>,
}

/// Names that are kept; of further ones the class is found each time.
const MOST_NAMES: usize = 10_000;

impl ClassTimes {
    fn of(steps: &[StepRow]) -> Self {
        let of_step = steps.iter().map(|step| (step.step, step.group().to_string())).collect();
        Self { of_step, sums: HashMap::new(), recorded: HashMap::new(), names: HashMap::new() }
    }

    fn of_kind(&self, kind: &str) -> BTreeMap<KernelClass, ClassTime> {
        let steps = self.recorded.get(kind).map_or(1.0, |steps| steps.len().max(1) as f64);
        let each = |time: &ClassTime| ClassTime { kernels: time.kernels / steps, ns: time.ns / steps };
        self.sums.get(kind).into_iter().flatten().map(|(class, time)| (*class, each(time))).collect()
    }
}

impl Pass for ClassTimes {
    fn tables(&self) -> &'static [RecordKind] {
        &[RecordKind::Kernel]
    }

    fn unread(&self, _table: RecordKind) -> &'static [&'static str] {
        NOT_OF_KERNELS
    }

    fn rows(&mut self, batch: &Batch) {
        let Self { of_step, sums, recorded, names } = self;
        for kernel in &batch.kernels {
            let Some((step, kind)) = kernel.step.and_then(|step| Some((step, of_step.get(&step)?))) else { continue };
            let class = match kernel.kind {
                KernelKind::Kernel => match names.get(&*kernel.name) {
                    Some(class) => *class,
                    None => {
                        let class = KernelClass::of(&kernel.name);
                        if names.len() < MOST_NAMES {
                            names.insert(kernel.name.to_string(), class);
                        }
                        class
                    }
                },
                KernelKind::Memcpy | KernelKind::Memset => KernelClass::Copy,
            };
            if !recorded.contains_key(kind) {
                recorded.insert(kind.clone(), HashSet::new());
                sums.insert(kind.clone(), BTreeMap::new());
            }
            if let (Some(steps), Some(classes)) = (recorded.get_mut(kind), sums.get_mut(kind)) {
                steps.insert(step);
                let time = classes.entry(class).or_default();
                time.kernels += 1.0;
                time.ns += kernel.gpu_dur_ns as f64;
            }
        }
    }
}
