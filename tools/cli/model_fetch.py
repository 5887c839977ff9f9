# SPDX-License-Identifier: Apache-2.0
"""The files of a Plan, fetched over as many connections as it takes, checked, and given their name.

What was stopped stays in `.pull-NAME`, a file for each of the plan's: ID.part, and ID when it is whole and checked.
ID is of the file's name and its checksum, so that no other file is ever continued; of a file without a checksum ID.tag
says which one the server had (its ETag), and asks with If-Range.
"""
import contextlib
import hashlib
import json
import os
import re
import shutil
import ssl
import time
import urllib.error
from urllib.parse import urlsplit

import model_http
from model_store import MANIFEST, SUFFIX, find, locked, read_json, shown, staging_of
from progress import Progress, size_text
from words import Trouble

PIECE = 1 << 18
TRIES = 6
MOST_PAUSE_S = 60


def pause_unit():
    """One second; tests make it shorter."""
    return float(os.environ.get("BATON_FETCH_PAUSE_S", "1"))


def size_of(path):
    try:
        return os.lstat(path).st_size
    except FileNotFoundError:
        return 0


def write_whole(path, text):
    """Under its name there is all of it or nothing."""
    with open(path + ".new", "w", encoding="utf-8") as f:
        f.write(text)
        f.flush()
        os.fsync(f.fileno())
    os.replace(path + ".new", path)


def id_of(value):
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:32]


def write_all(file, piece):
    view = memoryview(piece)
    while view:
        view = view[file.write(view):]


class Mismatch(Exception):
    """The bytes are not those that the checksum is of."""


