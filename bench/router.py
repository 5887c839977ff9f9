#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What does the router cost, with nothing behind it?

Usage: ./baton bench router [options]
  --only NAME,...    parts (default: all but count): mock, paced, many, idle, tls, grpc, watch, whole, count
  --sizes N,...      bytes of prompts (default 1024,16384,65536,225280)
  --clients N        at a time, under load (default 32)
  --seconds S        of each figure (default 2)
  --workers N        of `many` (default 1000)
  --before BUILD     a build folder of another version: its router takes turns with ours
  --link-transport NAME  of ours: auto, nng (default auto)
  --svg FILE         draw it, as SVG
  --out FILE         write all of it as JSON too
  --json             one JSON object instead of the tables

The real router, with a model of one layer. In `mock` its workers are one process that speaks
the control protocol and computes nothing: prompts as token ids and as text, one token out as a
whole answer, and 64 as a stream; the time of one request at one client, and requests a second
and the CPU time of each process under load. `paced`: a quarter of what was reached there, evenly
spaced: what router and workers add at the 99th percentile to a server that does nothing, in turns with it. `many`: as many workers, and 10,000 open
streams among which requests go on; and how many a core could place there, alone. `idle`: memory of the router for each of 10,000 connections.
`tls`: the CPU time of the router for a stream of 64 tokens on connections that are kept, over TLS against without,
in turns: with tokens as fast as they can come, and with 2 ms between two; and of a handshake (RSA-2048), and the memory
of a connection with TLS.
`grpc`: the same of a stream of 64 tokens over gRPC (ModelStreamInfer) against HTTP's generate_stream.
`watch`: CPU time of the router for readers of GET /v2/cluster/events, one and eight, in turns with none, before 8 and before
64 workers, without requests and under 1,000 a second.
`whole`: real workers. `count`: instructions and calls of the allocator for each request of the first
size, counted by callgrind (valgrind). An answer that is not 200 with every token ends the benchmark.
"""
import contextlib
import json
import os
import random
import select
import socket
import struct
import subprocess
import tempfile
import threading
import time

from _cluster import BUILD, PROGRAMS, Cluster, wait_until
from _shared import Half, Load, Progress, build, describe, finish, median, number_list, parser, show_machine
from charts import Bars

PARTS = ("mock", "paced", "many", "idle", "tls", "grpc", "watch", "whole", "count")
TOKENS = {"whole": 1, "stream": 64}
CONTEXT = 262144
IDLE = 10000
PACED_ROUNDS = 5
WARM_S = 0.2  # before a figure, and no longer than it
WATCH_ROUNDS = 3
WATCH_LONGER = 1.25  # than other figures: what is sent each second should be in it twice at least
WATCH_WORKERS = (4, 32)  # of each role
WATCH_RATES = (0, 1000)
WATCHERS = (0, 1, 8)
OPEN = 10000
TLS_IDLE = 1000
TLS_ROUNDS = 5
TLS_STEPS_US = {"at once": 0, "one by one": 2000}


def cpu_s(pid):
    """Of all its threads, in seconds, to the nanosecond."""
    total = 0
    for task in os.listdir(f"/proc/{pid}/task"):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{task}/schedstat", encoding="ascii") as f:
            total += int(f.read().split()[0])
    return total / 1e9


def resident_bytes(pid):
    with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as f:
        for line in f:
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    raise SystemExit("no Pss")


class Bodies:
    """Files with the bodies of requests, which the load generator reads."""

    def __init__(self, folder):
        self.folder, self.rng, self.made = folder, random.Random(1), {}

    def path(self, size, kind, answer):
        name = f"{size}-{kind}-{answer}"
        if name not in self.made:
            if kind == "ids":  # about 4 bytes for each
                prompt = [self.rng.randrange(100, 256) for _ in range(size // 4)]
            else:
                prompt = "".join(self.rng.choice("abcdefgh ijklmnop qrstuvwxyz ") for _ in range(size))
            body = {"model": "tiny", "prompt": prompt, "max_tokens": TOKENS[answer], "temperature": 0,
                    "ignore_eos": True, "stream": answer == "stream"}
            self.made[name] = os.path.join(self.folder, name + ".json")
            with open(self.made[name], "w", encoding="utf-8") as f:
                json.dump(body, f, separators=(",", ":"))
        return self.made[name]

    def streams(self, size):
        """One prompt for both of Triton's doors. @return the paths for HTTP and for gRPC"""
        size = min(size, 8192)  # a message of gRPC is in one frame
        text, n = "".join(self.rng.choice("abcdefgh ijklmnop qrstuvwxyz ") for _ in range(size)), TOKENS["stream"]
        paths = [os.path.join(self.folder, f"{size}-stream.{kind}") for kind in ("json", "pb")]
        with open(paths[0], "w", encoding="utf-8") as f:
            json.dump({"text_input": text, "max_tokens": n, "stream": True}, f, separators=(",", ":"))
        with open(paths[1], "wb") as f:
            f.write(infer_request({"text_input": ("BYTES", struct.pack("<I", size) + text.encode()),
                                   "max_tokens": ("INT32", struct.pack("<i", n)), "stream": ("BOOL", b"\1")}))
        return paths


