/* SPDX-License-Identifier: Apache-2.0 */
/* Models by their name in the folder of models. */
#include "common/base/assert.h"
#include "tests/unit/config/config_fixture.h"

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

static int make_folder(void **state)
{
    static const char *const files[] = {
        "one.gguf",
        "pulled/Some-Q4_K_M.gguf",
        "pulled/.baton.json",
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
    bt_config_model_name(&c->models[0], c->model_name, shown);
    assert_string_equal(shown, name);
    bt_config_destroy(store);
}

static void a_name_is_a_file_a_part_or_a_folder(void **state)
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

static void clients_may_find_it_under_another_name(void **state)
{
    (void)state;
    assert_model(BT_PROG_SERVE, "--model mine=pulled",
                 "pulled/Some-Q4_K_M.gguf", "mine");
    assert_model(BT_PROG_SERVE, "--model pulled --model-name ours",
                 "pulled/Some-Q4_K_M.gguf", "ours");
}

static void it_may_stand_without_its_option_before_the_folder(void **state)
{
    (void)state;
    assert_model(BT_PROG_SERVE, "pulled", "pulled/Some-Q4_K_M.gguf", "pulled");
    assert_model(BT_PROG_SERVE, "mine=hub", "hub", "mine");
}

static void a_path_is_a_path(void **state)
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

static void what_is_no_model_of_the_folder_stays_a_path(void **state)
{
    (void)state;
    assert_not_found("many"); /* which of the two? */
    assert_not_found("photos");
    assert_not_found(".pull-half");
    assert_not_found("../etc");
    assert_not_found("pulled/Some-Q4_K_M");
    assert_not_found("one.gguf");
}

static void the_variable_names_the_folder(void **state)
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

static void the_cache_is_the_folder_where_none_is_named(void **state)
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

static void what_is_not_there_gets_an_answer_that_helps(void **state)
{
    char line[256];
    char hint[128];

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
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(a_name_is_a_file_a_part_or_a_folder),
        BT_TEST(clients_may_find_it_under_another_name),
        BT_TEST(it_may_stand_without_its_option_before_the_folder),
        BT_TEST(a_path_is_a_path),
        BT_TEST(what_is_no_model_of_the_folder_stays_a_path),
        BT_TEST(the_variable_names_the_folder),
        BT_TEST(the_cache_is_the_folder_where_none_is_named),
        BT_TEST(what_is_not_there_gets_an_answer_that_helps),
    };

    bt_config_unset_environment();
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
