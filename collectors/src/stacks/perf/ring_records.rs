//! What the kernel writes into an event's buffer, read from bytes. `perf_event_open(2)` has the layout.

use crate::stacks::stack_walk::Registers;
use perf_event_open_sys::bindings::{
    PERF_RECORD_COMM, PERF_RECORD_EXIT, PERF_RECORD_LOST, PERF_RECORD_MISC_CPUMODE_MASK, PERF_RECORD_MISC_KERNEL,
    PERF_RECORD_MISC_SWITCH_OUT, PERF_RECORD_MISC_SWITCH_OUT_PREEMPT, PERF_RECORD_SAMPLE, PERF_RECORD_SWITCH,
};

/// Registers asked for, as the kernel numbers them: on x86-64 bp, sp, ip.
#[cfg(target_arch = "x86_64")]
pub(super) const REGISTERS: u64 = 1 << 6 | 1 << 7 | 1 << 8;
/// Registers asked for, as the kernel numbers them: on aarch64 x29, lr, sp, pc.
#[cfg(target_arch = "aarch64")]
pub(super) const REGISTERS: u64 = 1 << 29 | 1 << 30 | 1 << 31 | 1 << 32;

/// A record, as far as it is of use. Times are of `CLOCK_MONOTONIC`.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum RingRecord<'a> {
    Sample {
        /// Number of the event.
        id: u64,
        time: u64,
        /// The event's count when the sample was taken.
        count: u64,
        kernel: bool,
        /// Registers and stack of the program's own code, if the event copies them and there is any.
        copied: Option<(Registers, &'a [u8])>,
    },
    Switch {
        time: u64,
        out: bool,
        preempted: bool,
    },
    Lost {
        time: u64,
        count: u64,
    },
    /// The thread has a new name.
    Name {
        name: String,
    },
    /// The thread `tid` ended. A reader heeds only the end of the thread that it samples.
    Exit {
        tid: u32,
        time: u64,
    },
}

/// Takes numbers from the front of bytes.
struct Words<'a>(&'a [u8]);

impl<'a> Words<'a> {
    fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn u64(&mut self) -> Option<u64> {
        Some(u64::from_ne_bytes(self.bytes(8)?.try_into().ok()?))
    }

    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_ne_bytes(self.bytes(4)?.try_into().ok()?))
    }
}

/// What follows every record but samples: process and thread, time, number of the event.
const TRAILER: usize = 24;

/// Reads a record. `copies` says of which events samples have registers and stack. `None` for records of no use, and for
/// bytes that are none.
pub(super) fn read(record: &[u8], copies: impl Fn(u64) -> bool) -> Option<RingRecord<'_>> {
    let mut words = Words(record);
    let kind = words.u32()?;
    let misc = u32::from(u16::from_ne_bytes(words.bytes(2)?.try_into().ok()?));
    words.bytes(2)?;
    if kind == PERF_RECORD_SAMPLE {
        return sample(&mut words, misc & PERF_RECORD_MISC_CPUMODE_MASK == PERF_RECORD_MISC_KERNEL, copies);
    }
    let (mut body, mut trailer) = {
        let (body, trailer) = words.0.split_at_checked(words.0.len().checked_sub(TRAILER)?)?;
        (Words(body), Words(trailer))
    };
    trailer.u64()?;
    let time = trailer.u64()?;
    match kind {
        PERF_RECORD_SWITCH => Some(RingRecord::Switch {
            time,
            out: misc & PERF_RECORD_MISC_SWITCH_OUT != 0,
            preempted: misc & PERF_RECORD_MISC_SWITCH_OUT_PREEMPT != 0,
        }),
        PERF_RECORD_LOST => {
            body.u64()?;
            Some(RingRecord::Lost { time, count: body.u64()? })
        }
        PERF_RECORD_COMM => {
            body.u64()?;
            let name = body.0.split(|byte| *byte == 0).next()?;
            Some(RingRecord::Name { name: String::from_utf8_lossy(name).into_owned() })
        }
        PERF_RECORD_EXIT => {
            body.u64()?;
            Some(RingRecord::Exit { tid: body.u32()?, time })
        }
        _ => None,
    }
}

