//! How much of the time of its requests a run takes for their prompts, and for decoding.

use crate::lookup_facts::decoding_share;
use candlescope_core::Phase;
use candlescope_figures::{Analysis, RequestFigures};
use candlescope_work::estimate::Estimate;

/// Shares of a time that steps of two kinds take.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct TimeShares {
    /// Those of prompts.
    pub(crate) prompts: Estimate,
    /// Those of decoding; 0 where there are none.
    pub(crate) decoding: Estimate,
}

impl TimeShares {
    /// Of the time of all requests together, as in the mean request. `is_continuous` says that they join and leave between steps.
    /// `None` where no request says when its first token came.
    pub(crate) fn of_requests(analysis: &Analysis, is_continuous: bool) -> Option<Self> {
        let measured = analysis.latency.requests.iter().filter(|request| !request.warmup);
        let prompts = of_prompts(measured, is_continuous)?;
        Some(Self { prompts, decoding: decoding_share(analysis).unwrap_or_default() })
    }

    /// Of the time from the start of the first request to the end of the last, over which tokens a second are counted. `None`
    /// where there are no requests, and where steps have no record.
    pub(crate) fn of_wall(analysis: &Analysis) -> Option<Self> {
        let wall = Some(analysis.latency.wall_ns as f64).filter(|ns| *ns > 0.0)?;
        // If some steps have no record, what a phase took is known of a part of the time only.
        analysis.phases.in_steps_ns?;
        let of = |phase: Phase| {
            let row = analysis.phases.rows.iter().find(|row| row.is_phase && row.name == phase.as_str());
            Estimate::exact(row.map_or(0.0, |row| (row.union_ns as f64 / wall).min(1.0)))
        };
        Some(Self { prompts: of(Phase::Prefill), decoding: of(Phase::Decode) })
    }
}

/// The share of these requests' time that prompts take: at least that of their own steps, at most that until their first
/// tokens. Where requests join and leave between steps, prompts of others make them wait as well: then it is at most all in
/// which none of their own other steps ran. `None` where that cannot be told, as some steps have no record.
fn of_prompts<'a>(requests: impl Iterator<Item = &'a RequestFigures>, is_continuous: bool) -> Option<Estimate> {
    let (mut all, mut least, mut most) = (0.0, 0.0, 0.0);
    for request in requests {
        let (Some(e2e), Some(ttft)) = (request.e2e_ns, request.ttft_ns) else { continue };
        let ttft = ttft.min(e2e);
        let (own, until) = match &request.parts {
            Some(parts) if is_continuous => (parts.prefill_ns, e2e.saturating_sub(parts.decode_ns + parts.other_ns)),
            Some(parts) => (parts.prefill_ns, ttft),
            // Some of its steps have no record, so what other requests' steps took of it is not known.
            None if is_continuous => return None,
            None => (ttft.saturating_sub(request.queue_ns.unwrap_or(0)), ttft),
        };
        let own = own.min(e2e);
        all += e2e as f64;
        least += own as f64;
        most += until.max(own) as f64;
    }
    let mid = if is_continuous { f64::midpoint(least, most) } else { least };
    (least > 0.0).then(|| Estimate { low: least / all, mid: mid / all, high: most / all })
}

/// What a gain of steps is of a time of which they take this share. Each bound takes what is worst, or best, of both.
pub(crate) fn of_share(gain: Estimate, share: Estimate) -> Estimate {
    let part = |gain: f64, of_gain: f64, of_loss: f64| gain * if gain > 0.0 { of_gain } else { of_loss };
    let low = part(gain.low, share.low, share.high);
    let high = part(gain.high, share.high, share.low);
    Estimate::around(gain.mid * share.mid, [low, high])
}

#[cfg(test)]
mod tests {
    use super::*;
    use candlescope_figures::RequestParts;

    fn request(e2e: u64, ttft: u64, parts: Option<(u64, u64, u64)>) -> RequestFigures {
        let parts = parts.map(|(queue_ns, prefill_ns, decode_ns)| RequestParts {
            queue_ns,
            prefill_ns,
            decode_ns,
            ..RequestParts::default()
        });
        RequestFigures { e2e_ns: Some(e2e), ttft_ns: Some(ttft), parts, ..RequestFigures::default() }
    }

    fn near(is: Estimate, low: f64, mid: f64, high: f64) {
        for (is, right) in [(is.low, low), (is.mid, mid), (is.high, high)] {
            assert!((is - right).abs() < 1e-12, "{is} is not {right}");
        }
    }

    #[test]
    fn prompts_take_their_own_steps_and_at_most_the_time_to_the_first_token() {
        let of = |requests: &[RequestFigures], is_continuous| of_prompts(requests.iter(), is_continuous);
        // All requests count together: 100 + 300 of 1,000 + 1,000, in which 120 + 500 passed until the first tokens.
        let two = [request(1_000, 120, Some((0, 100, 850))), request(1_000, 500, Some((150, 300, 400)))];
        near(of(&two, false).unwrap(), 0.2, 0.2, 0.31);
        // Beside others, all but their decoding may be time of prompts: 150 + 600.
        near(of(&two, true).unwrap(), 0.2, 0.2875, 0.375);
        // Without records of its steps, it is what lies behind the queue.
        let mut unseen = request(1_000, 500, None);
        unseen.queue_ns = Some(100);
        near(of(std::slice::from_ref(&unseen), false).unwrap(), 0.4, 0.4, 0.5);
        assert_eq!(of(&[unseen], true), None, "others' steps may be in between");
        let silent = RequestFigures { e2e_ns: Some(1_000), ..RequestFigures::default() };
        assert_eq!(of(&[silent], false), None);
    }

    #[test]
    fn a_loss_is_most_where_its_steps_take_most() {
        let share = Estimate { low: 0.2, mid: 0.4, high: 0.5 };
        near(of_share(Estimate { low: 0.1, mid: 0.5, high: 0.8 }, share), 0.02, 0.2, 0.4);
        near(of_share(Estimate { low: -0.1, mid: 0.5, high: 0.8 }, share), -0.05, 0.2, 0.4);
        near(of_share(Estimate { low: -0.8, mid: -0.5, high: -0.1 }, share), -0.4, -0.2, -0.02);
    }
}
