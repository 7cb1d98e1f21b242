//! Measures what a search asks for.

use super::charts::charts;
use super::forecast::{Forecast, Latency};
use super::goal::{BatchFigures, Goal, Metric};
use super::outcome::{ChosenBatch, MemoryPressure, TuneOutcome};
use super::prediction::Prediction;
use super::search::{Attempt, BatchReason, Next, Search, Stop};
use super::tune_options::TuneOptions;
use super::tune_page::document;
use crate::method::{
    Cancel, CaseId, Engine, Event, MeasurementEnd, Method, Mode, Reading, SinkError, StopReason, Surroundings,
};
use crate::study::{CaseSummary, Facts, Records, Study, StudyError, summaries};
use crate::suites::{HostError, LmOptions, ModelHost, SuiteName, cases, throughput_table};
use candlescope_core::beside_run::{REPORT_PAGE, REPORT_TEXT};
use candlescope_core::run::model_key;
use candlescope_document::{Document, html, markdown};
use candlescope_figures::Price;
use candlescope_figures::stats::Distribution;
use serde_json::{Map, Value};
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use std::time::Duration;

/// Why a batch cannot be tuned.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "its messages say what the fields are")]
pub enum TuneError {
    /// The range is none.
    #[error(
        "the range starts at {start} and ends at {end}: give a start of at least 1, and an end that is not below it"
    )]
    Range { start: u64, end: u64 },
    /// The metric is goodput, and the service level has no limit.
    #[error("goodput counts requests that keep a service level: give one, as in --slo ttft=200ms,tpot=50ms")]
    NoSlo,
    /// The weights are more than there is room for.
    #[error("the model does not fit: {0}")]
    DoesNotFit(String),
    /// The model cannot be loaded.
    #[error(transparent)]
    Host(#[from] HostError),
    /// A batch failed for another reason than memory.
    #[error("a batch of {batch} failed: {detail}")]
    Failed { batch: u64, detail: String },
    /// The study cannot be written.
    #[error(transparent)]
    Study(#[from] StudyError),
    /// A sample cannot be kept.
    #[error(transparent)]
    Sink(#[from] SinkError),
}

/// What drives the measurement.
pub struct TuneDriver<'a> {
    /// What is read beside samples.
    pub surroundings: &'a mut dyn Surroundings,
    /// Ends the search when it is set, which gives [`Stop::Cancelled`] and what was found by then.
    pub cancel: Cancel,
    /// Told what the engine does.
    pub observe: &'a mut dyn FnMut(&Event<'_>),
    /// Told which batches are measured next, and why; `None` for the second pass.
    pub chosen: &'a mut dyn FnMut(&[u64], Option<BatchReason>),
    /// Facts about the machine.
    pub environment: Map<String, Value>,
}

impl std::fmt::Debug for TuneDriver<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TuneDriver").finish_non_exhaustive()
    }
}

impl TuneOptions {
    /// Checks what can be known before anything is loaded.
    ///
    /// # Errors
    /// When the range is none, or goodput has no limits.
    pub fn check(&self) -> Result<(), TuneError> {
        if self.start == 0 || self.start > self.end {
            return Err(TuneError::Range { start: self.start, end: self.end });
        }
        if self.goal.metric == Metric::Goodput && !self.goal.limits() {
            return Err(TuneError::NoSlo);
        }
        Ok(())
    }

    /// The case of a batch.
    fn case(&self, batch: u64) -> CaseId {
        self.of(&[batch]).case_ids().swap_remove(0)
    }

    fn of(&self, batches: &[u64]) -> LmOptions {
        let mut options = self.lm.clone();
        options.suites = vec![SuiteName::Throughput];
        options.batches = batches.iter().map(|batch| *batch as usize).collect();
        options
    }

    /// The method of the first pass, which tells batches apart, and of the second, which decides among the best.
    pub fn methods(&self) -> [Method; 2] {
        let first = Method::quick().time_limit(self.time_limit.mul_f64(0.3)).runs(self.runs);
        let second = Method::default().time_limit(self.time_limit.mul_f64(0.7)).runs(self.runs).warmup_min(1);
        [first, second].map(|method| method.seed(self.lm.seed))
    }
}

