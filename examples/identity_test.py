#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sends texts through `preprocessing` and `postprocessing`, which must give each back as it was.

    identity_test.py -i grpc dataset --dataset FILE

Prints how long the two took for each text, on average. Ends with 1 where one came back changed.
"""
import argparse
import concurrent.futures
import sys
import time

from tritonclient.utils import InferenceServerException

import triton_calls as calls


def options_of(arguments):
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("-v", "--verbose", action="store_true", help="say what is sent and received")
    calls.protocol_options(parser)
    kinds = parser.add_subparsers(dest="workload", required=True)
    calls.dataset_options(kinds.add_parser("dataset", help="texts of a JSON file"))
    return parser.parse_args(arguments)


def there_and_back(clients, text):
    """@return (the text as it came back, seconds)"""
    begin = time.monotonic()
    ids, _, _ = calls.tokenize(clients.library, clients.get(), text)
    return calls.text_of(clients.library, clients.get(), ids), time.monotonic() - begin


def main(arguments=None):
    options = options_of(arguments)
    clients = calls.Clients(options)
    prompts = [prompt for prompt, _, _ in calls.dataset_of(options, clients)]
    print(f"[INFO] Start testing on {len(prompts)} prompts.", flush=True)
    with concurrent.futures.ThreadPoolExecutor(options.concurrency) as pool:
        answers = list(pool.map(lambda prompt: there_and_back(clients, prompt), prompts))
    changed = [(prompt, text) for prompt, (text, _) in zip(prompts, answers) if prompt != text]
    for prompt, text in changed:
        print(f"[ERROR] {prompt!r} came back as {text!r}", file=sys.stderr)
    if changed:
        return 1
    print("[INFO] Functionality test succeed.")
    print(f"[INFO] Average latency: {sum(s for _, s in answers) / len(answers) * 1000:.3f} ms")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (InferenceServerException, OSError) as problem:
        sys.exit(f"Encountered error: {problem}")
