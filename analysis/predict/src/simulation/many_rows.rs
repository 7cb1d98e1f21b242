//! What operations take for many rows at once, as steps of a run show it.

use candlescope_work::estimate::median;
use rustc_hash::FxHashMap;

/// From so many rows on a product is bound by computing, not by reading weights.
const MANY_ROWS: u32 = 16;

/// What a place did in a step.
#[derive(Debug, Clone, Copy)]
pub(super) struct DoneTogether<'a> {
    /// Its path below the step.
    pub(super) path: &'a str,
    /// The time that it took itself, in nanoseconds.
    pub(super) ns: f64,
    /// FLOPs, or bytes where it computes nothing.
    pub(super) work: f64,
    /// The step's rows.
    pub(super) rows: u32,
    /// FLOPs, if it multiplies by weights.
    pub(super) product_flops: Option<f64>,
}

/// What places take in steps of many rows. Nanoseconds.
#[derive(Debug, Clone, Default)]
pub(super) struct ManyRows {
    by_path: FxHashMap<Box<str>, PlaceTotals>,
    /// Of a FLOP of products by weights: the median of all of them.
    product: Option<f64>,
}

/// What a place took in all, for how much.
#[derive(Debug, Clone, Copy, Default)]
struct PlaceTotals {
    ns: f64,
    work: f64,
    rows: f64,
    steps: f64,
}

impl PlaceTotals {
    /// What `rows` rows take that are `each` work; `None` if it was of few rows itself: of a prompt only the last token
    /// has logits.
    fn of_rows(self, rows: f64, each: f64) -> Option<f64> {
        if self.work <= 0.0 || each <= 0.0 {
            return Some(self.ns * rows / self.rows);
        }
        let has_many = self.work / self.steps >= each * f64::from(MANY_ROWS);
        has_many.then_some(self.ns * rows * each / self.work)
    }
}

impl ManyRows {
    /// Of those that have many rows.
    pub(super) fn of(all: &[DoneTogether<'_>]) -> Self {
        let mut by_path: FxHashMap<Box<str>, PlaceTotals> = FxHashMap::default();
        let many = || all.iter().filter(|one| one.rows >= MANY_ROWS);
        for one in many() {
            let taken = by_path.entry(one.path.into()).or_default();
            taken.ns += one.ns;
            taken.work += one.work;
            taken.rows += f64::from(one.rows);
            taken.steps += 1.0;
        }
        let product = many().filter_map(|one| Some(one.ns / one.product_flops.filter(|flops| *flops > 0.0)?));
        Self { by_path, product: median(product.collect()) }
    }

    /// What `rows` rows of a place take that are `each` work; `None` if no step tells.
    pub(super) fn of_rows(&self, path: &str, is_product: bool, rows: f64, each: f64) -> Option<f64> {
        let own = self.by_path.get(path).and_then(|taken| taken.of_rows(rows, each));
        let as_others = || self.product.filter(|_| is_product && each > 0.0).map(|ns| ns * rows * each);
        own.or_else(as_others)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_took_no_work_goes_by_rows() {
        let taken = PlaceTotals { ns: 320.0, work: 0.0, rows: 32.0, steps: 1.0 };
        assert_eq!(taken.of_rows(4.0, 5.0), Some(40.0));
        let taken = PlaceTotals { work: 64.0, ..taken };
        assert_eq!((taken.of_rows(4.0, 2.0), taken.of_rows(4.0, 0.0)), (Some(40.0), Some(40.0)));
        // Two rows' work in a step of 32: as many as this step has.
        assert_eq!(taken.of_rows(4.0, 32.0), None);
    }

    #[test]
    fn a_product_of_few_rows_is_like_the_others() {
        let one = |path, ns, flops: f64| DoneTogether { path, ns, work: flops, rows: 32, product_flops: Some(flops) };
        let all = [one("a", 64.0, 640.0), one("b", 64.0, 640.0), one("head", 50.0, 20.0)];
        let rows = ManyRows::of(&all);
        // The head had one row of 20 FLOPs.
        assert_eq!(rows.of_rows("head", true, 4.0, 20.0), Some(8.0));
        assert_eq!(rows.of_rows("elsewhere", false, 4.0, 20.0), None);
        assert_eq!(ManyRows::of(&[DoneTogether { rows: 4, ..all[0] }]).of_rows("a", true, 4.0, 20.0), None);
    }
}
