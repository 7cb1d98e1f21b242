//! Says to `candlescope monitor` what this process measures.

use candlescope_lab::method::Event;
use candlescope_lab::study::Manifest;

/// Tells as long as it is there. Without the feature `prometheus`, nobody.
pub(crate) struct AtWork {
    #[cfg(feature = "prometheus")]
    working: candlescope::prometheus::WorkNotice,
    samples: u64,
}

impl AtWork {
    /// This process does `what`.
    #[cfg_attr(not(feature = "prometheus"), allow(unused_variables, reason = "nobody is told"))]
    pub(crate) fn on(what: &str) -> Self {
        Self {
            #[cfg(feature = "prometheus")]
            working: candlescope::prometheus::WorkNotice::on(what),
            samples: 0,
        }
    }

    /// This process does what its command says, such as `bench kernels`.
    pub(crate) fn on_command() -> Self {
        let words = std::env::args().skip(1).take_while(|word| !word.starts_with('-')).take(2);
        Self::on(&words.collect::<Vec<_>>().join(" "))
    }

    /// This process measures one round of a study, or records it.
    pub(crate) fn on_round(study: &Manifest, round: u32, recorded: bool) -> Self {
        Self::on(&match recorded {
            true => format!("bench {}, recorded requests", study.study),
            false => format!("bench {}, start {} of {}", study.study, round + 1, study.rounds),
        })
    }

    /// How far it is.
    #[cfg_attr(not(feature = "prometheus"), allow(unused_variables, reason = "nobody is told"))]
    pub(crate) fn tell(&mut self, state: impl FnOnce() -> String) {
        #[cfg(feature = "prometheus")]
        self.working.tell(state);
    }

    /// How far an engine is that measures.
    pub(crate) fn show(&mut self, event: &Event<'_>) {
        match event {
            Event::WarmedUp { case, .. } if self.samples == 0 => self.tell(|| format!("warms up {}", case.key())),
            Event::Sampled { sample, .. } => {
                self.samples += 1;
                let n = self.samples;
                self.tell(|| {
                    format!("{n} {}, last of {}", if n == 1 { "sample" } else { "samples" }, sample.case.key())
                });
            }
            _ => {}
        }
    }
}
