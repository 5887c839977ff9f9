/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the model in one process, for bench/engine.py.
 *
 *     engine-run MODEL THREADS KV_TYPE CHUNK MAX_PREFILL MAX_BATCH AFTER STEPS
 *                LIMIT_MIB WEIGHT_CACHE
 *
 * THREADS is a number, or "1+1": the second number of threads are on the cores
 * after those of the first and compute only while these are idle, like threads
 * on lent cores in serving; or "2x1": two ranks, processes of one thread each,
 * on cores of their own; or "1x2x1": one rank in each of two pipeline stages,
 * of one thread each.
 *
 * Prints one line of JSON about the model, then answers commands (MAX_PREFILL
 * is limited to the model's context):
 *
 *     prefill N      one sequence of N tokens from position 0, in chunks of
 *                    CHUNK, logits of the last token: {"seconds"}
 *     decode B       B sequences that hold AFTER tokens each: STEPS steps of
 *                    one token for each, with logits: {"seconds"}
 *     limit NAME MS  see _limits.h; the stream reads LIMIT_MIB
 *
 * The tokens are random; nothing is sampled. Blocks of the sequences are
 * interleaved in the pool, as in serving. */
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/_limits.h"
#include "bench/_ops.h"
#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/coll/coll_shm.h"
#include "common/kv/kv_groups.h"
#include "common/sched/sched_pipeline.h"
#include "inference/model/model.h"
#include "inference/model/shard.h"
#include "inference/packed/packed.h"

#define TOKENS_PER_BLOCK 16u
#define MAX_COUNT        (1u << 20)
#define MAX_TYPES        64u
#define MAX_THREADS      1024u
#define MAX_RANKS        16u
#define SLOT_BYTES       (1u << 20) /* as a worker's (worker/instance_ranks.c) */
#define WHY_BYTES        256u

typedef struct run {
    bt_backend_t *be;
    bt_model_t *model;
    bt_hparams_t hp;
    bt_kv_view_t kv;
    bt_limits_t *limits;
    uint32_t n_threads;
    uint32_t n_lent;
    uint32_t n_ranks, rank;
    uint32_t n_stages;   /* pipeline stages, equal groups of the ranks */
    bt_coll_shm_t *coll; /* NULL: one rank */
    uint32_t chunk;
    uint32_t max_prefill;
    uint32_t max_batch;
    uint32_t after;
    uint32_t steps;
    uint32_t seq_blocks;   /* of each sequence that decodes */
    uint32_t *seq_ids;     /* (max_batch, seq_blocks) */
    uint32_t *prefill_ids; /* of the sequence that is prefilled */
    uint32_t *tokens;      /* of one forward call */
    uint32_t *rows;        /* 0, 1, 2 … */
    bt_ragged_seq_t *seqs; /* of one forward call */
    uint64_t random;
    bool filled; /* the sequences that decode hold AFTER tokens */
} run_t;

static void expect_ok(bt_status_t status, uint32_t n_rows)
{
    if (status != BT_OK) {
        bt_half_die(status, "forward pass of %u rows", n_rows);
    }
}

static void forward(run_t *r, uint32_t n_seqs, uint32_t n_rows,
                    const uint32_t *logit_rows, uint32_t n_logit_rows)
{
    const bt_forward_t fwd = {.seqs = r->seqs,
                              .n_seqs = n_seqs,
                              .tokens = r->tokens,
                              .n_rows = n_rows,
                              .logit_rows = logit_rows,
                              .n_logit_rows = n_logit_rows,
                              .kv = r->kv};
    float *logits = NULL;

    for (uint32_t i = 0; i < n_rows; i++) {
        r->tokens[i] = bt_half_random(&r->random, r->hp.n_vocab);
    }
    expect_ok(bt_model_forward(r->model, &fwd, &logits), n_rows);
}

/* @return seconds */
static double prefill(run_t *r, const uint32_t *ids, uint32_t n)
{
    const uint64_t start = bt_now_ns();

    for (uint32_t pos = 0; pos < n; pos += r->chunk) {
        const uint32_t rows = (n - pos < r->chunk) ? n - pos : r->chunk;
        const uint32_t last = rows - 1;

        r->seqs[0] =
            (bt_ragged_seq_t){.n_rows = rows, .pos = pos, .blocks = ids};
        forward(r, 1, rows, &last, (pos + rows == n) ? 1 : 0);
    }
    return (double)(bt_now_ns() - start) * 1e-9;
}

/* ---- decode ---- */

/* Microbatch: sequences that pass the stages together; all, with one stage. */
typedef struct microbatch {
    bt_forward_t fwd;
    uint32_t first; /* its first sequence */
    uint32_t step;  /* its next step */
} microbatch_t;

/* Next step of a microbatch; logits of all rows, as one call would have
 * them. */
static void lay_microbatch(run_t *r, microbatch_t *micro, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t s = micro->first + i;

        r->tokens[s] = bt_half_random(&r->random, r->hp.n_vocab);
        r->seqs[s] =
            (bt_ragged_seq_t){.row = i,
                              .n_rows = 1,
                              .pos = r->after + micro->step,
                              .blocks = r->seq_ids + (size_t)s * r->seq_blocks};
    }
    micro->fwd = (bt_forward_t){.seqs = r->seqs + micro->first,
                                .n_seqs = n,
                                .tokens = r->tokens + micro->first,
                                .n_rows = n,
                                .logit_rows = r->rows,
                                .n_logit_rows = n,
                                .kv = r->kv};
    micro->step++;
}

