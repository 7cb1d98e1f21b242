//! Requests that join and leave between steps, in place of a batch that begins and ends together.

use super::generate_error::case_error;
use super::lm_options::ContinuousOptions;
use super::model_host::ModelHost;
use crate::method::{CaseError, Measurement};
use candlescope_models::slots::{Batcher, BatcherOptions, ContinuousRequest, generate_continuously};
use candlescope_models::{FinishReason, GenerateOptions, GenerationOutput};
use candlescope_work::estimate::median;
use std::ops::ControlFlow;
use std::time::Duration;

/// Generates for all prompts with `at_once` of them under way.
pub(super) fn generate(
    host: &mut ModelHost,
    prompts: &[Vec<u32>],
    at_once: usize,
    (options, how): (ContinuousOptions, &GenerateOptions),
) -> Result<Vec<GenerationOutput>, CaseError> {
    let cancel = host.cancel.clone();
    host.loaded()?;
    let Some(loaded) = &host.loaded else { return Err(CaseError::Failed("the model was not loaded".into())) };
    // All cases share the slots: nothing can fail between here and where they are given back.
    let Some(decoder) = host.slots.take() else {
        return Err(CaseError::Failed("the model has no slots, which requests that join and leave need".into()));
    };
    let requests = prompts.iter().map(|prompt| ContinuousRequest { prompt: prompt.clone(), options: how.clone() });
    let least_shared = if options.prefix_reuse { BatcherOptions::default().least_shared } else { usize::MAX };
    let mut batcher = Batcher::new(decoder, BatcherOptions { prompt_piece: options.prompt_piece, least_shared });
    let outputs = generate_continuously(&mut batcher, loaded, requests, at_once, &mut |_, _| {
        if cancel.is_cancelled() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    // Slots are those of all cases. What they hold belongs to no later repetition: the next batcher begins with nothing.
    let decoder = batcher.into_decoder();
    host.slots = Some(decoder);
    let outputs = outputs.map_err(|error| case_error(&error))?;
    let is_cancelled =
        |output: &GenerationOutput| output.sequences.iter().any(|sequence| sequence.finish == FinishReason::Cancelled);
    if outputs.iter().any(is_cancelled) || outputs.len() < prompts.len() {
        return Err(CaseError::Cancelled);
    }
    Ok(outputs)
}

/// The figures of a repetition: the time of all its requests and their tokens a second; of single requests the medians,
/// waits for a slot included. Rates of prefill and decode are those of no request: steps are for several at once.
pub(super) fn measured(outputs: &[GenerationOutput]) -> Measurement {
    let ns = |time: Duration| time.as_nanos() as f64;
    let began = outputs.iter().map(|output| output.started).min();
    let ended = outputs.iter().map(|output| output.ended).max();
    let whole = began.zip(ended).map_or(Duration::ZERO, |(began, ended)| ended - began);
    let over =
        |of: &dyn Fn(&GenerationOutput) -> Option<Duration>| median(outputs.iter().filter_map(of).map(ns).collect());
    let gaps: Vec<f64> = outputs.iter().flat_map(GenerationOutput::itl).map(ns).collect();
    let tokens: usize = outputs.iter().map(GenerationOutput::output_tokens).sum();
    let prompt = outputs.iter().map(|output| output.prompt_tokens).max().unwrap_or(0);
    let longest = gaps.iter().copied().reduce(f64::max);
    Measurement::new(whole.as_nanos() as u64)
        .figure("ttft_ns", over(&GenerationOutput::ttft))
        .figure("tpot_ns", over(&GenerationOutput::tpot))
        .figure("itl_median_ns", median(gaps))
        .figure("itl_max_ns", longest)
        .figure("output_tps", (!whole.is_zero()).then(|| tokens as f64 / whole.as_secs_f64()))
        .figure("request_prompt_tokens", prompt as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suites::LmOptions;
    use candlescope_models::slots::{EagerCause, SlotOptions, SlotStepRun};
    use candlescope_models::{LoadOptions, Sequence};
    use std::time::Instant;

    #[test]
    fn a_case_that_cannot_run_leaves_the_slots_to_those_after_it() {
        let slots = Some(SlotOptions { slots: 1, context: Some(32), cuda_graph: false, ..SlotOptions::default() });
        let load = LoadOptions { slots, ..LoadOptions::default() };
        let mut host = ModelHost::new(&LmOptions::default(), load).unwrap();
        host.load().unwrap();
        let options = ContinuousOptions {
            requests_each: 1,
            prompt_piece: 8,
            prefix_reuse: false,
            shared_tokens: 0,
            cuda_graph: false,
        };
        let how = GenerateOptions { max_new_tokens: 2, ignore_eos: true, ..GenerateOptions::default() };
        let loaded = host.loaded.take();
        assert!(generate(&mut host, &[vec![1; 4]], 1, (options, &how)).is_err());
        host.loaded = loaded;
        // Neither does a prompt for which there is no room.
        assert!(generate(&mut host, &[vec![1; 40]], 1, (options, &how)).is_err());
        let outputs = generate(&mut host, &[vec![1; 4]], 1, (options, &how)).unwrap();
        assert_eq!(outputs[0].sequences[0].tokens.len(), 2);
    }

    /// The slots of a suite that was asked for graphs, on a device that has none.
    #[test]
    fn requests_that_come_and_go_run_call_by_call_where_there_are_no_graphs_and_their_steps_say_why() {
        let continuous = ContinuousOptions {
            requests_each: 2,
            prompt_piece: 8,
            prefix_reuse: false,
            shared_tokens: 0,
            cuda_graph: true,
        };
        let options = LmOptions { continuous: Some(continuous), batches: vec![2], ..LmOptions::quick() };
        let slots = options.slots();
        assert!(slots.is_some_and(|slots| slots.cuda_graph), "they are asked for");
        let plain =
            LmOptions { continuous: Some(ContinuousOptions { cuda_graph: false, ..continuous }), ..options.clone() };
        assert!(plain.slots().is_some_and(|slots| !slots.cuda_graph));
        let mut host = ModelHost::new(&options, LoadOptions { slots, ..LoadOptions::default() }).unwrap();
        host.load().unwrap();
        let how = GenerateOptions { max_new_tokens: 4, ignore_eos: true, ..GenerateOptions::default() };
        let outputs = generate(&mut host, &[vec![1; 4], vec![2; 4]], 2, (continuous, &how)).unwrap();
        assert!(outputs.iter().all(|output| output.sequences[0].tokens.len() == 4));
        let ran = host.slots.as_ref().and_then(|slots| slots.last_ran());
        assert_eq!(ran, Some(SlotStepRun::Eager(EagerCause::NoDevice)));
    }

    #[test]
    fn a_repetition_lasts_from_its_first_request_to_its_last() {
        let zero = Instant::now();
        let at = |ms: u64| zero + Duration::from_millis(ms);
        let of = |started: u64, times: &[u64]| GenerationOutput {
            sequences: vec![Sequence {
                tokens: vec![7; times.len()],
                text: String::new(),
                finish: FinishReason::Length,
            }],
            prompt_tokens: 5,
            started: at(started),
            token_times: times.iter().map(|ms| at(*ms)).collect(),
            ended: at(times[times.len() - 1]),
        };
        let measurement = measured(&[of(0, &[10, 20, 30]), of(0, &[40, 50, 80]), of(30, &[90, 100])]);
        assert_eq!(measurement.host_ns, 100_000_000);
        let figure = |name: &str| measurement.figures.get(name).copied();
        assert_eq!(figure("output_tps"), Some(80.0), "eight tokens in a tenth of a second");
        // First tokens after 10, 40 and 60 ms; gaps of 10, 10, 10, 30 and 10.
        assert_eq!((figure("ttft_ns"), figure("itl_median_ns")), (Some(40e6), Some(10e6)));
        assert_eq!((figure("itl_max_ns"), figure("tpot_ns")), (Some(30e6), Some(10e6)));
    }
}
