/* SPDX-License-Identifier: Apache-2.0 */
/* Runs an engine with drafts of a given acceptance, for bench/drafts.py.
 *
 *     draft-run MODEL TYPE THREADS SEQS PROMPT TOKENS PERCENT WEIGHT_CACHE
 *
 * SEQS sequences have random prompts of PROMPT tokens and get TOKENS more,
 * greedily. TYPE is that of the weights of the draft model, or "none".
 *
 * Prints one line of JSON about the models, then answers commands:
 *
 *     run off     no drafts
 *     run given   drafts that cost nothing, each right in PERCENT of cases
 *     run model   the draft model computes each draft; which one it is, right
 *                 in PERCENT of cases, does not depend on what it computed
 *
 * with {"seconds", "tokens", "drafts", "accepted"} from when every sequence has
 * a token until the first one has all of them. The first run must be "off": it
 * tells which drafts are right. The controller decides how many are verified.
 */
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "bench/_half.h"
#include "bench/_ops.h"
#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "inference/draft/model_drafter.h"
#include "inference/packed/packed.h"
#include "inference/quantize/quantize.h"

#define TOKENS_PER_BLOCK 16u
#define MAX_SEQS         64u
#define MAX_TOKENS       65536u
#define CHUNK            256u
#define WHY_BYTES        512u
#define MAX_TRIES        100u /* of a run that measured nothing */

typedef struct run run_t;

/** A sequence, and what it draws. */
typedef struct stream {
    run_t *run;
    bt_seq_t seq;
    uint32_t *prompt; /* (n_prompt + n_new), prompt and what follows it */
    uint32_t *tokens; /* (n_prompt + n_new), of the current run */
    uint32_t *blocks;
} stream_t;

struct run {
    bt_backend_t *be;
    bt_gguf_t *gguf, *smaller;
    bt_model_t *model, *draft_model;
    bt_model_drafter_t *drafter;
    bt_engine_t *engine;
    bt_hparams_t hp;
    bt_kv_view_t kv;
    stream_t *streams;
    bt_batch_drafter_t inner; /* the draft model's */
    uint32_t n_threads, n_seqs, n_prompt, n_new, percent;
    uint64_t random;
    bool is_known; /* the first run is over */
};

/** Figures of a run, between its first and its last moment that count. */
typedef struct figures {
    uint64_t start_ns, end_ns;
    uint32_t tokens, drafts, accepted;
    uint32_t n_begun; /* sequences that have a token */
    uint32_t n_left;
} figures_t;

/* Returns a draft for token n of a stream. */
static uint32_t draft_of(const stream_t *stream, uint32_t n)
{
    run_t *r = stream->run;
    const uint32_t right = stream->prompt[n];

    return (bt_half_random(&r->random, 100) < r->percent)
               ? right
               : (right + 1) % r->hp.n_vocab;
}

static bt_draft_t propose(void *ctx, const uint32_t *tokens, uint32_t n_tokens,
                          uint32_t max, uint32_t *drafts)
{
    const stream_t *stream = ctx;

    (void)tokens;
    for (uint32_t i = 0; i < max; i++) {
        drafts[i] = draft_of(stream, n_tokens + i);
    }
    return (bt_draft_t){.n = max, .source = BT_DRAFT_NGRAM, .n_matched = 1};
}

static bt_status_t draft(void *ctx, bt_next_draft_t *next, uint32_t n)
{
    run_t *r = ctx;
    const bt_status_t status = r->inner.draft(r->inner.ctx, next, n);

    for (uint32_t i = 0; i < n; i++) {
        const stream_t *stream = next[i].seq->user;

        next[i].id =
            draft_of(stream, next[i].seq->sched.n_tokens + next[i].n_drafts);
        next[i].probability = (float)r->percent / 100;
    }
    return status;
}

/* ---- runs ---- */

static void submit(stream_t *stream, const char *source)
{
    const run_t *r = stream->run;
    bt_seq_t *seq = &stream->seq;

    memcpy(stream->tokens, stream->prompt, r->n_prompt * sizeof(uint32_t));
    *seq = (bt_seq_t){.user = stream,
                      .tokens = stream->tokens,
                      .blocks = stream->blocks,
                      .n_prompt = r->n_prompt,
                      .max_new = r->n_new,
                      .sampling = bt_sampling_default()};
    seq->sched.n_tokens = r->n_prompt;
    seq->sampling.temperature = 0;
    if (strcmp(source, "given") == 0) {
        seq->drafter = (bt_drafter_t){.propose = propose, .ctx = stream};
    }
    seq->model_drafts = strcmp(source, "model") == 0;
    bt_half_must(bt_engine_submit(r->engine, seq), "a sequence");
}

