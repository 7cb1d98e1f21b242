//! Models of images: sixteen by sixteen pixels.

use super::decoders::{config, of};
use super::encoder_decoders::{ENCODE, NEXT, START};
use super::{Case, Row, Step, watch};
use candle_core::{Device, Module, Tensor};
use candle_transformers::models::{blip, segformer, vit};
use candlescope_core::llm;
use serde_json::json;

pub(super) const MODELS: &[fn() -> Row] = &[vit, segformer_classes, segformer_segments, blip];

#[test]
fn every_layer_is_named() {
    super::hold_family(MODELS);
}

/// Four patches and a class.
const IMAGE: Step = ENCODE;

fn pixels() -> Tensor {
    Tensor::randn(0f32, 1., (1, 3, 16, 16), &Device::Cpu).expect("an image")
}

fn see(forward: impl FnOnce(&Tensor) -> candle_core::Result<Tensor>) -> Tensor {
    let _step = llm::encode(IMAGE.told());
    forward(&pixels()).expect("a pass")
}

fn vit() -> Row {
    let text = config(
        "vit",
        json!({"image_size": 16, "patch_size": 8, "num_channels": 3, "qkv_bias": true, "hidden_act": "gelu"}),
    );
    let seen = watch(Some(&text), &[], |vb| {
        let model = vit::Model::new(&of(&text), 10, vb).expect("it loads");
        see(|pixels| model.forward(pixels));
    });
    Case {
        name: "vit",
        file: "vit.rs",
        steps: &[IMAGE],
        total: &|step| 2 * (4 * 3 * 64 * 32 + step.tokens * 3 * (4 * 32 * 32 + 2 * 32 * 64) + 32 * 10),
        spanless: &["vit.embeddings", "layernorm_before", "layernorm_after", "vit.layernorm"],
        rows: &|module, step| match module {
            "classifier" => 1,
            "vit.embeddings.patch_embeddings.projection" => 4,
            _ => step.tokens,
        },
        ..Case::default()
    }
    .check(&seen)
}

fn segformer_config() -> String {
    json!({
        "model_type": "segformer", "num_channels": 3, "num_encoder_blocks": 2, "depths": [1, 1], "sr_ratios": [2, 1],
        "hidden_sizes": [16, 32], "patch_sizes": [3, 3], "strides": [2, 2], "num_attention_heads": [1, 2],
        "mlp_ratios": [2, 2], "hidden_act": "gelu", "layer_norm_eps": 1e-6, "decoder_hidden_size": 32,
    })
    .to_string()
}

/// Eight by eight positions in the first stage, with keys and values of every other; four by four in the second.
fn segformer_rows(module: &str, _: Step) -> u64 {
    let of_every_other = ["sr", "key", "value"].iter().any(|part| module.ends_with(part));
    match module {
        "classifier" => 1,
        _ if module.contains(".block.0.") && of_every_other => 16,
        _ if module.contains(".block.0.") || module.ends_with("s.0.proj") || module.ends_with("c.0.proj") => 64,
        _ => 16,
    }
}

fn segformer_encoder() -> u64 {
    // Matrices of the MLP and between them nine taps for each feature.
    let mlp = |width: u64| 2 * width * 2 * width + 2 * width * 9;
    let first = 64 * (16 * 27 + 2 * 16 * 16 + mlp(16)) + 16 * (2 * 16 * 16 + 16 * 16 * 4);
    let second = 16 * (32 * 16 * 9 + 4 * 32 * 32 + mlp(32));
    2 * (first + second)
}

const SEGFORMER: Case<'static> = Case {
    name: "",
    file: "segformer.rs",
    remark: "",
    steps: &[IMAGE],
    total: &|_| 0,
    flops: super::StepFlops::Unknown,
    spanless: &["layer_norm", "layer_norm_1", "layer_norm_2", "layer_norm.0", "layer_norm.1"],
    shared: &[],
    rows: &segformer_rows,
    times: &|_, _| 1,
    nameless: &[],
    shown: true,
    part: false,
};

fn segformer_classes() -> Row {
    let text = segformer_config();
    let seen = watch(Some(&text), &[], |vb| {
        let model = segformer::ImageClassificationModel::new(&of(&text), 10, vb).expect("it loads");
        see(|pixels| model.forward(pixels));
    });
    Case { name: "segformer, classes", total: &|_| segformer_encoder() + 2 * 32 * 10, ..SEGFORMER }.check(&seen)
}

fn segformer_segments() -> Row {
    let text = segformer_config();
    let seen = watch(Some(&text), &[], |vb| {
        let model = segformer::SemanticSegmentationModel::new(&of(&text), 10, vb).expect("it loads");
        see(|pixels| model.forward(pixels));
    });
    Case {
        name: "segformer, segments",
        remark: "the last two convolutions have no spans",
        total: &|_| segformer_encoder() + 2 * (64 * 16 * 32 + 16 * 32 * 32 + 64 * (64 * 32 + 32 * 10)),
        spanless: &[SEGFORMER.spanless, &["linear_fuse", "batch_norm", "classifier"]].concat(),
        shown: false,
        ..SEGFORMER
    }
    .check(&seen)
}

fn blip() -> Row {
    let text = json!({
        "model_type": "blip", "projection_dim": 32, "image_text_hidden_size": 32,
        "vision_config": {
            "hidden_size": 32, "intermediate_size": 64, "projection_dim": 32, "num_hidden_layers": 2,
            "num_attention_heads": 4, "image_size": 16, "patch_size": 8, "hidden_act": "gelu", "layer_norm_eps": 1e-5,
        },
        "text_config": {
            "vocab_size": 96, "hidden_size": 32, "encoder_hidden_size": 32, "intermediate_size": 64,
            "projection_dim": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 64,
            "hidden_act": "gelu", "layer_norm_eps": 1e-5, "is_decoder": true,
        },
    })
    .to_string();
    let seen = watch(Some(&text), &[], |vb| {
        let mut model = blip::BlipForConditionalGeneration::new(&of(&text), vb).expect("it loads");
        let image = see(|pixels| pixels.apply(model.vision_model()));
        for (step, phase) in [(START, llm::prefill as fn(_) -> _), (NEXT, llm::decode)] {
            let _step = phase(step.told());
            model.text_decoder().forward(&step.ids(), &image).expect("decodes");
        }
    });
    Case {
        name: "blip",
        file: "blip.rs, blip_text.rs",
        steps: &[IMAGE, START, NEXT],
        total: &|step| {
            let mlp = 2 * 32 * 64;
            if step == IMAGE {
                return 2 * (4 * 3 * 64 * 32 + step.tokens * 2 * (4 * 32 * 32 + mlp));
            }
            let layer = step.tokens * (6 * 32 * 32 + mlp) + IMAGE.tokens * 2 * 32 * 32;
            2 * (2 * layer + step.tokens * (32 * 32 + 32 * 96))
        },
        spanless: &[
            "vision_model.embeddings",
            "layer_norm1",
            "layer_norm2",
            "post_layernorm",
            "LayerNorm",
            "cls.predictions",
        ],
        rows: &|module, step| match module {
            "vision_model.embeddings.patch_embedding" => 4,
            _ if module.ends_with("crossattention.self.key") || module.ends_with("crossattention.self.value") => {
                IMAGE.tokens
            }
            _ => step.tokens,
        },
        ..Case::default()
    }
    .check(&seen)
}
