/* SPDX-License-Identifier: Apache-2.0 */
/* Is the whole forward pass right? Teacher-forced over positions of English and
 * code against PyTorch in float32 on the same file dequantized:
 * tests/golden/make_logits_golden.py made the expected values and describes
 * their format. The bounds are what llama.cpp reaches on such text.
 *
 *     test_accuracy [MODEL [RANKS [STAGES]]]
 *
 * MODEL is smollm2, the default model, or gemma3, a published file of another
 * family (setup/fetch_gemma.py) with texts twice as long as its local layers
 * see; its tokenizer must give PyTorch's ids of the text, too. RANKS are so
 * many in all, in so many STAGES.
 *
 * That is with KV in bf16. Of the default model the other types run over every
 * third window (English and code; with BATON_LONG over all), and their
 * perplexity is held against that of bf16 over the same windows. Not where a
 * sanitizer makes a minute of a second: the memory that they touch is checked
 * by kcheck and test_model.
 *
 * Runs the file named by BATON_TEST_MODEL or BATON_TEST_GEMMA; without it:
 * skipped, exit 77. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/status.h"
#include "inference/tokenizer/tokenizer.h"
#include "tests/support/rank_team.h"
#include "tests/support/testsupport.h"

#define EXIT_SKIPPED 77

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SLOW_BUILD 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(SLOW_BUILD)
#define N_RUNS 1u /* f16 alone */
#else
#define N_RUNS 4u
#endif

#define MAX_KV_TYPE_CHANGE    0.01 /* of the perplexity with f16 KV */
#define MIN_KV_TYPE_POSITIONS 1024u

#define MAGIC       "BTLOGIT2"
#define MAX_TOP     256u
#define MAX_WINDOWS 100u
#define MAX_WINDOW  4096u
#define BLOCK       16u /* tokens per KV block */

typedef struct real_model {
    const char *name;
    const char *variable; /* of the environment, which names the file */
    const char *golden;
    bool with_bos; /* at the start of each window */
    double max_perplexity_change;
    double min_same_top;
    double max_mean_kl;
} real_model_t;

/* Gemma's: llama.cpp 0.3.36 on the same rows +0.38 %, 95.5 %, 0.0040; ours
 * +0.16 %, 97.1 %, 0.0010. */
static const real_model_t models[] = {
    {"smollm2", "BATON_TEST_MODEL", "golden/accuracy_logits.bin", false, 0.0067,
     0.965, 0.0035},
    {"gemma3", "BATON_TEST_GEMMA", "golden/accuracy_gemma.bin", true, 0.0067,
     0.955, 0.004},
};

typedef struct golden {
    uint32_t n_windows;
    uint32_t window;
    uint32_t top;
    uint32_t every; /* position of a window that has a row */
    uint32_t n_tokens;
    uint32_t n; /* rows */
    uint32_t *tokens;
    float *target;
    float *tail;
    uint32_t *ids;
    uint16_t *logprobs; /* f16 */
} golden_t;

typedef struct score {
    double nll;     /* ours, summed */
    double nll_ref; /* theirs */
    double kl;
    uint32_t n_same_top;
    uint32_t n; /* positions */
} score_t;

/* With one type of KV. */
typedef struct run {
    bt_kv_type_t type;
    uint32_t step; /* every so many windows */
    score_t windows[MAX_WINDOWS];
    double seconds;
} run_t;

static void *read_array(FILE *file, size_t n, size_t size)
{
    void *const data = bt_calloc(n, size);

    if ((data != NULL) && (fread(data, size, n, file) != n)) {
        bt_free(data);
        return NULL;
    }
    return data;
}

/* n ids of 2 or 4 bytes. */
static uint32_t *read_ids(FILE *file, size_t n, uint32_t bytes)
{
    uint8_t *const raw = read_array(file, n, bytes);
    uint32_t *const ids = bt_calloc(n, sizeof(*ids));

    for (size_t i = 0; (raw != NULL) && (ids != NULL) && (i < n); i++) {
        memcpy(&ids[i], &raw[i * bytes], bytes); /* little-endian, as hosts */
    }
    bt_free(raw);
    if (raw == NULL) {
        bt_free(ids);
        return NULL;
    }
    return ids;
}

