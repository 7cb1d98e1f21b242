//! candlescope with an exporter that accepts everything and discards it.

use super::Case;
use crate::work::{Mode, PAIRS, Spans};
use anyhow::{Result, ensure};
use candlescope_core::{Annotation, Batch, DType, ExportError, Exporter, Ledger, Session, annotate};
use std::time::Duration;
use tracing_subscriber::prelude::*;

/// Accepts every record and discards it, so that only the pipeline before it is measured.
#[derive(Debug, Default)]
pub struct NullExporter;

impl Exporter for NullExporter {
    fn name(&self) -> &'static str {
        "null"
    }

    fn export(&mut self, batch: &Batch, ledger: &Ledger) -> Result<(), ExportError> {
        ledger.exported_batch(batch);
        Ok(())
    }
}

struct Ours {
    spans: Spans,
    session: Session,
    annotated: bool,
    recorded: bool,
}

pub(super) fn start(name: &str, mode: Mode) -> Result<Box<dyn Case>> {
    let mut builder = Session::builder().exporter(NullExporter).paused(name == "ours_off");
    if name != "ours_live" {
        // The rings are emptied between bursts, when `settle` asks for it, and not while the clock is running.
        builder = builder.drain_interval(Duration::from_secs(3600));
    }
    let (layer, session) = builder.start()?;
    tracing_subscriber::registry().with(layer).try_init()?;
    let spans = Spans::new(mode);
    Ok(Box::new(Ours { spans, session, annotated: name == "ours_annotate", recorded: name != "ours_off" }))
}

impl Case for Ours {
    fn burst(&self) {
        if self.annotated {
            self.spans.burst(|| annotate(Annotation::new().flops(1).bytes(2).dtype(DType::F32).shape(&[1, 1, 576])));
        } else {
            self.spans.burst(|| ());
        }
    }

    fn settle(&mut self) -> Result<()> {
        self.session.handle().flush(Duration::from_secs(10))?;
        Ok(())
    }

    fn finish(self: Box<Self>, bursts: u64) -> Result<()> {
        let manifest = self.session.finish();
        let expected = if self.recorded { bursts * PAIRS as u64 } else { 0 };
        let exported = manifest.exporters.first().map_or(0, |e| e.exported["spans"]);
        ensure!(
            manifest.loss.lost() == 0,
            "intervals were dropped, so their cost was not measured: {:?}",
            manifest.loss
        );
        ensure!(exported == expected, "{exported} intervals were exported, not {expected}");
        Ok(())
    }
}
