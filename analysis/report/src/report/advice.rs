//! What to change, by what it gains.

use super::super::account;
use super::super::advice::{Ranked, abstentions, nothing_found, rows, steps, together};
use super::super::charts::step_line;
use super::super::format::{count, duration, percent};
use candlescope_document::html::{Plain, Prose};
use candlescope_document::text::{code, sentence};
use candlescope_document::{Bar, Block, Cell, Forms, MostRows, Row, Section, Table, sentences, words};
use candlescope_figures::Analysis;
use candlescope_figures::advice::Advice;
use candlescope_figures::tree::ratio;
use std::fmt::Write as _;

/// Findings of a terminal, of Markdown and of a page; `candlescope analyze` shows all.
const MOST: [usize; 3] = [5, 10, 20];
/// Rows of each table of the account.
const ACCOUNT_ROWS: usize = 10;

/// `None` if nobody looked for findings.
pub(super) fn section(analysis: &Analysis) -> Option<Section> {
    let diagnosis = analysis.diagnosis.as_ref()?;
    let found = rows(diagnosis);
    let nothing = if found.is_empty() { sentence(&nothing_found()) } else { String::new() };
    let more = |most: usize| match found.len().saturating_sub(most) {
        0 => String::new(),
        more => format!("… and {} more: `candlescope analyze --top 0`", count(more as u64)),
    };
    let together = together(diagnosis).into_iter().chain(steps(diagnosis)).map(|line| format!("{line}.")).collect();
    let account = analysis.account.as_ref().map(|account| account::text(account, ACCOUNT_ROWS, &[]));
    let (picture, said, bars) =
        median_step(analysis).unwrap_or_else(|| (String::new(), String::new(), Table::new("", vec![], vec![])));
    let mut section = Section::new(
        "advice",
        "What to change",
        "Each gain is a share of the step as it runs unobserved: at 87.5 % of what is attainable (all of it where a cost goes \
         with its cause), in brackets at 75 and 100 %. \
         Ranked by what the whole run gains; a bar shows that, and its whole width is the time of all steps of the run. Gains \
         do not add up.",
    )
    .brief(
        "gain: share of the unobserved step at 87.5 % (75 to 100 %) of what is attainable; gains do not add up, those of one \
         phase are of the same time",
    )
    .with_in(Forms::FILES, Block::Text(nothing));
    for row in found.iter().take(MOST[0]) {
        let said = format!("{} of {}: {}", row.gain, code(&row.advice.place.phase), row.words.message);
        section = section
            .with_in(Forms::TERMINAL, Block::Text(said))
            .with_in(Forms::TERMINAL, Block::Text(format!("→ {}", row.words.remedy)));
    }
    let section = section
        .with_in(Forms::TERMINAL, Block::Text(more(MOST[0])))
        .with_in(Forms::MARKDOWN.and(Forms::JSON), table(&found))
        .with_in(Forms::PAGE, Block::Html(list(&found)))
        .with_in(Forms::PAGE, Block::Text(more(MOST[2])))
        .with_in(Forms::FILES, Block::List(together))
        .with_in(
            Forms::FILES,
            Block::Folded("Not judged, and what it takes".to_string(), Box::new(abstained(analysis).into())),
        )
        .with_in(Forms::PAGE, Block::Html(picture))
        .with_in(Forms::JSON, Block::Text(said))
        .with_in(Forms::JSON, bars)
        .with_in(
            Forms::PAGE.and(Forms::JSON),
            Block::Folded(
                "Account of the device's time".to_string(),
                Box::new(Block::Fixed(account.unwrap_or_default())),
            ),
        );
    Some(section)
}

