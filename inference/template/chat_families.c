/* SPDX-License-Identifier: Apache-2.0 */
/* Chat templates that --chat-template names, as Jinja texts. A conversation
 * that a published text would cut silently is refused. */
#include "inference/template/chat_priv.h"

#include <string.h>

#define RAISE(text) "{{ raise_exception(\"" text "\") }}"

/* Refuses what no family can show. */
#define MESSAGES                                                                                                     \
    "{% if not messages %}" RAISE(                                                                                   \
        "there are no messages") "{% endif %}"                                                                       \
                                 "{% for m in messages %}"                                                           \
                                 "{% if m.role is not string or m.content is not string %}" RAISE(                   \
                                     "a message needs a role and content") "{% endif %}"                             \
                                                                           "{% if m.tool_calls is defined %}" RAISE( \
                                                                               BT_CHAT_NO_TOOLS) "{% endif %}"       \
                                                                                                 "{% endfor %}"

#define ROLES                                                           \
    "{% for m in messages %}"                                           \
    "{% if m.role not in ['system', 'user', 'assistant'] %}" RAISE(     \
        "this model's chat template knows only the roles system, user " \
        "and assistant") "{% endif %}{% endfor %}"

#define NO_SYSTEM                                               \
    "{% for m in messages %}{% if m.role == 'system' %}" RAISE( \
        "this model's chat template has no system role") "{% endif %}{% endfor %}"

/* turns: user and assistant in alternation, behind a system message. */
#define TURNS                                                                                                                                    \
    ROLES                                                                                                                                        \
    "{% set system = messages[0].content "                                                                                                       \
    "if messages[0].role == 'system' else none %}"                                                                                               \
    "{% set turns = messages if system is none else messages[1:] %}"                                                                             \
    "{% if not turns %}" RAISE(                                                                                                                  \
        "there is no user message") "{% endif %}"                                                                                                \
                                    "{% for m in turns %}{% if m.role == 'system' %}" RAISE(                                                     \
                                        "a system message can only be the first") "{% endif %}"                                                  \
                                                                                  "{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}" RAISE( \
                                                                                      "roles must alternate user, assistant, user ...") "{% endif %}{% endfor %}"

#define OPENS(text) "{% if add_generation_prompt %}" text "{% endif %}"

#define CHATML_TURNS                                    \
    "{% for m in messages %}<|im_start|>{{ m.role }}\n" \
    "{{ m.content }}<|im_end|>\n{% endfor %}" OPENS("<|im_start|>assistant\n")

/* system: for a conversation without a system message. */
#define CHATML(system)                                                 \
    MESSAGES                                                           \
    "{% if messages[0].role != 'system' %}<|im_start|>system\n" system \
    "<|im_end|>\n{% endif %}" CHATML_TURNS

/* The first user message is stripped together with the system text. */
#define LLAMA2                                                                   \
    MESSAGES TURNS                                                               \
        "{% for m in turns %}{% if m.role == 'user' %}<s>[INST] "                \
        "{% if loop.first and system is not none %}"                             \
        "{{ ('<<SYS>>\\n' + system + '\\n<</SYS>>\\n\\n' + m.content) | trim }}" \
        "{% else %}{{ m.content | trim }}{% endif %} [/INST]"                    \
        "{% else %} {{ m.content | trim }} </s>{% endif %}{% endfor %}"

#define LLAMA3_HEADER(role) "<|start_header_id|>" role "<|end_header_id|>\n\n"

#define LLAMA3(begin)                                                                                          \
    MESSAGES                                                                                                   \
    "{% set turns = messages %}<|begin_of_text|>" begin                                                        \
    "{% for m in turns %}" LLAMA3_HEADER("{{ m.role }}") "{{ m.content | trim }}<|eot_id|>{% endfor %}" OPENS( \
        LLAMA3_HEADER("assistant"))

/* There is always a system message, which begins with these lines. */
#define LLAMA3_1_SYSTEM                                                \
    LLAMA3_HEADER("system")                                            \
    "Cutting Knowledge Date: December 2023\n"                          \
    "Today Date: 26 Jul 2024\n\n{% if messages[0].role == 'system' %}" \
    "{{ messages[0].content | trim }}{% set turns = messages[1:] %}"   \
    "{% endif %}<|eot_id|>"

/* system: of the first user message. */
#define GEMMA(check, system)                                       \
    MESSAGES check TURNS                                           \
        "<bos>{% for m in turns %}<start_of_turn>"                 \
        "{{ 'user' if m.role == 'user' else 'model' }}\n" system   \
        "{{ m.content | trim }}<end_of_turn>\n{% endfor %}" OPENS( \
            "<start_of_turn>model\n")

#define SYSTEM_FIRST \
    "{% if loop.first and system is not none %}{{ system }}\n\n{% endif %}"

/* end: behind an answer. */
#define MISTRAL(end)                                              \
    MESSAGES NO_SYSTEM TURNS                                      \
        "<s>{% for m in turns %}"                                 \
        "{% if m.role == 'user' %}[INST] {{ m.content }} [/INST]" \
        "{% else %}{{ m.content }}</s>" end "{% endif %}{% endfor %}"

#define MISTRAL_V1                                                              \
    MESSAGES TURNS                                                              \
        "<s>{% for m in turns %}{% if m.role == 'user' %} [INST] " SYSTEM_FIRST \
        "{{ m.content }} [/INST]"                                               \
        "{% else %} {{ m.content }}</s>{% endif %}{% endfor %}"

#define TAGGED(end)                                            \
    MESSAGES ROLES "{% for m in messages %}<|{{ m.role }}|>\n" \
                   "{{ m.content }}" end                       \
                   "\n{% endfor %}" OPENS("<|assistant|>\n")

static const struct {
    const char *name, *jinja;
} families[] = {
    {"chatml", MESSAGES CHATML_TURNS},
    {"smollm", CHATML("You are a helpful AI assistant named SmolLM, trained "
                      "by Hugging Face")},
    {"qwen1.5", CHATML("You are a helpful assistant")},
    {"qwen2", CHATML("You are a helpful assistant.")},
    {"qwen2.5", CHATML("You are Qwen, created by Alibaba Cloud. You are a "
                       "helpful assistant.")},
    {"llama2", LLAMA2},
    {"llama3", LLAMA3("")},
    {"llama3.1", LLAMA3(LLAMA3_1_SYSTEM)},
    {"gemma", GEMMA(NO_SYSTEM, "")},
    {"gemma3", GEMMA("", SYSTEM_FIRST)},
    {"mistral", MISTRAL("")},
    {"mistral-v0.1", MISTRAL(" ")},
    {"mistral-v1", MISTRAL_V1},
    {"zephyr", TAGGED("</s>")},
    {"phi", TAGGED("<|end|>")},
};

const char *bt_chat_family_names(void)
{
    return "chatml, smollm, qwen1.5, qwen2, qwen2.5, llama2, llama3, "
           "llama3.1, gemma, gemma3, mistral, mistral-v0.1, mistral-v1, "
           "zephyr, phi";
}

const char *bt_chat_family_jinja(const char *name, const char **name_p)
{
    for (size_t i = 0; i < sizeof(families) / sizeof(families[0]); i++) {
        if (strcmp(families[i].name, name) == 0) {
            *name_p = families[i].name;
            return families[i].jinja;
        }
    }
    return NULL;
}
