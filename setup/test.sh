# SPDX-License-Identifier: Apache-2.0
# `baton test`: one function per stage, a table and one total at the end. Sourced
# by the baton script. Each stage runs in build/test-NAME, keeps its whole output
# in build/test-logs/NAME.log, and adds to the tally what it counted.

logs="$build/test-logs"
stages=(lint gcc clang asan integration clients tsan)
long_stages=(soak valgrind ubsan fuzz debian13)

# Seconds that a stage may take in a fresh clone on the slow kind of machine (two
# cores, int8 some 900 GOPS) with nothing else to do. docs/TESTING.md says how
# they came about. More is said, but fails nothing: machines are shared.
declare -A budgets=([lint]=25 [gcc]=430 [clang]=45 [asan]=420
                    [integration]=540 [clients]=240 [tsan]=100)
declare -A long_budgets=([integration]=3000 [soak]=2000 [valgrind]=900 [ubsan]=900 [fuzz]=1500 [debian13]=1200)
rows=()     # of the table: stage, passed, failed, skipped, seconds, budget
failures=() # lines that name what failed and the error, printed again at the end

n_passed=0
n_failed=0
n_skipped=0
long=no
names=()
wanted=()

# Suites with threads of their own or of a library: what TSan is for.
threaded_tests=(async_writer containers pool thread engine engine_windows http infer_shared kernels kvt_pages_warmer lent
                model otlp packed_file packed_store link shm_ring tokenizer_cost)

# Modules of the clients' tests that take longest.
slow_clients=(test_page.py test_openapi.py test_templates.py test_page_watch.py test_clients.py test_docs_commands.py)

# valgrind 3.19 does not know pidfd_open, which transfers on one host need;
# mpirun's ranks are its children, not ours.
not_under_valgrind='kvt_.*|mpi_cluster_.*'

# add PASSED FAILED SKIPPED
add() {
    n_passed=$((n_passed + $1))
    n_failed=$((n_failed + $2))
    n_skipped=$((n_skipped + $3))
}

# What names a failed test or its error: cmocka, Python, the sanitizers.
error_line='^not ok|^ *\[ +(ERROR|LINE) +\]|^ *[A-Za-z_.]*(Error|Exception)(:|$)|Sanitizer: |runtime error: |^it ended by signal'

# keep_failures LOG: its lines of that kind, the last of each failed test's.
keep_failures() {
    local lines
    mapfile -t lines < <(grep -aE "$error_line" "$1" | awk '!seen[$0]++' | cut -c 1-400 | tail -n 40)
    failures+=(${lines[@]+"${lines[@]}"})
}

# add_log LOG: what stands in its last line "N passed, N failed, N skipped", but
# for empty ones, which libraries print as they end. A run that did not get so far
# has failed.
add_log() {
    local counts
    counts=$(grep -v '^$' "$1" | tail -n 1 | sed -n \
        's/^\([0-9]*\) passed, \([0-9]*\) failed, \([0-9]*\) skipped$/\1 \2 \3/p')
    if [ -z "$counts" ]; then
        say "not ok: no total in $1; its end:"
        tail -n 40 "$1" >&2
        add 0 1 0
        failures+=("not ok: no total in $1")
        keep_failures "$1"
        return
    fi
    # shellcheck disable=SC2086
    add $counts
    [ "$(cut -d ' ' -f 2 <<<"$counts")" -eq 0 ] || keep_failures "$1"
}

# check NAME LOG COMMAND...: one test that is a command.
check() {
    local name=$1 log=$2
    shift 2
    if "$@" >"$log" 2>&1; then
        add 1 0 0
        return 0
    fi
    say "not ok $name:"
    show_log "$log"
    add 0 1 0
    failures+=("not ok $name")
    return 1
}

# set_up NAME MESON_OPTION...: configure build/test-NAME once; again where the
# tree has other targets since.
set_up() {
    local name=$1
    shift
    if [ -e "$build/test-$name/build.ninja" ]; then
        check "configure-$name" "$logs/configure-$name.log" ninja -C "$build/test-$name" build.ninja || return 1
        add -1 0 0 # counts only when it fails
        return 0
    fi
    # What a broken configuration left is of no use.
    rm -rf "$build/test-$name"
    check "configure-$name" "$logs/configure-$name.log" \
        meson setup "$build/test-$name" "$root" "$@" || return 1
    add -1 0 0 # counts only when it fails
}

