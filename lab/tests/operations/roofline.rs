use candlescope_lab::peaks::{Condition, DeviceIdentity, PeakFigure, Peaks};
use candlescope_work::devices::{Peak, PeakKind, Roof};
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

#[test]
fn measured_peaks_come_before_the_datasheet_s() {
    let sheet = [
        json!({ "kind": "flops", "value": 1e12, "label": "datasheet", "source": "s", "dtype": "f32" }),
        json!({ "kind": "flops", "value": 2e12, "label": "datasheet", "source": "s", "dtype": "bf16" }),
        json!({ "kind": "bandwidth", "value": 2e10, "label": "datasheet", "source": "s" }),
    ];
    let sheet = || sheet.iter().filter_map(Peak::read);
    let both = Roof::new(sheet().chain(peaks().environment()));
    let label = |dtype| both.flops(Some(dtype)).unwrap().label.as_str();
    assert_eq!((label("f32"), label("bf16")), ("measured", "datasheet"));
    assert_eq!((both.flops(Some("f32")).unwrap().value, both.bandwidth().unwrap().value), (100e9, 10e9));
    let alone = Roof::new(sheet());
    assert_eq!((alone.flops(Some("f32")).unwrap().value, alone.bandwidth().unwrap().value), (1e12, 2e10));
}