/* As in an engine: a microbatch's next step begins when its last one is
 * done. */
static void decode_in_microbatches(run_t *r, uint32_t batch, uint32_t n_micro)
{
    const uint32_t n_calls = n_micro * r->steps;
    microbatch_t micro[MAX_RANKS] = {0};
    uint32_t started = 0;
    float *logits = NULL;

    for (uint32_t k = 0; k < n_micro; k++) {
        micro[k].first = batch * k / n_micro;
    }
    for (uint32_t done = 0; done < n_calls; done++) {
        for (; (started < done + n_micro) && (started < n_calls); started++) {
            const uint32_t k = started % n_micro;
            const uint32_t n = batch * (k + 1) / n_micro - micro[k].first;

            lay_microbatch(r, &micro[k], n);
            expect_ok(bt_model_start(r->model, &micro[k].fwd), n);
        }
        expect_ok(
            bt_model_finish(r->model, &micro[done % n_micro].fwd, &logits),
            batch);
    }
}

static void decode_at_once(run_t *r, uint32_t batch)
{
    microbatch_t all = {0};
    float *logits = NULL;

    while (all.step < r->steps) {
        lay_microbatch(r, &all, batch);
        expect_ok(bt_model_forward(r->model, &all.fwd, &logits), batch);
    }
}

static double decode(run_t *r, uint32_t batch)
{
    const bt_sched_ready_t ready = {batch, batch};
    const bt_sched_microbatches_t micro = bt_sched_microbatches(
        &ready, bt_model_max_started(r->model), bt_model_least_rows(r->model));
    uint64_t start;

    if (!r->filled) {
        for (uint32_t s = 0; s < r->max_batch; s++) {
            (void)prefill(r, r->seq_ids + (size_t)s * r->seq_blocks, r->after);
        }
        r->filled = true;
    }
    start = bt_now_ns();
    if (micro.n > 1) {
        decode_in_microbatches(r, batch, micro.n);
    } else {
        decode_at_once(r, batch);
    }
    return (double)(bt_now_ns() - start) * 1e-9;
}

/* Bytes of the tensors that every pass reads, as they are in the file: those
 * of the layers, and those of the output. */