static int read_golden(const char *path, golden_t *g)
{
    FILE *const file = fopen(path, "re");
    char magic[8];
    uint32_t head[5];
    int rc = -1;

    if ((file == NULL) || (fread(magic, sizeof(magic), 1, file) != 1) ||
        (memcmp(magic, MAGIC, sizeof(magic)) != 0) ||
        (fread(head, sizeof(head), 1, file) != 1)) {
        goto out;
    }
    g->n_windows = head[0];
    g->window = head[1];
    g->top = head[2];
    g->every = head[3];
    if ((g->n_windows == 0) || (g->n_windows > MAX_WINDOWS) ||
        (g->window == 0) || (g->window > MAX_WINDOW) || (g->top == 0) ||
        (g->top > MAX_TOP) || (g->every == 0) || (g->window % g->every != 0) ||
        ((head[4] != 2) && (head[4] != 4))) {
        goto out;
    }
    g->n_tokens = g->n_windows * g->window;
    g->n = g->n_tokens / g->every;
    g->tokens = read_ids(file, (size_t)g->n_tokens + 1, head[4]);
    g->target = read_array(file, g->n, sizeof(*g->target));
    g->tail = read_array(file, g->n, sizeof(*g->tail));
    g->ids = read_ids(file, (size_t)g->n * g->top, head[4]);
    g->logprobs = read_array(file, (size_t)g->n * g->top, sizeof(*g->logprobs));
    if ((g->tokens != NULL) && (g->target != NULL) && (g->tail != NULL) &&
        (g->ids != NULL) && (g->logprobs != NULL)) {
        rc = 0;
    }
out:
    if (file != NULL) {
        fclose(file);
    }
    return rc;
}

static void free_golden(golden_t *g)
{
    bt_free(g->tokens);
    bt_free(g->target);
    bt_free(g->tail);
    bt_free(g->ids);
    bt_free(g->logprobs);
}

/* IEEE binary16, by its definition. */
static double from_f16(uint16_t half)
{
    const int exponent = (half >> 10) & 31;
    const double mantissa = half & 1023;
    const double sign = ((half & 0x8000) != 0) ? -1.0 : 1.0;

    return sign * ((exponent == 0) ? ldexp(mantissa, -24)
                                   : ldexp(mantissa + 1024.0, exponent - 25));
}

/* log of the sum of exp over the row. */
static double log_sum(const float *logits, uint32_t n, uint32_t *best_p)
{
    uint32_t best = 0;
    double sum = 0.0;

    for (uint32_t i = 1; i < n; i++) {
        best = (logits[i] > logits[best]) ? i : best;
    }
    for (uint32_t i = 0; i < n; i++) {
        sum += exp((double)logits[i] - (double)logits[best]);
    }
    *best_p = best;
    return log(sum) + (double)logits[best];
}

/* KL divergence of the reference from ours over the kept tokens and, as one
 * outcome more, all others together. */
static void score_row(const golden_t *g, uint32_t at, const float *logits,
                      uint32_t n_vocab, score_t *score)
{
    const uint32_t *const ids = &g->ids[(size_t)at * g->top];
    const uint16_t *const kept = &g->logprobs[(size_t)at * g->top];
    uint32_t best;
    const double norm = log_sum(logits, n_vocab, &best);
    double ours_kept = 0.0;

    for (uint32_t i = 0; i < g->top; i++) {
        const double ref = from_f16(kept[i]);
        const double ours = (double)logits[ids[i]] - norm;

        score->kl += exp(ref) * (ref - ours);
        ours_kept += exp(ours);
    }
    if (((double)g->tail[at] > 1e-9) && (ours_kept < 1.0)) {
        score->kl += (double)g->tail[at] *
                     (log((double)g->tail[at]) - log(1.0 - ours_kept));
    }
    score->nll -= (double)logits[g->tokens[at * g->every + 1]] - norm;
    score->nll_ref -= (double)g->target[at];
    score->n_same_top += (best == ids[0]) ? 1 : 0;
    score->n++;
}

/* @param [in] team  The ranks that compute it. */
static int run_windows(const bt_rank_team_t *team, const golden_t *g,
                       run_t *run)
{
    bt_model_t *const model = team->ranks[0].model;
    const bt_hparams_t *const hp = bt_model_hparams(model);
    const uint64_t start = bt_now_ns();
    const uint32_t n_rows = g->window / g->every;
    const uint32_t n_blocks = (g->window + BLOCK - 1) / BLOCK;
    uint32_t *const scratch =
        bt_calloc((size_t)g->window * 2 + n_blocks, sizeof(*scratch));
    uint32_t *const tokens = scratch;
    uint32_t *const rows = scratch + g->window;
    uint32_t *const blocks = scratch + 2 * (size_t)g->window;
    bt_ragged_seq_t seq = {.n_rows = g->window, .blocks = blocks};
    bt_forward_t fwd = {.seqs = &seq,
                        .n_seqs = 1,
                        .tokens = tokens,
                        .n_rows = g->window,
                        .logit_rows = rows,
                        .n_logit_rows = n_rows,
                        .kv = team->ranks[0].kv};
    float *logits = NULL;
    int rc = -1;

    if (scratch == NULL) {
        return -1;
    }
    for (uint32_t i = 0; i < n_blocks; i++) {
        blocks[i] = i;
    }
    for (uint32_t w = 0; w < g->n_windows; w += run->step) {
        for (uint32_t i = 0; i < g->window; i++) {
            tokens[i] = g->tokens[w * g->window + i];
        }
        for (uint32_t i = 0; i < n_rows; i++) {
            rows[i] = i * g->every;
        }
        if (bt_model_forward(model, &fwd, &logits) != BT_OK) {
            goto out;
        }
        for (uint32_t i = 0; i < n_rows; i++) {
            score_row(g, w * n_rows + i, &logits[(size_t)i * hp->n_vocab],
                      hp->n_vocab, &run->windows[w]);
        }
    }
    run->seconds = (double)(bt_now_ns() - start) * 1e-9;
    rc = 0;
out:
    bt_free(scratch);
    return rc;
}

