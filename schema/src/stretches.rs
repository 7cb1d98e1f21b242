//! Stretches of time on one time line, and the time over which rates of sampled steps can be taken: one rule for both
//! reports and live metrics. Pure.
//!
//! If some steps have no record (a schedule, a window of kernels, a probe), rates are taken over rows of recorded steps
//! with consecutive numbers. At the ends of a row recorded steps run beside unrecorded ones on other threads. [`rows`]
//! counts the steps that *begin* in a row, whole, and all the time until the next step begins, also that of unrecorded
//! steps, whose times the session notes. Over many rows that is neither too much nor too little, whatever threads do:
//! each step, and each moment, is as likely to be in a row as any other.
//!
//! Runs of older versions do not note these times. There, time with an open step that has no record is left out:
//! [`covered`]. So is the time in which threads idle, and rates of threads that are not always busy come out too high.
//! What the device did for unrecorded steps is not known either way: [`beside`].

use std::collections::BTreeMap;
use std::ops::Range;

/// Start and end, Unix nanoseconds.
pub type Stretch = (i64, i64);

/// When and where one step ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepTime {
    /// Number of the step: steps of all threads are numbered from 0 as they begin.
    pub step: u64,
    /// Number of the thread that ran it.
    pub thread: u32,
    /// Start on the host, Unix nanoseconds.
    pub start_ns: i64,
    /// End on the host, Unix nanoseconds.
    pub end_ns: i64,
}

impl StepTime {
    fn stretch(&self) -> Stretch {
        (self.start_ns, self.end_ns)
    }
}

/// Stretches in order, with those that overlap or touch merged. Empty ones are left out.
pub fn merged(stretches: impl IntoIterator<Item = Stretch>) -> Vec<Stretch> {
    joined(stretches, |start, end| start <= end)
}

/// Stretches in order, with those that overlap merged. Those that only touch stay apart, so that the point between them
/// remains an end of both.
pub fn merged_but_touching(stretches: impl IntoIterator<Item = Stretch>) -> Vec<Stretch> {
    joined(stretches, |start, end| start < end)
}

fn joined(stretches: impl IntoIterator<Item = Stretch>, joins: fn(i64, i64) -> bool) -> Vec<Stretch> {
    let (mut list, mut late): (Vec<Stretch>, Vec<Stretch>) = Default::default();
    // There may be tens of millions, mostly in order: only what comes late is sorted in.
    for stretch in stretches.into_iter().filter(|(start, end)| end > start) {
        match list.last_mut() {
            Some(last) if stretch.0 < last.0 => late.push(stretch),
            Some(last) if joins(stretch.0, last.1) => last.1 = last.1.max(stretch.1),
            _ => list.push(stretch),
        }
    }
    if late.is_empty() {
        return list;
    }
    list.append(&mut late);
    // Stable, which makes use of what is in order.
    list.sort();
    // Within the list, for the same reason.
    let mut kept = 0;
    for at in 0..list.len() {
        let (start, end) = list[at];
        if kept > 0 && joins(start, list[kept - 1].1) {
            list[kept - 1].1 = list[kept - 1].1.max(end);
        } else {
            list[kept] = (start, end);
            kept += 1;
        }
    }
    list.truncate(kept);
    list
}

/// Total length, in nanoseconds, of stretches that do not overlap.
pub fn length(stretches: &[Stretch]) -> u64 {
    stretches.iter().fold(0, |sum, (start, end)| sum.saturating_add(end.abs_diff(*start)))
}

/// The time that is in both; both lists must be in order and without overlaps.
pub fn intersection(a: &[Stretch], b: &[Stretch]) -> Vec<Stretch> {
    let mut out = Vec::new();
    let mut from = 0;
    for &(start, end) in a {
        from += b[from..].partition_point(|stretch| stretch.1 <= start);
        for stretch in b[from..].iter().take_while(|stretch| stretch.0 < end) {
            out.push((stretch.0.max(start), stretch.1.min(end)));
        }
    }
    out
}

/// The time that is in `a` and not in `b`; both lists must be in order and without overlaps.
pub fn difference(a: &[Stretch], b: &[Stretch]) -> Vec<Stretch> {
    let mut out = Vec::new();
    let mut from = 0;
    for &(start, end) in a {
        from += b[from..].partition_point(|stretch| stretch.1 <= start);
        let mut at = start;
        for stretch in b[from..].iter().take_while(|stretch| stretch.0 < end) {
            if stretch.0 > at {
                out.push((at, stretch.0));
            }
            at = at.max(stretch.1);
        }
        if at < end {
            out.push((at, end));
        }
    }
    out
}

/// A row of recorded steps with consecutive numbers, over which rates can be taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Numbers of the steps that count. They begin in the row and count whole, wherever they end.
    pub steps: Range<u64>,
    /// From the start of the first of them to the start of the step after the last one.
    pub window: Stretch,
}

