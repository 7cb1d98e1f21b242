//! How long the host takes from one launch to the next while it decodes, by what it launches.
//!
//! From the end of one launching call to the end of the next one of the same thread, in the same step: what the second
//! took, its preparation in candle and cuBLAS included. An upload right before a kernel is counted with it, because
//! candle uploads the layout of a strided operand that way. Only steps whose kernels were recorded have these times, so
//! each holds what recording a launch costs as well, and an upload holds it twice. A prompt's launches are left out:
//! where the device is behind, they wait for room in its queue.

use super::kernel_family::KernelFamily;
use super::stats::percentile;
use candlescope_schema::{KernelKind, KernelRecord, Phase, thread_of};
use std::collections::{BTreeMap, HashMap};

/// Launches that are kept, 40 MB: later ones would not change a median.
const MOST: usize = 1_000_000;
/// A kind with fewer than one in so many of the launches has no figure: it comes once or twice a step, beside something
/// that the host does only there.
const ONE_IN: usize = 50;
/// Fewest launches of a kind.
const FEWEST: usize = 20;

/// What a call launches, by what the host has to prepare for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum KernelLaunch {
    /// A product of matrices.
    Product,
    /// A kernel on a strided operand, with the upload of its layout.
    Strided,
    /// The sum of a product that cuBLAS divided, which it launches right after the product.
    Divided,
    /// Any other kernel: no product, no sum of a divided one, and no upload right before it.
    Plain,
}

impl KernelLaunch {
    /// Every kind of launch once, in the order in which medians are kept.
    pub const ALL: [Self; 4] = [Self::Plain, Self::Product, Self::Strided, Self::Divided];

    /// As files call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Product => "product",
            Self::Strided => "strided",
            Self::Divided => "divided",
            Self::Plain => "plain",
        }
    }
}

/// Medians from launch to launch in nanoseconds, with the number of launches; a kind that is rare has none.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct LaunchPace {
    medians: Vec<(KernelLaunch, f64, u64)>,
}

impl LaunchPace {
    /// The median of a kind in nanoseconds, and of how many launches.
    pub fn of(&self, launched: KernelLaunch) -> Option<(f64, u64)> {
        self.medians.iter().find(|(kind, ..)| *kind == launched).map(|(_, median, n)| (*median, *n))
    }
}

/// One call that launched something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Call {
    start_ns: i64,
    end_ns: i64,
    what: LaunchKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum LaunchKind {
    Kernel(KernelLaunch),
    Upload,
    /// A copy that waits for the device, or a memset.
    Other,
}

/// Collects [`LaunchPace`] from records in any order.
#[derive(Debug, Default)]
pub(super) struct LaunchPacePass {
    /// Calls by step and thread.
    steps: HashMap<(u64, u64), Vec<Call>>,
    kept: usize,
    /// What kernels of a name are, by its number: many launches have few names.
    launched: Vec<Option<KernelLaunch>>,
}

impl LaunchPacePass {
    /// Takes one record of a step that is no warm-up; `name` is its name's number, which is dense.
    pub(super) fn add(&mut self, record: &KernelRecord, name: u32) {
        if record.phase != Some(Phase::Decode) || self.kept >= MOST {
            return;
        }
        let Some((step, seq)) = record.step.zip(record.seq) else { return };
        let Some((start, ns)) = record.launch_start.zip(record.launch_dur_ns) else { return };
        let call = Call { start_ns: start.0, end_ns: start.plus_ns(ns).0, what: self.what(record, name as usize) };
        self.steps.entry((step, thread_of(seq))).or_default().push(call);
        self.kept += 1;
    }

    fn what(&mut self, record: &KernelRecord, name: usize) -> LaunchKind {
        match record.kind {
            KernelKind::Kernel => {
                if self.launched.len() <= name {
                    self.launched.resize(name + 1, None);
                }
                LaunchKind::Kernel(*self.launched[name].get_or_insert_with(|| launched(&record.name)))
            }
            KernelKind::Memcpy if record.name.as_ref() == "htod" => LaunchKind::Upload,
            _ => LaunchKind::Other,
        }
    }

