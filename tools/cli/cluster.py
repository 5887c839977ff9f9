#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A cluster that no launcher of this machine runs, asked through one of its routers.

  baton status --url URL [--json]        the workers, as that router sees them; those
                                         that are missing or were refused, and why
  baton drain ID --url URL               it finishes what it has and takes nothing new
  baton drain ID --and-stop --url URL    the same, and then the process ends
  baton undrain ID --url URL             it takes requests again
  baton role ID prefill|decode|both --url URL

ID is a worker's name, or its id where several have the same name. Any router will
do: the worker tells all of them. Each command comes back when the worker is so;
--no-wait: when it was told. URL (or BATON_URL) is a router's HTTP port; a key, of
a tenant that is `admin`, is in BATON_API_KEY or behind --api-key. A worker that a
launcher runs is that one's: it gets the command, and who drains there also ends.

Exit status: 0, 1 after an error, 2 for a mistake in the options, 130 after Ctrl-C.
"""
import json
import os
import sys
import time
from urllib.parse import quote

import command
import endpoint as endpoints
from words import Parser, Trouble, above_0, near, shown

POLL_S = 0.2
ROLES = ("prefill", "decode", "both")
COLUMNS = (("WORKER", "name"), ("ID", "id"), ("MODEL", "model"), ("ROLE", "role"), ("STATE", "state"),
           ("REQUESTS", "active"), ("SEATS", "seats"), ("VERSION", "version"))
MISSING = (("NOT HERE", "name"), ("MODEL", "model"), ("ROLE", "role"), ("STATE", "state"), ("SINCE", "since"),
           ("WHY", "why"))
REFUSED = (("REFUSED", "name"), ("LAST", "last"), ("TIMES", "times"), ("ADDRESS", "address"), ("WHY", "why"))
MOST_BYTES = 64 << 20


def read_options(argv):
    parser = Parser(prog="baton", description=__doc__)
    parser.add_argument("words", metavar="WORD", nargs="*")
    parser.add_argument("--url", metavar="URL", help="a router (default: BATON_URL)")
    parser.add_argument("--json", action="store_true", help="status: for programs")
    parser.add_argument("--and-stop", action="store_true", help="drain: the process ends when nothing is left")
    parser.add_argument("--no-wait", action="store_true", help="come back when the worker was told")
    parser.add_argument("--timeout", type=above_0, metavar="S", default=600, help="how long to wait (default: 600)")
    endpoints.add_key_option(parser)
    endpoints.add_tls_options(parser)
    options = parser.read(argv)
    check(parser, options)
    return options


def check(parser, options):
    verb, *rest = options.words or ["status"]
    counts = {"status": 0, "drain": 1, "undrain": 1, "role": 2}
    if verb not in counts:
        parser.error(f"no command '{verb}' for a cluster"
                     + (f"; did you mean {near(verb, counts)}?" if near(verb, counts) else "")
                     + " (start, stop, restart, load-model and unload-model are a launcher's)")
    if len(rest) != counts[verb]:
        parser.error(f"{verb} takes {('nothing', 'a worker', 'a worker and a role')[counts[verb]]}")
    if verb == "role" and rest[1] not in ROLES:
        parser.error(f"a worker's role is {', '.join(ROLES[:-1])} or {ROLES[-1]}, not '{rest[1]}'")
    if options.and_stop and verb != "drain":
        parser.error("--and-stop belongs to drain")
    if options.json and verb != "status":
        parser.error("--json belongs to status")
    options.verb, options.rest = verb, rest


class Router:
    """The HTTP port of one."""

    def __init__(self, where):
        self.where = where
        self.base = where.base.removesuffix("/v1")

    def ask(self, method, path, body=None):
        connection = self.where.connect()
        try:
            connection.request(method, self.base + path, None if body is None else json.dumps(body),
                               {"Content-Type": "application/json", **endpoints.headers(self.where)})
            reply = connection.getresponse()
            data = reply.read(MOST_BYTES)
        finally:
            connection.close()
        if reply.status not in (200, 202):
            raise Trouble(f"HTTP {reply.status}: {endpoints.error_text(data)}")
        return json.loads(data)

    def workers(self):
        return [w for w in self.ask("GET", "/v2/cluster")["workers"] if w["state"] != "missing"]

    def order(self, worker, **what):
        self.ask("POST", f"/v2/cluster/workers/{quote(worker, safe='')}", what)


def table(rows, columns=COLUMNS):
    cells = [[name for name, _ in columns]] + [[shown(row.get(key, "")) for _, key in columns] for row in rows]
    widths = [max(len(row[i]) for row in cells) for i in range(len(columns))]
    for row in cells:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())


def age(unix_ms, now_s):
    s = max(0, int(now_s - unix_ms / 1000))
    return f"{s} s" if s < 120 else f"{s // 60} min" if s < 7200 else f"{s // 3600} h"


def print_absent(said, now_s):
    """Workers that the launcher runs and that are missing, and workers that were refused."""
    missing = [dict(row, state=row["process"], since=age(row["since_ms"], now_s), why=row["why"] or "it has not said why")
               for row in said["workers"] if row["state"] == "missing"]
    refused = [dict(row, name=(row["name"] or "?") + ("" if row["proven"] else " (unproven)"),
                    address=row["address"] or "-", last=age(row["last_ms"], now_s) + " ago")
               for row in said["refused"]]
    for pair in said["unreachable"]:
        print(shown(pair["text"]))
    for rows, columns in ((missing, MISSING), (refused, REFUSED)):
        if rows:
            print()
            table(rows, columns)


def print_status(router, as_json):
    said = router.ask("GET", "/v2/cluster")
    if as_json:
        print(json.dumps(said, indent=1))
        return
    print(shown(f"router {said['router']['name']}, Baton {said['router']['version']}, {said['router']['state'].replace('_', ' ')}"))
    for model in said["models"]:
        print(shown(f"model {model['name']}, "
                    + ("unloaded" if not model["loaded"] else "ready" if model["ready"] else "not ready")
                    + f", {model['running']} requests here"))
    table([w for w in said["workers"] if w["state"] != "missing"])
    print_absent(said, said["now_unix_ms"] / 1000)


def identity(router, word):
    """@return the id of the life that was meant: a name may be another's before we are done"""
    found = [w["id"] for w in router.workers() if word in (w["name"], w["id"])]
    return found[0] if len(found) == 1 else word  # the router says what is wrong


