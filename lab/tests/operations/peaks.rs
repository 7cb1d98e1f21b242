use crate::roofline::peaks;
use candle_core::Device;
use candlescope_lab::method::*;
use candlescope_lab::operands::Element;
use candlescope_lab::peaks::*;
use candlescope_work::devices::PeakKind;

fn gpu(id: &str, driver: &str) -> DeviceIdentity {
    let (id, driver) = (id.to_string(), Some(driver.to_string()));
    DeviceIdentity { kind: DeviceKind::Cuda, id, name: "NVIDIA H200".to_string(), driver, host: "there".to_string() }
}

#[test]
fn what_is_kept_is_read_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("new").join("cpu.json");
    let (here, peaks) = (DeviceIdentity::cpu(), peaks());
    assert_eq!(read(&path, &here).unwrap(), None, "no file, no peaks");
    write_file(&path, &peaks).unwrap();
    assert_eq!(read(&path, &here).unwrap(), Some(peaks.clone()));
    // A newer measurement takes its place.
    let mut newer = peaks;
    newer.figures.truncate(1);
    write_file(&path, &newer).unwrap();
    assert_eq!(read(&path, &here).unwrap().unwrap().figures.len(), 1);
    assert_eq!(std::fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "nothing is left beside it");
}

#[test]
fn a_measurement_of_some_types_keeps_the_others_with_their_day() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("cpu.json");
    let (mut before, mut now) = (peaks(), peaks());
    before.measured_ns = 1_773_446_400_000_000_000;
    before.figures.retain(|figure| figure.kind != PeakKind::Copy);
    let absent =
        |dtype: &str| MissingPeak { kind: PeakKind::Flops, dtype: Some(dtype.into()), reason: "no room".into() };
    before.absent = vec![absent("f16"), absent("bf16")];
    keep(&path, &before).unwrap();
    for figure in now.figures.iter_mut().filter(|figure| figure.kind == PeakKind::Flops) {
        (figure.dtype, figure.value) = (Some("bf16".to_string()), 3.0 * figure.value);
    }
    keep(&path, &now).unwrap();
    let kept = read(&path, &now.device).unwrap().unwrap();
    assert_eq!((kept.dtypes(), kept.measured_ns), (vec!["bf16", "f32"], now.measured_ns));
    assert_eq!((kept.of(PeakKind::Flops).count(), kept.of(PeakKind::Read).count()), (4, 1), "bandwidth is the new one");
    let f32 = kept.flops("f32").unwrap();
    assert_eq!((f32.value, f32.measured_ns), (100e9, Some(before.measured_ns)));
    assert_eq!(kept.flops("bf16").unwrap().measured_ns, None);
    assert_eq!(kept.absent, [absent("f16")], "bf16 is there now");
    let sources = kept.environment();
    let source = |dtype: &str| sources.iter().find(|peak| peak.dtype.as_deref() == Some(dtype)).unwrap().source.clone();
    assert!(source("f32").ends_with("2026-03-14") && source("bf16").ends_with(&now.day()));
    // A third measurement leaves the first day with what is of it.
    now.figures.retain(|figure| figure.kind != PeakKind::Flops);
    keep(&path, &now).unwrap();
    let kept = read(&path, &now.device).unwrap().unwrap();
    assert_eq!(kept.flops("f32").unwrap().measured_ns, Some(before.measured_ns));
    assert_eq!(kept.flops("bf16").unwrap().measured_ns, Some(now.measured_ns));
    // What all figures of a file have in common has to be the same.
    now.threads = Some(7);
    keep(&path, &now).unwrap();
    assert!(read(&path, &now.device).unwrap().unwrap().dtypes().is_empty());
}

#[test]
fn what_was_tried_and_failed_stays_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("cpu.json");
    let (mut before, mut now) = (peaks(), peaks());
    before.measured_ns = 1_773_446_400_000_000_000;
    let missing = |kind, reason: &str| MissingPeak { kind, dtype: None, reason: reason.to_string() };
    before.absent = vec![missing(PeakKind::Launch, "nothing is launched")];
    keep(&path, &before).unwrap();
    let read_before = before.of(PeakKind::Read).next().unwrap().clone();
    for figure in &mut now.figures {
        figure.value *= 2.0;
    }
    now.figures.retain(|figure| figure.kind != PeakKind::Read);
    now.absent =
        vec![missing(PeakKind::Read, "out of memory"), missing(PeakKind::Launch, "nothing is launched, as ever")];
    keep(&path, &now).unwrap();
    let kept = read(&path, &now.device).unwrap().unwrap();
    let reading: Vec<&PeakFigure> = kept.of(PeakKind::Read).collect();
    assert_eq!(reading, [&PeakFigure { measured_ns: Some(before.measured_ns), ..read_before }]);
    assert_eq!(kept.absent, now.absent[1..], "reading is not absent, and each reason stands once");
    // What was measured is the new one.
    assert_eq!((kept.flops("f32").unwrap().value, kept.flops("f32").unwrap().measured_ns), (200e9, None));
    assert_eq!(kept.figures.len(), before.figures.len());
}

