//! Why one request took its time: a document, and the same for programs.

mod request_json;
mod request_words;
mod sections;

use crate::head_facts::machine;
use crate::write::{ReportError, ReportOptions, write_files};
use candlescope_document::terminal::{Layout, draw};
use candlescope_document::{Document, Fact, html, markdown};
use candlescope_figures::RequestAccount;
use candlescope_reader::Run;
use candlescope_schema::beside_run;
use serde_json::Value;
use std::path::PathBuf;

/// What was written of a request.
#[derive(Debug, Clone)]
pub struct RequestOutput {
    /// Summary for a terminal.
    pub summary: String,
    /// The same for programs; times are nanoseconds.
    pub account: Value,
    /// What all forms show.
    pub document: Document,
    /// Paths of `request-N.html` and `request-N.md`, in this order.
    pub files: Vec<PathBuf>,
}

/// Writes `request-N.html` and `request-N.md` of a request of the run, beside its reports.
///
/// # Errors
/// If a file cannot be written.
pub fn write_request(
    run: &Run,
    account: &RequestAccount,
    options: &ReportOptions,
) -> Result<RequestOutput, ReportError> {
    let document = document(run, account);
    let name = |form: &str| beside_run::of_request(account.figures.request, form);
    let contents = [(name("html"), html::page(&document)), (name("md"), markdown::draw(&document))];
    let files = write_files(options.out.as_deref().unwrap_or(run.dir()), contents)?;
    let layout = Layout { width: options.terminal.width, color: options.terminal.color };
    let (summary, account) = (draw(&document, layout), request_json::account(run, account));
    Ok(RequestOutput { summary, account, document, files })
}

fn document(run: &Run, account: &RequestAccount) -> Document {
    let manifest = run.manifest().cloned().unwrap_or_default();
    let facts = [
        Fact::new("run", run.dir().display().to_string()),
        Fact::new("model", account.figures.model.clone()),
        Fact::new("machine", machine(&manifest).join(" · ")),
        Fact::new("ended", account.figures.outcome.map_or(String::new(), |outcome| outcome.as_str().to_string())),
        Fact::new("beware", if account.figures.warmup { request_words::WARMUP } else { "" }),
    ];
    let has_gpu = manifest.gpu.is_some();
    Document {
        kind: "request".to_string(),
        title: format!("Request {}", account.figures.request),
        conclusion: request_words::conclusion(account),
        facts: facts.into(),
        before: account.noticed.iter().map(|finding| format!("{}. {}", finding.message(), finding.remedy())).collect(),
        sections: sections::sections(account, has_gpu),
        ..Document::default()
    }
}
