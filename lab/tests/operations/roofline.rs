use candlescope_lab::kernels::{Ceilings, Roof, Work};
use candlescope_lab::peaks::{Condition, DeviceIdentity, PeakFigure, PeakKind, Peaks};
use serde_json::json;

fn figure(kind: PeakKind, dtype: Option<&str>, condition: Option<Condition>, value: f64) -> PeakFigure {
    let dtype = dtype.map(str::to_string);
    PeakFigure {
        kind,
        dtype,
        condition,
        value,
        at: "somewhere".to_string(),
        n: 3,
        range: (value, value),
        measured_ns: None,
    }
}

/// 100 GFLOP/s and 10 GB/s: a ridge at 10 FLOP/B.
pub fn peaks() -> Peaks {
    let mut peaks = Peaks::new(DeviceIdentity::cpu());
    peaks.figures = vec![
        figure(PeakKind::Flops, Some("f32"), Some(Condition::Sustained), 90e9),
        figure(PeakKind::Flops, Some("f32"), Some(Condition::Boost), 100e9),
        figure(PeakKind::Read, None, None, 10e9),
        figure(PeakKind::Copy, None, None, 12e9),
    ];
    peaks
}

fn work(flops: Option<u64>, io_bytes: u64) -> Work {
    Work { flops, io_bytes, memory_bytes: io_bytes }
}

#[test]
fn the_lower_of_two_roofs_limits() {
    let ceilings = Ceilings::new(Some(&peaks()), &[]);
    // 2 FLOP/B: 20 GFLOP/s are attainable. 2e9 FLOPs take 0.1 s at least.
    let memory = ceilings.position(&work(Some(2_000_000_000), 1_000_000_000), "f32", 0.2).unwrap();
    assert_eq!((memory.roof, memory.ceiling.label.as_str()), (Roof::Memory, "measured"));
    assert!((memory.attainable_flops.unwrap() - 20e9).abs() < 1.0 && (memory.utilisation - 0.5).abs() < 1e-12);
    // 40 FLOP/B: the peak itself, the short run's.
    let compute = ceilings.position(&work(Some(40_000_000_000), 1_000_000_000), "f32", 0.5).unwrap();
    assert_eq!(compute.roof, Roof::Compute);
    assert!((compute.attainable_flops.unwrap() - 100e9).abs() < 1.0 && (compute.utilisation - 0.8).abs() < 1e-12);
    // Without FLOPs, bandwidth is all that limits.
    let none = ceilings.position(&work(None, 1_000_000_000), "f16", 0.4).unwrap();
    assert_eq!((none.roof, none.attainable_flops), (Roof::Memory, None));
    assert!((none.utilisation - 0.25).abs() < 1e-12);
    assert_eq!(ceilings.position(&work(Some(1), 1), "bf16", 1.0), None, "no peak of that type");
}

#[test]
fn measured_peaks_come_before_the_datasheet_s() {
    let sheet = [
        json!({ "kind": "flops", "value": 1e12, "label": "datasheet", "source": "s", "dtype": "f32" }),
        json!({ "kind": "flops", "value": 2e12, "label": "datasheet", "source": "s", "dtype": "bf16" }),
        json!({ "kind": "bandwidth", "value": 2e10, "label": "datasheet", "source": "s" }),
    ];
    let both = Ceilings::new(Some(&peaks()), &sheet);
    let label = |ceilings: &Ceilings, dtype| ceilings.flops(dtype).unwrap().label.clone();
    assert_eq!((label(&both, "f32").as_str(), label(&both, "bf16").as_str()), ("measured", "datasheet"));
    assert_eq!(both.bandwidth().unwrap().value, 10e9);
    let alone = Ceilings::new(None, &sheet);
    assert_eq!((alone.flops("f32").unwrap().value, alone.bandwidth().unwrap().value), (1e12, 2e10));
    assert_eq!(Ceilings::new(None, &[]).position(&work(None, 1), "f32", 1.0), None);
}
