//! `candlescope tune batch`.

use super::course::Course;
use super::tune_args::{BatchArgs, MetricArg};
use crate::bench::THREADS;
use crate::bench::environment::environment;
use crate::bench::operations::{
    begin, cancel_on_interrupt, end, last_repetition, lock, state, surroundings_of, warn_of_debug_build, watch,
};
use crate::options::MAX_BATCH;
use crate::output::{note, printable, say};
use crate::progress::Progress;
use crate::threads::Threads;
use anyhow::{Context, Result, bail};
use candlescope_core::beside_run::REPORT_PAGE;
use candlescope_core::files::read_text_limited;
use candlescope_document::Document;
use candlescope_lab::method::MeasurementEnd;
use candlescope_lab::peaks::{DeviceIdentity, load, to_json};
use candlescope_lab::study::{Manifest, Study};
use candlescope_lab::suites::{LmOptions, ModelHost, Shape};
use candlescope_lab::tune::{
    BatchReason, Goal, Metric, Prediction, Stop, TuneDriver, TuneOptions, TuneOutcome, lines, nearest_words, tune,
    write_tuned,
};
use candlescope_models::LoadOptions;
use candlescope_work::devices::{Device, known_device, peaks_device};
use serde_json::{Map, Value, json};
use std::path::Path;
use std::time::Duration;

/// The largest peaks file that is read: a thousand times what one holds.
const MOST_BYTES: u64 = 16 << 20;

pub(super) fn run(args: &BatchArgs) -> Result<u8> {
    let options = options(args)?;
    // What is wrong with the words is found out before a directory is made.
    options.check()?;
    let price = crate::price::price_of(args.price_per_hour)?;
    crate::threads::settle(args.subject.threads, Some(&args.subject.model))?;
    let device = crate::device::device(&args.subject.device)?;
    let load = LoadOptions {
        slots: None,
        device,
        dtype: args.subject.dtype.as_deref().map(crate::device::dtype).transpose()?,
        dequantize: args.subject.dequantize,
        quantize: None,
        seed: args.seed,
        engine: crate::device::engine(&args.subject.engine)?,
        kv_cache_dtype: crate::device::kv_cache_dtype_or_auto(args.subject.kv_cache_dtype.as_deref())?,
    };
    let peaks = peaks(args)?;
    crate::threads::start_pool()?;
    warn_of_debug_build();
    let progress = Progress::new(!args.no_progress && !args.json.is_json());
    progress.wait(&printable(&format!("loading {}", args.subject.model)));
    let cancel = cancel_on_interrupt(last_repetition);
    let host = ModelHost::new(&options.lm, load)?.cancel(&cancel);
    let mut plan = manifest(args, &options);
    args.subject.settle_threads(&mut plan)?;
    let out = crate::out_dir::chosen(args.out.as_deref(), "tune-batch", false)?;
    let _lock = lock(&out, false)?;
    let mut study = Study::create(&out, plan)?;
    begin(&mut study, 0, 0, false)?;
    let mut around = surroundings_of(&args.subject.device);
    let mut observe = watch(&progress, false);
    let mut course = Course::new(args);
    let mut chosen = |batches: &[u64], why: Option<BatchReason>| tell(&progress, args, &mut course, batches, why);
    let driver = TuneDriver {
        surroundings: around.as_mut(),
        cancel,
        observe: &mut observe,
        chosen: &mut chosen,
        environment: environment(&args.subject.device),
    };
    let range = (options.start, options.end);
    let predict = |facts: &Map<String, Value>| match &peaks {
        Ok(device) => Prediction::of(facts, device, range, (options.lm.throughput.prompt as u64, options.output())),
        Err(why) => Prediction::none(why),
    };
    let outcome = tune(&options, host, predict, &mut study, driver);
    progress.clear();
    if outcome.is_err() && study.records()?.samples.is_empty() {
        // An empty study would only be in the way of the next try.
        study.discard();
        return Err(outcome.map_or_else(Into::into, |_| anyhow::anyhow!("nothing was measured")));
    }
    end(&mut study, 0)?;
    let ended = |tuned: &TuneOutcome| {
        if tuned.stop == Stop::Cancelled { MeasurementEnd::Cancelled } else { MeasurementEnd::Done }
    };
    let records = study.finish(state(outcome.as_ref().ok().map(ended)))?;
    let kept = || format!("what was measured until then is in {}", out.display());
    let tuned = outcome.with_context(kept)?.priced(price);
    let document = write_tuned(&study, &tuned, &records)?;
    show(args, &study, &tuned, document)
}

/// Says on standard error which batch comes next: a search takes minutes, and its course is a result.
fn tell(progress: &Progress, args: &BatchArgs, course: &mut Course, batches: &[u64], why: Option<BatchReason>) {
    let left = course.next(why.is_some()).map_or_else(String::new, |left| format!(" ({left})"));
    if args.json.is_json() {
        return;
    }
    let list: Vec<String> = batches.iter().map(u64::to_string).collect();
    progress.aside(|| match why {
        Some(why) => note(&format!("measuring a batch of {}: {}{left}", list.join(", "), why.words())),
        None => note(&format!("measuring again, side by side: {}{left}", list.join(", "))),
    });
}

