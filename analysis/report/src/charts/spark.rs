//! The small picture in a card: the distribution of a figure's samples.

use candlescope_figures::Distribution;
use std::fmt::Write as _;

const WIDTH: f64 = 200.0;
const HEIGHT: f64 = 34.0;
const BINS: usize = 40;

/// A histogram of many samples, a row of dots for few, the median marked. Holds numbers only, so it needs no escaping.
pub(crate) fn strip(d: &Distribution) -> Option<String> {
    let range = d.max - d.min;
    if d.n < 2 || range <= 0.0 {
        return None;
    }
    // A single outlier must not squeeze everything else into one bin.
    let tail = d.p95.unwrap_or(d.max);
    let high = d.max.min(tail + 1.5 * (tail - d.min)).max(d.min + range * 1e-6);
    let x = |v: f64| 3.0 + ((v.min(high) - d.min) / (high - d.min)).clamp(0.0, 1.0) * (WIDTH - 6.0);
    let mut out = format!(
        "<svg class=\"strip\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" preserveAspectRatio=\"none\" aria-hidden=\"true\">"
    );
    if d.n >= 24 {
        let mut bins = [0u32; BINS];
        for v in &d.samples {
            let at = (v.min(high) - d.min) / (high - d.min) * BINS as f64;
            bins[(at as usize).min(BINS - 1)] += 1;
        }
        let most = f64::from(*bins.iter().max().unwrap_or(&1)).max(1.0);
        let step = (WIDTH - 6.0) / BINS as f64;
        for (i, &n) in bins.iter().enumerate().filter(|(_, n)| **n > 0) {
            let h = (f64::from(n) / most).sqrt() * (HEIGHT - 4.0);
            let _ = write!(
                out,
                "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{h:.1}\"/>",
                3.0 + i as f64 * step,
                HEIGHT - h,
                step - 0.8
            );
        }
    } else {
        let _ = write!(out, "<line class=\"axis\" x1=\"3\" x2=\"{}\" y1=\"17\" y2=\"17\"/>", WIDTH - 3.0);
        for v in &d.samples {
            let _ = write!(out, "<circle cx=\"{:.1}\" cy=\"17\" r=\"3.4\"/>", x(*v));
        }
    }
    let _ =
        write!(out, "<line class=\"median\" x1=\"{0:.1}\" x2=\"{0:.1}\" y1=\"1\" y2=\"{HEIGHT}\"/></svg>", x(d.median));
    Some(out)
}
