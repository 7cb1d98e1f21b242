//! What candle's kernels attain on a device, kind by kind: the finer form of a calibration.
//!
//! On a GPU a kernel takes a time of its own and that of its bytes or FLOPs, one after the other, rather than the
//! longer of the two: a product of one row by 16 million weights in bf16 took 10.7 µs on an H200, one by 525 million
//! 236 µs, which is 3.4 µs and 4.5 TB/s for both. Its softmax and norms give a row to so few threads that a long row
//! takes long however few there are, and the host pays more for a product (cuBLAS chooses a kernel) and for a strided
//! operand (its layout is uploaded) than for another launch.

use super::classes::{ByClass, OperationClass};
use crate::step::Operation;
use serde::{Deserialize, Serialize};

/// Rates and costs by kind of operation. Times are nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct AttainedRates {
    /// Bytes/s that kernels of each kind move, activations in and out included.
    pub bandwidth: ByClass,
    /// Bytes/s of attention's products from several tokens at once; in files that do not have it those of all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt_attention_bandwidth: Option<f64>,
    /// FLOP/s of attention's products; those with weights are in the device's own table.
    pub attention_flops: f64,
    /// What a product takes on the device beside its work.
    pub product_ns: f64,
    /// What any other kernel takes there.
    pub kernel_ns: f64,
    /// What a strided operand costs there beyond that: its layout is uploaded, and walked once. 0 in files that do not
    /// have it, where it is within other figures.
    #[serde(default)]
    pub strided_ns: f64,
    /// Bytes/s of products of several rows with matrices whose rows do not end on 16 bytes. Files that do not have it
    /// were fitted without telling these apart: they take the bandwidth of all products with weights.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unaligned_bandwidth: Option<f64>,
    /// What one of the loads that a thread does one after the other takes.
    pub serial_ns: f64,
    /// What lies between two kernels, or an upload and a kernel, that wait for each other in a stream: part of a step's
    /// time on the device, and of no kernel's. 0 in files that do not have it.
    #[serde(default)]
    pub gap_ns: f64,
    /// What launching a product costs the host beyond another kernel's launch.
    pub product_launch_ns: f64,
    /// What launching a kernel on a strided operand costs it beyond that.
    pub strided_launch_ns: f64,
    /// What launching the sum of a divided product costs the host, which follows the product at once. As any other
    /// launch in files that do not have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub divided_launch_ns: Option<f64>,
}

impl AttainedRates {
    /// Nanoseconds that an operation takes on the device, once, beside its bytes and FLOPs.
    pub fn beside_work(&self, operation: &Operation) -> f64 {
        let others = (operation.kernels - operation.products).max(0.0) + operation.divided;
        operation.products * self.product_ns
            + others * self.kernel_ns
            + operation.strided * self.strided_ns
            + operation.serial * self.serial_ns
            + operation.added_bytes / self.bandwidth.pointwise * 1e9
    }

    /// Nanoseconds that an operation's bytes take, once; what kernels beside the product move is beside its work.
    pub fn moving(&self, operation: &Operation) -> f64 {
        (operation.cost.io_bytes() - operation.added_bytes) / self.bandwidth_of(operation) * 1e9
    }

    /// Bytes/s of an operation.
    pub fn bandwidth_of(&self, operation: &Operation) -> f64 {
        let own = self.bandwidth.of(OperationClass::of(operation.name));
        match operation {
            Operation { unaligned: true, .. } => self.unaligned_bandwidth.unwrap_or(own),
            Operation { from_several: true, .. } => self.prompt_attention_bandwidth.unwrap_or(own),
            _ => own,
        }
    }

    /// FLOP/s of an operation, if they are not those of the device.
    pub fn flops_of(&self, operation: &Operation) -> Option<f64> {
        (OperationClass::of(operation.name) == OperationClass::Attention).then_some(self.attention_flops)
    }

    /// Nanoseconds between an operation's kernels and uploads on the device, once.
    pub fn gaps(&self, operation: &Operation) -> f64 {
        (operation.kernels + operation.divided + operation.strided) * self.gap_ns
    }

    /// Nanoseconds that launching an operation takes on the host, once, where another kernel's launch takes `launch_ns`.
    pub fn launches(&self, operation: &Operation, launch_ns: f64) -> f64 {
        operation.kernels * launch_ns
            + operation.divided * self.divided_launch_ns.unwrap_or(launch_ns)
            + operation.products * self.product_launch_ns
            + operation.strided * self.strided_launch_ns
    }

    /// Whether all figures can be computed with.
    pub(super) fn is_sound(&self) -> bool {
        let costs = [
            self.product_ns,
            self.kernel_ns,
            self.strided_ns,
            self.serial_ns,
            self.product_launch_ns,
            self.strided_launch_ns,
            self.gap_ns,
            self.divided_launch_ns.unwrap_or(0.0),
        ];
        let rates = [
            self.attention_flops,
            self.prompt_attention_bandwidth.unwrap_or(self.bandwidth.attention),
            self.unaligned_bandwidth.unwrap_or(self.bandwidth.projections),
        ];
        self.bandwidth.is_positive()
            && rates.iter().all(|rate| rate.is_finite() && *rate > 0.0)
            && costs.iter().all(|cost| cost.is_finite() && *cost >= 0.0)
    }
}
