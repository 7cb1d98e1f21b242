//! How far a search for the best batch is: it takes minutes, and on a slow machine many.

use super::tune_args::BatchArgs;
use std::time::{Duration, Instant};

/// What takes less needs no advice.
const LONG: Duration = Duration::from_secs(300);

/// The batches that were measured, and the time they took.
pub(super) struct Course {
    began: Instant,
    points: u32,
    measured: u32,
    advice: Option<String>,
}

impl Course {
    pub(super) fn new(args: &BatchArgs) -> Self {
        let less = [
            (!args.quick).then_some("--quick (a look)"),
            (args.points > 4).then_some("--points 4"),
            (args.end > 8).then_some("a smaller --end"),
            Some("a shorter --output-tokens"),
        ];
        let less: Vec<&str> = less.into_iter().flatten().collect();
        Self { began: Instant::now(), points: args.points, measured: 0, advice: Some(less.join(", ")) }
    }

    /// What is said of the next batch, or of the second pass.
    pub(super) fn next(&mut self, is_point: bool) -> Option<String> {
        self.at(is_point, self.began.elapsed())
    }

    fn at(&mut self, is_point: bool, elapsed: Duration) -> Option<String> {
        let before = self.measured;
        if !is_point || before >= self.points {
            return None;
        }
        self.measured += 1;
        if before == 0 {
            return Some(format!("the first of at most {}", self.points));
        }
        // Those to come like those before; what was measured is measured again, at the end, for as long at most.
        let left = elapsed / before * (self.points - before) + elapsed;
        let of = format!("{} of at most {}", before + 1, self.points);
        if left < Duration::from_secs(60) {
            return Some(of);
        }
        let advice =
            self.advice.take_if(|_| left >= LONG).map_or_else(String::new, |less| format!("; less to do: {less}"));
        Some(format!("{of}, some {:.0} min more if all are needed{advice}", left.as_secs_f64() / 60.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_search_says_so_once_with_what_to_leave_out() {
        let mut course =
            Course { began: Instant::now(), points: 10, measured: 0, advice: Some("--quick (a look)".to_string()) };
        let minutes = |n: u64| Duration::from_secs(60 * n);
        assert_eq!(course.at(true, minutes(0)).as_deref(), Some("the first of at most 10"));
        let second = course.at(true, minutes(1)).unwrap();
        assert_eq!(second, "2 of at most 10, some 10 min more if all are needed; less to do: --quick (a look)");
        let third = course.at(true, minutes(2)).unwrap();
        assert_eq!(third, "3 of at most 10, some 10 min more if all are needed");
        assert_eq!(course.at(false, minutes(3)), None, "the second pass");
        let mut fast = Course { measured: 1, ..course };
        assert_eq!(fast.at(true, Duration::from_secs(2)).as_deref(), Some("2 of at most 10"));
    }
}
