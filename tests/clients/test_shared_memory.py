#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tensors in system shared memory, judged by tritonclient, unmodified from PyPI, over HTTP and gRPC.

Usage: test_shared_memory.py [NAME ...]

As test_clients.py: needs BATON_BUILD, BATON_TEST_MODEL and the packages
tritonclient[http,grpc], which BATON_CLIENTS_PYTHON may have. That it is off
where nobody turned it on, test_clients.py and test_grpc.py say.
"""
import asyncio
import contextlib
import os
import queue
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "integration"))
import client_tests  # noqa: E402

MODEL = "ensemble"
QUESTION = b"The capital of France is"
try:
    import numpy as np
    import tritonclient.grpc as over_grpc
    import tritonclient.grpc.aio as over_grpc_aio
    import tritonclient.http as over_http
    import tritonclient.http.aio as over_aio
    import tritonclient.utils.shared_memory as shm
    from tritonclient.utils import InferenceServerException, serialize_byte_tensor
    MISSING = None
except ImportError as why:  # the runner says so
    MISSING = why


def clients(c):
    """@return (module, client) of both doors."""
    return [(over_http, over_http.InferenceServerClient("%s:%d" % c.http)),
            (over_grpc, over_grpc.InferenceServerClient("%s:%d" % c.grpc))]


def key_of(word):
    return f"/shmtest-{os.getpid()}-{word}"


@contextlib.contextmanager
def region(word, size):
    """A region of the client's; @return its handle."""
    handle = shm.create_shared_memory_region(word, key_of(word), size, create_only=True)
    try:
        yield handle
    finally:
        shm.destroy_shared_memory_region(handle)


def regions_of(told):
    """What a status says, of either door: {name: (key, offset, bytes)}."""
    if isinstance(told, list):
        return {r["name"]: (r["key"], r["offset"], r["byte_size"]) for r in told}
    return {name: (r.key, r.offset, r.byte_size) for name, r in told.regions.items()}


def refused(call, part):
    """The server must refuse it, and say why. @return the client's status"""
    try:
        answer = call()
    except InferenceServerException as error:
        assert part in error.message(), (part, error.message())
        return error.status()
    raise AssertionError(f"no error with {part!r}, but {answer}")


def plain(module, name, values, kind):
    made = module.InferInput(name, list(values.shape), kind)
    made.set_data_from_numpy(values)
    return made


def shared(module, name, shape, kind, where, size, offset=0):
    made = module.InferInput(name, shape, kind)
    made.set_shared_memory(where, size, offset=offset)
    return made


def wanted(module, name, where=None, size=0, offset=0):
    made = module.InferRequestedOutput(name)
    if where:
        made.set_shared_memory(where, size, offset=offset)
    return made


def question(module, text, max_tokens=8, **more):
    made = [text, plain(module, "max_tokens", np.array([[max_tokens]] * more.get("rows", 1), dtype=np.int32), "INT32")]
    for name in ("stream", "return_context_logits"):
        if more.get(name):
            made.append(plain(module, name, np.array([[True]] * more.get("rows", 1)), "BOOL"))
    return made


def put(handle, texts, offset):
    """Texts as BYTES. @return how many bytes they are there"""
    raw = serialize_byte_tensor(np.array(texts, dtype=object))
    shm.set_shared_memory_region(handle, [raw], offset=offset)
    return len(raw.item())


def output_of(result, name):
    """(shape, region, offset, bytes) that an answer of either door says of an output."""
    out = result.get_output(name)
    if isinstance(out, dict):
        said = out.get("parameters", {})
        assert "data" not in out, out
        return (out["shape"], said["shared_memory_region"], said.get("shared_memory_offset", 0),
                said["shared_memory_byte_size"])
    said = out.parameters
    return (list(out.shape), said["shared_memory_region"].string_param,
            said["shared_memory_offset"].int64_param if "shared_memory_offset" in said else 0,
            said["shared_memory_byte_size"].int64_param)


def there(handle, datatype, shape, offset=0):
    """A copy: the client's own points into the region, which could not be closed then."""
    return np.array(shm.get_contents_as_numpy(handle, datatype, shape, offset))


