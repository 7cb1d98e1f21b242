//! Findings of the verdict.

use crate::common::scenario::{Scenario, make};
use crate::common::write_run;
use candlescope_figures::Analysis;
use candlescope_reader::Run;
use candlescope_schema::run::{Code, ExporterReport, Finding, MachineUse, RunManifest, Severity};
use candlescope_schema::{Batch, GpuSource, GpuTime, Phase, Ran};
use serde_json::json;
use tempfile::tempdir;

fn analyse(scenario: &Scenario, change: impl FnOnce(&mut RunManifest)) -> Analysis {
    let dir = tempdir().unwrap();
    let (batch, mut manifest) = make(scenario);
    change(&mut manifest);
    write_run(dir.path(), &batch, &manifest, 1_000_000);
    Analysis::of(&Run::open(dir.path()).unwrap())
}

/// A run on a GPU, with its records and manifest changed.
fn on_gpu(change: impl FnOnce(&mut Batch, &mut RunManifest)) -> Analysis {
    let dir = tempdir().unwrap();
    let (mut batch, mut manifest) = make(&Scenario::on_gpu());
    change(&mut batch, &mut manifest);
    write_run(dir.path(), &batch, &manifest, 1_000_000);
    Analysis::of(&Run::open(dir.path()).unwrap())
}

fn code<'a>(analysis: &'a Analysis, code: &str) -> Option<&'a Finding> {
    for finding in &analysis.verdict.findings {
        let words = format!("{} {}", finding.message(), finding.remedy());
        assert!(!words.contains(['{', '}', '–']), "all that is named is known: {words}");
    }
    analysis.verdict.findings.iter().find(|f| f.code == code)
}

#[test]
fn loss_is_said_once() {
    let lossy = |m: &mut RunManifest| {
        m.loss.emitted += 70;
        m.loss.ring_full = 70;
    };
    // Like a run that was not judged when it ended.
    let analysis = analyse(&Scenario::default(), lossy);
    let finding = code(&analysis, "ring_full").unwrap();
    assert!(finding.message().starts_with("70 of ") && finding.severity == Severity::Error);
    assert_eq!(finding.figure("lost"), Some(70.0));
    let told = analyse(&Scenario::default(), |m| {
        lossy(m);
        m.verdict.findings.push(Finding::new(Code::RingFull, "70 dropped", "enlarge the ring"));
    });
    let said: Vec<String> =
        told.verdict.findings.iter().filter(|f| f.code == Code::RingFull).map(Finding::message).collect();
    assert_eq!(said, ["70 dropped"], "the session's words stand");
    assert!(!told.verdict.ok, "and its errors count");
    assert_eq!(told.verdict.findings[0].code, "ring_full", "errors first");
}

#[test]
fn a_run_that_ended_early_is_usable() {
    let analysis = analyse(&Scenario::default(), |m| m.complete = false);
    assert!(code(&analysis, "run_incomplete").is_some() && analysis.verdict.ok);
}

#[test]
fn an_exporter_must_account_for_everything() {
    let analysis = analyse(&Scenario::default(), |m| {
        m.exporters.push(ExporterReport {
            name: "otlp".into(),
            received: [("spans".to_string(), 10)].into(),
            exported: [("spans".to_string(), 7)].into(),
            ..ExporterReport::default()
        });
    });
    assert!(code(&analysis, "not_conserved").unwrap().message().contains("otlp"));
    assert!(!analysis.verdict.ok);
}

#[test]
fn dropped_records_are_said_with_their_reason() {
    let analysis = analyse(&Scenario::default(), |m| {
        m.exporters.push(ExporterReport {
            name: "otlp".into(),
            received: [("spans".to_string(), 10)].into(),
            exported: [("spans".to_string(), 7)].into(),
            dropped: [("spans".to_string(), [("queue_full".to_string(), 3)].into())].into(),
            ..ExporterReport::default()
        });
    });
    let finding = code(&analysis, "exporter_dropped").unwrap();
    assert!(finding.message().contains("3 spans (queue_full)"), "{finding:?}");
    assert!(finding.severity == Severity::Error && !analysis.verdict.ok, "as the end of the run would have said");
}

