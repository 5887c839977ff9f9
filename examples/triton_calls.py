# SPDX-License-Identifier: Apache-2.0
"""What the client scripts of this folder share: tensors, calls of the models around `tensorrt_llm`, and options that a
script takes because others have them.

Needs tritonclient[grpc,http] from PyPI. Tokenizing is the server's work (its models `preprocessing` and
`postprocessing`), so no script here needs a tokenizer of its own.
"""
import argparse
import json
import sys
import threading

import numpy as np
import tritonclient.grpc as grpc_client
import tritonclient.http as http_client
from tritonclient.utils import np_to_triton_dtype


class Without(argparse.Action):
    """An option that has no meaning with Baton: it is taken, and said so by name."""

    def __init__(self, why="", **options):
        self.why = why
        super().__init__(**dict(options, help=f"taken without effect: {why}"))

    def __call__(self, parser, namespace, values, option_string=None):
        setattr(namespace, self.dest, values)
        print(f"{option_string} has no effect: {self.why}", file=sys.stderr)


class Refused(argparse.Action):
    """An option for something that Baton does not have: an error that names it."""

    def __init__(self, why="", **options):
        self.why = why
        super().__init__(**dict(options, help=f"refused: {why}"))

    def __call__(self, parser, namespace, values, option_string=None):
        parser.error(f"{option_string}: {self.why}")


def without(parser, *names, why, **options):
    parser.add_argument(*names, action=Without, why=why, default=None, **options)


def refused(parser, *names, why, **options):
    parser.add_argument(*names, action=Refused, why=why, default=None, **options)


OWN_TOKENIZER = "the server tokenizes with the model's own tokenizer"
NO_LORA = "LoRA is not there yet"
NO_DRAFT = "draft tokens are not there yet"


def connection_options(parser):
    """What both gRPC clients take to reach the server."""
    parser.add_argument("-v", "--verbose", action="store_true", help="say what is sent and received")
    parser.add_argument("-u", "--url", default="localhost:8001", help="HOST:PORT of gRPC (%(default)s)")
    parser.add_argument("-s", "--ssl", action="store_true", help="TLS")
    parser.add_argument("-r", "--root-certificates", help="PEM file that the server's certificate is checked with")
    parser.add_argument("-p", "--private-key", help="PEM file of the client's key")
    parser.add_argument("-x", "--certificate-chain", help="PEM file of the client's certificate")


def sampling_options(parser):
    parser.add_argument("-b", "--beam-width", type=int, default=1)
    parser.add_argument("--temperature", type=float)
    parser.add_argument("--repetition-penalty", type=float)
    parser.add_argument("--presence-penalty", type=float)
    parser.add_argument("--frequency-penalty", type=float)
    parser.add_argument("--top-k", type=int)
    parser.add_argument("--top-p", type=float)
    parser.add_argument("--len-penalty", type=float)
    parser.add_argument("--min-length", type=int)
    parser.add_argument("--random-seed", "--seed", type=int)
    parser.add_argument("--end-id", type=int, help="the model's own where it is not given")
    parser.add_argument("--pad-id", type=int, help="the model's own where it is not given")
    parser.add_argument("--exclude-input-in-output", action="store_true", help="no prompt in front of the output")
    parser.add_argument("--return-log-probs", action="store_true")
    parser.add_argument("--return-context-logits", action="store_true")
    parser.add_argument("--return-generation-logits", action="store_true")
    refused(parser, "--lora-path", why=NO_LORA)
    refused(parser, "--lora-task-id", why=NO_LORA)
    refused(parser, "--prompt-embedding-table-path", why="prompt tables are not there yet")
    refused(parser, "--prompt-task-id", why="prompt tables are not there yet")


LIBRARIES = {"grpc": (grpc_client, "localhost:8001"), "http": (http_client, "localhost:8000")}


def protocol_options(parser):
    """What the scripts take that send many requests by either protocol; their threads share Clients(options)."""
    parser.add_argument("-i", "--protocol", choices=sorted(LIBRARIES), default="http")
    parser.add_argument("-u", "--url", help="HOST:PORT (localhost:8000, or 8001 for grpc)")
    parser.add_argument("-c", "--concurrency", type=int, default=128, help="requests at once at most (%(default)s)")


def dataset_options(parser):
    parser.add_argument("--dataset", required=True, help="JSON file, a list of texts, or of objects with `prompt`, or "
                        "`instruction` and `input`, and perhaps `output`")
    parser.add_argument("--max_input_len", "--max-input-len", type=int, help="prompts of more ids are left out")
    parser.add_argument("--num_requests", "--num-requests", type=int, default=100)
    without(parser, "--tokenizer_dir", "--tokenizer-dir", why=OWN_TOKENIZER)
    without(parser, "--tokenizer_type", "--tokenizer-type", why=OWN_TOKENIZER)


