# SPDX-License-Identifier: Apache-2.0
"""The folder of models, as ./baton serve --model NAME reads it (common/config/config_pulled.c).

    DIR/NAME.gguf            a model of one file: the default one, or what somebody put there
    DIR/NAME/                a model of several files, or one that was pulled: its GGUF file, or the first of its
                             parts, or else the folder itself, when it has a config.json
    DIR/NAME/.baton.json     of one that was pulled: where from, and the checksums
    DIR/.pull-NAME/          of one that comes or whose coming was stopped: plan.json, whole files and *.part
    DIR/.pull-NAME.lock      held by who pulls or removes it

A model gets its name by one rename, when all of its files are there and checked.
"""
import contextlib
import fcntl
import json
import os
import re
import shutil
import stat
import struct

import words
from words import Trouble, suggestion

MANIFEST = ".baton.json"
SUFFIX = ".gguf"
MOST_NAME = 63
MOST_MANIFEST = 16 << 20
PART = re.compile(r"(.+)-(\d{5})-of-(\d{5})\.gguf\Z", re.I)
NAME = re.compile(r"[!-~]{1,63}\Z")
NOT_IN_NAMES = "/\"\\,="
NOT_IN_NEW_NAMES = NOT_IN_NAMES + ";"


def add_folder_option(parser):
    parser.add_argument("--models-dir", metavar="DIR", help="the folder of models (default: BATON_MODELS_DIR, else "
                        "$XDG_CACHE_HOME/baton, else ~/.cache/baton)")


def folder_of(option):
    """@param option  of --models-dir, or None"""
    folder = option or os.environ.get("BATON_MODELS_DIR")
    if folder:
        return os.path.abspath(folder)
    base = os.environ.get("XDG_CACHE_HOME") or ""
    if not base.startswith("/"):
        base = os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(base, "baton")


def is_name(text):
    """May a model be called so, by clients and in this folder?"""
    return (bool(NAME.match(text)) and not text.startswith((".", "-")) and not text.lower().endswith(SUFFIX)
            and not any(c in NOT_IN_NAMES for c in text))


def check_name(text):
    """@return that, which a model that comes may be called"""
    if not is_name(text) or any(c in NOT_IN_NEW_NAMES for c in text):
        raise Trouble(f"'{shown(text)}' is no name for a model: printable ASCII without space and {' '.join(NOT_IN_NEW_NAMES)}, "
                      f"at most {MOST_NAME} characters, no . or - first, not ending in {SUFFIX}")
    return text


def name_of_file(path):
    """The name that a file's model gets: its own without .gguf, without the number of the part."""
    base = path.rpartition("/")[2]
    part = PART.match(base)
    stem = part.group(1) if part else base[:-len(SUFFIX)] if base.lower().endswith(SUFFIX) else base
    text = "".join(c if "!" <= c <= "~" and c not in NOT_IN_NEW_NAMES else "-" for c in stem)[:MOST_NAME]
    return check_name(text.lstrip(".-") or "model")


def shown(text):
    """Nothing that a server says can steer a terminal."""
    return words.shown(text, "\ufffd")[:300]


class Model:
    """One of the folder: `path` is what the server is given, `home` what would be removed."""

    def __init__(self, name, home, path, manifest=None):
        self.name, self.home, self.path, self.manifest = name, home, path, manifest or {}

    def source(self):
        return self.manifest.get("source") if isinstance(self.manifest.get("source"), str) else None

    def is_pulled(self):
        return bool(self.manifest)

    def n_bytes(self):
        if os.path.isfile(self.home):
            return os.path.getsize(self.home)
        return sum(entry.stat().st_size for entry in os.scandir(self.home)
                   if entry.is_file() and not entry.name.startswith("."))

    def kind(self):
        """Such as `llama Q4_K_M`."""
        if os.path.isfile(self.path):
            return gguf_kind(self.path)
        try:
            with open(os.path.join(self.path, "config.json"), encoding="utf-8") as f:
                config = json.loads(f.read(MOST_MANIFEST))
            words = [config.get("model_type"), config.get("torch_dtype") or config.get("dtype")]
        except (OSError, ValueError, AttributeError):
            words = []
        return shown(" ".join(word for word in words if isinstance(word, str)) or "folder")