# compile NAME TARGET...: one test, that it builds.
compile() {
    local name=$1
    shift
    check "build-$name" "$logs/build-$name.log" \
        ninja -j "$(nproc)" -C "$build/test-$name" "$@"
}

# find_targets NAME SELECTOR...: set `wanted` to the ninja targets of the meson
# tests selected. A name that is no test any more is a failure.
find_targets() {
    local name=$1 log="$logs/targets-$1.txt"
    shift
    check "targets-$name" "$log" \
        python3 "$root/setup/test_report.py" targets "$build/test-$name" "$@" ||
        return 1
    add -1 0 0 # counts only when it fails
    mapfile -t wanted <"$log"
}

# run_meson NAME LOGBASE MESON_TEST_ARGUMENT...: `test_prefix` is put before it;
# meson adds `log_suffix` to the name of its log. Twice as many tests run at a time
# as there are cores: many wait for times to pass. Those that take longest begin.
test_prefix=
log_suffix=
run_meson() {
    local name=$1 base=$2 json
    shift 2
    json="$build/test-$name/meson-logs/$base$log_suffix.json"
    rm -f "$json"
    # Its exit status is not looked at: the log says more, a missing log too.
    $test_prefix meson test -C "$build/test-$name" --no-rebuild --logbase "$base" \
        --print-errorlogs --num-processes $((2 * $(nproc))) \
        "$@" >"$logs/$base.log" 2>&1 || true
    python3 "$root/setup/test_report.py" results \
        "$json" >"$logs/$base.txt" || true
    grep -v '^ok ' "$logs/$base.txt" | sed '$d' >&2
    add_log "$logs/$base.txt"
}

# What a backtrace needs, and no more: a compiler is a seventh quicker for it. The
# sanitizers' code takes less than half as long at the level that they are meant
# for, and finds the same; warnings are judged where all optimizations look, since
# at that level gcc 12 is not sure of lengths that it knows at the next.
lines_only=-Dc_args=-g1
for_sanitizer=(-Dbuildtype=debugoptimized -Doptimization=1 "$lines_only")

# --- stages -----------------------------------------------------------------

stage_lint() {
    python3 "$root/tests/lint/lint.py" >"$logs/lint.log" 2>&1 || true
    grep -v '^ok ' "$logs/lint.log" | sed '$d' >&2
    add_log "$logs/lint.log"
}

# Whose programs the stages behind it run, too.
set_up_gcc() {
    CC=gcc set_up gcc --prefix=/usr --werror -Dbuildtype=debugoptimized "$lines_only" -Dtests=enabled
}

# Unit tests are built and run under the sanitizers, where they find more, and
# built by clang; with --long here as well.
not_in_gcc=(--no-suite unit --no-suite process)

compile_gcc() {
    wanted=()
    if [ "$long" != yes ]; then
        find_targets gcc "${not_in_gcc[@]}" || return 1
    fi
    compile gcc "${wanted[@]}"
}

stage_gcc() {
    set_up_gcc || return 0
    compile_gcc || return 0
    # The clients have a stage of their own, which installs them.
    local others=(--no-suite clients)
    [ "$long" = yes ] || others+=("${not_in_gcc[@]}")
    run_meson gcc gcc "${others[@]}"
}

stage_clang() {
    CC=clang set_up clang --werror -Dbuildtype=debug -Dtests=enabled \
        -Dcuda=disabled || return 0
    compile clang || return 0
    # Of what the last commits and the work tree change; with --long, of all.
    local all=()
    [ "$long" != yes ] || all=(--all)
    check clang-tidy "$logs/clang-tidy.log" \
        python3 "$root/tests/lint/tidy.py" "$build/test-clang" "${all[@]}" || return 0
}

stage_asan() {
    CC=gcc set_up asan "${for_sanitizer[@]}" -Dtests=enabled \
        -Dcuda=disabled -Db_sanitize=address,undefined || return 0
    find_targets asan --suite unit --suite process || return 0
    # The programs too: the integration tests stop them under ASan.
    compile asan "${wanted[@]}" "${programs[@]}" || return 0
    ASAN_OPTIONS=detect_stack_use_after_return=1:strict_string_checks=1:allocator_may_return_null=1 \
    UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 \
        run_meson asan asan --suite unit --suite process --timeout-multiplier 4
}

