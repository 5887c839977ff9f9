/* SPDX-License-Identifier: Apache-2.0 */
#include "router/observe/ids.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "common/base/log.h"

bt_status_t bt_ids_init(bt_ids_t *ids)
{
    ids->n = 0;
    if (getrandom(ids->seed, sizeof(ids->seed), 0) !=
        (ssize_t)sizeof(ids->seed)) {
        BT_LOG_ERROR("cannot read random numbers: %m");
        return BT_ERR_IO;
    }
    return BT_OK;
}

/* Finalizer of splitmix64: a bijection, so ids of one seed are unique. Source:
 * Steele, Lea, Flood 2014. */
static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static void new_bytes(uint64_t seed, uint64_t n, uint8_t out[8])
{
    uint64_t x = mix(seed + n * 0x9e3779b97f4a7c15u);

    if (x == 0) {
        x = 1; /* all zero means none */
    }
    memcpy(out, &x, sizeof(x));
}

void bt_ids_next8(bt_ids_t *ids, uint8_t id[8])
{
    new_bytes(ids->seed[0], ids->n++, id);
}

void bt_ids_next16(bt_ids_t *ids, uint8_t id[16])
{
    const uint64_t n = ids->n++;

    new_bytes(ids->seed[0], n, id);
    new_bytes(ids->seed[1], n, id + 8);
}

static bool is_good(const char *given)
{
    size_t n = 0;

    while ((given[n] > ' ') && (given[n] <= '~') && (n <= BT_REQUEST_ID_MAX)) {
        n++;
    }
    return (given[n] == '\0') && (n >= 1) && (n <= BT_REQUEST_ID_MAX);
}

void bt_request_id(bt_ids_t *ids, const char *given,
                   char id[BT_REQUEST_ID_BYTES])
{
    uint64_t words[2];

    if ((given != NULL) && is_good(given)) {
        memcpy(id, given, strlen(given) + 1);
        return;
    }
    bt_ids_next16(ids, (uint8_t *)words);
    snprintf(id, BT_REQUEST_ID_BYTES, "%016" PRIx64 "%016" PRIx64, words[0],
             words[1]);
}

void bt_trace_id_print(const uint8_t id[BT_TRACE_ID_BYTES],
                       char text[BT_TRACE_ID_TEXT_BYTES])
{
    uint8_t any = 0;

    for (size_t i = 0; i < BT_TRACE_ID_BYTES; i++) {
        snprintf(text + 2 * i, 3, "%02x", id[i]);
        any |= id[i];
    }
    if (any == 0) {
        text[0] = '\0';
    }
}
