//! candle's PaddleOCR-VL: what is shown to it, what it writes, its steps, and each bad image by its name.

use super::*;
use candle_transformers::models::paddleocr_vl::{Config, PaddleOCRVLModel};
use candlescope_models::candle_models::{CandlePaddleOcrVl, hf_config};
use candlescope_models::causal_lm::CausalLm;
use candlescope_models::image::Frame;
use candlescope_models::weights::WeightError;
use candlescope_models::{LoadedVision, Picture, generate_seen, see};
use std::path::PathBuf;

/// The sizes of images of the published model: patches of 14 pixels, four of which become a token.
const PUBLISHED: Frame = Frame { multiple: 28, least: 147_384, most: 2_822_400 };

fn paddle_json() -> Value {
    json!({
        "model_type": "paddleocr_vl", "vocab_size": 96, "hidden_size": 32, "intermediate_size": 64,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
        "max_position_embeddings": 64, "image_token_id": 95, "vision_start_token_id": 94, "vision_end_token_id": 93,
        "video_token_id": 92, "rope_scaling": {"mrope_section": [2, 1, 1]},
        "vision_config": {
            "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
            "image_size": 28, "patch_size": 14,
        },
    })
}

/// A model whose images have 28² to 10,000 pixels. Its weights are what candle asks for; returns candle's own model of
/// the same.
fn paddle(directory: &Path) -> PaddleOCRVLModel {
    std::fs::write(directory.join("config.json"), paddle_json().to_string()).unwrap();
    let sizes = json!({"min_pixels": 28 * 28, "max_pixels": 10_000});
    std::fs::write(directory.join("preprocessor_config.json"), sizes.to_string()).unwrap();
    std::fs::write(directory.join("tokenizer.json"), tokenizer_json()).unwrap();
    let map = candle_nn::VarMap::new();
    let vb = VarBuilder::from_varmap(&map, DType::F32, &Device::Cpu);
    let config: Config = serde_json::from_value(paddle_json()).unwrap();
    let model = PaddleOCRVLModel::new(&config, vb).unwrap();
    map.save(directory.join("model.safetensors")).unwrap();
    model
}

fn loaded(directory: &Path) -> LoadedVision {
    let AnyModel::Vision(model) = AnyModel::load(&at(directory), &candle()).unwrap() else {
        panic!("PaddleOCR-VL looks at images")
    };
    *model
}

/// As [`record`], of a model without spans of its own, which the verdict says.
fn record_phases<T>(f: impl FnOnce() -> T) -> (Batch, T) {
    let memory = MemoryExporter::new();
    let (layer, session) = Session::builder().exporter(memory.clone()).start().unwrap();
    let result = crate::common::listening(tracing_subscriber::registry().with(layer), f);
    let findings = session.finish().verdict.findings;
    assert!(findings.iter().any(|finding| finding.code.as_str() == "no_model_spans"), "{findings:?}");
    let mut batch = memory.batch();
    batch.steps.sort_by_key(|step| step.step);
    (batch, result)
}

/// A PNG of one colour.
fn png(path: &Path, width: u32, height: u32, rgba: [u8; 4]) -> PathBuf {
    let mut encoder = png::Encoder::new(std::fs::File::create(path).unwrap(), width, height);
    encoder.set_color(png::ColorType::Rgba);
    let mut writer = encoder.write_header().unwrap();
    writer.write_image_data(&rgba.repeat((width * height) as usize)).unwrap();
    path.to_path_buf()
}

/// 16 × 16 pixels of red.
const JPEG: &str = "\
    ffd8ffe000104a46494600010100000100010000ffdb004300100b0c0e0c0a100e0d0e1211101318281a181616183123251d283a333d3c39\
    33383740485c4e404457453738506d51575f626768673e4d71797064785c656763ffdb0043011112121815182f1a1a2f6342384263636363\
    63636363636363636363636363636363636363636363636363636363636363636363636363636363636363636363ffc00011080010001003\
    012200021101031101ffc4001500010100000000000000000000000000000005ffc40014100100000000000000000000000000000000ffc4\
    001501010100000000000000000000000000000506ffc40014110100000000000000000000000000000000ffda000c03010002110311003f\
    009000c5c3ffd9";

