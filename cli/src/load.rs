//! `candlescope load`.

use crate::api_key::api_key;
use crate::at_work::AtWork;
use crate::durations::time;
use crate::interrupts::on_interrupt;
use crate::output::{note, say};
use crate::progress::Progress;
use anyhow::{Context, Result, bail};
use candlescope_core::files::{lock_directory, read_text_limited};
use candlescope_core::numbers::duration;
use candlescope_core::run::env_key;
use candlescope_core::study_files;
use candlescope_lab::method::{HostSurroundings, Surroundings as _};
use candlescope_lab::suites::parse_range;
use candlescope_load::{Amount, End, Endpoint, Level, LoadOptions, LoadResults, PromptSource, Stop, Watch};
use clap::{Args, ValueEnum};
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

pub(crate) const EXAMPLES: &str = "\
Examples:
  candlescope load http://localhost:8080 --concurrency 1,2,4,8 --duration 30s
      so many clients at once, one stage after another
  candlescope load http://localhost:8080 --rate 2,5,10 --slo ttft=200ms,tpot=50ms
      requests that arrive at random times, however long the answers take
  candlescope load https://HOST/v1 --api-key-env MY_KEY --model NAME --dataset prompts.jsonl --requests 200
      prompts from a file, a key from the environment";

#[derive(Debug, Args)]
pub(crate) struct LoadArgs {
    /// Address of the server, with or without /v1
    #[arg(value_name = "URL")]
    url: String,
    /// Clients at once, each with one request after another: a stage for each number of a list such as 1,4,8 or a range
    /// such as 1-16*2 [default: 1]
    #[arg(long, value_parser = clients, value_name = "N,…")]
    concurrency: Vec<Clients>,
    /// Requests a second, arriving at random times (Poisson) however long the answers take; a stage for each rate
    #[arg(long, value_delimiter = ',', value_name = "R,…", conflicts_with = "concurrency")]
    rate: Vec<f64>,
    /// Raise the rate until the server no longer keeps up, and find out what it carries
    #[arg(long, conflicts_with_all = ["concurrency", "rate"])]
    sweep: bool,
    /// How long each stage is measured: 30s, 2m [default: 30s]
    #[arg(long, value_name = "TIME")]
    duration: Option<String>,
    /// Requests measured in each stage, instead of a time
    #[arg(long, value_name = "N", conflicts_with = "duration")]
    requests: Option<u64>,
    /// Warm-up of each stage: a time, 10s, or a number of requests, 20 [default: two requests of each client, or ten]
    #[arg(long, value_name = "TIME|N")]
    warmup: Option<String>,
    /// Where requests go
    #[arg(long, value_enum, default_value_t = EndpointArg::Auto)]
    endpoint: EndpointArg,
    /// Name of the model [default: the first that the server lists]
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    /// Environment variable with the key, which is sent as a bearer token and recorded nowhere
    #[arg(long, value_name = "NAME")]
    api_key_env: Option<String>,
    /// Certificates in PEM that are trusted in place of the public ones
    #[arg(long, value_name = "FILE")]
    ca_file: Option<PathBuf>,
    /// The same text for every request
    #[arg(long, value_name = "TEXT")]
    prompt: Option<String>,
    /// File with that text
    #[arg(long, value_name = "FILE", conflicts_with = "prompt")]
    prompt_file: Option<PathBuf>,
    /// Synthetic texts of about this many tokens, each of them different [default: 128]
    #[arg(long, value_name = "N", conflicts_with_all = ["prompt", "prompt_file"])]
    prompt_tokens: Option<u64>,
    /// Prompts from JSONL (prompt or messages), ShareGPT's JSON, plain text with one a line, or a directory of these
    #[arg(long, value_name = "PATH", conflicts_with_all = ["prompt", "prompt_file", "prompt_tokens"])]
    dataset: Option<PathBuf>,
    /// Which of the directory's variants
    #[arg(long, value_name = "NAME", requires = "dataset")]
    variant: Option<String>,
    /// Keep the prompts' texts in the results
    #[arg(long)]
    keep_prompts: bool,
    /// Seed of prompts and arrival times [default: a new one for each run, which is in the results]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Most tokens of an answer
    #[arg(long, value_name = "N", default_value_t = 128)]
    max_tokens: u64,
    /// Ask the server to go on past the model's end token: an extension that most servers know
    #[arg(long)]
    ignore_eos: bool,
    /// Further fields of each request, as a JSON object; null takes one out
    #[arg(long, value_name = "JSON")]
    body: Option<String>,
    /// Longest time for a request
    #[arg(long, value_name = "TIME", default_value = "120s")]
    timeout: String,
    /// Most requests under way at once, with --rate and --sweep; further ones wait, which is part of their latency
    #[arg(long, value_name = "N", default_value_t = 512)]
    max_in_flight: u32,
    /// Most memory for times and requests of the whole run, in MiB; a run that needs more ends and keeps what it has.
    /// Each chunk takes 8 bytes, each request some 300
    #[arg(long, value_name = "MIB", default_value_t = 128)]
    memory_limit: u64,
    /// Limits that a good request keeps: ttft=200ms,tpot=50ms,e2e=5s; of percentiles over all of them ttft_p99=300ms
    #[arg(long, value_name = "LIMITS")]
    slo: Option<String>,
    /// What the server's machine costs, in US dollars an hour, for the cost of a million tokens
    #[arg(long, value_name = "USD", allow_negative_numbers = true)]
    price_per_hour: Option<f64>,
    /// Where the server shows its metrics for Prometheus [default: /metrics at the same address, if it is there]
    #[arg(long, value_name = "URL")]
    metrics: Option<String>,
    /// Directory for load_test_results.json, load_requests.csv and a chart [default: results/load-TIME]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Replace the results that are there
    #[arg(long, requires = "out")]
    overwrite: bool,
    /// Print the figures as one machine-readable object on standard output instead of text
    #[arg(long)]
    json: bool,
    /// No progress bar
    #[arg(long)]
    no_progress: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum EndpointArg {
    /// Chat if a first request to it succeeds, else completions
    Auto,
    /// /v1/chat/completions
    Chat,
    /// /v1/completions
    Completions,
}

/// Largest file with a prompt.
const MOST_PROMPT: u64 = 64 << 20;

pub(crate) fn run(args: &LoadArgs) -> Result<()> {
    let options = options(args)?;
    room_for_sockets(args)?;
    let out = crate::out_dir::chosen(args.out.as_deref(), "load", false)?;
    let Room { made, replaces, lock } = make_room(&out, args.overwrite)?;
    let stop = Stop::new();
    listen_for_interrupts(&stop)?;
    // A server beside this program shares its processors with whoever else is there; far from it this program does.
    let disturbances = HostSurroundings::new().disturbances();
    disturbances.iter().for_each(|what| note(&format!("warning: {what}")));
    let progress = Progress::new(!args.no_progress && !args.json);
    progress.wait("first requests");
    let work = Mutex::new(AtWork::on("load of a server"));
    let watcher = Watcher { progress, work, out: &out, begun: Mutex::new(false), failed: Mutex::new(None) };
    let results = candlescope_load::run(&options, &stop, &watcher);
    watcher.progress.clear();
    let mut results = results.inspect_err(|_| {
        // An empty directory would only be in the way; one with anything in it stays.
        if made {
            let _ = std::fs::remove_dir(&out);
        }
    })?;
    if !disturbances.is_empty() {
        results.machine.insert(env_key::DISTURBANCES.name().to_string(), disturbances.into());
    }
    let written = results.write(&out).and_then(|files| {
        // A chart beside results is of these; the new ones have three files or two.
        let has_chart = files.iter().any(|file| file.extension().is_some_and(|end| end == "svg"));
        if replaces && !has_chart { LoadResults::remove_chart(&out).map(|()| files) } else { Ok(files) }
    });
    drop(lock);
    if args.json {
        let mut object = results.to_json_without_requests()?;
        if let (Some(fields), Ok(files)) = (object.as_object_mut(), &written) {
            fields.insert("files".to_string(), serde_json::json!(files));
        }
        say(&serde_json::to_string(&object)?)?;
    } else {
        say(&results.summary())?;
    }
    // The figures above are there even if the files are not.
    let files = written.with_context(|| {
        format!("cannot write the results into {}: free some space, or name another place with --out", out.display())
    })?;
    if !args.json {
        let shown: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
        say(&format!("written: {}", shown.join(", ")))?;
    }
    judge(&results)
}

/// What makes the command fail although there are results.
fn judge(results: &LoadResults) -> Result<()> {
    match &results.end {
        End::Stopped => bail!("ended early: the results are of what there was by then"),
        End::OutOfRoom { limit_bytes } => bail!(
            "ended early: times and requests take more than {} MiB; the results are of what there was by then: send fewer \
             requests, or raise --memory-limit",
            limit_bytes >> 20
        ),
        End::ServerGone { since_ns, why, .. } => bail!(
            "the server did not answer any more, {} after the beginning: {why}; the results are of what there was by then",
            duration(*since_ns as f64)
        ),
        _ => {}
    }
    let figures = || results.stages.iter().filter_map(|stage| stage.figures.as_ref());
    if figures().all(|f| f.ok == 0) {
        let told = results.requests.iter().find_map(|r| r.failure.as_ref());
        bail!("no request succeeded: {}", told.map_or_else(|| "none was measured".to_string(), ToString::to_string));
    }
    Ok(())
}

fn options(args: &LoadArgs) -> Result<LoadOptions> {
    let mut options = LoadOptions::new(args.url.as_str())
        .endpoint(match args.endpoint {
            EndpointArg::Auto => Endpoint::Auto,
            EndpointArg::Chat => Endpoint::Chat,
            EndpointArg::Completions => Endpoint::Completions,
        })
        .max_tokens(args.max_tokens)
        .ignore_eos(args.ignore_eos)
        .keep_prompts(args.keep_prompts)
        .price_per_hour(crate::price::price_of(args.price_per_hour)?.map(|price| price.usd_per_hour))
        .max_in_flight(args.max_in_flight as usize)
        .memory_limit(args.memory_limit.saturating_mul(1 << 20))
        .timeout(time(&args.timeout).context("--timeout")?)
        .prompts(prompts(args)?);
    let clients = args.clients();
    options = match (&clients[..], &args.rate[..]) {
        _ if args.sweep => options.sweep(),
        ([], []) => options.levels([Level::Concurrency(1)]),
        ([], rates) => options.levels(rates.iter().map(|rate| Level::Rate(*rate))),
        (clients, _) => options.levels(clients.iter().map(|n| Level::Concurrency(*n))),
    };
    if let Some(seed) = args.seed {
        options = options.seed(seed);
    }
    if let Some(n) = args.requests {
        options = options.amount(Amount::Requests(n));
    } else if let Some(text) = &args.duration {
        options = options.amount(Amount::Seconds(time(text).context("--duration")?));
    }
    if let Some(text) = &args.warmup {
        let amount = text.parse().map(Amount::Requests).or_else(|_| time(text).map(Amount::Seconds));
        options = options.warmup(amount.context("--warmup")?);
    }
    if let Some(name) = &args.api_key_env {
        options = options.api_key(api_key(name)?);
    }
    if let Some(text) = &args.slo {
        options = options.slo(text.parse().context("--slo")?);
    }
    if let Some(text) = &args.body {
        let fields = serde_json::from_str(text).context("--body: write a JSON object, such as '{\"top_k\": 1}'")?;
        options = options.extra(fields);
    }
    if let Some(model) = &args.model {
        options = options.model(model);
    }
    if let Some(url) = &args.metrics {
        options = options.metrics(url);
    }
    if let Some(path) = &args.ca_file {
        options = options.ca_file(path);
    }
    Ok(options)
}

fn prompts(args: &LoadArgs) -> Result<PromptSource> {
    if let Some(path) = &args.dataset {
        return Ok(PromptSource::Dataset { path: path.clone(), variant: args.variant.clone() });
    }
    if let Some(text) = &args.prompt {
        return Ok(PromptSource::Text(text.clone()));
    }
    if let Some(path) = &args.prompt_file {
        let text = read_text_limited(path, MOST_PROMPT);
        let text = text.with_context(|| format!("--prompt-file {}: it cannot be read", path.display()))?;
        return Ok(PromptSource::Text(text));
    }
    Ok(PromptSource::Tokens(args.prompt_tokens.unwrap_or(128)))
}

/// The directory that results are written into.
struct Room {
    /// Whether it was made.
    made: bool,
    /// Whether results of an earlier run are there.
    replaces: bool,
    /// Held until they are written. Absent where directories cannot be locked.
    lock: Option<File>,
}

/// Refuses to replace what is there, and finds out before the load whether results can be written.
fn make_room(out: &Path, overwrite: bool) -> Result<Room> {
    // A study or a run is what its files say together: results of something else in it would be taken for its own.
    let of_others = [(study_files::MANIFEST_FILE, "a study"), (candlescope_core::run::MANIFEST_FILE, "a run")];
    if let Some((file, what)) = of_others.into_iter().find(|(file, _)| out.join(file).exists()) {
        bail!(
            "{} is the directory of {what} (it holds {file}): name another one with --out, or leave --out away for \
             results/load-TIME",
            out.display()
        );
    }
    if let (Some(there), false) = (LoadResults::files_there(out).first(), overwrite) {
        bail!("{} is there already: name another directory with --out, or --overwrite it", there.display());
    }
    let remedy = || format!("cannot write into {}: name another directory with --out", out.display());
    let made = !out.exists();
    std::fs::create_dir_all(out).with_context(remedy)?;
    let lock = lock_directory(out).with_context(remedy)?;
    let (trial, mut file) = new_file(out).with_context(remedy)?;
    let written = file.write_all(b"trial");
    std::fs::remove_file(&trial).with_context(remedy)?;
    written.with_context(remedy)?;
    let replaces = out.join(candlescope_load::RESULTS_FILE).is_file();
    Ok(Room { made, replaces, lock })
}

/// A file under a name that nobody has: what stands there already is neither opened nor followed.
fn new_file(dir: &Path) -> std::io::Result<(PathBuf, File)> {
    let mut attempt = 0;
    loop {
        let path = dir.join(format!(".candlescope-{}-{attempt}", std::process::id()));
        match File::create_new(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists && attempt < 100 => attempt += 1,
            made => return made.map(|file| (path, file)),
        }
    }
}

/// Descriptors that this process needs besides a socket for each client.
#[cfg(unix)]
const OTHER_FILES: u64 = 64;

/// Raises the limit on open files as far as that is allowed, and refuses more clients than it has room for: they would
/// look like a server that takes no connections.
#[cfg(unix)]
fn room_for_sockets(args: &LoadArgs) -> Result<()> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let clients = args.clients().into_iter().max().unwrap_or(0);
    let needed = u64::from(clients.max(if args.concurrency.is_empty() { args.max_in_flight } else { 0 })) + OTHER_FILES;
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let Some(current) = current.filter(|current| *current < needed) else { return Ok(()) };
    let wanted = maximum.map_or(needed, |maximum| maximum.min(needed));
    let raised = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum }).is_ok();
    let room = if raised { wanted } else { current };
    if u64::from(clients) + OTHER_FILES > room {
        bail!(
            "{clients} clients need {needed} open files and sockets, and this process may have {room}: raise `ulimit -n`, \
             or take fewer clients"
        );
    }
    Ok(())
}