#[test]
fn a_damaged_file_is_an_error_that_names_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("peaks.json");
    let here = DeviceIdentity::cpu();
    let mut whole = serde_json::to_value(peaks()).unwrap();
    let text = whole.to_string();
    let mut bad =
        vec![("not json".to_string(), "expected"), (text[..text.len() / 2].to_string(), "EOF"), (String::new(), "EOF")];
    bad.push((text.replace("candlescope-peaks", "another"), "its format is `another`"));
    bad.push((text.replace("\"format_version\":1", "\"format_version\":9"), "version is 9"));
    whole["figures"][0]["value"] = (-1.0).into();
    bad.push((whole.to_string(), "flops is -1"));
    whole["figures"][0]["value"] = serde_json::Value::Null;
    bad.push((whole.to_string(), "null"));
    bad.push((" ".repeat(5 << 20), "5242880"));
    for (text, why) in bad {
        std::fs::write(&path, &text).unwrap();
        let error = read(&path, &here).unwrap_err().to_string();
        let start = text.chars().take(40).collect::<String>();
        assert!(
            error.contains(path.to_str().unwrap()) && error.contains("bench peaks --device cpu"),
            "{start}: {error}"
        );
        assert!(error.contains(why) || why == "5242880", "{start}: {error}");
    }
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    assert!(matches!(read(&path, &here), Err(PeaksError::Io { .. })));
}

#[test]
fn peaks_of_another_device_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("peaks.json");
    write_file(&path, &Peaks::new(gpu("GPU-1", "580.1"))).unwrap();
    assert!(read(&path, &gpu("GPU-1", "580.1")).unwrap().is_some());
    let moved = DeviceIdentity { host: "elsewhere".to_string(), ..gpu("GPU-1", "580.1") };
    assert!(read(&path, &moved).unwrap().is_some(), "a GPU's peaks go with it");
    for other in [gpu("GPU-2", "580.1"), gpu("GPU-1", "590.2"), DeviceIdentity::cpu()] {
        let error = read(&path, &other).unwrap_err();
        assert!(matches!(error, PeaksError::OtherDevice { .. }), "{error}");
        let text = error.to_string();
        assert!(text.contains("GPU-1, driver 580.1") && text.contains(&other.to_string()), "{text}");
        assert!(text.contains("delete it"), "{text}");
    }
}

#[test]
fn each_device_and_driver_has_a_file_of_its_own() {
    let Ok(directory) = directory() else { return };
    let name = |device: &DeviceIdentity| path(device).unwrap().strip_prefix(&directory).unwrap().display().to_string();
    assert_eq!(name(&gpu("GPU-1", "580.1")), "GPU-1-580.1.json");
    assert_eq!(name(&gpu("GPU-1", "../x")), "GPU-1-.._x.json");
    let cpu = DeviceIdentity::cpu();
    assert!(name(&cpu).starts_with("cpu-") && !name(&cpu).contains('/'));
}

/// A machine on which others are at work.
struct Busy;

impl Surroundings for Busy {
    fn disturbances(&mut self) -> Vec<String> {
        vec!["others use 1.6 of 2 cores".into()]
    }

    fn after(&mut self) -> Reading {
        Reading::default()
    }

    fn source(&self) -> String {
        "none".into()
    }
}

