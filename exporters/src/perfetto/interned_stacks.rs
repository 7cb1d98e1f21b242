//! Call stacks as Perfetto interns them: texts, mapped files, frames and stacks each have a number. Pure.

use super::interner::Interner;
use super::proto::{self, Callstack, InternedBytes, InternedData, Mapping};
use crate::call_stacks::{CallStacks, Frame};
use candlescope_core::KERNEL_FRAME;
use std::collections::HashMap;
use std::sync::Arc;

/// The numbers that were given, from 1.
#[derive(Debug, Default)]
pub(super) struct InternedStacks {
    functions: Interner,
    paths: Interner,
    sources: Interner,
    build_ids: Interner,
    mappings: HashMap<(Arc<str>, Option<Arc<str>>), u64>,
    frames: HashMap<Frame, u64>,
    /// Also by whether the thread was in the kernel.
    stacks: HashMap<(u64, bool), u64>,
}

impl InternedStacks {
    /// The number of a stack; what is new goes into the data of the next packet. `None` if the stack is not known.
    pub(super) fn get(&mut self, of: &CallStacks, stack: u64, in_kernel: bool, new: &mut InternedData) -> Option<u64> {
        let stack = of.get(stack)?.stack;
        if let Some(iid) = self.stacks.get(&(stack, in_kernel)) {
            return Some(*iid);
        }
        let mut frame_ids: Vec<u64> = of.frames(stack).into_iter().map(|at| self.frame(Frame::of(at), new)).collect();
        if in_kernel {
            frame_ids.push(self.frame(Frame::named(KERNEL_FRAME), new));
        }
        let iid = self.stacks.len() as u64 + 1;
        self.stacks.insert((stack, in_kernel), iid);
        new.callstacks.push(Callstack { iid: Some(iid), frame_ids });
        Some(iid)
    }

    fn frame(&mut self, frame: Frame, new: &mut InternedData) -> u64 {
        if let Some(iid) = self.frames.get(&frame) {
            return *iid;
        }
        let iid = self.frames.len() as u64 + 1;
        let mapping = self.mapping(&frame, new);
        let source = frame.file.as_ref().map(|file| text(&mut self.sources, file, &mut new.source_paths));
        new.frames.push(proto::Frame {
            iid: Some(iid),
            function_name_id: Some(text(&mut self.functions, &frame.name, &mut new.function_names)),
            mapping_id: Some(mapping),
            rel_pc: Some(frame.address),
            source_path_iid: source,
            line_number: frame.line,
        });
        self.frames.insert(frame, iid);
        iid
    }

    fn mapping(&mut self, frame: &Frame, new: &mut InternedData) -> u64 {
        let key = (frame.binary.clone(), frame.build_id.clone());
        if let Some(iid) = self.mappings.get(&key) {
            return *iid;
        }
        let iid = self.mappings.len() as u64 + 1;
        self.mappings.insert(key, iid);
        let build_id = frame.build_id.as_ref().map(|id| {
            let (iid, is_new) = self.build_ids.get(id);
            if is_new {
                new.build_ids.push(InternedBytes { iid: Some(iid), str: Some(bytes_of(id)) });
            }
            iid
        });
        let path_string_ids = vec![text(&mut self.paths, &frame.binary, &mut new.mapping_paths)];
        new.mappings.push(Mapping { iid: Some(iid), build_id, path_string_ids });
        iid
    }
}

fn text(interner: &mut Interner, text: &str, new: &mut Vec<InternedBytes>) -> u64 {
    let (iid, is_new) = interner.get(text);
    if is_new {
        new.push(InternedBytes { iid: Some(iid), str: Some(text.as_bytes().to_vec()) });
    }
    iid
}

/// The bytes of a number in hexadecimal; those of the text itself if it is none.
fn bytes_of(hex: &str) -> Vec<u8> {
    let digits: Option<Vec<u8>> = hex.chars().map(|c| c.to_digit(16).map(|d| d as u8)).collect();
    match digits {
        Some(digits) if digits.len() % 2 == 0 => digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect(),
        _ => hex.as_bytes().to_vec(),
    }
}
