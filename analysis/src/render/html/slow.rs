//! The slowest requests in the page.

use super::super::format::{count, duration};
use super::super::slow_requests::{PARTS, slow_requests};
use crate::passes::Analysis;
use serde_json::{Value, json};

/// Colours of the parts, by their class.
const KINDS: [&str; 5] = ["rest", "prefill", "decode", "sample", "outside"];

/// What the section shows; null if there is nothing to compare. All bars are on one scale: the slowest is whole.
pub(super) fn values(analysis: &Analysis) -> Value {
    let Some(slow) = slow_requests(analysis) else { return Value::Null };
    let longest = slow.rows.iter().map(|row| row.figures.dur_ns).max().unwrap_or(0).max(1) as f64;
    let rows = slow.rows.iter().map(|row| {
        let parts = PARTS.iter().zip(KINDS).zip(row.parts_ns).filter(|(_, ns)| *ns > 0).map(|((part, kind), ns)| {
            json!({ "name": part.0, "kind": kind, "time": duration(ns as f64), "width": ns as f64 / longest * 100.0 })
        });
        json!({
            "request": row.figures.request.to_string(),
            "duration": duration(row.figures.dur_ns as f64),
            "times": row.times_in_words(),
            "tokens": row.tokens(),
            "parts": parts.collect::<Vec<_>>(),
            "cells": row.parts_ns.iter().map(|ns| duration(*ns as f64)).collect::<Vec<_>>(),
            "why": row.why(),
        })
    });
    let header =
        PARTS.iter().zip(KINDS).map(|((name, hint), kind)| json!({ "name": name, "hint": hint, "kind": kind }));
    json!({
        "n": count(slow.n as u64),
        "median": duration(slow.median_ns),
        "usual": slow.usual_ns.iter().map(|ns| duration(*ns)).collect::<Vec<_>>(),
        "header": header.collect::<Vec<_>>(),
        "rows": rows.collect::<Vec<_>>(),
    })
}
