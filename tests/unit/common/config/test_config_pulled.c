/* SPDX-License-Identifier: Apache-2.0 */
/* Models by their name in the folder of models, or by where they came from. */
#include "common/base/status.h"
#include "common/config/config.h"
#include "tests/unit/common/config/config_fixture.h"

static char folder[64];

/* An empty file, with the folders before it. */
static void make(const char *name)
{
    char path[256];

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    for (char *slash = path + strlen(folder) + 1;
         (slash = strchr(slash, '/')) != NULL; slash++) {
        *slash = '\0';
        (void)mkdir(path, 0700);
        *slash = '/';
    }
    fclose(fopen(path, "w"));
}

/* Of a model that came from there. */
static void make_manifest(const char *model, const char *source)
{
    char path[256];
    FILE *file;

    snprintf(path, sizeof(path), "%s/.baton.json", model);
    make(path);
    snprintf(path, sizeof(path), "%s/%s/.baton.json", folder, model);
    file = fopen(path, "w");
    assert_non_null(file);
    fprintf(file, "{\"source\": \"%s\", \"commit\": null}", source);
    fclose(file);
}

static int make_folder(void **state)
{
    static const char *const files[] = {
        "one.gguf",
        "pulled/Some-Q4_K_M.gguf",
        "split/s-00001-of-00002.gguf",
        "split/s-00002-of-00002.gguf",
        "hub/config.json",
        "hub/model.safetensors",
        "many/a.gguf",
        "many/b.gguf",
        "photos/cat.jpeg",
        ".pull-half/0123.part",
    };

    (void)state;
    snprintf(folder, sizeof(folder), "/tmp/baton-models-XXXXXX");
    if (mkdtemp(folder) == NULL) {
        return -1;
    }
    for (size_t i = 0; i < BT_ARRAY_LEN(files); i++) {
        make(files[i]);
    }
    make_manifest("pulled", "we/Some-GGUF:Q4_K_M");
    return 0;
}

static int remove_folder(void **state)
{
    char command[128];

    (void)state;
    snprintf(command, sizeof(command), "rm -r %s", folder);
    return system(command);
}

static void assert_model(unsigned program, const char *options,
                         const char *path, const char *name)
{
    const bt_config_t *c = NULL;
    bt_config_store_t *store = NULL;
    char line[512];
    char whole[256];
    char shown[BT_CONFIG_MODEL_NAME_BYTES];

    snprintf(line, sizeof(line), "%s --models-dir %s", options, folder);
    assert_int_equal(load(program, line, &c, &store), BT_OK);
    assert_int_equal(c->n_models, 1);
    snprintf(whole, sizeof(whole), "%s%s%s", (path[0] == '/') ? "" : folder,
             (path[0] == '/') ? "" : "/", path);
    assert_string_equal(c->models[0].path, whole);
    assert_ptr_equal(c->model, c->models[0].path);
    bt_config_model_name(&c->models[0], c->served_model_name, shown);
    assert_string_equal(shown, name);
    bt_config_destroy(store);
}

static void pulled_model_name_is_a_file_a_part_or_a_folder(void **state)
{
    (void)state;
    assert_model(BT_PROG_SERVE, "--model one", "one.gguf", "one");
    assert_model(BT_PROG_SERVE, "--model pulled", "pulled/Some-Q4_K_M.gguf",
                 "pulled");
    assert_model(BT_PROG_SERVE, "--model split", "split/s-00001-of-00002.gguf",
                 "split");
    assert_model(BT_PROG_ROUTER, "--model hub", "hub", "hub");
    assert_model(BT_PROG_DECODE, "--model pulled", "pulled/Some-Q4_K_M.gguf",
                 "pulled");
}

static void pulled_model_is_found_by_its_repository(void **state)
{
    (void)state;
    assert_model(BT_PROG_SERVE, "--model we/Some-GGUF:Q4_K_M",
                 "pulled/Some-Q4_K_M.gguf", "pulled");
    assert_model(BT_PROG_ROUTER, "--model mine=we/some-gguf:q4_k_m",
                 "pulled/Some-Q4_K_M.gguf", "mine");
    assert_model(BT_PROG_SERVE, "we/Some-GGUF:Q4_K_M",
                 "pulled/Some-Q4_K_M.gguf", "pulled");
}

