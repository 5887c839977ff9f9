# SPDX-License-Identifier: Apache-2.0
# The commands that the baton script of the source tree and the one of an installed
# Baton (packaging/baton.in) have in common. Sourced, never run. Who sources it sets
#
#   root     the folder with cli/ and setup/
#   self     what a person types: ./baton, or baton
#   launch   the launcher's path
#   text     what accuracy compares over without --text
#
# and defines
#
#   program_path NAME    where one of the other programs is
#   prepare NAME...      makes sure that these can run
#   own_help             the lines of `help` that are its alone
#   told_version         "VERSION" or "VERSION (COMMIT)", of what is here
#
# ends with `run_command "$@"`, and may add to `commands` those of its own.

# A command NAME is the function cmd_NAME, or else an admin command for the launcher.
commands=(serve ask check doctor status top start stop drain undrain restart load-model unload-model load-test batch pull list rm role
          key convert accuracy completion version help)

say() { printf '%s\n' "$*" >&2; }
die() { say "baton: $*"; exit 1; }

# nearest WORD CANDIDATE...: print the one that was meant, if one is near enough.
# The distance is that of common/config/config_options.c: an edit each, and two
# neighbours that changed places are one.
nearest() {
    local word=$1
    shift
    printf '%s\n' "$@" | awk -v word="$word" '
        function least(a, b) { return a < b ? a : b }
        function distance(a, b,    i, j, d, same, best) {
            for (i = 0; i <= length(a); i++) d[i, 0] = i
            for (j = 0; j <= length(b); j++) d[0, j] = j
            for (i = 1; i <= length(a); i++) for (j = 1; j <= length(b); j++) {
                same = (substr(a, i, 1) == substr(b, j, 1))
                best = least(d[i - 1, j - 1] + !same, least(d[i - 1, j], d[i, j - 1]) + 1)
                if (i > 1 && j > 1 && substr(a, i, 1) == substr(b, j - 1, 1) &&
                    substr(a, i - 1, 1) == substr(b, j, 1))
                    best = least(best, d[i - 2, j - 2] + 1)
                d[i, j] = best
            }
            return d[length(a), length(b)]
        }
        BEGIN { found = ""; most = -1 }
        length(word) <= 64 && length($0) <= 64 {
            n = distance(word, $0)
            if (n <= int((length($0) + 2) / 3) && (most < 0 || n < most)) { most = n; found = $0 }
        }
        END { if (found != "") print found }'
}

# meant WORD CANDIDATE...: print "; did you mean X?", or nothing.
meant() {
    local found
    found=$(nearest "$@")
    [ -z "$found" ] || printf '; did you mean %s?' "$found"
}

# find_python: a python3 that has pip, which knows the package index.
find_python() {
    local python
    for python in python3 /usr/bin/python3; do
        if "$python" -c 'import pip' 2>/dev/null; then
            printf '%s\n' "$python"
            return 0
        fi
    done
    printf 'python3\n'
}

# fetch_model: print the path of the default model; with --sampling or --template,
# how it draws and is asked.
fetch_model() { "$(find_python)" "$root/setup/fetch_model.py" "$@"; }

# What a person types, in a text written for the source tree: in one of two columns, too.
cmd_help() {
    local as_typed="s#^  \./baton (.*[^ ])(   +)#  $self \1\2$([ "$self" = ./baton ] || echo '  ')#; s#\./baton#$self#g"
    cat <<'END' |
Baton serves large language models with prefill and decode on separate workers.

  ./baton serve [MODEL] [OPTION]...    start a server; without a model, fetch a
                                       small one. --help lists the common options,
                                       --help-all all of them
  ./baton check [OPTION]... [--json]   check the options of serve, and show where
                                       each value was set
  ./baton doctor [--json] [OPTION]...  check this machine, and print how to fix
                                       what is wrong
  ./baton ask [WORDS]...               ask the running server and stream the answer;
                                       without words, start a conversation. --help
                                       lists its options
  ./baton status [--json]              show processes, models and addresses
  ./baton top [--url URL] [--once]     monitor the cluster in a terminal; --help
                                       lists its options
  ./baton start|stop|drain|restart NAME
                                       control one process of the running server
  ./baton load-model MODEL=PATH, unload-model MODEL
                                       load or unload a model of the running server
  ./baton pull NAME|OWNER/REPO[:FILE]|URL
                                       fetch a model, then serve it by --model NAME
  ./baton list [--known], rm NAME...   list or remove fetched models
  ./baton role NAME prefill|decode|both
                                       change the role of a worker
  ./baton status|drain|undrain|role ... --url URL
                                       the same for any cluster, through a router;
                                       see status --url URL --help
  ./baton load-test [OPTION]...        send requests to a server and print latencies
                                       and goodput; --help lists its options
  ./baton batch FILE [-o OUT]          run the requests of a file when the server has
                                       room, and write their answers; --help lists
                                       its options
  ./baton key new TENANT               create an API key and its line for --api-keys
  ./baton convert MODEL NEW --type TYPE
                                       convert a model to a GGUF file of another type;
                                       --help lists the types
  ./baton accuracy A B [--text FILE]   measure how far model B is from model A
  ./baton completion bash|zsh          print the completion script of a shell
  ./baton version                      print version and build
  ./baton help
END
        sed -E "$as_typed"
    own_help
}

