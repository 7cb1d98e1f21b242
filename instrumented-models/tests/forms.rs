//! One model's weights in several forms: in memory, as GGUF and as ONNX.
#![allow(missing_docs, reason = "a test")]
mod common;
use candle_core::quantized::GgmlDType;
use candle_core::{DType, Device, Tensor};
use candlescope_models::weights::{Form, GgufText, WeightError, write_gguf};
use candlescope_models::{CausalLm, HeldModel, Inspect, LoadOptions, LoadedModel, ModelSource};
use common::*;
use std::path::Path;

fn hold(path: &Path) -> HeldModel {
    let source = ModelSource::parse(path.to_str().unwrap()).unwrap();
    LoadedModel::load_holding(&source, &LoadOptions::default()).unwrap()
}

fn tiny_held(dir: &Path) -> HeldModel {
    write_directory(dir, &tiny(), false);
    hold(dir)
}

fn made(held: &HeldModel, form: Form) -> Box<dyn Inspect + Send> {
    held.weights.model(&held.loaded.config, form, &Device::Cpu).unwrap().model
}

fn last(model: &mut dyn CausalLm, tokens: &Tensor) -> Vec<f32> {
    model.reset();
    model.forward(tokens, 0).unwrap().flatten_all().unwrap().to_vec1().unwrap()
}

fn most_apart(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

#[test]
fn held_weights_are_the_model_and_inspecting_shows_it() {
    let dir = tempfile::tempdir().unwrap();
    let mut held = tiny_held(dir.path());
    let ids = tokens(1, 9, 5, 96);
    let expected = last(held.loaded.model.as_mut(), &ids);
    let mut same = made(&held, Form::Dense(DType::F32));
    assert_eq!(last(same.as_mut(), &ids), expected);
    let mut seen = Vec::new();
    let all = same.inspect(&ids, &mut |layer, xs| {
        seen.push((layer, xs.dims().to_vec()));
        Ok(())
    });
    let all = all.unwrap();
    assert_eq!(all.dims(), [1, 9, 96]);
    assert_eq!(seen, (0..3).map(|layer| (layer, vec![1, 9, 64])).collect::<Vec<_>>());
    let row: Vec<f32> = all.get(0).unwrap().get(8).unwrap().to_vec1().unwrap();
    assert!(most_apart(&row, &expected) < 1e-5, "the last row is what generation sees");
    let refused = same.inspect(&ids, &mut |_, _| candle_core::bail!("enough"));
    assert!(refused.unwrap_err().to_string().contains("enough"));
}

#[test]
fn fewer_bits_take_less_and_are_further_away() {
    let dir = tempfile::tempdir().unwrap();
    let held = tiny_held(dir.path());
    let ids = tokens(1, 9, 5, 96);
    let base = last(made(&held, Form::Dense(DType::F32)).as_mut(), &ids);
    let forms = [Form::Dense(DType::F32), Form::Quantized(GgmlDType::Q8_0), Form::Quantized(GgmlDType::Q4_0)];
    let sizes = forms.map(|form| held.weights.model(&held.loaded.config, form, &Device::Cpu).unwrap().weight_bytes);
    // All of its weights, and for each 32 values of a matrix 34 and 18 bytes instead of 128.
    let (all, parameters) = (sizes[0], held.loaded.config.parameters());
    assert_eq!(all, 4 * parameters);
    let vectors = 4 * (2 * 3 + 1) * 64;
    assert_eq!(sizes[1] - vectors, (all - vectors) / 128 * 34);
    assert_eq!(sizes[2] - vectors, (all - vectors) / 128 * 18);
    let apart = forms.map(|form| most_apart(&last(made(&held, form).as_mut(), &ids), &base));
    assert!(apart[0] == 0.0 && apart[1] > 0.0 && apart[1] < apart[2] && apart[2] < 2.0, "{apart:?}");
}

#[test]
fn rows_that_are_no_whole_blocks_are_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let held = tiny_held(dir.path());
    let form = Form::Quantized(GgmlDType::Q4K);
    let error = held.weights.model(&held.loaded.config, form, &Device::Cpu).unwrap_err();
    assert!(matches!(error, WeightError::Blocks { row: 64 | 128, block: 256, .. }), "{error:?}");
    let message = error.to_string();
    assert!(message.contains("q4_k") && message.contains("256") && message.contains("q4_0 or q8_0"), "{message}");
    let file = dir.path().join("no.gguf");
    let text = GgufText::default();
    let error = write_gguf(Some(&file), &held.loaded.config, &held.weights, form, &text).unwrap_err();
    assert!(matches!(error, WeightError::Blocks { .. }) && !file.exists(), "{error:?}");
}

