//! Which paths took longer in a request's steps than in others like these: self times, which add up to the steps'.

use super::alike::{AlikeSteps, Class, LENGTHS_APART, StepWithThread};
use crate::figures::NOT_OF_SPANS;
use crate::int_map::IntMap;
use crate::reading::Pass;
use crate::stats::percentile_of;
use candlescope_schema::{Batch, RecordKind, SpanRecord};
use std::collections::{BTreeMap, BTreeSet};

/// Steps of a class that others are held against, at most.
const REFERENCES: usize = 48;

/// A path that took longer.
#[derive(Debug, Clone, PartialEq)]
pub struct LongerPath {
    /// From the step down, without ordinals.
    pub path: String,
    /// By how much its self time in the request's steps exceeds the median's, nanoseconds.
    pub more_ns: f64,
    /// The part of that in which the thread was on a CPU, preempted, blocked; `None` where that is not known.
    pub states: Option<[f64; 3]>,
}

/// Time, and its parts on a CPU, preempted and blocked if they are known.
#[derive(Debug, Clone, Copy, Default)]
struct Times {
    ns: i64,
    states: Option<[i64; 3]>,
}

impl Times {
    fn of(span: &SpanRecord) -> Self {
        let ns = |ns: u64| i64::try_from(ns).unwrap_or(i64::MAX);
        let states = || Some([ns(span.cpu_ns?), ns(span.preempted_ns?), ns(span.blocked_ns?)]);
        Self { ns: ns(span.host_dur_ns), states: states() }
    }

    /// Adds `other`, or takes it away. What is not known of a part is not known of the whole.
    fn add(&mut self, other: &Self, sign: i64) {
        self.ns = self.ns.saturating_add(sign * other.ns);
        self.states = self.states.zip(other.states).map(|(mut own, other)| {
            own.iter_mut().zip(other).for_each(|(own, other)| *own = own.saturating_add(sign * other));
            own
        });
    }
}

/// An interval that waits for those inside it.
struct PathInterval {
    chosen: u32,
    path: u32,
    own: Times,
}

/// Where a step belongs.
struct StepRole {
    class: usize,
    /// Whether it is the request's own.
    is_own: bool,
    /// Whether it is among those that the request's are held against.
    is_reference: bool,
}

/// The intervals of some steps.
pub(super) struct PathPass {
    /// By number of a step: its place in `roles`.
    chosen: IntMap<u64, u32>,
    roles: Vec<StepRole>,
    open: IntMap<u64, PathInterval>,
    /// Time of the intervals directly inside one, by its number.
    inside: IntMap<u64, Times>,
    names: Vec<String>,
    numbers: IntMap<u32, u32>,
    room: usize,
    /// Whether there were more intervals than may be held.
    full: bool,
    longer: Vec<LongerPath>,
}

