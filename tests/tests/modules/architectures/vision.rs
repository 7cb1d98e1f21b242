//! Models of images: sixteen by sixteen pixels.

use super::decoders::{config, of};
use super::encoder_decoders::{ENCODE, NEXT, START};
use super::{Case, Row, Step, watch};
use candle_core::{Device, Module, Tensor};
use candle_transformers::models::segment_anything::image_encoder::ImageEncoderViT;
use candle_transformers::models::stable_diffusion::unet_2d::{
    BlockConfig, UNet2DConditionModel, UNet2DConditionModelConfig,
};
use candle_transformers::models::{blip, moondream, segformer, vit};
use candlescope_core::llm;
use serde_json::json;

pub(super) const MODELS: &[fn() -> Row] =
    &[vit, segformer_classes, segformer_segments, segment_anything, moondream, blip];

#[test]
fn every_layer_is_named() {
    super::hold_family(MODELS);
}

/// Four patches and a class.
pub(super) const IMAGE: Step = ENCODE;

pub(super) fn pixels() -> Tensor {
    Tensor::randn(0f32, 1., (1, 3, 16, 16), &Device::Cpu).expect("an image")
}

pub(super) fn see(forward: impl FnOnce(&Tensor) -> candle_core::Result<Tensor>) -> Tensor {
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

fn segment_anything() -> Row {
    let seen = watch(None, &[], |vb| {
        // Sixteen patches of four by four, 32 wide; two layers, the first of which attends in windows of two by two.
        let (relative, absolute) = (true, true);
        let model = ImageEncoderViT::new(16, 4, 3, 32, 2, 4, 16, true, relative, absolute, 2, &[1], vb);
        see(|pixels| model.expect("it loads").forward(pixels));
    });
    Case {
        name: "segment_anything, image encoder",
        file: "segment_anything/image_encoder.rs",
        remark: "the last two convolutions have no spans",
        steps: &[IMAGE],
        total: &|_| 2 * 16 * (3 * 16 * 32 + 2 * (4 * 32 * 32 + 2 * 32 * 128) + 32 * 16 + 16 * 16 * 9),
        spanless: &["pos_embed", "0.attn", "1.attn", "norm1", "norm2", "neck.0", "neck.1", "neck.2", "neck.3"],
        rows: &|_, _| 16,
        shown: false,
        ..Case::default()
    }
    .check(&seen)
}

fn moondream() -> Row {
    // Candle has the size of a patch and how wide it is inside as numbers.
    let text = json!({
        "model_type": "moondream", "image_embedding_dim": 1152, "model_dim": 32, "hidden_dim": 64, "hidden_features": 64,
        "embed_len": 4, "embed_dim": 1152, "num_blocks": 1, "num_heads": 4, "act": "gelu",
    })
    .to_string();
    let seen = watch(Some(&text), &[], |vb| {
        let model = moondream::VisionEncoder::new(&of(&text), vb).expect("it loads");
        let image = Tensor::randn(0f32, 1., (1, 3, 28, 28), &Device::Cpu).expect("an image");
        see(|_| model.forward(&image));
    });
    Case {
        name: "moondream, vision",
        file: "moondream.rs",
        steps: &[IMAGE],
        total: &|_| {
            let block = 4 * 1152 * 1152 + 2 * 1152 * 64;
            2 * 4 * (588 * 1152 + block + 1152 * 64 + 64 * 32)
        },
        spanless: &["model.visual"],
        rows: &|_, _| 4,
        ..Case::default()
    }
    .check(&seen)
}

#[test]
fn convolutions_of_stable_diffusion_are_told_apart() {
    let block = |out_channels, use_cross_attn| BlockConfig { out_channels, use_cross_attn, attention_head_dim: 4 };
    let config = UNet2DConditionModelConfig {
        blocks: vec![block(32, Some(1)), block(64, None)],
        layers_per_block: 1,
        cross_attention_dim: 24,
        ..UNet2DConditionModelConfig::default()
    };
    let seen = watch(None, &[], |vb| {
        let model = UNet2DConditionModel::new(vb, 4, 4, false, config).expect("it loads");
        let latent = Tensor::randn(0f32, 1., (1, 4, 8, 8), &Device::Cpu).expect("a latent");
        let text = Tensor::randn(0f32, 1., (1, 5, 24), &Device::Cpu).expect("a text");
        see(|_| model.forward(&latent, 1., &text));
    });
    // Linear layers and norms are candle_nn's own.
    let spanless: &[&str] = &[
        "norm",
        "norm1",
        "norm2",
        "norm3",
        "conv_norm_out",
        "linear_1",
        "linear_2",
        "time_emb_proj",
        "to_q",
        "to_k",
        "to_v",
        "to_out.0",
        "proj_in",
        "proj_out",
        "net.2",
    ];
    let problems = Case { steps: &[IMAGE], spanless, ..Case::default() }.check_all_names(&seen);
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    if super::TRACED {
        // Its `geglu` has become a group around a layer with a span of its own.
        return;
    }
    let mut groups: Vec<(&str, &str)> = seen
        .batch
        .spans
        .iter()
        .filter(|span| span.shape.is_none())
        .filter_map(|span| Some((&*span.path.name, span.path.module.as_deref()?)))
        .collect();
    groups.sort_unstable();
    let expected = [
        ("down2d", "down_blocks.1.resnets"),
        ("downsample2d", "down_blocks.0.downsamplers.0"),
        ("resnet2d", "down_blocks.0.resnets.0"),
        ("resnet2d", "down_blocks.1.resnets.0"),
        ("resnet2d", "mid_block.resnets.0"),
        ("resnet2d", "mid_block.resnets.1"),
        ("resnet2d", "up_blocks.0.resnets.0"),
        ("resnet2d", "up_blocks.0.resnets.1"),
        ("resnet2d", "up_blocks.1.resnets.0"),
        ("resnet2d", "up_blocks.1.resnets.1"),
        ("up2d", "up_blocks.0"),
        ("upsample2d", "up_blocks.0.upsamplers.0"),
        ("xa-down2d", "down_blocks.0"),
        ("xa-mid2d", "mid_block"),
        ("xa-up2d", "up_blocks.1"),
    ];
    assert_eq!(groups, expected);
}
