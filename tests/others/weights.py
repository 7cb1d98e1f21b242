#!/usr/bin/env python3
"""Writes a small Qwen2 with seeded random weights: config.json, model.safetensors, tokenizer.json and a chat template.

Usage: weights.py DIR     needs nothing but Python's own library
"""
import array
import json
import os
import random
import struct
import sys

VOCABULARY, HIDDEN, INSIDE, LAYERS, HEADS, KV_HEADS = 1024, 256, 704, 4, 8, 2
folder = sys.argv[1]
os.makedirs(folder, exist_ok=True)
head = HIDDEN // HEADS
shapes = {"model.embed_tokens.weight": [VOCABULARY, HIDDEN], "model.norm.weight": [HIDDEN]}
for layer in range(LAYERS):
    shapes |= {
        f"model.layers.{layer}.{name}": shape
        for name, shape in {
            "self_attn.q_proj.weight": [HIDDEN, HIDDEN],
            "self_attn.q_proj.bias": [HIDDEN],
            "self_attn.k_proj.weight": [KV_HEADS * head, HIDDEN],
            "self_attn.k_proj.bias": [KV_HEADS * head],
            "self_attn.v_proj.weight": [KV_HEADS * head, HIDDEN],
            "self_attn.v_proj.bias": [KV_HEADS * head],
            "self_attn.o_proj.weight": [HIDDEN, HIDDEN],
            "mlp.gate_proj.weight": [INSIDE, HIDDEN],
            "mlp.up_proj.weight": [INSIDE, HIDDEN],
            "mlp.down_proj.weight": [HIDDEN, INSIDE],
            "input_layernorm.weight": [HIDDEN],
            "post_attention_layernorm.weight": [HIDDEN],
        }.items()
    }

random.seed(1)
header, data, at = {}, array.array("f"), 0
for name, shape in shapes.items():
    count = shape[0] * (shape[1] if len(shape) > 1 else 1)
    # Norms multiply by about one; all others are small, so that values neither vanish nor grow.
    data.extend(random.gauss(1, 0.1) if "norm" in name else random.gauss(0, 0.08) for _ in range(count))
    header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + 4 * count]}
    at += 4 * count
if sys.byteorder == "big":
    data.byteswap()
text = json.dumps(header).encode()
text += b" " * (-len(text) % 8)
with open(f"{folder}/model.safetensors", "wb") as file:
    file.write(struct.pack("<Q", len(text)) + text)
    data.tofile(file)

words = {f"w{number}": number for number in range(VOCABULARY - 4)}
special = {word: VOCABULARY - 4 + place for place, word in enumerate(["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<unk>"])}
template = "{% for m in messages %}<|im_start|> {{ m.role }} {{ m.content }} <|im_end|> {% endfor %}<|im_start|> assistant"
added = [
    {"id": number, "content": word, "special": True, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    for word, number in special.items()
]
files = {
    "config.json": {
        "model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "vocab_size": VOCABULARY, "hidden_size": HIDDEN,
        "intermediate_size": INSIDE, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS, "max_position_embeddings": 4096, "sliding_window": 4096,
        "max_window_layers": LAYERS, "tie_word_embeddings": True, "rope_theta": 1e6, "rms_norm_eps": 1e-6,
        "use_sliding_window": False, "hidden_act": "silu",
    },
    "tokenizer.json": {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"}, "post_processor": None, "decoder": None,
        "model": {"type": "WordLevel", "vocab": words | special, "unk_token": "<unk>"},
    },
    "tokenizer_config.json": {"chat_template": template, "eos_token": "<|im_end|>"},
}
for name, content in files.items():
    with open(f"{folder}/{name}", "w") as file:
        json.dump(content, file)