def varint(n):
    out = b""
    while n > 127:
        out, n = out + bytes([n & 127 | 128]), n >> 7
    return out + bytes([n])


def field(number, data):
    """A field of bytes in a message of protobuf."""
    return varint(number << 3 | 2) + varint(len(data)) + data


def infer_request(tensors):
    """A ModelInferRequest for the ensemble, of shape [1, 1] each."""
    inputs = [field(5, field(1, name.encode()) + field(2, kind.encode()) + field(3, b"\1\1"))
              for name, (kind, _) in tensors.items()]
    return field(1, b"ensemble") + b"".join(inputs) + b"".join(field(7, data) for _, data in tensors.values())


class Mocked(Cluster):
    """A router, and workers that compute nothing."""

    def __init__(self, model, folder, router_args=(), n=(4, 4), seats=4096, step_us=0, transport="auto"):
        super().__init__(model, build=folder, router_args=["--name", "router", *router_args])
        self.n_prefill, self.n_decode = n
        self.mock = None
        self.mock_args = [*n, seats, step_us, transport]

    def start(self, seconds=120):
        self.router = self.start_router()
        self.mock = Half([build("router-mock", make=False), self.model, self.url, self.key, *self.mock_args])
        wait_until("the router is ready", self.router.is_ready, seconds)
        self.read_addresses()
        wait_until("all workers joined", self.all_joined, seconds)
        return self

    def __exit__(self, *error):
        if error[0] is None:
            self.mock.close()  # must have ended well
        elif self.mock:
            self.mock.process.kill()
        super().__exit__(*error)

    def pids(self):
        return {"router": self.router.pid, "workers": self.mock.process.pid}


class Real(Cluster):
    def __init__(self, model, folder, router_args=(), worker_args=()):
        super().__init__(model, build=folder, router_args=["--name", "router", *router_args],
                         worker_args=["--prefix-cache", "off", *worker_args], kv_memory="512m")

    def pids(self):
        return {"router": self.router.pid, "prefill": self.prefills[0].pid, "decode": self.decodes[0].pid}


class Client:
    """The load generator at a cluster's port."""

    def __init__(self, cluster, *words):
        at = cluster.grpc if "grpc" in words else cluster.http
        self.half = Half([build("router-load", make=False), *at, *words])

    def __enter__(self):
        return self

    def __exit__(self, *error):
        if error[0] is None:
            self.half.close()
        else:
            self.half.process.kill()

    def run(self, cluster, words):
        """@return what it says, and the CPU-us of each process for each request"""
        pids = dict(cluster.pids(), client=self.half.process.pid)
        before = {name: cpu_s(pid) for name, pid in pids.items()}
        got = self.half.ask(*words)
        if not got.get("requests"):
            raise SystemExit(f"no result: {got}")
        got["cpu_us"] = {name: 1e6 * (cpu_s(pid) - before[name]) / got["requests"] for name, pid in pids.items()}
        got["per_s"] = got["requests"] / got["seconds"]
        return got


