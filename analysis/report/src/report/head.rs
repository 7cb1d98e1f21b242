//! The head of a run's report: what ran where, the conclusion, the verdict, and what the run says about its surroundings.

use super::super::conclusion::{sentence, title, verdict_line};
use super::super::format::{count, head as cut, json, percent, utc};
use super::super::head_facts::{machine, model, model_name};
use candlescope_document::{Block, Document, Fact, Forms, Mark, Notice, Section, Verdict};
use candlescope_figures::Analysis;
use candlescope_schema::run::{Finding, Severity, env_key, option_key};

/// The document without its sections.
pub(super) fn head(analysis: &Analysis) -> Document {
    let manifest = &analysis.manifest;
    let of_request = analysis.latency.requests.first().map(|request| request.model.clone());
    let name = model_name(manifest).or(of_request).filter(|name| !name.is_empty());
    let model: Vec<String> = name.into_iter().chain(model(manifest)).collect();
    let started = if manifest.started_ns > 0 { utc(manifest.started_ns) } else { String::new() };
    let rows = analysis.rows.iter().filter(|(_, n)| **n > 0).map(|(table, n)| format!("{} {table}", count(*n)));
    let facts = [
        Fact::new("run", analysis.dir.display().to_string()).only(Forms::TERMINAL),
        Fact::new("model", model.join(" · ")),
        Fact::new("machine", machine(manifest).join(" · ")),
        Fact::new("run", manifest.run_id.clone()).only(Forms::FILES),
        Fact::new("started", started.clone()).only(Forms::FILES),
        Fact::new("host", manifest.host.clone()).only(Forms::FILES),
        Fact::new("records", rows.collect::<Vec<_>>().join(", ")).only(Forms::FILES),
        Fact::new("requests ended", analysis.latency.outcomes_in_words().unwrap_or_default()).only(Forms::FILES),
        Fact::new("directory", analysis.dir.display().to_string()).only(Forms::PAGE.and(Forms::JSON)),
        Fact::new("data", data(analysis, started)).only(Forms::TERMINAL),
    ];
    Document {
        title: title(analysis),
        conclusion: sentence(analysis),
        facts: facts.into(),
        verdict: Some(Verdict {
            ok: analysis.verdict.ok,
            text: verdict_line(analysis),
            notices: analysis.verdict.findings.iter().map(notice).collect(),
        }),
        ..Document::default()
    }
}

/// What was recorded, in a line.
fn data(analysis: &Analysis, started: String) -> String {
    let mut what: Vec<String> = [started].into_iter().filter(|text| !text.is_empty()).collect();
    let requests = analysis.latency.requests.len();
    if requests > 0 {
        let warm = analysis.latency.warmup;
        let left_out = if warm > 0 { format!(" ({warm} warm-up, left out of latencies)") } else { String::new() };
        let ended = analysis.latency.outcomes_in_words().map(|words| format!(" ({words})")).unwrap_or_default();
        what.push(format!("{} requests{left_out}{ended}", count(requests as u64)));
    }
    let rows = |table: &str| count(analysis.rows.get(table).copied().unwrap_or(0));
    // Of a program that marks none: how sure it is that these are what its pattern says.
    let confidence = env_key::STEPS_CONFIDENCE.of(&analysis.manifest.environment).map(percent);
    let by_pattern = confidence.map(|share| format!(" (by what repeats, confidence {share})")).unwrap_or_default();
    what.push(format!("{} steps{by_pattern}", rows("steps")));
    what.push(format!("{} intervals", rows("spans")));
    what.join(" · ")
}

/// What the verdict rests on, where it does not stand with the verdict.
pub(super) fn findings(analysis: &Analysis) -> Section {
    let notices = analysis.verdict.findings.iter().map(notice).collect();
    Section::new("findings", "Findings", "").only(Forms::TEXTS).with(Block::Notices(notices))
}

fn notice(finding: &Finding) -> Notice {
    Notice {
        mark: match finding.severity {
            Severity::Error => Mark::Error,
            Severity::Warning => Mark::Warning,
            Severity::Info => Mark::Note,
        },
        code: finding.code.as_str().to_string(),
        message: finding.message(),
        remedy: finding.remedy(),
    }
}

/// The maps of `run.json`. `inputs.yaml` has the configuration.
pub(super) fn environment(analysis: &Analysis) -> Section {
    let manifest = &analysis.manifest;
    let maps = [
        ("Machine", &manifest.environment),
        ("Model", &manifest.model),
        ("Options", &manifest.options),
        ("Results", &manifest.results),
    ];
    let section = Section { side_by_side: true, ..Section::new("environment", "Environment", "") };
    maps.into_iter().fold(section.only(Forms::FILES), |section, (title, map)| {
        let shown = map.iter().filter(|(key, _)| key.as_str() != option_key::INPUTS.name());
        section.with(Block::Pairs(title, shown.map(|(key, value)| (key.clone(), cut(&json(value), 600))).collect()))
    })
}