stage_tsan() {
    # No --werror: gcc 12 warns that TSan does not see fences.
    CC=gcc set_up tsan "${for_sanitizer[@]}" -Dtests=enabled \
        -Dcuda=disabled -Db_sanitize=thread || return 0
    find_targets tsan "${threaded_tests[@]}" || return 0
    compile tsan "${wanted[@]}" || return 0
    # Without address randomisation: TSan of gcc 12 knows older layouts only.
    TSAN_OPTIONS="halt_on_error=1:allocator_may_return_null=1:suppressions=$root/tests/tsan.supp:print_suppressions=0" \
    test_prefix='setarch -R' \
        run_meson tsan tsan "${threaded_tests[@]}" --timeout-multiplier 8
}

# build_for STAGE: the gcc build, whose programs this stage runs.
build_for() {
    set_up_gcc || return 1
    compile_gcc || return 1
    add -1 0 0 # counts only when it fails
}

# print_while NAME COMMAND...: a program that prints a line for each test when it
# is over, and the total. What it printed is in its log.
print_while() {
    local name=$1
    shift
    "$@" 2>&1 | tee "$logs/$name.log" |
        grep --line-buffered -E '^(not ok|skip|ok) ' >&2 || true
}

# add_printed NAME: why tests of such a program failed, and its total.
add_printed() {
    sed -n '/^Traceback/,/^not ok/p' "$logs/$1.log" >&2
    add_log "$logs/$1.log"
}

run_printing() {
    print_while "$@"
    add_printed "$1"
}

stage_integration() {
    local arguments=("${names[@]}")
    [ "$long" = yes ] && arguments+=(--long)
    build_for integration || return 0
    BATON_BUILD="$build/test-gcc" BATON_BUILD_ASAN="$build/test-asan" \
        run_printing integration \
        python3 "$root/tests/integration/run.py" "${arguments[@]}"
}

# The clients come from PyPI. Where that cannot be reached their tests are
# skipped, but not on a build machine: nobody would see that they never run.
stage_clients() {
    local python status=0 options=() why="$logs/install-clients.log" n file files
    [ "$no_install" = yes ] && options+=(--no-install)
    python=$("$(find_python)" "$root/setup/fetch_clients.py" \
             ${options[@]+"${options[@]}"} 2>"$why") || status=$?
    if [ "$status" -eq 3 ] && [ "${CI:-}" != true ]; then
        n=$(cat "$root"/tests/clients/test_*.py | grep -c '^def test_')
        say "skip clients: $(tail -n 1 "$why")"
        add 0 0 "$n"
        return 0
    elif [ "$status" -ne 0 ]; then
        say "not ok install-clients:"
        show_log "$why"
        add 0 1 0
        return 0
    fi
    build_for clients || return 0
    # Each has a cluster of its own, and waits for it half of the time: so one more
    # runs than there are cores. Those that take longest begin.
    files=("${slow_clients[@]/#/$root/tests/clients/}")
    for file in "$root"/tests/clients/test_*.py; do
        [[ " ${slow_clients[*]} " == *" $(basename "$file") "* ]] || files+=("$file")
    done
    for file in "${files[@]}"; do
        while [ "$(jobs -rp | wc -l)" -gt "$(nproc)" ]; do
            wait -n || true
        done
        BATON_BUILD="$build/test-gcc" BATON_BUILD_ASAN="$build/test-asan" \
            print_while "clients-$(basename "$file" .py)" "$python" "$file" "${names[@]}" &
    done
    wait
    for file in "${files[@]}"; do
        add_printed "clients-$(basename "$file" .py)"
    done
}

# 30 minutes of mixed load, or BATON_SOAK_SECONDS of it.
stage_soak() {
    build_for soak || return 0
    BATON_BUILD="$build/test-gcc" BATON_SOAK_SECONDS="${BATON_SOAK_SECONDS:-1800}" \
        run_printing soak \
        python3 "$root/tests/integration/run.py" test_soak
}