def measure(cluster, bodies, args, sizes, step):
    """One row for each kind of request."""
    rows = []
    with Client(cluster) as client:
        for size in sizes:
            for kind in ("ids", "text"):
                for answer, tokens in TOKENS.items():
                    path = bodies.path(size, kind, answer)
                    client.run(cluster, ["closed", 1, min(WARM_S, args.seconds), tokens, path])
                    one = client.run(cluster, ["closed", 1, args.seconds, tokens, path])
                    many = client.run(cluster, ["closed", args.clients, args.seconds, tokens, path])
                    rows.append({"bytes": size, "prompt": kind, "answer": answer, "one": one, "load": many})
                    step()
    return rows


def request_bytes(path):
    """Of a request with this body, as the load generator sends it."""
    n = os.path.getsize(path)
    return n + len("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                   f"Content-Length: {n}\r\n\r\n")


def paced(cluster, bodies, args):
    """A quarter of what it can do, evenly; in turns with a server that does nothing at the same rate."""
    path = bodies.path(args.sizes[0], "ids", "whole")
    rounds = {"router": [], "nothing": []}
    with Client(cluster) as client:
        most = client.run(cluster, ["closed", args.clients, args.seconds, 1, path])
        rate = max(1, int(most["per_s"] / 4))
        echo = Half([build("router-echo", make=False), request_bytes(path)])
        other = Half([build("router-load", make=False), "127.0.0.1", echo.read()["port"]])
        words = ["paced", 256, args.seconds, 1, path, rate]
        for _ in range(PACED_ROUNDS):
            rounds["router"].append(client.run(cluster, words))
            rounds["nothing"].append(other.ask(*words))
        other.close()
        echo.close()
    middle = {name: {at: sorted(g[at] for g in got)[PACED_ROUNDS // 2] for at in ("p50_us", "p99_us")}
              for name, got in rounds.items()}
    return {"rate": rate, **middle["router"], "nothing_p50_us": middle["nothing"]["p50_us"],
            "nothing_p99_us": middle["nothing"]["p99_us"],
            "added_p99_us": middle["router"]["p99_us"] - middle["nothing"]["p99_us"]}


class Watching:
    """with Watching(cluster, n): so many read the cluster's events; what they read is dropped."""

    def __init__(self, cluster, n):
        self.readers, self.over = [], False
        for _ in range(n):
            reader = socket.create_connection(cluster.http, 20)
            reader.sendall(b"GET /v2/cluster/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
            reader.settimeout(0.2)
            if not reader.recv(65536).startswith(b"HTTP/1.1 200"):
                raise SystemExit("the router takes no readers of its events")
            self.readers.append(reader)
        self.thread = threading.Thread(target=self._read)

    def _read(self):
        while not self.over:
            for reader in select.select(self.readers, [], [], 0.2)[0]:
                if not reader.recv(1 << 20):
                    raise SystemExit("the router ended the stream of its events")

    def __enter__(self):
        if self.readers:
            self.thread.start()

    def __exit__(self, *_):
        self.over = True
        if self.readers:
            self.thread.join()
        for reader in self.readers:
            reader.close()


def watched(cluster, bodies, args, rate, step):
    """@return percent of a core that the router takes with so many readers, and what they add."""
    path = bodies.path(args.sizes[0], "ids", "whole")
    percent = {n: [] for n in WATCHERS}
    with Client(cluster) as client:
        for _ in range(WATCH_ROUNDS):
            for n in WATCHERS:
                with Watching(cluster, n):
                    begin, before = time.monotonic(), cpu_s(cluster.router.pid)
                    if rate:
                        client.run(cluster, ["paced", 64, WATCH_LONGER * args.seconds, 1, path, rate])
                    else:
                        time.sleep(WATCH_LONGER * args.seconds)
                    percent[n].append(100 * (cpu_s(cluster.router.pid) - before) / (time.monotonic() - begin))
                step()
    added = {n: sorted(p - none for p, none in zip(percent[n], percent[0])) for n in WATCHERS[1:]}
    return {"rate": rate, "workers": cluster.mock_args[0] + cluster.mock_args[1],
            "percent": {n: median(p) for n, p in percent.items()},
            "added_percent": {n: {"median": median(a), "least": a[0], "most": a[-1]} for n, a in added.items()}}


def many(cluster, bodies, args):
    """Streams that stay open, and beside them requests of one token."""
    slow, fast = bodies.path(args.sizes[0], "ids", "stream"), bodies.path(args.sizes[0], "ids", "whole")
    with Client(cluster) as streams, Client(cluster) as client:
        streams.half.process.stdin.write(f"closed {OPEN} 1 64 {slow}\n")
        streams.half.process.stdin.flush()
        in_flight = "baton_requests_in_flight"
        wait_until(f"{OPEN} streams are open", lambda: cluster.total(in_flight) >= OPEN * 0.99, 120)
        got = client.run(cluster, ["closed", args.clients, args.seconds, 1, fast])
        still = cluster.total(in_flight)
        if still < OPEN * 0.9:
            raise SystemExit(f"of {OPEN} streams only {still:.0f} stayed open while it was measured")
        streams.half.read()
    return {"workers": cluster.n_prefill + cluster.n_decode, "open": OPEN, "per_s": got["per_s"],
            "router_cpu_us": got["cpu_us"]["router"], "p50_us": got["p50_us"], "p99_us": got["p99_us"]}


def placements(args):
    """@return how many requests a second of one core are placed among as many workers"""
    done = subprocess.run([build("router-place", make=False), str(args.workers), str(OPEN), str(args.seconds)],
                          capture_output=True, text=True, check=True)
    got = json.loads(done.stdout)
    return got["placements"] / got["cpu_seconds"]


def idle(cluster):
    before = resident_bytes(cluster.router.pid)
    with Client(cluster) as client:
        client.half.ask("idle", IDLE)
        wait_until("all are accepted", lambda: cluster.total("baton_http_connections") >= IDLE, 60)
        time.sleep(0.1)  # what it does for them is done
        grown = resident_bytes(cluster.router.pid) - before
    return {"connections": IDLE, "bytes": grown, "bytes_each": grown / IDLE}


COUNTED = ("malloc", "calloc", "realloc", "memalign", "posix_memalign", "aligned_alloc")


def read_counts(path):
    """@return of a file of callgrind: instructions, calls of the allocator"""
    names, called, instructions, allocations = {}, None, 0, 0
    with open(path, encoding="utf-8", errors="replace") as f:
        for line in f:
            if line.startswith("cfn="):  # the name stands beside the first of its number
                number, _, name = line[4:].strip().partition(" ")
                called = names.setdefault(number, name)
            elif line.startswith("fn="):
                number, _, name = line[3:].strip().partition(" ")
                names.setdefault(number, name)
            elif line.startswith("calls=") and called.split("'")[0] in COUNTED:
                allocations += int(line[6:].split()[0])
            elif line.startswith("totals:"):
                instructions = int(line.split()[1])
    if not instructions:
        raise SystemExit(f"callgrind left no count in {path}")
    return instructions, allocations


def counted_router(d, folder, out):
    """A build folder whose router runs under callgrind."""
    made = os.path.join(d, f"counted-{len(os.listdir(d))}")
    program = os.path.join(made, PROGRAMS["router"])
    os.makedirs(os.path.dirname(program))
    with open(program, "w", encoding="utf-8") as f:
        f.write(f"#!/bin/sh\nexec valgrind -q --tool=callgrind --callgrind-out-file='{out}' "
                f"'{os.path.join(folder or BUILD, PROGRAMS['router'])}' \"$@\"\n")
    os.chmod(program, 0o700)
    return made


def counts(args, d, folder, router_args, bodies, model, step):
    """The difference between a short run and a longer one of the same router: its start is in neither."""
    rows = []
    for kind in ("ids", "text"):
        for answer, tokens in TOKENS.items():
            path, seen = bodies.path(args.sizes[0], kind, answer), []
            for seconds in (0.5, 3 * args.seconds):
                out = os.path.join(d, "callgrind.out")
                build_of_it = counted_router(d, folder, out)
                with Mocked(model, build_of_it, router_args, n=(1, 1), transport=args.link_transport) as c:
                    with Client(c) as client:
                        n = client.run(c, ["closed", 1, seconds, tokens, path])["requests"]
                    c.router.popen.terminate()
                    c.router.popen.wait(60)
                seen.append((n, *read_counts(out)))
            (n0, i0, a0), (n1, i1, a1) = seen
            if n1 - n0 < 50:
                raise SystemExit(f"only {n1 - n0} requests were counted; more --seconds")
            rows.append({"bytes": args.sizes[0], "prompt": kind, "answer": answer, "requests": n1 - n0,
                         "instructions": (i1 - i0) / (n1 - n0), "allocations": (a1 - a0) / (n1 - n0)})
            step()
    return rows


def certificate(folder):
    """@return the router's options"""
    cert, key = os.path.join(folder, "tls.cert"), os.path.join(folder, "tls.key")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=bench",
                    "-out", cert, "-keyout", key], check=True, capture_output=True)
    os.chmod(key, 0o600)
    return ["--tls-cert", cert, "--tls-key", key]


def with_tls(plain, secure, bodies, args):
    """Rounds in turns, so that both have the machine as it was."""
    path = bodies.path(args.sizes[0], "ids", "stream")
    words = ["closed", args.clients, args.seconds, TOKENS["stream"], path]
    cost = {"plain": [], "tls": []}
    with Client(plain) as a, Client(secure, "tls") as b:
        for _ in range(TLS_ROUNDS):
            for name, client, cluster in (("plain", a, plain), ("tls", b, secure)):
                client.run(cluster, ["closed", args.clients, min(WARM_S, args.seconds), TOKENS["stream"], path])  # hands are shaken here
                cost[name].append(client.run(cluster, words)["cpu_us"]["router"])
    ratios = sorted(t / p for t, p in zip(cost["tls"], cost["plain"]))
    out = {f"{name}_cpu_us": sorted(values)[TLS_ROUNDS // 2] for name, values in cost.items()}
    return dict(out, ratio=ratios[TLS_ROUNDS // 2], ratios=ratios)


def over_grpc(cluster, bodies, args):
    """As with_tls(): HTTP and gRPC in turns, on one router."""
    paths = dict(zip(("triton", "grpc"), bodies.streams(args.sizes[0])))
    cost = {name: [] for name in paths}
    with Client(cluster, "triton") as a, Client(cluster, "grpc") as b:
        for _ in range(TLS_ROUNDS):
            for name, client in (("triton", a), ("grpc", b)):
                words = [TOKENS["stream"], paths[name]]
                client.run(cluster, ["closed", args.clients, min(WARM_S, args.seconds), *words])
                cost[name].append(client.run(cluster, ["closed", args.clients, args.seconds, *words])["cpu_us"]["router"])
    ratios = sorted(g / h for g, h in zip(cost["grpc"], cost["triton"]))
    out = {f"{name}_cpu_us": sorted(values)[TLS_ROUNDS // 2] for name, values in cost.items()}
    return dict(out, ratio=ratios[TLS_ROUNDS // 2], ratios=ratios)


def idle_tls(secure):
    out = {}
    with Client(secure, "tls") as client:
        memory, cpu = resident_bytes(secure.router.pid), cpu_s(secure.router.pid)
        client.half.ask("idle", TLS_IDLE)
        wait_until("all are accepted", lambda: secure.total("baton_http_connections") >= TLS_IDLE, 60)
        out["handshake_cpu_us"] = 1e6 * (cpu_s(secure.router.pid) - cpu) / TLS_IDLE
        out["idle_bytes"] = (resident_bytes(secure.router.pid) - memory) / TLS_IDLE
    return out


def parts(args, folder, router_args, bodies, model, step):
    out = {}
    transport = args.link_transport
    if {"mock", "paced"} & set(args.only):
        with Mocked(model, folder, router_args, transport=transport) as c:
            if "mock" in args.only:
                out["mock"] = measure(c, bodies, args, args.sizes, step)
            if "paced" in args.only:
                out["paced"] = paced(c, bodies, args)
                step()
    if "many" in args.only:
        n = args.workers // 2
        # A stream of 64 tokens stays open for half a minute.
        with Mocked(model, folder, [*router_args, "--max-connections", str(OPEN + 1000), "--max-connections-per-address", "0",
                                          "--max-concurrent-requests", str(OPEN + 1000)],
                    n=(n, args.workers - n), seats=64, step_us=400000, transport=transport) as c:
            out["many"] = many(c, bodies, args)
        out["many"]["placements_per_s"] = placements(args)
        step()
    if "idle" in args.only:
        with Mocked(model, folder, [*router_args, "--max-connections", str(IDLE + 1000), "--max-connections-per-address", "0"],
                    n=(1, 1), transport=transport) as c:
            out["idle"] = idle(c)
        step()
    if "tls" in args.only:
        own = tempfile.mkdtemp(dir=bodies.folder)
        room = ["--max-connections-per-address", "0"]
        out["tls"] = {"streams": {}}
        for name, step_us in TLS_STEPS_US.items():
            more = dict(step_us=step_us, transport=transport)
            with Mocked(model, folder, [*router_args, *room], **more) as plain, \
                    Mocked(model, folder, [*router_args, *room, *certificate(own)], **more) as secure:
                out["tls"]["streams"][name] = with_tls(plain, secure, bodies, args)
                out["tls"].update(idle_tls(secure))
        step()
    if "watch" in args.only:
        out["watch"] = []
        for n in WATCH_WORKERS:
            with Mocked(model, folder, router_args, n=(n, n), transport=transport) as c:
                out["watch"] += [watched(c, bodies, args, rate, step) for rate in WATCH_RATES]
    if "grpc" in args.only:
        out["grpc"] = {}
        for name, step_us in TLS_STEPS_US.items():
            with Mocked(model, folder, router_args, step_us=step_us, transport=transport) as c:
                out["grpc"][name] = over_grpc(c, bodies, args)
        step()
    if "whole" in args.only:
        with Real(model, folder, router_args) as c:
            out["whole"] = measure(c, bodies, args, args.sizes[:1], step)
    if "count" in args.only:
        out["count"] = counts(args, bodies.folder, folder, router_args, bodies, model, step)
    return out


def show_rows(title, rows):
    names = [n for n in rows[0]["load"]["cpu_us"] if n != "router"]
    print(f"\n{title}\n{'prompt':>14} {'answer':>7} | {'p50 us':>8} {'p99 us':>8} | {'requests/s':>10} {'p99 us':>8} | "
          f"CPU-us: {'router':>7}" + "".join(f" {n:>8}" for n in names))
    for r in rows:
        load = r["load"]
        print(f"{r['bytes']:>9} {r['prompt']:>4} {r['answer']:>7} | {r['one']['p50_us']:>8.0f} {r['one']['p99_us']:>8.0f} | "
              f"{load['per_s']:>10.0f} {load['p99_us']:>8.0f} |         {load['cpu_us']['router']:>7.0f}"
              + "".join(f" {load['cpu_us'][n]:>8.0f}" for n in names))


def show(out):
    show_machine(out)
    for name, got in out["builds"].items():
        if "mock" in got:
            show_rows(f"{name}: workers that compute nothing, 1 client | {out['clients']} clients", got["mock"])
        if "paced" in got:
            p = got["paced"]
            print(f"\n{name}: {p['rate']} requests/s, evenly: p50 {p['p50_us']:.0f} us, p99 {p['p99_us']:.0f} us; of a server "
                  f"that does nothing {p['nothing_p50_us']:.0f} and {p['nothing_p99_us']:.0f}: p99 + {p['added_p99_us']:.0f} us")
        if "many" in got:
            m = got["many"]
            print(f"{name}: {m['workers']} workers, {m['open']} open streams: {m['per_s']:.0f} requests/s beside them, "
                  f"p99 {m['p99_us']:.0f} us; {m['placements_per_s']:.0f} placements/s of a core")
        if "idle" in got:
            i = got["idle"]
            print(f"{name}: {i['connections']} idle connections: {i['bytes'] / 1e6:.1f} MB, {i['bytes_each']:.0f} bytes each")
        if "tls" in got:
            for pace, t in got["tls"]["streams"].items():
                print(f"{name}: a stream of 64 tokens, {pace}: router CPU {t['plain_cpu_us']:.0f} us without TLS, "
                      f"{t['tls_cpu_us']:.0f} us with it: x {t['ratio']:.2f} ({t['ratios'][0]:.2f} to {t['ratios'][-1]:.2f})")
            print(f"{name}: TLS: a handshake {got['tls']['handshake_cpu_us']:.0f} us of CPU, an idle connection "
                  f"{got['tls']['idle_bytes'] / 1024:.1f} KiB")
        for w in got.get("watch", ()):
            print(f"{name}: {w['workers']} workers, {w['rate']} requests/s: the router takes {w['percent'][0]:.2f} % of a core; "
                  + ", ".join(f"{n} reading its events add {a['median']:.2f} % ({a['least']:.2f} to {a['most']:.2f})"
                              for n, a in w["added_percent"].items()))
        for pace, g in got.get("grpc", {}).items():
            print(f"{name}: a stream of 64 tokens, {pace}: router CPU {g['triton_cpu_us']:.0f} us over HTTP, "
                  f"{g['grpc_cpu_us']:.0f} us over gRPC: x {g['ratio']:.2f} ({g['ratios'][0]:.2f} to {g['ratios'][-1]:.2f})")
        if "whole" in got:
            show_rows(f"{name}: real workers, model of one layer", got["whole"])
        for r in got.get("count", ()):
            print(f"{name}: {r['bytes']} bytes of {r['prompt']}, {r['answer']}: {r['instructions']:.0f} instructions and "
                  f"{r['allocations']:.1f} calls of the allocator a request, of {r['requests']}")


def panels(out):
    builds, found = out["builds"], []

    def kinds(part, bars):
        """bars: (title, unit, value of a row) of each panel with all builds"""
        having = {name: got[part] for name, got in builds.items() if part in got}
        for title, unit, value in bars if having else ():
            rows = next(iter(having.values()))
            found.append(Bars(title, unit, [f"{r['bytes'] / 1024:.0f} KB {r['prompt']}, {r['answer']}" for r in rows],
                              [(name, [value(r) for r in rows]) for name, rows in having.items()]))

    kinds("mock", (("CPU time of the router for a request", "us", lambda r: r["load"]["cpu_us"]["router"]),
                   (f"Requests a second, {out['clients']} clients", "requests/s", lambda r: r["load"]["per_s"]),
                   ("Time of a request, one client: p50, up to p99", "us", lambda r: (r["one"]["p50_us"], None, r["one"]["p99_us"]))))
    kinds("whole", (("Requests a second with real workers", "requests/s", lambda r: r["load"]["per_s"]),))
    kinds("count", (("Instructions for a request", "instructions", lambda r: r["instructions"]),))
    for name, got in builds.items():
        if "watch" in got:
            found.append(Bars(f"{name}: what readers of its events add to the router: median and range", "% of a core",
                              [f"{w['rate']} requests/s" for w in got["watch"]],
                              [(f"{n} reading", [(w["added_percent"][n]["median"], w["added_percent"][n]["least"], w["added_percent"][n]["most"])
                                                 for w in got["watch"]]) for n in got["watch"][0]["added_percent"]]))
        if "paced" in got:
            p = got["paced"]
            found.append(Bars(f"{name}: {p['rate']} requests/s, evenly spaced: p50, up to p99", "us", ["router and workers", "a server that does nothing"],
                              [("time", [(p["p50_us"], None, p["p99_us"]), (p["nothing_p50_us"], None, p["nothing_p99_us"])])]))
        for part, title, keys in (("tls", "over TLS", ("plain_cpu_us", "tls_cpu_us")), ("grpc", "over gRPC", ("triton_cpu_us", "grpc_cpu_us"))):
            if part in got:
                paces = got[part]["streams"] if part == "tls" else got[part]
                found.append(Bars(f"{name}: CPU time of the router for a stream of 64 tokens, {title}", "us", list(paces),
                                  [("without" if part == "tls" else "over HTTP", [p[keys[0]] for p in paces.values()]),
                                   ("with" if part == "tls" else title, [p[keys[1]] for p in paces.values()])]))
    return found


def main():
    p = parser("router", __doc__)
    p.add_argument("--only", type=lambda text: text.split(","), default=list(PARTS[:-1]))
    p.add_argument("--sizes", type=number_list, default=[1024, 16384, 65536, 225280])
    p.add_argument("--clients", type=int, default=32)
    p.add_argument("--seconds", type=float, default=2)
    p.add_argument("--workers", type=int, default=1000)
    p.add_argument("--before", default="")
    p.add_argument("--link-transport", default="auto")
    args = p.parse_args()
    if set(args.only) - set(PARTS):
        p.error(f"--only: one or more of {', '.join(PARTS)}")
    for target in ("router-mock", "router-load", "router-echo", "router-place", "tiny-model"):
        build(target)
    builds = {"now": (None, ["--link-transport", args.link_transport])}
    if args.before:
        builds = {"before": (args.before, []), **builds}
    n_rows = 4 * (len(args.sizes) * ("mock" in args.only) + ("whole" in args.only) + ("count" in args.only))
    n_watched = len(WATCH_WORKERS) * len(WATCH_RATES) * WATCH_ROUNDS * len(WATCHERS) * ("watch" in args.only)
    n_others = len(set(args.only) - {"mock", "whole", "count", "watch"})
    progress = Progress(len(builds) * (n_rows + n_watched + n_others), args.json)
    load = Load()
    out = {**describe(args, ["sizes", "clients", "seconds"]), "clients": args.clients, "builds": {}}
    with tempfile.TemporaryDirectory(prefix="baton-bench-") as d:
        model = os.path.join(d, "tiny.gguf")
        subprocess.run([build("tiny-model", make=False), model, "--layers", "1", "--dim", "64", "--vocab", "300",
                        "--context", str(CONTEXT)], check=True)
        bodies = Bodies(d)
        with load.during():
            for name, (folder, router_args) in builds.items():
                out["builds"][name] = parts(args, folder, router_args, bodies, model, progress.step)
    out.update(load.figures())
    finish(args, out, show, panels)


if __name__ == "__main__":
    main()