/// Finds the best batch: loads the model of `host`, predicts with `predict` from the model's facts, measures what the
/// search asks for, then the best few side by side. Samples go to the journal of `study`, one by one.
///
/// # Errors
/// When the options are none, the model does not fit or cannot be loaded, a batch fails for another reason than memory,
/// or a sample cannot be kept. What was measured until then is in the study's journal.
pub fn tune(
    options: &TuneOptions,
    mut host: ModelHost,
    predict: impl FnOnce(&Map<String, Value>) -> Prediction,
    study: &mut Study,
    driver: TuneDriver<'_>,
) -> Result<TuneOutcome, TuneError> {
    options.check()?;
    host.load()?;
    if let Some(why) = host.refused() {
        return Err(TuneError::DoesNotFit(why.to_string()));
    }
    let facts = host.facts();
    let (range, tokens) = ((options.start, options.end), (options.lm.throughput.prompt as u64, options.output()));
    let prediction = predict(&facts);
    let memory = memory(&host, options, &facts);
    let source = driver.surroundings.source();
    study.journal()?.facts(Facts { model: facts, environment: driver.environment.clone(), surroundings: source })?;
    let forecast = Forecast::new(options.output(), prediction.latencies.clone());
    let mut measuring = MeasuringSearch {
        options,
        host: Rc::new(RefCell::new(host)),
        study,
        driver,
        search: Search::new(options.goal, range, options.points, options.output(), forecast),
        chosen: BTreeMap::new(),
        disturbances_told: false,
    };
    let stop = measuring.run()?;
    let MeasuringSearch { search, chosen, .. } = measuring;
    Ok(TuneOutcome::of(&search, (options.goal, stop), (range, tokens), &chosen, prediction, memory))
}

/// Writes what was found: `tune.json`, `throughput_results.csv`, the charts, `report.html` and `report.md`. Returns what the
/// last two show.
///
/// # Errors
/// When a file cannot be written.
pub fn write_tuned(study: &Study, tuned: &TuneOutcome, records: &Records) -> Result<Document, StudyError> {
    let manifest = study.manifest();
    let summaries = summaries(&manifest.cases, records);
    let price = tuned.usd_per_hour.and_then(Price::given);
    study.write("throughput_results.csv", throughput_table(&summaries, price).csv().as_bytes())?;
    let text = serde_json::to_string_pretty(tuned).unwrap_or_default();
    study.write("tune.json", text.as_bytes())?;
    let mut drawn = Vec::new();
    for chart in charts(tuned) {
        drawn.extend(study.write_chart(&chart)?);
    }
    let document = document(manifest, tuned, &drawn);
    study.write(REPORT_PAGE, html::page(&document).as_bytes())?;
    study.write(REPORT_TEXT, markdown::draw(&document).as_bytes())?;
    Ok(document)
}

fn memory(host: &ModelHost, options: &TuneOptions, facts: &Map<String, Value>) -> MemoryPressure {
    let shape = options.lm.throughput;
    let need = |batch: u64| Some((batch, host.need(batch as usize, shape.prompt, shape.output)?));
    let needs: BTreeMap<u64, u64> = (options.start..=options.end).filter_map(need).collect();
    let available_bytes = host.available();
    let fits = |need: u64| available_bytes.is_some_and(|there| need <= there);
    MemoryPressure {
        weight_bytes: model_key::WEIGHT_BYTES.of(facts),
        available_bytes,
        largest_predicted: needs.iter().rev().find(|(_, need)| fits(**need)).map(|(batch, _)| *batch),
        needs,
        ..MemoryPressure::default()
    }
}

/// A search, and what measures for it.
struct MeasuringSearch<'a, 'd> {
    options: &'a TuneOptions,
    host: Rc<RefCell<ModelHost>>,
    study: &'a mut Study,
    driver: TuneDriver<'d>,
    search: Search,
    chosen: BTreeMap<u64, ChosenBatch>,
    disturbances_told: bool,
}

impl MeasuringSearch<'_, '_> {
    fn run(&mut self) -> Result<Stop, TuneError> {
        let [first, second] = self.options.methods();
        let stop = loop {
            let (batch, why) = match self.search.next() {
                Next::Measure(batch, why) => (batch, why),
                Next::Stop(stop) => break stop,
            };
            let expected = self.search.forecast().expect(batch);
            self.chosen.insert(batch, ChosenBatch { why, expected, finalist: false });
            (self.driver.chosen)(&[batch], Some(why));
            if self.measure(&[batch], &first)? == MeasurementEnd::Cancelled {
                return Ok(Stop::Cancelled);
            }
        };
        let finalists = self.search.finalists();
        if finalists.len() < 2 {
            return Ok(stop);
        }
        for batch in &finalists {
            self.chosen.entry(*batch).and_modify(|chosen| chosen.finalist = true);
        }
        (self.driver.chosen)(&finalists, None);
        match self.measure(&finalists, &second)? {
            MeasurementEnd::Done => Ok(stop),
            MeasurementEnd::Cancelled => Ok(Stop::Cancelled),
        }
    }

