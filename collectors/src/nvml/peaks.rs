//! Datasheet peaks of GPUs by name: dense figures, without sparsity. An unknown GPU has none.
//!
//! Sources: stas00/ml-engineering `compute/accelerator/README.md`; NVIDIA/TensorRT-LLM `auto_parallel/cluster_info.py`;
//! Lightning `fabric/utilities/throughput.py`; karpathy/llm.c `llmc/mfu.h`. Where these disagree, the dense figure of
//! NVIDIA's datasheet is used.

use serde_json::{Value, json};

/// One row: NVML's names of the product (without `NVIDIA`, `Tesla` and `GeForce`), TFLOP/s, and GB/s.
struct Row {
    names: &'static [&'static str],
    f32: Option<f64>,
    tf32: Option<f64>,
    f16: f64,
    has_bf16: bool,
    fp8: Option<f64>,
    int8: Option<f64>,
    bandwidth: f64,
}

#[rustfmt::skip]
const TABLE: &[Row] = &[
    Row { names: &["T4"], f32: Some(8.1), tf32: None, f16: 65.0, has_bf16: false, fp8: None, int8: Some(130.0), bandwidth: 300.0 },
    Row { names: &["V100-SXM2-16GB", "V100-SXM2-32GB"], f32: Some(15.7), tf32: None, f16: 125.0, has_bf16: false, fp8: None, int8: None, bandwidth: 900.0 },
    Row { names: &["V100-PCIE-16GB", "V100-PCIE-32GB"], f32: Some(14.0), tf32: None, f16: 112.0, has_bf16: false, fp8: None, int8: None, bandwidth: 900.0 },
    Row { names: &["A10G"], f32: None, tf32: Some(35.0), f16: 70.0, has_bf16: true, fp8: None, int8: Some(140.0), bandwidth: 600.0 },
    Row { names: &["L4"], f32: Some(30.3), tf32: Some(60.0), f16: 121.0, has_bf16: true, fp8: Some(242.0), int8: Some(242.0), bandwidth: 300.0 },
    Row { names: &["A100-SXM4-40GB", "A100-PCIE-40GB"], f32: Some(19.5), tf32: Some(156.0), f16: 312.0, has_bf16: true, fp8: None, int8: Some(624.0), bandwidth: 1555.0 },
    Row { names: &["A100-SXM4-80GB"], f32: Some(19.5), tf32: Some(156.0), f16: 312.0, has_bf16: true, fp8: None, int8: Some(624.0), bandwidth: 2039.0 },
    Row { names: &["A100 80GB PCIe"], f32: Some(19.5), tf32: Some(156.0), f16: 312.0, has_bf16: true, fp8: None, int8: Some(624.0), bandwidth: 1935.0 },
    Row { names: &["H100 80GB HBM3"], f32: Some(67.0), tf32: Some(494.5), f16: 989.0, has_bf16: true, fp8: Some(1979.0), int8: Some(1979.0), bandwidth: 3350.0 },
    Row { names: &["H100 PCIe"], f32: Some(51.0), tf32: Some(378.0), f16: 756.0, has_bf16: true, fp8: Some(1513.0), int8: Some(1513.0), bandwidth: 2000.0 },
    Row { names: &["H200"], f32: Some(67.0), tf32: Some(494.5), f16: 989.0, has_bf16: true, fp8: Some(1979.0), int8: Some(1979.0), bandwidth: 4800.0 },
    Row { names: &["RTX 3090"], f32: Some(35.6), tf32: Some(35.6), f16: 71.0, has_bf16: true, fp8: None, int8: None, bandwidth: 936.0 },
    Row { names: &["RTX 4090"], f32: Some(82.6), tf32: Some(82.6), f16: 165.0, has_bf16: true, fp8: Some(330.0), int8: Some(660.0), bandwidth: 1008.0 },
    Row { names: &["B200"], f32: None, tf32: Some(1125.0), f16: 2250.0, has_bf16: true, fp8: Some(4500.0), int8: Some(4500.0), bandwidth: 8000.0 },
];