stage_valgrind() {
    CC=gcc set_up valgrind -Dbuildtype=debugoptimized -Dtests=enabled \
        -Dcuda=disabled || return 0
    local tests=()
    mapfile -t tests < <(python3 "$root/setup/test_report.py" names \
        "$build/test-valgrind" --suite unit | grep -vxE "$not_under_valgrind")
    find_targets valgrind "${tests[@]}" || return 0
    compile valgrind "${wanted[@]}" || return 0
    log_suffix=-valgrind \
        run_meson valgrind memory "${tests[@]}" --timeout-multiplier 40 \
        --wrapper 'valgrind -q --error-exitcode=99 --leak-check=full --errors-for-leak-kinds=definite'
}

# Undefined behaviour that clang's sanitizer knows and gcc's does not: a null
# pointer with an offset, a pointer that wraps round. The tests of the simulated
# device end before main() in such a build.
stage_ubsan() {
    CC=clang CXX=clang++ set_up ubsan "${for_sanitizer[@]}" -Dtests=enabled \
        -Dcuda=disabled -Db_lundef=false -Db_sanitize=undefined || return 0
    local tests=()
    mapfile -t tests < <(python3 "$root/setup/test_report.py" names \
        "$build/test-ubsan" --suite unit | grep -v '^cuda_')
    find_targets ubsan "${tests[@]}" || return 0
    compile ubsan "${wanted[@]}" || return 0
    UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 \
        run_meson ubsan ubsan "${tests[@]}" --timeout-multiplier 4
}

# Each libFuzzer program for five minutes, from the committed corpus, as many at
# a time as there are cores.
stage_fuzz() {
    local program name jobs=() pids=()
    CC=clang set_up fuzz -Dbuildtype=debugoptimized -Dtests=enabled \
        -Dcuda=disabled -Dfuzz=true -Db_lundef=false \
        -Db_sanitize=address,undefined || return 0
    compile fuzz || return 0
    for program in "$build"/test-fuzz/tests/fuzz/fuzz_*; do
        [ -x "$program" ] && [ -f "$program" ] && jobs+=("$program")
    done
    for program in "${jobs[@]}"; do
        while [ "$(jobs -rp | wc -l)" -ge "$(nproc)" ]; do
            wait -n || true
        done
        name=$(basename "$program")
        mkdir -p "$logs/$name-found"
        "$program" -max_total_time=300 -timeout=10 \
            -artifact_prefix="$logs/$name-" "$logs/$name-found" \
            "$root/tests/fuzz/corpus/${name#fuzz_}" >"$logs/$name.log" 2>&1 &
        pids+=($!)
    done
    for program in "${!jobs[@]}"; do
        name=$(basename "${jobs[$program]}")
        check "$name" "$logs/$name.txt" wait "${pids[$program]}" ||
            show_log "$logs/$name.log"
    done
}

# Set-up, build, serving and tests/unit on the next Debian, unpacked beside this one.
stage_debian13() {
    run_printing debian13 bash "$root/tests/packaging/debian13.sh" "${BATON_TEST_MODEL:-}" \
        "${XDG_CACHE_HOME:-$HOME/.cache}/baton-test/debs13"
}

# --- the whole --------------------------------------------------------------

# add_row NAME BUDGET SECONDS PASSED FAILED SKIPPED
add_row() {
    rows+=("$(printf '%-12s %7d %7d %8d %8d %7s' "$1" "$4" "$5" "$6" "$3" "$2")")
    if [ "$2" != - ] && [ "$3" -gt "$2" ]; then
        rows+=("warning: $1 took $3 s, its budget is $2 s")
    fi
}

run_stage() {
    local start=$SECONDS before=("$n_passed" "$n_failed" "$n_skipped") counts
    printf '== %s\n' "$1" >&2
    "stage_$1"
    counts=($((n_passed - before[0])) $((n_failed - before[1]))
            $((n_skipped - before[2])))
    printf '   %s: %d passed, %d failed, %d skipped (%d s of %s)\n' "$1" \
        "${counts[@]}" $((SECONDS - start)) "$(budget_of "$1")" >&2
    add_row "$1" "$(budget_of "$1")" $((SECONDS - start)) "${counts[@]}"
}

# budget_of STAGE: in seconds, or - for tests by name.
budget_of() {
    local budget=${budgets[$1]:-${long_budgets[$1]:--}}
    [ "$long" = yes ] && budget=${long_budgets[$1]:-$budget}
    printf '%s\n' "$budget"
}