#[cfg(not(unix))]
fn room_for_sockets(_: &LoadArgs) -> Result<()> {
    Ok(())
}

/// Numbers of clients, as one value of the option has them.
#[derive(Debug, Clone)]
struct Clients(Vec<u32>);

fn clients(text: &str) -> std::result::Result<Clients, String> {
    let all = parse_range(text).map_err(|error| error.to_string())?;
    let fits = |n: usize| u32::try_from(n).map_err(|_| format!("{n} clients are more than {}", u32::MAX));
    Ok(Clients(all.into_iter().map(fits).collect::<std::result::Result<_, _>>()?))
}

impl LoadArgs {
    /// Numbers of clients, in the order in which they were given.
    fn clients(&self) -> Vec<u32> {
        self.concurrency.iter().flat_map(|clients| clients.0.iter().copied()).collect()
    }
}

/// The first Ctrl-C or SIGTERM ends the load and keeps what there is, the second one ends the command.
fn listen_for_interrupts(stop: &Stop) -> Result<()> {
    let stop = stop.clone();
    on_interrupt(Duration::from_secs(1), move || {
        note("ending: once more to end without results");
        stop.stop();
    })
    .context("cannot listen for Ctrl-C")
}

struct Watcher<'a> {
    progress: Progress,
    /// What those who watch are told.
    work: Mutex<AtWork>,
    out: &'a Path,
    begun: Mutex<bool>,
    /// Why results could not be written between stages, told once.
    failed: Mutex<Option<String>>,
}