static bt_report_t *next_report(bt_engine_t *engine)
{
    struct pollfd fd = {.fd = bt_engine_fd(engine), .events = POLLIN};
    bt_report_t *report;

    while ((report = bt_engine_next(engine)) == NULL) {
        if (bt_engine_sleep_prepare(engine)) {
            (void)poll(&fd, 1, -1);
        }
        bt_engine_sleep_done(engine);
    }
    return report;
}

static void count(const run_t *r, const bt_report_t *report, figures_t *f)
{
    const bool counts = (f->n_begun == r->n_seqs) && (f->n_left == 0);

    bt_half_must(report->status, "an iteration");
    for (uint32_t i = 0; i < report->n_items; i++) {
        const bt_report_item_t *item = &report->items[i];

        f->n_left += (item->kind == BT_REPORT_LEFT) ? 1 : 0;
        if (item->kind == BT_REPORT_TOKEN) {
            f->n_begun += (item->index == 0) ? 1 : 0;
            f->tokens += counts ? 1 : 0;
        }
    }
    for (uint32_t i = 0; counts && (i < BT_DRAFT_N_SOURCES); i++) {
        f->drafts += report->drafts.n_drafted[i];
        f->accepted += report->drafts.n_accepted[i];
    }
    if (counts) {
        f->end_ns = report->end_ns;
    } else if ((f->n_begun == r->n_seqs) && (f->n_left == 0)) {
        f->start_ns = f->end_ns = report->end_ns;
    }
}

/* Has every sequence generate its tokens once, and checks that they are those
 * of the first run. */
static figures_t generate(run_t *r, const char *source)
{
    figures_t f = {0};

    for (uint32_t i = 0; i < r->n_seqs; i++) {
        submit(&r->streams[i], source);
    }
    while (f.n_left < r->n_seqs) {
        bt_report_t *report = next_report(r->engine);

        count(r, report, &f);
        bt_engine_recycle(r->engine, report);
    }
    for (uint32_t i = 0; i < r->n_seqs; i++) {
        const size_t bytes = (r->n_prompt + r->n_new) * sizeof(uint32_t);

        if (!r->is_known) {
            memcpy(r->streams[i].prompt, r->streams[i].tokens, bytes);
        } else if (memcmp(r->streams[i].prompt, r->streams[i].tokens, bytes) !=
                   0) {
            bt_half_die(BT_OK, "the tokens of run %s are others", source);
        }
    }
    r->is_known = true;
    return f;
}

/* A sequence whose thread waits for a processor may be submitted after another
 * one has all of its tokens. Then no round has all sequences, nothing was
 * measured, and they generate once more. */
static void run(run_t *r, const char *source)
{
    figures_t f = {0};

    if (!r->is_known && (strcmp(source, "off") != 0)) {
        bt_half_die(BT_OK, "the first run is off");
    }
    for (uint32_t i = 0; (i < MAX_TRIES) && (f.end_ns == f.start_ns); i++) {
        f = generate(r, source);
    }
    if (f.end_ns == f.start_ns) {
        bt_half_die(BT_OK, "no round has all sequences: ask for more steps");
    }
    printf("{\"seconds\": %.9f, \"tokens\": %u, \"drafts\": %u, \"accepted\": "
           "%u}\n",
           (double)(f.end_ns - f.start_ns) * 1e-9, f.tokens, f.drafts,
           f.accepted);
}

/* ---- life cycle ---- */

static bt_model_config_t model_config(const run_t *r, const char *weight_dir)
{
    return (bt_model_config_t){
        .max_rows = bt_engine_max_rows(r->n_seqs, CHUNK, TOKENS_PER_BLOCK,
                                       BT_ENGINE_CPU_DRAFTS),
        .max_logit_rows =
            bt_engine_max_logit_rows(r->n_seqs, BT_ENGINE_CPU_DRAFTS),
        .context_tokens = r->n_prompt + r->n_new,
        .tokens_per_block = TOKENS_PER_BLOCK,
        .weight_dir = weight_dir,
        .n_threads = r->n_threads};
}

static void open_models(run_t *r, const char *path, const char *type,
                        const char *weight_cache)
{
    char weight_dir[PATH_MAX] = "";
    char why[WHY_BYTES] = "";
    bt_model_config_t config = model_config(r, weight_dir);
    const bt_backend_config_t be_config = {.n_threads = r->n_threads,
                                           .max_rows = config.max_rows};
    bt_status_t status = bt_packed_dir(weight_cache, weight_dir, PATH_MAX);

    if ((status != BT_OK) && (status != BT_ERR_NOT_FOUND)) {
        bt_half_die(status, "weight cache %s", weight_cache);
    }
    status = bt_gguf_open(path, why, sizeof(why), &r->gguf);
    if (status == BT_OK) {
        status = bt_hparams_read(r->gguf, why, sizeof(why), &r->hp);
    }
    if (status == BT_OK) {
        status = bt_backend_open("cpu", &be_config, &r->be);
    }
    if (status == BT_OK) {
        status =
            bt_model_load(r->gguf, r->be, &config, why, sizeof(why), &r->model);
    }
    if ((status == BT_OK) && (strcmp(type, "none") != 0)) {
        const bt_quantize_mix_t *mix = bt_quantize_mix_find(type);

        if (mix == NULL) {
            bt_half_die(BT_OK, "there is no type %s", type);
        }
        status = bt_requantize_open(r->gguf, mix, r->n_threads, NULL, why,
                                    sizeof(why), &r->smaller);
        if (status == BT_OK) {
            status = bt_model_load(r->smaller, r->be, &config, why, sizeof(why),
                                   &r->draft_model);
        }
    }
    if (status != BT_OK) {
        bt_half_die(status, "%s: %s", path, why);
    }
}