fn jpeg(path: &Path) -> PathBuf {
    let bytes: Vec<u8> = (0..JPEG.len()).step_by(2).map(|i| u8::from_str_radix(&JPEG[i..i + 2], 16).unwrap()).collect();
    std::fs::write(path, bytes).unwrap();
    path.to_path_buf()
}

#[test]
fn paddleocr_vl_looks_and_writes_as_candles_own_loop() {
    let directory = tempfile::tempdir().unwrap();
    let mut theirs = paddle(directory.path());
    let file = png(&directory.path().join("page.png"), 60, 50, [200, 30, 90, 255]);
    let (batch, (prompt, image, output, both)) = record_phases(|| {
        let mut model = loaded(directory.path());
        assert_eq!((model.info.layers, model.info.encoder_layers, model.info.engine), (2, Some(2), "candle"));
        let image = model.image(&Picture::read(&file).unwrap()).unwrap();
        assert_eq!(image.size(), (56, 56));
        let place = model.model.show(&image, 1).unwrap();
        // Four patches a token.
        assert_eq!(place, 4);
        let prompt = model.encode_prompt("OCR:", place).unwrap();
        see(&model).unwrap();
        let output = generate_seen(&mut model, std::slice::from_ref(&prompt), &options(4), &mut |_| {}).unwrap();
        model.model.show(&image, 2).unwrap();
        let message =
            generate_seen(&mut model, std::slice::from_ref(&prompt), &options(4), &mut |_| {}).unwrap_err().to_string();
        assert!(message.contains("shown to 2 sequences, and 1 are passed"), "{message}");
        let both = generate_seen(&mut model, &vec![prompt.clone(); 2], &options(4), &mut |_| {}).unwrap();
        (prompt, image, output, both)
    });
    // `User: `, the image between its marks, the text, and `\nAssistant: ` without the line's end, which the tokenizer
    // does not know.
    assert_eq!(prompt.len(), 6 + 1 + 4 + 1 + 4 + 11);
    assert_eq!(prompt[6..12], [94, 95, 95, 95, 95, 93]);
    let ids = Tensor::new(&prompt[..], &Device::Cpu).unwrap().unsqueeze(0).unwrap();
    let pixels = Tensor::from_slice(image.planes(), (1, 3, 56, 56), &Device::Cpu).unwrap();
    let grid = Tensor::new(&[[1u32, 4, 4]], &Device::Cpu).unwrap();
    let expected = theirs.generate(&ids, &pixels, &grid, 4, u32::MAX).unwrap();
    assert_eq!(output.sequences[0].tokens, expected);
    assert!(both.sequences.iter().all(|sequence| sequence.tokens == expected), "{both:?}");
    // It does look: another image gives other logits.
    theirs.clear_kv_cache();
    let first = |model: &mut PaddleOCRVLModel, pixels: &Tensor| {
        model.clear_kv_cache();
        model.forward(&ids, Some(pixels), Some(&grid), 0).unwrap().flatten_all().unwrap().to_vec1::<f32>().unwrap()
    };
    assert_ne!(first(&mut theirs, &pixels), first(&mut theirs, &pixels.neg().unwrap()));

    let phases: Vec<_> =
        batch.steps[..5].iter().map(|s| (s.phase.unwrap(), s.tokens.unwrap(), s.context_len.unwrap())).collect();
    let decode = |context| (Phase::Decode, 1, context);
    let prefill = (Phase::Prefill, 27, 27);
    assert_eq!(phases, [(Phase::Vision, 16, 16), prefill, decode(28), decode(29), decode(30)]);
    // The look is before the request, whose time is that of candle's own calls.
    assert_eq!(batch.steps[0].request, None);
    let requests: Vec<_> = batch.requests.iter().map(|r| (r.prompt_tokens, r.output_tokens, r.batch)).collect();
    assert!(requests.contains(&(Some(27), Some(4), Some(1))), "{requests:?}");
}

