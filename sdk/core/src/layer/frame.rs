//! One open interval, and the place of an entered span among the open ones.

use super::cache::{Meta, meta_flag};
use crate::clock::Ticks;
use crate::raw::{NO_PHASE, NO_STEP, RawInterval, flag};

/// One open interval.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Frame {
    pub(super) span: u64,
    pub(super) start: Ticks,
    /// Own `seq`; for frames that are transparent or not recorded, the one that their children take as parent.
    pub(super) seq: u64,
    pub(super) parent: u64,
    pub(super) step: u64,
    pub(super) name: u32,
    pub(super) request: u32,
    /// Marks in the GPU's stream at enter and exit; 0 for none. Of an interval of an experiment, the number of its path.
    pub(super) marks: [u32; 2],
    pub(super) phase: u8,
    pub(super) flags: u8,
    /// How much of what is inside is marked; see [`super::mark_plan::detail`].
    pub(super) gpu: u8,
    pub(super) recorded: bool,
    /// Of an excluded target: children belong to the frame around it.
    pub(super) transparent: bool,
    pub(super) annotated: bool,
    pub(super) has_fields: bool,
    /// What is to be done when a step ends that is not recorded; see [`left_out`].
    pub(super) left_out: u8,
}

/// Bits of [`Frame::left_out`].
pub(super) mod left_out {
    /// A step that is in no window of kernels, recorded or not, or an interval of it where graphs are followed; the
    /// recorder was told so.
    pub(in crate::layer) const OUTSIDE_WINDOW: u8 = 1;
    /// A step that is left plain, to be compared with recorded ones.
    pub(in crate::layer) const PLAIN: u8 = 2;
    /// A step whose start is known although it is not recorded.
    pub(in crate::layer) const TIMED: u8 = 4;
    /// It follows a recorded step.
    pub(in crate::layer) const ENDS_ROW: u8 = 8;
    /// A step that is part of an experiment, or an interval of it. Its `marks` have the number of its path.
    pub(in crate::layer) const PERTURBED: u8 = 16;
    /// The stretch began with this step.
    pub(in crate::layer) const FIRST: u8 = 32;
    /// It is made slower, or would be in a delayed stretch.
    pub(in crate::layer) const TARGET: u8 = 64;
    /// It is inside one that is.
    pub(in crate::layer) const IN_TARGET: u8 = 128;
}

impl Frame {
    #[inline]
    pub(super) fn is_detached(&self) -> bool {
        self.flags & flag::DETACHED != 0
    }

    #[inline]
    pub(super) fn is_left_out(&self, bit: u8) -> bool {
        self.left_out & bit != 0
    }

    #[inline]
    pub(super) fn is_step(&self) -> bool {
        self.flags & flag::STEP_ROOT != 0
    }

    /// The frame as an interval of depth `depth`, with `flags` in addition to its own. Nothing was lost inside it.
    #[inline]
    pub(super) fn to_raw(self, depth: usize, end: Ticks, flags: u8) -> RawInterval {
        let Frame { start, seq, parent, step, name, request, marks, phase, .. } = self;
        let (depth, flags) = (depth as u16, self.flags | flags);
        RawInterval { start, end, seq, parent, step, name, request, marks, depth, lost: 0, phase, flags, open: false }
    }
}

/// What a span is at its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Of an excluded target. Its children begin what it would have begun.
    Transparent,
    /// Above steps, although it may itself stand inside one.
    Request,
    /// The outermost interval, or a phase inside a step that is not in a phase.
    Step,
    /// Part of the step around it.
    Part,
}

/// The place of a span that is entered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Placement {
    pub(super) kind: Kind,
    /// `seq` of the interval around it; 0 for none.
    pub(super) parent: u64,
    /// The request that it works for, or that it is; 0 for none.
    pub(super) request: u32,
    /// The step that it is part of; a [`Kind::Step`] gets a number of its own.
    pub(super) step: u64,
    pub(super) phase: u8,
    /// Whether the step that it is part of is recorded.
    pub(super) recorded: bool,
    /// [`flag::NESTED_STEP`] if there is a step around it, even if only around its request; else 0.
    pub(super) nested: u8,
}

