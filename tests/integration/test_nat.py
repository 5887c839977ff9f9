# SPDX-License-Identifier: Apache-2.0
"""Workers that can dial others and cannot be dialled: behind a router that translates addresses (hosts.py)."""
import contextlib
import tempfile

from harness import UnprovenCluster, small_model, wait_until
from hosts import NatNetwork

PROMPT = {"prompt": "one two three", "max_tokens": 8, "temperature": 0, "ignore_eos": True}


@contextlib.contextmanager
def behind_nat(role, **more):
    """The router and the other worker are outside."""
    with tempfile.TemporaryDirectory() as d, NatNetwork("a", "b") as net:
        outside, inside = net.hosts
        hosts = {"hosts": [outside], "decode_hosts": [inside]}
        if role == "prefill":
            hosts = {"hosts": [outside, inside], "decode_hosts": [outside]}
        with UnprovenCluster(small_model(d), silence=(4000, 5000), **hosts, **more) as c:
            yield net, c


def peer_of(worker, port):
    """@return whether this worker has a connection to that port, made by itself"""
    return [line for line in worker.host.run("cat", "/proc/net/tcp").splitlines()[1:]
            if line.split()[2].endswith(f":{port:04X}") and line.split()[3] == "01"]


def test_decode_worker_behind_nat_joins_serves_and_is_named():
    """It dials its router. No prefill worker reaches it, so it computes prompts itself, and the pair is named."""
    with behind_nat("decode", decode_args=["--local-prefill"]) as (_, c):
        assert len(peer_of(c.decodes[0], 7000)) == 1
        wait_until("it serves", lambda: c.ready() == 200)
        status, answer = c.post("/v1/completions", PROMPT)
        assert status == 200 and answer["usage"]["completion_tokens"] == 8, answer
        wait_until("the pair is named", c.unreachable)
        pair, = c.unreachable()
        assert pair["text"].startswith("prefill-0 cannot reach decode-0 at 10.79.0.2:"), pair
        c.decodes[0].kill()
        c.decodes[0].popen.wait()
        c.processes.remove(c.decodes[0])
        wait_until("it has left", lambda: c.here() == (1, 0))
        c.start_worker("decode", 1)
        wait_until("another one serves", lambda: c.ready() == 200)


def test_prefill_worker_behind_nat_joins_and_its_pair_is_not_used():
    """UCX has the decode worker dial back, which nobody can: the pair is named, and another prefill worker serves."""
    with behind_nat("prefill", prefill=2) as (_, c):
        wait_until("it is ready", lambda: c.ready() == 200)
        wait_until("the pair is named", c.unreachable)
        pair, = c.unreachable()
        assert (pair["prefill"], pair["decode"]) == ("prefill-1", "decode-0") and "no answer for" in pair["text"], pair
        assert pair["text"] in c.router.log() and pair["text"] in c.prefills[1].log()
        for _ in range(4):
            status, answer = c.post("/v1/completions", PROMPT)
            assert status == 200 and answer["usage"]["completion_tokens"] == 8, answer
        assert c.total("baton_retries_total") == 0
        assert c.post("/v1/completions", {"prompt": "hello", "max_tokens": 1})[0] == 200  # its KV goes nowhere
