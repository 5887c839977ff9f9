#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Starts Baton as a Triton server is started, and says where it listens.

    launch_triton_server.py --world_size=4 --model_repo=/triton_model_repo

Ends with 0 once the server serves; the server runs on, in a session of its own. `kill PID` of the last line stops it.
Ends with 1 where the server does not start. Options that are not this script's, and what stands behind `--`, go to
`./baton serve` as they are, which takes tritonserver's, too.
"""
import argparse
import contextlib
import http.client
import os
import socket
import ssl
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# Of an installed tree this file is in share/baton/examples.
INSTALLED = os.path.join(os.path.dirname(os.path.dirname(ROOT)), "bin/baton")
SERVICES = (("grpc", "GRPCInferenceService"), ("http", "HTTPService"), ("metrics", "Metrics Service"))
OWN_PROCESSES = "the server starts its processes itself"
WITHOUT = {
    "force": "servers at other ports do not matter, and a port that is taken cannot be shared",
    "oversubscribe": OWN_PROCESSES, "disable_spawn_processes": OWN_PROCESSES, "no_mpi": OWN_PROCESSES,
}


def own_program():
    tree = os.path.join(ROOT, "baton")
    return INSTALLED if os.access(INSTALLED, os.X_OK) and not os.path.exists(tree) else tree


def in_order(words, arguments):
    """The words as they stand among the arguments: an option and its value are not parted."""
    left, found = list(words), []
    for word in reversed(arguments):
        if word in left:
            left.remove(word)
            found.append(word)
    return found[::-1]


def options_of(arguments):
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0], allow_abbrev=False)
    parser.add_argument("--world_size", type=int, default=int(os.environ.get("SLURM_NTASKS", "1")),
                        help="workers: half of them prefill, the rest decode, at least one of each (%(default)s)")
    parser.add_argument("--tritonserver", default=own_program(),
                        help="the program: `baton` or `baton-launch` (%(default)s)")
    parser.add_argument("--model_repo", "--model-repository", help="the model repository; without it --model behind `--`, or the default model")
    parser.add_argument("--host", "--http-address", default="127.0.0.1", help="address to listen at (%(default)s)")
    parser.add_argument("--grpc_port", "--grpc-port", type=int, default=8001)
    parser.add_argument("--http_port", "--http-port", type=int, default=8000)
    parser.add_argument("--metrics_port", "--metrics-port", type=int, default=8002)
    parser.add_argument("-f", "--force", action="store_true", help="taken without effect")
    parser.add_argument("--log", action="store_true", help="--log-level debug, to --log-file")
    parser.add_argument("--log-file", help="where the server's output goes (triton_log.txt with --log, else the terminal)")
    parser.add_argument("--wait", type=float, default=600, help="seconds that the start may take (%(default)g)")
    parser.add_argument("--oversubscribe", action="store_true", help="taken without effect")
    parser.add_argument("--disable-spawn-processes", action="store_true", help="taken without effect")
    parser.add_argument("--no-mpi", action="store_true", help="taken without effect")
    parser.add_argument("--multi-model", action="store_true", help="refused: a repository is one model")
    parser.add_argument("--tensorrt_llm_model_name", default="tensorrt_llm", help="`tensorrt_llm` alone")
    parser.add_argument("rest", nargs="*", metavar="-- OPTION", help="options of `./baton serve`")
    arguments = sys.argv[1:] if arguments is None else arguments
    end = arguments.index("--") if "--" in arguments else len(arguments)
    # With all of them: a value stands behind its option.
    options, others = parser.parse_known_args([*arguments[:end]])
    options.rest = in_order(others + options.rest, arguments[:end]) + arguments[end + 1:]
    if options.log and not options.log_file:
        options.log_file = "triton_log.txt"
    if options.world_size < 1:
        parser.error("--world_size: at least 1")
    if options.multi_model:
        parser.error("--multi-model: a repository is one model; name more with --model NAME=PATH behind `--`")
    if options.tensorrt_llm_model_name != "tensorrt_llm":
        parser.error("--tensorrt_llm_model_name: the model has the name tensorrt_llm")
    if os.path.basename(options.tritonserver) not in ("baton", "baton-launch"):
        parser.error(f"--tritonserver: {options.tritonserver} is neither `baton` nor `baton-launch`")
    for name, why in WITHOUT.items():
        if getattr(options, name):
            print(f"--{name.replace('_', '-')} has no effect: {why}", file=sys.stderr)
    return options


def command_of(options):
    serve = [] if os.path.basename(options.tritonserver) == "baton-launch" else ["serve"]
    n_prefill = max(1, options.world_size // 2)
    command = [options.tritonserver, *serve, "--prefill", str(n_prefill),
               "--decode", str(max(1, options.world_size - n_prefill))]
    if options.model_repo:
        command += ["--model-repository", options.model_repo]
    for key, _ in SERVICES:
        command += [f"--{key}", f"{options.host}:{getattr(options, key + '_port')}"]
    if options.log:
        command += ["--log-level", "debug"]
    return command + options.rest


def taken_port(options):
    """@return an option whose port somebody listens at, or None."""
    for key, _ in SERVICES:
        port = getattr(options, key + "_port")
        try:
            with socket.create_connection((options.host, port), timeout=2):
                return f"--{key}_port {port}"
        except OSError:
            pass
    return None


def is_ready(options):
    """The server answers so once its workers serve; its other ports are open by then."""
    tls = any(option.startswith("--tls") for option in options.rest)
    kind = http.client.HTTPSConnection if tls else http.client.HTTPConnection
    # Only asks whether its own child is there, so no certificate is checked.
    more = {"context": ssl._create_unverified_context()} if tls else {}  # pylint: disable=protected-access
    connection = kind(options.host, options.http_port, timeout=5, **more)
    try:
        connection.request("GET", "/v2/health/ready")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def wait_for(server, options):
    """@return why the server does not serve, or None once it does."""
    end = time.monotonic() + options.wait
    while not is_ready(options):
        if server.poll() is not None:
            return f"the server ended with {server.returncode}"
        if time.monotonic() > end:
            return f"the server does not serve after {options.wait:g} s"
        time.sleep(0.05)
    return None


def main(arguments=None):
    options = options_of(arguments)
    task = os.environ.get("SLURM_PROCID")
    if task not in (None, "0"):
        print(f"task {task}: nothing to do, the server of task 0 starts all processes")
        return 0
    taken = taken_port(options)
    if taken is not None:
        sys.exit(f"{taken}: somebody listens there already")
    with contextlib.ExitStack() as files:
        output = files.enter_context(open(options.log_file, "ab")) if options.log_file else None
        server = subprocess.Popen(command_of(options), stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                                  start_new_session=True)
    why = wait_for(server, options)
    if why is not None:
        if server.poll() is None:
            server.terminate()
            server.wait()
        sys.exit(why)
    for key, name in SERVICES:
        print(f"Started {name} at {options.host}:{getattr(options, key + '_port')}")
    print(f"PID {server.pid}", flush=True)
    # A task of Slurm's takes along what it has started when it ends.
    return server.wait() if task is not None else 0


if __name__ == "__main__":
    sys.exit(main())