    /// Measures batches, interleaved, and tells the search.
    fn measure(&mut self, batches: &[u64], method: &Method) -> Result<MeasurementEnd, TuneError> {
        let ids: Vec<CaseId> = batches.iter().map(|batch| self.options.case(*batch)).collect();
        self.study.update(|manifest| {
            let new: Vec<CaseId> = ids.iter().filter(|id| !manifest.cases.contains(id)).cloned().collect();
            manifest.cases.extend(new);
        })?;
        let taken = taken(&self.study.records()?);
        let mut around = QuietSurroundings { inner: &mut *self.driver.surroundings, told: self.disturbances_told };
        self.disturbances_told = true;
        let ended = Engine::new(method.clone(), &mut around)
            .after(taken)
            .cancel(&self.driver.cancel)
            .observe(&mut *self.driver.observe)
            .run(&mut cases(&self.options.of(batches), &self.host), &mut self.study.journal()?)?;
        let records = self.study.records()?;
        for (batch, summary) in batches.iter().zip(summaries(&ids, &records)) {
            match attempt(&summary, &self.options.goal) {
                Some(Attempt::Without(StopReason::Failed, detail)) => {
                    return Err(TuneError::Failed { batch: *batch, detail });
                }
                Some(attempt) => self.search.learn(*batch, attempt),
                // It was interrupted before its first sample.
                None => {}
            }
        }
        Ok(ended)
    }
}

/// Plain repetitions of each case that are in the journal.
fn taken(records: &Records) -> HashMap<String, u32> {
    let mut taken = HashMap::new();
    for sample in records.samples.iter().filter(|sample| sample.mode == Mode::Plain) {
        *taken.entry(sample.case.key()).or_insert(0) += 1;
    }
    taken
}

/// What became of a case; `None` if it has neither a sample nor a reason.
fn attempt(case: &CaseSummary, goal: &Goal) -> Option<Attempt> {
    let (Some(e2e), Some(tokens_per_s)) = (case.host_ns(), case.figure("output_tps")) else {
        let detail = case.detail.clone().unwrap_or_default();
        return case.outcome().map(|reason| Attempt::Without(reason, detail));
    };
    let of = |name: &str| case.figure(name).map(|figure| figure.median);
    let keeps = |ttft: Option<f64>, tpot: Option<f64>, e2e: f64| {
        let latency = Latency { ttft_ns: ttft.unwrap_or(e2e), tpot_ns: tpot, e2e_ns: e2e };
        goal.excess(&latency) <= 1.0
    };
    let counts = case.plain.iter().filter(|sample| sample.verdict.counts());
    let kept = counts.filter(|sample| {
        let figure = |name: &str| sample.measurement.figures.get(name).copied();
        keeps(figure("ttft_ns"), figure("tpot_ns"), sample.measurement.host_ns as f64)
    });
    let spread = |d: &Distribution| d.median_ci95.or(d.range.map(|range| (range.low, range.high)));
    Some(Attempt::Found(BatchFigures {
        samples: case.plain.len(),
        latency: Latency { ttft_ns: of("ttft_ns").unwrap_or(e2e.median), tpot_ns: of("tpot_ns"), e2e_ns: e2e.median },
        kept: kept.count() as f64 / case.plain.len().max(1) as f64,
        memory_bytes: case.memory_bytes().map(|bytes| bytes.max),
        output_tokens_per_s: tokens_per_s.median,
        output_tokens_per_s_spread: spread(&tokens_per_s),
        e2e_ns_spread: spread(&e2e),
    }))
}

/// Surroundings whose disturbances are told once, however often the engine starts.
struct QuietSurroundings<'a> {
    inner: &'a mut dyn Surroundings,
    told: bool,
}

impl Surroundings for QuietSurroundings<'_> {
    fn disturbances(&mut self) -> Vec<String> {
        if self.told { Vec::new() } else { self.inner.disturbances() }
    }

    fn before(&mut self) {
        self.inner.before();
    }

    fn after(&mut self) -> Reading {
        self.inner.after()
    }

    fn recover(&mut self, wait: Duration) {
        self.inner.recover(wait);
    }

    fn source(&self) -> String {
        self.inner.source()
    }
}