/* A line of the table that tools/cli/model_store.py is held to as well. */
static void use_line(char *line, uint32_t *n_found)
{
    char *const kind = strtok_r(line, " \n", &line);
    char *const word = strtok_r(NULL, " \n", &line);
    char *const what = strtok_r(NULL, " \n", &line);
    char path[256];
    char dir[128];

    snprintf(path, sizeof(path), "table/%s", word);
    if (strcmp(kind, "file") == 0) {
        make(path);
    } else if (strcmp(kind, "from") == 0) {
        make_manifest(path, what);
    } else {
        char *found = NULL;
        bt_status_t status;

        assert_string_equal(kind, "find");
        snprintf(dir, sizeof(dir), "%s/table", folder);
        status = bt_config_pulled_find(dir, word, &found);
        if (strcmp(what, "-") == 0) {
            assert_int_equal(status, BT_ERR_NOT_FOUND);
        } else {
            assert_int_equal(status, BT_OK);
            snprintf(path, sizeof(path), "%s/%s", dir, what);
            assert_string_equal(found, path);
            (*n_found)++;
        }
        bt_free(found);
    }
}

static void pulled_model_names_resolve_as_the_shared_table_says(void **state)
{
    char line[256];
    uint32_t n_found = 0;
    FILE *file;

    (void)state;
    file = fopen(bt_test_path("support/model_folder.txt"), "r");
    assert_non_null(file);
    while (fgets(line, sizeof(line), file) != NULL) {
        if (line[0] != '#') {
            use_line(line, &n_found);
        }
    }
    fclose(file);
    assert_true(n_found > 5);
}

static void invalid_manifest_names_no_model(void **state)
{
    static const char *const texts[] = {
        "",
        "{",
        "[]",
        "{\"source\": 1}",
        "{\"source\": [\"we/Bad\"]}",
        "{\"source\": \"we/Bad\"",
        "{\"source\": \"we/Bad\", \"source\": 1}"};
    char path[256];
    char *found = NULL;

    (void)state;
    make("bad/m.gguf");
    snprintf(path, sizeof(path), "%s/bad/.baton.json", folder);
    for (size_t i = 0; i < BT_ARRAY_LEN(texts); i++) {
        FILE *const file = fopen(path, "w");

        fputs(texts[i], file);
        fclose(file);
        assert_int_equal(bt_config_pulled_find(folder, "we/Bad", &found),
                         BT_ERR_NOT_FOUND);
    }
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0); /* nobody waits for a writer */
    assert_int_equal(bt_config_pulled_find(folder, "we/Bad", &found),
                     BT_ERR_NOT_FOUND);
}

static void pulled_model_may_be_served_under_another_name(void **state)
{
    (void)state;
    assert_model(BT_PROG_SERVE, "--model mine=pulled",
                 "pulled/Some-Q4_K_M.gguf", "mine");
    assert_model(BT_PROG_SERVE, "--model pulled --served-model-name ours",
                 "pulled/Some-Q4_K_M.gguf", "ours");
}

static void pulled_model_may_be_a_positional_argument(void **state)
{
    (void)state;
    assert_model(BT_PROG_SERVE, "pulled", "pulled/Some-Q4_K_M.gguf", "pulled");
    assert_model(BT_PROG_SERVE, "mine=hub", "hub", "mine");
}

static void existing_path_is_not_a_pulled_model(void **state)
{
    (void)state;
    assert_model(BT_PROG_SERVE, "--model /dev/null", "/dev/null", "null");
}

static void assert_not_found(const char *name)
{
    const bt_config_t *c = NULL;
    bt_config_store_t *store = NULL;
    char line[512];

    snprintf(line, sizeof(line), "--models-dir %s --model %s", folder, name);
    assert_int_equal(load(BT_PROG_SERVE, line, &c, &store), BT_OK);
    assert_string_equal(c->models[0].path, name);
    assert_null(c->models[0].pulled);
    bt_config_destroy(store);
}

