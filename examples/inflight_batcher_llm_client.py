#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Asks the model `tensorrt_llm` over gRPC for one completion of token ids.

    inflight_batcher_llm_client.py --request-output-len 200 [--streaming] [--stop-after-ms 200 --request-id 1]

The prompt is --text, or the ids of --input-tokens-csv. Ends with 1 where the server answers with an error, or where
--check-output finds other ids than expected.
"""
import argparse
import queue
import sys
import time

import numpy as np
import tritonclient.grpc as grpc_client
from tritonclient.utils import InferenceServerException

import triton_calls as calls

MODEL = "tensorrt_llm"
TEXT = "Born in north-east France, Soyer trained as a"


def options_of(arguments):
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    calls.connection_options(parser)
    calls.sampling_options(parser)
    parser.add_argument("-t", "--stream-timeout", type=float, help="seconds that the request may take")
    parser.add_argument("-g", "--grpc-compression-algorithm", choices=["gzip", "deflate"])
    parser.add_argument("--text", default=TEXT, help="the prompt (%(default)s)")
    parser.add_argument("--input-tokens-csv", help="the prompt as ids with commas; instead of --text")
    parser.add_argument("--output-tokens-csv", help="the ids that --check-output expects behind the prompt")
    parser.add_argument("-c", "--check-output", action="store_true", help="compare with --output-tokens-csv")
    parser.add_argument("-S", "--streaming", action="store_true", help="print ids as they come")
    parser.add_argument("-o", "--request-output-len", type=int, default=16)
    parser.add_argument("--stop-after-ms", type=int, default=0, help="end the request early, after so long")
    parser.add_argument("--stop-via-request-cancel", action="store_true", help="--stop-after-ms cancels the call")
    parser.add_argument("--request-id", default="", help="with --stop-after-ms it is `1` where it is not given")
    parser.add_argument("--model-name", default=MODEL)
    parser.add_argument("--early-stopping", action="store_true")
    calls.without(parser, "--tokenizer-dir", why=calls.OWN_TOKENIZER)
    calls.without(parser, "--tokenizer-type", why=calls.OWN_TOKENIZER)
    calls.without(parser, "--dtype", why="it is the type of prompt tables and LoRA weights")
    calls.refused(parser, "--draft-tokens-csv", why=calls.NO_DRAFT)
    calls.refused(parser, "--num-return-sequences", why="one sequence a request is there")
    options = parser.parse_args(arguments)
    if options.check_output and options.output_tokens_csv is None:
        parser.error("--check-output needs --output-tokens-csv")
    if options.stop_after_ms and not options.request_id:
        options.request_id = "1"
    return options


def ids_of_csv(text):
    return [int(x) for x in text.split(",") if x.strip()]


class Request:
    """One call; what it brings comes through `answers` as (result, error)."""

    def __init__(self, client, options, arrays):
        self.client, self.options, self.answers = client, options, queue.Queue()
        settings = {"request_id": options.request_id}
        inputs = calls.inputs_of(grpc_client, arrays)
        if options.streaming:
            client.start_stream(self.take, stream_timeout=options.stream_timeout,
                                compression_algorithm=options.grpc_compression_algorithm)
            client.async_stream_infer(options.model_name, inputs, enable_empty_final_response=True, **settings)
            self.call = None
        else:
            self.call = client.async_infer(options.model_name, inputs, self.take, client_timeout=options.stream_timeout,
                                           compression_algorithm=options.grpc_compression_algorithm, **settings)

    def take(self, result, error):
        self.answers.put((result, error))

    def next(self, seconds=None):
        """@return the next result, or None where `seconds` pass before."""
        try:
            result, error = self.answers.get(timeout=seconds)
        except queue.Empty:
            return None
        if error is not None:
            raise error
        return result

    def is_last(self, result):
        final = result.get_response().parameters.get("triton_final_response")
        return self.call is not None or (final is not None and final.bool_param)

    def stop(self):
        """Ends it early: what it has so far is its answer. A cancelled call has none."""
        if not self.options.stop_via_request_cancel:
            self.client.infer(self.options.model_name, calls.inputs_of(grpc_client, {
                "input_ids": np.array([[0]], np.int32), "input_lengths": np.array([[1]], np.int32),
                "request_output_len": np.array([[1]], np.int32), "stop": np.array([[True]])}),
                request_id=self.options.request_id)
        elif self.call is not None:
            self.call.cancel()
        else:
            self.client.stop_stream(cancel_requests=True)


def results_of(request, options):
    """Each result until the last; the stop is sent between them when its time has come."""
    stop_at = time.monotonic() + options.stop_after_ms / 1000 if options.stop_after_ms else None
    while True:
        result = request.next(stop_at and max(0.0, stop_at - time.monotonic()))
        if result is not None:
            yield result
            if request.is_last(result):
                print("Got completed request", flush=True)
                return
        if stop_at is not None and time.monotonic() >= stop_at:
            stop_at = None
            request.stop()
            if options.stop_via_request_cancel:
                print("Request is cancelled", flush=True)
                return


class Output:
    """What all results of the request said together."""

    def __init__(self, options, prompt):
        self.options, self.prompt = options, prompt
        self.ids, self.arrays = [], {}

    def add(self, result):
        ids = result.as_numpy("output_ids")
        if ids is None:
            return  # the empty last one of a stream
        n_ids = int(result.as_numpy("sequence_length").reshape(-1)[0])
        new = [int(x) for x in ids[0][0][:n_ids]]
        if self.options.streaming:
            print(f"Output tokens: {new}", flush=True)
        self.ids += new
        for name in ("cum_log_probs", "output_log_probs", "context_logits", "generation_logits"):
            array = result.as_numpy(name)
            if array is not None and getattr(self.options, "return_" + name.replace("cum_", "").replace("output_", "")):
                calls.gather(self.arrays, (name,), array)

    def generated(self):
        """The ids behind the prompt, which is in front unless it was left out."""
        n_prompt = len(self.prompt)
        if not self.options.exclude_input_in_output and self.ids[:n_prompt] == self.prompt:
            return self.ids[n_prompt:]
        return self.ids


def report(client, options, output):
    print(f"Input: {calls.text_of(grpc_client, client, output.prompt)}")
    print(f"Output beam 0: {calls.text_of(grpc_client, client, output.generated())}")
    print(f"Output sequence: {output.ids}")
    for (name,), array in output.arrays.items():
        calls.print_array(name, array)
    if not options.check_output:
        return 0
    expected = ids_of_csv(options.output_tokens_csv)
    print("PASS" if output.generated() == expected else f"FAIL: expected {expected}, got {output.generated()}")
    return 0 if output.generated() == expected else 1


def main(arguments=None):
    options = options_of(arguments)
    with calls.connect(grpc_client, options) as client:
        prompt, end_id, pad_id = calls.tokenize(grpc_client, client, options.text)
        if options.input_tokens_csv:
            prompt = ids_of_csv(options.input_tokens_csv)
        if options.pad_id is None:
            options.pad_id = pad_id
        if options.end_id is None:
            options.end_id = end_id
        print(f"Using pad_id: {options.pad_id}\nUsing end_id: {options.end_id}\nInput sequence: {prompt}", flush=True)
        arrays = {"input_ids": np.array([prompt], np.int32), "input_lengths": np.array([[len(prompt)]], np.int32),
                  "request_output_len": np.array([[options.request_output_len]], np.int32)}
        arrays.update(calls.sampling_arrays(options, runtime=True))
        if options.early_stopping:
            arrays["early_stopping"] = np.array([[True]])
        if options.streaming:
            arrays["streaming"] = np.array([[True]])
        output = Output(options, prompt)
        request = Request(client, options, arrays)
        for result in results_of(request, options):
            output.add(result)
        return report(client, options, output)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (InferenceServerException, OSError) as problem:
        sys.exit(f"Encountered error: {problem}")
