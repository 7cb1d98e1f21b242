//! Sequences of kernels that repeat: what each interval launched, itself and through those inside it, in the order in
//! which it ran. Intervals of one path (without ordinals) whose sequences are equal are one row.
//!
//! As HTA's frequent sequences, which are asked for operator by operator [`cuda_kernel_analysis.py`]; here all paths are
//! looked at.

use super::works::{DeviceWorks, NOWHERE, Work, Works};
use rustc_hash::FxHashMap;
use serde::Serialize;

/// A sequence shorter than this is not one.
const SHORTEST: u32 = 2;
/// Longer sequences are those of whole steps, in which nobody reads.
const LONGEST: u32 = 64;

/// Kernels, copies and memsets that ran one after another, again and again.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct KernelSequence {
    /// Path without ordinals of the intervals that launched them.
    pub path: String,
    /// Their names, in the order in which they ran.
    pub kernels: Vec<String>,
    /// How often: intervals of that path with this sequence.
    pub count: u64,
    /// Sum of their time on the device in nanoseconds.
    pub total_ns: u64,
    /// Share of the device time of all work that counts.
    pub share: f64,
}

/// One interval's sequence so far, within the step that is being read.
struct OpenSequence {
    /// Number of the path with ordinals, up to the interval.
    place: u32,
    names: Vec<u32>,
    n: u32,
    ns: u64,
}

/// Paths with ordinals and everything above them, numbered.
#[derive(Default)]
struct Places {
    /// Text of a path with ordinals → its number.
    numbers: FxHashMap<String, u32>,
    /// By number: the path without ordinals.
    rollups: Vec<u32>,
    texts: Vec<String>,
    by_text: FxHashMap<String, u32>,
    /// By the reader's number of a path, which is its place in [`Works::paths`]: the path and all above it.
    above: Vec<Vec<u32>>,
}

impl Places {
    fn of(works: &Works) -> Self {
        let mut out = Self::default();
        for path in &works.paths {
            let Some(path) = path else {
                out.above.push(Vec::new());
                continue;
            };
            let ends = path.path.match_indices('/').map(|(at, _)| at).chain([path.path.len()]);
            let above: Vec<u32> = ends.map(|end| out.number(&path.path[..end])).collect();
            out.above.push(above);
        }
        out
    }

    fn number(&mut self, text: &str) -> u32 {
        if let Some(number) = self.numbers.get(text) {
            return *number;
        }
        let number = self.rollups.len() as u32;
        let rollup = candlescope_schema::PathInfo::rollup_of(text, None);
        let rollup = *self.by_text.entry(rollup.clone()).or_insert_with(|| {
            self.texts.push(rollup);
            self.texts.len() as u32 - 1
        });
        self.rollups.push(rollup);
        self.numbers.insert(text.to_string(), number);
        number
    }
}

/// The sequences that occur at least twice, the most time first.
pub(super) fn sequences(device: &DeviceWorks, works: &Works) -> Vec<KernelSequence> {
    let places = Places::of(works);
    let counting = || device.work.iter().filter(|work| work.counts);
    let whole = counting().map(Work::ns).fold(0, u64::saturating_add);
    let mut found: FxHashMap<u32, FxHashMap<Vec<u32>, (u64, u64)>> = FxHashMap::default();
    // By place: where it is in `open`.
    let mut at: Vec<u32> = vec![NOWHERE; places.rollups.len()];
    // Lists that are used again.
    let (mut open, mut free): (Vec<OpenSequence>, Vec<Vec<u32>>) = Default::default();
    for step in by_step(&device.work) {
        for work in step.iter().map(|index| &device.work[*index as usize]) {
            for place in places.above.get(work.path as usize).into_iter().flatten() {
                let index = &mut at[*place as usize];
                if *index == NOWHERE {
                    *index = open.len() as u32;
                    open.push(OpenSequence { place: *place, names: free.pop().unwrap_or_default(), n: 0, ns: 0 });
                }
                let one = &mut open[*index as usize];
                (one.n, one.ns) = (one.n + 1, one.ns.saturating_add(work.ns()));
                if one.n <= LONGEST {
                    one.names.push(work.name);
                }
            }
        }
        for mut one in open.drain(..) {
            at[one.place as usize] = NOWHERE;
            if (SHORTEST..=LONGEST).contains(&one.n) {
                let of_path = found.entry(places.rollups[one.place as usize]).or_default();
                match of_path.get_mut(&one.names) {
                    Some(sums) => *sums = (sums.0 + 1, sums.1.saturating_add(one.ns)),
                    None => drop(of_path.insert(one.names.clone(), (1, one.ns))),
                }
            }
            one.names.clear();
            free.push(one.names);
        }
    }
    let found =
        found.into_iter().flat_map(|(path, lists)| lists.into_iter().map(move |(names, sums)| ((path, names), sums)));
    let repeated = found.filter(|(_, (count, _))| *count > 1);
    let row = |((path, names), (count, total_ns)): ((u32, Vec<u32>), (u64, u64))| KernelSequence {
        path: places.texts[path as usize].clone(),
        kernels: names.into_iter().map(|name| works.names[name as usize].to_string()).collect(),
        count,
        total_ns,
        share: crate::tree::ratio(total_ns, whole),
    };
    let mut rows: Vec<KernelSequence> = repeated.map(row).collect();
    rows.sort_by(|a, b| b.total_ns.cmp(&a.total_ns).then_with(|| (&a.path, &a.kernels).cmp(&(&b.path, &b.kernels))));
    rows
}

/// Indices of the work of each step that counts, in order of start.
pub(super) fn by_step(work: &[Work]) -> Vec<Vec<u32>> {
    // By step: its place in the list.
    let mut places: FxHashMap<u32, usize> = FxHashMap::default();
    let mut steps: Vec<(u32, Vec<u32>)> = Vec::new();
    let mut last = (NOWHERE, 0);
    for (at, one) in work.iter().enumerate().filter(|(_, one)| one.counts && one.step != NOWHERE) {
        if last.0 != one.step {
            let place = *places.entry(one.step).or_insert_with(|| {
                steps.push((one.step, Vec::new()));
                steps.len() - 1
            });
            last = (one.step, place);
        }
        steps[last.1].1.push(at as u32);
    }
    steps.sort_unstable_by_key(|(step, _)| *step);
    steps.into_iter().map(|(_, list)| list).collect()
}