/// The peaks of the GPU that NVML calls `name`, in the form of `environment.peaks`: objects with `kind` (`flops` or
/// `bandwidth`), `value` (FLOP/s or B/s), `label` (`datasheet`), `source`, and for FLOPs `dtype`. Empty if the GPU is
/// not known.
///
/// The name has to match in full: an `H200 NVL` is no `H200`, a laptop's `RTX 4090` is no `RTX 4090`.
pub fn datasheet_peaks(name: &str) -> Vec<Value> {
    let product = ["NVIDIA ", "Tesla ", "GeForce "]
        .iter()
        .fold(name.trim(), |rest, maker| rest.strip_prefix(maker).unwrap_or(rest));
    let Some(row) = TABLE.iter().find(|row| row.names.contains(&product)) else { return Vec::new() };
    let source = format!("{name}, dense, datasheet figure");
    let flops = [
        ("f32", row.f32),
        ("tf32", row.tf32),
        ("f16", Some(row.f16)),
        ("bf16", row.has_bf16.then_some(row.f16)),
        ("f8e4m3", row.fp8),
        ("i8", row.int8),
    ];
    let flops = flops.into_iter().filter_map(|(dtype, tera)| {
        let value = (tera? * 1e12).round();
        Some(json!({ "kind": "flops", "value": value, "label": "datasheet", "source": source, "dtype": dtype }))
    });
    let bandwidth = (row.bandwidth * 1e9).round();
    flops.chain([json!({ "kind": "bandwidth", "value": bandwidth, "label": "datasheet", "source": source })]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peak(name: &str, dtype: &str) -> Option<f64> {
        datasheet_peaks(name).iter().find(|p| p["dtype"] == dtype)?["value"].as_f64()
    }

    #[test]
    fn known_gpus_are_found_by_the_name_nvml_gives() {
        assert_eq!(peak("NVIDIA H200", "bf16"), Some(989e12), "dense, not the sparse 1979");
        assert_eq!(peak("NVIDIA H100 80GB HBM3", "f8e4m3"), Some(1979e12));
        assert_eq!(peak("NVIDIA GeForce RTX 4090", "f16"), Some(165e12));
        let t4 = datasheet_peaks("Tesla T4");
        assert_eq!((peak("Tesla T4", "f16"), peak("Tesla T4", "bf16")), (Some(65e12), None), "Turing has no bf16");
        let bandwidth: Vec<_> = t4.iter().filter(|p| p["kind"] == "bandwidth").map(|p| p["value"].as_f64()).collect();
        assert_eq!(bandwidth, [Some(300e9)]);
        assert!(t4.iter().all(|p| p["label"] == "datasheet" && p["source"].as_str().is_some_and(|s| s.contains("T4"))));
    }

    #[test]
    fn a_relative_of_a_known_gpu_is_not_taken_for_it() {
        for name in
            ["NVIDIA H200 NVL", "NVIDIA GeForce RTX 4090 Laptop GPU", "NVIDIA GeForce RTX 3090 Ti", "NVIDIA A100", ""]
        {
            assert_eq!(datasheet_peaks(name), Vec::<Value>::new(), "{name}");
        }
    }

    #[test]
    fn figures_stand_in_the_order_that_narrower_types_are_no_slower() {
        for row in TABLE {
            let ascending: Vec<f64> =
                [row.f32, row.tf32, Some(row.f16), row.fp8, row.int8].into_iter().flatten().collect();
            assert!(ascending.is_sorted(), "{:?}: {ascending:?}", row.names);
            // Every GPU since Volta needs tens to hundreds of f16 operations a byte: a figure in the wrong unit falls
            // outside these bounds.
            assert!((50.0..500.0).contains(&(row.f16 * 1e3 / row.bandwidth)), "{:?}", row.names);
        }
    }
}