class Fetch:
    """@param plan  of model_source
    @param say   is told, in a line, what people should know"""

    def __init__(self, folder, plan, web, say):
        self.folder, self.plan, self.web, self.say = folder, plan, web, say
        self.home = os.path.join(folder, plan.name)
        self.staging = staging_of(folder, plan.name)
        self.old = os.path.join(self.staging, "old")
        self.bar = None

    def run(self):
        """@return False: it was there already"""
        os.makedirs(self.folder, exist_ok=True)
        waits = lambda: self.say(f"another process is pulling {self.plan.name}; waiting for it")  # noqa: E731
        with locked(self.folder, self.plan.name, waits):
            if os.path.islink(self.staging):
                raise Trouble(f"{self.staging} is a link; remove it")
            if os.path.isdir(self.old) and not os.path.lexists(self.home):
                os.rename(self.old, self.home)  # somebody was stopped between two renames
            if self._is_there():
                return False
            os.makedirs(self.staging, mode=0o700, exist_ok=True)
            for file in self.plan.files:
                self._size(file)
            total = sum(file.size for file in self.plan.files)
            write_whole(os.path.join(self.staging, "plan.json"),
                        json.dumps({"again": self.plan.again, "bytes": total}) + "\n")
            self._take_over()
            have = sum(min(self._have(file), file.size) for file in self.plan.files)
            self._check_space(total - have)
            if have:
                self.say(f"going on after {size_text(have)} of {size_text(total)}")
            self.bar = Progress(self.plan.name, total, have)
            try:
                for file in self.plan.files:
                    self._fetch(file)
            finally:
                self.bar.end()
            self._give_name()
        return True

    @property
    def tree(self):
        return os.path.join(self.staging, "tree-" + id_of([self._path(file) for file in self.plan.files]))

    # --- what there is ---

    def _is_there(self):
        there = find(self.folder, self.plan.name)
        if there is None:
            if os.path.lexists(self.home):
                raise Trouble(f"{self.home} is there and is no model; --name gives this one another name")
            return False
        if there.source() != self.plan.source:
            raise Trouble(f"there is a model {there.name} already, "
                          + (f"from {there.source()}" if there.source() else f"{there.home}, that was not pulled")
                          + f"; --name gives this one another name, ./baton rm {there.name} removes that one")
        files = there.manifest.get("files")
        if not isinstance(files, dict) or set(files) != {file.name for file in self.plan.files}:
            return False
        if there.manifest.get("commit") != self.plan.commit and any(file.check is None for file in self.plan.files):
            return False
        return all(self._is_same(file, files[file.name], os.path.join(self.home, file.name)) for file in self.plan.files)

    @staticmethod
    def _is_same(file, row, path):
        """Of one without checksum nobody can tell, so what is there of its length is good."""
        return (isinstance(row, dict) and size_of(path) == row.get("bytes") and file.size in (None, row.get("bytes"))
                and (file.check is None or row.get(file.check[0]) == file.check[1]))

    def _path(self, file):
        return os.path.join(self.staging, id_of([file.name, file.check or file.url]))

    def _have(self, file):
        path = self._path(file)
        return size_of(path) or size_of(path + ".part")

    def _take_over(self):
        """What an earlier run has whole, or the model has that is to be renewed. Parts of files that the repository
        has no more are removed."""
        for file in self.plan.files:
            with contextlib.suppress(FileNotFoundError):
                os.rename(os.path.join(self.tree, file.name), self._path(file))
        there = find(self.folder, self.plan.name)
        rows = there.manifest.get("files") if there else None
        for file in self.plan.files if isinstance(rows, dict) else ():
            path = os.path.join(self.home, file.name)
            if file.check and not self._have(file) and self._is_same(file, rows.get(file.name), path):
                with contextlib.suppress(OSError):  # a file system without links fetches it again
                    os.link(path, self._path(file), follow_symlinks=False)
        ours = {os.path.basename(self._path(file)) for file in self.plan.files} | {"plan"}
        for entry in os.scandir(self.staging):
            if entry.name.partition(".")[0] not in ours and not entry.is_dir(follow_symlinks=False):
                os.unlink(entry.path)
            elif entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path)

    def _check_space(self, n_bytes):
        free = shutil.disk_usage(self.folder).free
        if n_bytes > free:
            raise Trouble(f"{self.plan.name} takes {size_text(n_bytes)} more, and {self.folder} has {size_text(free)} free; "
                          "--models-dir names another folder")

    # --- one file ---

    def _size(self, file):
        """Where the plan does not know it the server is asked, before anything large comes."""
        if file.size is None or (file.check is None and self.plan.commit):
            with self._retried(file, lambda: self.web.open(file.url, {"Range": "bytes=0-0"})) as reply:
                sha256 = self.web.linked_sha256()
                match = re.match(r"bytes 0-0/(\d+)\Z", reply.headers.get("Content-Range", ""))
                text = reply.headers.get("Content-Length", "") if reply.status != 206 else match.group(1) if match else ""
            if not text.isdecimal():
                raise Trouble(f"{urlsplit(file.url).netloc} does not say how long {file.name} is")
            file.size = int(text)
            if sha256 and file.check is None:
                file.check = ("sha256", sha256)

    def _retried(self, file, work):
        """`work()` until it comes through, or fails too often without a byte more."""
        failures = 0
        while True:
            before = size_of(self._path(file) + ".part")
            pause = None
            try:
                return work()
            except urllib.error.HTTPError as error:
                with error:
                    if error.code < 500 and error.code not in (408, 429):
                        raise Trouble(self._explain(error, file)) from None
                    reason, after = model_http.describe(error, urlsplit(file.url).netloc), error.headers.get("Retry-After", "")
                pause = min(int(after), MOST_PAUSE_S) if after.isdecimal() else None
            except model_http.CUTS as error:
                reason = model_http.describe(error, urlsplit(file.url).netloc)
                if isinstance(getattr(error, "reason", error), ssl.SSLCertVerificationError):
                    raise Trouble(reason) from None
            failures = 1 if size_of(self._path(file) + ".part") > before else failures + 1
            if failures >= TRIES:
                raise Trouble(f"{reason}; the same command goes on from here")
            pause = (min(2 ** (failures - 1), 8) if pause is None else pause) * pause_unit()
            if self.bar:
                self.bar.end()
            self.say(f"{reason}; going on in {pause:.0f} s")
            time.sleep(pause)

    def _explain(self, error, file):
        host = urlsplit(error.url or file.url).netloc or urlsplit(file.url).netloc
        if 300 <= error.code < 400:
            return f"{host} sends us to {shown(error.headers.get('Location', '?'))}, which is not safe"
        if error.code in (401, 403):
            return (f"{host} refuses {file.name} (HTTP {error.code})"
                    + ("" if self.web.token else "; HF_TOKEN says who asks, where that is needed"))
        if error.code == 404:
            return f"{host} has no {file.name} (HTTP 404)"
        return f"{host} answers HTTP {error.code} to {file.name}: {shown(error.reason)}"

    def _fetch(self, file):
        path = self._path(file)
        part = path + ".part"
        if os.path.isfile(path):
            return
        for attempt in (1, 2):
            digest = self._begin_digest(file)
            try:
                self._retried(file, lambda: self._take(file, part, digest))
                self._check(file, digest, part)
                os.replace(part, path)
                return
            except Mismatch as error:
                self.bar.back(size_of(part))
                os.unlink(part)
                if attempt == 2:
                    raise Trouble(f"{error}, twice; nothing of it is kept") from None
                self.bar.end()
                self.say(f"{error}; it is fetched anew")

    def _begin_digest(self, file):
        """Of what is there already, as `digest.of(kind)`; nothing that is too long is kept."""
        part = self._path(file) + ".part"
        if size_of(part) > file.size:
            self.bar.back(file.size)  # it counted as so much
            os.unlink(part)
        digest = Digest(file)
        if size_of(part):
            with open(part, "rb") as f:
                while piece := f.read(PIECE):
                    digest.update(piece)
        return digest

    def _take(self, file, part, digest):
        """What is missing, over one connection."""
        have = size_of(part)
        if have == file.size:
            if not have:
                open(part, "wb").close()
            return
        tag = self._tag(part) if file.check is None else None
        if have and file.check is None and tag is None:
            have = self._anew(part, digest)  # nothing would tell that it is of the same file
        headers = {"Range": f"bytes={have}-"} if have else {}
        if have and tag:
            headers["If-Range"] = tag
        try:
            reply = self.web.open(file.url, headers)
        except urllib.error.HTTPError as error:
            if error.code != 416:
                raise
            error.close()
            self._anew(part, digest)
            raise ConnectionResetError("the file is shorter than what we have") from None
        with reply:
            have = self._where(file, part, digest, reply, have, tag)
            if file.check is None:
                self._keep_tag(part, reply)
            with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644), "ab",
                      buffering=0) as f:
                while have < file.size:
                    piece = reply.read1(min(PIECE, file.size - have))
                    if not piece:
                        raise ConnectionResetError("cut")
                    write_all(f, piece)
                    digest.update(piece)
                    have += len(piece)
                    self.bar.add(len(piece))
                os.fsync(f.fileno())

    def _where(self, file, part, digest, reply, have, tag):
        """@return from which byte on the reply has the file"""
        length = reply.headers.get("Content-Length", "")
        begin = 0
        if reply.status == 206:
            match = re.match(r"bytes (\d+)-\d+/(\d+|\*)\Z", reply.headers.get("Content-Range", ""))
            other = tag and tag.startswith('"') and reply.headers.get("ETag", tag) != tag
            if other or not match or int(match.group(1)) != have or match.group(2) not in ("*", str(file.size)):
                self._anew(part, digest)
                raise ConnectionResetError("another part than asked for")
            begin = have
        elif have:
            self._anew(part, digest)
        if length.isdecimal() and begin + int(length) != file.size:
            raise Trouble(f"{urlsplit(file.url).netloc} sends {size_text(begin + int(length))} for {file.name}, which should "
                          f"have {size_text(file.size)}")
        return begin

    def _anew(self, part, digest):
        self.bar.back(size_of(part))
        with contextlib.suppress(FileNotFoundError):
            os.unlink(part)
        digest.reset()
        return 0

    @staticmethod
    def _tag(part):
        """The strong ETag or the date under which the part was sent."""
        return read_json(part[:-len(".part")] + ".tag").get("tag") if size_of(part) else None

    @staticmethod
    def _keep_tag(part, reply):
        tag = reply.headers.get("ETag", "")
        tag = tag if tag.startswith('"') else reply.headers.get("Last-Modified")
        write_whole(part[:-len(".part")] + ".tag", json.dumps({"tag": tag}))

    def _check(self, file, digest, part):
        if size_of(part) != file.size:
            raise Mismatch(f"{file.name} has not the length that was said")
        if file.check and digest.of(file.check[0]) != file.check[1]:
            raise Mismatch(f"{file.name} does not match its checksum")
        if file.name.lower().endswith(SUFFIX):
            with open(part, "rb") as f:
                if f.read(4) != b"GGUF":
                    raise Mismatch(f"{file.name} is no GGUF file")
        file.sha256 = digest.of("sha256")

    # --- the whole ---

    def _give_name(self):
        plan = self.plan
        rows = {}
        for file in plan.files:
            path = self._path(file)
            digest = Digest(file)
            if not hasattr(file, "sha256"):  # it came with an earlier run
                with open(path, "rb") as f:
                    while piece := f.read(PIECE):
                        digest.update(piece)
                file.sha256 = digest.of("sha256")
            rows[file.name] = {"bytes": file.size, "sha256": file.sha256,
                               **({"git": file.check[1]} if file.check and file.check[0] == "git" else {})}
        os.mkdir(self.tree)
        for file in plan.files:
            os.rename(self._path(file), os.path.join(self.tree, file.name))
        write_whole(os.path.join(self.tree, MANIFEST),
                    json.dumps({"source": plan.source, "commit": plan.commit, "files": rows}, indent=1) + "\n")
        if os.path.lexists(self.home):
            os.rename(self.home, self.old)
        os.rename(self.tree, self.home)
        shutil.rmtree(self.staging)


class Digest:
    """SHA-256, and what git would call the file where the plan has that alone."""

    def __init__(self, file):
        self.file = file
        self.reset()

    def reset(self):
        self.hashes = {"sha256": hashlib.sha256()}
        if self.file.check and self.file.check[0] == "git":
            self.hashes["git"] = hashlib.sha1(b"blob %d\0" % self.file.size, usedforsecurity=False)

    def update(self, piece):
        for one in self.hashes.values():
            one.update(piece)

    def of(self, kind):
        return self.hashes[kind].hexdigest()