#[test]
fn a_peak_that_is_passed_is_a_measurement_error() {
    let peaks = |value: f64| {
        move |m: &mut RunManifest| {
            m.environment.insert(
                "peaks".into(),
                json!([
                    { "kind": "flops", "value": value, "label": "measured", "source": "gemm", "dtype": "bf16" },
                    { "kind": "bandwidth", "value": 1e12, "label": "datasheet", "source": "vendor" },
                    { "kind": "nonsense" }, 7,
                ]),
            );
        }
    };
    // Prefill runs at about 39 GFLOP/s in the scenario.
    let fine = analyse(&Scenario::default(), peaks(100e9));
    assert!(code(&fine, "utilisation_above_one").is_none());
    let impossible = analyse(&Scenario::default(), peaks(10e9));
    let finding = code(&impossible, "utilisation_above_one").unwrap();
    assert!(finding.message().contains("MFU of prefill") && finding.message().contains("measured"), "{finding:?}");
    assert!(!impossible.verdict.ok);
    // Peaks that were measured beside others are what is wrong, not the run.
    let disturbed = analyse(&Scenario::default(), |m: &mut RunManifest| {
        peaks(10e9)(m);
        m.environment.get_mut("peaks").unwrap()[0]["disturbed"] = true.into();
    });
    let finding = code(&disturbed, "utilisation_above_one").unwrap();
    assert_eq!(finding.severity, Severity::Warning);
    assert!(finding.message().ends_with("others were at work when this peak was measured, and it is too low"));
    assert_eq!(disturbed.verdict.ok, fine.verdict.ok);
}

#[test]
fn overhead_and_context_are_noticed() {
    let analysis = analyse(&Scenario { output: 400, ..Scenario::default() }, |m| m.overhead.ratio = Some(0.07));
    assert!(code(&analysis, "overhead_high").unwrap().message().contains("7.0 %"));
    // 25 ns a token of context and layer: slower with the context, but by less than the limit on this model.
    let trend = analysis.tokens.trend.unwrap();
    let expected = 25.0 * 6.0;
    assert!((trend.slope_ns - expected).abs() < expected * 0.5, "{trend:?}");
}

#[test]
fn growth_with_the_context_is_told_from_noise() {
    // Milliseconds of the decoding steps of two requests, as a run beside a compiler recorded them: the slope is 1.3
    // times its error, and nearly nine times the shortest step over fifteen tokens.
    const BUSY: [[f64; 15]; 2] = [
        [27.4, 29.4, 28.0, 23.3, 269.2, 320.6, 123.2, 39.6, 39.9, 207.8, 464.5, 464.6, 460.2, 478.2, 440.0],
        [28.7, 40.5, 42.7, 26.3, 33.5, 152.7, 262.2, 29.8, 20.7, 16.7, 32.7, 29.0, 29.0, 28.4, 31.4],
    ];
    let with = |ms: &dyn Fn(usize, usize) -> f64, machine: Option<MachineUse>| {
        let dir = tempdir().unwrap();
        let (mut batch, mut manifest) = make(&Scenario { requests: 3, output: 16, ..Scenario::default() });
        for step in batch.steps.iter_mut().filter(|step| step.phase == Some(Phase::Decode)) {
            let (request, nth) = (step.request.unwrap() as usize, step.context_len.unwrap() as usize - 65);
            step.host_dur_ns = (ms(request, nth) * 1e6) as u64;
        }
        manifest.machine = machine;
        write_run(dir.path(), &batch, &manifest, 1_000_000);
        Analysis::of(&Run::open(dir.path()).unwrap())
    };
    let told = |analysis: &Analysis| code(analysis, "decode_slows_with_context").map(Finding::message);
    let noise = with(&|request, nth| BUSY[request % 2][nth], None);
    let trend = noise.tokens.trend.unwrap();
    assert!(trend.slope_ns > trend.slope_ci95_ns && trend.slope_ns < 2.0 * trend.slope_ci95_ns, "{trend:?}");
    assert_eq!(told(&noise), None);
    let steady = |_: usize, nth: usize| 10.0 + nth as f64 + if nth.is_multiple_of(2) { 0.2 } else { -0.2 };
    let message = told(&with(&steady, None)).unwrap();
    assert!(message.contains("140 % longer") && message.contains(": 100 ms ± 1."), "{message}");
    assert!(message.ends_with(" ms for each 100 tokens"), "{message}");
    // Beside others no slope is the context's.
    let (sampled_s, others_s) = (10.0, Some(10.0));
    let busy =
        MachineUse { sampled_s, others_s, disturbed_s: others_s, processors: Some(2.0), ..MachineUse::default() };
    assert_eq!(told(&with(&steady, Some(busy))), None);
}