# serve_model OPTION...: run the launcher, with the default model where the options
# name none. That one draws and is asked as fetch_model.py has it, unless the options
# say how. The launcher knows all the ways to name a model, and checks the options
# before anything large is fetched. It prints three lines: the model, its sampling,
# and its chat template.
serve_model() {
    local said model
    said=$("$launch" --print-model "$@") || exit $?
    mapfile -t said <<<"$said"
    if [ -z "${said[0]}" ]; then
        model=$(fetch_model) || exit 1
        [ -n "${said[1]:-}" ] || set -- "$@" --override-generation-config "$(fetch_model --sampling)"
        [ -n "${said[2]:-}" ] || set -- "$@" --chat-template "$(fetch_model --template)"
        set -- "$@" --model "$model"
    fi
    exec "$launch" "$@"
}

# The options of serve, and nothing is started. What is built knows them.
cmd_check() {
    [ -x "$launch" ] ||
        die "nothing is built yet, and what is built knows the options; $self serve --help builds nothing, $self doctor tells what a build needs"
    exec "$launch" --check "$@"
}

# Works before anything is built, and asks what is.
cmd_doctor() {
    BATON_DOCTOR_LAUNCH=$launch BATON_DOCTOR_LIBEXEC=${libexec:-} exec python3 "$root/tools/cli/doctor.py" "$@"
}

# Admin commands go to the running launcher; nothing is built for them. With
# --url they go to a cluster's router; with BATON_URL too, where no launcher is
# named and the command is not for a launcher alone.
cmd_admin() {
    local argument where=${BATON_URL:+url}
    [ -z "${BATON_RUN_DIR:-}" ] || where=
    case $1 in start | stop | restart | load-model | unload-model) where= ;; esac
    for argument; do
        case $argument in
        --run-dir*) where= ;;
        --url*) where=url; break ;;
        esac
    done
    [ -z "$where" ] || exec python3 "$root/tools/cli/cluster.py" "$@"
    [ "$1" != undrain ] ||
        die "undrain is for a cluster (--url); a launcher's worker is started again: $self start NAME"
    [ -x "$launch" ] ||
        die "nothing is built yet, so nothing runs; $self serve does both"
    exec "$launch" --admin "$@"
}

cmd_load-test() { exec python3 "$root/tools/cli/load.py" "$@"; }

cmd_batch() { exec python3 "$root/tools/cli/batch.py" "$@"; }

cmd_top() { exec python3 "$root/tools/cli/top.py" "$@"; }

cmd_ask() { exec python3 "$root/tools/cli/ask.py" "$@"; }

cmd_key() { exec python3 "$root/tools/cli/key.py" "$@"; }

cmd_pull() { exec python3 "$root/tools/cli/pull.py" "$@"; }

cmd_list() { exec python3 "$root/tools/cli/models.py" list "$@"; }

cmd_rm() { exec python3 "$root/tools/cli/models.py" rm "$@"; }

# Programs that work on model files.
run_tool() {
    local tool=$1
    shift
    prepare "$tool"
    exec "$(program_path "$tool")" "$@"
}

cmd_convert() { run_tool baton-convert "$@"; }

cmd_accuracy() {
    local argument has_text=no
    for argument; do
        case $argument in --text) has_text=yes ;; esac
    done
    [ "$has_text" = yes ] ||
        set -- "$@" --text "$text"
    run_tool baton-accuracy "$@"
}

# For a shell's start: source <(baton completion bash).
cmd_completion() {
    case ${1:-} in
    bash | zsh) ;;
    *) die "completion for which shell? $self completion bash|zsh" ;;
    esac
    [ -x "$launch" ] || die "nothing is built yet; $self serve builds"
    exec "$launch" --print-completion "$1" "${commands[@]}"
}

# What is here, and how what is built was built; where that is of another commit
# it says so.
cmd_version() {
    local version built
    version=$(told_version)
    printf 'baton %s\n' "$version"
    if [ -x "$launch" ] && built=$("$launch" --version 2>/dev/null); then
        built=${built#baton serve }
        [ "$built" = "$version" ] || printf 'built: %s\n' "$built"
        "$launch" --print-build 2>/dev/null || true # an older one does not know it
    fi
}

run_command() {
    local name=${1:-help} known
    case $name in
    --help | -h) name=help ;;
    --version) name=version ;;
    esac
    for known in "${commands[@]}"; do
        [ "$name" = "$known" ] || continue
        declare -F "cmd_$name" >/dev/null || cmd_admin "$@"
        [ $# -eq 0 ] || shift
        "cmd_$name" "$@"
        return
    done
    say "baton: no command '$name'$(meant "$name" "${commands[@]}")"
    say "See $self help."
    exit 1
}
