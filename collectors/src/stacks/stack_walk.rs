//! From copied registers and stack bytes to addresses of functions.

use super::binary_file::{BinaryFile, Part};
use super::memory_map::{self, Mapping};
use super::perf_map::PerfMap;
use super::python_code::{self, PythonCode};
use super::sys;
use candlescope_core::stacks::MonotonicNs;
use framehop::{CacheNative, FrameAddress, Module, UnwindRegsNative, Unwinder, UnwinderNative};
use rustc_hash::FxHashMap;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// Frames kept of a stack; those further out are cut off.
const MAX_FRAMES: usize = 512;
/// Least time between two readings of the table of mappings for the sake of an unknown address: code that is made at run
/// time is in no file, however often one looks.
const REREAD_NS: u64 = 100_000_000;

/// What was copied of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Registers {
    pub(super) ip: u64,
    pub(super) sp: u64,
    /// Frame pointer.
    pub(super) fp: u64,
    /// Return address of a function that has not saved it; zero on x86-64, which has no such register.
    pub(super) lr: u64,
}

/// A binary's place in [`StackWalk::binaries`].
pub(super) type BinaryIndex = u32;

/// An address as its binary counts, within the instruction that was running or that called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct CodeAddress {
    /// None for code that is in no known binary: the address is that in memory.
    pub(super) binary: Option<BinaryIndex>,
    pub(super) address: u64,
}

/// A mapping, and the binary that is mapped.
struct MappedBinary {
    mapping: Mapping,
    binary: BinaryIndex,
    bias: u64,
}

/// Unwinds stacks.
pub(super) struct StackWalk {
    unwinder: UnwinderNative<Part, framehop::MayAllocateDuringUnwind>,
    cache: CacheNative<framehop::MayAllocateDuringUnwind>,
    /// By address.
    mapped: Vec<MappedBinary>,
    /// By inode and path; `None` for what could not be read.
    known: FxHashMap<(u64, String), Option<BinaryIndex>>,
    binaries: Vec<Arc<BinaryFile>>,
    perf_map: PerfMap,
    /// Stretches of Python's code that are unwound.
    python: Vec<Range<u64>>,
    loader_changes: (u64, u64),
    read_at: MonotonicNs,
    mappings_read: u64,
}

impl StackWalk {
    /// Reads the table of mappings.
    pub(super) fn new() -> Self {
        let mut walk = Self {
            unwinder: UnwinderNative::new(),
            cache: CacheNative::new_in(),
            mapped: Vec::new(),
            known: FxHashMap::default(),
            binaries: Vec::new(),
            perf_map: PerfMap::of_this_process(),
            python: Vec::new(),
            loader_changes: (0, 0),
            read_at: MonotonicNs(0),
            mappings_read: 0,
        };
        walk.read_mappings();
        walk
    }

    pub(super) fn binary(&self, index: BinaryIndex) -> Option<&Arc<BinaryFile>> {
        self.binaries.get(index as usize)
    }

    /// Notices libraries that were loaded or unloaded. Cheap where there are none.
    pub(super) fn follow_loader(&mut self) {
        if sys::loader_changes() != self.loader_changes {
            self.read_mappings();
        }
    }

    fn read_mappings(&mut self) {
        self.loader_changes = sys::loader_changes();
        self.read_at = sys::monotonic();
        self.mappings_read += 1;
        let maps = std::fs::read("/proc/self/maps").unwrap_or_default();
        let mappings = memory_map::executable_mappings(&String::from_utf8_lossy(&maps));
        let stays = |old: &MappedBinary| {
            mappings
                .binary_search_by_key(&old.mapping.range.start, |m| m.range.start)
                .is_ok_and(|i| mappings[i] == old.mapping)
        };
        let (stay, gone) = std::mem::take(&mut self.mapped).into_iter().partition::<Vec<_>, _>(stays);
        self.mapped = stay;
        for old in gone {
            self.unwinder.remove_module(old.mapping.range.start);
        }
        for mapping in mappings {
            let place = self.mapped.binary_search_by_key(&mapping.range.start, |m| m.mapping.range.start);
            if let Err(place) = place
                && let Some(binary) = self.binary_of(&mapping)
                && let Some(bias) = self.binaries[binary as usize].bias(&mapping)
            {
                let file = &*self.binaries[binary as usize];
                self.unwinder.add_module(Module::new(file.name.to_string(), mapping.range.clone(), bias, file));
                self.mapped.insert(place, MappedBinary { mapping, binary, bias });
            }
        }
    }

    fn binary_of(&mut self, mapping: &Mapping) -> Option<BinaryIndex> {
        if mapping.path.is_empty() {
            return None;
        }
        let key = (mapping.inode, mapping.path.clone());
        if let Some(known) = self.known.get(&key) {
            return *known;
        }
        let index = BinaryFile::of(mapping).map(|binary| {
            self.binaries.push(Arc::new(binary));
            (self.binaries.len() - 1) as BinaryIndex
        });
        self.known.insert(key, index);
        index
    }

    fn mapped_at(&self, address: u64) -> Option<&MappedBinary> {
        let after = self.mapped.partition_point(|m| m.mapping.range.start <= address);
        self.mapped[..after].last().filter(|m| m.mapping.range.contains(&address))
    }

    /// The name of code that is in no file, where the program writes what it makes at run time.
    pub(super) fn made_code(&mut self, address: u64) -> Option<Arc<str>> {
        if self.perf_map.name(address).is_none() {
            self.follow_perf_map();
        }
        self.perf_map.name(address).cloned()
    }

