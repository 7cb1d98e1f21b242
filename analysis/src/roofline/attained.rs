//! What candle's kernels attain on a device, kind by kind: the finer form of a calibration.
//!
//! On a GPU a kernel takes a time of its own and that of its bytes or FLOPs, one after the other, rather than the
//! longer of the two: a product of one row by 16 million weights in bf16 took 10.7 µs on an H200, one by 525 million
//! 236 µs, which is 3.4 µs and 4.5 TB/s for both. Its softmax and norms give a row to so few threads that a long row
//! takes long however few there are, and the host pays more for a product (cuBLAS chooses a kernel) and for a strided
//! operand (its layout is uploaded) than for another launch.

use super::classes::{ByClass, OperationClass};
use super::work::Operation;
use serde::{Deserialize, Serialize};

/// Rates and costs by kind of operation. Times are nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Attained {
    /// Bytes/s, activations included.
    pub bandwidth: ByClass,
    /// FLOP/s of attention's products; those with weights are in the device's own table.
    pub attention_flops: f64,
    /// What a product takes on the device beside its work.
    pub product_ns: f64,
    /// What any other kernel takes there.
    pub kernel_ns: f64,
    /// What one of the loads that a thread does one after the other takes.
    pub serial_ns: f64,
    /// What launching a product costs the host beyond another kernel's launch.
    pub product_launch_ns: f64,
    /// What launching a kernel on a strided operand costs it beyond that.
    pub strided_launch_ns: f64,
}

impl Attained {
    /// Nanoseconds that an operation takes on the device, once, beside its bytes and FLOPs.
    pub(super) fn beside_work(&self, operation: &Operation) -> f64 {
        let others = (operation.kernels - operation.products).max(0.0) + operation.divided;
        operation.products * self.product_ns + others * self.kernel_ns + operation.serial * self.serial_ns
    }

    /// Bytes/s of an operation.
    pub(super) fn bandwidth(&self, operation: &Operation) -> f64 {
        self.bandwidth.of(operation.class)
    }

    /// FLOP/s of an operation, if they are not those of the device.
    pub(super) fn flops(&self, operation: &Operation) -> Option<f64> {
        (operation.class == OperationClass::Attention).then_some(self.attention_flops)
    }

    /// Nanoseconds that launching an operation takes on the host, once.
    pub(super) fn launches(&self, operation: &Operation, launch: f64) -> f64 {
        (operation.kernels + operation.divided) * launch
            + operation.products * self.product_launch_ns
            + operation.strided * self.strided_launch_ns
    }

    /// Whether all figures can be computed with.
    pub(super) fn is_sound(&self) -> bool {
        let costs = [self.product_ns, self.kernel_ns, self.serial_ns, self.product_launch_ns, self.strided_launch_ns];
        self.bandwidth.is_positive()
            && self.attention_flops.is_finite()
            && self.attention_flops > 0.0
            && costs.iter().all(|cost| cost.is_finite() && *cost >= 0.0)
    }
}
