#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Asks `ensemble` or `tensorrt_llm_bls` over gRPC for completions of texts.

    end_to_end_grpc_client.py -o 5 -p '["This is a test","I want you to"]' --batch-inputs

-p is one prompt, or a JSON list of prompts: one request after the other, or one of them all with --batch-inputs. Ends
with 1 where the server answers with an error.
"""
import argparse
import json
import queue
import sys

import numpy as np
import tritonclient.grpc as grpc_client
from tritonclient.utils import InferenceServerException

import triton_calls as calls

ARRAYS = (("return_log_probs", "cum_log_probs"), ("return_log_probs", "output_log_probs"),
          ("return_context_logits", "context_logits"), ("return_generation_logits", "generation_logits"))


def options_of(arguments):
    # -p is the prompt here, so the key of the client has its long name alone.
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0], conflict_handler="resolve")
    calls.connection_options(parser)
    calls.sampling_options(parser)
    parser.add_argument("-p", "--prompt", required=True, help="a prompt, or a JSON list of them")
    parser.add_argument("-o", "--output-len", type=int, default=16)
    parser.add_argument("-S", "--streaming", action="store_true", help="print text as it comes")
    parser.add_argument("--model-name", default="ensemble", help="ensemble or tensorrt_llm_bls")
    parser.add_argument("--batch-inputs", action="store_true", help="all prompts in one request")
    parser.add_argument("--request-id", default="1")
    parser.add_argument("--stop-words", nargs="+", default=[])
    parser.add_argument("--bad-words", nargs="+", default=[])
    parser.add_argument("--embedding-bias-words", nargs="+", default=[])
    parser.add_argument("--embedding-bias-weights", nargs="+", type=float, default=[])
    parser.add_argument("--guided-decoding-guide-type", help="json, json_schema, regex, ebnf_grammar or structural_tag")
    parser.add_argument("--guided-decoding-guide", help="the schema, the expression or the grammar")
    parser.add_argument("--overwrite-output-text", action="store_true",
                        help="with --streaming: each piece is all of the text so far")
    calls.refused(parser, "--num-draft-tokens", why=calls.NO_DRAFT)
    calls.refused(parser, "--use-draft-logits", why=calls.NO_DRAFT)
    return parser.parse_args(arguments)


def prompts_of(text):
    """@return the prompts of -p: it is a JSON list of strings, or itself the one prompt."""
    try:
        found = json.loads(text)
    except ValueError:
        return [text]
    if isinstance(found, list) and found and all(isinstance(x, str) for x in found):
        return found
    return [text]


def arrays_of(options, prompts):
    n = len(prompts)
    arrays = {"text_input": calls.texts(prompts), "max_tokens": np.full((n, 1), options.output_len, np.int32)}
    for name in ("stop_words", "bad_words", "embedding_bias_words"):
        words = getattr(options, name)
        if words:
            arrays[name] = np.array([[word.encode() for word in words]] * n, dtype=object)
    if options.embedding_bias_weights:
        arrays["embedding_bias_weights"] = np.array([options.embedding_bias_weights] * n, np.float32)
    for name in ("guided_decoding_guide_type", "guided_decoding_guide"):
        if getattr(options, name) is not None:
            arrays[name] = calls.texts([getattr(options, name)] * n)
    if options.streaming:
        arrays["stream"] = np.full((n, 1), True)
    arrays.update(calls.sampling_arrays(options, n))
    return arrays


def results_of(client, options, prompts):
    """Each response to one request for these prompts."""
    answers = queue.Queue()
    client.start_stream(lambda result, error: answers.put((result, error)))
    try:
        client.async_stream_infer(options.model_name, calls.inputs_of(grpc_client, arrays_of(options, prompts)),
                                  request_id=options.request_id, enable_empty_final_response=True)
        while True:
            result, error = answers.get()
            if error is not None:
                raise error
            if result.as_numpy("text_output") is not None:
                yield result
            if result.get_response().parameters["triton_final_response"].bool_param:
                return
    finally:
        client.stop_stream()


def ask(client, options, prompts, first):
    """@return the text of each prompt; a response says by batch_index whose it is."""
    found = [""] * len(prompts)
    arrays = {}
    for result in results_of(client, options, prompts):
        pieces = [x.decode("utf-8", "replace") for x in result.as_numpy("text_output").reshape(-1)]
        index = result.as_numpy("batch_index")
        rows = [int(x) for x in index.reshape(-1)] if index is not None else list(range(len(pieces)))
        for row, piece in zip(rows, pieces):
            found[row] = piece if options.overwrite_output_text else found[row] + piece
            if options.streaming:
                print(f"{first + row}: {found[row] if options.overwrite_output_text else piece}", flush=True)
        for flag, name in ARRAYS:
            if getattr(options, flag) and result.as_numpy(name) is not None:
                calls.gather(arrays, (name, *rows), result.as_numpy(name))
    for row, text in enumerate(found):
        print(f"batch_index: {row}\nInput: {prompts[row]}\nOutput: {text}", flush=True)
    for (name, *rows), array in sorted(arrays.items(), key=lambda item: item[0][1:]):
        print(f"batch_index: {rows}")
        calls.print_array(name, array)
    return found


def main(arguments=None):
    options = options_of(arguments)
    prompts = prompts_of(options.prompt)
    with calls.connect(grpc_client, options) as client:
        if options.batch_inputs:
            ask(client, options, prompts, 0)
        else:
            for i, prompt in enumerate(prompts):
                ask(client, options, [prompt], i)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (InferenceServerException, OSError) as problem:
        sys.exit(f"Encountered error: {problem}")
