#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fetch the official test suite of JSON Schema and print its folder.

Usage: fetch_json_schema_suite.py [--cache DIR] [--no-install]

It lies in the source package of jsonschema, which comes from the package index that
pip is set up to use; 0.4 MB. The folder has one of each draft: draft7, draft2020-12
and others. Licence of the suite: MIT. Only a test reads it.

Says why on standard error, and ends with 3, where it is not there and cannot be:
nothing may be installed, or the package index cannot be reached. Ends with 1 where
the index answers but has something else.
"""
import fcntl
import http.client
import os
import shutil
import sys
import tarfile
import tempfile

import fetch_model
from fetch_clients import CannotInstall, index_trouble, main_of

PACKAGE = "jsonschema"
VERSION = "4.26.0"
FILE = f"{PACKAGE}-{VERSION}.tar.gz"
SHA256 = "0c26707e2efad8aa1bfc5b7ce170f3fccc2e4918ff85989ba9ffa9facb2be326"
INSIDE = f"{PACKAGE}-{VERSION}/json/tests/"


def download(folder):
    """@return path of the source package, whose checksum is the one known here."""
    settings = fetch_model.pip_settings()
    opener = fetch_model.make_opener(settings)
    found = [url for name, url, _ in fetch_model.files_of(opener, fetch_model.index_url(settings), PACKAGE) if name == FILE]
    if not found:
        raise fetch_model.FetchError(f"the package index has no {FILE}")
    path = os.path.join(folder, FILE)
    fetch_model.download(opener, found[0], SHA256, path, "fetching the test suite of JSON Schema")
    return path


def unpack(archive, folder):
    """Write the JSON files of the suite to a folder, and nothing else of the package."""
    n = 0
    try:
        with tarfile.open(archive) as package:
            for member in package:
                parts = member.name[len(INSIDE):].split("/")
                if not member.name.startswith(INSIDE) or not member.isfile() or not member.name.endswith(".json") or ".." in parts:
                    continue
                target = os.path.join(folder, *parts)
                os.makedirs(os.path.dirname(target), exist_ok=True)
                with package.extractfile(member) as source, open(target, "wb") as file:
                    shutil.copyfileobj(source, file)
                n += 1
    except (tarfile.TarError, EOFError) as error:
        raise fetch_model.FetchError(f"{FILE} cannot be unpacked: {error}") from error
    if n == 0:
        raise fetch_model.FetchError(f"{FILE} does not hold the suite")


def ensure(cache, may_install=True):
    """@return the suite's folder, fetched where needed."""
    # Named after the checksum: what another version left is not taken for this one.
    folder = os.path.join(cache, f"json-schema-suite-{SHA256[:16]}")
    if os.path.isdir(folder):
        return folder
    if not may_install:
        raise CannotInstall("the test suite of JSON Schema is not in the cache")
    os.makedirs(cache, exist_ok=True)
    with open(os.path.join(cache, "json-schema-suite.lock"), "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if os.path.isdir(folder):
            return folder  # another process was quicker
        with tempfile.TemporaryDirectory(dir=cache) as where:
            try:
                archive = download(where)
            except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError, fetch_model.FetchError) as error:
                trouble = index_trouble()
                if trouble is not None:
                    raise CannotInstall(f"the package index cannot be reached: {trouble}") from error
                raise fetch_model.FetchError(f"the test suite of JSON Schema: {error}") from error
            suite = os.path.join(where, "suite")
            unpack(archive, suite)
            os.replace(suite, folder)
    return folder


if __name__ == "__main__":
    sys.exit(main_of(__doc__, ensure))