#[test]
fn a_written_gguf_is_the_model_that_was_measured() {
    let dir = tempfile::tempdir().unwrap();
    let held = tiny_held(dir.path());
    let ids = tokens(1, 9, 5, 96);
    for form in [Form::Quantized(GgmlDType::Q8_0), Form::Quantized(GgmlDType::Q4_0), Form::Dense(DType::F32)] {
        let file = dir.path().join(format!("{}.gguf", form.name()));
        let bytes = write_gguf(Some(&file), &held.loaded.config, &held.weights, form, &held.text).unwrap();
        assert_eq!(std::fs::metadata(&file).unwrap().len(), bytes);
        let counted = write_gguf(None, &held.loaded.config, &held.weights, form, &held.text).unwrap();
        assert_eq!(counted, bytes, "counted without a file");
        let source = ModelSource::parse(file.to_str().unwrap()).unwrap();
        let mut read = LoadedModel::load(&source, &LoadOptions::default()).unwrap();
        assert_eq!((read.config.num_layers, read.config.max_context, read.config.eos.as_slice()), (3, 300, &[2][..]));
        let apart = most_apart(&last(read.model.as_mut(), &ids), &last(made(&held, form).as_mut(), &ids));
        // The file has rotary pairs side by side: the same products in another order.
        assert!(apart < 1e-4, "{form:?}: {apart}");
        // And it can be held in turn.
        let again = hold(&file);
        assert_eq!(again.stored, if let Form::Quantized(dtype) = form { vec![dtype] } else { vec![GgmlDType::F32] });
    }
}

#[test]
fn a_model_with_its_own_rotary_frequencies_keeps_them() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = tiny();
    config.rope.scaling = Some(candlescope_models::config::Llama3Scaling {
        factor: 8.0,
        low_freq_factor: 1.0,
        high_freq_factor: 4.0,
        original_max_position_embeddings: 64,
    });
    write_directory(dir.path(), &config, false);
    let held = hold(dir.path());
    let file = dir.path().join("x.gguf");
    let form = Form::Dense(DType::F32);
    let error = write_gguf(Some(&file), &held.loaded.config, &held.weights, form, &held.text).unwrap_err().to_string();
    assert!(error.contains("x.gguf") && error.contains("rotary frequencies"), "{error}");
}

#[cfg(feature = "onnx")]
#[test]
fn onnx_files_hold_each_weight_once() {
    use candlescope_models::onnx::{OnnxFiles, write_onnx};
    let dir = tempfile::tempdir().unwrap();
    let held = tiny_held(dir.path());
    let files = write_onnx(dir.path(), "model", &held.loaded.config, &held.weights).unwrap();
    let size = |path: &Path| std::fs::metadata(path).unwrap().len();
    assert_eq!(files.bytes, size(&files.model) + size(&files.data));
    assert_eq!(OnnxFiles::in_dir(dir.path(), "model"), Some(files.clone()));
    assert_eq!(OnnxFiles::in_dir(dir.path(), "other"), None);
    // Each weight begins at a page; the last one is not filled up.
    let pages: u64 =
        held.weights.iter().map(|(_, t)| 4 * t.elem_count() as u64).map(|n| n.next_multiple_of(4096)).sum();
    assert!(size(&files.data) <= pages && size(&files.data) > pages - 4096, "{} of {pages}", size(&files.data));
    let graph = std::fs::read(&files.model).unwrap();
    let has = |text: &str| graph.windows(text.len()).any(|window| window == text.as_bytes());
    assert!(has("model.onnx.data") && has("past_key_values.2.value") && has("present.2.key") && !has("hidden.0"));
    let blocks = std::fs::read(&files.blocks).unwrap();
    assert!(blocks.windows(8).any(|window| window == b"hidden.2"));
}
