//! The parts of a full analysis, one after the other, and the report that names them.

use super::{AnalyzeChoices, FullArgs};
use crate::args::ProfileArgs;
use crate::conf::Flags;
use crate::conf_args::ConfArgs;
use crate::limits::limits;
use crate::options::{composed, resolve};
use crate::out_dir::must_be_empty;
use crate::output::say;
use crate::profile::{RecordedGeneration, lost, record};
use crate::roofline::{pretty, write};
use crate::warnings::warn;
use anyhow::{Context, Result};
use candlescope_core::beside_run::{DYNAMIC_ANALYSIS, REPORT_PAGE, REPORT_TEXT, ROOFLINE_PAGE, STATIC_ANALYSIS};
use candlescope_core::files::read_text_limited;
use candlescope_document::{Document, html, markdown};
use candlescope_findings::{Analyzed, analyze};
use candlescope_predict::roofline::{RunRoofline, Thresholds};
use candlescope_reader::Run;
use candlescope_report::advice;
use candlescope_report::full::{Front, Part, document};
use candlescope_report::roofline as render;
use candlescope_report::{ReportOptions, ReportOutput, write_report};
use candlescope_work::devices::{Device, known_device, peaks_device};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// The largest peaks file that is read: a thousand times what one holds.
const MOST_BYTES: u64 = 16 << 20;
/// Seconds of generation unless told otherwise.
const SECONDS: f64 = 300.0;
/// Columns of the texts in the report.
const WIDTH: usize = 120;
/// Steps whose kernels are recorded on a GPU unless --set says otherwise: five of a hundred.
const KERNELS: &str = "5/100";

pub(crate) fn run(args: &FullArgs, model: &str, shown: &AnalyzeChoices<'_>) -> Result<()> {
    let device = device(args, shown.peaks)?;
    let limits = limits(shown.limits)?;
    let out = args.out.clone().unwrap_or_else(|| {
        PathBuf::from("runs").join(format!("full-{}", candlescope_core::HostNs::now().0 / 1_000_000))
    });
    must_be_empty(&out, "")?;
    let dir = out.join("run");
    let recorded = generate(args, model, &dir, !args.no_progress && !shown.json.is_json())?;
    let report = write_report(&dir, &ReportOptions { limits: limits.clone(), ..ReportOptions::default() })?;
    let run = Run::open_within(&dir, limits)?;
    let analyzed = analyze(&run, shown.options);
    let measured = RunRoofline::of(&run, &analyzed.analysis, device.as_ref(), &Thresholds::default());
    let whole = FullReport { model, args, report: &report, analyzed: &analyzed, measured: &measured, top: shown.top };
    let mut object = whole.object();
    let files = whole.write(&out, &object)?;
    warn(&analyzed.seen);
    object["out"] = json!(out);
    object["files"] = json!(files);
    if !shown.json.say(&object, || whole.document())? {
        say(report.summary.trim_end())?;
        say(&format!("\n{}", whole.findings().trim_end()))?;
        say(&format!("\nFolder: {}   Report: {}", out.display(), out.join(REPORT_PAGE).display()))?;
    }
    lost(&recorded.manifest)
}

/// The device that is predicted for: the named one, with peaks from a file if there is one. Without either, the run
/// says which it had.
fn device(args: &FullArgs, peaks: Option<&Path>) -> Result<Option<Device>> {
    let known = args.gpu.as_deref().map(known_device).transpose()?;
    let Some(path) = peaks else { return Ok(known) };
    let named = || format!("in `{}`", path.display());
    let text = read_text_limited(path, MOST_BYTES).with_context(named)?;
    Ok(Some(peaks_device(&text, known).with_context(named)?))
}

/// Generates for the time, recorded as `profile` does it.
fn generate(args: &FullArgs, model: &str, dir: &Path, progress: bool) -> Result<RecordedGeneration> {
    let device = args.device.as_deref().unwrap_or("cpu");
    let on_gpu = device.starts_with("cuda");
    let told = args.set.iter().any(|set| set.starts_with("cupti"));
    let mut flags = Flags::default().with("model", model)?.with("device", device)?;
    if on_gpu && !told {
        flags = flags.with("cupti", KERNELS)?;
    }
    let profile = ProfileArgs {
        flags,
        conf: ConfArgs::default(),
        config: None,
        set: args.set.clone(),
        json: true,
        no_progress: true,
    };
    let combinations = composed(&profile)?;
    let first = combinations.first().context("--set describes no run: leave it out")?;
    let mut options = resolve(first)?;
    options.given.above.out = Some(dir.to_path_buf());
    options.duration_s = Some(args.duration.unwrap_or(SECONDS));
    record(&options, progress)
}

