/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/kernels/kcheck.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/status.h"
#include "kernels/cpu/cpu.h"

#define CANARY_FLOATS 64u
#define CANARY_BYTE   0xc5
#define POISON_BYTE   0x7f /* 0x7f7f7f7f: 3.4e38 */
#define MAX_REPORTS   20u
#define MAX_SKIPPED   64u
#define MAX_SAMPLE    1000u
#define EXIT_SKIPPED  77 /* as meson has it */

kc_backend_t kc_backends[14];
uint32_t kc_n_backends;
const uint32_t kc_tokens[KC_MAX_SEQ_ROWS];

static uint64_t random_state;
static uint32_t sample = 1;       /* one in so many */
static uint32_t n_offered, taken; /* of the cases so far, and of the last N */
static unsigned long n_checks;
static unsigned long n_failed;
static const char *skipped[MAX_SKIPPED]; /* operations, by name */
static uint32_t n_skipped;

uint64_t kc_random(void)
{
    /* splitmix64 (Steele, Lea, Flood) */
    uint64_t z = (random_state += 0x9e3779b97f4a7c15u);

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

uint32_t kc_below(uint32_t n)
{
    return (uint32_t)((kc_random() >> 32) * n >> 32);
}

float kc_uniform(float low, float high)
{
    return low + (high - low) * (float)(kc_random() >> 40) * 0x1p-24f;
}

uint16_t kc_half(void)
{
    uint16_t half = (uint16_t)kc_random();

    return ((half & 0x7c00u) == 0x7c00u) ? half & 0x83ffu : half;
}

void kc_fill(float *x, size_t n, bool extreme)
{
    static const float odd[] = {
        0.0f,    -0.0f,  1e30f,    -1e30f, 1e-40f,           3e38f,
        -1e-45f, 1e-30f, 65504.0f, -1.0f,  __builtin_inff(), -__builtin_inff()};

    for (size_t i = 0; i < n; i++) {
        x[i] = kc_uniform(-2.0f, 2.0f);
        if (extreme && (kc_below(16) == 0)) {
            x[i] = odd[kc_below(BT_ARRAY_LEN(odd))];
        }
    }
}

bool kc_takes(void)
{
    const uint32_t at = n_offered++ % sample;

    if (at == 0) {
        taken = kc_below(sample);
    }
    return at == taken;
}

/* [n as size_t, in one float slot pair | canary | data | canary] */
float *kc_alloc(size_t n)
{
    float *base = bt_calloc_aligned(n + 3 * CANARY_FLOATS, sizeof(*base));
    float *buffer;

    if (base == NULL) {
        fprintf(stderr, "kcheck: out of memory\n");
        exit(2);
    }
    memcpy(base, &n, sizeof(n));
    memset(base + CANARY_FLOATS, CANARY_BYTE, CANARY_FLOATS * sizeof(*base));
    buffer = base + (size_t)2 * CANARY_FLOATS;
    memset(buffer + n, CANARY_BYTE, CANARY_FLOATS * sizeof(*base));
    kc_poison(buffer);
    return buffer;
}

size_t kc_size(const float *buffer)
{
    size_t n;

    memcpy(&n, buffer - (size_t)2 * CANARY_FLOATS, sizeof(n));
    return n;
}

void kc_poison(float *buffer)
{
    memset(buffer, POISON_BYTE, kc_size(buffer) * sizeof(*buffer));
}

void kc_check_canaries(const float *buffer, const char *what)
{
    const unsigned char *low =
        (const unsigned char *)(buffer - (size_t)CANARY_FLOATS);
    const unsigned char *high =
        (const unsigned char *)(buffer + kc_size(buffer));
    bool ok = true;

    for (size_t i = 0; i < CANARY_FLOATS * sizeof(float); i++) {
        ok = ok && (low[i] == CANARY_BYTE) && (high[i] == CANARY_BYTE);
    }
    kc_expect(ok, "%s: wrote outside its output", what);
}

void kc_free(float *buffer)
{
    if (buffer != NULL) {
        bt_free(buffer - (size_t)2 * CANARY_FLOATS);
    }
}

static void note_skipped(const kc_backend_t *b, const char *op, const char *why)
{
    for (uint32_t i = 0; i < n_skipped; i++) {
        if (strcmp(skipped[i], op) == 0) {
            return;
        }
    }
    if (n_skipped < MAX_SKIPPED) {
        skipped[n_skipped++] = op;
        printf("kcheck: skipped: %s of %s: %s\n", op, b->be->caps->name, why);
    }
}

bool kc_skips(const kc_backend_t *b, bool there, bool exact, const char *op)
{
    const char *profile = kc_backends[0].be->caps->profile;

    if (!there) {
        note_skipped(b, op, "not there");
        return true;
    }
    if (!exact && !kc_is_tensor(b) &&
        (strcmp(b->be->caps->profile, profile) != 0)) {
        note_skipped(b, op, "numbers of its own");
        return true;
    }
    return false;
}

bool kc_is_tensor(const kc_backend_t *b)
{
    return strcmp(b->be->caps->profile, BT_PROFILE_TENSOR) == 0;
}

bool kc_type_is_tensor(const kc_backend_t *b, bt_ktype_t type)
{
    return kc_is_tensor(b) &&
           ((type == BT_KTYPE_F16) || (type == BT_KTYPE_BF16) ||
            (type == BT_KTYPE_E4M3) || (type == BT_KTYPE_E4M3_BF16));
}

void kc_expect(bool ok, const char *fmt, ...)
{
    va_list args;

    n_checks++;
    if (ok) {
        return;
    }
    n_failed++;
    if (n_failed <= MAX_REPORTS) {
        va_start(args, fmt);
        fprintf(stderr, "FAILED ");
        vfprintf(stderr, fmt, args);
        fprintf(stderr, "\n");
        va_end(args);
    }
}

size_t kc_first_difference(const float *a, const float *b, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        bool both_nan = (a[i] != a[i]) && (b[i] != b[i]);

        if ((memcmp(&a[i], &b[i], sizeof(*a)) != 0) && !both_nan) {
            return i;
        }
    }
    return n;
}