#[test]
fn the_wrapped_layers_compute_the_same_and_have_spans() {
    let directory = tempfile::tempdir().unwrap();
    drop(paddle(directory.path()));
    let load = |options: &LoadOptions| {
        let AnyModel::Vision(model) = AnyModel::load(&at(directory.path()), options).unwrap() else {
            panic!("PaddleOCR-VL looks at images")
        };
        *model
    };
    let mut theirs = load(&candle());
    let (batch, mut ours) = record(|| {
        let mut model = load(&LoadOptions::default());
        let image = model.random_image(3);
        let place = model.model.show(&image, 1).unwrap();
        let prompt = model.random_prompt(6, place, 3).unwrap();
        see(&model).unwrap();
        generate_seen(&mut model, &[prompt], &options(3), &mut |_| {}).unwrap();
        model
    });
    assert_eq!(ours.info.engine, "instrumented");
    for (width, height, sequences) in [(56, 56, 1), (84, 28, 2), (28, 112, 1)] {
        let name = format!("{width}x{height}.png");
        let file = png(&directory.path().join(name), width, height, [(7 * width) as u8, 30, 90, 255]);
        let picture = Picture::read(&file).unwrap();
        let image = ours.image(&picture).unwrap();
        let place = ours.model.show(&image, sequences).unwrap();
        theirs.model.show(&image, sequences).unwrap();
        let prompt = ours.random_prompt(9, place, u64::from(width)).unwrap();
        let rows = (sequences, prompt.len());
        let mut tokens = Tensor::from_vec(prompt.repeat(sequences), rows, &Device::Cpu).unwrap();
        let mut position = 0;
        for step in 0..4u32 {
            let logits = |model: &mut LoadedVision| {
                let logits = model.model.forward(&tokens, position).unwrap();
                assert_eq!(logits.dims(), [sequences, 96]);
                logits.flatten_all().unwrap().to_vec1::<f32>().unwrap()
            };
            let (a, b) = (logits(&mut ours), logits(&mut theirs));
            let most = b.iter().fold(0f32, |most, x| most.max(x.abs()));
            let off = a.iter().zip(&b).fold(0f32, |most, (a, b)| most.max((a - b).abs()));
            assert!(most > 0.0 && off < 1e-4 * most.max(1.0), "{width} × {height}, step {step}: {off} of {most}");
            position += tokens.dim(1).unwrap();
            tokens = Tensor::full(40 + step, (sequences, 1), &Device::Cpu).unwrap();
        }
    }
    // Every layer of the tower and of the decoder is seen, with its work.
    let spans = |path: &str| batch.spans.iter().filter(|span| span.path.path.ends_with(path)).collect::<Vec<_>>();
    for path in ["tower/block[1]/self_attn/q_proj", "tower/projector/linear_2", "tower/block[0]/mlp/fc1"] {
        let found = spans(path);
        // A look, and one within the prompt.
        assert!(found.len() == 2 && found.iter().all(|span| span.flops > Some(0)), "{path}: {found:?}");
    }
    let decoders = spans("block[1]/self_attn/scores").into_iter().filter(|span| !span.path.path.contains("tower"));
    assert_eq!(decoders.count(), 3, "a prompt and two tokens");
    assert!(spans("decode/lm_head").len() == 2 && spans("vision/tower").len() == 1);
}

#[test]
fn images_are_decoded_and_scaled() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let frame = Frame { multiple: 28, least: 28 * 28, most: 10_000 };
    let scaled = |path: &Path| Image::scaled(&Picture::read(path).unwrap(), &frame).unwrap();
    let is = |image: &Image, colour: [u8; 3], tolerance: f32| {
        let pixels = image.size().0 * image.size().1;
        for (channel, value) in colour.iter().enumerate() {
            let wanted = f32::from(*value) / 127.5 - 1.;
            let plane = &image.planes()[channel * pixels..][..pixels];
            assert!(plane.iter().all(|found| (found - wanted).abs() <= tolerance), "{channel}: {wanted} {plane:?}");
        }
    };
    let image = scaled(&png(&at("wide.png"), 300, 20, [0, 255, 51, 7]));
    assert_eq!(image.size(), (28, 336));
    is(&image, [0, 255, 51], 0.01);
    let image = scaled(&jpeg(&at("red.jpeg")));
    assert_eq!(image.size(), (28, 28));
    is(&image, [250, 10, 10], 0.05);
    // Grey, of two bits.
    let mut encoder = png::Encoder::new(std::fs::File::create(at("grey.png")).unwrap(), 28, 28);
    encoder.set_color(png::ColorType::Grayscale);
    encoder.set_depth(png::BitDepth::Two);
    encoder.write_header().unwrap().write_image_data(&[0b01_01_01_01; 7 * 28]).unwrap();
    is(&scaled(&at("grey.png")), [85; 3], 1e-6);
}

