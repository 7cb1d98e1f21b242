//! What an operation takes by the rates and costs that its kinds attain.

use candlescope_work::devices::{Attained, OperationClass};
use candlescope_work::step::Operation;

/// Nanoseconds that an operation takes on the device, once, beside its bytes and FLOPs.
pub(super) fn beside_work(attained: &Attained, operation: &Operation) -> f64 {
    let others = (operation.kernels - operation.products).max(0.0) + operation.divided;
    operation.products * attained.product_ns
        + others * attained.kernel_ns
        + operation.strided * attained.strided_ns
        + operation.serial * attained.serial_ns
        + operation.added_bytes / attained.bandwidth.pointwise * 1e9
}

/// Nanoseconds that an operation's bytes take, once; what kernels beside the product move is beside its work.
pub(super) fn moving(attained: &Attained, operation: &Operation) -> f64 {
    (operation.cost.io_bytes() - operation.added_bytes) / bandwidth(attained, operation) * 1e9
}

/// Bytes/s of an operation.
pub(super) fn bandwidth(attained: &Attained, operation: &Operation) -> f64 {
    let own = attained.bandwidth.of(OperationClass::of(operation.name));
    match operation {
        Operation { unaligned: true, .. } => attained.unaligned_bandwidth.unwrap_or(own),
        Operation { from_several: true, .. } => attained.prompt_attention_bandwidth.unwrap_or(own),
        _ => own,
    }
}

/// FLOP/s of an operation, if they are not those of the device.
pub(super) fn flops(attained: &Attained, operation: &Operation) -> Option<f64> {
    (OperationClass::of(operation.name) == OperationClass::Attention).then_some(attained.attention_flops)
}

/// Nanoseconds between an operation's kernels and uploads on the device, once.
pub(super) fn gaps(attained: &Attained, operation: &Operation) -> f64 {
    (operation.kernels + operation.divided + operation.strided) * attained.gap_ns
}

/// Nanoseconds that launching an operation takes on the host, once.
pub(super) fn launches(attained: &Attained, operation: &Operation, launch: f64) -> f64 {
    operation.kernels * launch
        + operation.divided * attained.divided_launch_ns.unwrap_or(launch)
        + operation.products * attained.product_launch_ns
        + operation.strided * attained.strided_launch_ns
}