static void print_weights(const bt_gguf_t *gguf)
{
    const bool tied = (bt_gguf_tensor(gguf, "output.weight") == NULL);
    size_t by_type[MAX_TYPES] = {0};
    size_t layers = 0;
    size_t output = 0;
    const char *between = "";

    for (uint64_t i = 0; i < bt_gguf_n_tensors(gguf); i++) {
        const bt_gguf_tensor_t *const t = bt_gguf_tensor_at(gguf, i);

        if ((t->name.len > 4) && (memcmp(t->name.data, "blk.", 4) == 0)) {
            layers += t->bytes;
        } else if (bt_gguf_str_is(t->name, "output_norm.weight") ||
                   bt_gguf_str_is(t->name, tied ? "token_embd.weight"
                                                : "output.weight")) {
            output += t->bytes;
        } else {
            continue;
        }
        if (t->type < MAX_TYPES) {
            by_type[t->type] += t->bytes;
        }
    }
    printf("\"layer_bytes\": %zu, \"output_bytes\": %zu, \"types\": {", layers,
           output);
    for (uint32_t type = 0; type < MAX_TYPES; type++) {
        if (by_type[type] > 0) {
            printf("%s\"%s\": %zu", between, bt_gguf_type_name(type),
                   by_type[type]);
            between = ", ";
        }
    }
    printf("}");
}

static void print_hello(const run_t *r, const bt_gguf_t *gguf, double load_s)
{
    const bt_hparams_t *const hp = &r->hp;
    static const char *const sources[] = {[BT_WEIGHTS_PRIVATE] = "private",
                                          [BT_WEIGHTS_BUILT] = "built",
                                          [BT_WEIGHTS_FOUND] = "found"};
    const bt_kv_type_info_t *const info = bt_kv_type_info(r->kv.type);

    printf(
        "{\"backend\": \"%s\", \"threads\": %u, \"load_seconds\": %.4f, "
        "\"context_tokens\": %u, \"n_layers\": %u, \"dim\": %u, \"n_heads\": %u, \"n_kv_heads\": "
        "%u, \"head_dim\": %u, \"ffn_dim\": %u, \"n_vocab\": %u, ",
        r->be->caps->name, r->n_threads, load_s, hp->context_tokens,
        hp->n_layers, hp->dim, hp->n_heads, hp->n_kv_heads, hp->head_dim,
        hp->ffn_dim, hp->n_vocab);
    printf("\"weights\": \"%s\", ", sources[bt_model_weight_source(r->model)]);
    printf("\"kv_type\": \"%s\", \"kv_token_bytes\": %zu, ", info->name,
           r->kv.block_bytes / TOKENS_PER_BLOCK);
    print_weights(gguf);
    printf("}\n");
}

/* Allocates the blocks of all sequences, and the buffers of a forward call. */
static void lay_out(run_t *r, bt_kv_type_t kv_type)
{
    const uint32_t prefill_blocks =
        bt_kv_blocks_for(r->max_prefill, TOKENS_PER_BLOCK);
    const uint32_t most = (r->chunk > r->max_batch) ? r->chunk : r->max_batch;
    const uint32_t tp = r->n_ranks / r->n_stages;

    r->seq_blocks = bt_kv_blocks_for(r->after + r->steps, TOKENS_PER_BLOCK);
    r->seq_ids =
        bt_half_zeros((size_t)r->max_batch * r->seq_blocks, sizeof(uint32_t));
    r->prefill_ids = bt_half_zeros(prefill_blocks, sizeof(uint32_t));
    for (uint32_t s = 0; s < r->max_batch; s++) {
        for (uint32_t b = 0; b < r->seq_blocks; b++) {
            r->seq_ids[(size_t)s * r->seq_blocks + b] = b * r->max_batch + s;
        }
    }
    for (uint32_t b = 0; b < prefill_blocks; b++) {
        r->prefill_ids[b] = r->max_batch * r->seq_blocks + b;
    }
    r->tokens = bt_half_zeros(most, sizeof(*r->tokens));
    r->seqs = bt_half_zeros(r->max_batch, sizeof(*r->seqs));
    r->rows = bt_half_zeros(r->max_batch, sizeof(*r->rows));
    for (uint32_t i = 0; i < r->max_batch; i++) {
        r->rows[i] = i;
    }
    r->kv = bt_ops_kv_view(
        r->be, kv_type,
        bt_share_of(r->hp.n_layers, 1, r->rank / tp, r->n_stages).n,
        bt_share_of(r->hp.n_kv_heads, 1, r->rank % tp, tp).n, r->hp.head_dim,
        TOKENS_PER_BLOCK, r->max_batch * r->seq_blocks + prefill_blocks);
}

