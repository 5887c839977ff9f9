#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""./baton key: keys of tenants, and their lines for the file of --api-keys."""
import os
import re
import stat
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
KEY = os.path.join(ROOT, "tools", "cli", "key.py")


def run(*args, given=""):
    done = subprocess.run([sys.executable, KEY, *args], input=given, capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout, done.stderr


class TestKey(unittest.TestCase):
    def hash_of(self, key):
        """By another tool."""
        try:
            done = subprocess.run(["b2sum", "-l", "256"], input=key, capture_output=True, text=True, check=True)
        except FileNotFoundError:
            self.skipTest("there is no b2sum")
        return "blake2b:" + done.stdout.split()[0]

    def test_new_key_is_printed_once_and_its_line_has_the_hash(self):
        status, key, said = run("new", "shop")
        self.assertEqual(status, 0)
        self.assertRegex(key, r"\Abaton-[A-Za-z0-9_-]{43}\n\Z")
        self.assertIn(f"key shop {self.hash_of(key.strip())}\n", said)
        self.assertNotIn(key.strip(), said)
        self.assertNotEqual(run("new", "shop")[1], key)

    def test_file_gets_the_line_and_keeps_what_it_had(self):
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "keys")
            keys = [run("new", tenant, "--file", path)[1].strip() for tenant in ("a", "a", "b")]
            with open(path, encoding="utf-8") as f:
                self.assertEqual(f.read(), f"tenant a\nkey a {self.hash_of(keys[0])}\nkey a {self.hash_of(keys[1])}\n"
                                 f"tenant b\nkey b {self.hash_of(keys[2])}\n")
            self.assertEqual(stat.S_IMODE(os.stat(path).st_mode), 0o600)
            self.assertEqual(os.listdir(directory), ["keys"])
            with open(path, "w", encoding="utf-8") as f:
                f.write("# ours\ntenant c weight=2")  # no line end
            os.chmod(path, 0o640)
            key = run("new", "c", "--file", path)[1].strip()
            with open(path, encoding="utf-8") as f:
                self.assertEqual(f.read(), f"# ours\ntenant c weight=2\nkey c {self.hash_of(key)}\n")
            self.assertEqual(stat.S_IMODE(os.stat(path).st_mode), 0o640)

    def test_existing_key_is_hashed(self):
        key = "k" * 24
        self.assertEqual(run("hash", given=key + "\n"), (0, self.hash_of(key) + "\n", ""))
        for given in ("short", "k" * 513, "k" * 30 + " x", "k" * 30 + "\u00e9", ""):
            status, out, said = run("hash", given=given)
            self.assertEqual((status, out), (1, ""), given)
            self.assertIn("24 to 512 printable ASCII characters", said)

    def test_invalid_names_and_commands_are_reported(self):
        for name in ("a/b", "", ".a", "a" * 64, "a b", "\u00e9"):
            status, out, said = run("new", name)
            self.assertEqual((status, out), (1, ""), name)
            self.assertIn("is no tenant's name", said)
        status, _, said = run("nex", "a")
        self.assertEqual(status, 2)
        self.assertIn("no command 'nex'; did you mean new?", said)
        status, _, said = run("new", "a", "--file", "/nowhere/keys")
        self.assertEqual(status, 1)
        self.assertTrue(re.match(r"baton: .*No such file", said), said)


if __name__ == "__main__":
    unittest.main()
