"""GPT-2 in plain NumPy and double precision, from the formulas of the paper and of Hugging Face's model.

gpt2_reference.py DIRECTORY TOKEN…  prints the logits after each token, a JSON array of arrays.
It shares nothing with the crate but the weights' file. tests/peers/gpt2.sh holds it against transformers.
"""

import json
import struct
import sys
from pathlib import Path

import numpy as np

TYPES = {"F32": np.float32, "F64": np.float64, "F16": np.float16}


def read(path):
    """All tensors of a safetensors file, in double precision and without the prefix that some files have."""
    data = path.read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    tensors = {}
    for name, entry in json.loads(data[8 : 8 + size]).items():
        if name == "__metadata__":
            continue
        begin, end = (8 + size + offset for offset in entry["data_offsets"])
        values = np.frombuffer(data[begin:end], dtype=TYPES[entry["dtype"]]).astype(np.float64)
        tensors[name.removeprefix("transformer.")] = values.reshape(entry["shape"])
    return tensors


def layer_norm(x, weight, bias, eps):
    mean = x.mean(-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(-1, keepdims=True)
    return (x - mean) / np.sqrt(variance + eps) * weight + bias


def gelu(x):
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def logits(config, w, ids):
    """Logits (tokens, vocabulary) of one sequence, all positions at once."""
    heads, eps = config["n_head"], config.get("layer_norm_epsilon", 1e-5)
    tokens = len(ids)
    x = w["wte.weight"][ids] + w["wpe.weight"][:tokens]
    hidden = x.shape[1]
    mask = np.triu(np.full((tokens, tokens), -np.inf), 1)
    for layer in range(config["n_layer"]):
        at = lambda name: (w[f"h.{layer}.{name}.weight"], w[f"h.{layer}.{name}.bias"])
        linear = lambda x, name: x @ at(name)[0] + at(name)[1]
        qkv = linear(layer_norm(x, *at("ln_1"), eps), "attn.c_attn")
        q, k, v = (part.reshape(tokens, heads, -1).transpose(1, 0, 2) for part in np.split(qkv, 3, axis=-1))
        weights = softmax(q @ k.transpose(0, 2, 1) / np.sqrt(hidden // heads) + mask)
        context = (weights @ v).transpose(1, 0, 2).reshape(tokens, hidden)
        x = x + linear(context, "attn.c_proj")
        x = x + linear(gelu(linear(layer_norm(x, *at("ln_2"), eps), "mlp.c_fc")), "mlp.c_proj")
    x = layer_norm(x, w["ln_f.weight"], w["ln_f.bias"], eps)
    return x @ w.get("lm_head.weight", w["wte.weight"]).T


def of_directory(directory, ids):
    directory = Path(directory)
    config = json.loads((directory / "config.json").read_text())
    return logits(config, read(directory / "model.safetensors"), ids)


if __name__ == "__main__":
    print(json.dumps(of_directory(sys.argv[1], [int(token) for token in sys.argv[2:]]).tolist()))
