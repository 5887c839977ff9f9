# SPDX-License-Identifier: Apache-2.0
# What the subcommands of the baton script share in the source tree. Sourced, never
# run; `root` is the top of the tree.

# shellcheck source=setup/commands.sh
. "$root/setup/commands.sh"

build="$root/build"
programs=(launcher/baton-launch router/baton-router launcher/orchestrator/baton-orchestrator
          worker/main/baton-prefill-worker worker/main/baton-decode-worker)

# read_packages FILE...: a word for each package, its name or its names with | between.
read_packages() { awk '!/^#/ && NF { print $1 }' "$@"; }

has_apt() { command -v apt-get >/dev/null && command -v dpkg-query >/dev/null; }

# missing_by_dpkg NAMES...: those of which none is installed.
missing_by_dpkg() {
    local names
    IFS=' |' read -ra names <<<"$*"
    dpkg-query -W -f='${Package} ${Status}\n' "${names[@]}" 2>/dev/null |
        awk -v wanted="$*" '
            $2 " " $3 " " $4 == "install ok installed" { have[$1] = 1 }
            END {
                n = split(wanted, packages, " ")
                for (i = 1; i <= n; i++) {
                    there = 0
                    n_names = split(packages[i], names, "|")
                    for (k = 1; k <= n_names; k++) there = there || (names[k] in have)
                    if (!there) print packages[i]
                }
            }'
}

# missing_by_check FILE...: on a system without dpkg, by the second column.
missing_by_check() {
    local package checks check
    awk '!/^#/ && NF { print $1, $2 }' "$@" |
        while read -r package checks; do
            for check in ${checks//|/ } missing; do
                case $check in
                cmd:*) command -v "${check#cmd:}" >/dev/null ;;
                pc:*) pkg-config --exists "${check#pc:}" 2>/dev/null ;;
                header:*) printf '#include <%s>\n' "${check#header:}" |
                          "${CC:-cc}" -E -x c - >/dev/null 2>&1 ;;
                missing) [ -z "$checks" ] || printf '%s\n' "$package" ;;
                esac && break
            done
        done
}

# Is there a package of that name to install?
apt_has() { LC_ALL=C apt-cache policy "$1" 2>/dev/null | grep '^  Candidate: [^(]' >/dev/null; }

