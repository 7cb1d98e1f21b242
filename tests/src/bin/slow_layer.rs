//! The embedded model, with one layer that can be made slower: `--spin N` has the MLP of the third layer count to N each
//! time it is entered, inside its interval. Nothing else changes: neither spans nor counts.
//!
//! `slow_layer --share 0.05` prints the N that adds that share to a step on this machine, and what it was measured to
//! add, with requests in turns.
//!
//! Records with the variable CANDLESCOPE. `make compare-false-alarms` compares it with itself.
use anyhow::{Context, Result, bail};
use candlescope_models::{GenerateOptions, LoadOptions, LoadedModel, ModelSource, generate};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tracing::Subscriber;
use tracing::span::{Attributes, Id};
use tracing_subscriber::layer::{Context as InSubscriber, Layer};
use tracing_subscriber::prelude::*;
use tracing_subscriber::registry::LookupSpan;

const USAGE: &str = "usage: slow_layer [--spin N] [--requests N] [--tokens N] | slow_layer --share SHARE";
/// The layer that is made slower, from 0.
const SLOWED: usize = 2;

static SPIN: AtomicU64 = AtomicU64::new(0);
static SPAN: AtomicU64 = AtomicU64::new(0);
static SEEN: AtomicUsize = AtomicUsize::new(0);

/// Spins when the chosen span is entered. It stands behind candlescope's layer, whose interval has begun by then.
struct Slow;

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Slow {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, _: InSubscriber<'_, S>) {
        // Spans are made once, when the model loads, in order of layers.
        if attributes.metadata().name() == "mlp" && SEEN.fetch_add(1, Ordering::Relaxed) == SLOWED {
            SPAN.store(id.into_u64(), Ordering::Relaxed);
        }
    }

    fn on_enter(&self, id: &Id, _: InSubscriber<'_, S>) {
        if id.into_u64() == SPAN.load(Ordering::Relaxed) {
            spin(SPIN.load(Ordering::Relaxed));
        }
    }
}

fn spin(times: u64) {
    let mut value = 1u64;
    for i in 0..times {
        value = std::hint::black_box(value.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(i));
    }
}

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let (mut requests, mut tokens, mut share) = (5, 20, None);
    while let Some(name) = args.next() {
        let value = args.next().context(USAGE)?;
        match name.as_str() {
            "--spin" => SPIN.store(value.parse()?, Ordering::Relaxed),
            "--requests" => requests = value.parse()?,
            "--tokens" => tokens = value.parse()?,
            "--share" => share = Some(value.parse::<f64>()?),
            _ => bail!("{name} is not known; {USAGE}"),
        }
    }
    let (layer, _scope) = candlescope::layer_from_env();
    tracing_subscriber::registry().with(layer).with(Slow).init();
    let mut loaded = LoadedModel::load(&ModelSource::parse("embedded")?, &LoadOptions::default())?;
    match share {
        None => (0..requests).try_for_each(|_| request(&mut loaded, tokens).map(drop)),
        Some(share) => calibrate(&mut loaded, share),
    }
}

/// One request; the times between its tokens.
fn request(loaded: &mut LoadedModel, tokens: usize) -> Result<Vec<Duration>> {
    let prompt = loaded.encode_prompt("The quick brown fox")?;
    let options = GenerateOptions { max_new_tokens: tokens, ignore_eos: true, ..GenerateOptions::default() };
    let output = generate(loaded, &[prompt], &options, &mut |_| {})?;
    Ok(output.itl())
}

fn calibrate(loaded: &mut LoadedModel, share: f64) -> Result<()> {
    const TIMES: u64 = 20_000;
    let quickest = (0..200).map(|_| {
        let start = Instant::now();
        spin(TIMES);
        start.elapsed()
    });
    let each = quickest.min().unwrap_or_default().as_secs_f64() / TIMES as f64;
    let plain = (0..20).map(|_| request(loaded, 32)).collect::<Result<Vec<_>>>()?;
    let step = median(plain.into_iter().flatten().collect());
    let times = (share * step / each).round() as u64;
    let mut gaps = [Vec::new(), Vec::new()];
    for turn in 0..200 {
        let slowed = turn % 2;
        SPIN.store(if slowed == 1 { times } else { 0 }, Ordering::Relaxed);
        gaps[slowed].extend(request(loaded, 32)?);
    }
    let [plain, slowed] = gaps.map(median);
    println!("{{\"spin\":{times},\"step_us\":{:.1},\"measured_share\":{:.4}}}", plain * 1e6, slowed / plain - 1.0);
    Ok(())
}

/// In seconds.
fn median(mut gaps: Vec<Duration>) -> f64 {
    gaps.sort();
    gaps.get(gaps.len() / 2).map_or(0.0, Duration::as_secs_f64)
}