static void make_streams(run_t *r)
{
    const uint32_t n = r->n_prompt + r->n_new;
    const uint32_t n_blocks = bt_kv_blocks_for(n, TOKENS_PER_BLOCK);

    r->kv =
        bt_ops_kv_view(r->be, BT_KV_BF16, r->hp.n_layers, r->hp.n_kv_heads,
                       r->hp.head_dim, TOKENS_PER_BLOCK, r->n_seqs * n_blocks);
    r->streams = bt_half_zeros(r->n_seqs, sizeof(*r->streams));
    for (uint32_t i = 0; i < r->n_seqs; i++) {
        stream_t *stream = &r->streams[i];

        stream->run = r;
        stream->prompt = bt_half_zeros(n, sizeof(uint32_t));
        stream->tokens = bt_half_zeros(n, sizeof(uint32_t));
        stream->blocks = bt_half_zeros(n_blocks, sizeof(uint32_t));
        for (uint32_t k = 0; k < n_blocks; k++) {
            stream->blocks[k] = k * r->n_seqs + i;
        }
        for (uint32_t k = 0; k < r->n_prompt; k++) {
            stream->prompt[k] = bt_half_random(&r->random, r->hp.n_vocab);
        }
    }
}

static void make_engine(run_t *r)
{
    const bt_model_drafter_config_t drafter = {
        .model = r->draft_model, .kv = r->kv, .max_seqs = r->n_seqs};
    bt_engine_config_t config = {.model = r->model,
                                 .kv = r->kv,
                                 .max_seqs = r->n_seqs,
                                 .max_drafts = BT_ENGINE_CPU_DRAFTS,
                                 .token_budget = CHUNK};

    if (r->draft_model != NULL) {
        bt_half_must(bt_model_drafter_create(&drafter, &r->drafter),
                     "the draft model");
        r->inner = bt_model_drafter_hook(r->drafter);
        config.batch_drafter = r->inner;
        config.batch_drafter.draft = draft;
        config.batch_drafter.ctx = r;
    }
    bt_half_must(bt_engine_create(&config, &r->engine), "the engine");
}

static void close_all(run_t *r)
{
    bt_engine_destroy(r->engine);
    bt_model_drafter_destroy(r->drafter);
    bt_model_destroy(r->draft_model);
    bt_model_destroy(r->model);
    r->be->ops->buffer_free(r->be, r->kv.base);
    bt_backend_close(r->be);
    bt_gguf_close(r->smaller);
    bt_gguf_close(r->gguf);
    for (uint32_t i = 0; i < r->n_seqs; i++) {
        bt_free(r->streams[i].prompt);
        bt_free(r->streams[i].tokens);
        bt_free(r->streams[i].blocks);
    }
    bt_free(r->streams);
}

int main(int argc, char **argv)
{
    const char *words[BT_HALF_MAX_WORDS];
    run_t r = {.random = 1};

    bt_log_init("draft-run", BT_LOG_LEVEL_WARN);
    if (argc != 9) {
        bt_half_die(BT_OK, "it is run by bench/drafts.py");
    }
    r.n_threads = bt_half_number(argv[3], 1, 1024);
    r.n_seqs = bt_half_number(argv[4], 1, MAX_SEQS);
    r.n_prompt = bt_half_number(argv[5], 1, MAX_TOKENS);
    r.n_new = bt_half_number(argv[6], 2, MAX_TOKENS);
    r.percent = bt_half_number(argv[7], 0, 100);
    open_models(&r, argv[1], argv[2], argv[8]);
    make_streams(&r);
    make_engine(&r);
    printf("{\"backend\": \"%s\", \"n_layers\": %u, \"dim\": %u}\n",
           r.be->caps->name, r.hp.n_layers, r.hp.dim);
    while (bt_half_command(words) > 0) {
        if ((strcmp(words[0], "run") != 0) ||
            ((strcmp(words[1], "off") != 0) &&
             (strcmp(words[1], "given") != 0) &&
             ((strcmp(words[1], "model") != 0) || (r.drafter == NULL)))) {
            bt_half_die(BT_OK, "no command %s %s", words[0], words[1]);
        }
        run(&r, words[1]);
    }
    close_all(&r);
    return 0;
}