def test_regions_are_registered_listed_and_unregistered_over_http_and_grpc(c):
    (_, http), (_, grpc) = both = clients(c)
    assert "system_shared_memory" in http.get_server_metadata()["extensions"]
    assert "system_shared_memory" in grpc.get_server_metadata().extensions
    with region("one", 4096) as _:
        for _, t in both:
            t.unregister_system_shared_memory()
            assert regions_of(t.get_system_shared_memory_status()) == {}
            t.register_system_shared_memory("a", key_of("one"), 4096)
            t.register_system_shared_memory("b", key_of("one"), 1000, offset=3096)
            expected = {"a": (key_of("one"), 0, 4096), "b": (key_of("one"), 3096, 1000)}
            for _, other in both:
                assert regions_of(other.get_system_shared_memory_status()) == expected
                assert regions_of(other.get_system_shared_memory_status("b")) == {"b": expected["b"]}
            refused(lambda t=t: t.get_system_shared_memory_status("c"), "registered")
            refused(lambda t=t: t.register_system_shared_memory("a", key_of("one"), 8), "already")
            refused(lambda t=t: t.register_system_shared_memory("c", key_of("one"), 1001, offset=3096), "'c'")
            t.unregister_system_shared_memory("nobody")
            t.unregister_system_shared_memory("a")
            assert set(regions_of(t.get_system_shared_memory_status())) == {"b"}
            t.unregister_system_shared_memory()
            assert regions_of(t.get_system_shared_memory_status()) == {}
            refused(lambda t=t: t.register_cuda_shared_memory("a", b"AAAA", 0, 8), "CUDA shared memory")
            for told in (t.get_cuda_shared_memory_status(),):
                assert told == [] or not told.regions


def test_foreign_shared_memory_keys_are_refused(c):
    link = "/dev/shm" + key_of("link")
    linked = "/dev/shm" + key_of("linked")
    ucx = f"/dev/shm/ucx_shm_posix_{os.getpid()}"
    with region("target", 4096):
        os.symlink("/dev/shm" + key_of("target"), link)
        os.link("/dev/shm" + key_of("target"), linked)
        with open(ucx, "wb") as f:
            f.write(b"x" * 100)
        try:
            for _, t in clients(c):
                for key, part in ((key_of("link"), "symbolic link"), (key_of("linked"), "more names"),
                                  (os.path.basename(ucx), "server's own"), (key_of("nothing"), "no such object"),
                                  ("/../etc/passwd", "key"), ("/etc/passwd", "key"), ("..", "key"), ("", "key"),
                                  ("k" * 300, "")):
                    refused(lambda t=t, key=key: t.register_system_shared_memory("r", key, 8), part)
                assert regions_of(t.get_system_shared_memory_status()) == {}
        finally:
            for path in (link, linked, ucx):
                os.unlink(path)


def test_text_goes_in_and_out_in_shared_memory(c):
    for module, t in clients(c):
        asked = question(module, plain(module, "text_input", np.array([[QUESTION]], dtype=object), "BYTES"))
        expected = t.infer(MODEL, asked).as_numpy("text_output")
        assert expected.shape == (1,) and expected[0].startswith(QUESTION), expected
        with region("in", 4096) as source, region("out", 4096) as target:
            t.register_system_shared_memory("in", key_of("in"), 4096)
            t.register_system_shared_memory("out", key_of("out"), 4000, offset=96)
            n = put(source, [QUESTION], 100)
            result = t.infer(MODEL, question(module, shared(module, "text_input", [1, 1], "BYTES", "in", n, 100)),
                             outputs=[wanted(module, "text_output", "out", 3000, 1000)])
            size = 4 + len(expected[0])
            assert output_of(result, "text_output") == ([1], "out", 1000, size), result.get_response()
            assert there(target, np.object_, [1], 1096) == expected
            # Half of it: the input alone, the output alone.
            result = t.infer(MODEL, question(module, shared(module, "text_input", [1, 1], "BYTES", "in", n, 100)))
            assert result.as_numpy("text_output") == expected
            result = t.infer(MODEL, asked, outputs=[wanted(module, "text_output", "out", size)])
            assert output_of(result, "text_output") == ([1], "out", 0, size)
            assert there(target, np.object_, [1], 96) == expected
            refused(lambda: t.infer(MODEL, asked, outputs=[wanted(module, "text_output", "out", size - 1)]),
                    f"output 'text_output' has {size} bytes, more than the {size - 1}")
            refused(lambda: t.infer(MODEL, asked, outputs=[wanted(module, "text_output", "out", 4001)]), "'out'")
            t.unregister_system_shared_memory()
            refused(lambda: t.infer(MODEL, asked, outputs=[wanted(module, "text_output", "out", size)]),
                    "unable to find shared memory region 'out'")


