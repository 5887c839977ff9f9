/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/_half.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/kv/kv_groups.h"

void bt_half_die(bt_status_t status, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    fprintf(stderr, "%s: ", program_invocation_short_name);
    vfprintf(stderr, fmt, args);
    if (status != BT_OK) {
        fprintf(stderr, ": %s", bt_status_str(status));
    }
    fprintf(stderr, "\n");
    va_end(args);
    exit(1);
}

void bt_half_must(bt_status_t status, const char *what)
{
    if (status != BT_OK) {
        bt_half_die(status, "%s", what);
    }
}

void *bt_half_zeros(size_t n, size_t bytes)
{
    void *ptr = bt_calloc(n, bytes);

    if (ptr == NULL) {
        bt_half_die(BT_ERR_NO_MEMORY, "%zu x %zu bytes", n, bytes);
    }
    return ptr;
}

uint32_t bt_half_number(const char *text, uint32_t min, uint32_t max)
{
    char *end = NULL;
    unsigned long long value;

    errno = 0;
    value = (text == NULL) ? 0 : strtoull(text, &end, 10);
    if ((text == NULL) || (errno != 0) || (end == text) || (*end != '\0') ||
        (value < min) || (value > max)) {
        bt_half_die(BT_OK, "%s is not a number from %u to %u",
                    (text == NULL) ? "nothing" : text, min, max);
    }
    return (uint32_t)value;
}

uint32_t bt_half_command(const char *words[BT_HALF_MAX_WORDS])
{
    static char line[1024];
    uint32_t n = 0;
    char *rest = line;
    char *word;

    fflush(stdout);
    if (fgets(line, sizeof(line), stdin) == NULL) {
        return 0;
    }
    while ((word = strsep(&rest, " \n")) != NULL) {
        if (*word == '\0') {
            continue;
        }
        if (n == BT_HALF_MAX_WORDS) {
            bt_half_die(BT_OK, "too many words in a command");
        }
        words[n++] = word;
    }
    if (n == 0) {
        bt_half_die(BT_OK, "empty command");
    }
    for (uint32_t i = n; i < BT_HALF_MAX_WORDS; i++) {
        words[i] = NULL;
    }
    return n;
}

void bt_half_limit(bt_limits_t *limits, const char *name, uint32_t ms)
{
    bt_limit_rate_t rate;
    bt_status_t status;
    int what = 0;

    while ((what < BT_LIMIT_COUNT) &&
           (strcmp(name, bt_limit_names[what]) != 0)) {
        what++;
    }
    if (what == BT_LIMIT_COUNT) {
        bt_half_die(BT_OK, "no limit is called %s", name);
    }
    status = bt_limits_measure(limits, (bt_limit_t)what, ms, &rate);
    if (status == BT_ERR_UNSUPPORTED) {
        printf("{\"limit\": \"%s\", \"isa\": null, \"best\": 0, \"median\": "
               "0}\n",
               name);
        return;
    }
    if (status != BT_OK) {
        bt_half_die(status, "limit %s", name);
    }
    printf("{\"limit\": \"%s\", \"isa\": \"%s\", \"best\": %.6g, \"median\": "
           "%.6g}\n",
           name, rate.isa, rate.best, rate.median);
}

bt_kv_view_t bt_half_kv(bt_backend_t *be, bt_kv_type_t type, uint32_t n_layers,
                        uint32_t n_kv_heads, uint32_t head_dim,
                        uint32_t tokens_per_block, uint32_t n_blocks)
{
    const bt_kv_type_info_t *const info = bt_kv_type_info(type);
    const bt_kv_shape_t shape = {.n_layers = n_layers,
                                 .n_kv_heads = n_kv_heads,
                                 .tokens_per_block = tokens_per_block,
                                 .head_dim = head_dim,
                                 .elem_bytes = info->elem_bytes,
                                 .scale_bytes = info->scale_bytes};
    bt_kv_view_t kv = {.type = type,
                       .n_layers = n_layers,
                       .n_kv_heads = n_kv_heads,
                       .head_dim = head_dim,
                       .tokens_per_block = tokens_per_block};
    bt_status_t status = bt_kv_block_bytes(&shape, &kv.block_bytes);

    if (status == BT_OK) {
        status = be->ops->buffer_alloc(be, kv.block_bytes * n_blocks, &kv.base);
    }
    if (status != BT_OK) {
        bt_half_die(status, "a KV cache of %u blocks", n_blocks);
    }
    return kv;
}

uint32_t bt_half_random(uint64_t *state, uint32_t n)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (uint32_t)(((z ^ (z >> 31)) >> 32) * n >> 32);
}