void kc_expect_equal(const float *a, const float *b, size_t n, const char *what,
                     const char *backend)
{
    size_t at = kc_first_difference(a, b, n);

    kc_expect(at == n, "%s, %s: element %zu of %zu is %a, not %a", what,
              backend, at, n, (double)((at < n) ? b[at] : 0.0f),
              (double)((at < n) ? a[at] : 0.0f));
    kc_check_canaries(b, what);
}

/* @param n_lent  threads on lent cores beside them */
static bool open_tier(int tier, uint32_t n_threads, uint32_t n_lent)
{
    static const char *const names[] = {"plain", "avx2", "avx512"};
    const bt_backend_config_t config = {
        .n_threads = n_threads, .n_lent = n_lent, .max_rows = KC_MAX_ROWS};
    kc_backend_t *b = &kc_backends[kc_n_backends];

    if (bt_cpu_open(bt_cpu_isa((bt_cpu_tier_t)tier), &config, &b->be) !=
        BT_OK) {
        return false;
    }
    snprintf(b->name, sizeof(b->name), "%s x %u + %u", names[tier], n_threads,
             n_lent);
    if (strstr(b->be->caps->name, names[tier]) == NULL) {
        fprintf(stderr, "kcheck: asked for %s, got %s\n", names[tier],
                b->be->caps->name);
        return false;
    }
    kc_n_backends++;
    return true;
}

static bool open_tiers(void)
{
    const bt_cpu_tier_t best = bt_cpu_tier_detect();

    for (int tier = 0; tier <= (int)best; tier++) {
        for (uint32_t n = 1; n <= 3; n++) {
            if (!open_tier(tier, n, 0)) {
                return false;
            }
        }
        if (!open_tier(tier, 1, 2)) {
            return false;
        }
    }
    if (best < BT_CPU_AVX512) {
        printf("kcheck: skipped: %d tiers that this machine lacks\n",
               (int)BT_CPU_AVX512 - (int)best);
    }
    return true;
}

/* More than any case of attention has, which is split then. */
static const bt_workload_t all_cases = {.max_rows = KC_MAX_MANY,
                                        .max_seqs = 64,
                                        .context_tokens = 2048,
                                        .n_heads = 8,
                                        .n_kv_heads = 8,
                                        .head_dim = 256};

/* Behind the reference. */
static bt_status_t open_named(const char *name, bt_numerics_t numerics)
{
    const bt_backend_config_t config = {
        .n_threads = 2, .max_rows = KC_MAX_MANY, .numerics = numerics};
    kc_backend_t *b = &kc_backends[kc_n_backends];
    const bt_status_t status = bt_backend_open(name, &config, &b->be);

    if (status != BT_OK) {
        return status;
    }
    if (b->be->ops->workload_reserve != NULL) {
        const bt_status_t reserved =
            b->be->ops->workload_reserve(b->be, &all_cases);

        if (reserved != BT_OK) {
            return reserved;
        }
    }
    if (bt_backend_owns_memory(b->be)) {
        b->own = b->be;
        b->be = kc_hosted(b->be);
    }
    snprintf(b->name, sizeof(b->name), "%s", b->be->caps->name);
    kc_n_backends++;
    return BT_OK;
}