fn sample<'a>(words: &mut Words<'a>, kernel: bool, copies: impl Fn(u64) -> bool) -> Option<RingRecord<'a>> {
    let id = words.u64()?;
    // Process and thread.
    words.u64()?;
    let (time, count) = (words.u64()?, words.u64()?);
    let copied = if copies(id) { copied(words)? } else { None };
    Some(RingRecord::Sample { id, time, count, kernel, copied })
}

/// The inner `None` where the thread has no code of the program's own, or it could not be copied.
fn copied<'a>(words: &mut Words<'a>) -> Option<Option<(Registers, &'a [u8])>> {
    let abi = words.u64()?;
    let registers = if abi == 0 { None } else { Some(registers(words)?) };
    let size = usize::try_from(words.u64()?).ok()?;
    let stack = words.bytes(size)?;
    let used = if size == 0 { 0 } else { usize::try_from(words.u64()?).ok()? };
    Some(registers.map(|registers| (registers, stack.get(..used).unwrap_or(stack))))
}

#[cfg(target_arch = "x86_64")]
fn registers(words: &mut Words<'_>) -> Option<Registers> {
    let (fp, sp, ip) = (words.u64()?, words.u64()?, words.u64()?);
    Some(Registers { ip, sp, fp, lr: 0 })
}

#[cfg(target_arch = "aarch64")]
fn registers(words: &mut Words<'_>) -> Option<Registers> {
    let (fp, lr, sp, ip) = (words.u64()?, words.u64()?, words.u64()?, words.u64()?);
    Some(Registers { ip, sp, fp, lr })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u32, misc: u32, body: &[u64]) -> Vec<u8> {
        let mut bytes = kind.to_ne_bytes().to_vec();
        bytes.extend((misc as u16).to_ne_bytes());
        bytes.extend((8 + 8 * body.len() as u16).to_ne_bytes());
        bytes.extend(body.iter().flat_map(|word| word.to_ne_bytes()));
        bytes
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn a_sample_has_registers_and_the_used_part_of_its_stack() {
        // Event 7 at 1,000 with a count of 55; bp, sp, ip; 16 bytes of stack, 8 of them used.
        let bytes = record(9, 1, &[7, 0, 1_000, 55, 2, 30, 20, 10, 16, 4, 5, 8]);
        let expected = Registers { ip: 10, sp: 20, fp: 30, lr: 0 };
        let stack = &4_u64.to_ne_bytes()[..];
        assert_eq!(
            read(&bytes, |id| id == 7),
            Some(RingRecord::Sample { id: 7, time: 1_000, count: 55, kernel: true, copied: Some((expected, stack)) })
        );
        // A thread of the kernel's has neither.
        let bytes = record(9, 2, &[7, 0, 1_000, 55, 0, 0]);
        assert_eq!(
            read(&bytes, |_| true),
            Some(RingRecord::Sample { id: 7, time: 1_000, count: 55, kernel: false, copied: None })
        );
    }

    #[test]
    fn other_records_have_their_time_at_the_end() {
        let switch = |misc| record(14, misc, &[0, 42, 7]);
        let expected = |out, preempted| Some(RingRecord::Switch { time: 42, out, preempted });
        assert_eq!(read(&switch(0), |_| true), expected(false, false));
        assert_eq!(read(&switch(1 << 13), |_| true), expected(true, false));
        assert_eq!(read(&switch(1 << 13 | 1 << 14), |_| true), expected(true, true));
        let lost = record(2, 0, &[7, 3, 0, 42, 7]);
        assert_eq!(read(&lost, |_| true), Some(RingRecord::Lost { time: 42, count: 3 }));
        let name = record(3, 0, &[0, u64::from_ne_bytes(*b"cs-drain"), 0, 0, 42, 7]);
        assert_eq!(read(&name, |_| true), Some(RingRecord::Name { name: "cs-drain".into() }));
    }

    #[test]
    fn bytes_that_are_no_record_are_none() {
        let sample = record(9, 1, &[7, 0, 1_000, 55, 2, 30, 20, 10, 1 << 40, 4, 5, 8]);
        assert_eq!(read(&sample, |_| true), None);
        for kind in [2, 3, 4, 9, 14, 77] {
            let whole = record(kind, 0, &[1, 2, 3, 4]);
            for length in 0..whole.len() {
                read(&whole[..length], |_| true);
            }
        }
    }
}
