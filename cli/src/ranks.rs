//! Folders with the runs of several ranks, in place of one run.

use crate::json_arg::JsonArg;
use crate::output::{note, say};
use anyhow::{Context, Result, bail};
use candlescope_core::beside_run::{RANKS_JSON, RANKS_PAGE};
use candlescope_core::files::write_whole;
use candlescope_ranks::{RankAnalysis, Ranks, RanksError, analyse};
use candlescope_reader::{OpenError, ReadLimits, Run};
use candlescope_report::ranks::{document, json as object, page, text};
use std::io::{IsTerminal, Write as _};
use std::path::Path;

/// The ranks whose runs are in a folder, if it is one of these; with `by_thread` the threads of a run.
pub(crate) fn ranks_in(dir: &Path, limits: &ReadLimits, by_thread: bool) -> Result<Option<Ranks>> {
    if by_thread {
        return Ok(Some(Ranks::of_threads(dir, limits)?));
    }
    match Run::open_within(dir, limits.clone()) {
        // Folders of days and machines lie between a folder and its runs.
        Err(OpenError::DirectoryOfRuns { .. } | OpenError::NotARun(_) | OpenError::Archive(_)) => {
            match Ranks::open(dir, limits) {
                Ok(ranks) => Ok(Some(ranks)),
                // What it is instead is told by whoever wanted a run.
                Err(RanksError::None(_)) => Ok(None),
                Err(error) => Err(error.into()),
            }
        }
        _ => Ok(None),
    }
}

/// Fails where one of these options was given, which are about one run: of a folder of ranks they would be ignored.
pub(crate) fn takes_none(ranks: &Ranks, dir: &Path, options: &[(&str, bool)]) -> Result<()> {
    if let Some((option, _)) = options.iter().find(|(_, is_given)| *is_given) {
        let first = ranks.all()[0].run().dir().display();
        bail!("{option} is about one run, and {} has those of several ranks: name one, such as {first}", dir.display());
    }
    Ok(())
}

/// Says what ranks do with each other.
fn tell(analysis: &RankAnalysis, json: JsonArg) -> Result<()> {
    match json.say(&object(analysis), || document(analysis))? {
        true => Ok(()),
        false => say(&text(analysis, std::io::stdout().is_terminal())),
    }
}

/// The same for `analyze`.
pub(crate) fn analyzed(ranks: &Ranks, json: JsonArg) -> Result<()> {
    tell(&analyse(ranks), json)?;
    if json.is_json() {
        return Ok(());
    }
    let first = &ranks.all()[0];
    let run = first.run().dir().display();
    note(&match first.thread() {
        None => format!("note: each rank is a run as well: `candlescope analyze {run}` says what is in it"),
        Some(_) => format!("note: `candlescope analyze {run}` says what all threads together do"),
    });
    Ok(())
}

/// The same for `report`: a page and the figures, beside the runs or where `out` says.
pub(crate) fn reported(ranks: &Ranks, dir: &Path, out: Option<&Path>, json: JsonArg) -> Result<()> {
    let analysis = analyse(ranks);
    let to = out.unwrap_or(dir);
    std::fs::create_dir_all(to).with_context(|| format!("cannot make {}", to.display()))?;
    let figures = serde_json::to_string_pretty(&object(&analysis))?;
    for (name, text) in [(RANKS_PAGE, page(&analysis)), (RANKS_JSON, figures)] {
        let file = to.join(name);
        write_whole(&file, |out| out.write_all(text.as_bytes()))
            .with_context(|| format!("cannot write {}", file.display()))?;
    }
    tell(&analysis, json)?;
    if json.is_json() {
        return Ok(());
    }
    say(&format!("wrote {}\nwrote {}", to.join(RANKS_PAGE).display(), to.join(RANKS_JSON).display()))
}
