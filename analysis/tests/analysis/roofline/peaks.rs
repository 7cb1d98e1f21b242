//! Peaks from files.

use candlescope_work::devices::{
    DRIVER_LAUNCH_NS, DeviceKind, LAUNCH_NS, Multiply, Origin, known_device, peaks_device,
};

#[test]
fn a_file_of_measured_figures() {
    let text = r#"{
        "format": "candlescope-peaks", "format_version": 1, "candle": "0.11.1", "measured_ns": 1,
        "device": { "kind": "cuda", "id": "GPU-1", "name": "NVIDIA H200", "host": "a" },
        "figures": [
            { "kind": "flops", "dtype": "bf16", "condition": "sustained", "value": 6.6e14, "at": "8192", "n": 5,
              "range": [6e14, 7e14] },
            { "kind": "flops", "dtype": "bf16", "condition": "boost", "value": 7.6e14, "at": "1024", "n": 5,
              "range": [7e14, 8e14] },
            { "kind": "copy", "value": 9e12, "at": "2 GiB", "n": 5, "range": [1, 2] },
            { "kind": "read", "value": 4.17e12, "at": "2 GiB", "n": 5, "range": [4e12, 4.2e12] },
            { "kind": "launch", "value": 7e-6, "at": "one", "n": 9, "range": [6e-6, 9e-6] },
            { "kind": "warp_speed", "value": "unheard of" }
        ] }"#;
    let device = peaks_device(text, None).unwrap();
    assert_eq!((device.name.as_str(), device.kind, device.origin), ("NVIDIA H200", DeviceKind::Gpu, Origin::Measured));
    assert_eq!(device.flops.get(&Multiply::Bf16), Some(&7.6e14));
    assert_eq!(device.bandwidth, 4.17e12, "reading, not the copy");
    // A launch of the driver is not what a kernel costs candle's host, but goes with it; a calibration's is.
    let driver = LAUNCH_NS.mid * 7_000.0 / DRIVER_LAUNCH_NS;
    assert!(device.launch.is_some_and(|launch| (launch.mid - driver).abs() < 1e-6), "{:?}", device.launch);
    let calibrated = peaks_device(&text.replace("candlescope-peaks", "candlescope-calibration"), None).unwrap();
    let launch = calibrated.launch.unwrap();
    assert!((launch.mid - 7000.0).abs() < 1e-6 && (launch.low - 6000.0).abs() < 1e-6, "{launch:?}");
    // What a file does not say, the datasheet of the same device does.
    assert_eq!(device.memory, known_device("H200").unwrap().memory);
    assert!(device.source.contains("candle 0.11.1"), "{}", device.source);
}

#[test]
fn peaks_that_were_measured_beside_others_stay_marked() {
    let of_bench = r#"{ "format": "candlescope-peaks", "device": { "kind": "cpu", "name": "a board" }, "disturbed": SEEN,
        "figures": [{ "kind": "flops", "dtype": "f32", "value": 1e12 }, { "kind": "read", "value": 5e10 }] }"#;
    let of_run = r#"{ "name": "a board", "peaks": [
        { "kind": "flops", "dtype": "f32", "value": 1e12, "label": "measured", "disturbed": SEEN },
        { "kind": "bandwidth", "value": 5e10, "label": "measured" } ] }"#;
    let is_disturbed = |text: &str, seen: &str| {
        let device = peaks_device(&text.replace("SEEN", seen), None).unwrap();
        assert!(device.peaks().iter().all(|peak| peak.disturbed == device.disturbed), "a roof of them is as well");
        device.disturbed
    };
    assert!(is_disturbed(of_bench, r#"["other processes used 1.5 of 2 cores"]"#) && !is_disturbed(of_bench, "[]"));
    assert!(is_disturbed(of_run, "true") && !is_disturbed(of_run, "false"));
}

#[test]
fn a_list_as_in_a_run_and_a_file_by_hand() {
    let list = r#"{ "name": "a board", "peaks": [
        { "kind": "flops", "dtype": "f32", "value": 1e12, "label": "measured", "source": "a bench" },
        { "kind": "bandwidth", "value": 5e10, "label": "measured" } ] }"#;
    let device = peaks_device(list, None).unwrap();
    assert_eq!((device.bandwidth, device.memory, device.source.as_str()), (5e10, None, "a bench"));
    // Beside a measured figure the datasheet's of the same kind and type is left out.
    let both = list.replace(
        "\"peaks\": [",
        r#""peaks": [
        { "kind": "flops", "dtype": "f32", "value": 9e12, "label": "datasheet", "source": "paper" },
        { "kind": "bandwidth", "value": 9e10, "label": "datasheet" },"#,
    );
    assert_eq!(peaks_device(&both, None).unwrap(), device);
    let hand = r#"{ "kind": "cpu", "flops": { "f32": 4e11 }, "bandwidth": 3e10, "memory_bytes": 16e9, "sync_ns": 10 }"#;
    let device = peaks_device(hand, None).unwrap();
    assert_eq!((device.kind, device.memory, device.sync), (DeviceKind::Cpu, Some(16e9), Some(10.0)));
    assert_eq!(device.launch, None, "nothing is launched on a CPU");
}

#[test]
fn what_a_calibration_did_not_determine_is_the_datasheets_or_missing() {
    let of = |name: &str| {
        let text = r#"{ "format": "candlescope-calibration", "device": { "kind": "cuda", "name": "DEVICE" },
            "source": "three runs", "figures": [
            { "kind": "read", "value": 1e9, "determined": false },
            { "kind": "flops", "dtype": "bf16", "value": 5e14, "determined": true },
            { "kind": "flops", "dtype": "f32", "value": 1.0, "determined": false },
            { "kind": "launch", "value": 1.0, "determined": false } ] }"#;
        peaks_device(&text.replace("DEVICE", name), None)
    };
    let (device, sheet) = (of("NVIDIA H200").unwrap(), known_device("H200").unwrap());
    assert_eq!((device.bandwidth, device.launch), (sheet.bandwidth, sheet.launch));
    let flops = |kind| (device.flops.get(&kind).copied(), sheet.flops.get(&kind).copied());
    assert_eq!(flops(Multiply::Bf16).0, Some(5e14));
    assert_eq!(flops(Multiply::F32).0, flops(Multiply::F32).1);
    assert!(device.source.contains("three runs; not determined") && device.source.contains("bandwidth, FLOP/s of f32"));
    let error = of("a board of ours").unwrap_err().to_string();
    assert!(error.contains("did not determine `bandwidth`"), "{error}");
}

#[test]
fn what_is_wrong_is_named() {
    let says = |text: &str| peaks_device(text, None).unwrap_err().to_string();
    assert!(says("nonsense").contains("not JSON"));
    assert!(says("{}").contains("`bandwidth`"));
    assert!(says(r#"{ "bandwidth": 1e9 }"#).contains("`flops`"));
    assert!(says(r#"{ "bandwidth": -1, "flops": {"f32": 1} }"#).contains("`bandwidth`"));
    assert!(says(r#"{ "figures": [ { "kind": "read", "value": null } ] }"#).contains("`read`"));
}
