/* SPDX-License-Identifier: Apache-2.0 */
/* baton-tiny-model OUT.gguf [options]: see tiny_model.h. */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "common/base/status.h"
#include "inference/gguf/gguf.h"
#include "tests/support/tiny_model.h"

#define N_TYPES 41

static const char *const usage =
    "usage: baton-tiny-model OUT.gguf [--layers N] [--dim N] [--heads N]\n"
    "       [--kv-heads N] [--ffn N] [--vocab N] [--context N] [--type NAME]\n"
    "       [--mixed-type NAME] [--embedding-type NAME] [--seed N] [--tied]\n"
    "       [--rope-factors] [--window N] [--soft-cap X] [--attn-scale X]\n"
    "       [--sinks] [--unused N] [--padding N] [--chat-template TEXT]\n"
    "       [--architecture NAME] [--tensors-of NAME] [--head-dim N]\n"
    "       [--rope-dims N]\n"
    "       [--long-factors] [--second-norm] [--biases] [--thinks]\n"
    "       [--silent-layers N] [--draft-vocab N] [--nextn] [--nextn-own]\n"
    "       [--experts N --experts-used N] [--expert-ffn N]\n"
    "       [--dense-layers N] [--gate-up] [--up-type NAME]\n"
    "       [--router-type NAME] [--shared-ffn N] [--key NAME=TYPE:VALUE]...\n";

static int parse_number(const char *text, uint32_t *value_p)
{
    char *end = NULL;
    unsigned long value;

    errno = 0;
    value = strtoul(text, &end, 10);
    if ((errno != 0) || (end == text) || (*end != '\0') ||
        (value > UINT32_MAX)) {
        fprintf(stderr, "baton-tiny-model: %s is not a number\n", text);
        return -1;
    }
    *value_p = (uint32_t)value;
    return 0;
}

static int parse_factor(const char *text, float *value_p)
{
    char *end = NULL;

    *value_p = strtof(text, &end);
    if ((end == text) || (*end != '\0') || !(*value_p > 0.0f)) {
        fprintf(stderr, "baton-tiny-model: %s is not a positive number\n",
                text);
        return -1;
    }
    return 0;
}

static int parse_type(const char *text, uint32_t *value_p)
{
    for (uint32_t type = 0; type < N_TYPES; type++) {
        if (strcasecmp(bt_gguf_type_name(type), text) == 0) {
            *value_p = type;
            return 0;
        }
    }
    fprintf(stderr, "baton-tiny-model: %s is not a tensor type\n", text);
    return -1;
}

/* "NAME=TYPE:VALUE", bt_tiny_key_t. The text stays, in pieces. */
static int parse_key(char *text, bt_tiny_model_t *m)
{
    char *const type = strchr(text, '=');

    if ((type == NULL) || (type[1] == '\0') || (type[2] != ':') ||
        (m->n_keys == BT_TINY_MAX_KEYS)) {
        fprintf(stderr, "baton-tiny-model: %s is no key\n", text);
        return -1;
    }
    *type = '\0';
    m->keys[m->n_keys++] =
        (bt_tiny_key_t){.name = text, .type = type[1], .value = type + 3};
    return 0;
}

