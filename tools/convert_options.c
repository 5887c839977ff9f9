/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/convert_options.h"

#include <string.h>

#include "common/base/status.h"
#include "common/base/text.h"
#include "inference/reader/reader.h"
#include "tools/imatrix/imatrix.h"

#define MAX_THREADS 256u
#define FILE_IN_DIR "model.gguf"

typedef struct parse {
    bt_convert_args_t args;
    bool has_out;
    bool is_checkpoint; /* the model is named as TensorRT-LLM's tools do */
    FILE *notes;
    char *why;
    size_t why_bytes;
} parse_t;

/* Command line option. apply() gets the option's value in `text` and returns
 * false to reject it, with the reason in why. */
typedef struct option {
    const char *name;
    bool has_value;
    bool (*apply)(parse_t *p, const struct option *option, const char *text);
    const char *note; /* reason why an option has no effect */
} option_t;

static bool set_in(parse_t *p, const option_t *option, const char *text)
{
    (void)option;
    if (p->args.in != NULL) {
        snprintf(p->why, p->why_bytes, "%s: the model is named already: %s",
                 text, p->args.in);
        return false;
    }
    p->args.in = text;
    return true;
}

static bool set_checkpoint(parse_t *p, const option_t *option, const char *text)
{
    p->is_checkpoint = true;
    return set_in(p, option, text);
}

static bool set_out(parse_t *p, const char *text, const char *more)
{
    const int n =
        snprintf(p->args.out, sizeof(p->args.out), "%s%s", text, more);

    if (p->has_out || (n < 1) || ((size_t)n >= sizeof(p->args.out))) {
        snprintf(p->why, p->why_bytes,
                 p->has_out ? "%s: the new file is named already"
                            : "%s: no name for a file",
                 text);
        return false;
    }
    p->has_out = true;
    return true;
}

static bool set_out_dir(parse_t *p, const option_t *option, const char *text)
{
    (void)option;
    return set_out(p, text, "/" FILE_IN_DIR);
}

static bool set_type(parse_t *p, const option_t *option, const char *text)
{
    const bt_quantize_mix_t *const mix = bt_quantize_mix_find(text);
    size_t n;

    (void)option;
    if (mix == NULL) {
        snprintf(p->why, p->why_bytes, "--type %s is none of", text);
        for (uint32_t i = 0; bt_quantize_mix_name(i) != NULL; i++) {
            n = strlen(p->why);
            snprintf(p->why + n, p->why_bytes - n, " %s",
                     bt_quantize_mix_name(i));
        }
        return false;
    }
    if ((p->args.mix != NULL) && (p->args.mix != mix)) {
        snprintf(p->why, p->why_bytes, "--type is given twice");
        return false;
    }
    p->args.mix = mix;
    return true;
}

/* convert_checkpoint.py's names. */
static bool set_dtype(parse_t *p, const option_t *option, const char *text)
{
    static const char *const names[][2] = {
        {"float16", "f16"}, {"bfloat16", "bf16"}, {"float32", "f32"}};

    for (size_t i = 0; i < BT_ARRAY_LEN(names); i++) {
        if (strcmp(text, names[i][0]) == 0) {
            return set_type(p, option, names[i][1]);
        }
    }
    snprintf(p->why, p->why_bytes,
             "--dtype %s is none of float16 bfloat16 float32", text);
    return false;
}

static bool set_number(parse_t *p, const option_t *option, const char *text,
                       uint32_t least, uint32_t most, uint32_t *n_p)
{
    uint64_t n;

    if (!bt_parse_u64(text, &n) || (n < least) || (n > most)) {
        snprintf(p->why, p->why_bytes, "%s %s is not from %u to %u",
                 option->name, text, least, most);
        return false;
    }
    *n_p = (uint32_t)n;
    return true;
}

static bool set_threads(parse_t *p, const option_t *option, const char *text)
{
    return set_number(p, option, text, 1, MAX_THREADS, &p->args.n_threads);
}

static bool set_imatrix(parse_t *p, const option_t *option, const char *text)
{
    const int n =
        snprintf(p->args.imatrix, sizeof(p->args.imatrix), "%s", text);

    if ((n < 1) || ((size_t)n >= sizeof(p->args.imatrix))) {
        snprintf(p->why, p->why_bytes, "%s %s: no name for a file",
                 option->name, text);
        return false;
    }
    return true;
}

static bool set_imatrix_text(parse_t *p, const option_t *option,
                             const char *text)
{
    (void)option;
    p->args.imatrix_text = text;
    return true;
}

static bool set_imatrix_window(parse_t *p, const option_t *option,
                               const char *text)
{
    return set_number(p, option, text, 2, BT_READER_MAX_WINDOW,
                      &p->args.imatrix_window);
}

