#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""setup/fetch_json_schema_suite.py against a package index of its own: the suite's files alone, and only of the right package."""
import contextlib
import hashlib
import http.server
import io
import os
import shutil
import sys
import tarfile
import tempfile
import threading
import unittest
from unittest import mock

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(ROOT, "setup"))

import fetch_clients  # noqa: E402
import fetch_json_schema_suite as suite  # noqa: E402
import fetch_model  # noqa: E402

INSIDE = suite.INSIDE


def package(files):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


PACKAGE = package({INSIDE + "draft7/a.json": b"[7]", INSIDE + "draft7/optional/b.json": b"[8]", INSIDE + "draft7/notes.txt": b"x",
                   INSIDE + "../../../outside.json": b"x", "jsonschema-4.26.0/jsonschema/code.json": b"x"})


class Index(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_arguments):
        pass

    def do_GET(self):
        self.server.requests.append(self.path)
        body = self.server.files.get(self.path)
        if body is None:
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class SuiteTest(unittest.TestCase):
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
        self.server.files = {"/simple/requests/": b"", "/simple/jsonschema/":
                             f'<a href="../../files/jsonschema-4.25.0.tar.gz">x</a><a href="../../files/{suite.FILE}">y</a>'.encode(),
                             f"/files/{suite.FILE}": PACKAGE}
        for patch in (mock.patch.object(suite, "SHA256", hashlib.sha256(PACKAGE).hexdigest()),
                      mock.patch.object(fetch_model, "pip_settings",
                                        lambda: {"index-url": f"http://127.0.0.1:{self.server.server_port}/simple"}),
                      mock.patch.dict(os.environ, {"BATON_FETCH_PAUSE_S": "0", "no_proxy": "127.0.0.1"})):
            patch.start()
            self.addCleanup(patch.stop)

    def ensure(self, **options):
        with contextlib.redirect_stderr(io.StringIO()):
            return suite.ensure(self.cache, **options)

    def test_the_suites_files_alone_are_unpacked_once(self):
        folder = self.ensure()
        found = {os.path.relpath(os.path.join(where, name), folder) for where, _, names in os.walk(folder) for name in names}
        self.assertEqual(found, {"draft7/a.json", "draft7/optional/b.json"})
        with open(os.path.join(folder, "draft7/a.json"), "rb") as file:
            self.assertEqual(file.read(), b"[7]")
        self.assertEqual(sorted(os.listdir(self.cache)), sorted([os.path.basename(folder), "json-schema-suite.lock"]))
        self.assertEqual(self.ensure(may_install=False), folder)
        self.assertEqual(self.server.requests, ["/simple/jsonschema/", f"/files/{suite.FILE}"])

    def test_nothing_is_fetched_where_nothing_may_be(self):
        with self.assertRaisesRegex(fetch_clients.CannotInstall, "not in the cache"):
            self.ensure(may_install=False)
        self.assertEqual(self.server.requests, [])

    def test_another_package_under_its_name_is_not_taken(self):
        self.server.files[f"/files/{suite.FILE}"] = package({INSIDE + "draft7/a.json": b"[9]"})
        with self.assertRaisesRegex(fetch_model.FetchError, "checksum"):
            self.ensure()
        self.assertEqual(os.listdir(self.cache), ["json-schema-suite.lock"])

    def test_a_package_without_the_suite_leaves_no_folder(self):
        other = package({"jsonschema-4.26.0/README.rst": b"x"})
        self.server.files[f"/files/{suite.FILE}"] = other
        with mock.patch.object(suite, "SHA256", hashlib.sha256(other).hexdigest()), \
                self.assertRaisesRegex(fetch_model.FetchError, "does not hold the suite"):
            self.ensure()
        self.assertEqual(os.listdir(self.cache), ["json-schema-suite.lock"])

    def test_an_index_without_it_is_a_failure_and_no_index_a_reason_to_skip(self):
        self.server.files["/simple/jsonschema/"] = b"<html></html>"
        with self.assertRaisesRegex(fetch_model.FetchError, "has no jsonschema-4.26.0.tar.gz"):
            self.ensure()
        self.server.shutdown()
        self.server.server_close()
        with self.assertRaisesRegex(fetch_clients.CannotInstall, "cannot be reached"):
            self.ensure()


if __name__ == "__main__":
    unittest.main()