def entry_of(folder):
    """@return what the server is given of a model's folder, or None: it is no model's"""
    try:
        files = sorted(entry.name for entry in os.scandir(folder)
                       if entry.is_file() and entry.name.lower().endswith(SUFFIX) and not entry.name.startswith("."))
    except OSError:
        return None
    firsts = [name for name in files if "-00001-of-" in name]
    if len(files) == 1 or len(firsts) == 1:
        return os.path.join(folder, (firsts or files)[0])
    return folder if not files and os.path.isfile(os.path.join(folder, "config.json")) else None


def read_json(path):
    try:
        with open(path, encoding="utf-8") as f:
            value = json.loads(f.read(MOST_MANIFEST))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def _named(folder, name):
    """@return the Model of that name, or None"""
    if not is_name(name):
        return None
    path = os.path.join(folder, name)
    if os.path.isfile(path + SUFFIX):
        return Model(name, path + SUFFIX, path + SUFFIX)
    entry = entry_of(path)
    return Model(name, path, entry, read_json(os.path.join(path, MANIFEST))) if entry else None


def from_source(folder, source):
    """@return the Models that came from there, by name; case is that of whoever typed it"""
    return sorted((model for model in models(folder) if (model.source() or "").lower() == source.lower()),
                  key=lambda model: model.name)


def find(folder, word):
    """@return the Model of that name, or the first that came from there, or None"""
    model = _named(folder, word)
    if model is None and "/" in word:
        model = next(iter(from_source(folder, word)), None)
    return model


def models(folder):
    """@return all of them, by name"""
    try:
        entries = os.listdir(folder)
    except FileNotFoundError:
        return []
    names = {entry[:-len(SUFFIX)] if entry.endswith(SUFFIX) else entry for entry in entries}
    found = (_named(folder, name) for name in sorted(names, key=str.lower))
    return [model for model in found if model]


def unfinished(folder):
    """@return [(name, words for ./baton pull, bytes there, bytes in all or None)] of those whose coming was stopped"""
    rows = []
    try:
        entries = sorted(os.listdir(folder))
    except FileNotFoundError:
        return rows
    for entry in entries:
        name = entry[len(".pull-"):]
        path = os.path.join(folder, entry)
        if not entry.startswith(".pull-") or not is_name(name) or not os.path.isdir(path):
            continue
        plan = read_json(os.path.join(path, "plan.json"))
        have = sum(os.lstat(os.path.join(below, file)).st_size for below, _, files in os.walk(path)
                   for file in files if not file.endswith((".json", ".tag")))
        total, again = plan.get("bytes"), plan.get("again")
        rows.append((name, again if isinstance(again, str) else name, have, total if isinstance(total, int) else None))
    return rows


def staging_of(folder, name):
    return os.path.join(folder, ".pull-" + name)


def _is_file(path, fd):
    try:
        there = os.lstat(path)
    except FileNotFoundError:
        return False
    return (there.st_dev, there.st_ino) == (os.fstat(fd).st_dev, os.fstat(fd).st_ino)


@contextlib.contextmanager
def locked(folder, name, waits=None):
    """Nobody else pulls or removes that name meanwhile.
    @param waits  called before waiting for who does; None: that is an error"""
    path = staging_of(folder, name) + ".lock"
    while True:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if waits is None:
                    raise Trouble(f"{name} is being pulled by another process") from None
                waits()
                fcntl.flock(fd, fcntl.LOCK_EX)
            # Who held it before may have removed it: then another file has the name by now.
            if not _is_file(path, fd):
                continue
            try:
                yield
            finally:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(path)
            return
        finally:
            os.close(fd)