#[test]
fn each_bad_image_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let frame = Frame { multiple: 28, least: 28 * 28, most: 10_000 };
    let says = |path: &Path, parts: &[&str]| {
        let read = Picture::read(path).and_then(|picture| Image::scaled(&picture, &frame));
        let message = read.unwrap_err().to_string();
        let name = path.file_name().unwrap().to_str().unwrap();
        for part in parts.iter().chain(&[name]) {
            assert!(message.contains(part), "`{part}` is not in: {message}");
        }
    };
    says(&at("none.png"), &["cannot be read", "No such file"]);
    says(directory.path(), &["directory"]);
    std::fs::write(at("text.png"), "no picture").unwrap();
    says(&at("text.png"), &["neither PNG nor JPEG"]);
    let whole = std::fs::read(png(&at("whole.png"), 40, 40, [1, 2, 3, 4])).unwrap();
    std::fs::write(at("half.png"), &whole[..whole.len() / 2]).unwrap();
    says(&at("half.png"), &["is damaged"]);
    // No more than a header, so that nothing has to be made for it.
    let large = png::Encoder::new(std::fs::File::create(at("large.png")).unwrap(), 1 << 16, 1 << 16);
    drop(large.write_header().unwrap());
    says(&at("large.png"), &["65536 × 65536 pixels", "at most 67108864 are decoded"]);
    let whole = std::fs::read(jpeg(&at("whole.jpg"))).unwrap();
    for (name, end) in [("head.jpg", 100), ("start.jpg", 4)] {
        std::fs::write(at(name), &whole[..end]).unwrap();
        says(&at(name), &["is damaged"]);
    }
    says(&png(&at("line.png"), 201, 1, [0; 4]), &["201 × 1 pixels", "at most 200 times as long"]);
}

#[test]
fn each_bad_configuration_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    drop(paddle(path));
    let refuse = || AnyModel::load(&at(path), &candle()).unwrap_err().to_string();
    let set = |json: &Value| std::fs::write(path.join("config.json"), json.to_string()).unwrap();
    for (pointer, wrong, says) in [
        ("/hidden_size", json!("wide"), "hidden_size"),
        ("/vocab_size", json!(1u64 << 40), "vocab_size is 1099511627776"),
        ("/max_position_embeddings", json!(1u64 << 30), "max_position_embeddings is 1073741824"),
        ("/image_token_id", json!(96), "image_token_id"),
        ("/head_dim", json!(12), "head_dim is 12"),
        ("/num_key_value_heads", json!(3), "4 heads are not a multiple of 3"),
        ("/vision_config/patch_size", json!(0), "patches of 0 pixels"),
        ("/vision_config/num_attention_heads", json!(3), "hidden_size 16 is not a multiple"),
        ("/vision_config/num_attention_heads", json!(8), "a head of the tower has 2 features"),
        ("/vision_config/num_hidden_layers", json!(0), "num_hidden_layers"),
    ] {
        let mut json = paddle_json();
        *json.pointer_mut(pointer).unwrap_or_else(|| panic!("{pointer}")) = wrong;
        set(&json);
        let message = refuse();
        assert!(message.contains(says), "`{says}` is not in: {message}");
    }
    let mut merge = paddle_json();
    merge["vision_config"]["spatial_merge_size"] = json!(3);
    set(&merge);
    assert!(refuse().contains("`spatial_merge_size`"));
    set(&paddle_json());
    std::fs::write(path.join("preprocessor_config.json"), json!({"min_pixels": 9, "max_pixels": 8}).to_string())
        .unwrap();
    assert!(refuse().contains("no image has 9 pixels or more and 8 or fewer"));
}

