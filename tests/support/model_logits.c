/* SPDX-License-Identifier: Apache-2.0 */
/* baton-model-logits MODEL CONTEXT KEEP: reads ids of tokens from standard
 * input and writes the logits of the last KEEP of them (0: of all) as f32, a
 * row for each, to standard output. For comparisons with other programs. */
#include <stdio.h>
#include <stdlib.h>

#include "common/base/alloc.h"
#include "inference/hf/hf.h"
#include "inference/reader/reader.h"

#define MAX_TOKENS (1u << 20)

static int fail(const char *what, const char *why)
{
    fprintf(stderr, "baton-model-logits: %s: %s\n", what, why);
    return 1;
}

static uint32_t read_tokens(uint32_t *tokens, uint32_t max, uint32_t n_vocab)
{
    uint32_t n = 0;
    unsigned id;

    while ((n < max) && (scanf("%u", &id) == 1)) {
        if (id >= n_vocab) {
            return 0;
        }
        tokens[n++] = id;
    }
    return n;
}

/* @return the program's exit status */
static int write_logits(bt_reader_t *s, const uint32_t *tokens, uint32_t n,
                        uint32_t keep)
{
    const uint32_t first = ((keep == 0) || (keep > n)) ? 0 : n - keep;

    for (uint32_t pos = 0; pos < n; pos += BT_READER_ROWS) {
        const uint32_t n_rows =
            (n - pos < BT_READER_ROWS) ? n - pos : BT_READER_ROWS;
        const uint32_t skip = (first > pos) ? first - pos : 0;
        float *logits;
        const bt_status_t status =
            bt_reader_logits(s, tokens + pos, n_rows, pos, &logits);

        if (status != BT_OK) {
            return fail("forward pass", bt_status_str(status));
        }
        if ((skip < n_rows) &&
            (fwrite(logits + (size_t)skip * s->hp.n_vocab,
                    s->hp.n_vocab * sizeof(*logits), n_rows - skip,
                    stdout) != n_rows - skip)) {
            return fail("output", "it cannot be written");
        }
    }
    return (fflush(stdout) == 0) ? 0 : fail("output", "it cannot be written");
}

int main(int argc, char **argv)
{
    bt_reader_config_t config = {.n_threads = 2};
    bt_reader_t s = {0};
    bt_gguf_t *gguf = NULL;
    char why[512] = "";
    uint32_t *tokens = NULL;
    uint32_t context;
    uint32_t n;
    int rc;

    if (argc != 4) {
        fputs("usage: baton-model-logits MODEL CONTEXT KEEP < TOKENS\n",
              stderr);
        return 2;
    }
    context = (uint32_t)strtoul(argv[2], NULL, 10);
    if ((context == 0) || (context > MAX_TOKENS)) {
        return fail(argv[2], "it is no number of tokens");
    }
    config.window = context;
    tokens = bt_calloc(context, sizeof(*tokens));
    if ((tokens == NULL) ||
        (bt_modelfile_open(argv[1], why, sizeof(why), &gguf) != BT_OK) ||
        (bt_reader_open(&s, gguf, &config, why, sizeof(why)) != BT_OK)) {
        rc = fail(argv[1], why);
    } else {
        n = read_tokens(tokens, context, s.hp.n_vocab);
        rc = (n > 0) ? write_logits(&s, tokens, n,
                                    (uint32_t)strtoul(argv[3], NULL, 10))
                     : fail("input", "there are no ids of its tokens");
    }
    bt_reader_close(&s);
    bt_gguf_close(gguf);
    bt_free(tokens);
    return rc;
}