fn options(args: &BatchArgs) -> Result<TuneOptions> {
    if args.end > MAX_BATCH as u64 {
        bail!("--end is {}; at most {MAX_BATCH} sequences can be asked for", args.end);
    }
    args.subject.check()?;
    let mut lm = if args.quick { LmOptions::quick() } else { LmOptions::default() };
    let shape = Shape {
        prompt: args.prompt_tokens.unwrap_or(lm.throughput.prompt),
        output: args.output_tokens.unwrap_or(lm.throughput.output),
    };
    if shape.prompt == 0 || shape.output == 0 {
        bail!("--prompt-tokens and --output-tokens must be at least 1");
    }
    lm.throughput = shape;
    args.subject.tell(&mut lm)?;
    lm.seed = args.seed;
    lm.memory_limit = args.memory_limit.map(|mib| mib.saturating_mul(1 << 20));
    let metric = match args.metric {
        MetricArg::Throughput => Metric::Throughput,
        MetricArg::Latency => Metric::Latency,
        MetricArg::Goodput => Metric::Goodput,
    };
    let goal = Goal { metric, slo: args.slo.unwrap_or_default() };
    if let Some(limit) = goal.slo.percentiles().next() {
        bail!(
            "--slo limits {limit}, and a batch is measured by a few repetitions, of which there is no such percentile: limit {} itself, \
             or put a load on a server (candlescope load --slo)",
            limit.figure.as_str()
        );
    }
    let seconds = args.time_limit.unwrap_or(if args.quick { 2 } else { 20 });
    Ok(TuneOptions::new(lm, (args.start, args.end), goal)
        .points(args.points as usize)
        .time_limit(Duration::from_secs(seconds))
        .runs(args.runs.or(args.quick.then_some(3))))
}

/// The device to predict with: of a file that was named, as `bench peaks` keeps it, or by its datasheet. The inner error
/// says why there is none; then batches are expected from those measured before them.
fn peaks(args: &BatchArgs) -> Result<Result<Device, String>> {
    let identity = DeviceIdentity::of(&args.subject.device);
    let known = identity.as_ref().ok().and_then(|identity| known_device(&identity.name).ok());
    if let Some(path) = &args.peaks {
        let named = || format!("in `{}`", path.display());
        let text = read_text_limited(path, MOST_BYTES).with_context(named)?;
        return Ok(Ok(peaks_device(&text, known).with_context(named)?));
    }
    let identity = match identity {
        Ok(identity) => identity,
        Err(error) => return Ok(Err(error.to_string())),
    };
    if let Some(kept) = load(&identity)? {
        return Ok(peaks_device(&to_json(&kept).to_string(), known).map_err(|error| error.to_string()));
    }
    Ok(known.ok_or_else(|| {
        format!("{} is in no table of datasheets; `candlescope bench peaks` measures what it reaches", identity.name)
    }))
}

fn manifest(args: &BatchArgs, options: &TuneOptions) -> Manifest {
    let [_, method] = options.methods();
    let mut manifest = Manifest::new(format!("tune batch of {}", args.subject.model), Vec::new(), &method);
    if let Ok(Value::Object(map)) = serde_json::to_value(&options.lm) {
        manifest.options = map;
    }
    // The batches are what is looked for.
    manifest.options.remove("batches");
    manifest.option(
        "tune",
        json!({
            "start": options.start, "end": options.end, "metric": options.goal.metric, "slo": options.goal.slo,
            "points": options.points, "runs": options.runs,
        }),
    )
}

fn show(args: &BatchArgs, study: &Study, tuned: &TuneOutcome, document: Document) -> Result<u8> {
    let dir: &Path = study.dir();
    let mut object = serde_json::to_value(tuned)?;
    object["study"] = json!(dir);
    object[THREADS] = json!(crate::threads::settled().map(|threads| threads.number));
    if !args.json.say(&object, || document)? {
        if let Some(words) = crate::threads::settled().map(Threads::words) {
            say(&words)?;
        }
        lines(tuned).iter().try_for_each(|line| say(line))?;
        say(&format!("Study: {}   Report: {}", dir.display(), dir.join(REPORT_PAGE).display()))?;
    }
    match tuned.stop {
        Stop::Cancelled => {
            note(&format!("interrupted: {} keeps what was measured", dir.display()));
            Ok(130)
        }
        _ if tuned.best.is_some() => Ok(0),
        _ => match nearest_words(tuned) {
            Some(words) if tuned.start > 1 => bail!("{words}; loosen --slo, or begin below --start {}", tuned.start),
            Some(words) => bail!("{words}; loosen --slo"),
            None => bail!(
                "not even a batch of {} fits: {}",
                tuned.start,
                tuned.points.iter().find_map(|point| point.detail.as_deref()).unwrap_or("no reason was given")
            ),
        },
    }
}
