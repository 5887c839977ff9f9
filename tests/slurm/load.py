# SPDX-License-Identifier: Apache-2.0
"""Clients of a cluster, as a process on one of its nodes: what to ask is a file, what came back a line each.

    load.py FILE     {"routers": ["ADDR:PORT", …], "key": …, "parallel": N, "repeat": true, "bodies": [{…}, …]}

A line: {"i", "router", "begin", "end" (seconds of the monotonic clock), "ids" | "error"}. With `repeat` until its standard
input ends; what is under way then is answered first. A client stays with its router, and takes the next where that one
does not answer at all."""
import http.client
import itertools
import json
import sys
import threading
import time

PATIENCE = 90  # seconds, for one answer


def ask(address, key, body):
    host, port = address.rsplit(":", 1)
    connection = http.client.HTTPConnection(host.strip("[]"), int(port), timeout=PATIENCE)
    try:
        connection.request("POST", "/v1/completions", json.dumps(body),
                           {"Content-Type": "application/json", "Authorization": f"Bearer {key}"})
        answer = connection.getresponse()
        text = answer.read().decode(errors="replace")
    finally:
        connection.close()
    if answer.status != 200:
        return {"error": f"{answer.status} {text[:300]}"}
    return {"ids": json.loads(text)["choices"][0]["token_ids"]}


def main():
    with open(sys.argv[1], encoding="utf-8") as f:
        what = json.load(f)
    routers, bodies = what["routers"], what["bodies"]
    ended = threading.Event()
    printing = threading.Lock()
    turns = itertools.count() if what["repeat"] else iter(range(len(bodies)))
    taking = threading.Lock()

    def client(n):
        router = n % len(routers)
        while not ended.is_set():
            with taking:
                turn = next(turns, None)
            if turn is None:
                return
            i = turn % len(bodies)
            line = {"i": i, "router": router, "begin": time.monotonic()}
            try:
                line.update(ask(routers[router], what["key"], bodies[i]))
            except (OSError, http.client.HTTPException) as error:
                line["error"] = repr(error)
                router = (router + 1) % len(routers)
            line["end"] = time.monotonic()
            with printing:
                print(json.dumps(line), flush=True)

    threads = [threading.Thread(target=client, args=(n,)) for n in range(what["parallel"])]
    for thread in threads:
        thread.start()
    if what["repeat"]:
        sys.stdin.read()
        ended.set()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main()
