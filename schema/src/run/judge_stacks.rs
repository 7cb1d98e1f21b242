//! Call stacks: the rules of [`judge`](super::judge) for them.

use super::{Code, Finding, StackAccount};

/// From this share of lost samples on, shares of functions may be wrong.
const MANY: f64 = 0.05;

/// What the account of sampled stacks says.
pub(super) fn findings(account: &StackAccount, found: &mut Vec<Finding>) {
    if let Some(error) = &account.error {
        found.push(
            Finding::new(
                Code::NoStacks,
                "call stacks were not sampled to the end: {error}",
                "intervals are whole; `candlescope doctor` shows what this machine allows",
            )
            .text("error", error.as_str()),
        );
    }
    let taken = account.samples.saturating_add(account.lost);
    if account.lost as f64 > MANY * taken as f64 {
        found.push(
            Finding::new(
                Code::StacksLost,
                "{lost} of {taken} samples of call stacks were lost",
                "sample less often (`--stacks=99`), or leave the sampler a processor; intervals are whole",
            )
            .count("lost", account.lost)
            .count("taken", taken),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn codes(account: &StackAccount) -> Vec<Code> {
        let mut found = Vec::new();
        findings(account, &mut found);
        found.into_iter().map(|finding| finding.code).collect()
    }

    #[test]
    fn what_was_lost_is_told_where_it_is_much() {
        let account = StackAccount { samples: 1_000, lost: 50, ..StackAccount::default() };
        assert!(codes(&account).is_empty());
        assert_eq!(codes(&StackAccount { lost: 60, ..account.clone() }), [Code::StacksLost]);
        assert_eq!(codes(&StackAccount { error: Some("refused".into()), ..account }), [Code::NoStacks]);
    }
}