/// Everything there is to tell.
struct FullReport<'a> {
    model: &'a str,
    args: &'a FullArgs,
    report: &'a ReportOutput,
    analyzed: &'a Analyzed,
    measured: &'a RunRoofline,
    top: usize,
}

impl FullReport<'_> {
    fn device(&self) -> &str {
        self.args.device.as_deref().unwrap_or("cpu")
    }

    fn seconds(&self) -> f64 {
        self.args.duration.unwrap_or(SECONDS)
    }

    fn title(&self) -> String {
        format!("{} on {}, {} s", self.model, self.device(), self.seconds())
    }

    fn prediction(&self) -> String {
        match (&self.measured.outlook, &self.measured.outlook_missing) {
            (Some(outlook), _) => render::static_text(outlook, WIDTH),
            (None, missing) => {
                format!("No prediction: the run lacks {}.", missing.as_deref().unwrap_or("peaks of its device"))
            }
        }
    }

    /// The prediction beside what was measured. No device is faster than what it allows: the peaks are too low then.
    fn predicted_sentence(&self) -> Option<String> {
        let sentence = render::run_sentence(self.measured)?;
        let faster = self.measured.comparisons.iter().any(|c| too_low(c.predicted_ns.low, c.measured_ns));
        let beware = "; what was measured is faster than that: the peaks are too low, measure them again while nothing else \
                      runs (`candlescope bench peaks`)";
        Some(if faster { sentence + beware } else { sentence })
    }

    fn against(&self) -> String {
        render::dynamic_text(std::slice::from_ref(self.measured), None, WIDTH)
    }

    fn findings(&self) -> String {
        match &self.analyzed.analysis.diagnosis {
            Some(diagnosis) => advice::text(&diagnosis.clone().top(self.top)),
            None => "Nothing was diagnosed.".to_string(),
        }
    }

    fn object(&self) -> Value {
        let diagnosis = self.analyzed.analysis.diagnosis.as_ref();
        let found = diagnosis.map(|diagnosis| advice::json(&diagnosis.clone().top(self.top)));
        json!({
            "schema": 1,
            "model": self.model,
            "device": self.device(),
            "duration_s": self.seconds(),
            "static": self.measured.outlook.as_ref().map(render::static_json),
            "static_missing": self.measured.outlook_missing,
            "dynamic": render::dynamic_json(std::slice::from_ref(self.measured), None),
            "metrics": self.report.metrics,
            "findings": found.as_ref().map_or_else(|| json!([]), |found| found["findings"].clone()),
            "abstained": found.as_ref().map_or_else(|| json!([]), |found| found["abstained"].clone()),
        })
    }

    /// What `report.html` and `report.md` show.
    fn document(&self) -> Document {
        let static_file = if self.measured.outlook.is_some() { &[STATIC_ANALYSIS][..] } else { &[] };
        let parts = [
            Part::new("What the device allows", self.prediction(), static_file),
            Part::new("What was measured", self.report.summary.clone(), &["run/report.html", "run/metrics.json"]),
            Part::new("Measured against predicted", self.against(), &[ROOFLINE_PAGE, DYNAMIC_ANALYSIS]),
            Part::new("What to change", self.findings(), &["findings.json", "run/report.html"]),
        ];
        let front =
            Front::of(&self.analyzed.analysis).predicted(self.predicted_sentence(), render::run_chart(self.measured));
        document(&self.title(), &front, &parts)
    }

    fn write(&self, out: &Path, object: &Value) -> Result<Vec<PathBuf>> {
        let document = self.document();
        let findings = json!({ "schema": 1, "findings": object["findings"], "abstained": object["abstained"] });
        let roofline = render::dynamic_document(std::slice::from_ref(self.measured), None);
        let mut contents = vec![
            (REPORT_PAGE, html::page(&document)),
            (REPORT_TEXT, markdown::draw(&document)),
            (DYNAMIC_ANALYSIS, pretty(&object["dynamic"])),
            (ROOFLINE_PAGE, html::page(&roofline)),
            ("findings.json", pretty(&findings)),
        ];
        if self.measured.outlook.is_some() {
            contents.push((STATIC_ANALYSIS, pretty(&object["static"])));
        }
        let mut files = write(out, &contents)?;
        files.extend(self.report.files.iter().cloned());
        Ok(files)
    }
}

/// Whether a prediction says that the device allows no such time as was measured, beyond what a median may be off by.
fn too_low(predicted_ns: f64, measured_ns: f64) -> bool {
    predicted_ns > 1.1 * measured_ns
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_prediction_above_the_measurement_is_told() {
        assert!(super::too_low(798e3, 367e3));
        assert!(!super::too_low(367e3, 367e3) && !super::too_low(100e3, 367e3));
    }
}