/// Places a span inside `around`, the innermost open interval that it can be part of. The fields of `around` are read
/// one by one, because they may have been written just before.
#[inline(always)]
pub(super) fn place(around: Option<&Frame>, meta: Meta) -> Placement {
    let (parent, request, phase, step, recorded, flags) = match around {
        Some(f) => (f.seq, f.request, f.phase, f.step, f.recorded, f.flags),
        None => (0, 0, NO_PHASE, NO_STEP, false, 0),
    };
    let in_step = step != NO_STEP;
    let nested = if in_step { flag::NESTED_STEP } else { flags & flag::NESTED_STEP };
    if meta.flags & (meta_flag::IGNORED | meta_flag::REQUEST) == meta_flag::REQUEST {
        let (request, phase, step) = (meta.request, NO_PHASE, NO_STEP);
        return Placement { kind: Kind::Request, parent, request, step, phase, recorded: false, nested };
    }
    // A phase inside a step that is not in a phase is a step of its own, and so is what is to be one.
    let continues = in_step && ((meta.phase == NO_PHASE && meta.flags & meta_flag::STEP == 0) || phase != NO_PHASE);
    Placement {
        kind: match continues {
            _ if meta.flags & meta_flag::IGNORED != 0 => Kind::Transparent,
            true => Kind::Part,
            false => Kind::Step,
        },
        parent,
        request,
        step: if continues { step } else { NO_STEP },
        phase: if meta.phase == NO_PHASE { phase } else { meta.phase },
        recorded: continues && recorded,
        nested,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PREFILL: u8 = 0;
    const DECODE: u8 = 1;

    fn span() -> Meta {
        Meta::OTHER
    }

    fn phase(phase: u8) -> Meta {
        Meta { phase, ..Meta::OTHER }
    }

    fn request(request: u32) -> Meta {
        Meta { request, flags: meta_flag::REQUEST, ..Meta::OTHER }
    }

    fn own_step() -> Meta {
        Meta { flags: meta_flag::STEP, ..Meta::OTHER }
    }

    fn excluded() -> Meta {
        Meta { flags: meta_flag::IGNORED, ..Meta::OTHER }
    }

    /// Enters spans one inside the other, all recorded, and returns each one's placement. Steps are numbered from 0.
    fn nest(metas: &[Meta]) -> Vec<Placement> {
        let (mut open, mut steps): (Vec<Frame>, u64) = (Vec::new(), 0);
        let enter = |meta: &Meta| {
            let placed = place(open.last(), *meta);
            let mut frame = Frame {
                seq: open.len() as u64 + 1,
                request: placed.request,
                step: placed.step,
                phase: placed.phase,
                recorded: placed.recorded,
                ..Frame::default()
            };
            match placed.kind {
                Kind::Step => {
                    (frame.step, frame.recorded, frame.flags) = (steps, true, flag::STEP_ROOT | placed.nested);
                    steps += 1;
                }
                Kind::Request => (frame.recorded, frame.flags) = (true, placed.nested),
                Kind::Transparent => frame.seq = placed.parent,
                Kind::Part => {}
            }
            open.push(frame);
            placed
        };
        metas.iter().map(enter).collect()
    }

    fn kinds(metas: &[Meta]) -> Vec<(Kind, bool)> {
        nest(metas).iter().map(|p| (p.kind, p.nested != 0)).collect()
    }

    #[test]
    fn the_outermost_span_is_a_step_and_what_is_inside_is_part_of_it() {
        let placed = nest(&[span(), span(), span()]);
        let [outer, inner, innermost] = placed[..] else { panic!("{placed:?}") };
        assert_eq!((outer.kind, outer.parent, outer.step, outer.recorded), (Kind::Step, 0, NO_STEP, false));
        assert_eq!((inner.kind, inner.parent, inner.step, inner.recorded), (Kind::Part, 1, 0, true));
        assert_eq!((innermost.kind, innermost.parent, innermost.nested), (Kind::Part, 2, flag::NESTED_STEP));
    }

    #[test]
    fn a_phase_is_a_step_unless_it_stands_in_another() {
        assert_eq!(kinds(&[phase(DECODE)]), [(Kind::Step, false)]);
        assert_eq!(kinds(&[span(), phase(DECODE)]), [(Kind::Step, false), (Kind::Step, true)]);
        let placed = nest(&[phase(PREFILL), span(), phase(DECODE), span()]);
        assert!(placed[1..].iter().all(|p| p.kind == Kind::Part && p.step == 0), "{placed:?}");
        let phases: Vec<u8> = placed.iter().map(|p| p.phase).collect();
        assert_eq!(phases, [PREFILL, PREFILL, DECODE, DECODE]);
    }

    #[test]
    fn what_is_to_be_a_step_is_one_unless_it_stands_in_a_phase() {
        assert_eq!(kinds(&[own_step()]), [(Kind::Step, false)]);
        assert_eq!(kinds(&[span(), span(), own_step()])[1..], [(Kind::Part, true), (Kind::Step, true)]);
        let placed = nest(&[own_step(), span(), own_step(), span()]);
        assert_eq!(placed.iter().map(|p| p.step).collect::<Vec<_>>(), [NO_STEP, 0, NO_STEP, 1], "one inside another");
        assert_eq!(placed[2].parent, 2);
        assert_eq!(kinds(&[phase(DECODE), own_step()])[1], (Kind::Part, true));
    }

    #[test]
    fn a_request_stands_above_steps_and_its_steps_work_for_it() {
        let placed = nest(&[request(7), phase(DECODE), span()]);
        assert_eq!((placed[0].kind, placed[0].step, placed[0].nested), (Kind::Request, NO_STEP, 0));
        assert_eq!((placed[1].kind, placed[1].nested), (Kind::Step, 0));
        assert!(placed.iter().all(|p| p.request == 7), "{placed:?}");
        // A request inside a step: its steps are inside that step too, and the request is in no phase.
        let placed = nest(&[phase(PREFILL), request(8), span()]);
        assert_eq!((placed[1].kind, placed[1].phase, placed[1].recorded), (Kind::Request, NO_PHASE, false));
        assert_eq!((placed[2].kind, placed[2].nested, placed[2].request), (Kind::Step, flag::NESTED_STEP, 8));
        assert_eq!(nest(&[request(1), request(2), span()])[2].request, 2);
    }

    #[test]
    fn children_see_through_an_excluded_span() {
        assert_eq!(kinds(&[excluded(), span()]), [(Kind::Transparent, false), (Kind::Step, false)]);
        let placed = nest(&[phase(DECODE), excluded(), span()]);
        assert_eq!(placed[1].kind, Kind::Transparent);
        assert_eq!((placed[2].kind, placed[2].parent, placed[2].step, placed[2].phase), (Kind::Part, 1, 0, DECODE));
        // Even a request of an excluded target does not count as a request.
        let both = Meta { flags: meta_flag::IGNORED | meta_flag::REQUEST, request: 3, ..Meta::OTHER };
        assert_eq!((nest(&[both])[0].kind, nest(&[both])[0].request), (Kind::Transparent, 0));
    }

    #[test]
    fn what_is_part_of_a_step_that_is_not_recorded_is_not_either() {
        let step = Frame { seq: 0, step: 4, phase: NO_PHASE, recorded: false, ..Frame::default() };
        let placed = place(Some(&step), span());
        assert_eq!((placed.kind, placed.step, placed.recorded), (Kind::Part, 4, false));
    }
}
