# SPDX-License-Identifier: Apache-2.0
import unittest

import tests_by_path

PATHS = ["router/core/attempt.c", "router/core/kv_links.c", "router/core/rows.c", "router/net/rows.c", "launcher/plan.c",
         "tests/unit/router/core/test_attempt_life.c", "tests/unit/router/core/test_kv.c", "tests/unit/router/core/test_row.c",
         "tests/launch/test_plan.c", "bench/_load.c", "tests/support/a.c", "kernels/cuda/b.cu"]


class TestsByPathTest(unittest.TestCase):
    def test_a_source_without_a_test_in_its_folder_is_found(self):
        self.assertEqual(tests_by_path.without_test(PATHS), ["router/core/rows.c", "router/net/rows.c"])

    def test_a_new_source_without_a_test_is_a_reason_and_a_listed_one_is_not(self):
        self.assertEqual(tests_by_path.check(PATHS, "# old\nrouter/core/rows.c\n"),
                         ["router/net/rows.c has no test: tests/unit/router/net/test_rows.c"])

    def test_a_line_that_is_not_needed_is_a_reason(self):
        reasons = tests_by_path.check(PATHS, "router/core/attempt.c\nrouter/core/gone.c\nrouter/core/rows.c\nrouter/net/rows.c\n")
        self.assertEqual([reason.split(" is ")[0] for reason in reasons],
                         [f"{tests_by_path.LIST}: router/core/attempt.c", f"{tests_by_path.LIST}: router/core/gone.c"])

    def test_the_list_is_sorted(self):
        self.assertEqual(tests_by_path.check(PATHS, "router/net/rows.c\nrouter/core/rows.c\n"), [f"{tests_by_path.LIST} is not sorted"])


if __name__ == "__main__":
    unittest.main()
