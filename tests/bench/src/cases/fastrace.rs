//! fastrace, which has an interface of its own: a root span for each step, a local span for each interval.

use super::Case;
use crate::work::{CHILDREN, STEPS};
use anyhow::Result;
use fastrace::collector::{Config, Reporter, SpanRecord};
use fastrace::prelude::*;
use std::hint::black_box;

struct Nothing;

impl Reporter for Nothing {
    fn report(&mut self, spans: Vec<SpanRecord>) {
        drop(spans);
    }
}

pub(super) struct Fastrace;

impl Fastrace {
    pub(super) fn new() -> Self {
        fastrace::set_reporter(Nothing, Config::default());
        Self
    }
}

impl Case for Fastrace {
    #[inline(never)]
    fn burst(&self) {
        for _ in 0..STEPS {
            let step = Span::root("step", SpanContext::random());
            let _parent = step.set_local_parent();
            for _ in 0..CHILDREN {
                let span = LocalSpan::enter_with_local_parent("linear");
                black_box(&span);
            }
        }
    }

    fn settle(&mut self) -> Result<()> {
        fastrace::flush();
        Ok(())
    }
}
