//! What measuring models, kernels and peaks have in common: the study, what is read beside samples, Ctrl-C, progress.

use super::environment::{environment, record};
use super::pace::{Lines, left};
use crate::at_work::AtWork;
use crate::interrupts::on_interrupt;
use crate::output::note;
use crate::progress::Progress;
use anyhow::{Context, Result};
use candle_core::Device;
use candlescope::Scope;
use candlescope_core::files::lock_directory;
use candlescope_figures::PRICE_PER_HOUR;
use candlescope_lab::method::{Cancel, Event, HostSurroundings, MeasurementEnd, Method, NoSurroundings, Surroundings};
use candlescope_lab::operands::Element;
use candlescope_lab::peaks::{DeviceIdentity, DeviceKind};
use candlescope_lab::study::{Facts, Journal, Manifest, ProcessStart, State, Study};
use candlescope_lab::suites::Recorder;
use serde_json::{Map, Value};
use std::fs::File;
use std::path::Path;
use std::time::{Duration, Instant};

/// Signals this close together are one interrupt.
const ONE_INTERRUPT: Duration = Duration::from_millis(500);

/// Element types by name.
pub(super) fn elements(names: &[String]) -> Result<Vec<Element>> {
    let known = || Element::ALL.map(Element::name).join(", ");
    let parse = |name: &String| {
        Element::parse(name.trim()).with_context(|| format!("dtype `{name}` is not known; types are {}", known()))
    };
    names.iter().map(parse).collect()
}

/// Locks the directory of a study for as long as a command measures into it: of two commands, each would number its
/// process starts without those of the other. A new study's directory is made. The processes that a command starts
/// measure for it, and take no lock.
pub(crate) fn lock(out: &Path, resume: bool) -> Result<Option<File>> {
    if !resume {
        // One that cannot be made is an error of the study.
        let _ = std::fs::create_dir_all(out);
    }
    lock_directory(out).with_context(|| {
        format!(
            "cannot measure into {}: wait until the other command has ended, or name another directory with --out",
            out.display()
        )
    })
}

/// A study in `out`: a new one, or the one that is gone on with.
pub(super) fn study(out: &Path, resume: bool, manifest: Manifest) -> Result<Study> {
    Ok(if resume { Study::resume(out, &manifest)? } else { Study::create(out, manifest)? })
}

/// Notes in `study.json` that a process begins with this round of the plan, or its recorded part.
pub(crate) fn begin(study: &mut Study, process: u32, round: u32, profiled: bool) -> Result<()> {
    let started_ns = candlescope_core::HostNs::now().0;
    let start = ProcessStart { process, round, profiled, started_ns, ended: false };
    Ok(study.update(|manifest| {
        manifest.state = State::Running;
        manifest.processes.push(start);
    })?)
}

/// Notes that it has ended as it should.
pub(crate) fn end(study: &mut Study, process: u32) -> Result<()> {
    Ok(study.update(|manifest| {
        let own = manifest.processes.iter_mut().filter(|start| start.process == process);
        own.for_each(|start| start.ended = true);
    })?)
}

/// What `study.json` says of a study whose measurement ended like this; `None` where it failed.
pub(crate) fn state(ended: Option<MeasurementEnd>) -> State {
    match ended {
        Some(MeasurementEnd::Done) => State::Done,
        Some(MeasurementEnd::Cancelled) => State::Cancelled,
        None => State::Failed,
    }
}

/// What is read beside samples: a GPU's clocks by NVML, which knows it by its UUID, or the processor's.
pub(super) fn surroundings(device: &DeviceIdentity) -> Box<dyn Surroundings> {
    match device.kind {
        DeviceKind::Cpu => Box::new(HostSurroundings::new()),
        #[cfg(feature = "gpu")]
        DeviceKind::Cuda => match candlescope_lab::method::GpuSurroundings::new(device.id.as_str()) {
            Ok(gpu) => Box::new(gpu),
            Err(_) => Box::new(NoSurroundings),
        },
        #[cfg(not(feature = "gpu"))]
        DeviceKind::Cuda => Box::new(NoSurroundings),
    }
}

/// The same for a device by the name that it is asked for; nothing if no device of that name can be told apart, because
/// nothing is better than another GPU's clock.
pub(crate) fn surroundings_of(device: &str) -> Box<dyn Surroundings> {
    match DeviceIdentity::of(device) {
        Ok(identity) => surroundings(&identity),
        Err(_) => Box::new(NoSurroundings),
    }
}

