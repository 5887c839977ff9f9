/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/testsupport.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/process.h"

static void alloc_refuses_a_product_that_overflows(void **state)
{
    (void)state;
    assert_null(bt_calloc_aligned(SIZE_MAX, 2));
    assert_null(bt_realloc_array(NULL, SIZE_MAX, 2));
}

/* Source: proc(5), VmRSS of /proc/self/status, which is in KiB. */
static uint64_t status_resident_bytes(void)
{
    FILE *file = fopen("/proc/self/status", "r");
    unsigned long long kib = 0;
    char line[256];

    assert_non_null(file);
    while (fgets(line, sizeof(line), file) != NULL) {
        if (sscanf(line, "VmRSS: %llu kB", &kib) == 1) {
            break;
        }
    }
    fclose(file);
    return kib << 10;
}

static void process_use_reports_memory_and_cpu_time(void **state)
{
    const size_t bytes = 32u << 20;
    const bt_process_use_t before = bt_process_use();
    uint64_t deadline_ms = bt_now_ms() + 60000;
    uint8_t *memory = malloc(bytes);
    bt_process_use_t after;
    uint64_t said;

    (void)state;
    assert_non_null(memory);
    do {
        memset(memory, (int)(deadline_ms & 0xff), bytes);
        after = bt_process_use();
    } while ((after.cpu_ms < before.cpu_ms + 20) &&
             (bt_now_ms() < deadline_ms));
    said = status_resident_bytes();
    assert_true(after.cpu_ms >= before.cpu_ms + 20);
    assert_true(after.resident_bytes >= before.resident_bytes + bytes / 2);
    /* the kernel counts in batches of pages */
    assert_true(said + (4u << 20) > after.resident_bytes);
    assert_true(after.resident_bytes + (4u << 20) > said);
    free(memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(alloc_refuses_a_product_that_overflows),
        BT_TEST(process_use_reports_memory_and_cpu_time),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
