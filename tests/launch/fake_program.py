#!/usr/bin/python3 -SE
# SPDX-License-Identifier: Apache-2.0
"""Stands in for the router and the workers in the launcher's tests.

Notes its arguments and environment in $FAKE_DIR/NAME.started and each event in
$FAKE_DIR/events, then behaves as the file $FAKE_DIR/NAME.behave says:
  ready          be ready, wait for SIGTERM, end with 0 (the default)
  fail           print two lines and end with status 3
  hopeless       log an error as the programs do and end with status 78
  hopeless-later the same once $FAKE_DIR/NAME.finish is there
  unbound        as the router: announce nothing before NAME.finish is there
  fail-after     as the router: announce an address first, then fail
  stubborn       be ready and ignore SIGTERM
  silent         never be ready
  drain          be ready; after SIGTERM end once $FAKE_DIR/NAME.finish is there
  spin           be ready, then turn round and round without a heartbeat
  heartless      be ready and never say by heartbeats that it lives
  chatty         be ready, write 20000 lines, note "wrote"
Asked with --check it tells nothing. A worker takes the role that is in $FAKE_DIR/NAME.role, as from a router, and
everybody writes what is in $FAKE_DIR/NAME.say to standard error.
"""
import os
import signal
import sys
import time

if sys.argv[1] == "--check":
    sys.exit(0)  # it does not say what it would take

folder = os.environ["FAKE_DIR"]
program = os.path.basename(sys.argv[0])
options = dict(arg[2:].split("=", 1) for arg in sys.argv[1:])
name = options["name"]


def note(event):
    with open(os.path.join(folder, "events"), "a") as events:
        events.write(f"{event} {name} {os.getpid()}\n")


def on_term(_number, _frame):
    note("term")
    if behave == "drain":
        while not os.path.exists(os.path.join(folder, name + ".finish")):
            time.sleep(0.01)
        note("drained")
    os._exit(0)


behave = "ready"
path = os.path.join(folder, name + ".behave")
if os.path.exists(path):
    with open(path) as file:
        behave = file.read().strip()
signal.signal(signal.SIGHUP, lambda _number, _frame: note("hup"))
signal.signal(signal.SIGTERM,
              signal.SIG_IGN if behave == "stubborn" else on_term)

with open(os.path.join(folder, name + ".started"), "w") as started:
    print(program, *sys.argv[1:], sep="\n", file=started)
    for key, value in sorted(os.environ.items()):
        if key.startswith("BATON_"):
            print(f"{key}={value}", file=started)
# Before the event: who has seen that may stop us.
sys.stderr.write(f"{name} says hello\n")
sys.stderr.flush()
note("start")
if behave == "fail":
    sys.stderr.write("cannot bind 127.0.0.1:1: address in use\nno newline")
    sys.exit(3)


def beat():
    if behave != "heartless":
        os.write(int(os.environ["BATON_BEAT_FD"]), (1).to_bytes(8, sys.byteorder))


def wait_finish():
    while not os.path.exists(os.path.join(folder, name + ".finish")):
        time.sleep(0.01)


if behave == "hopeless-later":
    wait_finish()
if behave.startswith("hopeless"):
    sys.stderr.write(f"2026-11-22T14:03:07.123+00:00 error {name}: memory: "
                     "3 MiB are missing\n"
                     f"2026-11-22T14:03:07.124+00:00 info  {name}: ended\n")
    sys.exit(78)

ready = os.fdopen(int(os.environ["BATON_READY_FD"]), "w")
if behave == "unbound":
    wait_finish()
if program == "baton-router":
    for key, port in (("http", 41000), ("grpc", 41001), ("metrics", 41002)):
        ready.write(f"{key} {options.get(key, f'127.0.0.1:{port}')}\n")
    ready.flush()
if behave == "fail-after":
    sys.exit(4)
if program != "baton-router":
    role = options.get("role", program.split("-")[1])
    ready.write(f"role {role}\n")
beat()  # it is watched from here on: who has seen that it is ready may stop it
if behave != "silent":
    ready.write("ready\n")
    ready.flush()
if behave == "chatty":
    for i in range(20000):
        os.write(2, b"%s line %05d, which has a hundred bytes with its end, as lines of logs have %s\n"
                 % (name.encode(), i, b"." * (24 - len(name))))
    note("wrote")
told = os.path.join(folder, name + ".role")
say = os.path.join(folder, name + ".say")


while True:
    beat()
    while behave == "spin":
        pass
    time.sleep(0.02)
    if os.path.exists(told):
        with open(told) as file:
            ready.write(f"role {file.read().strip()}\n")
        ready.flush()
        os.unlink(told)
    if os.path.exists(say):
        with open(say) as file:
            os.write(2, file.read().encode())
        os.unlink(say)
