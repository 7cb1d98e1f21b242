//! What an operation takes by the rates and costs that its kinds attain.

use super::work::Operation;
use crate::devices::{Attained, OperationClass};

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
}
