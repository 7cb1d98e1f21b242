#!/usr/bin/env python3
"""vLLM offline on a model of random weights, for `candlescope record`, which knows nothing of it: record_vllm.py FOLDER [JSON]. The folder has the
model's config.json; the second has further arguments of vLLM's `LLM`, such as {"enforce_eager": false} or {"attention_config": {"backend": "TRITON_ATTN"}}. 4 requests of
64 tokens and 32 more, in a process of its own, as vLLM starts it. Prints `RESULT {json}`."""
import json
import sys
import time


def main():
    from vllm import LLM, SamplingParams

    # Few sequences and tokens at a time: it warms up with as many.
    arguments = dict(load_format="dummy", dtype="bfloat16", skip_tokenizer_init=True, enforce_eager=True, max_model_len=256, max_num_seqs=8,
                     max_num_batched_tokens=512, gpu_memory_utilization=0.3)
    if len(sys.argv) > 2:
        arguments.update(json.loads(sys.argv[2]))
    model = LLM(model=sys.argv[1], **arguments)
    prompts = [{"prompt_token_ids": [1 + (7 * at + request) % 1000 for at in range(64)]} for request in range(4)]
    begun = time.perf_counter()
    outputs = model.generate(prompts, SamplingParams(max_tokens=32, ignore_eos=True, detokenize=False))
    ms = (time.perf_counter() - begun) * 1e3
    print("RESULT", json.dumps({"tokens": sum(len(output.outputs[0].token_ids) for output in outputs), "ms": ms}), flush=True)


if __name__ == "__main__":
    main()