/// The rows of consecutive numbers among `steps`, which have a record, in order, apart from each other. `unrecorded`
/// are steps without one whose times are known: of these, at least those that follow a row, or are open when one
/// begins. `end` is the number of all steps, or `u64::MAX` if it is not known.
///
/// If it is not known when the step after the last one began, the last one only ends the row.
pub fn rows(steps: &[StepTime], unrecorded: &[StepTime], end: u64) -> Vec<Row> {
    let starts: BTreeMap<u64, i64> = unrecorded.iter().map(|step| (step.step, step.start_ns)).collect();
    let mut ordered: Vec<&StepTime> = steps.iter().collect();
    ordered.sort_by_key(|step| step.step);
    ordered.dedup_by_key(|step| step.step);
    let mut out: Vec<Row> = Vec::new();
    for row in ordered.chunk_by(|a, b| b.step.saturating_sub(a.step) <= 1) {
        let (Some(first), Some(last)) = (row.first(), row.last()) else { continue };
        let next = last.step.saturating_add(1);
        let (until, to) = match starts.get(&next) {
            // The run of a capture counts its own steps alone: only the last of all can be the last one.
            _ if next >= end && ordered.last().is_some_and(|all| all.step == last.step) => (next, i64::MAX),
            Some(start) => (next, *start),
            None => (last.step, last.start_ns),
        };
        if until == first.step {
            continue;
        }
        // Steps get their numbers a moment before their clocks are read, so starts may be in another order.
        let from = first.start_ns.max(out.last().map_or(i64::MIN, |row| row.window.1));
        out.push(Row { steps: first.step..until, window: (from, to.max(from)) });
    }
    out
}

/// Time in which every open step has a record, if some steps have none: in order, without overlaps. `steps` are those
/// that have a record, in any order. `all` are the numbers of all steps: a number that is not among `steps` has no
/// record, and numbers outside `all` do not matter. If the number of steps is not known, `all` ends at `u64::MAX`.
///
/// While steps of a row of consecutive numbers run, every step that begins has a record. At the ends of the row,
/// however, steps that began before, or go on after, may have none. So time counts from when each thread has begun a
/// step of the row until one of the threads has ended its last, or the last step of the row has begun, whichever is
/// later: steps are numbered as they begin, so no other step has begun by then. A row without a thread that worked both
/// before and after it says nothing. Neither does a single step: it shows one thread, however many there are.
pub fn covered(steps: &[StepTime], all: Range<u64>) -> Vec<Stretch> {
    let mut threads: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
    for step in steps {
        let (first, last) = threads.entry(step.thread).or_insert((step.step, step.step));
        (*first, *last) = ((*first).min(step.step), (*last).max(step.step));
    }
    let mut ordered: Vec<&StepTime> = steps.iter().collect();
    ordered.sort_by_key(|step| step.step);
    let mut out: Vec<Stretch> = Vec::new();
    for row in ordered.chunk_by(|a, b| b.step.saturating_sub(a.step) <= 1) {
        let (Some(first), Some(last)) = (row.first(), row.last()) else { continue };
        // If a step is around others, only its start counts: the end of a row is that of the step that a thread began
        // last.
        let mut own: BTreeMap<u32, Stretch> = BTreeMap::new();
        for step in row {
            let (_, end) = own.entry(step.thread).or_insert(step.stretch());
            *end = step.end_ns;
        }
        let alive = threads.values().filter(|(from, to)| *from <= last.step && *to >= first.step);
        if row.len() < 2 || alive.count() > own.len() {
            continue;
        }
        let from = own.values().map(|(start, _)| *start).max().filter(|_| first.step > all.start);
        let to = own.values().map(|(_, end)| *end).min().map(|end| end.max(last.start_ns));
        let is_end = last.step.saturating_add(1) >= all.end;
        let stretch = (from.unwrap_or(i64::MIN), to.filter(|_| !is_end).unwrap_or(i64::MAX));
        // If two rows are on different threads, the first may end after the second begins: its time is cut off there,
        // because not every open step is known to have a record.
        if let Some(before) = out.last_mut() {
            before.1 = before.1.min(stretch.0);
        }
        out.push(stretch);
    }
    out.retain(|(start, end)| start < end);
    out
}

