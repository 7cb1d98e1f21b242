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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_larger_shape_is_taken() {
        let of_slots: Vec<usize> = [0, 1, 2, 3, 5, 33, 48].iter().map(|used| slots(*used, 48)).collect();
        assert_eq!(of_slots, [1, 1, 2, 4, 8, 48, 48]);
        let of_context: Vec<usize> = [1, 256, 257, 1000, 1500].iter().map(|used| context(*used, 1500)).collect();
        assert_eq!(of_context, [256, 256, 512, 1024, 1500]);
        assert_eq!(context(3, 100), 100);
    }
}
