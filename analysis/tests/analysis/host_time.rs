//! Time of functions of a run on disk.

use crate::common::scenario::{Scenario, make};
use crate::common::write_run;
use candlescope_figures::Analysis;
use candlescope_reader::Run;
use candlescope_schema::run::Code;
use candlescope_schema::{PathInfo, StackRecord, StackSampleRecord, ThreadState};
use std::sync::Arc;

#[test]
fn time_of_functions_is_read_with_the_paths_that_it_belongs_to() {
    let dir = tempfile::tempdir().unwrap();
    let (mut batch, manifest) = make(&Scenario::on_gpu());
    // The last interval of the run, which is in a measured step, stands for a module.
    let span = batch.spans.last_mut().expect("intervals");
    let mut path = PathInfo::new(1_000, span.path.path.clone(), span.path.name.clone(), span.path.target.clone());
    path.module = Some("model.layers.0.mlp.down_proj".into());
    path.rollup = PathInfo::rollup_of(&path.path, path.module.as_deref());
    let rollup = path.rollup.clone();
    span.path = Arc::new(path);
    let mut inner = StackRecord::new(2, Some(1), 1, "app", 0x20);
    inner.function = Some("multiply".into());
    batch.stacks = vec![StackRecord::new(1, None, 0, "libc.so.6", 0x10), inner];
    let sample = |state, ns| {
        let mut sample = StackSampleRecord::new(span.host_start, span.thread.clone(), state, ns);
        (sample.stack, sample.step, sample.seq) = (Some(2), span.step, Some(span.seq));
        (sample.phase, sample.path) = (span.phase, Some(span.path.clone()));
        sample
    };
    batch.stack_samples = vec![sample(ThreadState::Running, 2_000), sample(ThreadState::Blocked, 700)];
    batch.steps.iter_mut().for_each(|step| step.cpu_ns = Some(1));
    write_run(dir.path(), &batch, &manifest, 777);
    let analysis = Analysis::of(&Run::open(dir.path()).unwrap());
    assert!(analysis.verdict.findings.iter().all(|finding| finding.code != Code::RowsMalformed), "every row is taken");
    let host = analysis.host.expect("functions");
    assert_eq!((host.all.own_ns, host.all.blocked_ns, host.all.samples), (2_000, 700, 1));
    assert_eq!(host.places.keys().collect::<Vec<_>>(), [&rollup]);
    assert_eq!((&*host.functions[0].name.function, host.functions[0].own.own_ns), ("multiply", 2_000));
}

#[test]
fn time_off_the_cpu_is_that_of_known_steps_raised_to_all() {
    let dir = tempfile::tempdir().unwrap();
    let (mut batch, manifest) = make(&Scenario::on_gpu());
    let analysis_of = |batch: &candlescope_schema::Batch| {
        write_run(dir.path(), batch, &manifest, 777);
        let host = Analysis::of(&Run::open(dir.path()).unwrap()).host.expect("samples");
        std::fs::remove_dir_all(dir.path()).unwrap();
        // All samples are in one function.
        assert_eq!((host.functions.len(), host.functions[0].own, host.functions[0].total), (1, host.all, host.all));
        (host.all.own_ns, host.all.blocked_ns)
    };
    let kind = batch.steps.last().expect("steps").path.rollup.clone();
    let mut of_kind: Vec<_> = batch.steps.iter_mut().filter(|step| step.path.rollup == kind).collect();
    let last = of_kind.len() - 1;
    // All are as long as each other, and one is known. Two have samples.
    of_kind.iter_mut().for_each(|step| step.host_dur_ns = 1_000);
    of_kind[last].cpu_ns = Some(1);
    let most = of_kind.len() as u64;
    let samples = [of_kind[last - 1].step, of_kind[last].step].map(|step| {
        let span = batch.spans.iter().find(|span| span.step == Some(step)).expect("an interval");
        [(ThreadState::Running, 2_000), (ThreadState::Blocked, 700)].map(|(state, ns)| {
            let mut sample = StackSampleRecord::new(span.host_start, span.thread.clone(), state, ns);
            (sample.step, sample.seq, sample.path) = (Some(step), Some(span.seq), Some(span.path.clone()));
            sample.stack = Some(1);
            sample
        })
    });
    batch.stack_samples = samples.into_iter().flatten().collect();
    batch.stacks = vec![StackRecord::new(1, None, 0, "app", 0x10)];
    let (own, blocked) = analysis_of(&batch);
    assert_eq!(own, 4_000);
    // Which steps were for warming up does not matter here.
    assert!((2..=most).any(|measured| blocked == 700 * measured), "{blocked}: the known step's, once for each");
    batch.steps.iter_mut().for_each(|step| step.cpu_ns = None);
    assert_eq!(analysis_of(&batch), (4_000, 0), "nothing is known");
    batch.steps.iter_mut().for_each(|step| step.cpu_ns = Some(1));
    assert_eq!(analysis_of(&batch), (4_000, 1_400), "all are known");
}
