//! FLOP/s of matrix products: over a sweep of shapes, in a short run after a rest, and over seconds without a break.

use crate::hardware::{DeviceTimer, case_error};
use crate::method::{Case, CaseError, CaseId, Measurement, Mode};
use crate::operands::{Element, Inputs};
use candle_core::{Device, Tensor};
use std::time::{Duration, Instant};

/// FLOPs launched before the first mark: longer than the host takes to launch what is measured (0.7 ms of an H200).
const LEAD_FLOPS: f64 = 5e11;
/// Products launched before it at most.
const MOST_AHEAD: u64 = 50;

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

    /// `count` products without a break: nanoseconds on the host and on the device.
    fn products(&self, count: u64) -> candle_core::Result<(u64, Option<u64>)> {
        let Some((a, b, timer)) = &self.ready else { candle_core::bail!("it was not prepared") };
        // An output is freed where the stream has got to, so that the next product takes the same memory, and the last
        // one is kept over the wait: there the driver's pool gives free memory back, and mapping it again takes longer
        // than some products.
        let mut output = None;
        if timer.is_some() {
            // The device is at work when the first mark comes, so that no launch is waited for between the marks.
            for _ in 0..((LEAD_FLOPS / self.shape.flops()) as u64).clamp(1, MOST_AHEAD) {
                drop(output.take());
                output = Some(a.matmul(b)?);
            }
        }
        if let Some(timer) = timer {
            timer.begin()?;
        }
        let began = Instant::now();
        for _ in 0..count {
            drop(output.take());
            output = Some(std::hint::black_box(a.matmul(b)?));
        }
        let device_ns = match timer {
            Some(timer) => {
                timer.end()?;
                Some(timer.elapsed_ns()?)
            }
            None => None,
        };
        let host_ns = began.elapsed().as_nanos() as u64;
        drop(output);
        Ok((host_ns, device_ns))
    }

    fn sample(&self, mode: Mode) -> candle_core::Result<Measurement> {
        // The driver bounds how much is in flight: a launch waits once about a thousand are.
        let in_time = |time: Duration| -> candle_core::Result<u64> {
            let (host_ns, device_ns) = self.products(1)?;
            Ok((time.as_nanos() as u64).div_ceil(device_ns.unwrap_or(host_ns).max(1)).max(1))
        };
        let count = match self.span {
            Span::One { rest } => {
                std::thread::sleep(rest);
                1
            }
            Span::AfterRest { rest, busy } => {
                std::thread::sleep(rest);
                in_time(busy)?
            }
            // Warm-up is what comes before; it needs no repetitions of its own.
            Span::Sustained(time) => in_time(if mode == Mode::WarmUp { time / 4 } else { time })?,
        };
        let (host_ns, device_ns) = self.products(count)?;
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
