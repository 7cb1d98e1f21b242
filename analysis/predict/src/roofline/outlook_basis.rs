//! What a prediction rests on, and what does not fit its model, in sentences.

use super::scenario::Scenario;
use candlescope_work::devices::{Device, DeviceKind, Multiply, Origin};
use candlescope_work::shape::{FeedForward, ModelShape, WindowedLayers};

/// What the figures rest on, in sentences.
pub(super) fn assumptions(shape: &ModelShape, device: &Device, scenario: &Scenario) -> Vec<String> {
    let mut all = Vec::new();
    operations(device, &mut all);
    launches(device, &mut all);
    substitutes(device, scenario, &mut all);
    request(shape, scenario, &mut all);
    model(shape, &mut all);
    if scenario.devices > 1 {
        all.push(
            "tensor parallelism: matrices and heads are divided, sums go round a ring at the link's bandwidth without \
             latency and not overlapped; each device's host launches its own kernels"
                .to_string(),
        );
    }
    if scenario.cached.is_some_and(|format| format.in_blocks || format.bits < 16.0) {
        all.push(
            "a quantised cache is widened before each product, in one operation; candle's own models have none"
                .to_string(),
        );
    }
    all
}

/// How long operations take on the device.
fn operations(device: &Device, all: &mut Vec<String>) {
    all.push(match device.origin {
        Origin::Datasheet => format!("peaks are the maker's, not measured here: {}", device.source),
        Origin::Measured if device.disturbed => {
            format!("peaks were measured while others were at work, so the device may reach more: {}", device.source)
        }
        Origin::Measured => format!("peaks were measured: {}", device.source),
    });
    all.push(match &device.attained {
        Some(_) => "operations take what kernels of their kind were fitted to take: a time of their own, then that of \
                    their bytes or FLOPs"
            .to_string(),
        None => "every operation runs at its roof, of which real kernels reach a part: times are rather too short"
            .to_string(),
    });
    if let (Some(usual), None) = (device.kernel_floor, &device.attained) {
        let shortest = device.kernel_least.map_or_else(String::new, |least| {
            format!("; the low ends of times have the shortest that was seen, {:.2} µs", least / 1e3)
        });
        all.push(format!(
            "a kernel whose roof is shorter takes {:.2} µs, the mean of small ones: some take less, so this is a usual \
             time and no bound{shortest}",
            usual / 1e3
        ));
    }
    if let (Some(rate), None) = (device.index_rate, &device.attained) {
        all.push(format!(
            "index arithmetic of sums with a row or a mask and of copies to another layout comes on top, at {:.0} · 10⁹ \
             steps a second: an H200's, in proportion to FLOP/s in f32",
            rate / 1e9
        ));
    }
    if let Some(rate) = device.panel_rate {
        all.push(format!(
            "products of several rows copy their weights into panels first, which comes on top, at {:.1} GB/s",
            rate / 1e9
        ));
    }
    if device.panels_in_turn {
        all.push("products of several rows read their weights, copy and multiply them one after the other".to_string());
    }
    all.push(
        "operations are those of candlescope's instrumented layers as candle executes them: each reads its inputs and \
         writes its output, attention multiplies every position and masks afterwards, nothing is fused"
            .to_string(),
    );
}

/// What launches and tokens cost on the host.
fn launches(device: &Device, all: &mut Vec<String>) {
    match (device.kind, &device.launch_source) {
        (_, Some(source)) if device.launch.is_some() => {
            all.push(format!("cost of a launch and usual time of a small kernel: {source}"));
        }
        (DeviceKind::Cpu, _) => {
            all.push("nothing is launched on a CPU; what an operation costs beside its work is left out".into())
        }
        _ => all.push(
            "launches on the host are left out, as no figure is known for this device: times are lower bounds, and \
             the row `least on this device` is what can be compared with other devices"
                .to_string(),
        ),
    }
    if device.sync.is_none() {
        all.push("waiting for a token costs nothing beyond the launch cost, which includes it".to_string());
    }
}

/// In which formats it computes, and from where to where times count.
fn request(shape: &ModelShape, scenario: &Scenario, all: &mut Vec<String>) {
    let format = scenario.weights;
    all.push(format!(
        "every weight takes {} bits ({}), the embedding table, the head and norms too; activations take {}",
        format.bits, format.name, format.activation_bits
    ));
    if format.bits <= 8.0 && !format.in_blocks && format.multiply != Multiply::F16 {
        all.push(
            "activations are rounded to 8 bits for the products at no cost; candle has no such kernels".to_string(),
        );
    }
    all.push("time to first token: from the first launch; queueing and the tokenizer are left out".to_string());
    all.push(format!(
        "time per output token: at {} tokens of context, greedy, the token fetched at every step",
        scenario.told_context(shape)
    ));
    all.push(format!(
        "memory: {} % of the device for weights, cache and activations; prompts of a batch are processed together, the \
         cache is as long as the longest sequence",
        scenario.memory_share * 100.0
    ));
}

/// What is particular to the model.
fn model(shape: &ModelShape, all: &mut Vec<String>) {
    if let FeedForward::Experts { .. } = shape.feed_forward {
        all.push(
            "the experts that a step reads are the expected number where every token chooses among all alike; tokens that \
             spread over as many as possible read more of them, and such that choose the same fewer"
                .to_string(),
        );
    }
    if shape.encoder_layers > 0 {
        all.push("keys and values of the encoder's output are made anew for every token, as candle's T5 does".into());
    }
    if let Some(WindowedLayers { window, .. }) = shape.window {
        all.push(match window.kept {
            true => {
                "layers with a window keep no more of the cache than the window, as candle's model does".to_string()
            }
            false => "layers with a window keep and read the whole cache, as candle's model does".to_string(),
        });
    }
}

/// What does not fit the model, which stands above the figures.
pub(super) fn warnings(shape: &ModelShape, scenario: &Scenario) -> Vec<String> {
    let longest = scenario.longest(shape).max(scenario.told_context(shape));
    let beyond = shape.max_context.filter(|most| longest > *most);
    let told = beyond.map(|most| {
        format!(
            "{longest} tokens are more than the {most} of this model's context: it was not trained for them, and candle \
             ends there"
        )
    });
    told.into_iter().collect()
}

/// Where a device has no figure for a type and another's stands in.
fn substitutes(device: &Device, scenario: &Scenario, all: &mut Vec<String>) {
    let wanted = scenario.weights.multiply;
    let multiplied = device.multiplies(wanted);
    if multiplied != wanted && wanted == Multiply::Int8 {
        all.push("candle multiplies quantised weights on a CPU's vector unit: FLOP/s of f32 stand in".to_string());
    } else if multiplied != wanted {
        all.push(format!("candle widens {} to {} on a CPU", wanted.name(), multiplied.name()));
    }
    if let Some((_, used)) = device.flops_for(multiplied).filter(|(_, used)| *used != multiplied) {
        all.push(format!(
            "{} has no FLOP/s for {}: those for {} stand in",
            device.name,
            multiplied.name(),
            used.name()
        ));
    }
    if wanted == Multiply::Int8 && device.kind != DeviceKind::Cpu && scenario.weights.in_blocks {
        all.push(
            "candle multiplies quantised weights by activations quantised to 8 bits, with a kernel to quantise them"
                .into(),
        );
    }
}