# print_table SECONDS STAGE...: what each stage counted and took. Compiling is
# counted where it is done: a second run takes less.
print_table() {
    local seconds=$1 whole=0 stage
    shift
    for stage; do
        [ "$stage" = named ] && whole=- && break
        whole=$((whole + $(budget_of "$stage")))
    done
    add_row whole "$whole" "$seconds" "$n_passed" "$n_failed" "$n_skipped"
    printf '%-12s %7s %7s %8s %8s %7s\n' stage passed failed skipped seconds budget
    printf '%s\n' "${rows[@]}"
}

is_stage() {
    local stage
    for stage in "${stages[@]}" "${long_stages[@]}"; do
        [ "$stage" = "$1" ] && return 0
    done
    return 1
}

# known_names: of tests and stages, as the sources tell them: nothing need be
# built. Names of meson's tests are among the quoted words of its files.
known_names() {
    printf '%s\n' "${stages[@]}" "${long_stages[@]}"
    sed -n 's/^def \(test_[A-Za-z0-9_]*\).*/\1/p' \
        "$root"/tests/integration/test_*.py "$root"/tests/clients/test_*.py
    find "$root/tests" "$root/launcher" -name meson.build -exec cat {} + |
        grep -o "'[A-Za-z0-9_-]*'" | tr -d "'" | sort -u
}

# check_names NAME...: before anything is installed or built. What is put together
# of several words (a word that ends in _, such as replay_, is the first of them)
# is taken for a name: the end tells.
check_names() {
    local name known
    mapfile -t known < <(known_names)
    for name; do
        printf '%s\n' "${known[@]}" | awk -v name="$name" '
            length($0) > 0 && index($0, name) { found = 1 }
            $0 ~ /._$/ && index(name, $0) == 1 { found = 1 }
            $0 ~ /^_./ && index(name, $0) > 1 { found = 1 }
            END { exit !found }' ||
            die "no test has a name like '$name'$(meant "$name" "${known[@]}")"
    done
}

