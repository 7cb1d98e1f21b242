//! A row a request.

use crate::level::Level;
use crate::record::{RequestRecord, TokensBy};
use crate::results::LoadResults;
use candlescope_core::csv_field_of_others;
use std::io::{self, Write};

const HEAD: &str = "stage,level_kind,level,number,part,prompt,planned_ns,start_ns,connect_ns,head_ns,ttft_ns,e2e_ns,end_ns,tpot_ns,\
                    prompt_tokens,cached_tokens,output_tokens,output_tokens_by,chunks,sent_again,status,finish,failure,message";

/// Unknown values stay empty.
pub(crate) fn write(out: &mut impl Write, results: &LoadResults) -> io::Result<()> {
    writeln!(out, "{HEAD}")?;
    for r in &results.requests {
        let (kind, level) = match results.stages.get(r.stage).map(|stage| stage.level) {
            Some(Level::Concurrency(n)) => ("concurrency", n.to_string()),
            Some(Level::Rate(rate)) => ("rate", rate.to_string()),
            None => ("", String::new()),
        };
        writeln!(out, "{},{kind},{level},{}", r.stage, row(r))?;
    }
    Ok(())
}

fn row(r: &RequestRecord) -> String {
    fn or_empty<T: ToString>(value: Option<T>) -> String {
        value.map_or_else(String::new, |value| value.to_string())
    }
    let by = r.output_tokens_by.map(|by| match by {
        TokensBy::Usage => "usage",
        TokensBy::Chunks => "chunks",
    });
    let failure = r.failure.as_ref();
    [
        r.number.to_string(),
        r.part.as_str().to_string(),
        r.prompt.to_string(),
        or_empty(r.planned_ns),
        r.start_ns.to_string(),
        or_empty(r.connect_ns),
        or_empty(r.head_ns),
        or_empty(r.ttft_ns()),
        or_empty(r.e2e_ns()),
        r.end_ns.to_string(),
        or_empty(r.tpot_ns().map(|ns| format!("{ns:.1}"))),
        or_empty(r.prompt_tokens),
        or_empty(r.cached_tokens),
        or_empty(r.output_tokens),
        or_empty(by),
        (r.token_ns.len() as u64 + r.untimed_chunks).to_string(),
        r.sent_again.to_string(),
        or_empty(r.status),
        csv_field_of_others(r.finish.as_deref().unwrap_or_default()).into_owned(),
        or_empty(failure.map(|f| f.kind)),
        csv_field_of_others(failure.map_or("", |f| &f.message)).into_owned(),
    ]
    .join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Failure, FailureKind, Part};

    #[test]
    fn each_row_has_every_column() {
        let mut r = RequestRecord::new(0, 3, Part::Measured, 9, 1000);
        r.failure = Some(Failure { kind: FailureKind::Status(500), message: "no, \"never\"".into() });
        let row = row(&r);
        assert_eq!(row, "3,measured,9,,1000,,,,,0,,,,,,0,false,,,status_500,\"no, \"\"never\"\"\"");
        // The message has a comma of its own; stage, kind and level come before.
        assert_eq!(row.matches(',').count() - 1 + 3, HEAD.matches(',').count());
        r.finish = Some("=1+1".into());
        assert!(super::row(&r).ends_with(",'=1+1,status_500,\"no, \"\"never\"\"\""));
    }
}
