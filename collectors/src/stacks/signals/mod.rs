//! Samples of one thread by a timer on its CPU clock, whose signal copies registers and stack.

mod signal_thread;
mod slot;
mod sys;

pub(super) use signal_thread::{SignalThread, install, is_installed, room_for};
