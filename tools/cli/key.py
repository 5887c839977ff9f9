#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Make API keys for --api-keys.

  baton key new TENANT     a new key: it is printed once, on standard output; the
                           line for the file, which has its hash, on standard error
  baton key new TENANT --file FILE
                           appends that line to FILE (and `tenant TENANT`, where it
                           is not there) instead; a server that runs reads it at
                           SIGHUP: kill -HUP its launcher or router
  baton key hash           the line's hash of a key on standard input

A key is 32 random bytes, so that nobody finds it from its hash; it is kept
nowhere. Whoever lost his gets a new one.

Exit status: 0, 1 after an error, 2 for a mistake in the options.
"""
import argparse
import hashlib
import os
import re
import secrets
import sys

from words import Trouble, suggestion

NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,62}\Z")
KEY_BYTES = 32
LEAST_KEY = 24  # characters of a key that somebody else made
MOST_KEY = 512


def hash_of(key):
    """As the server has it: BLAKE2b with 32 bytes (b2sum -l 256)."""
    return "blake2b:" + hashlib.blake2b(key.encode(), digest_size=32).hexdigest()


def new_key():
    return "baton-" + secrets.token_urlsafe(KEY_BYTES)


def lines_for(tenant, key, text):
    """@param text  of the file so far
    @return what is to be appended"""
    known = any(line.split()[:2] == ["tenant", tenant] for line in text.splitlines())
    return ("" if not text or text.endswith("\n") else "\n") + ("" if known else f"tenant {tenant}\n") \
        + f"key {tenant} {hash_of(key)}\n"


def append(path, tenant, key):
    """The file is written anew beside the old one and takes its place: who reads it meanwhile has a whole one."""
    try:
        with open(path, encoding="utf-8") as f:
            text, mode = f.read(), os.fstat(f.fileno()).st_mode & 0o777
    except FileNotFoundError:
        text, mode = "", 0o600
    beside = f"{path}.new-{os.getpid()}"
    try:
        with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as f:
            f.write(text + lines_for(tenant, key, text))
            f.flush()
            os.fchmod(f.fileno(), mode)
            os.fsync(f.fileno())
        os.rename(beside, path)
    except BaseException:
        if os.path.exists(beside):
            os.unlink(beside)
        raise


def cmd_new(options):
    if not NAME.match(options.tenant):
        raise Trouble(f"'{options.tenant}' is no tenant's name: letters, digits, '.', '_' and '-', at most 63, no dot first")
    key = new_key()
    if options.file:
        append(options.file, options.tenant, key)
        print(f"appended to {options.file}; the key, which is shown this once:", file=sys.stderr)
    else:
        print(f"for the file of --api-keys, where a line `tenant {options.tenant}` has its limits:\n"
              f"key {options.tenant} {hash_of(key)}\n\nthe key, which is shown this once:", file=sys.stderr)
    sys.stderr.flush()
    print(key)


def cmd_hash(_options):
    key = sys.stdin.readline(MOST_KEY + 2).rstrip("\r\n")
    if not LEAST_KEY <= len(key) <= MOST_KEY or not all("!" <= c <= "~" for c in key):
        raise Trouble(f"a key has {LEAST_KEY} to {MOST_KEY} printable ASCII characters without a space")
    print(hash_of(key))


def main():
    parser = argparse.ArgumentParser(prog="baton key", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(metavar="new|hash", required=True)
    new = commands.add_parser("new", help="a new key")
    new.add_argument("tenant", metavar="TENANT")
    new.add_argument("--file", metavar="FILE", help="append its line here")
    new.set_defaults(run=cmd_new)
    commands.add_parser("hash", help="the hash of a key on standard input").set_defaults(run=cmd_hash)
    word = sys.argv[1] if len(sys.argv) > 1 else ""
    if word and not word.startswith("-") and word not in ("new", "hash"):
        parser.error(f"no command '{word}'{suggestion(word, ('new', 'hash'))}")
    options = parser.parse_args()
    try:
        options.run(options)
        return 0
    except (Trouble, OSError, UnicodeDecodeError) as error:
        print(f"baton: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
