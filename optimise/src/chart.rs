//! The waterfall: what each remedy that was tried left of the time of a step, or of requests.

use crate::account::{Account, Phase, Verdict, time_of};
use candlescope_charts::palette::{BLUE, GREY, TEXT, VERMILION};
use candlescope_charts::svg;
use plotters::prelude::*;

const SIZE: (u32, u32) = (960, 480);
const KEPT: RGBColor = BLUE;
const TRIED: RGBColor = GREY;
const PROMISED: RGBColor = VERMILION;

/// A bar: what was left before and after, and what was promised to be left.
struct Bar {
    name: String,
    from: f64,
    to: f64,
    is_kept: bool,
    promised: Option<(f64, f64, f64)>,
}

/// The chart; `None` where nothing was measured.
pub fn waterfall(account: &Account) -> Option<String> {
    let bars = bars(&account.phases);
    if bars.is_empty() {
        return None;
    }
    let most = bars.iter().flat_map(|bar| [bar.from, bar.to]).fold(1.0, f64::max) * 1.1;
    let columns = bars.len() + 2;
    let last = bars.iter().rfind(|bar| bar.is_kept).map_or(1.0, |bar| bar.to);
    svg(SIZE, |area| {
        area.fill(&WHITE).ok()?;
        let time = time_of(account.phases.iter().filter(|phase| phase.obtained.is_some()));
        let title = format!("{} left of {}, each remedy in turns with what was there", capital(time), account.model);
        let mut chart = ChartBuilder::on(area)
            .margin(16)
            .caption(title, ("sans-serif", 20).into_font().color(&TEXT))
            .x_label_area_size(64)
            .y_label_area_size(64)
            .build_cartesian_2d(0.0..columns as f64, 0.0..most)
            .ok()?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .disable_x_axis()
            .light_line_style(TRANSPARENT)
            .y_desc(format!("share of the first state's {time}"))
            .y_label_formatter(&|share| format!("{:.0} %", share * 100.0))
            .draw()
            .ok()?;
        let whole = |at: usize, height: f64| {
            Rectangle::new([(at as f64 + 0.15, 0.0), (at as f64 + 0.85, height)], TEXT.mix(0.75).filled())
        };
        chart.draw_series([whole(0, 1.0), whole(columns - 1, last)]).ok()?;
        for (at, bar) in bars.iter().enumerate() {
            let left = (at + 1) as f64;
            let colour = if bar.is_kept { KEPT } else { TRIED };
            let rectangle = Rectangle::new(
                [(left + 0.15, bar.from.min(bar.to)), (left + 0.85, bar.from.max(bar.to))],
                colour.filled(),
            );
            chart.draw_series([rectangle]).ok()?;
            if let Some((low, mid, high)) = bar.promised {
                let middle = left + 0.5;
                let line = PathElement::new(vec![(middle, low), (middle, high)], PROMISED.stroke_width(2));
                let mark = PathElement::new(vec![(left + 0.35, mid), (left + 0.65, mid)], PROMISED.stroke_width(3));
                chart.draw_series([line, mark]).ok()?;
            }
        }
        let names = std::iter::once("before").chain(bars.iter().map(|bar| bar.name.as_str())).chain(["after"]);
        // Below the end of a bar that falls, above that of one that rises.
        let ends = bars.iter().map(|bar| (bar.to, bar.to < bar.from));
        let ends = std::iter::once((1.0, false)).chain(ends).chain([(last, false)]);
        let font = ("sans-serif", 13).into_font().color(&TEXT);
        for (at, (name, (height, falls))) in names.zip(ends).enumerate() {
            let (x, _) = chart.backend_coord(&(at as f64 + 0.15, 0.0));
            let (_, bottom) = chart.backend_coord(&(0.0, 0.0));
            let (_, top) = chart.backend_coord(&(0.0, height));
            area.draw(&Text::new(name.to_string(), (x, bottom + 10 + 16 * (at as i32 % 3)), font.clone())).ok()?;
            area.draw(&Text::new(
                format!("{:.0} %", height * 100.0),
                (x, if falls { top + 4 } else { top - 16 }),
                font.clone(),
            ))
            .ok()?;
        }
        area.draw(&Text::new("orange: promised", (SIZE.0 as i32 - 160, 44), font)).ok()
    })
}

fn bars(phases: &[Phase]) -> Vec<Bar> {
    let mut left = 1.0;
    let mut bars = Vec::new();
    for phase in phases {
        let Some(obtained) = phase.obtained else { continue };
        let after = |gain: f64| left * (1.0 - gain);
        let promised = phase.promised.as_ref().map(|p| (after(p.high), after(p.mid), after(p.low)));
        let is_kept = phase.verdict == Verdict::Kept;
        let to = after(obtained.gain);
        bars.push(Bar { name: phase.remedy.clone(), from: left, to, is_kept, promised });
        if is_kept && !phase.is_command() {
            left = to;
        }
    }
    bars
}

/// With a capital at the beginning.
fn capital(words: &str) -> String {
    let (first, rest) = words.split_at(words.len().min(1));
    first.to_uppercase() + rest
}
