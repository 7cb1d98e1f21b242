//! How a step for several requests is divided among them: by the work that each causes in it.
//!
//! Weights are read once for all and count by tokens; keys and values are each request's own and count by its context. How
//! much of a step's bytes they are is analytic, and where the model's shape is not known, tokens alone count.

use crate::Served;
use std::collections::BTreeMap;

/// How many tokens each request holds, step by step, and what share of a step is its.
#[derive(Debug, Default)]
pub struct WorkShares {
    /// Bytes of keys and values of one token, if the model's shape is known.
    kv_bytes: Option<f64>,
    held: BTreeMap<u64, u64>,
}

impl WorkShares {
    /// Nothing is held yet. `kv_bytes`: those of one token, as
    /// [`kv_bytes_of_a_token`](super::kv_bytes_of_a_token) has them.
    pub fn new(kv_bytes: Option<f64>) -> Self {
        Self { kv_bytes, held: BTreeMap::new() }
    }

    /// The model's shape has become known.
    pub fn set_kv_bytes(&mut self, kv_bytes: Option<f64>) {
        self.kv_bytes = kv_bytes;
    }

    /// What a request holds before its first step: tokens of the prompt that no step passes, because somebody else's did.
    pub fn begin_with(&mut self, request: u64, tokens: u64) {
        self.held.insert(request, tokens);
    }

    /// A request has ended: it has no more steps.
    pub fn forget(&mut self, request: u64) {
        self.held.remove(&request);
    }

    /// The requests that a step works for, and the share of each: those that it serves, or else the one that it was begun
    /// under. The shares of a step add up to 1; there are none if it works for no request. `bytes` is what the step reads
    /// in all. Steps come in order.
    pub fn of_step(&mut self, request: Option<u64>, serves: &[Served], bytes: Option<u64>) -> Vec<(u64, f64)> {
        if serves.is_empty() {
            return request.map(|request| (request, 1.0)).into_iter().collect();
        }
        let mut after = |served: &Served| {
            let held = self.held.entry(served.request).or_default();
            *held += u64::from(served.tokens);
            *held as f64
        };
        let contexts: Vec<f64> = serves.iter().map(&mut after).collect();
        let all: f64 = contexts.iter().sum();
        // Each sequence's keys and values are read once in a step, whatever the number of its new tokens.
        let of_kv = self.kv_bytes.zip(bytes).filter(|(_, bytes)| *bytes > 0);
        let of_kv = of_kv.map_or(0.0, |(kv, bytes)| (kv * all / bytes as f64).min(1.0));
        let share = |((served, context), by_tokens): ((&Served, &f64), f64)| {
            let by_context = if all > 0.0 { context / all } else { 0.0 };
            (served.request, by_tokens * (1.0 - of_kv) + by_context * of_kv)
        };
        serves.iter().zip(&contexts).zip(Served::shares(serves)).map(share).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_of_a_step_add_up_to_one_and_a_long_context_costs_more() {
        let mut shares = WorkShares::new(Some(128.0));
        shares.begin_with(1, 28);
        let both = [Served::new(1, 1, 1), Served::new(2, 10, 0)];
        // Contexts of 29 and 10: 39 × 128 of 9,984 bytes are half of what the step reads.
        let found = shares.of_step(None, &both, Some(9_984));
        let expected = [0.5 * (1.0 / 11.0) + 0.5 * (29.0 / 39.0), 0.5 * (10.0 / 11.0) + 0.5 * (10.0 / 39.0)];
        for ((request, share), (at, expected)) in found.iter().zip([(1, expected[0]), (2, expected[1])]) {
            assert!(*request == at && (share - expected).abs() < 1e-12, "{found:?}");
        }
        assert!((found.iter().map(|(_, share)| share).sum::<f64>() - 1.0).abs() < 1e-12);
        // Without bytes, and when what was held is forgotten, tokens alone count.
        shares.forget(1);
        assert_eq!(shares.of_step(Some(7), &both, None), [(1, 1.0 / 11.0), (2, 10.0 / 11.0)]);
        assert_eq!(shares.of_step(Some(7), &[], Some(9)), [(7, 1.0)]);
        assert_eq!(shares.of_step(None, &[], Some(9)), []);
    }
}
