/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/worker_priv.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/hash.h"
#include "common/base/log.h"
#include "common/base/status.h"
#include "common/kv/kv_groups.h"
#include "worker/fanout.h"
#include "worker/prompt_rows.h"

void bt_jobs_init(bt_worker_t *w)
{
    bt_list_init(&w->jobs);
    bt_list_init(&w->row_output.rows);
    bt_hmap_init(&w->jobs_by_key, w->job_buckets, BT_WORKER_JOB_BUCKETS);
}

typedef struct job_key {
    const bt_worker_link_t *from;
    bt_req_key_t key;
} job_key_t;

static uint64_t hash_of(const bt_worker_link_t *from, bt_req_key_t key)
{
    const uint64_t words[] = {key.id, key.attempt, (uint64_t)(uintptr_t)from};

    return bt_hash64(words, sizeof(words), 0);
}

static bool is_job(bt_list_t *link, const void *key)
{
    const bt_job_t *job = BT_CONTAINER_OF(link, bt_job_t, by_key);
    const job_key_t *want = key;

    return (job->from == want->from) && (job->key.id == want->key.id) &&
           (job->key.attempt == want->key.attempt);
}

bt_job_t *bt_worker_job_find(bt_worker_t *w, const bt_worker_link_t *from,
                             bt_req_key_t key)
{
    const job_key_t want = {.from = from, .key = key};
    bt_list_t *link =
        bt_hmap_find(&w->jobs_by_key, hash_of(from, key), is_job, &want);

    return (link == NULL) ? NULL : BT_CONTAINER_OF(link, bt_job_t, by_key);
}

bt_job_t *bt_worker_job_of_seq(bt_seq_t *seq)
{
    return BT_CONTAINER_OF(seq, bt_job_t, seq);
}

static void job_free(bt_job_t *job)
{
    bt_logprob_output_free(job);
    bt_ngram_drafter_destroy(job->drafter);
    bt_beams_destroy(job->seq.beams);
    bt_job_grammar_release(job->grammar);
    if (job->adapter != NULL) {
        job->adapter->n_jobs--;
    }
    bt_free(job->draft_ids);
    bt_free(job->table);
    bt_free(job->seq.tokens);
    bt_free(job->block_ids);
    bt_free(job->processor_ids);
    bt_free(job->logit_biases);
    bt_free(job->bad_words);
    bt_free(job);
}

/* Together the roles handle every kind. */
static uint32_t handler_of(const bt_worker_t *w, uint32_t kind)
{
    const bool is_first = ((w->ops[0]->kinds >> kind) & 1u) != 0;

    BT_ASSERT(is_first || (((w->ops[1]->kinds >> kind) & 1u) != 0));
    return is_first ? 0 : 1;
}

/* Leases leave prefill a share where both come, also while jobs of a former
 * role are left. */
void bt_jobs_reserve(bt_worker_t *w)
{
    const bool has_both = (w->roles == BT_ROLES_BOTH) ||
                          ((w->n_kind[0] > 0) && (w->n_kind[1] > 0));
    const uint32_t n_spans =
        bt_kv_blocks_for(w->context_tokens, w->tokens_per_block);

    bt_sched_admit_reserve(&w->admit,
                           has_both ? (uint32_t)bt_window_eviction_most_blocks(
                                          w, BT_SCHED_CONTEXT, n_spans)
                                    : 0);
}

static void count_job(bt_worker_t *w, const bt_job_t *job, int by)
{
    w->n_jobs += (uint32_t)by;
    w->n_kind[handler_of(w, job->kind)] += (uint32_t)by;
    bt_jobs_reserve(w);
}

