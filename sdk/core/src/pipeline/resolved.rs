//! Records that are resolved and wait for their GPU time.

use super::attribute::WindowStep;
use crate::raw::{RawInterval, flag};
use crate::record::Batch;

/// Records that are resolved, and the marks from which their GPU time is made.
#[derive(Default)]
pub(crate) struct ResolvedRecords {
    pub(crate) batch: Batch,
    pub(super) marked: Vec<MarkedSpan>,
    /// The steps of windows among them, except those inside other such steps.
    pub(super) window_steps: Vec<WindowStep>,
    /// Steps marked in full although they are cold.
    pub(super) cold: Vec<ColdStep>,
    /// Kinds of steps of which these records contain a warm one with marks of its parts.
    pub(super) warm: Vec<u32>,
    /// The step whose parts are being noted.
    pub(super) around: Option<EnclosingStep>,
    /// Indices of the spans whose kernels were recorded.
    pub(super) in_window: Vec<u32>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct MarkedSpan {
    /// Index of the span in the batch.
    pub(super) span: u32,
    pub(super) thread: u32,
    pub(super) marks: [u32; 2],
}

/// A step whose parts' times are used only if no warm step of its kind comes.
#[derive(Debug, Clone, Copy)]
pub(super) struct ColdStep {
    pub(super) step: u64,
    /// Number of the kind's name.
    pub(super) kind: u32,
    /// Indices of its own span and of the last of its parts.
    pub(super) root: u32,
    pub(super) last: u32,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct EnclosingStep {
    step: u64,
    kind: u32,
    root: u32,
    cold: bool,
}

impl ResolvedRecords {
    /// Notes the marks of the span that was added last.
    pub(crate) fn note(&mut self, item: &RawInterval, thread: u32) {
        let span = self.batch.spans.len().saturating_sub(1) as u32;
        if item.flags & flag::STEP_ROOT != 0 {
            // In enter order: a step comes before its parts.
            let cold = item.flags & flag::COLD != 0;
            self.around = Some(EnclosingStep { step: item.step, kind: item.name, root: span, cold });
        } else if item.marks != [0; 2]
            && let Some(around) = self.around.filter(|a| a.step == item.step)
        {
            self.note_part(&around, span);
        }
        if item.flags & flag::WINDOW_ROOT != 0
            && let Some(root) = self.batch.spans.last()
        {
            let extent = (root.host_start, root.host_start.plus_ns(root.host_dur_ns));
            self.window_steps.push(WindowStep { number: item.step, extent });
        }
        if item.marks != [0; 2] {
            self.marked.push(MarkedSpan { span, thread, marks: item.marks });
        }
        if item.flags & flag::KERNELS != 0 {
            self.in_window.push(span);
        }
    }

    /// Notes a marked part of a step.
    fn note_part(&mut self, around: &EnclosingStep, span: u32) {
        let EnclosingStep { step, kind, root, cold } = *around;
        if !cold {
            if !self.warm.contains(&kind) {
                self.warm.push(kind);
            }
            return;
        }
        match self.cold.last_mut().filter(|c| c.step == step) {
            Some(known) => known.last = span,
            None => self.cold.push(ColdStep { step, kind, root, last: span }),
        }
    }
}