fn table(found: &[Ranked<'_>]) -> Table {
    let rows = found.iter().map(|row| {
        let place = if row.place == row.advice.place.phase { String::new() } else { code(&row.place) };
        let cells = [
            row.gain.clone(),
            row.advice.place.phase.clone(),
            place,
            row.words.message.clone(),
            row.words.remedy.clone(),
            row.advice.confidence.level.name().to_string(),
            row.advice.confidence.reason.to_string(),
            row.evidence.clone(),
            rests_on(row.advice),
            row.advice.query.clone(),
        ];
        let part = row.advice.of_run();
        Row {
            bar: Bar::Gauge(part.high, part.mid),
            ..Row::new(row.advice.code.to_string(), cells.map(Cell::from).into())
        }
    });
    // A page shows these when asked to.
    let unfolded = ["why so confident", "evidence", "rests on", "query"].map(|name| sentences(name).only(Forms::JSON));
    let mut columns = vec![
        words("gain"),
        words("step"),
        words("place"),
        sentences("what was seen"),
        sentences("what to do"),
        words("confidence"),
    ];
    columns.extend(unfolded);
    let table = Table::new("finding", columns, rows.collect()).of_code(40);
    table.most(MostRows::of(0, MOST[1], 0), "findings", "which `candlescope analyze --top 0` shows")
}

/// The list of a page. One scale for every bar of every page: the whole width is the time of all steps of the run.
fn list(found: &[Ranked<'_>]) -> String {
    let mut out = String::new();
    for row in found.iter().take(MOST[2]) {
        let (advice, part) = (row.advice, row.advice.of_run());
        let _ = writeln!(
            out,
            "<li><div class=\"gain\"><b>{}</b><span>of a step <code>{}</code></span><span class=\"gauge\"><i \
             style=\"width:{}%\"></i><i class=\"own\" style=\"width:{}%\"></i></span></div><div><p><code>{}</code> {}.</p><p \
             class=\"remedy\">{}.</p><details><summary>Evidence, confidence {}</summary><p class=\"note\">{}. Rests on {}.</p>\
             <pre>{}</pre></details></div></li>",
            Plain(&row.gain),
            Plain(&advice.place.phase),
            part.high * 100.0,
            part.mid * 100.0,
            Plain(advice.code.as_str()),
            Prose(&row.words.message),
            Prose(&row.words.remedy),
            Plain(&format!("{}: {}", advice.confidence.level.name(), advice.confidence.reason)),
            Prose(&row.evidence),
            Plain(&rests_on(advice)),
            Plain(&advice.query)
        );
    }
    if out.is_empty() { out } else { format!("  <ol class=\"advice\">\n{out}  </ol>") }
}

/// Which steps a finding was found in.
fn rests_on(advice: &Advice) -> String {
    let coverage = &advice.coverage;
    format!("{} steps, {} of the steps' time", count(coverage.steps), percent(coverage.share_of_time))
}

fn abstained(analysis: &Analysis) -> Table {
    let missing = analysis.diagnosis.as_ref().map_or(Vec::new(), abstentions);
    let rows = missing.into_iter().map(|(codes, what, record)| Row::of_texts(vec![codes, what, record]));
    Table::new("finding", vec![sentences("what is missing"), sentences("how to record it")], rows.collect())
}

/// The time line of a median step of the device that worked most: markup, what is said of it, and its bars.
fn median_step(analysis: &Analysis) -> Option<(String, String, Table)> {
    let devices = analysis.account.iter().flat_map(|account| &account.devices);
    let step = devices.max_by_key(|device| device.trace.busy_ns)?.median_step.as_ref()?;
    let thread = step.thread.map_or(String::new(), |thread| {
        let share = |ns: u64| percent(ratio(ns, step.open_ns));
        let [on_cpu, preempted, waiting] = [thread.cpu_ns, thread.preempted_ns, thread.blocked_ns].map(share);
        format!("; its thread was on a CPU {on_cpu} of that, preempted {preempted}, waiting {waiting}")
    });
    let said = format!(
        "One median step {} (number {}, {}{thread}): intervals from their first launch to their last, launch calls, and what ran on \
         each stream of the device. Point at a bar for its name and time.",
        code(&step.name),
        count(step.step),
        duration(step.open_ns as f64)
    );
    let svg = step_line::svg(step);
    let drawn =
        format!("<figure class=\"timeline\"><figcaption class=\"note\">{}</figcaption>{svg}</figure>", Prose(&said));
    Some((drawn, said, step_line::table(step)))
}