static void open_model(run_t *r, const char *path, bt_kv_type_t kv_type,
                       const char *weight_cache)
{
    const uint64_t start = bt_now_ns();
    const uint32_t most = (r->chunk > r->max_batch) ? r->chunk : r->max_batch;
    const uint32_t decode_end = r->after + r->steps;
    bt_model_config_t config = {.max_rows = most,
                                .max_logit_rows = r->max_batch,
                                .context_tokens = (r->max_prefill > decode_end)
                                                      ? r->max_prefill
                                                      : decode_end};
    bt_backend_config_t be_config = {
        .n_threads = r->n_threads, .n_lent = r->n_lent, .max_rows = most};
    uint32_t cores[MAX_THREADS];
    char weight_dir[PATH_MAX] = "";
    char why[WHY_BYTES] = "";
    bt_gguf_t *gguf = NULL;
    bt_status_t status = bt_gguf_open(path, why, sizeof(why), &gguf);

    if (status == BT_OK) {
        status = bt_hparams_read(gguf, why, sizeof(why), &r->hp);
    }
    if (status != BT_OK) {
        bt_half_die(BT_OK, "%s: %s", path, why);
    }
    if (decode_end > r->hp.context_tokens) {
        bt_half_die(BT_OK, "%s has a context of %u tokens, %u are needed", path,
                    r->hp.context_tokens, decode_end);
    }
    if (config.context_tokens > r->hp.context_tokens) {
        config.context_tokens = r->hp.context_tokens;
        r->max_prefill = r->hp.context_tokens;
    }
    status = bt_packed_dir(weight_cache, weight_dir, sizeof(weight_dir));
    if ((status != BT_OK) && (status != BT_ERR_NOT_FOUND)) {
        bt_half_die(status, "weight cache %s", weight_cache);
    }
    config.weight_dir = weight_dir;
    config.n_threads = r->n_threads;
    config.host_coll =
        (r->coll == NULL) ? NULL : bt_coll_shm_collectives(r->coll);
    config.n_stages = r->n_stages;
    config.host_stage = (r->coll == NULL) ? NULL : bt_coll_shm_stage(r->coll);
    if ((r->n_lent > 0) || (r->n_ranks > 1)) {
        for (uint32_t i = 0; i < r->n_threads + r->n_lent; i++) {
            cores[i] = r->rank * r->n_threads + i;
        }
        be_config.cores = cores;
        be_config.lent_cores = (r->n_lent > 0) ? cores + r->n_threads : NULL;
    }
    status = bt_backend_open("cpu", &be_config, &r->be);
    if (status != BT_OK) {
        bt_half_die(status, "back end cpu");
    }
    status = bt_model_load(gguf, r->be, &config, why, sizeof(why), &r->model);
    if (status != BT_OK) {
        bt_half_die(BT_OK, "%s: %s", path, why);
    }
    lay_out(r, kv_type);
    if (r->rank == 0) {
        print_hello(r, gguf, (double)(bt_now_ns() - start) * 1e-9);
    }
    bt_gguf_close(gguf);
}