static int run_model(const char *path, uint32_t n_ranks, uint32_t n_stages,
                     const golden_t *g, run_t *runs, uint32_t n_runs)
{
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    const bt_model_config_t config = {.max_rows = g->window,
                                      .max_logit_rows = g->window / g->every,
                                      .context_tokens = g->window,
                                      .n_stages = n_stages};
    bt_backend_config_t be_config = {
        .n_threads = ((cores > 1) && (n_ranks == 1)) ? 2 : 1,
        .max_rows = g->window};
    bt_gguf_t *gguf = NULL;
    bt_hparams_t hp;
    char why[256] = "no back end";
    int rc = -1;

    if ((bt_gguf_open(path, why, sizeof(why), &gguf) != BT_OK) ||
        (bt_hparams_read(gguf, why, sizeof(why), &hp) != BT_OK)) {
        goto out;
    }
    rc = 0;
    for (uint32_t i = 0; (rc == 0) && (i < n_runs); i++) {
        bt_rank_team_t team;

        rc = (bt_rank_team_open(gguf, NULL, n_ranks, &be_config, &config,
                                runs[i].type, BLOCK,
                                (g->window + BLOCK - 1) / BLOCK, why,
                                sizeof(why), &team) == BT_OK)
                 ? run_windows(&team, g, &runs[i])
                 : -1;
        rc = (bt_rank_team_close(&team) == BT_OK) ? rc : -1;
    }
out:
    if (rc != 0) {
        fprintf(stderr, "%s: %s\n", path, why);
    }
    bt_gguf_close(gguf);
    return rc;
}

/* Of every so many windows. */
static score_t total(const golden_t *g, const run_t *run, uint32_t step)
{
    score_t sum = {0};

    for (uint32_t w = 0; w < g->n_windows; w += step) {
        sum.nll += run->windows[w].nll;
        sum.nll_ref += run->windows[w].nll_ref;
        sum.kl += run->windows[w].kl;
        sum.n_same_top += run->windows[w].n_same_top;
        sum.n += run->windows[w].n;
    }
    return sum;
}

static int report(const real_model_t *model, const golden_t *g,
                  const run_t *run)
{
    const score_t all = total(g, run, 1);
    const score_t *const score = &all;
    const double n = all.n;
    const double change = exp((score->nll - score->nll_ref) / n) - 1.0;
    const double same_top = score->n_same_top / n;
    const double kl = score->kl / n;
    const int ok = (fabs(change) <= model->max_perplexity_change) &&
                   (same_top >= model->min_same_top) &&
                   (kl <= model->max_mean_kl);

    printf("%u positions in %.1f s\n", all.n, run->seconds);
    printf("perplexity      %.4f, reference %.4f: %+.4f %% (allowed %.2f %%)\n",
           exp(score->nll / n), exp(score->nll_ref / n), 100.0 * change,
           100.0 * model->max_perplexity_change);
    printf("same top token  %.2f %% (needed %.1f %%)\n", 100.0 * same_top,
           100.0 * model->min_same_top);
    printf("mean KL         %.6f (allowed %.4f)\n", kl, model->max_mean_kl);
    return ok ? 0 : -1;
}

static int report_kv_type(const golden_t *g, const run_t *run,
                          const run_t *bf16)
{
    const score_t ours = total(g, run, run->step);
    const score_t base = total(g, bf16, run->step);
    const double n = ours.n;
    const double change = exp((ours.nll - base.nll) / n) - 1.0;

    printf("KV in %-4s      perplexity %.4f, bf16 KV %.4f: %+.4f %% (allowed "
           "%.2f %%), same top token %.2f %%, mean KL %.6f, %u positions in "
           "%.1f s\n",
           bt_kv_type_info(run->type)->name, exp(ours.nll / n),
           exp(base.nll / n), 100.0 * change, 100.0 * MAX_KV_TYPE_CHANGE,
           100.0 * ours.n_same_top / n, ours.kl / n, ours.n, run->seconds);
    return ((ours.n == base.n) && (ours.n >= MIN_KV_TYPE_POSITIONS) &&
            (fabs(change) <= MAX_KV_TYPE_CHANGE))
               ? 0
               : -1;
}

