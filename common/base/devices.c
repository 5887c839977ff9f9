/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/devices.h"

#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define NAMES_BYTES 65536

static void add(bt_devices_t *devices, const char *name, size_t len)
{
    bt_strbuf_append(&devices->names, name, len);
    bt_strbuf_append(&devices->names, "", 1);
    devices->n++;
}

/* "-1", an invalid entry, hides itself and all entries after it. */
static bool is_device(const char *name, size_t len)
{
    return (len > 0) && (name[0] != '-');
}

static void read_names(const char *list, bt_devices_t *devices)
{
    for (;;) {
        const char *const end = strchrnul(list, ',');
        const size_t before = strspn(list, " ");
        size_t len = (size_t)(end - list);

        len = (before < len) ? len - before : 0;
        while ((len > 0) && (list[before + len - 1] == ' ')) {
            len--;
        }
        if (!is_device(list + before, len)) {
            return;
        }
        add(devices, list + before, len);
        if (*end == '\0') {
            return;
        }
        list = end + 1;
    }
}

static bool is_gpu_file(const char *name)
{
    static const char stem[] = "nvidia";
    const char *const number = name + sizeof(stem) - 1;

    return (strncmp(name, stem, sizeof(stem) - 1) == 0) &&
           (number[0] != '\0') &&
           (number[strspn(number, "0123456789")] == '\0');
}

/* CUDA numbers devices from 0, whatever their files are called. */
static void count_files(const char *path, bt_devices_t *devices)
{
    DIR *const dir = opendir(path);
    const struct dirent *entry;
    char number[16];

    if (dir == NULL) {
        return;
    }
    while ((entry = readdir(dir)) != NULL) {
        if (is_gpu_file(entry->d_name)) {
            snprintf(number, sizeof(number), "%u", devices->n);
            add(devices, number, strlen(number));
        }
    }
    closedir(dir);
}

bt_status_t bt_devices_find(const char *asked, const char *visible,
                            const char *dir, bt_devices_t *devices_p)
{
    bt_devices_t devices = {0};
    bt_status_t status;

    bt_strbuf_init(&devices.names, NAMES_BYTES);
    if (asked[0] != '\0') {
        read_names(asked, &devices);
    } else if (visible != NULL) {
        read_names(visible, &devices);
    } else {
        count_files(dir, &devices);
    }
    status = bt_strbuf_status(&devices.names);
    if (status != BT_OK) {
        bt_devices_fini(&devices);
        return status;
    }
    *devices_p = devices;
    return BT_OK;
}

void bt_devices_fini(bt_devices_t *devices)
{
    bt_strbuf_fini(&devices->names);
    devices->n = 0;
}

static const char *name_of(const bt_devices_t *devices, uint32_t i)
{
    const char *name = devices->names.data;

    for (; i > 0; i--) {
        name += strlen(name) + 1;
    }
    return name;
}

void bt_devices_deal(const bt_devices_t *devices, uint32_t first, uint32_t n,
                     bt_strbuf_t *out)
{
    for (uint32_t i = 0; i < n; i++) {
        bt_strbuf_puts(out, (i == 0) ? "" : ",");
        bt_strbuf_puts(out, name_of(devices, (first + i) % devices->n));
    }
}