static void unknown_model_name_stays_a_path(void **state)
{
    (void)state;
    assert_not_found("many"); /* which of the two? */
    assert_not_found("photos");
    assert_not_found(".pull-half");
    assert_not_found("../etc");
    assert_not_found("pulled/Some-Q4_K_M");
    assert_not_found("one.gguf");
}

static void models_dir_variable_names_the_folder(void **state)
{
    const bt_config_t *c = NULL;
    bt_config_store_t *store = NULL;

    (void)state;
    setenv("BATON_MODELS_DIR", folder, 1);
    assert_int_equal(load(BT_PROG_SERVE, "one", &c, &store), BT_OK);
    assert_string_equal(c->models[0].pulled, "one");
    bt_config_destroy(store);
    unsetenv("BATON_MODELS_DIR");
}

static void models_dir_defaults_to_the_cache(void **state)
{
    char *path = NULL;
    char baton[128];

    (void)state;
    make("baton/here.gguf");
    setenv("XDG_CACHE_HOME", folder, 1);
    snprintf(baton, sizeof(baton), "%s/baton/here.gguf", folder);
    assert_int_equal(bt_config_pulled_find("", "here", &path), BT_OK);
    assert_string_equal(path, baton);
    bt_free(path);
    unsetenv("XDG_CACHE_HOME");
}

static void missing_model_error_names_the_pull_command(void **state)
{
    char line[256];
    char hint[BT_CONFIG_HINT_BYTES];

    (void)state;
    bt_config_pulled_hint(folder, "puled", hint, sizeof(hint));
    assert_string_equal(hint, "; did you mean pulled?");
    bt_config_pulled_hint(folder, "fotos", hint, sizeof(hint)); /* no model */
    assert_string_equal(hint, "; ./baton list shows the models that are here, "
                              "./baton pull fetches others");
    bt_config_pulled_hint(folder, "/puled", hint, sizeof(hint));
    assert_string_equal(hint, "");
    bt_config_pulled_hint(folder, "puled.gguf", hint, sizeof(hint));
    assert_string_equal(hint, "");
    snprintf(line, sizeof(line), "puled --models-dir %s", folder);
    assert_refused(BT_PROG_SERVE, line,
                   "baton serve: unexpected argument 'puled': there is no such "
                   "model file, and options start with --; did you mean "
                   "pulled?\n");
    /* Of a hub: that is said with what is wrong with the file. */
    bt_config_pulled_hint(folder, "we/None-GGUF:Q4_0", hint, sizeof(hint));
    assert_string_equal(hint, "");
    bt_model_hint("we/None-GGUF:d/N-Q4_0.gguf", hint, sizeof(hint));
    assert_string_equal(hint, "models of a hub are fetched first: ./baton pull "
                              "we/None-GGUF:d/N-Q4_0.gguf");
    snprintf(line, sizeof(line), "we/None-GGUF:Q4_0 --models-dir %s", folder);
    assert_refused(
        BT_PROG_SERVE, line,
        "baton serve: unexpected argument 'we/None-GGUF:Q4_0': there "
        "is no such model file, and options start with --; ./baton "
        "pull we/None-GGUF:Q4_0 fetches it\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(pulled_model_name_is_a_file_a_part_or_a_folder),
        BT_TEST(pulled_model_is_found_by_its_repository),
        BT_TEST(pulled_model_names_resolve_as_the_shared_table_says),
        BT_TEST(invalid_manifest_names_no_model),
        BT_TEST(pulled_model_may_be_served_under_another_name),
        BT_TEST(pulled_model_may_be_a_positional_argument),
        BT_TEST(existing_path_is_not_a_pulled_model),
        BT_TEST(unknown_model_name_stays_a_path),
        BT_TEST(models_dir_variable_names_the_folder),
        BT_TEST(models_dir_defaults_to_the_cache),
        BT_TEST(missing_model_error_names_the_pull_command),
    };

    bt_config_unset_environment();
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