def test_large_shared_memory_tensors_equal_inline_ones(c):
    texts = [QUESTION, b"One, two, three,", b"A"]
    for module, t in clients(c):
        asked = question(module, plain(module, "text_input", np.array([[x] for x in texts], dtype=object), "BYTES"),
                         rows=3, return_context_logits=True)
        names = ("text_output", "context_logits")
        expected = t.infer(MODEL, asked, outputs=[wanted(module, name) for name in names])
        logits = expected.as_numpy("context_logits")
        with region("in", 4096) as source, region("out", logits.nbytes + 8192) as target:
            t.register_system_shared_memory("in", key_of("in"), 4096)
            t.register_system_shared_memory("out", key_of("out"), logits.nbytes + 8192)
            n = put(source, [[x] for x in texts], 0)
            result = t.infer(MODEL, question(module, shared(module, "text_input", [3, 1], "BYTES", "in", n), rows=3,
                                             return_context_logits=True),
                             outputs=[wanted(module, "text_output", "out", 8192),
                                      wanted(module, "context_logits", "out", logits.nbytes, 8192)])
            assert output_of(result, "context_logits") == (list(logits.shape), "out", 8192, logits.nbytes)
            assert (there(target, np.object_, [3]) == expected.as_numpy("text_output")).all()
            assert (there(target, np.float32, logits.shape, 8192) == logits).all()
            t.unregister_system_shared_memory()


def test_preprocessing_and_ids_work_in_shared_memory(c):
    """The ids that one model wrote are what the next one reads: nothing of them is in any message."""
    for module, t in clients(c):
        with region("ids", 8192) as handle:
            t.register_system_shared_memory("ids", key_of("ids"), 8192)
            result = t.infer("preprocessing", [
                plain(module, "QUERY", np.array([[QUESTION]], dtype=object), "BYTES"),
                plain(module, "REQUEST_OUTPUT_LEN", np.array([[6]], dtype=np.int32), "INT32")],
                outputs=[wanted(module, "INPUT_ID", "ids", 4096)])
            shape, _, _, size = output_of(result, "INPUT_ID")
            ids = there(handle, np.int32, shape)
            more = [plain(module, "request_output_len", np.array([[6]], dtype=np.int32), "INT32")]
            expected = t.infer("tensorrt_llm", [plain(module, "input_ids", ids, "INT32")] + more).as_numpy("output_ids")
            result = t.infer("tensorrt_llm", [shared(module, "input_ids", shape, "INT32", "ids", size)] + more,
                             outputs=[wanted(module, "output_ids", "ids", 4096, 4096), wanted(module, "sequence_length")])
            shape, _, _, size = output_of(result, "output_ids")
            assert shape == list(expected.shape) and (there(handle, np.int32, shape, 4096) == expected).all()
            assert result.as_numpy("sequence_length") == [[expected.size]], result.get_response()
            t.unregister_system_shared_memory()


def test_shrinking_shared_memory_object_is_an_error(c):
    for module, t in clients(c):
        with region("in", 1 << 20) as source, region("out", 1 << 20):
            t.register_system_shared_memory("in", key_of("in"), 1 << 20)
            t.register_system_shared_memory("out", key_of("out"), 1 << 20)
            text = plain(module, "text_input", np.array([[QUESTION]], dtype=object), "BYTES")
            n = put(source, [b"x" * 600000], 0)
            asked = question(module, shared(module, "text_input", [1, 1], "BYTES", "in", n))
            for size in (4096, 0):
                os.truncate("/dev/shm" + key_of("in"), size)
                refused(lambda: t.infer(MODEL, asked), "shared memory region 'in' is shorter")
                os.truncate("/dev/shm" + key_of("out"), size)
                refused(lambda: t.infer(MODEL, question(module, text), outputs=[
                    wanted(module, "text_output", "out", 4096, 8192)]), "shared memory region 'out' is shorter")
                assert os.stat("/dev/shm" + key_of("out")).st_size == size
            assert t.is_server_live()
            # As before once it is as long again.
            os.truncate("/dev/shm" + key_of("out"), 1 << 20)
            result = t.infer(MODEL, question(module, text), outputs=[wanted(module, "text_output", "out", 4096, 8192)])
            assert output_of(result, "text_output")[1:3] == ("out", 8192)
            t.unregister_system_shared_memory()