    pub(super) fn finish(self) -> LaunchPace {
        let mut all: BTreeMap<KernelLaunch, Vec<f64>> = BTreeMap::new();
        for mut calls in self.steps.into_values() {
            calls.sort_unstable();
            for (launched, ns) in from_launch_to_launch(&calls) {
                all.entry(launched).or_default().push(ns);
            }
        }
        let launches: usize = all.values().map(Vec::len).sum();
        let often = |n: usize| n >= FEWEST && n * ONE_IN >= launches;
        let median = |launched: KernelLaunch| {
            let mut ns = all.remove(&launched).filter(|ns| often(ns.len()))?;
            ns.sort_by(f64::total_cmp);
            Some((launched, percentile(&ns, 0.5), ns.len() as u64))
        };
        LaunchPace { medians: KernelLaunch::ALL.into_iter().filter_map(median).collect() }
    }
}

/// Nanoseconds of every kernel's launch but the first, in order of launch.
fn from_launch_to_launch(calls: &[Call]) -> impl Iterator<Item = (KernelLaunch, f64)> {
    (1..calls.len()).filter_map(|at| {
        let LaunchKind::Kernel(launched) = calls[at].what else { return None };
        let (launched, before) = match calls[at - 1].what {
            LaunchKind::Upload => (KernelLaunch::Strided, calls.get(at.checked_sub(2)?)?),
            _ => (launched, &calls[at - 1]),
        };
        // Calls of one thread do not overlap: where times say that they do, the clock was off, and the pair does not count.
        (calls[at].start_ns >= before.end_ns).then(|| (launched, (calls[at].end_ns - before.end_ns) as f64))
    })
}

/// What a kernel of this name is, without an upload before it.
fn launched(name: &str) -> KernelLaunch {
    match name {
        name if name.contains("splitKreduce") => KernelLaunch::Divided,
        name if KernelFamily::of(name) == KernelFamily::Matrix => KernelLaunch::Product,
        _ => KernelLaunch::Plain,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(start_ns: i64, end_ns: i64, what: LaunchKind) -> Call {
        Call { start_ns, end_ns, what }
    }

    #[test]
    fn a_launch_takes_from_the_end_of_the_one_before_and_an_upload_is_the_kernels() {
        let (plain, product) = (LaunchKind::Kernel(KernelLaunch::Plain), LaunchKind::Kernel(KernelLaunch::Product));
        let calls = [
            call(0, 3, plain),
            call(7, 10, product),
            call(11, 12, LaunchKind::Other),
            call(14, 18, plain),
            call(20, 21, LaunchKind::Upload),
            call(25, 29, plain),
            // Another thread's clock, or a record that was put on the wrong one.
            call(28, 40, plain),
        ];
        let found: Vec<_> = from_launch_to_launch(&calls).collect();
        assert_eq!(found, [(KernelLaunch::Product, 7.0), (KernelLaunch::Plain, 6.0), (KernelLaunch::Strided, 11.0)]);
        assert_eq!(from_launch_to_launch(&calls[4..6]).count(), 0, "nothing before the upload to count from");
    }

    #[test]
    fn a_kind_that_comes_once_a_step_has_no_figure() {
        let mut pass = LaunchPacePass::default();
        for step in 0..30i64 {
            let at = |n: i64| step * 10_000 + n * 10;
            let plain = (0..60).map(|n| call(at(n), at(n) + 4, LaunchKind::Kernel(KernelLaunch::Plain)));
            let product = call(at(60), at(60) + 9, LaunchKind::Kernel(KernelLaunch::Product));
            pass.steps.insert((step as u64, 1), plain.chain([product]).collect());
        }
        let found = pass.finish();
        assert_eq!(found.of(KernelLaunch::Plain), Some((10.0, 30 * 59)));
        assert_eq!((found.of(KernelLaunch::Product), found.of(KernelLaunch::Strided)), (None, None));
        assert_eq!(LaunchPacePass::default().finish(), LaunchPace::default());
    }
}