#[test]
fn a_random_image_and_prompt_have_a_documented_size() {
    let directory = tempfile::tempdir().unwrap();
    drop(paddle(directory.path()));
    let mut model = loaded(directory.path());
    let image = model.random_image(5);
    assert_eq!(image.size(), (28, 28));
    let place = model.model.show(&image, 1).unwrap();
    let prompt = model.random_prompt(20, place, 5).unwrap();
    assert_eq!((prompt.len(), &prompt[..3]), (23, &[94, 95, 93][..]));
    assert!(prompt[3..].iter().all(|token| ![2, 92, 93, 94, 95].contains(token)), "{prompt:?}");
    let message = model.random_prompt(64, place, 5).unwrap_err().to_string();
    assert!(message.contains("67 tokens") && message.contains("context is 64"), "{message}");
    assert_eq!(image, model.random_image(5));
    assert_ne!(image, model.random_image(6));
    assert!(image.planes().iter().all(|v| (-1. ..=1.).contains(v)));
}

#[test]
fn sizes_are_whole_patches_within_limits() {
    let frame = PUBLISHED;
    assert_eq!(Image::random(&frame, 1).size(), (392, 392));
    // Within the limits: to the nearest multiple.
    assert_eq!(frame.fit(600, 801), Some((588, 812)));
    // The others keep about their ratio.
    for (height, width) in
        [(10, 10), (1, 150), (4_000, 3_000), (28, 5_000), (20_000, 20_000), (13, 14), (1_000, 200_000)]
    {
        let (h, w) = frame.fit(height, width).unwrap();
        assert_eq!((h % 28, w % 28), (0, 0));
        assert!((frame.least..=frame.most).contains(&(h * w)), "{height} × {width} became {h} × {w}");
        let (wanted, found) = (height as f64 / width as f64, h as f64 / w as f64);
        assert!(wanted / found < 2.2 && found / wanted < 2.2, "{wanted} {found}");
    }
    assert_eq!(frame.fit(1, 201), None);
    assert_eq!(frame.fit(0, 5), None);
}

/// Weights of any shape that take no memory.
struct Zeros;

impl WeightSource for Zeros {
    fn dense(&mut self, name: &str, shape: &[usize]) -> Result<Tensor, WeightError> {
        let zero = Tensor::zeros((), DType::F32, &Device::Cpu).and_then(|zero| zero.broadcast_as(shape));
        zero.map_err(|cause| WeightError::Tensor { tensor: name.into(), cause })
    }
}

#[test]
fn the_named_configuration_has_the_published_size() {
    let json = hf_config("paddleocr-vl").unwrap();
    let (model, size) =
        CandlePaddleOcrVl::load("paddleocr-vl", &json, &Value::Null, &mut Zeros, DType::F32, &Device::Cpu).unwrap();
    assert_eq!(*model.frame(), PUBLISHED);
    // By the published dimensions: patches, two tables of positions, 27 layers of the tower and a norm; what merges four
    // patches; a table, 18 layers with 16 and 2 heads of 128 features, a norm and a head.
    let (v, i, d) = (1152u64, 4304u64, 1024u64);
    let tower =
        (3 * 14 * 14 + 1) * v + (27 * 27 + 32_768) * v + 27 * (4 * (v + 1) * v + 2 * v * i + i + v + 4 * v) + 2 * v;
    let merge = 2 * v + (4 * v + 1) * 4 * v + (4 * v + 1) * d;
    let layer = d * (16 + 2 + 2) * 128 + 16 * 128 * d + 3 * d * 3072 + 2 * d;
    assert_eq!(size.parameters, tower + merge + 2 * 103_424 * d + 18 * layer + d);
    assert!((0.9e9..1e9).contains(&(size.parameters as f64)), "{}", size.parameters);
}