/* @return NULL, or why a request with beams can never run here */
static const char *why_no_beams(const bt_worker_t *w,
                                const bt_msg_request_t *msg)
{
    const bt_sched_beam_params_t *beams = &msg->beams;
    const uint32_t what = msg->wants.what & ~BT_WANT_LOGPROBS;

    if (!bt_fanout_is_possible(w)) {
        return "this model cannot search with beams: its layers have attention "
               "windows or a state";
    }
    if (msg->grammar_bytes > 0) {
        return "beam search and structured output do not go together";
    }
    if ((msg->kind == BT_REQUEST_PREFILL) || (msg->fanout != 0) ||
        (what != 0) || (msg->wants.n_top != 0) ||
        (msg->n_prompt != msg->n_tokens) || (beams->n_returned == 0) ||
        (beams->n_returned > beams->width) ||
        (beams->width > BT_SCHED_MAX_BEAMS) ||
        !(beams->length_penalty >= -BT_SCHED_MAX_LENGTH_PENALTY) ||
        !(beams->length_penalty <= BT_SCHED_MAX_LENGTH_PENALTY) ||
        (beams->early_stopping > BT_SCHED_BEAM_STOP_NEVER) ||
        (msg->max_new > BT_WIRE_MAX_BLOB / sizeof(double))) {
        return "the parameters of the beam search do not fit together";
    }
    return NULL;
}

/* Compares a request with what this worker can ever provide. @return NULL, or
 * why the request can never run here */
static const char *why_never(const bt_worker_t *w, const bt_msg_request_t *msg)
{
    const uint32_t n_vocab = bt_model_hparams(w->model)->n_vocab;
    const char *why;
    uint64_t total;

    if ((msg->kind != BT_REQUEST_LOCAL) && (msg->peer == 0)) {
        return "the request names no other worker";
    }
    /* A prefill for one token sends nothing, and names this worker itself. */
    if ((msg->peer == w->instance) && (msg->max_new > 1)) {
        return "the request names this worker as the other one";
    }
    if ((msg->n_tokens == 0) || (msg->max_new == 0) ||
        (msg->n_prompt > msg->n_tokens)) {
        return "token counts do not fit together";
    }
    /* A prefill worker makes one token, however many are asked for. */
    total = (uint64_t)msg->n_tokens +
            ((msg->kind == BT_REQUEST_PREFILL) ? 1 : msg->max_new);
    if (total > w->context_tokens) {
        return "prompt and output exceed the context of this worker";
    }
    for (uint32_t i = 0; i < msg->n_tokens; i++) {
        if ((msg->tokens[i] >= n_vocab) &&
            (msg->tokens[i] - BT_TABLE_TOKEN >= bt_table_n_rows(&msg->table))) {
            return "a token id is not in the vocabulary";
        }
    }
    why = (msg->table.bytes > 0) ? bt_prompt_rows_refusal(w->model, msg) : NULL;
    if (why != NULL) {
        return why;
    }
    return (msg->beams.width == 0) ? NULL : why_no_beams(w, msg);
}

