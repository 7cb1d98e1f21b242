//! Values of options, from texts. `None` for a text that says no such value.

use crate::gpu::KernelWindows;
use candlescope_core::Schedule;
use candlescope_core::injected::Windows;
use candlescope_core::numbers::read_share;
use std::str::FromStr;

pub(super) fn not_empty(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_string())
}

/// A key alone is on.
pub(super) fn switch(text: &str) -> Option<bool> {
    match text {
        "" | "on" | "true" | "1" => Some(true),
        "off" | "false" | "0" => Some(false),
        _ => None,
    }
}

/// Whether a switch is off.
pub(super) fn off(text: &str) -> Option<bool> {
    switch(text).map(|on| !on)
}

pub(super) fn at_least<T: FromStr + PartialOrd>(least: T) -> impl Fn(&str) -> Option<T> {
    move |text| text.parse().ok().filter(|number| *number >= least)
}

/// Returns the text itself: configurations are compared, and floats have no exact equality.
pub(super) fn share(text: &str) -> Option<String> {
    let share: f64 = text.parse().ok()?;
    (0.0..=1.0).contains(&share).then(|| text.to_string())
}

/// A share above 0, as `0.01` or `1%`; returns it without the sign, as text like [`share`].
pub(super) fn cost(text: &str) -> Option<String> {
    read_share(text).map(|share| share.to_string())
}

pub(super) fn windows(text: &str) -> Option<KernelWindows> {
    match text {
        "" => Some(KernelWindows::Scheduled(Schedule::all())),
        "off" => Some(KernelWindows::Off),
        "on-request" => Some(KernelWindows::OnRequest),
        _ => Windows::parse(text).map(KernelWindows::from).or_else(|| text.parse().ok().map(KernelWindows::Scheduled)),
    }
}
