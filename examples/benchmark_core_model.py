#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures the model `tensorrt_llm`: requests of ids that arrive at a rate, and a table of how they were answered.

    benchmark_core_model.py -i grpc --request_rate 10 token_norm_dist --input_mean 128 --input_stdev 5 \\
        --output_mean 20 --output_stdev 2 --num_requests 5000
    benchmark_core_model.py -i grpc --request_rate 10 dataset --dataset FILE --tokenizer_dir DIR --num_requests 5000

A latency counts from when its request was due, so a client that cannot keep up hides nothing. Ends with 1 where a
request failed.
"""
import argparse
import concurrent.futures
import csv
import http.client
import random
import sys
import threading
import time

import numpy as np
from tritonclient.utils import InferenceServerException

import triton_calls as calls

N_WARM_UP = 4
UTILIZATION = (("nv_cpu_utilization", "CPU utilization"), ("nv_gpu_utilization", "GPU utilization"))


def options_of(arguments):
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("-v", "--verbose", action="store_true", help="say what is sent and received")
    calls.protocol_options(parser)
    parser.add_argument("--tensorrt_llm_model_name", "--tensorrt-llm-model-name", default="tensorrt_llm")
    parser.add_argument("--request_rate", "--request-rate", type=float, default=-1,
                        help="requests a second; -1: all at once")
    parser.add_argument("--time_delay_dist", "--time-delay-dist", choices=["exponential_dist", "constant"],
                        default="exponential_dist", help="times between arrivals (%(default)s)")
    parser.add_argument("--exclude_input_in_output", "--exclude-input-in-output", action="store_true")
    parser.add_argument("--stats_csv", "--stats-csv", "--op_stats_csv", help="file for the table as CSV")
    parser.add_argument("--metrics_url", "--metrics-url", help="HOST:PORT of /metrics, for rows of utilization")
    parser.add_argument("--seed", type=int, default=0, help="of all that is drawn (%(default)s)")
    calls.refused(parser, "--dump_perfetto_trace", why="the server's --trace-file writes one")
    kinds = parser.add_subparsers(dest="workload", required=True)
    dataset = kinds.add_parser("dataset", help="prompts of a JSON file")
    calls.dataset_options(dataset)
    dataset.add_argument("--op_tokens_per_word", type=float, default=1.3, help="tokens of a word of `output`")
    dataset.add_argument("--output_len", type=int, default=20, help="tokens where there is no `output`")
    normal = kinds.add_parser("token_norm_dist", aliases=["token-norm-dist"], help="random ids of drawn lengths")
    for name in ("input_mean", "input_stdev", "output_mean", "output_stdev"):
        normal.add_argument(f"--{name}", f"--{name.replace('_', '-')}", type=float, required=True)
    normal.add_argument("--vocab_size", type=int, default=256, help="ids are below this (%(default)s)")
    normal.add_argument("--num_requests", "--num-requests", type=int, default=100)
    options = parser.parse_args(arguments)
    if options.concurrency < 1 or options.num_requests < 1 or options.request_rate == 0:
        parser.error("--concurrency and --num_requests are at least 1, and --request_rate is not 0")
    return options


def requests_of_dataset(options, clients):
    """@return [(ids, output length)]"""
    return [(ids, max(1, round(len(answer.split()) * options.op_tokens_per_word) if answer else options.output_len))
            for _, ids, answer in calls.dataset_of(options, clients)]


def requests_of_lengths(options, draw):
    """@return [(ids, output length)]"""
    def length(mean, deviation):
        return max(1, round(draw.gauss(mean, deviation)))

    return [([draw.randrange(options.vocab_size) for _ in range(length(options.input_mean, options.input_stdev))],
             length(options.output_mean, options.output_stdev)) for _ in range(options.num_requests)]


def arrivals(options, n, draw):
    """@return when each of n requests is due, in seconds from the start."""
    due, at = [], 0.0
    for _ in range(n):
        due.append(at)
        if options.request_rate > 0:
            at += (1 / options.request_rate if options.time_delay_dist == "constant"
                   else draw.expovariate(options.request_rate))
    return due


def send(options, clients, ids, n_out):
    """@return how many tokens were generated."""
    arrays = {"input_ids": np.array([ids], np.int32), "input_lengths": np.array([[len(ids)]], np.int32),
              "request_output_len": np.array([[n_out]], np.int32),
              "exclude_input_in_output": np.array([[options.exclude_input_in_output]])}
    answer = clients.get().infer(options.tensorrt_llm_model_name, calls.inputs_of(clients.library, arrays))
    n_all = int(answer.as_numpy("sequence_length").reshape(-1)[0])
    return n_all - (0 if options.exclude_input_in_output else len(ids))


class Utilization:
    """Reads /metrics twice a second while requests run."""

    def __init__(self, url):
        self.url, self.seen, self.end = url, {}, threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)

    def __enter__(self):
        if self.url:
            self.thread.start()
        return self

    def __exit__(self, *_):
        self.end.set()
        if self.url:
            self.thread.join()

    def read(self):
        connection = http.client.HTTPConnection(self.url, timeout=10)
        try:
            connection.request("GET", "/metrics")
            return connection.getresponse().read().decode()
        finally:
            connection.close()

    def run(self):
        while True:
            for line in self.read().split("\n"):
                name = line.split("{")[0].split(" ")[0]
                if name in dict(UTILIZATION):
                    self.seen.setdefault(name, []).append(float(line.rsplit(" ", 1)[1]))
            if self.end.wait(0.5):
                return

    def rows(self):
        if self.url and not self.seen:
            print(f"--metrics_url: {self.url} has no {UTILIZATION[0][0]}; the server has with --enable-cpu-metrics",
                  file=sys.stderr)
        return [(title, float(np.mean(self.seen[name]))) for name, title in UTILIZATION if name in self.seen]


def measure(options, clients, requests, draw):
    """@return (seconds of each request, tokens of each, seconds of all, errors)"""
    due = arrivals(options, len(requests), draw)
    begin = time.monotonic()

    def one(at, ids, n_out):
        n_tokens = send(options, clients, ids, n_out)
        return time.monotonic() - begin - at, n_tokens

    with concurrent.futures.ThreadPoolExecutor(options.concurrency) as pool:
        waiting = []
        for at, (ids, n_out) in zip(due, requests):
            time.sleep(max(0.0, begin + at - time.monotonic()))
            waiting.append(pool.submit(one, at if options.request_rate > 0 else 0.0, ids, n_out))
        done, errors = [], []
        for future in waiting:
            try:
                done.append(future.result())
            except (InferenceServerException, OSError) as error:
                errors.append(error)
    total_s = time.monotonic() - begin
    return [s for s, _ in done], [n for _, n in done], total_s, errors


def table_of(requests, seconds, tokens, total_s):
    ms = np.array(seconds) * 1000
    return [
        ("Requests/Sec", len(ms) / total_s),
        ("OP tokens/sec", sum(tokens) / total_s),
        ("Avg. latency (ms)", ms.mean()),
        ("P99 latency (ms)", np.percentile(ms, 99)),
        ("P90 latency (ms)", np.percentile(ms, 90)),
        ("P50 latency (ms)", np.percentile(ms, 50)),
        ("Latency jitter (ms)", ms.std()),
        ("Avg. IP tokens per request", np.mean([len(ids) for ids, _ in requests])),
        ("Avg. OP tokens per request", np.mean(tokens)),
        ("Total latency (ms)", total_s * 1000),
        ("Total requests", len(ms)),
    ]


def print_table(rows):
    cells = [("Stat", "Value")] + [(name, f"{value:.2f}") for name, value in rows]
    widths = [max(len(row[i]) for row in cells) for i in (0, 1)]
    rule = "+" + "+".join("-" * (width + 2) for width in widths) + "+"
    print(rule)
    for i, row in enumerate(cells):
        print("| " + " | ".join(cell.center(width) for cell, width in zip(row, widths)) + " |")
        if i in (0, len(cells) - 1):
            print(rule)


def main(arguments=None):
    options = options_of(arguments)
    draw = random.Random(options.seed)
    clients = calls.Clients(options)
    requests = (requests_of_dataset(options, clients) if options.workload == "dataset"
                else requests_of_lengths(options, draw))
    print("[INFO] Warm up for benchmarking.", flush=True)
    for ids, n_out in requests[:N_WARM_UP]:
        send(options, clients, ids, n_out)
    print(f"[INFO] Start benchmarking on {len(requests)} prompts.", flush=True)
    with Utilization(options.metrics_url) as utilization:
        seconds, tokens, total_s, errors = measure(options, clients, requests, draw)
    if errors:
        print(f"[ERROR] {len(errors)} of {len(requests)} requests failed, the first: {errors[0]}", file=sys.stderr)
    if not seconds:
        return 1
    print(f"[INFO] Total Latency: {total_s * 1000:.3f} ms")
    print(f"[INFO] Total request latencies: {sum(seconds) * 1000:.3f} ms")
    rows = table_of(requests, seconds, tokens, total_s) + utilization.rows()
    print_table(rows)
    if options.stats_csv:
        with open(options.stats_csv, "w", encoding="utf-8", newline="") as f:
            csv.writer(f).writerows([("Stat", "Value")] + [(name, f"{value:.2f}") for name, value in rows])
    return 1 if errors else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (InferenceServerException, OSError) as problem:
        sys.exit(f"Encountered error: {problem}")
