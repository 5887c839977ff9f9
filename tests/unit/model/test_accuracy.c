/* SPDX-License-Identifier: Apache-2.0 */
/* Is the whole forward pass right? Teacher-forced over 2,560 positions of
 * English and code against PyTorch in float32 on the same file dequantized:
 * tests/golden/make_logits_golden.py made accuracy_logits.bin and describes
 * its format. The bounds are what llama.cpp reaches on such text.
 *
 * That is with KV in bf16. The other types run over every third window (English
 * and code; with BATON_LONG over all), and their perplexity is held against
 * that of bf16 over the same windows. Not where a sanitizer makes a minute of a
 * second: the memory that they touch is checked by kcheck and test_model.
 *
 * With an argument: on so many ranks, with another in so many stages, with the
 * same bounds.
 *
 * Runs the model named by BATON_TEST_MODEL; without it: skipped, exit 77. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/assert.h"
#include "common/base/clock.h"
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

#define MAX_PERPLEXITY_CHANGE 0.0067
#define MIN_SAME_TOP          0.965
#define MAX_MEAN_KL           0.0035
#define MAX_KV_TYPE_CHANGE    0.01 /* of the perplexity with f16 KV */
#define MIN_KV_TYPE_POSITIONS 1024u

#define MAGIC       "BTLOGIT1"
#define MAX_TOP     256u
#define MAX_WINDOWS 100u
#define MAX_WINDOW  4096u
#define BLOCK       16u /* tokens per KV block */

typedef struct golden {
    uint32_t n_windows;
    uint32_t window;
    uint32_t top;
    uint32_t n; /* n_windows * window */
    uint16_t *tokens;
    float *target;
    float *tail;
    uint16_t *ids;
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

static int read_golden(const char *path, golden_t *g)
{
    FILE *const file = fopen(path, "re");
    char magic[8];
    uint32_t head[3];
    int rc = -1;

    if ((file == NULL) || (fread(magic, sizeof(magic), 1, file) != 1) ||
        (memcmp(magic, MAGIC, sizeof(magic)) != 0) ||
        (fread(head, sizeof(head), 1, file) != 1)) {
        goto out;
    }
    g->n_windows = head[0];
    g->window = head[1];
    g->top = head[2];
    if ((g->n_windows == 0) || (g->n_windows > MAX_WINDOWS) ||
        (g->window == 0) || (g->window > MAX_WINDOW) || (g->top == 0) ||
        (g->top > MAX_TOP)) {
        goto out;
    }
    g->n = g->n_windows * g->window;
    g->tokens = read_array(file, (size_t)g->n + 1, sizeof(*g->tokens));
    g->target = read_array(file, g->n, sizeof(*g->target));
    g->tail = read_array(file, g->n, sizeof(*g->tail));
    g->ids = read_array(file, (size_t)g->n * g->top, sizeof(*g->ids));
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
    const uint16_t *const ids = &g->ids[(size_t)at * g->top];
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
    score->nll -= (double)logits[g->tokens[at + 1]] - norm;
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
                        .n_logit_rows = g->window,
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
            rows[i] = i;
        }
        if (bt_model_forward(model, &fwd, &logits) != BT_OK) {
            goto out;
        }
        for (uint32_t i = 0; i < g->window; i++) {
            score_row(g, w * g->window + i, &logits[(size_t)i * hp->n_vocab],
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
                                      .max_logit_rows = g->window,
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
    be_config.max_dim = bt_hparams_max_dim(&hp);
    rc = 0;
    for (uint32_t i = 0; (rc == 0) && (i < n_runs); i++) {
        bt_rank_team_t team;

        rc =
            (bt_rank_team_open(gguf, n_ranks, &be_config, &config, runs[i].type,
                               BLOCK, (g->window + BLOCK - 1) / BLOCK, why,
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

static int report(const golden_t *g, const run_t *run)
{
    const score_t all = total(g, run, 1);
    const score_t *const score = &all;
    const double n = all.n;
    const double change = exp((score->nll - score->nll_ref) / n) - 1.0;
    const double same_top = score->n_same_top / n;
    const double kl = score->kl / n;
    const int ok = (fabs(change) <= MAX_PERPLEXITY_CHANGE) &&
                   (same_top >= MIN_SAME_TOP) && (kl <= MAX_MEAN_KL);

    printf("%u positions in %.1f s\n", all.n, run->seconds);
    printf("perplexity      %.4f, reference %.4f: %+.4f %% (allowed %.2f %%)\n",
           exp(score->nll / n), exp(score->nll_ref / n), 100.0 * change,
           100.0 * MAX_PERPLEXITY_CHANGE);
    printf("same top token  %.2f %% (needed %.1f %%)\n", 100.0 * same_top,
           100.0 * MIN_SAME_TOP);
    printf("mean KL         %.6f (allowed %.4f)\n", kl, MAX_MEAN_KL);
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

int main(int argc, char **argv)
{
    const uint32_t n_ranks =
        (argc > 1) ? (uint32_t)strtoul(argv[1], NULL, 10) : 1;
    const uint32_t n_stages =
        (argc > 2) ? (uint32_t)strtoul(argv[2], NULL, 10) : 1;
    const uint32_t n_runs = (n_ranks == 1) ? N_RUNS : 1;
    const char *const path = getenv("BATON_TEST_MODEL");
    golden_t golden = {0};
    const char *const all = getenv("BATON_LONG");
    const uint32_t step = ((all != NULL) && (all[0] != 0)) ? 1 : 3;
    static run_t runs[] = {{.type = BT_KV_BF16, .step = 1},
                           {.type = BT_KV_F16},
                           {.type = BT_KV_INT8},
                           {.type = BT_KV_FP8}};
    struct stat st;
    int rc;

    if ((path == NULL) || (stat(path, &st) != 0)) {
        printf("skipped: BATON_TEST_MODEL does not name the default model's "
               "file (%s)\n",
               (path == NULL) ? "not set" : path);
        return EXIT_SKIPPED;
    }
    rc = read_golden(bt_test_path("golden/accuracy_logits.bin"), &golden);
    if (rc != 0) {
        fprintf(stderr, "golden/accuracy_logits.bin cannot be read\n");
    }
    for (uint32_t i = 1; i < n_runs; i++) {
        runs[i].step = step;
    }
    if (rc == 0) {
        rc = run_model(path, n_ranks, n_stages, &golden, runs, n_runs);
    }
    if (rc == 0) {
        rc = report(&golden, &runs[0]);
        for (uint32_t i = 1; i < n_runs; i++) {
            rc |= report_kv_type(&golden, &runs[i], &runs[0]);
        }
    }
    free_golden(&golden);
    return (rc == 0) ? 0 : 1;
}