/// When steps ran whose kernels were not recorded (`without`), on other threads than steps whose kernels were (`with`):
/// at the ends of a window of kernels. What the device did for them is not known, so this time cannot be divided into
/// busy and idle.
pub fn beside(with: impl Iterator<Item = StepTime>, without: impl Iterator<Item = StepTime>) -> Vec<Stretch> {
    let mut threads: BTreeMap<u32, Vec<Stretch>> = BTreeMap::new();
    with.for_each(|step| threads.entry(step.thread).or_default().push(step.stretch()));
    let threads: BTreeMap<u32, Vec<Stretch>> =
        threads.into_iter().map(|(thread, stretches)| (thread, merged_but_touching(stretches))).collect();
    // A step around recorded ones, or inside one, runs on their thread.
    let apart = without.filter(|step| {
        threads.get(&step.thread).is_none_or(|own| {
            let next = own.partition_point(|(_, end)| *end <= step.start_ns);
            own.get(next).is_none_or(|(start, _)| *start >= step.end_ns)
        })
    });
    merged_but_touching(apart.map(|step| step.stretch()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stretches_by_hand() {
        let (a, b) = ([(0, 10), (20, 30), (30, 40)], [(5, 22), (25, 26), (38, 90)]);
        assert_eq!(intersection(&a, &b), [(5, 10), (20, 22), (25, 26), (38, 40)]);
        assert_eq!(difference(&a, &b), [(0, 5), (22, 25), (26, 30), (30, 38)]);
        assert_eq!((intersection(&a, &[]), difference(&a, &[])), (vec![], a.to_vec()));
        let list = [(30, 40), (0, 10), (5, 12), (20, 30), (7, 7)];
        assert_eq!((merged(list), length(&merged(list))), (vec![(0, 12), (20, 40)], 32));
        assert_eq!(merged_but_touching(list), [(0, 12), (20, 30), (30, 40)]);
        // From all in order to nearly all late.
        let mut turned = list;
        for _ in list {
            turned.rotate_left(1);
            assert_eq!(merged(turned), [(0, 12), (20, 40)], "{turned:?}");
            assert_eq!(merged_but_touching(turned), [(0, 12), (20, 30), (30, 40)], "{turned:?}");
        }
        assert_eq!((merged([]), merged([(7, 7)]), merged([(1, i64::MAX)])), (vec![], vec![], vec![(1, i64::MAX)]));
    }

    /// Steps of two threads in turn, 4 ns each, 2 ns apart: from 2 ns after the first recorded one on, both threads
    /// have one open.
    #[test]
    fn the_ends_of_a_row_do_not_count() {
        let step = |n: u64| {
            let start_ns = 2 * n as i64;
            StepTime { step: n, thread: (n % 2) as u32, start_ns, end_ns: start_ns + 4 }
        };
        let some: Vec<StepTime> = (0..6).chain(20..26).chain([40]).map(step).collect();
        assert_eq!(covered(&some, 0..u64::MAX), [(i64::MIN, 12), (42, 52)], "41 may have run beside 40");
        let end: Vec<StepTime> = (20..26).map(step).collect();
        assert_eq!(covered(&end, 0..26), [(42, i64::MAX)]);
        let one_thread: Vec<StepTime> = end.iter().map(|s| StepTime { thread: 0, ..*s }).collect();
        assert_eq!(covered(&one_thread, 0..u64::MAX), [(40, 54)]);
        // Step 26 runs beside 25, and its kernels were not recorded. A step around recorded ones is not other work.
        let around = StepTime { step: 19, thread: 0, start_ns: 38, end_ns: 53 };
        assert_eq!(beside(end.iter().copied(), [around, step(26)].into_iter()), [(52, 56)]);
    }

    /// One thread: step 0 is around steps of 10 ns each, of which 10 in 100 are recorded.
    #[test]
    fn a_step_around_others_covers_nothing_of_theirs() {
        let at = |n: u64| StepTime { step: n, thread: 0, start_ns: 10 * n as i64, end_ns: 10 * n as i64 + 10 };
        let around = StepTime { step: 0, thread: 0, start_ns: 0, end_ns: 2_560 };
        let steps: Vec<StepTime> =
            [around].into_iter().chain((1..10).chain(100..110).chain(200..210).map(at)).collect();
        assert_eq!(covered(&steps, 0..u64::MAX), [(i64::MIN, 100), (1_000, 1_100), (2_000, 2_100)]);
        // If it is recorded as the last of a row, it ends after the others, and so may the row, but no later than the
        // next one begins.
        let late = StepTime { step: 10, thread: 0, start_ns: 100, end_ns: 2_560 };
        let steps: Vec<StepTime> = (1..10).map(at).chain([late]).chain((100..110).map(at)).collect();
        assert_eq!(covered(&steps, 0..u64::MAX), [(10, 1_000), (1_000, 1_100)]);
    }

    /// Two workers that idle, join and leave, with steps of very different length: what the rule says of some of the
    /// steps, over every place at which rows can begin, is what all of them say.
    #[test]
    fn rows_at_every_offset_give_what_all_steps_give() {
        let all = bursts();
        let truth = all.len() as f64 / length(&merged(all.iter().map(StepTime::stretch))) as f64;
        for (active, cycle) in [(1, 20), (6, 10), (10, 100), (20, 200), (100, 1_000)] {
            let (mut steps, mut time, mut old) = (0, 0, (0.0, 0));
            // Every step is recorded equally often.
            for offset in (0..cycle).step_by((cycle / 20).max(1) as usize) {
                let is_recorded = |step: u64| (step + cycle - offset) % cycle < active;
                let (recorded, others): (Vec<StepTime>, Vec<StepTime>) =
                    all.iter().partition(|step| is_recorded(step.step));
                // What the session notes.
                let noted = |step: &StepTime| {
                    let follows = step.step > 0 && is_recorded(step.step - 1);
                    let next = (step.step + 1..all.len() as u64).find(|next| is_recorded(*next));
                    follows || next.is_some_and(|next| all[next as usize].start_ns < step.end_ns)
                };
                let unrecorded: Vec<StepTime> = others.into_iter().filter(noted).collect();
                let rows = rows(&recorded, &unrecorded, all.len() as u64);
                let windows: Vec<Stretch> = rows.iter().map(|row| row.window).collect();
                let open = merged(recorded.iter().chain(&unrecorded).map(StepTime::stretch));
                steps += rows.iter().map(|row| row.steps.end - row.steps.start).sum::<u64>();
                time += length(&intersection(&open, &windows));
                let covered = covered(&recorded, 0..all.len() as u64);
                old.1 += length(&intersection(&merged(recorded.iter().map(StepTime::stretch)), &covered));
                let share = |step: &StepTime| {
                    let inside = length(&intersection(&[step.stretch()], &covered));
                    inside as f64 / length(&[step.stretch()]) as f64
                };
                old.0 += recorded.iter().map(share).sum::<f64>();
            }
            let (rate, before) = (steps as f64 / time as f64, old.0 / old.1.max(1) as f64);
            assert!((rate / truth - 1.0).abs() < 0.005, "{active} in {cycle}: {rate} for {truth}");
            if (6..=20).contains(&active) {
                assert!(before / truth > 1.03, "{active} in {cycle}: the old rule said {before} for {truth}");
            }
        }
    }

    /// Two workers with pauses, numbered as they begin; the second one comes late, leaves early, and has one long step.
    fn bursts() -> Vec<StepTime> {
        let mut steps = Vec::new();
        for (thread, from, to) in [(0, 0, 4_000_000), (1, 300_000, 3_300_000)] {
            let (mut at, mut n): (i64, i64) = (from, 0);
            while at < to {
                // Between 300 and 1,299 each; after about twenty of them a pause of up to 15,000.
                let mixed = (n * 7_919 + i64::from(thread) * 104_729) % 1_000;
                let ns = if thread == 1 && n == 900 { 150_000 } else { 300 + mixed };
                steps.push(StepTime { step: 0, thread, start_ns: at, end_ns: at + ns });
                at += ns + 20 + if mixed % 20 == 7 { 15 * mixed } else { 0 };
                n += 1;
            }
        }
        steps.sort_by_key(|step| step.start_ns);
        (0..).zip(&mut steps).for_each(|(n, step)| step.step = n);
        steps
    }

    #[test]
    fn a_row_ends_where_the_next_step_begins() {
        let step = |n: u64| StepTime { step: n, thread: 0, start_ns: 10 * n as i64, end_ns: 10 * n as i64 + 25 };
        let recorded: Vec<StepTime> = (2..5).chain([8]).chain(10..12).map(step).collect();
        let row = |steps, from, to| Row { steps, window: (from, to) };
        assert_eq!(rows(&recorded, &[step(5)], u64::MAX), [row(2..5, 20, 50), row(10..11, 100, 110)]);
        assert_eq!(rows(&recorded, &[step(9)], 12)[1..], [row(8..9, 80, 90), row(10..12, 100, i64::MAX)]);
        // Of two steps at nearly the same time the later number may have the earlier start.
        let early = StepTime { start_ns: 115, ..step(12) };
        let late = StepTime { start_ns: 118, ..step(11) };
        assert_eq!(rows(&[late], &[early], u64::MAX), [row(11..12, 118, 118)]);
    }

    /// A worker that had one step and then nothing more to do does not end the covered time of the others.
    #[test]
    fn an_idle_thread_ends_nothing() {
        let at = |n: u64, thread| StepTime { step: n, thread, start_ns: 10 * n as i64, end_ns: 10 * n as i64 + 10 };
        let steps: Vec<StepTime> = (5..20).map(|n| at(n, u32::from(n == 6))).collect();
        assert_eq!(covered(&steps, 0..u64::MAX), [(60, 190)]);
        assert_eq!(covered(&steps, 5..20), [(i64::MIN, i64::MAX)], "all there were");
    }
}
