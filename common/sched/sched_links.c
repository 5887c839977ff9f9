/* SPDX-License-Identifier: Apache-2.0 */
#include "common/sched/sched_links.h"

#include <string.h>

#include "common/base/alloc.h"

bt_status_t bt_sched_links_add(bt_sched_links_t *links, uint32_t number)
{
    const uint32_t word = number / 64;

    if (bt_sched_links_has(links, number)) {
        return BT_OK;
    }
    if (word >= links->n_words) {
        uint64_t *grown =
            bt_realloc_array(links->words, word + 1, sizeof(*grown));

        if (grown == NULL) {
            return BT_ERR_NO_MEMORY;
        }
        memset(grown + links->n_words, 0,
               (word + 1 - links->n_words) * sizeof(*grown));
        links->words = grown;
        links->n_words = word + 1;
    }
    links->words[word] |= UINT64_C(1) << (number % 64);
    links->n++;
    return BT_OK;
}

void bt_sched_links_remove(bt_sched_links_t *links, uint32_t number)
{
    if (bt_sched_links_has(links, number)) {
        links->words[number / 64] &= ~(UINT64_C(1) << (number % 64));
        links->n--;
    }
}

uint32_t bt_sched_links_free(const bt_sched_links_t *links)
{
    for (uint32_t i = 0; i < links->n_words; i++) {
        if (links->words[i] != UINT64_MAX) {
            return i * 64 + (uint32_t)__builtin_ctzll(~links->words[i]);
        }
    }
    return links->n_words * 64;
}

void bt_sched_links_fini(bt_sched_links_t *links)
{
    bt_free(links->words);
    *links = (bt_sched_links_t){0};
}