#[test]
fn a_quick_measurement_has_every_figure_or_its_reason() {
    let options = PeakOptions::new(Device::Cpu).elements(&[Element::F32, Element::Q4K]).quick(true);
    let (mut kept, mut events, mut told) = (InMemory::default(), 0, 0);
    let mut observe = |event: &Event<'_>| {
        events += 1;
        told += usize::from(matches!(event, Event::Disturbed(_)));
    };
    let driver = Driver {
        method: method(true).warmup_max(1),
        surroundings: &mut Busy,
        cancel: Cancel::new(),
        observe: &mut observe,
    };
    let (peaks, ended) = measure(&options, DeviceIdentity::cpu(), driver, &mut kept).unwrap();
    assert_eq!(ended, MeasurementEnd::Done);
    assert!(events > kept.samples.len());
    // Of both parts of the measurement, and said when it begins.
    assert_eq!((told, kept.disturbances.len()), (1, 2));
    let conditions: Vec<_> = peaks.of(PeakKind::Flops).map(|figure| figure.condition).collect();
    assert_eq!(conditions, [None, Some(Condition::Boost), Some(Condition::Sustained)]);
    for kind in PeakKind::MEASURED {
        let figures: Vec<_> = peaks.of(kind).collect();
        let absent = peaks.absent.iter().find(|absent| absent.kind == kind);
        assert_eq!(figures.is_empty(), absent.is_some(), "{}", kind.name());
        assert!(figures.iter().all(|f| f.value >= f.range.0 && f.value <= f.range.1 && f.value > 0.0 && f.n > 0));
    }
    // The file says that others were at work, and so do the peaks of each run.
    assert_eq!(peaks.disturbed, ["others use 1.6 of 2 cores"]);
    assert!(peaks.environment().iter().all(|peak| peak.disturbed));
    assert!(peaks.absent.iter().any(|absent| absent.reason.contains("nothing is launched")));
    assert_eq!(peaks.dtypes(), ["f32"]);
    assert!(peaks.threads.is_some_and(|n| n > 0));
    // The best shape of the sweep is the one that was run for longer.
    let best = peaks.of(PeakKind::Flops).next().unwrap().at.clone();
    assert!(peaks.of(PeakKind::Flops).all(|figure| figure.at == best));
    let table = table(&peaks);
    assert_eq!(table.rows(), peaks.figures.len() + 1 + peaks.absent.len(), "figures, a ridge, what is absent");
}

#[test]
fn a_measurement_that_is_stopped_has_no_figures() {
    let cancel = Cancel::new();
    cancel.cancel();
    let options = PeakOptions::new(Device::Cpu).quick(true);
    let (mut kept, mut surroundings) = (InMemory::default(), NoSurroundings);
    let driver = Driver { method: method(true), surroundings: &mut surroundings, cancel, observe: &mut |_| () };
    let (peaks, ended) = measure(&options, DeviceIdentity::cpu(), driver, &mut kept).unwrap();
    assert_eq!((ended, peaks.figures.len()), (MeasurementEnd::Cancelled, 0));
}

#[test]
fn a_run_gets_the_best_figures_with_where_they_come_from() {
    let mut peaks = peaks();
    peaks.threads = Some(2);
    peaks.measured_ns = 1_773_446_400_000_000_000;
    let run = peaks.environment();
    assert_eq!(run.len(), 2);
    assert_eq!((run[0].kind, run[0].value), (PeakKind::Flops, 100e9));
    assert_eq!((run[1].kind, run[1].value), (PeakKind::Bandwidth, 10e9), "reading");
    assert!(run.iter().all(|peak| peak.label == "measured"));
    let source = &run[0].source;
    assert!(
        source.starts_with("flops (boost) at somewhere, measured on ") && source.ends_with("2 threads, 2026-03-14")
    );
    assert_eq!(peaks.ridge("f32"), Some(10.0));
    assert_eq!(peaks.ridge("f16"), None);
    // The gap between kernels of a graph comes along, in seconds.
    let read = peaks.of(PeakKind::Read).next().unwrap().clone();
    peaks.figures.push(PeakFigure { kind: PeakKind::GraphGap, value: 6.4e-7, ..read.clone() });
    let gap = peaks.environment()[2].clone();
    assert_eq!((gap.kind, gap.value, gap.label.as_str()), (PeakKind::GraphGap, 6.4e-7, "measured"));
    // So does the driver's part of a launch, from which follows what one costs on this host.
    peaks.figures.push(PeakFigure { kind: PeakKind::Launch, value: 3e-6, ..read });
    let launch = peaks.environment()[2].clone();
    assert_eq!((launch.kind, launch.value), (PeakKind::Launch, 3e-6));
    // Where reading was not measured, the best of the other loops stands in.
    peaks.figures.retain(|figure| figure.kind != PeakKind::Read);
    let copy = peaks.of(PeakKind::Copy).next().unwrap().clone();
    peaks.figures.push(PeakFigure { kind: PeakKind::Triad, value: 11e9, ..copy });
    assert_eq!(peaks.bandwidth().unwrap().kind, PeakKind::Copy);
    assert_eq!(Peaks::new(DeviceIdentity::cpu()).environment().len(), 0);
}

#[test]
fn figures_are_shown_in_units_that_can_be_read() {
    assert_eq!(shown(PeakKind::Flops, 665.2e12), "665 TFLOP/s");
    assert_eq!(shown(PeakKind::Read, 4.17e12), "4.17 TB/s");
    assert_eq!(shown(PeakKind::Write, 12.34e9), "12.3 GB/s");
    assert_eq!(shown(PeakKind::Launch, 1.5e-6), "1.50 µs");
}