static bool set_overwrite(parse_t *p, const option_t *option, const char *text)
{
    (void)option;
    (void)text;
    p->args.overwrite = true;
    return true;
}

static bool set_help(parse_t *p, const option_t *option, const char *text)
{
    (void)option;
    (void)text;
    p->args.help = true;
    return true;
}

static bool tell(parse_t *p, const option_t *option, const char *text)
{
    fprintf(p->notes, "baton convert: %s%s%s has no effect: %s\n", option->name,
            option->has_value ? " " : "", text, option->note);
    return true;
}

/* For features that can be switched there and are always on here. */
static bool is_always_on(parse_t *p, const option_t *option, const char *text)
{
    if ((strcmp(text, "enable") == 0) || (strcmp(text, "paged") == 0)) {
        return tell(p, option, text);
    }
    snprintf(p->why, p->why_bytes, "%s %s cannot be had: %s", option->name,
             text, option->note);
    return false;
}

#define RANKS                                                              \
    "one file serves any number of ranks; ./baton serve and its workers' " \
    "options say how many"
#define ON_REQUEST                                                           \
    "logits are returned to who asks for them, of any model; nothing is to " \
    "be built for it"
#define NO_PLUGIN "a kernel is chosen by the machine and the file's types"

static const option_t options[] = {
    {"--type", true, set_type, NULL},
    {"--threads", true, set_threads, NULL},
    {"--overwrite", false, set_overwrite, NULL},
    {"--help", false, set_help, NULL},
    {"--imatrix", true, set_imatrix, NULL},
    {"--imatrix-text", true, set_imatrix_text, NULL},
    {"--imatrix-window", true, set_imatrix_window, NULL},
    /* convert_checkpoint.py */
    {"--model_dir", true, set_checkpoint, NULL},
    {"--output_dir", true, set_out_dir, NULL},
    {"--dtype", true, set_dtype, NULL},
    {"--tp_size", true, tell, RANKS},
    {"--pp_size", true, tell, RANKS},
    {"--moe_tp_size", true, tell, RANKS},
    {"--moe_ep_size", true, tell, RANKS},
    /* trtllm-build */
    {"--checkpoint_dir", true, set_checkpoint, NULL},
    {"--gpt_attention_plugin", true, tell, NO_PLUGIN},
    {"--gemm_plugin", true, tell, NO_PLUGIN},
    {"--remove_input_padding", true, is_always_on, "batches are never padded"},
    {"--paged_kv_cache", true, is_always_on, "the KV cache is always paged"},
    {"--kv_cache_type", true, is_always_on, "the KV cache is always paged"},
    {"--gather_context_logits", false, tell, ON_REQUEST},
    {"--gather_generation_logits", false, tell, ON_REQUEST},
    {"--gather_all_token_logits", false, tell, ON_REQUEST},
};

static const option_t *find(const char *word, size_t n)
{
    for (size_t i = 0; i < BT_ARRAY_LEN(options); i++) {
        if ((strlen(options[i].name) == n) &&
            (memcmp(options[i].name, word, n) == 0)) {
            return &options[i];
        }
    }
    return NULL;
}

static bool no_option(parse_t *p, const char *word, size_t n)
{
    const char *names[BT_ARRAY_LEN(options)];
    const char *near;

    for (size_t i = 0; i < BT_ARRAY_LEN(options); i++) {
        names[i] = options[i].name;
    }
    near = bt_fuzzy_match(word, n, names, BT_ARRAY_LEN(names));
    snprintf(p->why, p->why_bytes, "no option %.*s%s%s%s", (int)n, word,
             (near != NULL) ? " (did you mean " : "",
             (near != NULL) ? near : "", (near != NULL) ? "?)" : "");
    return false;
}

/* Parses the option at argv[*i], and its value. */
static bool parse_option(parse_t *p, int argc, const char *const *argv, int *i)
{
    const char *const word = argv[*i];
    const char *const equals = strchr(word, '=');
    const size_t n = (equals != NULL) ? (size_t)(equals - word) : strlen(word);
    const option_t *const option = find(word, n);
    const char *value = (equals != NULL) ? equals + 1 : "";

    if (option == NULL) {
        return no_option(p, word, n);
    }
    if (!option->has_value && (equals != NULL)) {
        snprintf(p->why, p->why_bytes, "%s takes no value", option->name);
        return false;
    }
    if (option->has_value && (equals == NULL)) {
        if (*i + 1 >= argc) {
            snprintf(p->why, p->why_bytes, "%s needs a value", option->name);
            return false;
        }
        value = argv[++*i];
    }
    return option->apply(p, option, value);
}