impl PathPass {
    /// Looks at these steps of a request that have others like them, and at some of those.
    pub(super) fn of<'a>(own: &[StepWithThread<'a>], alike: &AlikeSteps<'a>, room: usize) -> Self {
        // A long piece of a prompt is not held against short ones.
        let mut classes: BTreeMap<(Class<'a>, i32), (BTreeSet<u64>, BTreeSet<u64>)> = BTreeMap::new();
        for step in own {
            let (steps, like) = classes.entry((step.class(), size(step))).or_default();
            steps.insert(step.row.step);
            like.extend(alike.like(step).iter().map(|one| one.row.step));
        }
        let (mut chosen, mut roles) = (IntMap::default(), Vec::new());
        for (class, (own, like)) in classes.into_values().enumerate() {
            let every = like.len().div_ceil(REFERENCES).max(1);
            let references: BTreeSet<u64> = like.into_iter().step_by(every).collect();
            for step in own.union(&references) {
                chosen.insert(*step, roles.len() as u32);
                let (is_own, is_reference) = (own.contains(step), references.contains(step));
                roles.push(StepRole { class, is_own, is_reference });
            }
        }
        Self {
            chosen,
            roles,
            open: IntMap::default(),
            inside: IntMap::default(),
            names: Vec::new(),
            numbers: IntMap::default(),
            room,
            full: false,
            longer: Vec::new(),
        }
    }

    fn span(&mut self, span: &SpanRecord) {
        let Some(chosen) = span.step.and_then(|step| self.chosen.get(&step)).copied() else { return };
        if self.full || self.open.len() >= self.room {
            self.full = true;
            return;
        }
        let (names, next) = (&mut self.names, self.numbers.len() as u32);
        let path = *self.numbers.entry(span.path.rollup_id).or_insert_with(|| {
            names.push(span.path.rollup.clone());
            next
        });
        let own = Times::of(span);
        if let Some(parent) = span.parent_seq {
            match self.inside.get_mut(&parent) {
                Some(inside) => inside.add(&own, 1),
                None => {
                    self.inside.insert(parent, own);
                }
            }
        }
        self.open.insert(span.seq, PathInterval { chosen, path, own });
    }

    /// Self times by path, of each step.
    fn self_times(&mut self) -> BTreeMap<u32, IntMap<u32, Times>> {
        let mut paths: BTreeMap<u32, IntMap<u32, Times>> = BTreeMap::new();
        let zero = Times { ns: 0, states: Some([0; 3]) };
        for (seq, PathInterval { chosen, path, mut own }) in std::mem::take(&mut self.open) {
            if let Some(inside) = self.inside.get(&seq) {
                own.add(inside, -1);
            }
            paths.entry(path).or_default().entry(chosen).or_insert(zero).add(&own, 1);
        }
        paths
    }

    /// Paths by how much longer they took, most first; `None` if there were too many intervals to say.
    pub(super) fn finish(self) -> Option<Vec<LongerPath>> {
        (!self.full).then_some(self.longer)
    }
}

impl Pass for PathPass {
    fn tables(&self) -> &'static [RecordKind] {
        &[RecordKind::Span]
    }

    fn unread(&self, _table: RecordKind) -> &'static [&'static str] {
        NOT_OF_SPANS
    }

    fn rows(&mut self, batch: &Batch) {
        batch.spans.iter().for_each(|span| self.span(span));
    }

    fn end(&mut self) {
        let times = self.self_times();
        let longer = times.iter().map(|(path, of_steps)| {
            let excess = |of: &dyn Fn(&Times) -> Option<i64>| excess(&self.roles, of_steps, of);
            let state = |at: usize| excess(&|times| Some(times.states?[at]));
            let states = || Some([state(0)?, state(1)?, state(2)?]);
            let more_ns = excess(&|times| Some(times.ns)).unwrap_or(0.0);
            LongerPath { path: self.names[*path as usize].clone(), more_ns, states: states() }
        });
        self.longer = longer.collect();
        self.longer.sort_by(|a, b| b.more_ns.total_cmp(&a.more_ns).then_with(|| a.path.cmp(&b.path)));
    }
}

/// Steps of about as many tokens have the same: a tenth more is the next.
fn size(step: &StepWithThread<'_>) -> i32 {
    step.row.tokens.map_or(-1, |tokens| (f64::from(tokens.max(1)).ln() / LENGTHS_APART.ln_1p()) as i32)
}

/// The sum over a request's steps of what each exceeds the median of its class by; `None` if one does not say.
fn excess(roles: &[StepRole], of_steps: &IntMap<u32, Times>, of: &dyn Fn(&Times) -> Option<i64>) -> Option<f64> {
    let mut classes: BTreeMap<usize, (Vec<f64>, Vec<f64>)> = BTreeMap::new();
    for (at, role) in roles.iter().enumerate() {
        let value = of_steps.get(&(at as u32)).map_or(Some(0), of).map(|ns| ns as f64);
        let (own, references) = classes.entry(role.class).or_default();
        if role.is_own {
            own.push(value?);
        }
        // Of those that are not its own some may not say.
        references.extend(value.filter(|_| role.is_reference));
    }
    let each = classes
        .into_values()
        .map(|(own, references)| Some(own.iter().sum::<f64>() - own.len() as f64 * percentile_of(&references, 0.5)?));
    each.sum()
}