def remove(folder, name):
    """@return the bytes that it had"""
    model = _named(folder, name)
    staging = staging_of(folder, name) if is_name(name) else None
    has_staging = staging is not None and os.path.isdir(staging) and not os.path.islink(staging)
    if model is None and not has_staging:
        raise Trouble(f"no model '{shown(name)}' in {folder}{suggestion(name, [m.name for m in models(folder)])}")
    n_bytes = 0
    with locked(folder, name):
        if has_staging:
            n_bytes += sum(row[2] for row in unfinished(folder) if row[0] == name)
            shutil.rmtree(staging)
        if model is not None:
            n_bytes += _remove_model(folder, model)
    return n_bytes


def _remove_model(folder, model):
    n_bytes = model.n_bytes()
    if not stat.S_ISDIR(os.lstat(model.home).st_mode):
        os.unlink(model.home)
        return n_bytes
    if not model.is_pulled():
        raise Trouble(f"{model.home} was not pulled by Baton; it may have more than a model and is yours to remove")
    # It has no name any more before the first of its files is gone.
    gone = os.path.join(folder, f".gone-{model.name}-{os.getpid()}")
    os.rename(model.home, gone)
    shutil.rmtree(gone)
    return n_bytes


# --- what a GGUF file says of itself -------------------------------------------------------------------------------

# LLAMA_FTYPE of llama.cpp's include/llama.h, as published files carry it.
FILE_TYPES = {0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 7: "Q8_0", 8: "Q5_0", 9: "Q5_1", 10: "Q2_K", 11: "Q3_K_S",
              12: "Q3_K_M", 13: "Q3_K_L", 14: "Q4_K_S", 15: "Q4_K_M", 16: "Q5_K_S", 17: "Q5_K_M", 18: "Q6_K",
              19: "IQ2_XXS", 20: "IQ2_XS", 21: "Q2_K_S", 22: "IQ3_XS", 23: "IQ3_XXS", 24: "IQ1_S", 25: "IQ4_NL",
              26: "IQ3_S", 27: "IQ3_M", 28: "IQ2_S", 29: "IQ2_M", 30: "IQ4_XS", 31: "IQ1_M", 32: "BF16",
              36: "TQ1_0", 37: "TQ2_0", 38: "MXFP4"}
SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}  # bytes of GGUF's value types
TEXT, LIST, U32 = 8, 9, 4
MOST_HEADER = 64 << 20
MOST_KEYS = 4096


class _Header:
    def __init__(self, file):
        self.file, self.left = file, MOST_HEADER

    def take(self, n):
        self.left -= n
        data = self.file.read(n) if self.left >= 0 else b""
        if len(data) != n:
            raise ValueError("too short or too long")
        return data

    def number(self, code):
        return struct.unpack("<" + code, self.take(struct.calcsize("<" + code)))[0]

    def text(self):
        return self.take(self.number("Q")).decode("utf-8", "replace")

    def skip(self, kind):
        if kind == TEXT:
            self.take(self.number("Q"))
        elif kind == LIST:
            inner, n = self.number("I"), self.number("Q")
            if inner in SIZES:
                self.take(n * SIZES[inner])
            elif inner == TEXT:
                for _ in range(min(n, MOST_HEADER)):
                    self.skip(TEXT)
            else:
                raise ValueError("a list of lists")
        else:
            self.take(SIZES[kind])


def gguf_kind(path):
    """Architecture and file type, or what can be said in their place."""
    found = {}
    try:
        with open(path, "rb") as f:
            header = _Header(f)
            if header.take(4) != b"GGUF" or header.number("I") not in (2, 3):
                return "no GGUF"
            header.number("Q")
            for _ in range(min(header.number("Q"), MOST_KEYS)):
                key, kind = header.text(), header.number("I")
                if key == "general.architecture" and kind == TEXT:
                    found["architecture"] = header.text()
                elif key == "general.file_type" and kind == U32:
                    found["type"] = FILE_TYPES.get(header.number("I"))
                else:
                    header.skip(kind)
                if len(found) == 2:
                    break
    except (OSError, ValueError, KeyError, struct.error):
        pass
    return shown(" ".join(word for word in (found.get("architecture"), found.get("type")) if word) or "GGUF")