impl Watch for Watcher<'_> {
    fn progress(&self, p: &candlescope_load::Progress) {
        let mut begun = self.begun.lock().unwrap_or_else(PoisonError::into_inner);
        if !std::mem::replace(&mut *begun, true) {
            self.progress.share();
        }
        let stage = p.stages.map_or_else(|| p.stage.to_string(), |all| format!("{}/{all}", p.stage + 1));
        let failed = if p.failed > 0 { format!(", {} failed", p.failed) } else { String::new() };
        let state = if p.done > 0.0 { "" } else { " (warm-up)" };
        let text = format!("{stage} {}{state}: {} answered{failed}, {} under way", p.level, p.ended, p.in_flight);
        self.work.lock().unwrap_or_else(PoisonError::into_inner).tell(|| format!("stage {text}"));
        self.progress.message(text);
        self.progress.at((p.done * 1000.0) as u64);
    }

    fn stage_ended(&self, so_far: &LoadResults) {
        // What there is survives even if this process does not.
        if let Err(error) = so_far.write(self.out) {
            let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
            if failed.replace(error.to_string()).is_none() {
                note(&format!("cannot write results into {} yet: {error}", self.out.display()));
            }
        }
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn a_link_in_the_place_of_the_trial_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("target");
        let link = dir.path().join(format!(".candlescope-{}-0", std::process::id()));
        std::os::unix::fs::symlink(&target, &link).unwrap();
        let (path, file) = new_file(dir.path()).unwrap();
        drop(file);
        assert!(path != link && !target.exists() && path.exists());
    }

    #[test]
    fn a_directory_of_a_study_or_a_run_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        for name in [study_files::MANIFEST_FILE, candlescope_core::run::MANIFEST_FILE] {
            let file = dir.path().join(name);
            std::fs::write(&file, "{}").unwrap();
            for overwrite in [false, true] {
                let error = make_room(dir.path(), overwrite).err().expect("it is somebody else's").to_string();
                assert!(error.contains(name) && error.contains("--out"), "{error}");
            }
            std::fs::remove_file(file).unwrap();
            assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "nothing was written");
        }
        assert!(make_room(dir.path(), false).is_ok());
    }
}
