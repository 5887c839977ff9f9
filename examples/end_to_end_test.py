#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Asks `ensemble` for completions of a data set's prompts, checks that each is one, and measures.

    end_to_end_test.py -i grpc --dataset FILE --max-input-len 500

The check: the prompt and more, as ensemble gives it, and the same by way of `preprocessing`, `tensorrt_llm` and
`postprocessing` called one after the other. Ends with 1 where that is not so.
"""
import argparse
import concurrent.futures
import sys
import time

import numpy as np
from tritonclient.utils import InferenceServerException

import triton_calls as calls

OUTPUT_LEN = 20


def options_of(arguments):
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("-v", "--verbose", action="store_true", help="say what is sent and received")
    calls.protocol_options(parser)
    calls.dataset_options(parser)
    return parser.parse_args(arguments)


def ask(clients, prompt):
    """@return the text of `ensemble`."""
    answer = clients.get().infer("ensemble", calls.inputs_of(clients.library, {
        "text_input": calls.texts([prompt]), "max_tokens": np.array([[OUTPUT_LEN]], np.int32)}))
    return answer.as_numpy("text_output").reshape(-1)[0].decode("utf-8", "replace")


def ask_by_parts(clients, prompt):
    """@return the text of the three models in a chain."""
    ids, end_id, _ = calls.tokenize(clients.library, clients.get(), prompt)
    answer = clients.get().infer("tensorrt_llm", calls.inputs_of(clients.library, {
        "input_ids": np.array([ids], np.int32), "input_lengths": np.array([[len(ids)]], np.int32),
        "request_output_len": np.array([[OUTPUT_LEN]], np.int32), "end_id": np.array([[end_id]], np.int32)}))
    n_ids = int(answer.as_numpy("sequence_length").reshape(-1)[0])
    return calls.text_of(clients.library, clients.get(), [int(x) for x in answer.as_numpy("output_ids")[0][0][:n_ids]])


def main(arguments=None):
    options = options_of(arguments)
    clients = calls.Clients(options)
    prompts = [prompt for prompt, _, _ in calls.dataset_of(options, clients)]
    print(f"[INFO] Start testing on {len(prompts)} prompts.", flush=True)
    for prompt in prompts:
        whole, parts = ask(clients, prompt), ask_by_parts(clients, prompt)
        if not whole.startswith(prompt) or whole != parts:
            print(f"[ERROR] {prompt!r}: {whole!r} from ensemble, {parts!r} from its parts", file=sys.stderr)
            return 1
    print("[INFO] Functionality test succeed.", flush=True)
    print(f"[INFO] Start benchmarking on {len(prompts)} prompts.", flush=True)
    begin = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(options.concurrency) as pool:
        list(pool.map(lambda prompt: ask(clients, prompt), prompts))
    print(f"[INFO] Total Latency: {(time.monotonic() - begin) * 1000:.3f} ms")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (InferenceServerException, OSError) as problem:
        sys.exit(f"Encountered error: {problem}")
