/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/accuracy_score.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/files.h"

static uint32_t top(const float *logits, uint32_t n)
{
    uint32_t best = 0;

    for (uint32_t i = 1; i < n; i++) {
        best = (logits[i] > logits[best]) ? i : best;
    }
    return best;
}

/* log of the sum of exp(logit): the difference between a logit and its log
 * p. */
static double log_sum(const float *logits, uint32_t n, float most)
{
    double sum = 0.0;

    for (uint32_t i = 0; i < n; i++) {
        sum += exp((double)logits[i] - (double)most);
    }
    return log(sum) + (double)most;
}

void bt_accuracy_add(bt_accuracy_t *score, const float *a, const float *b,
                     uint32_t n_vocab, uint32_t token)
{
    const uint32_t top_a = top(a, n_vocab);
    const uint32_t top_b = top(b, n_vocab);
    const double sum_a = log_sum(a, n_vocab, a[top_a]);
    const double sum_b = log_sum(b, n_vocab, b[top_b]);
    const double lost = (sum_b - (double)b[token]) - (sum_a - (double)a[token]);
    double kl = 0.0;

    for (uint32_t i = 0; i < n_vocab; i++) {
        const double log_p = (double)a[i] - sum_a;

        kl += exp(log_p) * (log_p - ((double)b[i] - sum_b));
    }
    score->n++;
    score->nll[0] += sum_a - (double)a[token];
    score->nll[1] += sum_b - (double)b[token];
    score->kl += kl;
    score->kl_max = fmax(score->kl_max, kl);
    score->kl_squares += kl * kl;
    score->lost_squares += lost * lost;
    score->same_top += (top_a == top_b) ? 1 : 0;
}

double bt_accuracy_perplexity(const bt_accuracy_t *score, uint32_t model)
{
    return (score->n > 0) ? exp(score->nll[model] / (double)score->n) : 0.0;
}

static bt_accuracy_mean_t mean_of(double n, double sum, double squares)
{
    bt_accuracy_mean_t m = {0};

    if (n > 0.0) {
        m.mean = sum / n;
    }
    if (n > 1.0) {
        m.error = sqrt(fmax(squares / n - m.mean * m.mean, 0.0) / (n - 1.0));
    }
    return m;
}

bt_accuracy_mean_t bt_accuracy_kl(const bt_accuracy_t *score)
{
    return mean_of((double)score->n, score->kl, score->kl_squares);
}

bt_accuracy_mean_t bt_accuracy_lost(const bt_accuracy_t *score)
{
    return mean_of((double)score->n, score->nll[1] - score->nll[0],
                   score->lost_squares);
}

#define MAX_LINE 512u
#define MAGIC    "baton-accuracy 1"

static bool make_folder(const char *path)
{
    return (mkdir(path, 0700) == 0) || (errno == EEXIST);
}

/* @return false: no home folder, or the name is too long */
static bool name_folder(char *folder, size_t bytes)
{
    const char *const cache = getenv("XDG_CACHE_HOME");
    const char *const home = getenv("HOME");
    int n = 0;

    if ((cache != NULL) && (cache[0] == '/')) {
        n = snprintf(folder, bytes, "%s", cache);
    } else if ((home != NULL) && (home[0] == '/')) {
        n = snprintf(folder, bytes, "%s/.cache", home);
    }
    if ((n < 1) || ((size_t)n + sizeof("/baton") > bytes) ||
        !make_folder(folder)) {
        return false;
    }
    memcpy(folder + n, "/baton", sizeof("/baton"));
    return make_folder(folder);
}

bt_progress_t bt_progress_of(bt_hash128_t a, bt_hash128_t b,
                             bt_hash128_t tokens, uint32_t window)
{
    const bt_hash128_t all[] = {a, b, tokens, {.lo = window}};
    const bt_hash128_t key = bt_hash128(all, sizeof(all), 0);
    bt_progress_t p = {.path = ""};
    char folder[BT_PROGRESS_PATH_BYTES - 64];
    int n;

    snprintf(p.key, sizeof(p.key), "%016" PRIx64 "%016" PRIx64, key.hi, key.lo);
    if (name_folder(folder, sizeof(folder))) {
        n = snprintf(p.path, sizeof(p.path), "%s/accuracy-%s", folder, p.key);
        if ((n < 0) || ((size_t)n >= sizeof(p.path))) {
            p.path[0] = '\0';
        }
    }
    return p;
}

static bool is_sum(double value)
{
    return isfinite(value) && (value >= 0.0);
}

uint64_t bt_progress_read(const bt_progress_t *progress, uint64_t n_tokens,
                          uint32_t window, bt_accuracy_t *score)
{
    char line[MAX_LINE + 1];
    char key[36];
    size_t n = 0;
    uint64_t at = 0;
    bt_accuracy_t s = {0};
    int fd;
    bt_status_t status;

    if (progress->path[0] == '\0') {
        return 0;
    }
    fd = open(progress->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        return 0;
    }
    status = bt_read_file(fd, line, MAX_LINE - 1, &n);
    close(fd);
    if ((status != BT_OK) || (n >= MAX_LINE)) {
        return 0;
    }
    line[n] = '\0';
    if ((sscanf(line,
                MAGIC " %35s %" SCNu64 " %" SCNu64
                      " %la %la %la %la %la %la %" SCNu64,
                key, &at, &s.n, &s.nll[0], &s.nll[1], &s.kl, &s.kl_max,
                &s.kl_squares, &s.lost_squares, &s.same_top) != 10) ||
        (strcmp(key, progress->key) != 0) || (at >= n_tokens) ||
        (at % window != 0) || (s.n != at / window * (window - 1)) ||
        (s.same_top > s.n) || !is_sum(s.nll[0]) || !is_sum(s.nll[1]) ||
        !isfinite(s.kl) || !isfinite(s.kl_max) || !is_sum(s.kl_squares) ||
        !is_sum(s.lost_squares)) {
        return 0;
    }
    *score = s;
    return at;
}

void bt_progress_write(const bt_progress_t *progress, uint64_t at,
                       const bt_accuracy_t *score)
{
    char fresh[BT_PROGRESS_PATH_BYTES + 8];
    FILE *file;
    bool good;

    if (progress->path[0] == '\0') {
        return;
    }
    snprintf(fresh, sizeof(fresh), "%s.new", progress->path);
    file = fopen(fresh, "we");
    if (file == NULL) {
        return;
    }
    good = fprintf(file,
                   MAGIC " %s %" PRIu64 " %" PRIu64
                         " %a %a %a %a %a %a %" PRIu64 "\n",
                   progress->key, at, score->n, score->nll[0], score->nll[1],
                   score->kl, score->kl_max, score->kl_squares,
                   score->lost_squares, score->same_top) > 0;
    good = (fclose(file) == 0) && good;
    if (!good || (rename(fresh, progress->path) != 0)) {
        (void)unlink(fresh);
    }
}

void bt_progress_remove(const bt_progress_t *progress)
{
    if (progress->path[0] != '\0') {
        (void)unlink(progress->path);
    }
}
