//! Shapes that steps are rounded up to, so that a few graphs serve all of them.

/// Smallest context of a step that is captured.
const LEAST_CONTEXT: usize = 256;

/// The least power of two that holds `used` slots, or all there are.
pub(super) fn slots(used: usize, all: usize) -> usize {
    used.max(1).next_power_of_two().min(all)
}

/// The least of 256, 512, 1,024 … positions that holds `used`, or all there are: a short text does not pay for the longest.
pub(super) fn context(used: usize, all: usize) -> usize {
    used.next_power_of_two().max(LEAST_CONTEXT).min(all)
}

/// How many shapes steps of so many slots and so much context have.
pub(super) fn shapes(slots: usize, context: usize) -> usize {
    let doublings = |most: usize, least: usize| (most.next_power_of_two() / least).max(1).ilog2() as usize;
    (doublings(slots, 1) + 1) * (doublings(context, LEAST_CONTEXT) + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_are_as_many_as_steps_are_rounded_to() {
        for (all, most) in [(1, 100), (48, 1500), (64, 256), (5, 257), (7, 1024)] {
            let of_slots: std::collections::BTreeSet<usize> = (1..=all).map(|used| slots(used, all)).collect();
            let of_context: std::collections::BTreeSet<usize> = (1..=most).map(|used| context(used, most)).collect();
            assert_eq!(shapes(all, most), of_slots.len() * of_context.len(), "{all} slots of {most} tokens");
        }
    }

    #[test]
    fn the_next_larger_shape_is_taken() {
        let of_slots: Vec<usize> = [0, 1, 2, 3, 5, 33, 48].iter().map(|used| slots(*used, 48)).collect();
        assert_eq!(of_slots, [1, 1, 2, 4, 8, 48, 48]);
        let of_context: Vec<usize> = [1, 256, 257, 1000, 1500].iter().map(|used| context(*used, 1500)).collect();
        assert_eq!(of_context, [256, 256, 512, 1024, 1500]);
        assert_eq!(context(3, 100), 100);
    }
}