def test_oversized_or_invalid_shared_tensors_are_refused(c):
    for module, t in clients(c):
        with region("in", 16 << 20) as source:
            t.register_system_shared_memory("in", key_of("in"), 16 << 20)
            for size, part in ((9 << 20, "--max-body-bytes"), (3, "text_input"), (17 << 20, "'in'")):
                asked = question(module, shared(module, "text_input", [1, 1], "BYTES", "in", size))
                refused(lambda: t.infer(MODEL, asked), part)
            n = put(source, [b"x" * 100], 0)
            source_is = question(module, shared(module, "text_input", [1, 1], "BYTES", "in", n - 1))
            refused(lambda: t.infer(MODEL, source_is), "text_input")
            asked = question(module, shared(module, "text_input", [1, 1], "BYTES", "in", n, 16 << 20))
            refused(lambda: t.infer(MODEL, asked), "'in'")
            asked = question(module, shared(module, "text_input", [1, 1], "BYTES", "other", n))
            refused(lambda: t.infer(MODEL, asked), "unable to find shared memory region 'other'")
            t.unregister_system_shared_memory()


def test_grpc_streams_use_shared_memory_for_each_response(c):
    t = over_grpc.InferenceServerClient("%s:%d" % c.grpc)
    text = plain(over_grpc, "text_input", np.array([[QUESTION]], dtype=object), "BYTES")
    expected = t.infer(MODEL, question(over_grpc, text)).as_numpy("text_output")[0][len(QUESTION):]
    answers = queue.Queue()
    with region("in", 4096) as source, region("out", 4096) as target:
        t.register_system_shared_memory("in", key_of("in"), 4096)
        t.register_system_shared_memory("out", key_of("out"), 4096)
        n = put(source, [QUESTION], 0)

        def hear(result, error):
            """What is there is read before the next response is: it goes to the same place."""
            answers.put((result, error))

        t.start_stream(hear)
        # One token at a time, so that no response overwrites another before it is looked at.
        got = b""
        for i in range(2):
            t.async_stream_infer(MODEL, question(
                over_grpc, shared(over_grpc, "text_input", [1, 1], "BYTES", "in", n), max_tokens=1, stream=True),
                outputs=[wanted(over_grpc, "text_output", "out", 512, 1024 * i)])
            result, error = answers.get(timeout=60)
            assert error is None, error
            shape, _, offset, _ = output_of(result, "text_output")
            assert offset == 1024 * i
            got = there(target, np.object_, shape, offset)[0]
            assert got and expected.startswith(got), (got, expected)
        # All of it, not as a stream, through a stream's door.
        t.async_stream_infer(MODEL, question(over_grpc, shared(over_grpc, "text_input", [1, 1], "BYTES", "in", n)),
                             outputs=[wanted(over_grpc, "text_output", "out", 4096)])
        result, error = answers.get(timeout=60)
        assert error is None, error
        assert there(target, np.object_, [1])[0] == QUESTION + expected
        # A stream that finds no room ends with an error that names the output; others go on.
        t.async_stream_infer(MODEL, question(over_grpc, text, stream=True),
                             outputs=[wanted(over_grpc, "text_output", "out", 2)], request_id="small")
        result, error = answers.get(timeout=60)
        assert result is None and "output 'text_output'" in error.message(), (result, error)
        t.async_stream_infer(MODEL, question(over_grpc, text), request_id="after")
        result, error = answers.get(timeout=60)
        assert error is None and result.as_numpy("text_output")[0] == QUESTION + expected, error
        t.stop_stream()
        t.unregister_system_shared_memory()
    t.close()


def test_aio_clients_use_shared_memory(c):
    async def run(module, address):
        async with module.InferenceServerClient("%s:%d" % address) as t:
            text = plain(module, "text_input", np.array([[QUESTION]], dtype=object), "BYTES")
            expected = (await t.infer(MODEL, question(module, text))).as_numpy("text_output")
            with region("aio", 8192) as handle:
                await t.register_system_shared_memory("aio", key_of("aio"), 8192)
                assert set(regions_of(await t.get_system_shared_memory_status())) == {"aio"}
                n = put(handle, [QUESTION], 0)
                results = await asyncio.gather(*(t.infer(MODEL, question(module, shared(
                    module, "text_input", [1, 1], "BYTES", "aio", n)), outputs=[
                        wanted(module, "text_output", "aio", 1000, 1024 * i)]) for i in range(1, 8)))
                for i, result in enumerate(results):
                    assert output_of(result, "text_output")[:3] == ([1], "aio", 1024 * (i + 1))
                    assert there(handle, np.object_, [1], 1024 * (i + 1)) == expected
                await t.unregister_system_shared_memory("aio")
                assert regions_of(await t.get_system_shared_memory_status()) == {}

    for module, address in ((over_aio, c.http), (over_grpc_aio, c.grpc)):
        asyncio.run(run(module, address))


if __name__ == "__main__":
    sys.exit(client_tests.main(dict(globals()), MISSING, router_args=["--shared-memory", "on"]))