/* Forks into n_ranks processes; the others end with the first. */
static void make_ranks(run_t *r)
{
    const size_t bytes =
        bt_coll_shm_bytes(r->n_ranks, r->n_ranks / r->n_stages, SLOT_BYTES);
    bt_status_t status;
    void *segment;

    if (r->n_ranks == 1) {
        return;
    }
    segment = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (segment == MAP_FAILED) {
        bt_half_die(BT_ERR_NO_MEMORY, "what %u ranks share", r->n_ranks);
    }
    for (uint32_t rank = 1; (rank < r->n_ranks) && (r->rank == 0); rank++) {
        const pid_t pid = fork();

        if (pid < 0) {
            bt_half_die(BT_ERR_INTERNAL, "fork");
        }
        if (pid == 0) {
            (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
            r->rank = rank;
        }
    }
    status = bt_coll_shm_open(segment, bytes, r->rank, r->n_ranks,
                              r->n_ranks / r->n_stages, SLOT_BYTES, &r->coll);
    if (status != BT_OK) {
        bt_half_die(status, "%u ranks", r->n_ranks);
    }
}

/* Waits until the ranks after the first have ended well, else reports it. */
static void await_ranks(run_t *r)
{
    for (uint32_t rank = 1; rank < r->n_ranks; rank++) {
        int status = 0;

        if ((wait(&status) < 0) || (status != 0)) {
            bt_half_die(BT_ERR_PEER_LOST, "a rank ended with status %d",
                        status);
        }
    }
}

static void close_all(run_t *r)
{
    r->be->ops->buffer_free(r->be, r->kv.base);
    bt_model_destroy(r->model);
    bt_coll_shm_close(r->coll);
    bt_backend_close(r->be);
    bt_limits_destroy(r->limits);
    bt_free(r->seq_ids);
    bt_free(r->prefill_ids);
    bt_free(r->tokens);
    bt_free(r->seqs);
    bt_free(r->rows);
}

static void read_threads(char *text, run_t *r)
{
    char *const plus = strchr(text, '+');
    char *times = strchr(text, 'x');

    r->n_ranks = r->n_stages = 1;
    if (times != NULL) {
        *times = '\0';
        r->n_ranks = bt_half_number(text, 1, MAX_RANKS);
        text = times + 1;
        times = strchr(text, 'x');
        if (times != NULL) {
            *times = '\0';
            r->n_stages = bt_half_number(text, 1, MAX_RANKS / r->n_ranks);
            r->n_ranks *= r->n_stages;
            text = times + 1;
        }
    } else if (plus != NULL) {
        *plus = '\0';
        r->n_lent = bt_half_number(plus + 1, 1, MAX_THREADS / 2);
    }
    r->n_threads = bt_half_number(text, 1, MAX_THREADS / 2);
}

/* @return exit status of the program */
static int follow(run_t *r)
{
    const bt_status_t status = bt_model_follow(r->model, NULL, &r->kv, NULL);

    close_all(r);
    return (status == BT_OK) ? 0 : 1;
}

static void answer(run_t *r, const char *const *words)
{
    if (strcmp(words[0], "prefill") == 0) {
        const uint32_t n = bt_half_number(words[1], 1, r->max_prefill);

        printf("{\"seconds\": %.9f}\n", prefill(r, r->prefill_ids, n));
    } else if (strcmp(words[0], "decode") == 0) {
        const uint32_t n = bt_half_number(words[1], 1, r->max_batch);

        printf("{\"seconds\": %.9f}\n", decode(r, n));
    } else if (strcmp(words[0], "limit") == 0) {
        bt_limits_command(r->limits, words);
    } else {
        bt_half_die(BT_OK, "no command %s", words[0]);
    }
}

int main(int argc, char **argv)
{
    const char *words[BT_HALF_MAX_WORDS];
    run_t r = {.random = 1};
    bt_kv_type_t kv_type;
    uint32_t mib;
    bt_status_t status;

    bt_log_init("engine-run", BT_LOG_LEVEL_WARN);
    if (argc != 11) {
        bt_half_die(BT_OK, "it is run by bench/engine.py");
    }
    read_threads(argv[2], &r);
    r.chunk = bt_half_number(argv[4], 1, MAX_COUNT);
    r.max_prefill = bt_half_number(argv[5], 1, MAX_COUNT);
    r.max_batch = bt_half_number(argv[6], 1, MAX_COUNT);
    r.after = bt_half_number(argv[7], 1, MAX_COUNT);
    r.steps = bt_half_number(argv[8], 1, MAX_COUNT);
    mib = bt_half_number(argv[9], 1, MAX_COUNT);
    if (bt_kv_type_parse(argv[3], &kv_type) != BT_OK) {
        bt_half_die(BT_OK, "no KV type is called %s", argv[3]);
    }
    make_ranks(&r);
    status = bt_limits_create(r.n_threads, (size_t)mib << 20, &r.limits);
    if (status != BT_OK) {
        bt_half_die(status, "limits of %u threads, %u MiB", r.n_threads, mib);
    }
    open_model(&r, argv[1], kv_type, argv[10]);
    if (r.rank > 0) {
        return follow(&r);
    }
    while (bt_half_command(words) > 0) {
        answer(&r, words);
    }
    bt_model_end_ranks(r.model);
    await_ranks(&r);
    close_all(&r);
    return 0;
}