    /// Reads what the program has written of its code since. Whether more of it can be unwound.
    fn follow_perf_map(&mut self) -> bool {
        // Elsewhere the code keeps a frame pointer.
        if !self.perf_map.follow() || !cfg!(target_arch = "x86_64") {
            return false;
        }
        let mut is_more = false;
        for (at, code) in self.perf_map.python().iter().enumerate() {
            let known = self.python.get(at).filter(|known| known.end > known.start);
            if known == Some(code) {
                continue;
            }
            if let Some(known) = known {
                self.unwinder.remove_module(known.start);
            }
            let length = code.end - code.start;
            let made = copied(code.start).and_then(|begins| PythonCode::of(&begins, length));
            // What could not be read or is something else is not looked at again until it has grown.
            if let Some(made) = made {
                let bias = code.start.wrapping_sub(python_code::CODE);
                self.unwinder.add_module(Module::new("python".to_string(), code.clone(), bias, made));
                is_more = true;
            }
            match self.python.get_mut(at) {
                Some(known) => *known = code.clone(),
                None => self.python.push(code.clone()),
            }
        }
        is_more
    }

    /// Addresses in memory of the stack's frames, innermost first. Where the thread began is the last one, the answer is
    /// where its stack ends: nothing further out was read.
    pub(super) fn frames(&mut self, registers: Registers, stack: &[u8], into: &mut Vec<u64>) -> Option<u64> {
        let end = self.walk(registers, stack, into);
        let is_unknown = |at: &u64| self.mapped_at(*at).is_none() && self.perf_map.name(*at).is_none();
        // A thread begins in a library. This stack ended at code that was made meanwhile, perhaps.
        if into.last().is_some_and(is_unknown) && self.follow_perf_map() {
            return self.walk(registers, stack, into);
        }
        end
    }

    fn walk(&mut self, registers: Registers, stack: &[u8], into: &mut Vec<u64>) -> Option<u64> {
        let unknown = |walk: &Self| walk.mapped_at(registers.ip).is_none();
        if unknown(self) && sys::monotonic().0.saturating_sub(self.read_at.0) >= REREAD_NS {
            self.read_mappings();
        }
        into.clear();
        let mut used = 0;
        let mut read_stack = |address: u64| {
            let offset = usize::try_from(address.checked_sub(registers.sp).ok_or(())?).map_err(|_| ())?;
            let end = offset.checked_add(8).ok_or(())?;
            let word = stack.get(offset..end).ok_or(())?;
            used = end.max(used);
            Ok(u64::from_ne_bytes(word.try_into().map_err(|_| ())?))
        };
        let unwind_registers = unwind_registers(registers, self.unwinder.max_known_code_address());
        let mut walk = self.unwinder.iter_frames(registers.ip, unwind_registers, &mut self.cache, &mut read_stack);
        while into.len() < MAX_FRAMES {
            match walk.next() {
                Ok(Some(FrameAddress::InstructionPointer(address))) => into.push(address),
                Ok(Some(FrameAddress::ReturnAddress(address))) => into.push(address.get() - 1),
                Ok(None) => return Some(registers.sp.wrapping_add(used as u64)),
                Err(_) => return None,
            }
        }
        None
    }

    /// Counts the changes of the table of mappings: addresses in memory mean the same until it does.
    pub(super) fn mappings_read(&self) -> u64 {
        self.mappings_read
    }

    /// An address in memory as its binary counts.
    pub(super) fn code_address(&self, address: u64) -> CodeAddress {
        match self.mapped_at(address) {
            Some(mapped) => CodeAddress { binary: Some(mapped.binary), address: address.wrapping_sub(mapped.bias) },
            None => CodeAddress { binary: None, address },
        }
    }

    /// Whether the instruction before this address, or at it, calls the kernel: where a thread is that returns from it or,
    /// interrupted, calls it again. `None` for code that is in no file.
    pub(super) fn is_system_call(&self, address: u64) -> Option<bool> {
        #[cfg(target_arch = "x86_64")]
        const SYSTEM_CALL: &[u8] = &[0x0f, 0x05];
        // `svc #0`
        #[cfg(target_arch = "aarch64")]
        const SYSTEM_CALL: &[u8] = &[0x01, 0x00, 0x00, 0xd4];
        let length = SYSTEM_CALL.len();
        let mapped = self.mapped_at(address)?;
        let binary = self.binary(mapped.binary)?;
        let address = address.wrapping_sub(mapped.bias);
        let at = binary.code(address, length)?;
        Some(at == SYSTEM_CALL || binary.code(address.wrapping_sub(length as u64), length) == Some(SYSTEM_CALL))
    }
}

/// The first instructions at an address.
fn copied(address: u64) -> Option<[u8; 8]> {
    let mut code = [0; 8];
    // Not by a pointer: were the memory gone, this is an error and no crash.
    File::open("/proc/self/mem").ok()?.read_exact_at(&mut code, address).ok()?;
    Some(code)
}

#[cfg(target_arch = "x86_64")]
fn unwind_registers(registers: Registers, _: u64) -> UnwindRegsNative {
    UnwindRegsNative::new(registers.ip, registers.sp, registers.fp)
}

#[cfg(target_arch = "aarch64")]
fn unwind_registers(registers: Registers, max_known_address: u64) -> UnwindRegsNative {
    let mask = framehop::aarch64::PtrAuthMask::from_max_known_address(max_known_address);
    UnwindRegsNative::new_with_ptr_auth_mask(mask, registers.lr, registers.sp, registers.fp)
}