/// How a round measures, or the process start that is recorded.
pub(super) fn method_of(manifest: &Manifest, round: u32, recorded: bool) -> Method {
    let plan = manifest.method.round(round.min(manifest.rounds.saturating_sub(1)));
    match recorded {
        false => plan.profiled_runs(0),
        // Warm, and then recorded: plain samples come from the other starts.
        true => plan.runs(Some(0)).warmup_min(1).warmup_max(1),
    }
}

/// The session of a process start that is recorded, with what records its cases. To be called before the model loads,
/// because spans are made then.
pub(super) fn recording(
    study: &Study,
    device: &str,
    own_stream: Option<&Device>,
    recorded: bool,
) -> Result<(Option<Scope>, Option<Recorder>)> {
    let price = study.manifest().options.get(PRICE_PER_HOUR);
    let scope = recorded.then(|| record(device, own_stream, price)).transpose()?;
    let handle = scope.as_ref().and_then(Scope::handle).cloned();
    let recorder = handle.map(|handle| Recorder::new(handle, study.dir()));
    Ok((scope, recorder))
}

/// What is read beside the samples of a round, and the journal for these, in which the model and the machine are noted.
/// A session learns of the model as well.
pub(super) fn surroundings_and_journal(
    study: &Study,
    device: &str,
    model: Map<String, Value>,
    scope: Option<&Scope>,
) -> Result<(Box<dyn Surroundings>, Journal)> {
    if let Some(handle) = scope.and_then(Scope::handle) {
        for (key, value) in &model {
            handle.set_model(key, value.clone());
        }
    }
    let surroundings = surroundings_of(device);
    let mut journal = study.journal()?;
    journal.facts(Facts { model, environment: environment(device), surroundings: surroundings.source() })?;
    Ok((surroundings, journal))
}

/// What is said where measuring stops after the repetition under way.
pub(crate) fn last_repetition() {
    note("interrupted: the repetition under way is the last one; once more ends at once");
}

/// A flag that the first interrupt sets, which calls `told` as well: what was measured is kept. A later one ends the
/// program at once; samples are in the journal already.
pub(crate) fn cancel_on_interrupt(told: impl Fn() + Send + 'static) -> Cancel {
    let cancel = Cancel::new();
    let flag = cancel.clone();
    let installed = on_interrupt(ONE_INTERRUPT, move || {
        told();
        flag.cancel();
    });
    if let Err(error) = installed {
        note(&format!("warning: an interrupt will end the measurement without its tables: {error}"));
    }
    cancel
}

/// Shows what happens. Where what happens is the `whole`, and not one batch of a search, it says how much is left.
pub(crate) fn watch(progress: &Progress, whole: bool) -> impl FnMut(&Event<'_>) + '_ {
    let mut work = AtWork::on_command();
    let lines = Lines::new(progress.in_lines(), Duration::ZERO);
    let tell = move |text: &str| {
        progress.wait(&crate::output::printable(text));
        lines.tell(|| text.to_string());
    };
    let began = Instant::now();
    move |event| {
        work.show(event);
        match event {
            Event::Disturbed(sentences) => sentences.iter().for_each(|sentence| note(&format!("warning: {sentence}"))),
            Event::WarmedUp { case, took, .. } => {
                tell(&format!("{} warms up, {:.1} s a repetition", case.key(), took.as_secs_f64()));
            }
            Event::Sampled { sample, share } => {
                let left = left(began.elapsed(), *share)
                    .filter(|_| whole)
                    .map_or_else(String::new, |left| format!(", {left}"));
                tell(&format!("{:3.0} %{left}: {}", share * 100.0, sample.case.key()));
            }
            _ => {}
        }
    }
}

/// Says so where the program's own loops are slower than they could be.
pub(crate) fn warn_of_debug_build() {
    if cfg!(debug_assertions) {
        note("warning: this program is built without full optimisation; for figures of a CPU, build it with --release");
    }
}

/// The exit status of a study that was interrupted.
pub(super) fn interrupted(out: &Path) -> u8 {
    note(&format!("interrupted: {} keeps what was measured", out.display()));
    130
}
