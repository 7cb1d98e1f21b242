//! What an operation takes by the rates and costs that its kinds attain.

use crate::devices::{Attained, OperationClass};
use candlescope_work::step::Operation;

impl Attained {
    /// Nanoseconds that an operation takes on the device, once, beside its bytes and FLOPs.
    pub(super) fn beside_work(&self, operation: &Operation) -> f64 {
        let others = (operation.kernels - operation.products).max(0.0) + operation.divided;
        operation.products * self.product_ns
            + others * self.kernel_ns
            + operation.strided * self.strided_ns
            + operation.serial * self.serial_ns
            + operation.added_bytes / self.bandwidth.pointwise * 1e9
    }

    /// Nanoseconds that an operation's bytes take, once; what kernels beside the product move is beside its work.
    pub(super) fn moving(&self, operation: &Operation) -> f64 {
        (operation.cost.io_bytes() - operation.added_bytes) / self.bandwidth(operation) * 1e9
    }

    /// Bytes/s of an operation.
    pub(super) fn bandwidth(&self, operation: &Operation) -> f64 {
        let own = self.bandwidth.of(OperationClass::of(operation.name));
        match operation {
            Operation { unaligned: true, .. } => self.unaligned_bandwidth.unwrap_or(own),
            Operation { from_several: true, .. } => self.prompt_attention_bandwidth.unwrap_or(own),
            _ => own,
        }
    }

    /// FLOP/s of an operation, if they are not those of the device.
    pub(super) fn flops(&self, operation: &Operation) -> Option<f64> {
        (OperationClass::of(operation.name) == OperationClass::Attention).then_some(self.attention_flops)
    }

    /// Nanoseconds between an operation's kernels and uploads on the device, once.
    pub(super) fn gaps(&self, operation: &Operation) -> f64 {
        (operation.kernels + operation.divided + operation.strided) * self.gap_ns
    }

    /// Nanoseconds that launching an operation takes on the host, once.
    pub(super) fn launches(&self, operation: &Operation, launch: f64) -> f64 {
        operation.kernels * launch
            + operation.divided * self.divided_launch_ns.unwrap_or(launch)
            + operation.products * self.product_launch_ns
            + operation.strided * self.strided_launch_ns
    }
}
