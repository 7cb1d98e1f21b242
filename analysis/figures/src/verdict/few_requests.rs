//! Too few requests for a spread.

use crate::Analysis;
use candlescope_schema::run::{Code, Finding};

pub(super) fn find(run: &Analysis) -> Vec<Finding> {
    let measured = run.latency.requests.iter().filter(|request| !request.warmup).count() as u64;
    let message = match measured {
        1 => "{requests} measured request: TTFT and TPOT have no meaningful spread",
        2 => "{requests} measured requests: TTFT and TPOT have no meaningful spread",
        _ => return Vec::new(),
    };
    let remedy = "Repeat the request, at least six times after a warm-up: below that a median has no 95 % interval";
    vec![Finding::new(Code::FewRequests, message, remedy).count("requests", measured)]
}
