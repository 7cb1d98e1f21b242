//! The figures of all known devices, and the peaks of GPUs as runs have them, stay what they are.
use candlescope_work::devices::{datasheet_peaks, known_device, known_devices};
use serde_json::{Value, json};

#[test]
fn devices_are_what_they_were() {
    let mut golden = include_str!("golden/devices.jsonl").lines();
    for name in known_devices() {
        let device = known_device(name).expect("a device of the table");
        assert_eq!(serde_json::to_string(&device).unwrap(), golden.next().unwrap_or_default());
    }
    assert_eq!(golden.next(), None);
}

#[test]
fn peaks_of_gpus_are_what_they_were() {
    for line in include_str!("golden/datasheet_peaks.jsonl").lines() {
        let golden: Value = serde_json::from_str(line).unwrap();
        let name = golden["name"].as_str().unwrap();
        assert_eq!(json!({ "name": name, "peaks": datasheet_peaks(name) }).to_string(), golden.to_string());
    }
}

fn peak(name: &str, dtype: &str) -> Option<f64> {
    Some(datasheet_peaks(name).into_iter().find(|peak| peak.dtype.as_deref() == Some(dtype))?.value)
}

#[test]
fn known_gpus_are_found_by_the_name_nvml_gives() {
    assert_eq!(peak("NVIDIA H200", "bf16"), Some(989e12), "dense, not the sparse 1979");
    assert_eq!(peak("NVIDIA H100 80GB HBM3", "f8e4m3"), Some(1979e12));
    assert_eq!(peak("NVIDIA GeForce RTX 4090", "f16"), Some(165e12));
    let t4 = datasheet_peaks("Tesla T4");
    assert_eq!((peak("Tesla T4", "f16"), peak("Tesla T4", "bf16")), (Some(65e12), None), "Turing has no bf16");
    let bandwidth: Vec<f64> = t4.iter().filter(|peak| peak.is_bandwidth()).map(|peak| peak.value).collect();
    assert_eq!(bandwidth, [300e9]);
    assert!(t4.iter().all(|peak| peak.label == "datasheet" && peak.source.contains("T4")));
}

#[test]
fn a_relative_of_a_known_gpu_is_not_taken_for_it() {
    for name in
        ["NVIDIA H200 NVL", "NVIDIA GeForce RTX 4090 Laptop GPU", "NVIDIA GeForce RTX 3090 Ti", "NVIDIA A100", ""]
    {
        assert_eq!(datasheet_peaks(name), [], "{name}");
    }
}