# names_of WORD: what a path stands for. A test's file stands for its tests, a source
# for the test with its name; any other word is itself.
names_of() {
    local path=${1#"$root/"} stem file
    path=${path#./}
    stem=$(basename "${path%.*}")
    case $path in
    tests/integration/*.py | tests/clients/*.py)
        sed -n 's/^def \(test_[A-Za-z0-9_]*\).*/\1/p' "$root/$path" ;;
    */*.c | */*.h | */*.py | */*.cu | */*.cc)
        stem=${stem#test_}
        for file in $(find "$root/tests" -name "test_$stem.*" | head -n 1); do
            printf '%s\n' "$stem"
        done ;;
    test_*)
        if [ -n "$(find "$root/tests" -name "$path.c" | head -n 1)" ]; then
            stem=${path#test_}
        fi
        printf '%s\n' "$stem" ;;
    *) printf '%s\n' "$1" ;;
    esac
}

# of_python FOLDER: tests of tests/FOLDER whose names hold one of the words that
# are no whole name of a test of the gcc build.
of_python() {
    sed -n 's/^def \(test_[A-Za-z0-9_]*\).*/\1/p' "$root/tests/$1"/test_*.py |
        grep -F -f <(printf '%s\n' "${words[@]}")
}

# need_model, need_all: what a stage or a test takes that is not a unit test. Once.
need_model() {
    [ -n "${BATON_TEST_MODEL:-}" ] && return 0
    if BATON_TEST_MODEL=$(fetch_model); then
        export BATON_TEST_MODEL
    else
        say "not ok fetch-model"
        add 0 1 0
    fi
}

need_all() {
    local lists=("${base_packages[@]}" "$root/setup/packages-test.txt")
    [ "$long" = yes ] && lists+=("$root/setup/packages-test-long.txt")
    ensure_packages "${lists[@]}"
    need_model
}

# Tests by name: those of the gcc build and the integration and clients' tests
# whose names hold one of the words. Only what they need is built, installed and
# fetched. Nothing found is a failure.
stage_named() {
    local count_before=$((n_passed + n_failed + n_skipped)) stage suite name tests=() words=()
    set_up_gcc || return 0
    mapfile -t tests < <(python3 "$root/setup/test_report.py" names \
        "$build/test-gcc" "${names[@]}")
    if [ ${#tests[@]} -gt 0 ]; then
        for suite in $(python3 "$root/setup/test_report.py" suites \
                "$build/test-gcc" "${tests[@]}"); do
            case $suite in
            unit | kernels) ;;
            accuracy) need_model ;;
            *) need_all ;;
            esac
        done
        case " ${tests[*]}" in
        *" accuracy_gemma"*) fetch_gemma ;;
        esac
        find_targets gcc "${tests[@]}" || return 0
        compile gcc "${wanted[@]}" || return 0
        add -1 0 0 # that it builds is no test that was asked for
        run_meson gcc named "${tests[@]}"
    fi
    for name in "${names[@]}"; do
        [[ " ${tests[*]} " == *" $name "* ]] || words+=("$name")
    done
    names=(${words[@]+"${words[@]}"}) # of the stages behind
    for stage in integration clients; do
        if [ ${#words[@]} -gt 0 ] && of_python "$stage" >/dev/null; then
            need_all
            "stage_$stage"
        fi
    done
    if [ $((n_passed + n_failed + n_skipped)) -eq "$count_before" ]; then
        say "no test has a name like: ${words[*]}"
        add 0 1 0
    fi
}

# A published model of another family, for accuracy_gemma, which says that it is
# skipped where this one cannot be had. On a build machine that is a failure:
# nobody would see that it never runs.
fetch_gemma() {
    local python status=0 options=() why="$logs/fetch-gemma.log"
    [ "$no_install" = yes ] && options+=(--no-install)
    python=$(find_python)
    BATON_TEST_GEMMA=$("$python" "$root/setup/fetch_gemma.py" \
                       ${options[@]+"${options[@]}"} 2>"$why") || status=$?
    if [ "$status" -eq 0 ]; then
        export BATON_TEST_GEMMA
    elif [ "$status" -eq 3 ] && [ "${CI:-}" != true ]; then
        say "(no Gemma to test with: $(tail -n 1 "$why"))"
    else
        say "not ok fetch-gemma:"
        show_log "$why"
        add 0 1 0
    fi
}

test_main() {
    local argument stage chosen=() start=$SECONDS words
    base_packages=("$root/setup/packages.txt" "$root/setup/packages-unit.txt")
    names=()
    for argument; do
        case $argument in
        --long) long=yes ;;
        --yes) assume_yes=yes ;;
        --no-install) no_install=yes ;;
        -*) die "baton test has no option $argument$(meant "$argument" --long --yes --no-install)" ;;
        *) if is_stage "$argument"; then
               chosen+=("$argument")
           else
               mapfile -t words < <(names_of "$argument")
               [ ${#words[@]} -gt 0 ] || die "no test is named after $argument"
               names+=("${words[@]}")
           fi ;;
        esac
    done
    check_names ${names[@]+"${names[@]}"}
    unattended=yes # a build machine's command, which has no terminal
    ensure_packages "${base_packages[@]}"
    mkdir -p "$logs"
    export LC_ALL=C.UTF-8
    [ "$long" != yes ] || export BATON_TEST_LONG=1

    if [ ${#chosen[@]} -eq 0 ] && [ ${#names[@]} -eq 0 ]; then
        chosen=("${stages[@]}")
        [ "$long" = yes ] && chosen+=("${long_stages[@]}")
    fi
    if [ ${#chosen[@]} -gt 0 ]; then
        need_all
        fetch_gemma
    fi
    for stage in ${chosen[@]+"${chosen[@]}"}; do
        run_stage "$stage"
    done
    if [ ${#names[@]} -gt 0 ]; then
        chosen+=(named)
        run_stage named
    fi

    say "logs in $logs, $(((SECONDS - start) / 60)) min $(((SECONDS - start) % 60)) s"
    [ ${#failures[@]} -eq 0 ] || printf '%s\n' "failed:" "${failures[@]}"
    print_table $((SECONDS - start)) ${chosen[@]+"${chosen[@]}"}
    printf '%d passed, %d failed, %d skipped\n' \
        "$n_passed" "$n_failed" "$n_skipped"
    [ "$n_failed" -eq 0 ] && [ "$n_passed" -gt 0 ]
}
