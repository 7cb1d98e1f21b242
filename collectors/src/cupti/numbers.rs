//! Numbers of calls that are unique in the process.

/// Makes the numbers of calls unique in the process: CUPTI may start counting again when it is attached again.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    /// Added to what CUPTI says.
    offset: u32,
    /// The highest number so far, and the highest one when CUPTI was attached, until a higher one comes.
    highest: u32,
    before: Option<u32>,
}

impl Numbers {
    /// CUPTI was attached again.
    pub(super) fn begin_anew(&mut self) {
        self.before = Some(self.highest);
    }

    /// The number that stands for CUPTI's.
    pub(super) fn unique(&mut self, number: u32) -> u32 {
        if self.before.take().is_some_and(|before| number <= before) {
            self.offset = self.offset.wrapping_add(self.highest);
            self.highest = 0;
        }
        self.highest = self.highest.max(number);
        number.wrapping_add(self.offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_calls_are_unique_whether_they_begin_anew_or_go_on() {
        let mut numbers = Numbers::default();
        let mut window = |ids: &[u32]| {
            numbers.begin_anew();
            ids.iter().map(|id| numbers.unique(*id)).collect::<Vec<_>>()
        };
        assert_eq!(window(&[4, 2, 9]), [4, 2, 9]);
        assert_eq!(window(&[1, 2, 12]), [10, 11, 21], "from the beginning");
        assert_eq!(window(&[13, 14]), [22, 23], "on from there");
        assert_eq!(window(&[1]), [24]);
    }
}
