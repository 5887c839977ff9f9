# SPDX-License-Identifier: Apache-2.0
"""A server of models for the tests of ./baton pull: the API of the Hugging Face Hub, a second host that holds the large
files, and every fault that a test asks for."""
import hashlib
import http.server
import json
import re
import struct
import threading
from urllib.parse import parse_qs, unquote, urlsplit


def gguf(n_bytes, architecture="llama", file_type=15, seed=0):
    """A header with two keys, as the format's specification has it, and bytes behind it."""
    def text(value):
        return struct.pack("<Q", len(value)) + value.encode()
    head = b"GGUF" + struct.pack("<IQQ", 3, 0, 3)
    head += text("tokenizer.ggml.tokens") + struct.pack("<IIQ", 9, 8, 2) + text("a") + text("b")
    head += text("general.architecture") + struct.pack("<I", 8) + text(architecture)
    head += text("general.file_type") + struct.pack("<II", 4, file_type)
    return head + bytes((i * 7 + seed + (i >> 8)) & 255 for i in range(n_bytes - len(head)))


def git_id(content):
    """What `git hash-object` prints."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_arguments):
        pass

    def answer(self, status, body=b"", **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        hub = self.server.hub
        parts = urlsplit(self.path)
        path = unquote(parts.path)
        with hub.lock:
            hub.asked.append((self.server.role, path, self.headers.get("Range"), self.headers.get("Authorization"),
                              self.headers.get("If-Range")))
        try:
            if self.server.role == "store":
                return self.send_file(hub.blobs[path[1:]])
            match = re.match(r"/api/models/([^/]+/[^/]+)/revision/([^/]+)\Z", path)
            if match:
                return self.send_listing(*match.groups())
            if path == "/api/models":
                return self.answer(200, json.dumps([{"id": repo} for repo in hub.repos
                                                    if parse_qs(parts.query)["search"][0].lower()[:4] in repo.lower()]).encode())
            match = re.match(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)\Z", path)
            if match:
                return self.send_or_redirect(match.group(1), match.group(3))
            if path in hub.plain:
                return self.send_file(hub.plain[path])
            return self.answer(404)
        except (BrokenPipeError, ConnectionResetError):
            return None

    def may(self, repo):
        hub = self.server.hub
        if repo not in hub.repos:
            self.answer(404 if self.headers.get("Authorization") else 401, X_Error_Code="RepoNotFound")
        elif repo in hub.gated and self.headers.get("Authorization") != "Bearer good":
            self.answer(403 if self.headers.get("Authorization") else 401, X_Error_Code="GatedRepo")
        else:
            return True
        return False

    def send_listing(self, repo, revision):
        hub = self.server.hub
        if not self.may(repo):
            return
        if revision not in hub.revisions:
            self.answer(404, X_Error_Code="RevisionNotFound")
            return
        rows = []
        for name, content in hub.repos[repo].items():
            row = {"rfilename": name, "size": len(content), "blobId": git_id(content)}
            if len(content) > 2000:
                row["lfs"] = {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content), "pointerSize": 134}
            rows.append(row if hub.describes else {"rfilename": name})
        self.answer(200, json.dumps({"id": repo, "sha": hub.commit, "siblings": rows}).encode())

    def send_or_redirect(self, repo, name):
        hub = self.server.hub
        if not self.may(repo):
            return
        content = hub.served.get(name, hub.repos[repo].get(name))
        if content is None:
            self.answer(404, X_Error_Code="EntryNotFound")
        elif len(content) > 2000 and hub.redirect:
            key = hashlib.sha256(content).hexdigest()
            hub.blobs[key] = content
            self.answer(302, Location=hub.redirect.format(store=hub.store, key=key),
                        X_Linked_Etag=f'"{hashlib.sha256(hub.repos[repo][name]).hexdigest()}"')
        else:
            self.send_file(content)

    def send_file(self, content):
        hub = self.server.hub
        tag = f'"{git_id(content)}"'
        start, status = 0, 200
        if hub.errors:
            self.answer(hub.errors.pop(0), Retry_After="0")
            return
        wanted = self.headers.get("Range")
        if wanted and hub.ranges and self.headers.get("If-Range", tag) == tag:
            first, _, last = wanted[len("bytes="):].partition("-")
            start, status = int(first), 206
            if start >= len(content):
                self.answer(416)
                return
        end = int(last) + 1 if status == 206 and last else len(content)
        self.send_response(status)
        self.send_header("ETag", tag)
        if status == 206:
            self.send_header("Content-Range", f"bytes {start + hub.shift}-{end - 1}/{len(content)}")
        self.send_header("Content-Length", str(end - start + hub.longer))
        self.end_headers()
        body = content[start:end]
        if hub.cuts and end - start > 1:
            body = body[:hub.cuts.pop(0)]
            self.close_connection = True
        self.wfile.write(body)
        if hub.stalls and end - start > 1:
            self.wfile.flush()
            hub.stalled.set()
            hub.go_on.wait(20)
            self.close_connection = True


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_arguments):
        pass


class Hub:
    """`repos` is {repository: {file: bytes}}; `served` what is sent in place of a file."""

    def __init__(self):
        self.lock = threading.Lock()
        self.repos, self.plain, self.served, self.blobs = {}, {}, {}, {}
        self.gated, self.revisions, self.commit = set(), {"main", "v1"}, "c0ffee" * 6 + "abcd"
        self.redirect, self.ranges, self.shift, self.longer = "{store}/{key}?signed=yes", True, 0, 0
        self.cuts, self.errors, self.stalls, self.describes, self.asked = [], [], False, True, []
        self.stalled, self.go_on = threading.Event(), threading.Event()
        self.servers = []
        for role in ("hub", "store"):
            server = Server(("127.0.0.1", 0), Handler)
            server.hub, server.role = self, role
            thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
            thread.start()
            self.servers.append((server, thread))
        self.url, self.store = (f"http://127.0.0.1:{server.server_port}" for server, _ in self.servers)

    def close(self):
        self.go_on.set()
        for server, thread in self.servers:
            server.shutdown()
            thread.join()
            server.server_close()

    def files_asked(self):
        """[(role, Range, Authorization, If-Range)] of all but the API"""
        return [(role, *rest) for role, path, *rest in self.asked if not path.startswith("/api/")]
