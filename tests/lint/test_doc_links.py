# SPDX-License-Identifier: Apache-2.0
"""The links of documents: what is broken is found, and only that."""
import unittest

import doc_links

PAGE = "# One page\n\n## What's `here`?\n\n[a](B.md), [b](B.md#two-words), [c](#whats-here), [d](https://x.y/z)\n"


class DocLinksTest(unittest.TestCase):
    def broken(self, page, there=("docs/B.md",)):
        return doc_links.broken_links({"docs/A.md": page, "docs/B.md": "## Two words\n"}, lambda path: path in there)

    def test_links_to_files_and_headings_pass(self):
        self.assertEqual(self.broken(PAGE), [])

    def test_a_missing_file_and_a_missing_heading_are_named(self):
        self.assertEqual(self.broken("[a](C.md) [b](B.md#three) [c](#no)"),
                         ["docs/A.md: C.md: no such file", "docs/A.md: B.md#three: the page has no such heading",
                          "docs/A.md: #no: the page has no such heading"])

    def test_fenced_text_is_no_link_and_no_heading(self):
        self.assertEqual(self.broken("```sh\n[a](C.md)\n# no\n```\n"), [])
        self.assertEqual(doc_links.anchors("# a\n```\n# b\n```\n## c d\n"), {"a", "c-d"})

    def test_a_file_is_found_by_its_path_or_the_end_of_it(self):
        text = "`router/core/core.c` `core.c` `core/core.c` `router/core/gone.c` `ore.c`"
        self.assertEqual(doc_links.missing_files({"docs/ARCHITECTURE.md": text, "docs/OTHER.md": text}, ["router/core/core.c"]),
                         ["docs/ARCHITECTURE.md: `router/core/gone.c` is no file of the tree",
                          "docs/ARCHITECTURE.md: `ore.c` is no file of the tree"])

    def test_a_row_that_says_what_to_grep_for_is_tried(self):
        table = "| Question | File | `grep` for |\n|---|---|---|\n| A? | `a.c`, `b.c` | `one(` |\n| B? | `b.c` | `two` |\n"
        texts = {"a.c": "one(1)", "b.c": "three"}
        self.assertEqual(doc_links.greps_without_match({"docs/A.md": table + "\n| x | `a.c` | `four` |\n"}, texts.get),
                         ["docs/A.md: b.c: no two there"])

    def test_a_word_of_no_integration_test_is_named(self):
        text = "`run.py gone --long` `tests/integration/run.py --long two_clients old_name`: what they print, `run.py [--long]`\n"
        self.assertEqual(doc_links.tests_without_match({"docs/A.md": text}, ["test_one_client_is_served", "test_two_clients"]),
                         ["docs/A.md: run.py has no test whose name has gone", "docs/A.md: run.py has no test whose name has old_name"])


if __name__ == "__main__":
    unittest.main()
