//! The options of `profile`: each is declared here, and nowhere else. `CONTRIBUTING.md` has the walk "Add an option".

use super::key::{Key, OptionType, RunPlace, options};
use std::path::PathBuf;
use toml::Value;

options! {
    "model" model: ModelOptions {
        /// embedded, FILE.gguf, a directory with config.json and *.safetensors, a hub id (org/name), or config:NAME
        /// for a named architecture with random weights
        path: String = "embedded", "--model MODEL";
        #[doc = crate::device::ENGINE_HELP]
        engine: String = "auto", "--engine ENGINE";
        /// f32, f16 or bf16 for dense weights
        dtype: String, "--dtype DTYPE", usual: "f32 on a CPU, bf16 on a GPU";
        /// Widen a GGUF's quantised weights to --dtype
        dequantize: bool = false, "--dequantize[=BOOL]";
        /// Quantise matrices while the model loads: q8_0, q4_k, q4_0 or another of GGML's types; our layers only
        quantize: String, "--quantize TYPE";
    }
    "dataset" dataset: DatasetOptions {
        /// File or directory with prompts: JSONL, ShareGPT's JSON, plain text, images
        path: String, "--dataset PATH", kept: Inputs;
        /// Which of the variants of a directory with prompts
        variant: String, "--variant NAME", kept: Inputs;
        /// At most so many prompts
        limit: usize, "", kept: Inputs;
        /// In an order that `seed` decides, so that `limit` draws a sample
        shuffle: bool, "", kept: Inputs;
        /// Leave longer prompts out; the run says how many
        max_prompt_tokens: usize, "", kept: Inputs;
        /// Text to continue
        prompt: String, "--prompt TEXT", kept: Inputs, private: true;
        /// File with the text to continue
        prompt_file: PathBuf, "--prompt-file FILE", kept: Inputs;
        /// Use this many seeded random tokens as the prompt
        prompt_tokens: usize, "--prompt-tokens N", kept: Inputs;
        /// The SHA-256 of a prompt that a run does not keep, in its inputs.yaml
        prompt_sha256: String, "", kept: Inputs;
        /// PNG or JPEG file for a model that looks at one (paddleocr_vl)
        image: PathBuf, "--image FILE", usual: "seeded random pixels", kept: Inputs;
        /// Record the prompts' texts
        keep_text: bool = false, "", kept: Inputs;
    }
    "runtime" runtime: RuntimeOptions {
        /// Most tokens to generate
        max_new_tokens: usize = 64, "--max-new-tokens N";
        /// Go on past the model's end token
        ignore_eos: bool = false, "--ignore-eos[=BOOL]";
        /// Sequences generated at once, all from the same prompt
        batch: usize = 1, "--batch N";
        /// Hold so many sequences in slots, whose memory is allocated at the start, and decode by steps of fixed shape; our
        /// layers only
        max_num_seqs: usize, "--max-num-seqs N", usual: "a growing cache; with --concurrency so many; with --cuda-graph or --max-model-len, the batch";
        /// Keep so many requests under way at once, each in a slot of its own: they join and leave between steps (continuous
        /// batching); our layers only
        concurrency: usize, "--concurrency N", usual: "one after the other";
        /// With --concurrency, most tokens of a prompt that pass between two steps of the requests that generate (chunked
        /// prefill): fewer hold them up for less time, and make the prompt take longer
        prompt_piece: usize = 256, "--prompt-piece TOKENS";
        /// With --concurrency and a data set, compute the beginning of a prompt only once, where a slot holds it still
        prefix_reuse: bool = false, "--prefix-reuse[=BOOL]";
        /// Look up to so many tokens up where the text's last ones stood in it before, and check them in one pass (n-gram
        /// speculation): the same text in fewer steps; for one sequence of the most likely tokens, our layers only
        speculate: usize, "--speculate TOKENS", usual: "a step for each token";
        /// Most tokens of a sequence in a slot
        max_model_len: usize, "--max-model-len TOKENS", usual: "the model's context";
        /// Allocate as many of the slots as fit if this share of the device's memory may be in use with them
        gpu_memory_utilization: f64, "--gpu-memory-utilization SHARE", usual: "all slots, or an error";
        /// How keys and values are held: auto, in the type of activations, or q8, in 8 bits with a scale for each
        /// position and head; our layers only
        kv_cache_dtype: String, "--kv-cache-dtype DTYPE", usual: "auto";
        /// Decode by steps of fixed shape that are captured once as CUDA graphs and replayed
        cuda_graph: bool = false, "--cuda-graph[=BOOL]";
        /// Measured requests; from 6 on medians have a 95 % interval; with a data set, passes over its prompts
        repeats: usize = 6, "--repeats N", usual: "6, or 1 with a data set";
        /// Requests before them that are recorded but left out of the statistics
        warmup: usize = 1, "--warmup N";
        /// Wrap the prompt in the model's chat template
        chat: bool = false, "--chat[=BOOL]";
        /// Seed of random weights, random prompts and sampling
        seed: u64 = 42, "--seed N";
        /// 0 takes the most likely token, above that tokens are drawn
        temperature: f64 = 0.0, "--temperature T";
        /// Draw among the K most likely tokens only
        top_k: usize, "--top-k K";
        /// Draw among the most likely tokens that together reach this probability
        top_p: f64, "--top-p P";
    }
    "hardware" hardware: HardwareOptions {
        /// cpu or cuda:N
        device: String = "cpu", "--device DEVICE";
        #[doc = crate::threads::HELP]
        threads: usize, "--threads N", kept: Inputs;
        /// What the machine costs, in US dollars an hour, for the price of a million tokens
        price_per_hour: f64, "--price-per-hour USD";
    }
    "profiling" profiling: ProfilingOptions {
        sdk {
            gpu_timing: String, "--gpu-timing TIER", usual: "steps on a GPU beside the usual --cupti, else adaptive";
            gpu_budget: f64, "--gpu-budget SHARE", usual: "0.02";
            cupti: String, "--cupti[=N/EVERY]", usual: "5/5s on a GPU, with exceptions (gpu.md)";
            stacks: String, "--stacks[=HZ]", usual: "499 on Linux";
            overhead_probe: u64, "--overhead-probe EVERY";
            cost: String, "--cost SHARE", usual: "whatever it costs";
            ring_capacity: u64, "--ring-capacity RECORDS", usual: "262144", kept: Inputs;
            queue_records: u64, "--queue-records RECORDS", usual: "2000000, fewer where memory is short";
            nvtx: bool, "--nvtx[=BOOL]", usual: "on where it is attached";
            otlp: String, "--otlp URL", kept: Nowhere, private: true;
            prometheus: String, "--prometheus ADDR", kept: Nowhere, private: true;
            perfetto: PathBuf, "--perfetto FILE", kept: Nowhere;
        }
        /// After the measured requests, make intervals slower at random and see what steps take then: path=PATH:+20% or
        /// path=PATH:+50us, PATH@host or PATH@device for one side; several joined by commas
        perturb: String, "--perturb PERTURBATIONS";
        /// The share of all time that may be added, such as 5%
        perturb_budget: String = "20%", "--perturb-budget SHARE";
        /// Pairs of a delayed step and its control, of each path and side
        perturb_pairs: usize = 100, "--perturb-pairs N";
        /// Name of the steps that are compared
        perturb_step: String, "--perturb-step NAME", usual: "decode, or what takes the most time";
        /// Delete the oldest segments when the run grows beyond this many megabytes
        disk_budget_mb: u64, "--disk-budget-mb MB";
    }
    "" above: AboveGroups {
        /// Directory of the run; must be empty or absent
        out: PathBuf, "--out RUN", usual: "runs/MODEL-TIME", kept: Nowhere;
    }
}
