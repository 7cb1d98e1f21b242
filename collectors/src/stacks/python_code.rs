//! How to unwind through what Python makes at run time for each of its functions (`-X perf`): a few instructions that
//! call the interpreter, in no file and without unwind tables.
//!
//! ```text
//! sub $8,%rsp      or     push %rbp
//! call *%rcx              mov  %rsp,%rbp
//! add $8,%rsp             call *%rcx
//! ret                     pop  %rbp
//!                         ret
//! ```
//!
//! Within the call, which is where a stack passes, both have the return address two words above the stack pointer; the
//! second form has the caller's frame pointer below that. On other processors the code keeps a frame pointer, by which
//! it is unwound anyway.

use super::binary_file::Part;
use framehop::ModuleSectionInfo;
use std::ops::Range;

/// Where the code begins, as its table counts. Not zero, which stands for nothing in such tables.
pub(super) const CODE: u64 = 0x1000;

/// A stretch of such code, as a module for the unwinder.
pub(super) struct PythonCode {
    table: Part,
    bytes: u64,
}

impl PythonCode {
    /// A stretch of `bytes` that begins with `code`; `None` if that is something else.
    pub(super) fn of(code: &[u8], bytes: u64) -> Option<Self> {
        const ENDBR64: &[u8] = &[0xf3, 0x0f, 0x1e, 0xfa];
        const MAKE_ROOM: &[u8] = &[0x48, 0x83, 0xec, 0x08];
        const PUSH_RBP: &[u8] = &[0x55, 0x48, 0x89, 0xe5];
        let code = code.strip_prefix(ENDBR64).unwrap_or(code);
        let saves_frame_pointer = match code {
            code if code.starts_with(MAKE_ROOM) => false,
            code if code.starts_with(PUSH_RBP) => true,
            _ => return None,
        };
        Some(Self { table: Part::of(table(saves_frame_pointer, bytes)), bytes })
    }

    fn addresses(&self) -> Range<u64> {
        // Behind the code.
        let start = (CODE + self.bytes).next_multiple_of(16);
        start..start + self.table.len() as u64
    }
}

impl ModuleSectionInfo<Part> for PythonCode {
    fn base_svma(&self) -> u64 {
        0
    }

    fn section_svma_range(&mut self, name: &[u8]) -> Option<Range<u64>> {
        (name == b".eh_frame").then(|| self.addresses())
    }

    fn section_data(&mut self, name: &[u8]) -> Option<Part> {
        (name == b".eh_frame").then(|| self.table.clone())
    }
}

/// `.eh_frame` with one entry for all of it (DWARF 5, 6.4; Linux Standard Base, 10.6).
fn table(saves_frame_pointer: bool, bytes: u64) -> Vec<u8> {
    // Version 1, augmentation zR, code in bytes, data in words downwards, return address in register 16; addresses are
    // absolute.
    let mut common = vec![0, 0, 0, 0, 1, b'z', b'R', 0, 1, 0x78, 16, 1, 0];
    // The frame begins at rsp (register 7) + 16; the return address is one word below that.
    common.extend([0x0c, 7, 16, 0x80 | 16, 1]);
    if saves_frame_pointer {
        // rbp (register 6) is two words below.
        common.extend([0x80 | 6, 2]);
    }
    let mut table = entry(&common);
    // The distance from here to the common entry.
    let mut of_code = (table.len() as u32 + 4).to_le_bytes().to_vec();
    of_code.extend(CODE.to_le_bytes());
    of_code.extend(bytes.to_le_bytes());
    of_code.push(0);
    table.extend(entry(&of_code));
    table.extend([0; 4]);
    table
}

/// An entry with its length in front, filled up with what does nothing.
fn entry(content: &[u8]) -> Vec<u8> {
    let filled = content.len().next_multiple_of(8) + 4;
    let mut entry = (filled as u32).to_le_bytes().to_vec();
    entry.extend(content);
    entry.resize(4 + filled, 0);
    entry
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;
    use framehop::x86_64::{CacheX86_64, UnwindRegsX86_64, UnwinderX86_64};
    use framehop::{FrameAddress, MayAllocateDuringUnwind, Module, Unwinder};

    /// Return addresses of a stack that passes through code which begins with `code`, where `rbp` is of no use.
    fn callers(code: &[u8], stack: &[u64]) -> Option<(Vec<u64>, u64)> {
        let (at, bytes) = (0x7f00_0000_0000, 0x2000);
        let made = PythonCode::of(code, bytes)?;
        let mut unwinder = UnwinderX86_64::<Part, MayAllocateDuringUnwind>::new();
        unwinder.add_module(Module::new("python".into(), at..at + bytes, at - CODE, made));
        let mut cache = CacheX86_64::<MayAllocateDuringUnwind>::new_in();
        let sp = 0x1000;
        let mut read = |address: u64| stack.get((address - sp) as usize / 8).copied().ok_or(());
        let mut registers = UnwindRegsX86_64::new(at + 6, sp, 77);
        let inside = FrameAddress::from_return_address(at + 0x1006)?;
        let caller = unwinder.unwind_frame(inside, &mut registers, &mut cache, &mut read).ok()??;
        assert_eq!(registers.sp(), sp + 16);
        Some((vec![caller], registers.bp()))
    }

    #[test]
    fn both_forms_of_the_code_are_passed_through_and_nothing_else() {
        let room = [0x48, 0x83, 0xec, 0x08, 0xff, 0xd1, 0x48, 0x83, 0xc4, 0x08, 0xc3];
        let frame = [0x55, 0x48, 0x89, 0xe5, 0xff, 0xd1, 0x5d, 0xc3];
        let marked = [&[0xf3, 0x0f, 0x1e, 0xfa][..], &frame].concat();
        let stack = [55, 0x1234, 66];
        assert_eq!(callers(&room, &stack), Some((vec![0x1234], 77)), "the frame pointer is the caller's still");
        assert_eq!(callers(&frame, &stack), Some((vec![0x1234], 55)));
        assert_eq!(callers(&marked, &stack), Some((vec![0x1234], 55)));
        assert!(PythonCode::of(&[0x90; 16], 16).is_none() && PythonCode::of(&[], 0).is_none());
    }
}