static int parse_option(int index, char *value, bt_tiny_model_t *m)
{
    uint32_t *const numbers[] = {&m->n_layers,      &m->dim,     &m->n_heads,
                                 &m->n_kv_heads,    &m->ffn_dim, &m->n_vocab,
                                 &m->context_tokens};
    uint32_t *const kinds[] = {&m->type, &m->mixed_type, &m->embd_type};
    uint32_t seed = 0;

    if ((size_t)index < BT_ARRAY_LEN(numbers)) {
        return parse_number(value, numbers[index]);
    }
    if (index < 10) {
        return parse_type(value, kinds[index - 7]);
    }
    if (index == 10) {
        if (parse_number(value, &seed) != 0) {
            return -1;
        }
        m->seed = seed;
        return 0;
    }
    if (index == 13) {
        return parse_number(value, &m->sliding_window);
    }
    if (index == 19) {
        m->chat_template = value;
        return 0;
    }
    if (index == 20) {
        m->architecture = value;
        return 0;
    }
    if (index == 21) {
        return parse_number(value, &m->head_dim);
    }
    if (index == 22) {
        return parse_number(value, &m->rope_dims);
    }
    if (index == 29) {
        return parse_number(value, &m->n_silent);
    }
    if (index == 27) {
        m->tensors_of = value;
        return 0;
    }
    if (index == 25) {
        return parse_key(value, m);
    }
    if ((index == 17) || (index == 18)) {
        return parse_number(value,
                            (index == 17) ? &m->n_unused : &m->n_padding);
    }
    if ((index == 14) || (index == 15)) {
        return parse_factor(value,
                            (index == 14) ? &m->attn_soft_cap : &m->attn_scale);
    }
    if (index == 30) {
        return parse_number(value, &m->draft_vocab);
    }
    if ((index >= 33) && (index <= 36)) {
        uint32_t *const experts[] = {&m->n_experts, &m->n_experts_used,
                                     &m->expert_dim, &m->n_dense};

        return parse_number(value, experts[index - 33]);
    }
    if ((index == 38) || (index == 39)) {
        return parse_type(value, (index == 38) ? &m->up_type : &m->router_type);
    }
    if (index == 40) {
        return parse_number(value, &m->shared_dim);
    }
    m->gate_up = m->gate_up || (index == 37);
    m->nextn = m->nextn || (index == 31) || (index == 32);
    m->nextn_own = m->nextn_own || (index == 32);
    m->tied = m->tied || (index == 11);
    m->rope_factors = m->rope_factors || (index == 12);
    m->attn_sinks = m->attn_sinks || (index == 16);
    m->long_factors = m->long_factors || (index == 23);
    m->second_norm = m->second_norm || (index == 24);
    m->biases = m->biases || (index == 26);
    m->thinks = m->thinks || (index == 28);
    return 0;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"layers", required_argument, NULL, 0},
        {"dim", required_argument, NULL, 0},
        {"heads", required_argument, NULL, 0},
        {"kv-heads", required_argument, NULL, 0},
        {"ffn", required_argument, NULL, 0},
        {"vocab", required_argument, NULL, 0},
        {"context", required_argument, NULL, 0},
        {"type", required_argument, NULL, 0},
        {"mixed-type", required_argument, NULL, 0},
        {"embedding-type", required_argument, NULL, 0},
        {"seed", required_argument, NULL, 0},
        {"tied", no_argument, NULL, 0},
        {"rope-factors", no_argument, NULL, 0},
        {"window", required_argument, NULL, 0},
        {"soft-cap", required_argument, NULL, 0},
        {"attn-scale", required_argument, NULL, 0},
        {"sinks", no_argument, NULL, 0},
        {"unused", required_argument, NULL, 0},
        {"padding", required_argument, NULL, 0},
        {"chat-template", required_argument, NULL, 0},
        {"architecture", required_argument, NULL, 0},
        {"head-dim", required_argument, NULL, 0},
        {"rope-dims", required_argument, NULL, 0},
        {"long-factors", no_argument, NULL, 0},
        {"second-norm", no_argument, NULL, 0},
        {"key", required_argument, NULL, 0},
        {"biases", no_argument, NULL, 0},
        {"tensors-of", required_argument, NULL, 0},
        {"thinks", no_argument, NULL, 0},
        {"silent-layers", required_argument, NULL, 0},
        {"draft-vocab", required_argument, NULL, 0},
        {"nextn", no_argument, NULL, 0},
        {"nextn-own", no_argument, NULL, 0},
        {"experts", required_argument, NULL, 0},
        {"experts-used", required_argument, NULL, 0},
        {"expert-ffn", required_argument, NULL, 0},
        {"dense-layers", required_argument, NULL, 0},
        {"gate-up", no_argument, NULL, 0},
        {"up-type", required_argument, NULL, 0},
        {"router-type", required_argument, NULL, 0},
        {"shared-ffn", required_argument, NULL, 0},
        {NULL, 0, NULL, 0},
    };
    bt_tiny_model_t model = bt_tiny_model_default();
    bt_status_t status;
    int index = 0;
    int c;

    while ((c = getopt_long(argc, argv, "", options, &index)) != -1) {
        if ((c != 0) || (parse_option(index, optarg, &model) != 0)) {
            fputs(usage, stderr);
            return 2;
        }
    }
    if (optind != argc - 1) {
        fputs(usage, stderr);
        return 2;
    }
    status = bt_tiny_model_write(&model, argv[optind]);
    if (status != BT_OK) {
        fprintf(stderr, "baton-tiny-model: %s: %s\n", argv[optind],
                bt_status_str(status));
        return 1;
    }
    return 0;
}
