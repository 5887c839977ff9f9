/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/last_words.h"

void bt_last_words_reset(bt_last_words_t *words)
{
    words->n_lines = 0;
    words->next = 0;
    words->len = 0;
}

static void end_line(bt_last_words_t *words)
{
    words->lines[words->next][words->len] = '\0';
    words->len = 0;
    words->next = (words->next + 1) % BT_LAST_WORDS_LINES;
    /* The slot being written is the oldest line's: at most one less is held
     * while a line is open, and all of them are between two lines. */
    if (words->n_lines < BT_LAST_WORDS_LINES) {
        words->n_lines++;
    }
}

void bt_last_words_add(bt_last_words_t *words, const char *data, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (data[i] == '\n') {
            end_line(words);
        } else if (words->len + 1 < BT_LAST_WORDS_BYTES) {
            if ((words->len == 0) && (words->n_lines == BT_LAST_WORDS_LINES)) {
                words->n_lines--;
            }
            words->lines[words->next][words->len++] = data[i];
        }
    }
}

void bt_last_words_finish(bt_last_words_t *words)
{
    if (words->len > 0) {
        end_line(words);
    }
}

const char *bt_last_words_line(const bt_last_words_t *words, uint32_t i)
{
    uint32_t oldest;

    if (i >= words->n_lines) {
        return NULL;
    }
    oldest = (words->next + BT_LAST_WORDS_LINES - words->n_lines) %
             BT_LAST_WORDS_LINES;
    return words->lines[(oldest + i) % BT_LAST_WORDS_LINES];
}