# names_here NAMES...: of each the name that it has on this distribution.
names_here() {
    local names name
    for names; do
        for name in ${names//|/ }; do
            if [ "$name" = "${names##*|}" ] || apt_has "$name"; then
                printf '%s\n' "$name"
                break
            fi
        done
    done
}

# ensure_packages FILE...: install what is missing, as the options
# `assume_yes` and `no_install` say. Where neither was given a person at a terminal is
# asked. Without a terminal nothing is installed that nobody said yes to, unless
# `unattended` says that the command is a build machine's.
ensure_packages() {
    local names missing install="apt-get install -y --no-install-recommends" command answer
    if has_apt; then
        mapfile -t names < <(read_packages "$@")
        mapfile -t missing < <(missing_by_dpkg "${names[@]}")
    else
        mapfile -t missing < <(missing_by_check "$@")
    fi
    [ ${#missing[@]} -eq 0 ] && return 0

    mapfile -t names < <(names_here "${missing[@]}")
    command="$install ${names[*]}"
    if [ "$no_install" = yes ] || [ "$(id -u)" -ne 0 ] || ! has_apt; then
        say "Baton needs packages that are not installed. On Debian 12 or 13, as root:"
        say ""
        say "$command"
        exit 1
    fi
    if [ "$assume_yes" = yes ]; then
        :
    elif [ -t 0 ] && [ -t 2 ]; then
        say "Baton needs these Debian packages:"
        say "  ${names[*]}"
        printf 'Install them now? [Y/n] ' >&2
        read -r answer || answer=n
        case $answer in
        '' | [Yy]*) ;;
        *) say "Nothing was installed. The command would be:"
           say ""
           say "$command"
           exit 1 ;;
        esac
    elif [ "$unattended" != yes ]; then
        say "Baton needs packages that are not installed, and there is no terminal to ask at. --yes installs them; by hand:"
        say ""
        say "$command"
        exit 1
    fi
    say "installing ${#names[@]} packages: ${names[*]}"
    # Old lists name packages that are gone; without a network the old lists
    # may still do.
    run_logged install-update apt-get update || say "(apt-get update failed)"
    mapfile -t names < <(names_here "${missing[@]}") # a new machine had no lists
    export DEBIAN_FRONTEND=noninteractive
    # shellcheck disable=SC2086
    run_logged install $install "${names[@]}" </dev/null || {
        show_log "$build/logs/install.log"
        die "the packages could not be installed"
    }
}

# run_logged NAME COMMAND...: output goes to build/logs/NAME.log.
run_logged() {
    local name=$1
    shift
    mkdir -p "$build/logs"
    "$@" >"$build/logs/$name.log" 2>&1
}

# show_log FILE: what failed in it, or its end, and where all of it is.
show_log() {
    if grep -q '^FAILED: ' "$1"; then
        sed -n '/^FAILED: /,$p' "$1" | head -n 40 >&2
    else
        tail -n 40 "$1" >&2
    fi
    say "(all of it: $1)"
}

# Steps of ninja that are work: not the one that looks whether the commit is
# another, which is always there.
work='^\[[0-9]+/[0-9]+\] .*'
no_work='commit\.c'

# Count ninja's steps on one line of a terminal; elsewhere say that there are any.
show_steps() {
    local terminal=no
    [ -t 2 ] && terminal=yes
    awk -v label="$1" -v terminal="$terminal" -v no_work="$no_work" '
        !match($0, /^\[[0-9]+\/[0-9]+\]/) || $0 ~ no_work { next }
        terminal == "yes" { printf "\r\033[K%s %s", label, substr($0, 1, RLENGTH) }
        terminal == "no" && !n { print label }
        { fflush(); n++ }
        END { if (n && terminal == "yes") printf "\r\033[K" }' >&2
}

# run_job COMMAND...: in a process group of its own. Who asks this script to stop
# (Ctrl-C, SIGTERM, SIGHUP) ends the whole group, and what ninja started in groups
# of its own: a ninja that is asked to stop ends those and waits for them.
run_job() {
    local job='' status=0 stop='' tries=0 name
    for name in INT TERM HUP; do
        # shellcheck disable=SC2064
        trap "stop=$name"'; [ -z "$job" ] || kill -TERM -- "-$job" 2>/dev/null' "$name"
    done
    set -m
    "$@" &
    job=$!
    set +m
    # A signal that comes just as a wait begins is looked at when it is over: so
    # none is long. `read -t` is not used: it blocks for ever where its alarm
    # comes before it reads.
    while [ -z "$stop" ] && kill -0 "$job" 2>/dev/null; do
        sleep 0.05
    done
    [ -n "$stop" ] || wait "$job" || status=$?
    trap - INT TERM HUP
    [ -n "$stop" ] || return "$status"
    # A ninja that has no handler yet ignores the signal: it is sent again.
    while kill -TERM -- "-$job" 2>/dev/null && [ "$tries" -lt 200 ]; do
        sleep 0.05
        tries=$((tries + 1))
    done
    kill -KILL -- "-$job" 2>/dev/null || true
    wait "$job" 2>/dev/null || true
    kill -s "$stop" $$
}

# configure DIR MESON_OPTION...: once; ninja does it again when needed.
configure() {
    local dir=$1 name
    shift
    [ -e "$dir/build.ninja" ] && return 0
    name=configure-$(basename "$dir")
    run_job run_logged "$name" meson setup "$dir" "$root" "$@" || {
        show_log "$build/logs/$name.log"
        die "the build cannot be configured"
    }
}

# run_ninja DIR LABEL TARGET...: without a target all that there is.
run_ninja() {
    local dir=$1 label=$2
    shift 2
    mkdir -p "$build/logs"
    run_job ninja_steps "$dir" "$label" "$@" || {
        show_log "$build/logs/build.log"
        die "the build failed"
    }
}

# SIGTERM is for ninja, which has a handler; the others read what it says to the end.
ninja_steps() {
    local dir=$1 label=$2
    shift 2
    trap '' TERM
    ninja -j "$(nproc)" -C "$dir" "$@" 2>&1 |
        tee "$build/logs/build.log" | show_steps "$label"
}

# build_release ARGUMENT...: the programs of `baton serve`, only what changed.
# The CUDA plugin takes a while and is a target only where the toolkit is
# installed; it is built where there is a device or the arguments ask for it.
build_release() {
    local start=$SECONDS targets=("${programs[@]}")
    configure "$build" -Dbuildtype=release -Dtests=disabled
    if [[ -e /dev/nvidiactl || "$* ${BATON_BACKEND:-}" == *cuda* ]] &&
        grep -q '^build kernels/cuda/baton_cuda.so:' "$build/build.ninja"; then
        targets+=(kernels/cuda/baton_cuda.so)
    fi
    run_ninja "$build" "building Baton" "${targets[@]}"
    if grep -E "$work" "$build/logs/build.log" | grep -qv "$no_work"; then
        say "built Baton in $((SECONDS - start)) s"
    fi
}
