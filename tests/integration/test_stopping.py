# SPDX-License-Identifier: Apache-2.0
"""A router that is told to stop finishes what runs, however often one wish is said."""
import asyncio
import signal
import tempfile

from harness import Cluster, Stream, slow_model, small_model, wait_until

TOKENS = 400


async def stream_through(c, signals):
    """@return a stream that ran while the router got these signals"""
    body = {"prompt": "a story", "max_tokens": TOKENS, "stream": True, "ignore_eos": True, "temperature": 0}
    stream = Stream(c.http, "/v1/completions", body)
    run = asyncio.ensure_future(stream.run())
    while not stream.events:
        await asyncio.sleep(0.01)
    for number in signals:
        c.router.kill(number)
    return await run


def test_repeated_stop_signals_interrupt_no_request():
    with tempfile.TemporaryDirectory() as d, Cluster(slow_model(d)) as c:
        stream = asyncio.run(stream_through(c, [signal.SIGTERM, signal.SIGINT, signal.SIGTERM]))
        assert stream.done and stream.finishes() == ["length"], (stream.finishes(), stream.errors())
        assert c.router.popen.wait(60) == 0, c.router.log()
        assert "second signal" not in c.router.log()


def test_readiness_fails_before_the_listener_closes():
    with tempfile.TemporaryDirectory() as d, \
            Cluster(small_model(d), router_args=["--lame-duck-ms", "60000"]) as c:
        assert c.request("GET", "/v2/health/ready")[0] == 200
        c.router.kill(signal.SIGTERM)
        wait_until("not ready", lambda: c.request("GET", "/v2/health/ready")[0] == 503)
        assert c.request("GET", "/v2/models/ensemble/ready")[0] == 503
        assert c.request("GET", "/v2/health/live")[0] == 200
        assert len(c.complete("still here", 4, ignore_eos=True)["token_ids"]) == 4

        def ended():  # at the first wish that comes a second after the first
            c.router.kill(signal.SIGTERM)
            return not c.router.alive()

        wait_until("the end at once", ended)
        assert c.router.popen.wait() == 1
        assert "second signal" in c.router.log()


def test_draining_router_without_workers_closes_its_listener():
    """As systemd does by default: all processes are told at once, and the workers leave."""
    with tempfile.TemporaryDirectory() as d, \
            Cluster(small_model(d), router_args=["--lame-duck-ms", "3600000"]) as c:
        assert c.request("GET", "/v2/health/ready")[0] == 200
        for p in c.processes:
            p.kill(signal.SIGTERM)
        assert [p.popen.wait(60) for p in c.processes] == [0, 0, 0], c.logs()
