"""Holds GPT-2 of three programs against each other: transformers (PyTorch), tests/python/gpt2_reference.py, and ours.

gpt2.py LOGITS, where LOGITS is the example `logits` of candlescope-models.
Weights are random, of the published initialisation widened tenfold so that attention is not nearly uniform.
Prints the largest difference of any logit over the largest logit, for each pair; fails beyond TOLERANCE.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
import transformers

sys.path.insert(0, str(Path(__file__).parents[1] / "python"))
import gpt2_reference

# Of f32, in which PyTorch itself is up to 5.9e-6 off f64 with these weights.
TOLERANCE = 2e-5
PROMPT, TOKENS = 9, 24

SHAPES = {
    "small, tied": dict(vocab_size=96, n_embd=48, n_head=4, n_layer=3, n_positions=64),
    "one head, own head": dict(
        vocab_size=101, n_embd=40, n_head=1, n_layer=2, n_positions=32, n_inner=72, tie_word_embeddings=False
    ),
    "gpt2's width, two layers": dict(vocab_size=5003, n_embd=768, n_head=12, n_layer=2, n_positions=1024),
}


def tokenizer(vocabulary):
    """A valid file; no text is encoded here."""
    model = {"type": "WordLevel", "vocab": {f"t{i}": i for i in range(vocabulary)}, "unk_token": "t0"}
    return json.dumps({"version": "1.0", "added_tokens": [], "model": model})


def compare(name, shape, prefix, logits):
    torch.manual_seed(7)
    config = transformers.GPT2Config(initializer_range=0.2, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, **shape)
    model = transformers.GPT2LMHeadModel(config).eval()
    ids = [(i * 37 + 5) % config.vocab_size for i in range(TOKENS)]
    with tempfile.TemporaryDirectory() as directory:
        directory = Path(directory)
        (model if prefix else model.transformer).save_pretrained(directory)
        (directory / "config.json").write_text(json.dumps(config.to_dict()))
        (directory / "tokenizer.json").write_text(tokenizer(config.vocab_size))
        own = subprocess.run(
            [logits, directory, str(PROMPT), *map(str, ids)], check=True, capture_output=True, text=True
        )
        ours = np.array(json.loads(own.stdout))
        plain = gpt2_reference.of_directory(directory, ids)[PROMPT - 1 :]
    with torch.no_grad():
        single = model(torch.tensor([ids])).logits[0, PROMPT - 1 :].numpy()
        double = model.double()(torch.tensor([ids])).logits[0, PROMPT - 1 :].numpy()
    scale = np.abs(double).max()
    worst = 0.0
    for pair, a, b in [
        ("ours and PyTorch, f32", ours, single),
        ("ours and PyTorch, f64", ours, double),
        ("PyTorch, f32 and f64", single, double),
        ("NumPy and PyTorch, f64", plain, double),
    ]:
        difference = np.abs(a - b).max() / scale
        worst = max(worst, difference)
        print(f"| {name}, {'with' if prefix else 'without'} prefix | {pair} | {difference:.1e} |")
    assert (ours.argmax(-1) == double.argmax(-1)).all(), f"{name}: other tokens are the most likely"
    return worst


def main():
    print(f"transformers {transformers.__version__}, PyTorch {torch.__version__}, {PROMPT} tokens at once, then")
    print(f"{TOKENS - PROMPT} one by one; largest difference over the largest logit\n")
    print("| model | compared | difference |\n|---|---|---:|")
    worst = 0.0
    for name, shape in SHAPES.items():
        # A head of its own is part of the whole model only.
        for prefix in (True, False) if shape.get("tie_word_embeddings", True) else (True,):
            worst = max(worst, compare(name, shape, prefix, sys.argv[1]))
    print(f"\nlargest of all: {worst:.1e}, tolerance {TOLERANCE:.0e}")
    sys.exit(1 if worst > TOLERANCE else 0)


main()
