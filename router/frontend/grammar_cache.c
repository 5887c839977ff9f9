/* SPDX-License-Identifier: Apache-2.0 */
#include "router/frontend/grammar_cache.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/containers.h"
#include "common/base/task.h"

#define N_BUCKETS 1024

typedef struct cache_key {
    bt_hash128_t space;
    bt_grammar_source_t source;
} cache_key_t;

typedef struct entry {
    bt_list_t by_hash;
    bt_list_t used; /* in bt_grammar_cache_t.used */
    cache_key_t key;
    char *text; /* of the key */
    uint8_t *program;
    size_t bytes;
    bt_status_t status;
    char *why;   /* NULL: success */
    size_t size; /* what counts for the limit */
} entry_t;

struct bt_grammar_cache {
    pthread_mutex_t lock;
    uint64_t seed;
    size_t max_bytes;
    size_t n_bytes;
    bt_list_t used; /* the least recently used first */
    bt_hmap_t by_hash;
    bt_list_t buckets[N_BUCKETS];
};

bt_status_t bt_grammar_cache_create(size_t max_bytes,
                                    bt_grammar_cache_t **cache_p)
{
    bt_grammar_cache_t *cache = bt_calloc(1, sizeof(*cache));

    if (cache == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    (void)pthread_mutex_init(&cache->lock, NULL);
    cache->seed = (uint64_t)(uintptr_t)cache;
    cache->max_bytes = max_bytes;
    bt_list_init(&cache->used);
    bt_hmap_init(&cache->by_hash, cache->buckets, N_BUCKETS);
    *cache_p = cache;
    return BT_OK;
}

static void entry_free(entry_t *entry)
{
    bt_free(entry->text);
    bt_free(entry->program);
    bt_free(entry->why);
    bt_free(entry);
}

static void drop(bt_grammar_cache_t *cache, entry_t *entry)
{
    bt_list_remove(&entry->used);
    bt_list_remove(&entry->by_hash);
    cache->n_bytes -= entry->size;
    entry_free(entry);
}

void bt_grammar_cache_destroy(bt_grammar_cache_t *cache)
{
    if (cache == NULL) {
        return;
    }
    while (!bt_list_empty(&cache->used)) {
        drop(cache, BT_CONTAINER_OF(cache->used.next, entry_t, used));
    }
    (void)pthread_mutex_destroy(&cache->lock);
    bt_free(cache);
}

/* Seeded, so that clients cannot fill one bucket. */
static uint64_t hash_of(const bt_grammar_cache_t *cache, const cache_key_t *key)
{
    const bt_grammar_source_t *s = &key->source;
    const uint64_t words[] = {key->space.lo, key->space.hi, (uint64_t)s->kind,
                              s->compact ? 1 : 0, s->lenient ? 1 : 0};

    return bt_hash64(s->text, s->bytes,
                     bt_hash64(words, sizeof(words), cache->seed));
}

/* The text itself counts, not its hash. */
static bool is_equal(bt_list_t *link, const void *key)
{
    const cache_key_t *a = &BT_CONTAINER_OF(link, entry_t, by_hash)->key;
    const cache_key_t *b = key;

    return bt_hash128_equal(a->space, b->space) &&
           (a->source.kind == b->source.kind) &&
           (a->source.compact == b->source.compact) &&
           (a->source.lenient == b->source.lenient) &&
           (a->source.bytes == b->source.bytes) &&
           ((a->source.bytes == 0) ||
            (memcmp(a->source.text, b->source.text, a->source.bytes) == 0));
}

/* With the lock. */
static entry_t *find(bt_grammar_cache_t *cache, const cache_key_t *key)
{
    bt_list_t *link =
        bt_hmap_find(&cache->by_hash, hash_of(cache, key), is_equal, key);

    return (link == NULL) ? NULL : BT_CONTAINER_OF(link, entry_t, by_hash);
}

bool bt_grammar_cache_has(bt_grammar_cache_t *cache, bt_hash128_t space,
                          const bt_grammar_source_t *source)
{
    const cache_key_t key = {.space = space, .source = *source};
    bool has;

    (void)pthread_mutex_lock(&cache->lock);
    has = find(cache, &key) != NULL;
    (void)pthread_mutex_unlock(&cache->lock);
    return has;
}

/* Copies what is known. @return false: nothing is; or there is no memory, then
 * the status says so */
static bool look_up(bt_grammar_cache_t *cache, const cache_key_t *key,
                    bt_grammar_made_t *made, bt_status_t *status_p)
{
    entry_t *entry;

    (void)pthread_mutex_lock(&cache->lock);
    entry = find(cache, key);
    if (entry != NULL) {
        bt_list_remove(&entry->used);
        bt_list_push_back(&cache->used, &entry->used);
        made->was_known = true;
        *status_p = entry->status;
        snprintf(made->why, sizeof(made->why), "%s",
                 (entry->why != NULL) ? entry->why : "");
    }
    if ((entry != NULL) && (entry->status == BT_OK)) {
        made->program = bt_memdup(entry->program, entry->bytes);
        made->bytes = entry->bytes;
        *status_p = (made->program != NULL) ? BT_OK : BT_ERR_NO_MEMORY;
    }
    (void)pthread_mutex_unlock(&cache->lock);
    return entry != NULL;
}

/* Makes an entry; NULL: no memory, it is not kept. */
static entry_t *entry_new(const cache_key_t *key, const bt_grammar_made_t *made,
                          bt_status_t status)
{
    entry_t *entry = bt_calloc(1, sizeof(*entry));

    if (entry == NULL) {
        return NULL;
    }
    entry->key = *key;
    entry->status = status;
    entry->bytes = made->bytes;
    entry->text = bt_memdup((key->source.text != NULL) ? key->source.text : "",
                            key->source.bytes);
    entry->key.source.text = entry->text;
    if (status == BT_OK) {
        entry->program = bt_memdup(made->program, made->bytes);
    } else {
        entry->why = bt_strdup(made->why);
    }
    if ((entry->text == NULL) ||
        ((entry->program == NULL) && (entry->why == NULL))) {
        entry_free(entry);
        return NULL;
    }
    entry->size = sizeof(*entry) + key->source.bytes +
                  ((status == BT_OK) ? made->bytes : strlen(made->why) + 1);
    return entry;
}

static void insert(bt_grammar_cache_t *cache, entry_t *entry)
{
    (void)pthread_mutex_lock(&cache->lock);
    if ((entry->size > cache->max_bytes) ||
        (find(cache, &entry->key) != NULL)) {
        entry_free(entry); /* another thread made it meanwhile */
    } else {
        while (cache->n_bytes + entry->size > cache->max_bytes) {
            drop(cache, BT_CONTAINER_OF(cache->used.next, entry_t, used));
        }
        cache->n_bytes += entry->size;
        bt_list_push_back(&cache->used, &entry->used);
        bt_hmap_insert(&cache->by_hash, hash_of(cache, &entry->key),
                       &entry->by_hash);
    }
    (void)pthread_mutex_unlock(&cache->lock);
}

/* Entries are of no request: the thread leaves its task for them. */
static void keep(bt_grammar_cache_t *cache, const cache_key_t *key,
                 const bt_grammar_made_t *made, bt_status_t status)
{
    bt_task_t own;
    bt_task_t *before;
    entry_t *entry;

    bt_task_init(&own);
    before = bt_task_enter(&own);
    entry = entry_new(key, made, status);
    if (entry != NULL) {
        insert(cache, entry);
    }
    bt_task_leave(before);
}

bt_status_t bt_grammar_cache_make(bt_grammar_cache_t *cache,
                                  bt_tenant_t *tenant, bt_hash128_t space,
                                  const bt_grammar_source_t *source,
                                  bt_grammar_made_t *made_p)
{
    const cache_key_t key = {.space = space, .source = *source};
    bt_status_t status = BT_OK;
    uint64_t start_ns;

    *made_p = (bt_grammar_made_t){.kind = source->kind};
    if (look_up(cache, &key, made_p, &status)) {
        return status;
    }
    if ((tenant != NULL) && !bt_tenant_may_compile(tenant, bt_now_us())) {
        return BT_ERR_BUSY;
    }
    start_ns = bt_task_cpu_ns();
    status = bt_grammar_compile(source, &made_p->program, &made_p->bytes,
                                made_p->why, sizeof(made_p->why));
    made_p->cpu_us = (bt_task_cpu_ns() - start_ns + 999) / 1000;
    if (tenant != NULL) {
        bt_tenant_charge_compile(tenant, made_p->cpu_us, bt_now_us());
    }
    if (status != BT_ERR_NO_MEMORY) {
        made_p->us = (made_p->cpu_us > 0) ? made_p->cpu_us : 1;
        keep(cache, &key, made_p, status);
    }
    return status;
}
