/* SPDX-License-Identifier: Apache-2.0 */
/** @file grammar_cache.h
 *
 * Compiled grammars of structured output (common/grammar/compile.h), so that
 * requests with an equal description compile it once.
 *
 *     space, kind, options, text ─┬ known ───▶ a copy of its program, or the
 *                                 │            reason why there is none
 *                                 └ compile ──▶ kept; the least recently used
 *                                               ones are dropped
 *
 * A description that is refused is kept with its reason, since it may take as
 * long to refuse. Clients of different namespaces share no entry: nobody can
 * tell from the time of an answer what others asked for.
 *
 * A compilation whose client leaves is canceled (task.h) and not kept. Equal
 * ones that begin at the same time run each by itself, so nobody waits for what
 * another client cancels.
 *
 * Threads: any; compilations run at the same time. Some 50 ms at most each, so
 *          the pool makes those that bt_grammar_cache_has() does not find.
 */
#ifndef BT_ROUTER_FRONTEND_GRAMMAR_CACHE_H
#define BT_ROUTER_FRONTEND_GRAMMAR_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/hash.h"
#include "common/base/status.h"
#include "common/grammar/compile.h"
#include "router/tenants/tenants.h"

typedef struct bt_grammar_cache bt_grammar_cache_t;

/** Compiled grammar. */
typedef struct bt_grammar_made {
    uint8_t *program; /**< for bt_free(); NULL on failure */
    size_t bytes;
    bt_grammar_kind_t kind; /**< kind of the source */
    bool was_known;
    uint64_t us; /**< CPU time of the compilation, at least 1; 0: none was made
                      to its end */
    uint64_t cpu_us;                /**< CPU time that was charged */
    char why[BT_GRAMMAR_WHY_BYTES]; /**< on failure a sentence */
} bt_grammar_made_t;

/** @param [in] max_bytes  of texts, programs and reasons */
BT_MUST_CHECK bt_status_t bt_grammar_cache_create(size_t max_bytes,
                                                  bt_grammar_cache_t **cache_p);
void bt_grammar_cache_destroy(
    bt_grammar_cache_t *cache); /**< NULL is allowed */

/** True when bt_grammar_cache_make() will hardly take any time. */
bool bt_grammar_cache_has(bt_grammar_cache_t *cache, bt_hash128_t space,
                          const bt_grammar_source_t *source);
/** Finds or compiles a grammar.
 *  @param [in,out] tenant  charged for the compilation; NULL: nobody is
 *  @param [out] made_p     always written
 *  @retval BT_ERR_BUSY  not known, and the tenant may compile none now
 *  @retval any of bt_grammar_compile(); BT_ERR_NO_MEMORY: also where the
 *          thread's task is canceled */
BT_MUST_CHECK bt_status_t bt_grammar_cache_make(
    bt_grammar_cache_t *cache, bt_tenant_t *tenant, bt_hash128_t space,
    const bt_grammar_source_t *source, bt_grammar_made_t *made_p);

#endif