#[test]
fn few_requests_have_no_spread() {
    let analysis = analyse(&Scenario { requests: 2, warmup: 1, ..Scenario::default() }, |_| {});
    let finding = code(&analysis, "few_requests").unwrap();
    assert!(finding.message().starts_with("1 measured request:"), "{finding:?}");
    assert!(analysis.verdict.ok);
}

#[test]
fn gpu_time_that_was_asked_for_and_is_not_there_is_an_error() {
    let bare = |batch: &mut Batch| {
        batch.spans.iter_mut().for_each(|s| s.gpu = None);
        batch.steps.iter_mut().for_each(|s| s.gpu = None);
        batch.kernels.clear();
    };
    assert!(code(&on_gpu(|_, _| {}), "no_gpu_time").is_none());
    let absent = on_gpu(|batch, manifest| {
        bare(batch);
        manifest.exporters.clear();
    });
    let finding = code(&absent, "no_gpu_time").unwrap();
    assert!(finding.message().contains("`adaptive`") && finding.severity == Severity::Error && !absent.verdict.ok);
    // What was not asked for is not missing.
    let off = on_gpu(|batch, manifest| {
        bare(batch);
        manifest.exporters.clear();
        manifest.gpu.as_mut().unwrap().timing = "off".into();
    });
    assert!(code(&off, "no_gpu_time").is_none() && off.verdict.ok, "{:?}", off.verdict);
}

#[test]
fn kernels_outside_every_interval_are_counted() {
    let analysis = on_gpu(|batch, _| {
        for kernel in &mut batch.kernels[..100] {
            (kernel.seq, kernel.span_id, kernel.step, kernel.path) = (None, None, None, None);
        }
    });
    let finding = code(&analysis, "kernels_unattributed").unwrap();
    assert!(finding.message().starts_with("100 of 512 ") && finding.severity == Severity::Warning, "{finding:?}");
    assert_eq!(analysis.kernels.unattributed.0, 100);
    let one = on_gpu(|batch, _| (batch.kernels[0].seq, batch.kernels[0].step) = (None, None));
    assert_eq!(code(&one, "kernels_unattributed").unwrap().severity, Severity::Info, "one of 512");
}

#[test]
fn a_parent_with_too_little_gpu_time_is_said() {
    let analysis = on_gpu(|batch, _| {
        let prefill = batch.spans.iter_mut().filter(|s| s.path.path == "prefill").nth(1).unwrap();
        let start = prefill.host_start;
        prefill.gpu = Some(GpuTime { start, dur_ns: 10_000, source: GpuSource::Event });
    });
    let finding = code(&analysis, "gpu_parent_shorter_than_children").unwrap();
    assert!(finding.message().contains("the worst is `prefill` with 10000 ns"), "{finding:?}");
}

#[test]
fn loss_of_kernels_is_said_once() {
    let lossy = |m: &mut RunManifest| {
        let kernels = m.gpu.as_mut().unwrap().kernels.as_mut().unwrap();
        (kernels.dropped, kernels.late) = (7, 3);
    };
    let analysis = on_gpu(|_, m| lossy(m));
    assert!(code(&analysis, "kernels_dropped").unwrap().message().contains("lost 7 records"));
    assert!(code(&analysis, "kernels_late").unwrap().message().starts_with("3 kernels"));
    let told = on_gpu(|_, m| {
        lossy(m);
        m.verdict.findings.push(Finding::new(Code::KernelsDropped, "as the session says it", "shorter windows"));
    });
    let said: Vec<_> = told.verdict.findings.iter().filter(|f| f.code == "kernels_dropped").collect();
    assert!(said.len() == 1 && said[0].message() == "as the session says it", "{said:?}");
}

