//! The kernels that a model's steps are made of, for `bench kernels --for`.

use crate::output::note;
use crate::roofline::{is_run, usual_format};
use crate::roofline_model::AskedModel;
use crate::warnings::warn;
use anyhow::{Context, Result, bail, ensure};
use candlescope_figures::Analysis;
use candlescope_lab::kernels::{KernelCase, KernelError};
use candlescope_lab::peaks::{DeviceIdentity, DeviceKind};
use candlescope_predict::roofline::{Outlook, RunRoofline, Scenario, Thresholds};
use candlescope_reader::Run;
use candlescope_work::devices::{Device, Format, known_device, peaks_device};
use serde_json::json;
use std::path::Path;

/// A model, or a run of one, and what is asked of it.
pub(super) struct KernelQuestion<'a> {
    pub(super) target: &'a str,
    /// Format of the weights.
    pub(super) dtype: &'a [String],
    pub(super) batch: Option<u64>,
    pub(super) prompt: Option<u64>,
    pub(super) context: Option<u64>,
}

/// A case for each shape of the prompts' step and of a token's.
pub(super) fn cases(asked: &KernelQuestion<'_>, on: &DeviceIdentity) -> Result<Vec<KernelCase>> {
    let device = device(on)?;
    let outlook = match is_run(Path::new(asked.target)) {
        true => of_run(asked, &device)?,
        false => of_model(asked, &device)?,
    };
    let (mut cases, mut without) = (Vec::new(), Vec::new());
    for wanted in outlook.kernels() {
        match KernelCase::named(wanted.op, wanted.dtype, &wanted.sizes) {
            Ok(case) => cases.push(case),
            Err(error @ KernelError::Element { .. }) => without.push(error.to_string()),
            Err(error) => return Err(error.into()),
        }
    }
    ensure!(
        !cases.is_empty(),
        "`{}` has no kernels that can be measured: it has an encoder, or weights of a type for which there are none",
        asked.target
    );
    if let Some(first) = without.first() {
        note(&format!("note: {} shapes are left out: {first}", without.len()));
    }
    Ok(cases)
}

fn of_model(asked: &KernelQuestion<'_>, device: &Device) -> Result<Outlook> {
    let model = AskedModel::of(asked.target)?;
    let dtype = match asked.dtype {
        [] => model.format.as_deref().unwrap_or(usual_format(device)),
        [one] => one.as_str(),
        _ => bail!("with --for, --dtype is the one format of the weights: name one"),
    };
    let scenario = Scenario::new(Format::named(dtype)?)
        .batch(asked.batch.unwrap_or(1))
        .tokens(asked.prompt.unwrap_or(512), 128)
        .context(asked.context);
    Ok(Outlook::of(&model.shape, device, &scenario))
}

fn of_run(asked: &KernelQuestion<'_>, device: &Device) -> Result<Outlook> {
    let given = [("--batch", asked.batch), ("--prompt", asked.prompt), ("--context", asked.context)];
    if let Some((name, _)) = given.iter().find(|(_, given)| given.is_some()) {
        bail!("{name} cannot be given with a run, which says itself what it ran; leave it out");
    }
    ensure!(asked.dtype.is_empty(), "--dtype cannot be given with a run, which says itself what it ran; leave it out");
    let run = Run::open(asked.target)?;
    let analysis = Analysis::of(&run);
    warn(&analysis.noticed);
    let measured = RunRoofline::of(&run, &analysis, Some(device), &Thresholds::default());
    let lacks = measured.outlook_missing;
    measured.outlook.with_context(|| {
        format!("the kernels of `{}` are not known: the run lacks {}", asked.target, lacks.unwrap_or_default())
    })
}

/// Which kernels there are depends on the kind of the device, not on how fast it is.
fn device(on: &DeviceIdentity) -> Result<Device> {
    if let Ok(known) = known_device(&on.name) {
        return Ok(known);
    }
    let kind = if on.kind == DeviceKind::Cpu { "cpu" } else { "gpu" };
    let any = json!({
        "name": on.name, "kind": kind, "bandwidth": 1e12, "flops": { "f32": 1e12, "f16": 1e12, "bf16": 1e12 },
    });
    Ok(peaks_device(&any.to_string(), None)?)
}
