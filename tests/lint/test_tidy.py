# SPDX-License-Identifier: Apache-2.0
import os
import subprocess
import tempfile
import unittest

import tidy


class TidyTest(unittest.TestCase):
    def git(self, *words):
        subprocess.run(["git", "-C", self.root, "-c", "user.name=a", "-c", "user.email=a@b", *words], check=True, capture_output=True)

    def write(self, path, text):
        with open(os.path.join(self.root, path), "w", encoding="utf-8") as file:
            file.write(text)

    def test_committed_uncommitted_and_new_files_of_a_change_are_found_and_deleted_ones_are_not(self):
        with tempfile.TemporaryDirectory() as self.root:
            self.git("init", "-q")
            for name in ("old.c", "gone.c", "committed.c", "edited.c"):
                self.write(name, "1")
            self.git("add", ".")
            self.git("commit", "-qm", "a")
            self.assertIsNone(tidy.changed(self.root, "HEAD~1"))
            self.write("committed.c", "2")
            self.git("commit", "-qam", "b")
            self.write("edited.c", "2")
            self.write("new.c", "2")
            os.unlink(os.path.join(self.root, "gone.c"))
            self.assertEqual(tidy.changed(self.root, "HEAD~1"), ["committed.c", "edited.c", "new.c"])

    def test_tests_benchmarks_and_headers_are_no_product_sources(self):
        paths = ("router/core/a.c", "router/core/a.h", "tests/unit/test_a.c", "bench/_a.c", "kernels/cuda/a.cu")
        self.assertEqual([path for path in paths if tidy.is_product(path)], ["router/core/a.c"])

    def test_a_header_is_checked_by_a_source_that_includes_it(self):
        texts = {"a/z.c": '#include "b/x.h"\n', "b/y.c": '#include "b/x.h"\n', "b/a.c": '#include "b/other.h"\n'}
        self.assertEqual(tidy.includer("b/x.h", texts, texts.get), "b/y.c")
        self.assertIsNone(tidy.includer("b/none.h", texts, texts.get))


if __name__ == "__main__":
    unittest.main()
