//! Steps of fourteen models against what they were counted to cost when the formulas had several homes.
#![allow(missing_docs, reason = "a test")]
use candlescope_work::input::{Input, Widths};
use candlescope_work::shape::ModelShape;
use candlescope_work::step::{Operation, encode, step, total};
use serde_json::{Map, Value};
use std::fmt::Write;

/// Models of which every operation is told.
const TOLD: [&str; 4] = ["gemma-3-1b", "gpt2", "mixtral-8x7b", "t5-small"];

fn line(text: &mut String, what: &str, all: &[Operation]) {
    let cost = total(all);
    let kernels: f64 = all.iter().map(|operation| operation.calls * operation.kernels).sum();
    let (flops, surplus) = (cost.flops, cost.surplus_flops);
    let (weights, kv, activations) = (cost.weight_bytes, cost.kv_bytes, cost.activation_bytes);
    writeln!(text, "{what}: {flops} + {surplus} FLOPs, {weights} + {kv} + {activations} B, {kernels} kernels").unwrap();
}

fn of_model(name: &str, config: &Map<String, Value>) -> String {
    let (mut text, shape) = (String::new(), ModelShape::from_config(name, config).unwrap());
    writeln!(text, "# {name}: {} parameters, {} a token", shape.parameters(), shape.active_parameters()).unwrap();
    let bf16 = Widths::of(2);
    let widths = [
        ("bf16", bf16),
        ("bf16*f32", bf16.products(4)),
        ("q4_k", Widths { weights: 144.0 / 256.0, in_blocks: true, ..Widths::of(4) }),
    ];
    let input = |batch, tokens, context| {
        let encoded = if shape.encoder_layers > 0 { 300 } else { 0 };
        Input { batch, tokens, context, encoded, window: None }
    };
    for (batch, tokens, context) in [
        (1, 1, 1),
        (1, 1, 1000),
        (4, 1, 128),
        (1, 512, 512),
        (3, 64, 64),
        (2, 16, 116),
        (1, 1, 20_000),
        (1, 6000, 6000),
    ] {
        for (name, widths) in widths {
            let step = step(&shape, input(batch, tokens, context), widths, 1);
            line(&mut text, &format!("{batch}x{tokens} of {context} in {name}"), &step);
        }
    }
    line(&mut text, "by two", &step(&shape, input(3, 16, 116), bf16, 2));
    line(&mut text, "by four", &step(&shape, input(3, 16, 116), bf16, 4));
    if shape.encoder_layers > 0 {
        line(&mut text, "encoder", &encode(&shape, 2, 300, bf16, 1));
    }
    for operation in step(&shape, input(3, 16, 116), bf16, 1).iter().filter(|_| TOLD.contains(&name)) {
        let Ok(Value::Object(mut fields)) = serde_json::to_value(operation) else { panic!("an object") };
        fields.retain(|_, value| value.as_f64() != Some(0.0) && value.as_bool() != Some(false));
        writeln!(text, "{}", Value::Object(fields)).unwrap();
    }
    text
}

#[test]
fn steps_cost_what_they_did() {
    let configs: Map<String, Value> = serde_json::from_str(include_str!("configs.json")).unwrap();
    let found: String =
        configs.iter().map(|(name, config)| of_model(name, config.as_object().expect("an object"))).collect();
    if std::env::var_os("CANDLESCOPE_WRITE_GOLDENS").is_some() {
        std::fs::write(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/steps.txt"), &found).unwrap();
    }
    for (found, expected) in found.lines().zip(include_str!("steps.txt").lines()) {
        assert_eq!(found, expected);
    }
    assert_eq!(found.lines().count(), include_str!("steps.txt").lines().count());
}