#[test]
fn utilisation_is_held_against_the_type_that_was_used_and_over_both_times() {
    use candlescope_figures::peaks::{TimeBase, utilisation};
    let analysis = on_gpu(|_, _| {});
    let used = utilisation(&analysis);
    assert!(
        used.iter().all(|u| !u.peak.is_flops() || u.peak.dtype.as_deref() == Some("bf16")),
        "not against f32's peak"
    );
    let of = |phase: &str, is_flops, over| {
        used.iter().find(|u| u.phase == phase && u.peak.is_flops() == is_flops && u.over == over).map(|u| u.ratio)
    };
    let decode = analysis.phases.rows.iter().find(|r| r.name == "decode").unwrap();
    let kind = analysis.gpu.kinds.iter().find(|k| k.name == "decode").unwrap();
    let near = |a: Option<f64>, b: f64| assert!((a.unwrap() / b - 1.0).abs() < 1e-9, "{a:?} {b}");
    near(of("decode", true, TimeBase::Wall), decode.gflops.unwrap() * 1e9 / 2e12);
    near(of("decode", false, TimeBase::Wall), decode.gbytes.unwrap() * 1e9 / 1e11);
    near(of("decode", true, TimeBase::Gpu(GpuSource::Event)), kind.elapsed[0].tflops.unwrap() * 1e12 / 2e12);
    near(of("decode", false, TimeBase::Gpu(GpuSource::Cupti)), kind.elapsed[1].gbytes.unwrap() * 1e9 / 1e11);
    assert_eq!(of("prefill", true, TimeBase::Gpu(GpuSource::Cupti)), None, "none of its steps was recorded");
    assert!(code(&analysis, "utilisation_above_one").is_none());
    // Only over GPU time: 25 GB/s while the GPU has the step, 20 GB/s of wall time.
    let peak = json!([{ "kind": "bandwidth", "value": 22e9, "label": "measured", "source": "copy" }]);
    let above = on_gpu(|_, m| drop(m.environment.insert("peaks".into(), peak)));
    let finding = code(&above, "utilisation_above_one").unwrap();
    assert!(finding.message().starts_with("MBU of decode over GPU time (stream elapsed)"), "{finding:?}");
}

#[test]
fn sensors_that_disagree_are_said() {
    let analysis = on_gpu(|batch, _| {
        let power = batch.samples.iter_mut().filter(|s| s.metric == "hw_power_watts");
        power.for_each(|s| s.value *= 0.5);
    });
    let finding = code(&analysis, "energy_sensors_disagree").unwrap();
    assert!(finding.message().contains("0.50 of the energy counter's difference"), "{finding:?}");
    assert!(code(&on_gpu(|_, _| {}), "energy_sensors_disagree").is_none());
}

#[test]
fn a_gpu_that_outlasts_its_steps_is_said() {
    assert!(code(&on_gpu(|_, _| {}), "gpu_outlasts_steps").is_none());
    let outlasts = on_gpu(|batch, _| batch.kernels.iter_mut().for_each(|k| k.gpu_dur_ns *= 4));
    assert!(code(&outlasts, "gpu_outlasts_steps").unwrap().severity == Severity::Info);
    assert!(outlasts.verdict.ok, "{:?}", outlasts.verdict);
}

#[test]
fn graphs_that_were_asked_for_and_never_ran_are_said_with_their_cause() {
    let ran = |ran: fn(u64) -> Ran| {
        on_gpu(|batch, _| {
            let decoding = batch.steps.iter_mut().filter(|step| step.phase == Some(Phase::Decode));
            decoding.for_each(|step| step.ran = Some(ran(step.step)));
        })
    };
    let never = ran(|step| if step % 40 == 1 { Ran::WarmUp } else { Ran::Stream });
    let finding = code(&never, "graphs_not_replayed").unwrap();
    assert!(finding.message().contains("`stream`") && finding.severity == Severity::Warning, "{}", finding.message());
    let points = || never.series.iter().flat_map(|series| &series.points);
    let of = |wanted: Ran| points().filter(|point| point.ran == Some(wanted)).count() as f64;
    let (stream, warm_up) = (of(Ran::Stream), of(Ran::WarmUp));
    assert!(stream > warm_up && warm_up > 0.0);
    assert_eq!((finding.figure("steps"), finding.figure("of_cause")), (Some(stream + warm_up), Some(stream)));
    for replayed in
        [ran(|step| if step == 100 { Ran::Replay } else { Ran::Stream }), ran(|_| Ran::NotAsked), on_gpu(|_, _| {})]
    {
        assert!(code(&replayed, "graphs_not_replayed").is_none());
    }
}

#[test]
fn a_model_without_phases_says_what_one_line_would_give() {
    let marked = on_gpu(|_, _| {});
    assert!(code(&marked, "phases_unmarked").is_none());
    let unmarked = on_gpu(|batch, _| {
        batch.steps.iter_mut().for_each(|step| step.phase = None);
        batch.spans.iter_mut().for_each(|span| span.phase = None);
    });
    let finding = code(&unmarked, "phases_unmarked").unwrap();
    assert!(finding.remedy().contains("llm::decode") && finding.severity == Severity::Info);
    let measured: u64 = unmarked.phases.rows.iter().map(|row| row.steps).sum();
    assert_eq!(finding.figure("steps"), Some(measured as f64));
}