/* Path beside the new file. */
static bool name_imatrix(parse_t *p)
{
    const int n = snprintf(p->args.imatrix, sizeof(p->args.imatrix),
                           "%s.imatrix.gguf", p->args.out);

    if ((n < 0) || ((size_t)n >= sizeof(p->args.imatrix))) {
        snprintf(p->why, p->why_bytes, "--imatrix is to be given: %s is long",
                 p->args.out);
        return false;
    }
    return true;
}

static bool check_imatrix(parse_t *p)
{
    bt_convert_args_t *const args = &p->args;
    const bool is_asked =
        (args->imatrix[0] != '\0') || (args->imatrix_text != NULL);

    if ((args->imatrix_window > 0) && (args->imatrix_text == NULL)) {
        snprintf(p->why, p->why_bytes,
                 "--imatrix-window is of --imatrix-text, which is not given");
        return false;
    }
    if (is_asked && !bt_quantize_mix_weighs(args->mix)) {
        fprintf(p->notes, "baton convert: an importance matrix has no effect: "
                          "nothing is quantized\n");
        args->imatrix[0] = '\0';
        args->imatrix_text = NULL;
        return true;
    }
    return (args->imatrix_text == NULL) || (args->imatrix[0] != '\0') ||
           name_imatrix(p);
}

bt_status_t bt_convert_args_parse(int argc, const char *const *argv,
                                  FILE *notes, char *why, size_t why_bytes,
                                  bt_convert_args_t *args_p)
{
    parse_t p = {.notes = notes, .why = why, .why_bytes = why_bytes};

    for (int i = 1; i < argc; i++) {
        bool good;

        if (argv[i][0] == '-') {
            good = parse_option(&p, argc, argv, &i);
        } else if (p.args.in == NULL) {
            good = set_in(&p, NULL, argv[i]);
        } else {
            good = set_out(&p, argv[i], "");
        }
        if (!good) {
            return BT_ERR_INVALID_PARAM;
        }
    }
    if (!p.args.help && ((p.args.in == NULL) || !p.has_out)) {
        snprintf(why, why_bytes, "%s is not named",
                 (p.args.in == NULL) ? "the model" : "the new file");
        return BT_ERR_INVALID_PARAM;
    }
    if ((p.args.mix == NULL) && p.is_checkpoint) {
        p.args.mix = bt_quantize_mix_find("same"); /* as those tools do */
    }
    if (!p.args.help && (p.args.mix == NULL)) {
        snprintf(why, why_bytes, "--type is not given");
        return BT_ERR_INVALID_PARAM;
    }
    if (!p.args.help && !check_imatrix(&p)) {
        return BT_ERR_INVALID_PARAM;
    }
    *args_p = p.args;
    return BT_OK;
}

void bt_convert_args_help(FILE *out)
{
    fprintf(out, "baton convert MODEL NEW.gguf --type TYPE [OPTION]...\n\n"
                 "Writes a model as a GGUF file of another type.\n\n"
                 "  --type TYPE    of most matrices:");
    for (uint32_t i = 0; bt_quantize_mix_name(i) != NULL; i++) {
        fprintf(out, "%s%s", (i % 8 == 0) ? "\n                   " : " ",
                bt_quantize_mix_name(i));
    }
    fprintf(
        out,
        "\n"
        "  --threads N    that compute; as many as there are cores\n"
        "  --overwrite    also where NEW.gguf is there\n\n"
        "  --imatrix FILE         weigh errors by an importance matrix, GGUF "
        "or .dat\n"
        "  --imatrix-text TEXT    make it: the model reads TEXT, and FILE is "
        "written, or\n"
        "                         NEW.gguf.imatrix.gguf where none is "
        "named\n"
        "  --imatrix-window N     tokens that it reads from an empty cache, "
        "%u\n\n"
        "It ended early? The same command goes on with NEW.gguf.part.\n\n"
        "Also the options of TensorRT-LLM's convert_checkpoint.py and "
        "trtllm-build:\n"
        "  --model_dir DIR, --checkpoint_dir DIR   the model\n"
        "  --output_dir DIR                        the new file is "
        "DIR/" FILE_IN_DIR "\n"
        "  --dtype float16|bfloat16|float32        --type f16, bf16, f32; same "
        "without it\n"
        "and without effect, as a line says:\n ",
        BT_IMATRIX_WINDOW);
    for (size_t i = 0; i < BT_ARRAY_LEN(options); i++) {
        if ((options[i].apply == tell) || (options[i].apply == is_always_on)) {
            fprintf(out, " %s", options[i].name);
        }
    }
    fprintf(out, "\n");
}