/* The ids of the windows without what each begins with. */
static int check_ids(const bt_tokenizer_t *tok, const golden_t *g,
                     const char *text, size_t n_text)
{
    bt_token_vec_t ids = {0};
    uint32_t at = 0;
    int rc = 0;

    if (bt_tokenize(tok, text, n_text, BT_TOK_PARSE_SPECIAL, 1u << 20, &ids) !=
        BT_OK) {
        return -1;
    }
    for (uint32_t i = 0; (rc == 0) && (i < g->n_tokens); i++) {
        if (i % g->window == 0) {
            continue;
        }
        if ((at >= ids.n) || (ids.ids[at] != g->tokens[i])) {
            fprintf(stderr, "token %u of the text: %u, not %u\n", at,
                    (at < ids.n) ? ids.ids[at] : 0, g->tokens[i]);
            rc = -1;
        }
        at++;
    }
    bt_free(ids.ids);
    return rc;
}

static int check_tokenizer(const char *path, const golden_t *g)
{
    static char text[65536];
    FILE *const file = fopen(bt_test_path("golden/accuracy_text.txt"), "re");
    const size_t n_text =
        (file != NULL) ? fread(text, 1, sizeof(text), file) : 0;
    bt_gguf_t *gguf = NULL;
    bt_tokenizer_t *tok = NULL;
    char why[256] = "no text";
    int rc = -1;

    if ((n_text > 0) &&
        (bt_gguf_open(path, why, sizeof(why), &gguf) == BT_OK) &&
        (bt_tokenizer_load(gguf, why, sizeof(why), &tok) == BT_OK)) {
        rc = check_ids(tok, g, text, n_text);
    } else {
        fprintf(stderr, "%s: %s\n", path, why);
    }
    bt_tokenizer_destroy(tok);
    bt_gguf_close(gguf);
    if (file != NULL) {
        fclose(file);
    }
    return rc;
}

static int check(const real_model_t *model, const char *path, uint32_t n_ranks,
                 uint32_t n_stages)
{
    const bool is_default = (model == &models[0]);
    const uint32_t n_runs = (is_default && (n_ranks == 1)) ? N_RUNS : 1;
    golden_t golden = {0};
    const char *const all = getenv("BATON_LONG");
    const uint32_t step = ((all != NULL) && (all[0] != 0)) ? 1 : 3;
    static run_t runs[] = {{.type = BT_KV_BF16, .step = 1},
                           {.type = BT_KV_F16},
                           {.type = BT_KV_INT8},
                           {.type = BT_KV_FP8}};
    int rc;

    rc = read_golden(bt_test_path(model->golden), &golden);
    if (rc != 0) {
        fprintf(stderr, "%s cannot be read\n", model->golden);
    }
    for (uint32_t i = 1; i < n_runs; i++) {
        runs[i].step = step;
    }
    if ((rc == 0) && model->with_bos) {
        rc = check_tokenizer(path, &golden);
    }
    if (rc == 0) {
        rc = run_model(path, n_ranks, n_stages, &golden, runs, n_runs);
    }
    if (rc == 0) {
        rc = report(model, &golden, &runs[0]);
        for (uint32_t i = 1; i < n_runs; i++) {
            rc |= report_kv_type(&golden, &runs[i], &runs[0]);
        }
    }
    free_golden(&golden);
    return rc;
}

int main(int argc, char **argv)
{
    const char *const name = (argc > 1) ? argv[1] : models[0].name;
    const uint32_t n_ranks =
        (argc > 2) ? (uint32_t)strtoul(argv[2], NULL, 10) : 1;
    const uint32_t n_stages =
        (argc > 3) ? (uint32_t)strtoul(argv[3], NULL, 10) : 1;
    const real_model_t *model = NULL;
    const char *path;
    struct stat st;

    for (size_t i = 0; i < BT_ARRAY_LEN(models); i++) {
        model = (strcmp(name, models[i].name) == 0) ? &models[i] : model;
    }
    if (model == NULL) {
        fprintf(stderr, "no model %s\n", name);
        return 1;
    }
    path = getenv(model->variable);
    if ((path == NULL) || (stat(path, &st) != 0)) {
        printf("skipped: %s does not name the file of %s (%s)\n",
               model->variable, name, (path == NULL) ? "not set" : path);
        return EXIT_SKIPPED;
    }
    return (check(model, path, n_ranks, n_stages) == 0) ? 0 : 1;
}