def wait(router, worker, options, is_so):
    """@param is_so  of the worker, or None: it is gone"""
    end = time.monotonic() + options.timeout
    while True:
        found = [w for w in router.workers() if w["id"] == worker]
        if is_so(found[0] if found else None):
            return
        if time.monotonic() > end:
            raise Trouble(f"{options.rest[0]} was told, and is not so after {options.timeout:g} s")
        time.sleep(POLL_S)


def must_be_here(worker, options):
    if worker is None:
        raise Trouble(f"{options.rest[0]} is gone")
    return worker


def give(router, options):
    verb, rest = options.verb, options.rest
    worker = identity(router, rest[0])
    if verb == "role":
        what, is_so = {"role": rest[1]}, lambda w: must_be_here(w, options)["role"] == rest[1]
    elif verb == "undrain":
        what, is_so = {"duty": "on"}, lambda w: must_be_here(w, options)["state"] in ("up", "silent", "starved")
    elif options.and_stop:
        what, is_so = {"duty": "end"}, lambda w: w is None
    else:
        what, is_so = {"duty": "off"}, lambda w: w is None or w["state"] == "drained"
    router.order(worker, **what)
    if not options.no_wait:
        wait(router, worker, options, is_so)


def run(options, where):
    router = Router(where)
    if options.verb == "status":
        print_status(router, options.json)
    else:
        give(router, options)
    return 0


def main():
    options = read_options(sys.argv[1:])
    address = options.url or os.environ.get("BATON_URL")
    if not address:
        print("baton: no cluster is named: --url URL of a router, or BATON_URL", file=sys.stderr)
        return 2
    return command.run(lambda where: run(options, where), options, address, "--url" if options.url else "BATON_URL",
                       lambda text: print(f"baton: {text}", file=sys.stderr))


if __name__ == "__main__":
    sys.exit(main())