static bool is_not_there(bt_status_t status)
{
    return (status == BT_ERR_NOT_FOUND) || (status == BT_ERR_NO_DEVICE);
}

/* @return the exit status, -1: all is open */
static int open_backends(const char *name, bt_numerics_t numerics)
{
    bt_status_t status = BT_OK;

    if (name == NULL) {
        if (open_tiers()) {
            return -1;
        }
    } else if (open_tier(BT_CPU_PLAIN, 1, 0)) {
        status = open_named(name, numerics);
        if (status == BT_OK) {
            return -1;
        }
        if (is_not_there(status)) {
            printf("kcheck: skipped: back end %s: %s\n", name,
                   bt_status_str(status));
            return EXIT_SKIPPED;
        }
    }
    fprintf(stderr, "kcheck: cannot open a back end\n");
    return 2;
}

static void close_backends(void)
{
    for (uint32_t i = 0; i < kc_n_backends; i++) {
        bt_backend_close(kc_backends[i].be);
    }
}

/* @param only    of kernels of that name alone; NULL: all
 * @param is_own  of the tiers, not of a back end by name
 * @return false: there are none of that name */
static bool run_tests(const char *only, bool is_own)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } tests[] = {{"ops", kc_test_ops},
                 {"family", kc_test_family},
                 {"experts", kc_test_experts},
                 {"top", kc_test_top},
                 {"draw", kc_test_draw},
                 {"hash", kc_test_hash},
                 {"matmul", kc_test_matmul},
                 {"fused", kc_test_fused},
                 {"lora", kc_test_lora},
                 {"kv", kc_test_kv},
                 {"attention", kc_test_attention},
                 {"tensor", kc_test_tensor},
                 {"tensor", kc_test_tensor_attention},
                 {"tensor", kc_test_tensor_experts}};
    bool is_known = only == NULL;

    for (size_t i = 0; i < BT_ARRAY_LEN(tests); i++) {
        const bool is_it = (only == NULL) || (strcmp(only, tests[i].name) == 0);

        is_known = is_known || is_it;
        if (is_it && (is_own || (tests[i].run != kc_test_kv))) {
            tests[i].run();
        }
    }
    return is_known;
}

int main(int argc, char **argv)
{
    const char *name = NULL;
    const char *only = NULL;
    bt_numerics_t numerics = BT_NUMERICS_EXACT;
    uint64_t seed = bt_now_ns();
    int code;

    for (int i = 1; i < argc; i++) {
        if ((strcmp(argv[i], "--seed") == 0) && (i + 1 < argc)) {
            seed = strtoull(argv[++i], NULL, 0);
        } else if ((strcmp(argv[i], "--backend") == 0) && (i + 1 < argc)) {
            name = argv[++i];
        } else if ((strcmp(argv[i], "--numerics") == 0) && (i + 1 < argc) &&
                   (strcmp(argv[i + 1], "tensor") == 0)) {
            numerics = BT_NUMERICS_TENSOR;
            i++;
        } else if ((strcmp(argv[i], "--only") == 0) && (i + 1 < argc)) {
            only = argv[++i];
        } else if ((strcmp(argv[i], "--sample") == 0) && (i + 1 < argc) &&
                   (strtoul(argv[i + 1], NULL, 10) - 1 < MAX_SAMPLE)) {
            sample = (uint32_t)strtoul(argv[++i], NULL, 10);
        } else {
            fprintf(stderr,
                    "usage: kcheck [--seed N] [--backend NAME] [--numerics "
                    "tensor] [--only TEST] [--sample N]\n");
            return 2;
        }
    }
    bt_log_init("kcheck", BT_LOG_LEVEL_WARN);
    printf("kcheck: seed %llu\n", (unsigned long long)seed);
    random_state = seed;
    code = open_backends(name, numerics);
    if (code >= 0) {
        close_backends();
        return code;
    }
    if (!run_tests(only, name == NULL)) {
        fprintf(stderr, "kcheck: no test is called %s\n", only);
        close_backends();
        return 2;
    }
    close_backends();
    printf("kcheck: %lu checks, %lu failed\n", n_checks, n_failed);
    return (n_failed == 0) ? 0 : 1;
}