static bt_status_t copy_biases(bt_job_t *job, const bt_sampling_t *sampling)
{
    const uint32_t n = sampling->n_logit_biases;

    job->seq.sampling.logit_biases = NULL;
    if (n == 0) {
        return BT_OK;
    }
    job->logit_biases =
        bt_memdup(sampling->logit_biases, n * sizeof(*job->logit_biases));
    if (job->logit_biases == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    job->seq.sampling.logit_biases = job->logit_biases;
    job->bias_processor = bt_logit_bias_processor(&job->seq.sampling);
    job->seq.processors = &job->bias_processor;
    job->seq.n_processors = 1;
    return BT_OK;
}

static bt_status_t copy_processor_ids(bt_job_t *job,
                                      const bt_processor_options_t *options)
{
    const size_t bytes = (size_t)options->n_ids * sizeof(*options->ids);

    job->seq.sampling.processors.ids = NULL;
    if (bytes == 0) {
        return BT_OK;
    }
    job->processor_ids = bt_memdup(options->ids, bytes);
    job->seq.sampling.processors.ids = job->processor_ids;
    return (job->processor_ids != NULL) ? BT_OK : BT_ERR_NO_MEMORY;
}

/* Clears entries of the block table. */
static void forget(bt_job_t *job, uint32_t first, uint32_t end)
{
    for (uint32_t i = first; i < end; i++) {
        job->block_ids[i] = BT_KV_NO_BLOCK;
    }
}

void bt_job_claim_blocks(const bt_worker_t *w, bt_job_t *job)
{
    bt_kv_reach_t reach;

    /* A prefill holds all that it needs from the beginning; a model of windowed
     * layers only does not grow. */
    job->n_begin =
        ((job->claim.want == BT_SCHED_CONTEXT) || (w->n_whole == 0) ||
         (job->beam_params.width > 0))
            ? job->grower.n_most
            : bt_sched_preempt_begins_with(&w->preemption.sched, &job->grower);
    reach = bt_window_eviction_reach(w, job, job->n_begin);
    job->claim.n_blocks = (uint32_t)bt_kv_reach_blocks(&w->groups, &reach);
}

/* Sets the token limit of the sequence; a full table needs none. */
static void set_kv_limit(const bt_worker_t *w, bt_job_t *job)
{
    const uint32_t end = bt_kv_hold_end(&w->groups, &job->hold);

    bt_seq_set_kv_limit(
        &job->seq, (end == job->grower.n_most) ? 0 : end * w->tokens_per_block);
}

/* Ids beyond the context are of no answer. */
static bt_status_t copy_draft_ids(const bt_worker_t *w, bt_job_t *job,
                                  const bt_msg_request_t *msg)
{
    const uint32_t n = (msg->n_draft_ids < w->context_tokens)
                           ? msg->n_draft_ids
                           : w->context_tokens;

    job->seq.max_drafts = msg->max_drafts;
    if ((n == 0) || (msg->max_drafts == 0)) {
        return BT_OK;
    }
    job->draft_ids = bt_memdup(msg->draft_ids, n * sizeof(*job->draft_ids));
    job->n_draft_ids = n;
    return (job->draft_ids != NULL) ? BT_OK : BT_ERR_NO_MEMORY;
}

void bt_worker_job_draft(bt_worker_t *w, bt_job_t *job)
{
    const bool shares = (job->seq.space.lo == 0) && (job->seq.space.hi == 0);
    const bt_ngram_drafter_config_t config = {
        .n_prompt = job->seq.n_prompt,
        .max_tokens = job->n_tokens + job->max_new,
        .predicted_ids = job->draft_ids,
        .n_predicted = job->n_draft_ids,
        .corpus = shares ? w->corpus : NULL,
    };

    if ((bt_worker_max_drafts(w) == 0) || (job->kind == BT_REQUEST_PREFILL) ||
        (job->max_new < 2) || (job->seq.max_drafts == 0) ||
        (job->seq.beams != NULL) || (job->drafter != NULL)) {
        return;
    }
    job->seq.grammar_drafts = true;
    job->seq.model_drafts = job->table == NULL; /* it has no such rows */
    if (bt_ngram_drafter_create(&config, &job->drafter) == BT_OK) {
        job->seq.drafter = bt_ngram_drafter_hook(job->drafter);
    } else {
        BT_LOG_WARN("request %" PRIu64 ": no memory for drafts, none are made",
                    job->key.id);
    }
}

static bt_status_t copy_arrays(const bt_worker_t *w, bt_job_t *job,
                               const bt_msg_request_t *msg)
{
    const uint32_t n_bad = msg->sampling.n_bad_words;
    bt_status_t status;
    uint32_t n_blocks;

    job->seq.tokens = bt_calloc((size_t)msg->n_tokens + msg->max_new,
                                sizeof(*job->seq.tokens));
    if (job->seq.tokens == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    memcpy(job->seq.tokens, msg->tokens,
           msg->n_tokens * sizeof(*job->seq.tokens));
    n_blocks = job->grower.n_most * w->groups.n; /* of 2^21 tokens */
    job->block_ids = bt_calloc(n_blocks, sizeof(*job->block_ids));
    if (job->block_ids == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    forget(job, 0, n_blocks);
    if (n_bad > 0) {
        job->bad_words = bt_calloc(n_bad, sizeof(*job->bad_words));
        if (job->bad_words == NULL) {
            return BT_ERR_NO_MEMORY;
        }
        memcpy(job->bad_words, msg->sampling.bad_words,
               n_bad * sizeof(*job->bad_words));
    }
    job->seq.sampling.bad_words = job->bad_words;
    job->seq.blocks = job->block_ids;
    status = copy_processor_ids(job, &msg->sampling.processors);
    if ((status == BT_OK) && (msg->table.bytes > 0)) {
        status = bt_prompt_rows_copy(&msg->table, &job->table);
        job->seq.table = job->table;
        job->seq.n_table_rows = msg->table.n;
    }
    return (status == BT_OK) ? copy_biases(job, &msg->sampling) : status;
}

static bt_status_t create_beams(const bt_worker_t *w, bt_job_t *job,
                                const bt_msg_request_t *msg)
{
    const bt_beams_config_t config = {
        .params = msg->beams,
        .tokens = msg->tokens,
        .n_tokens = msg->n_tokens,
        .max_new = msg->max_new,
        .n_end_ids = msg->sampling.n_end_ids,
        .tokens_per_block = w->tokens_per_block,
        .n_vocab = bt_model_hparams(w->model)->n_vocab,
    };

    return (msg->beams.width == 0) ? BT_OK
                                   : bt_beams_create(&config, &job->seq.beams);
}

static bt_status_t take_grammar(bt_worker_t *w, bt_job_t *job,
                                const bt_msg_request_t *msg, const char **why_p)
{
    bt_status_t status;

    if (msg->grammar_bytes == 0) {
        return BT_OK;
    }
    if (w->grammars == NULL) {
        *why_p = "this worker has no vocabulary for structured output";
        return BT_ERR_UNSUPPORTED;
    }
    status = bt_grammars_take(w->grammars, msg->space, msg->grammar,
                              msg->grammar_bytes, msg->complete_within > 0,
                              why_p, &job->grammar);
    if (status == BT_OK) {
        job->seq.grammar.matcher = bt_job_grammar_matcher(job->grammar);
        job->seq.grammar.trie = bt_grammars_trie(w->grammars);
        job->seq.grammar.max_tokens = msg->complete_within;
    }
    /* Another worker reads the program in the same way. */
    return (status == BT_ERR_BAD_MESSAGE) ? BT_ERR_INVALID_PARAM : status;
}

static bt_sched_want_t want_of(uint32_t kind)
{
    static const bt_sched_want_t wants[] = {
        [BT_REQUEST_PREFILL] = BT_SCHED_CONTEXT,
        [BT_REQUEST_GENERATE] = BT_SCHED_LEASE,
        [BT_REQUEST_LOCAL] = BT_SCHED_BOTH_PHASES,
    };

    return wants[kind];
}

/* Time of an answer of max_new tokens alone in the batch, and of its prompt if
 * that is computed here: used to compare lengths within one batch. */
static uint64_t answer_us(const bt_worker_t *w, const bt_job_t *job,
                          uint64_t prompt_us)
{
    const bt_sched_step_t step = {
        .n_seqs = 1, .reads = (uint64_t)job->n_tokens + job->max_new / 2};
    const double us = job->max_new * bt_sched_cost_step_us(&w->cost, &step);
    const uint64_t most_us = 1000ull * BT_SCHED_SLACK_MS;

    return ((job->kind == BT_REQUEST_LOCAL) ? prompt_us : 0) +
           ((us < (double)most_us) ? (uint64_t)us : most_us);
}

/* Slack of a prompt without any cached prefix; cached blocks are found only
 * when it begins. */
static uint64_t slack_of(const bt_worker_t *w, const bt_job_t *job,
                         uint64_t first_us)
{
    const bt_sched_order_t order =
        (job->claim.want == BT_SCHED_CONTEXT) ? w->order : w->decode_order;
    const uint64_t whole_us = bt_sched_cost_prompt_us(
        &w->cost, 0, job->n_tokens, bt_worker_most_chunk(w));
    const bt_sched_work_t work = {
        .since_us = job->claim.turn.since_us,
        .deadline_us = (first_us != 0) ? first_us : UINT64_MAX,
        .whole_us = whole_us,
        .left_us = whole_us,
        .answer_us = answer_us(w, job, whole_us),
    };

    return bt_sched_slack_us(order, &work);
}

static void fill_job(const bt_worker_t *w, bt_job_t *job,
                     bt_worker_link_t *from, const bt_msg_request_t *msg)
{
    uint64_t first_us; /* deadline for deadline-based orders; 0: none */

    bt_list_init(&job->link);
    bt_list_init(&job->by_key);
    bt_list_init(&job->followers);
    bt_list_init(&job->in_fanout);
    job->from = from;
    job->key = msg->key;
    job->cache_epoch = w->cache_epoch;
    job->kind = msg->kind;
    job->peer = msg->peer;
    job->n_tokens = msg->n_tokens;
    job->max_new = msg->max_new;
    job->claim.want = want_of(msg->kind);
    job->beam_params = msg->beams;
    job->claim.more_seats = bt_job_seats(job) - 1;
    job->tells_logprobs = (msg->wants.what & BT_WANT_LOGPROBS) != 0;
    bt_sched_turn_init(&job->claim.turn, msg->priority, bt_now_us());
    bt_sched_turn_init(&job->grower.turn, msg->priority,
                       job->claim.turn.since_us);
    job->grower.n_known = msg->n_tokens;
    job->deadline_us = (msg->deadline_ms == 0) ? UINT64_MAX
                                               : job->claim.turn.since_us +
                                                     1000ull * msg->deadline_ms;
    first_us = (msg->deadline_ms == 0) ? 0 : job->deadline_us;
    if (msg->first_ms != 0) { /* the first-token target, which is no later than
                               * the deadline */
        first_us = job->claim.turn.since_us + 1000ull * msg->first_ms;
    }
    job->slack_us = slack_of(w, job, first_us);
    job->claim.turn.slack_us = job->slack_us;
    job->seq.user = job;
    job->seq.n_prompt = msg->n_prompt;
    job->seq.max_new = msg->max_new;
    job->seq.itl_us = 1000ull * msg->itl_ms;
    job->seq.first_index = msg->n_tokens - msg->n_prompt;
    job->seq.sampling = msg->sampling;
    job->seq.space = msg->space;
    bt_sched_turn_init(&job->seq.sched.turn, msg->priority,
                       job->claim.turn.since_us);
    job->seq.sched.n_tokens = msg->n_tokens;
    job->seq.sched.deadline_us = first_us;
}

static bt_status_t take_adapter(bt_worker_t *w, bt_job_t *job,
                                const bt_msg_request_t *msg, const char **why_p)
{
    if ((msg->adapter.lo == 0) && (msg->adapter.hi == 0)) {
        return BT_OK;
    }
    job->adapter = bt_adapters_find(w, msg->adapter);
    if (job->adapter == NULL) {
        *why_p = "this worker does not have the request's LoRA adapter";
        return BT_ERR_NOT_FOUND;
    }
    job->adapter->n_jobs++;
    job->seq.lora = job->adapter->lora;
    return BT_OK;
}

bt_status_t bt_job_create(bt_worker_t *w, bt_worker_link_t *from,
                          const bt_msg_request_t *msg, bt_job_t **job_p,
                          const char **why_p)
{
    const bt_worker_ops_t *ops = w->ops[handler_of(w, msg->kind)];
    bt_status_t status;
    bt_job_t *job;

    *why_p = why_never(w, msg);
    if (*why_p != NULL) {
        return BT_ERR_INVALID_PARAM;
    }
    if (bt_worker_job_find(w, from, msg->key) != NULL) {
        *why_p = "this request and attempt is already here";
        return BT_ERR_EXISTS;
    }
    job = bt_calloc(1, ops->job_bytes);
    if (job == NULL) {
        *why_p = "out of memory";
        return BT_ERR_NO_MEMORY;
    }
    job->ops = ops;
    fill_job(w, job, from, msg);
    job->grower.n_most = ops->spans_needed(w, job);
    bt_job_claim_blocks(w, job);
    status = copy_arrays(w, job, msg);
    if (status == BT_OK) {
        status = copy_draft_ids(w, job, msg);
    }
    if (status == BT_OK) {
        status = create_beams(w, job, msg);
    }
    if (status != BT_OK) {
        *why_p = "out of memory";
        goto err_job;
    }
    status = take_grammar(w, job, msg, why_p);
    if (status == BT_OK) {
        status = take_adapter(w, job, msg, why_p);
    }
    if (status != BT_OK) {
        goto err_job;
    }
    if (job->seq.beams == NULL) { /* else it keeps its log-probs itself */
        status = bt_logprob_output_create(w, job, &msg->wants, why_p);
    }
    if (status != BT_OK) {
        goto err_job;
    }
    if (bt_job_seats(job) > w->max_seqs) {
        *why_p = "the request has more beams than this worker has seats";
        status = BT_ERR_NO_BLOCKS;
        goto err_job;
    }
    if (bt_window_eviction_most_blocks(w, job->claim.want, job->grower.n_most) >
        w->n_blocks) {
        *why_p = "the request needs more KV blocks than this worker has";
        status = BT_ERR_NO_BLOCKS;
        goto err_job;
    }
    bt_list_push_back(&w->jobs, &job->link);
    bt_hmap_insert(&w->jobs_by_key, hash_of(from, msg->key), &job->by_key);
    count_job(w, job, 1);
    *job_p = job;
    return BT_OK;

err_job:
    job_free(job);
    return status;
}

/* Evicts from the prefix cache where free blocks are too few. */
static void make_free(bt_worker_t *w, uint32_t n)
{
    const uint32_t n_free = bt_kv_pool_n_free(w->pool);

    if ((n > n_free) && (n - n_free <= bt_kv_pool_n_idle(w->pool))) {
        (void)bt_kv_prefix_evict(w->prefix, n - n_free);
    }
}

static void make_ready(bt_worker_t *w, const uint32_t *ids, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        bt_kvt_pool_ready(w->kvt, ((uint64_t)ids[i] + 1) * w->block_bytes);
    }
}

static bt_status_t acquire(bt_worker_t *w, uint32_t n, uint32_t *ids)
{
    bt_status_t status;

    make_free(w, n);
    status = bt_kv_pool_acquire(w->pool, n, ids);
    if (status == BT_OK) {
        make_ready(w, ids, n);
    }
    return status;
}

bt_status_t bt_job_reach(bt_worker_t *w, bt_job_t *job,
                         const bt_kv_reach_t *reach)
{
    const uint32_t n = bt_kv_hold_lacks(&w->groups, &job->hold, reach);
    const bt_status_t status = acquire(w, n, w->acquired);

    if (status != BT_OK) {
        return status;
    }
    bt_kv_hold_fill(&w->groups, w->pool, &job->hold, reach, w->acquired,
                    job->block_ids);
    job->grower.n_held = reach->n_spans;
    set_kv_limit(w, job);
    return BT_OK;
}

bt_status_t bt_job_grow(bt_worker_t *w, bt_job_t *job, uint32_t n_spans)
{
    bt_kv_reach_t reach =
        bt_window_eviction_reach(w, job, job->grower.n_held + n_spans);

    reach.ahead_tokens = 0; /* windows move by themselves */
    return bt_job_reach(w, job, &reach);
}

uint32_t bt_job_free_blocks(const bt_worker_t *w)
{
    return bt_kv_pool_n_available(w->pool);
}

/* Token #1 is sampled from the last token, and later tokens from the last known
 * one: so a prefill has at least that one to compute, and its block to send.
 * Rows not filled yet are filled where their positions are computed. */
static uint32_t most_reused(const bt_job_t *job)
{
    const bt_seq_rows_t *rows = job->seq.rows;
    uint32_t n_tokens = job->grower.n_known - 1;

    if (rows != NULL) {
        const uint32_t first =
            (rows->done > rows->from) ? rows->done : rows->from;

        n_tokens = (first < n_tokens) ? first : n_tokens;
    }
    return n_tokens;
}

void bt_job_hold_known(bt_worker_t *w, bt_job_t *job)
{
    /* The prompt's tail comes from another worker, if not all of it is cached.
     */
    const uint32_t n_known =
        (job->claim.want == BT_SCHED_LEASE) ? job->n_tokens : 0;

    BT_ASSERT(!job->has_blocks);
    job->n_reused = 0;
    if (job->claim.want != BT_SCHED_LEASE) { /* else KV of before may come */
        job->cache_epoch = w->cache_epoch;
    }
    if (w->prefix != NULL) {
        job->n_reused = bt_kv_prefix_match(
            w->prefix, job->seq.space, job->seq.tokens,
            most_reused(job) / w->tokens_per_block, n_known, job->block_ids);
    }
    bt_kv_hold_found(&w->groups, &job->hold, job->n_reused, n_known);
}

void bt_job_drop_known(bt_worker_t *w, bt_job_t *job)
{
    bt_kv_hold_return(&w->groups, w->pool, &job->hold, job->block_ids);
    forget(job, 0, job->n_reused * w->groups.n);
    job->n_reused = 0;
}

bt_status_t bt_job_take_blocks(bt_worker_t *w, bt_job_t *job)
{
    const bt_kv_reach_t reach = bt_window_eviction_reach(w, job, job->n_begin);
    const uint32_t n_found = bt_kv_hold_blocks(&w->groups, &job->hold);
    const bt_status_t status = bt_job_reach(w, job, &reach);

    if (status != BT_OK) {
        return status;
    }
    job->has_blocks = true;
    if (job->grower.n_pauses > 0) {
        return BT_OK; /* its own blocks, not another prompt's */
    }
    w->stats.n_blocks_reused += n_found;
    w->stats.tokens_reused += (uint64_t)job->n_reused * w->tokens_per_block;
    return BT_OK;
}

/* Holds the source until it is copied, also when the leader ends before. */
static void hold_origin(bt_worker_t *w, const bt_job_t *job)
{
    if (bt_kv_copy_is_due(job->copy)) {
        bt_kv_pool_ref(w->pool, job->copy.from);
    }
}

bt_status_t bt_job_share_blocks(bt_worker_t *w, bt_job_t *job)
{
    const uint32_t *theirs = job->leader->block_ids;
    const uint32_t n = job->claim.n_blocks;
    const uint32_t n_new =
        bt_kv_fork_n_new(job->n_tokens, w->tokens_per_block, n);
    bt_status_t status;

    job->cache_epoch = job->leader->cache_epoch;
    if (job->claim.want == BT_SCHED_CONTEXT) {
        for (uint32_t i = 0; i < n; i++) {
            bt_kv_pool_ref(w->pool, theirs[i]);
            job->block_ids[i] = theirs[i];
        }
    } else {
        make_free(w, n_new);
        status = bt_kv_fork(w->pool, theirs, job->n_tokens, w->tokens_per_block,
                            n, job->block_ids, &job->copy);
        if (status != BT_OK) {
            return status;
        }
        make_ready(w, job->block_ids + n - n_new, n_new);
        hold_origin(w, job);
    }
    bt_kv_hold_found(&w->groups, &job->hold, n, 0); /* of one group */
    job->grower.n_held = n;
    set_kv_limit(w, job);
    job->has_blocks = true;
    return BT_OK;
}

void bt_worker_job_copied(bt_worker_t *w, bt_job_t *job)
{
    if (bt_kv_copy_is_due(job->copy)) {
        bt_kv_pool_unref(w->pool, job->copy.from);
        job->copy = (bt_kv_copy_t){0, 0};
    }
}

void bt_worker_job_remember(bt_worker_t *w, const bt_job_t *job,
                            uint32_t n_tokens)
{
    if ((w->prefix != NULL) && job->has_blocks &&
        (job->cache_epoch == w->cache_epoch)) {
        bt_kv_prefix_insert(w->prefix, job->seq.space, job->seq.tokens,
                            n_tokens / w->tokens_per_block, job->block_ids,
                            &job->hold);
    }
}

void bt_worker_job_return_blocks(bt_worker_t *w, bt_job_t *job)
{
    if (!job->has_blocks) {
        return;
    }
    bt_worker_job_copied(w, job);
    bt_kv_hold_return(&w->groups, w->pool, &job->hold, job->block_ids);
    forget(job, 0, job->grower.n_most * w->groups.n);
    job->grower.n_held = 0;
    job->n_offered = 0;
    job->has_blocks = false;
}

bt_status_t bt_worker_job_submit(bt_worker_t *w, bt_job_t *job)
{
    bt_status_t status;

    BT_ASSERT_ALWAYS(job->has_blocks && !job->in_engine);
    if (job->grower.n_pauses == 0) {
        job->submitted_us = bt_now_us();
    }
    bt_worker_job_draft(w, job);
    status = bt_engine_submit(w->engine, &job->seq);
    if (status == BT_OK) {
        job->in_engine = true;
        w->n_in_engine += bt_job_seats(job);
    }
    return status;
}

void bt_worker_job_fail(bt_worker_t *w, bt_job_t *job, bt_status_t status,
                        const char *phase, const char *text)
{
    bt_msg_t msg = {.type = BT_MSG_FAILED};

    if (job->ending || job->abandoned) {
        return;
    }
    /* A sender cancels its transfer when the request is over: not an error. */
    bt_logprob_output_drop(job);
    bt_log((status == BT_ERR_CANCELED) ? BT_LOG_LEVEL_DEBUG : BT_LOG_LEVEL_WARN,
           "request %" PRIu64 " attempt %u failed in %s: %s (%s)", job->key.id,
           job->key.attempt, phase, text, bt_status_str(status));
    msg.u.failed.key = job->key;
    msg.u.failed.status = status;
    snprintf(msg.u.failed.text, sizeof(msg.u.failed.text), "%s: %s", phase,
             text);
    bt_worker_send(w, job->from, &msg);
    bt_worker_job_abort(w, job);
}

void bt_worker_job_abort(bt_worker_t *w, bt_job_t *job)
{
    bt_job_t *leader = job->leader;

    if (job->ending) {
        return;
    }
    if (!bt_list_empty(&job->followers)) {
        job->abandoned = true;
        return;
    }
    job->ending = true;
    bt_fanout_leave(w, job);
    bt_list_remove(&job->claim.turn.link);
    job->ops->on_abort(w, job);
    if ((leader != NULL) && leader->abandoned) {
        bt_worker_job_abort(w, leader);
    }
}

/* From submission to the engine until its next iteration. */
static uint64_t join_wait_us(const bt_job_t *job)
{
    const uint64_t start_us = job->seq.first_start_ns / 1000;

    return (start_us > job->submitted_us) ? start_us - job->submitted_us : 0;
}

/* Removes the job from its fan-out; where all jobs end at once it may have
 * followers. */
static void disband(bt_worker_t *w, bt_job_t *job)
{
    bt_fanout_leave(w, job);
    while (!bt_list_empty(&job->followers)) {
        bt_fanout_leave(
            w, BT_CONTAINER_OF(job->followers.next, bt_job_t, in_fanout));
    }
}

void bt_worker_job_end(bt_worker_t *w, bt_job_t *job)
{
    bt_msg_t msg = {.type = BT_MSG_ENDED};

    BT_ASSERT_ALWAYS(!job->in_engine);
    bt_worker_job_return_blocks(w, job);
    if (bt_logprob_output_park(job)) {
        return;
    }
    msg.u.ended.key = job->key;
    msg.u.ended.decode_us = job->seq.generation_ns / 1000;
    msg.u.ended.n_iterations = job->seq.n_iterations;
    msg.u.ended.join_wait_us = join_wait_us(job);
    msg.u.ended.transfer_tail_us = job->tail_us;
    msg.u.ended.n_pauses = job->grower.n_pauses;
    msg.u.ended.paused_us = job->paused_us;
    msg.u.ended.n_drafted = job->seq.n_drafted;
    msg.u.ended.n_accepted = job->seq.n_accepted;
    bt_worker_send(w, job->from, &msg);

    disband(w, job);
    bt_list_remove(&job->link);
    bt_list_remove(&job->by_key);
    bt_list_remove(&job->claim.turn.link);
    bt_sched_preempt_out(&w->preemption.sched, &job->grower);
    count_job(w, job, -1);
    if (job->ops->job_fini != NULL) {
        job->ops->job_fini(job);
    }
    job_free(job);
}

void bt_jobs_end_all(bt_worker_t *w)
{
    bt_free(w->row_output.piece);
    w->row_output.piece = NULL;
    BT_LIST_FOR_EACH_ENTRY(bt_job_t, job, &w->jobs, link) {
        job->in_engine = false;
        job->from = NULL; /* the link breaks: the router knows */
        bt_worker_job_end(w, job);
    }
}
