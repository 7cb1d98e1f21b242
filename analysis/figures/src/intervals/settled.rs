//! What is known about an interval once all its children are known. Pure.

use super::held::OpenInterval;
use candlescope_schema::GpuSource;

/// Rounding of two timestamps: a parent may seem shorter than its children by this much per child, in nanoseconds.
const ROUNDING_NS: u64 = 2;

/// Marks resolve about half a microsecond: a parent's GPU time may seem shorter than its children's by this much, in
/// nanoseconds.
const GPU_ROUNDING_NS: u64 = 1_000;

/// GPU time of an interval and of its direct children, without warm-up.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct GpuMeasured {
    pub(super) source: GpuSource,
    pub(super) dur_ns: u64,
    pub(super) inside_ns: u64,
    /// Whether the GPU time of all its children is known. With marks, every child must have them; for a step that has
    /// marks only for itself this is not known. With recorded kernels, a child without GPU time launched none.
    pub(super) all_inside_known: bool,
}

impl OpenInterval {
    /// Its duration, less the warm-up in it.
    #[inline]
    pub(super) fn time_ns(&self) -> u64 {
        self.dur_ns.saturating_sub(self.warm.ns)
    }

    /// Its duration and the sum of its children's, if that is longer by more than rounding explains.
    #[inline]
    pub(super) fn impossible(&self) -> Option<(u64, u64)> {
        exceeded(self.dur_ns, self.inside.ns, ROUNDING_NS)
    }

    /// The same for GPU time from its source.
    #[inline]
    pub(super) fn gpu_impossible(&self) -> Option<(u64, u64)> {
        let (source, dur_ns) = self.gpu?;
        exceeded(dur_ns, self.inside.gpu[source as usize].1, GPU_ROUNDING_NS)
    }

    /// Its GPU time; `None` if the GPU time of the warm-up in it is not fully known.
    #[inline]
    pub(super) fn gpu_measured(&self) -> Option<GpuMeasured> {
        let (source, ns) = self.gpu?;
        let (n, warm_ns) = self.warm.gpu[source as usize];
        // With recorded kernels an interval without GPU time launched none.
        let known = source == GpuSource::Cupti || n == self.warm.n;
        let (with_time, inside_ns) = self.inside.gpu[source as usize];
        known.then(|| GpuMeasured {
            source,
            dur_ns: ns.saturating_sub(warm_ns),
            inside_ns: inside_ns.saturating_sub(warm_ns),
            all_inside_known: source == GpuSource::Cupti || with_time == self.inside.n,
        })
    }
}

/// Both times, if the children's exceeds its own by more than `rounding` plus a thousandth.
#[inline]
fn exceeded(own_ns: u64, children_ns: u64, rounding: u64) -> Option<(u64, u64)> {
    let tolerance = rounding.max(own_ns / 1000);
    (children_ns > own_ns.saturating_add(tolerance)).then_some((own_ns, children_ns))
}

#[cfg(test)]
mod tests {
    use super::super::held::InsideSums;
    use super::*;

    fn held(dur_ns: u64, inside_ns: u64) -> OpenInterval {
        OpenInterval {
            node: 0,
            parent_seq: None,
            dur_ns,
            end_ns: 0,
            inside: InsideSums { n: 2, ns: inside_ns, ..InsideSums::default() },
            warm: InsideSums::default(),
            above_steps: false,
            is_warmup: false,
            is_replayed: false,
            gpu: None,
            kernels_recorded: false,
            group: 0,
            usual: None,
            generation: 0,
        }
    }

    #[test]
    fn rounding_makes_no_interval_impossible() {
        assert_eq!([held(100, 102).impossible(), held(100, 103).impossible()], [None, Some((100, 103))]);
        assert_eq!(held(1_000_000, 1_001_000).impossible(), None, "a thousandth");
        let of_gpu = |inside_ns| {
            let mut held = held(0, 0);
            held.gpu = Some((GpuSource::Event, 5_000));
            held.inside.gpu[GpuSource::Event as usize] = (2, inside_ns);
            held.gpu_impossible()
        };
        assert_eq!([of_gpu(6_000), of_gpu(6_001)], [None, Some((5_000, 6_001))]);
    }

    #[test]
    fn self_time_on_the_gpu_is_known_where_every_child_was_measured() {
        let measured = |source: GpuSource, children: u64| {
            let mut held = held(0, 0);
            held.gpu = Some((source, 900));
            held.inside.gpu[source as usize] = (children, 400);
            held.gpu_measured().expect("measured")
        };
        assert!(measured(GpuSource::Event, 2).all_inside_known && !measured(GpuSource::Event, 1).all_inside_known);
        assert!(measured(GpuSource::Cupti, 1).all_inside_known, "the other one launched nothing");
        assert_eq!(held(0, 0).gpu_measured(), None);
    }

    #[test]
    fn what_warmed_up_is_taken_from_the_time_around_it() {
        let mut around = held(1_000, 300);
        around.gpu = Some((GpuSource::Event, 800));
        around.inside.gpu[GpuSource::Event as usize] = (2, 300);
        around.warm = InsideSums { n: 1, ns: 200, gpu: [(0, 0); 2] };
        assert_eq!(around.time_ns(), 800);
        assert_eq!(around.gpu_measured(), None, "nobody knows what of its GPU time was the warm-up's");
        around.warm.gpu[GpuSource::Event as usize] = (1, 250);
        let measured = around.gpu_measured().expect("known");
        assert_eq!((measured.dur_ns, measured.inside_ns), (550, 50));
    }
}