class Clients:
    """A client for each thread: one of tritonclient.http is for one thread alone."""

    def __init__(self, options):
        self.library, url = LIBRARIES[options.protocol]
        self.url, self.verbose, self.mine = options.url or url, options.verbose, threading.local()

    def get(self):
        if not hasattr(self.mine, "client"):
            self.mine.client = self.library.InferenceServerClient(self.url, verbose=self.verbose)
        return self.mine.client


def record(item):
    """@return (prompt, expected answer or None) of an item of a dataset."""
    if isinstance(item, str):
        return item, None
    prompt = item.get("prompt") or " ".join(filter(None, (item.get("instruction"), item.get("input"))))
    if not prompt:
        raise SystemExit(f"an item of the dataset has no prompt: {json.dumps(item)[:80]}")
    return prompt, item.get("output") or item.get("response")


def dataset_of(options, clients):
    """@return [(prompt, ids, expected answer or None)] of the first that are short enough."""
    with open(options.dataset, encoding="utf-8") as f:
        items = json.load(f)
    found = []
    for item in items:
        if len(found) == options.num_requests:
            break
        prompt, answer = record(item)
        ids, _, _ = tokenize(clients.library, clients.get(), prompt)
        if options.max_input_len is None or len(ids) <= options.max_input_len:
            found.append((prompt, ids, answer))
    if not found:
        raise SystemExit(f"--dataset {options.dataset}: no prompt of it is short enough")
    return found


# Option -> the tensor's name and type; `runtime_` is put in front of top_k and top_p for the model of ids.
SAMPLING = (
    ("temperature", np.float32), ("repetition_penalty", np.float32), ("presence_penalty", np.float32),
    ("frequency_penalty", np.float32), ("top_k", np.int32), ("top_p", np.float32), ("len_penalty", np.float32),
    ("min_length", np.int32), ("random_seed", np.uint64), ("end_id", np.int32), ("pad_id", np.int32),
)
FLAGS = ("return_log_probs", "return_context_logits", "return_generation_logits", "exclude_input_in_output")


def sampling_arrays(options, rows=1, runtime=False):
    """@return {name: array} of what was asked for, a row for each of `rows` prompts."""
    found = {}
    for name, kind in SAMPLING:
        value = getattr(options, name)
        if value is not None:
            found[("runtime_" if runtime and name.startswith("top_") else "") + name] = np.full((rows, 1), value, kind)
    if options.beam_width != 1:
        found["beam_width"] = np.full((rows, 1), options.beam_width, np.int32)
    found.update({name: np.full((rows, 1), True) for name in FLAGS if getattr(options, name)})
    return found


def inputs_of(library, arrays):
    """@return InferInput for each array; `library` is tritonclient.grpc or tritonclient.http."""
    made = []
    for name, array in arrays.items():
        one = library.InferInput(name, list(array.shape), np_to_triton_dtype(array.dtype))
        one.set_data_from_numpy(array)
        made.append(one)
    return made


def connect(library, options):
    return library.InferenceServerClient(
        options.url, verbose=options.verbose, ssl=options.ssl, root_certificates=options.root_certificates,
        private_key=options.private_key, certificate_chain=options.certificate_chain)


def texts(values):
    """A BYTES tensor [n, 1] of strings."""
    return np.array([[value.encode()] for value in values], dtype=object)


def tokenize(library, client, text):
    """@return (ids, end id, pad id) as `preprocessing` says them."""
    answer = client.infer("preprocessing", inputs_of(library, {
        "QUERY": texts([text]), "REQUEST_OUTPUT_LEN": np.array([[1]], np.int32)}))
    n_ids = int(answer.as_numpy("REQUEST_INPUT_LEN").reshape(-1)[0])
    ids = [int(x) for x in answer.as_numpy("INPUT_ID").reshape(-1)[:n_ids]]
    return (ids, *(int(answer.as_numpy(name).reshape(-1)[0]) for name in ("OUT_END_ID", "OUT_PAD_ID")))


def text_of(library, client, ids):
    """@return the text of ids as `postprocessing` makes it."""
    if not ids:
        return ""
    answer = client.infer("postprocessing", inputs_of(library, {
        "TOKENS_BATCH": np.array([[ids]], np.int32), "SEQUENCE_LENGTH": np.array([[len(ids)]], np.int32)}))
    return answer.as_numpy("OUTPUT").reshape(-1)[0].decode("utf-8", "replace")


def gather(arrays, key, array):
    """Into arrays[key], (name, ...): log-probs of a stream's pieces stand one behind the other, else the last holds."""
    if key[0] == "output_log_probs" and key in arrays:
        array = np.concatenate([arrays[key], array], axis=-1)
    arrays[key] = array


def print_array(name, array):
    print(f"{name}.shape: {array.shape}")
    print(f"{name}: {array}")
