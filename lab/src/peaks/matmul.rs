//! FLOP/s of matrix products: over a sweep of shapes, in a short run after a rest, and over seconds without a break.

use crate::hardware::{DeviceTimer, case_error};
use crate::method::{Case, CaseError, CaseId, Measurement, Mode};
use crate::operands::{Element, Inputs};
use candle_core::{Device, Tensor};
use std::time::{Duration, Instant};

/// Products in flight at most, so that a device that is slower than the host gets no endless queue …
const BATCH: u64 = 16;
/// … and FLOPs in flight, so that a short run stays short: some milliseconds of a GPU.
const FLOPS_IN_FLIGHT: f64 = 2e12;

/// A product (m×k)·(k×n).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ProductShape {
    pub(super) m: usize,
    pub(super) n: usize,
    pub(super) k: usize,
}

impl ProductShape {
    pub(super) const fn new(m: usize, n: usize, k: usize) -> Self {
        Self { m, n, k }
    }

    fn flops(self) -> f64 {
        2.0 * self.m as f64 * self.n as f64 * self.k as f64
    }
}

impl std::fmt::Display for ProductShape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}x{}x{}", self.m, self.n, self.k)
    }
}

/// How long products are run for one sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Span {
    /// One product, after a rest: a GPU that multiplies without a break reaches its power limit and slows down, and the
    /// fastest single product is not among those.
    One { rest: Duration },
    /// Products for this time, after a rest and a product that wakes the device up.
    AfterRest { rest: Duration, busy: Duration },
    /// Products for this time without a break, after as much of the same.
    Sustained(Duration),
}

/// FLOP/s of one shape in one element type.
pub(super) struct Product {
    id: CaseId,
    device: Device,
    element: Element,
    shape: ProductShape,
    span: Span,
    seed: u64,
    ready: Option<(Tensor, Tensor, Option<DeviceTimer>)>,
}

impl Product {
    pub(super) fn new(
        id: CaseId,
        device: &Device,
        element: Element,
        shape: ProductShape,
        span: Span,
        seed: u64,
    ) -> Self {
        Self { id, device: device.clone(), element, shape, span, seed, ready: None }
    }

    /// Products until `time` is over, at least one; how many, and the nanoseconds on the host and on the device.
    fn products(&self, time: Duration) -> candle_core::Result<(u64, u64, Option<u64>)> {
        let Some((a, b, timer)) = &self.ready else { return Ok((0, 0, None)) };
        if let Some(timer) = timer {
            timer.begin()?;
        }
        let batch = ((FLOPS_IN_FLIGHT / self.shape.flops()) as u64).clamp(1, BATCH);
        let (began, mut count) = (Instant::now(), 0);
        loop {
            for _ in 0..if time.is_zero() { 1 } else { batch } {
                std::hint::black_box(a.matmul(b)?);
                count += 1;
                if self.device.is_cpu() && began.elapsed() >= time {
                    break;
                }
            }
            if began.elapsed() >= time {
                break;
            }
            self.device.synchronize()?;
        }
        let device_ns = match timer {
            Some(timer) => {
                timer.end()?;
                Some(timer.elapsed_ns()?)
            }
            None => None,
        };
        Ok((count, began.elapsed().as_nanos() as u64, device_ns))
    }

    fn sample(&self, mode: Mode) -> candle_core::Result<Measurement> {
        let (count, host_ns, device_ns) = match self.span {
            Span::One { rest } => {
                std::thread::sleep(rest);
                self.products(Duration::ZERO)?
            }
            Span::AfterRest { rest, busy } => {
                std::thread::sleep(rest);
                self.products(busy / 4)?;
                self.products(busy)?
            }
            // Warm-up is what comes before; it needs no repetitions of its own.
            Span::Sustained(time) => self.products(if mode == Mode::WarmUp { time / 4 } else { time })?,
        };
        let ns = device_ns.unwrap_or(host_ns).max(1);
        let flops = self.shape.flops() * count as f64 / (ns as f64 / 1e9);
        Ok(Measurement::new(host_ns).device_ns(device_ns).figure("value", flops))
    }
}

impl Case for Product {
    fn id(&self) -> &CaseId {
        &self.id
    }

    fn prepare(&mut self) -> Result<(), CaseError> {
        let ProductShape { m, n, k } = self.shape;
        let mut inputs = Inputs::new(self.seed, &self.device);
        let mut made = || -> candle_core::Result<_> {
            let (a, b) = (inputs.values((m, k), self.element)?, inputs.values((k, n), self.element)?);
            self.device.synchronize()?;
            Ok((a, b, DeviceTimer::new(&self.device)?))
        };
        self.ready = Some(made().map_err(|error| case_error(&error))?);
        Ok(())
    }

    fn run(&mut self, mode: Mode) -> Result<Measurement, CaseError> {
        self.sample(mode).map_err(|error| case_error(&error))
    }

    fn release(&mut self) {
        self.ready = None;
    }
}
