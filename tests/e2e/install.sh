#!/usr/bin/env bash
# install.sh BUILD - what a user of the installed library meets. Prints TAP.
#
# Installs into a temporary prefix and looks only there from then on: the examples are built with
# pkg-config against the installed header and library, static and shared, and run; the libraries
# export once_* and nothing else; a program with a buf_add() of its own keeps it; the header is
# C11 and C++; the manual pages are clean; the completions are there.
# shellcheck disable=SC2317  # functions are called by t()
set -u
cd "$(dirname "$0")/../.." || exit 1
build=${1:?usage: install.sh BUILD}
source=$PWD
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
prefix=$tmp/prefix

number=0 failed=0
# t TEXT COMMAND...: passes if the command succeeds; shows what it said if not.
t() {
    local text=$1
    shift
    number=$((number + 1))
    if "$@" >"$tmp/log" 2>&1; then
        printf 'ok %d - install: %s\n' "$number" "$text"
    else
        printf 'not ok %d - install: %s\n' "$number" "$text"
        tail -n 20 "$tmp/log" | sed 's/^/# /'
        failed=1
    fi
}

install_into() { # DESTDIR PREFIX
    make --no-print-directory install BUILD="$build" DESTDIR="$1" PREFIX="$2"
}

t "make install" install_into "" "$prefix"
[ $failed -eq 0 ] || {
    printf '1..%d\n' "$number"
    exit 1
}

# ---- what is where ----

for file in bin/once include/once/once.h lib/libonce.a lib/libonce.so lib/pkgconfig/once.pc lib/systemd/system/once.service \
    share/man/man1/once.1 share/man/man3/once.3 share/bash-completion/completions/once \
    share/zsh/site-functions/_once; do
    t "$file is there" test -s "$prefix/$file"
done

same_tree() {
    install_into "$tmp/stage" /usr || return 1
    (cd "$prefix" && find . ! -type d | sort) >"$tmp/here"
    (cd "$tmp/stage/usr" && find . ! -type d | sort) >"$tmp/there"
    diff "$tmp/here" "$tmp/there" || return 1
    [ "$(ls "$tmp/stage")" = usr ] || return 1
    grep -q '^prefix=/usr$' "$tmp/stage/usr/lib/pkgconfig/once.pc" || return 1
    grep -q '^ExecStart=/usr/bin/once serve ' "$tmp/stage/usr/lib/systemd/system/once.service" || return 1
    ! grep -rq "$tmp/stage" "$tmp/stage/usr/lib/pkgconfig" "$tmp/stage/usr/share"
}
t "DESTDIR moves the files and is written into none of them" same_tree

export PKG_CONFIG_PATH=$prefix/lib/pkgconfig
version=$(pkg-config --modversion once)
t "pkg-config knows the version of the header" test "$version" = \
    "$(sed -n 's/^#define ONCE_VERSION_\(MAJOR\|MINOR\|PATCH\) //p' "$prefix/include/once/once.h" | paste -sd.)"
so_links() {
    [ "$(readlink -f "$prefix/lib/libonce.so")" = "$prefix/lib/libonce.so.$version" ] || return 1
    local soname
    soname=$(objdump -p "$prefix/lib/libonce.so" | awk '$1 == "SONAME" { print $2 }')
    [ -e "$prefix/lib/$soname" ]
}
t "libonce.so leads to a file with the version, its soname exists" so_links

# ---- what the libraries show ----

exports_only_once() { # FILE NM-OPTIONS...: every defined global symbol is once_*, and there are some
    local file=$1
    shift
    nm --defined-only --extern-only --format=posix "$@" "$file" | awk '
        NF < 3 { next }
        $2 == "A" { next }               # the name of the version itself
        $1 ~ /^once_/ { some = 1; next }
        { print "exported: " $1; bad = 1 }
        END { exit bad || !some }'
}
t "libonce.so exports once_* and nothing else" exports_only_once "$prefix/lib/libonce.so" --dynamic
t "libonce.a defines no other global symbol" exports_only_once "$prefix/lib/libonce.a"

# Every function that the header declares is there; a declaration without code is a broken promise.
declared_is_defined() {
    sed -n 's/^ONCE_API [^(]*\b\(once_[a-z_]*\)(.*/\1/p' "$prefix/include/once/once.h" | sort >"$tmp/declared"
    nm --defined-only --dynamic --format=posix "$prefix/lib/libonce.so" |
        awk '$1 ~ /^once_/ { sub(/@.*/, "", $1); print $1 }' | sort >"$tmp/defined"
    [ -s "$tmp/declared" ] && diff "$tmp/declared" "$tmp/defined"
}
t "the header and the library have the same functions" declared_is_defined

# Name and number of arguments, from the header and from the page.
header_args() {
    sed -n '/^ONCE_API/,/;/p' "$prefix/include/once/once.h" | sed 's|/\*.*||' | tr '\n' ' ' |
        sed 's/ONCE_API/\n/g' | awk -F '(' 'NF > 1 {
            n = split($1, word, /[ *]+/)
            args = 1; depth = 0
            for (i = 1; i <= length($0) && !(depth == 1 && substr($0, i, 1) == ")"); i++) {
                c = substr($0, i, 1)
                if (c == "(") depth++
                if (c == ")") depth--
                if (c == "," && depth == 1) args++
            }
            print word[n], args
        }' | sort
}
page_args() {
    awk '$1 == ".Fn" && /"/ { print $2, gsub(/"/, "") / 2 }' "$prefix/share/man/man3/once.3" | sort
}
documented() {
    header_args >"$tmp/header" && page_args >"$tmp/page" && [ -s "$tmp/header" ] &&
        diff "$tmp/header" "$tmp/page"
}
t "once(3) has every function of the header, with as many arguments" documented

# ---- the header ----

cxx=$(command -v g++ || command -v clang++)

printf '#include <once/once.h>\nint main(void) { return once_version() == 0; }\n' >"$tmp/header.c"
header() { # COMPILER...
    # shellcheck disable=SC2046
    "$@" -Wall -Wextra -Werror $(pkg-config --cflags once) "$tmp/header.c" -fsyntax-only
}
t "the header is pedantic C11" header cc -std=c11 -pedantic-errors
t "the header is C++" header "$cxx" -x c++ -std=c++11 -pedantic-errors
inits() {
    printf '%s\n' '#include <once/once.h>' 'int main(void) {' \
        'struct once_config a = ONCE_CONFIG_INIT; struct once_claim b = ONCE_CLAIM_INIT;' \
        'struct once_owned c = ONCE_OWNED_INIT; struct once_trigger d = ONCE_TRIGGER_INIT;' \
        'struct once_run_args e = ONCE_RUN_ARGS_INIT; struct once_run_query f = ONCE_RUN_QUERY_INIT;' \
        'struct once_run_lease g = ONCE_RUN_LEASE_INIT;' \
        'return a.size != sizeof a || b.size != sizeof b || c.size != sizeof c || d.size != sizeof d ||' \
        'e.size != sizeof e || f.size != sizeof f || g.size != sizeof g; }' >"$tmp/inits.c"
    # shellcheck disable=SC2046
    "$@" -Wall -Werror $(pkg-config --cflags once) "$tmp/inits.c" -o "$tmp/inits" && "$tmp/inits"
}
t "the initialisers are C11" inits cc -std=c11 -pedantic-errors
t "the initialisers are C++20" inits "$cxx" -x c++ -std=c++20

# ---- the examples, static and shared ----

strict='-std=gnu11 -O2 -Wall -Wextra -Wconversion -Wshadow -Wstrict-prototypes -Wmissing-prototypes
    -Wswitch-enum -Wvla -Wformat=2 -Werror'

# A static library comes before what it needs, and -l would prefer the shared one: name the file.
static_libs() {
    pkg-config --static --libs once | sed "s|-lonce|$prefix/lib/libonce.a|"
}

link_static() { # SOURCE PROGRAM
    # shellcheck disable=SC2046,SC2086
    cc $strict $(pkg-config --cflags once) "$1" -o "$2" $(static_libs) -pthread
}

link_shared() { # SOURCE PROGRAM
    # shellcheck disable=SC2046,SC2086
    cc $strict $(pkg-config --cflags once) "$1" -o "$2" $(pkg-config --libs once) -pthread \
        -Wl,-rpath,"$prefix/lib"
}

uses_shared() { readelf -d "$1" | grep -q 'NEEDED.*libonce'; }
uses_static() { ! uses_shared "$1"; }

charge() { # PROGRAM DATA-DIRECTORY
    timeout 60 "$1" "$2" o-17 >"$tmp/first" && timeout 60 "$1" "$2" o-17 >"$tmp/second" || return 1
    cat "$tmp/first" "$tmp/second"
    [ "$(grep -c '^receipt for o-17, fence [0-9]*$' "$tmp/first")" = 4 ] || return 1
    [ "$(grep '^receipt' "$tmp/first" "$tmp/second" | cut -d: -f2 | sort -u | wc -l)" = 1 ] || return 1
    [ "$(tail -n 1 "$tmp/first")" = "charged 1 times by this process" ] || return 1
    [ "$(tail -n 1 "$tmp/second")" = "charged 0 times by this process" ]
}

loop() { # PROGRAM DATA-DIRECTORY
    printf 'a\nb\na\n' | timeout 60 "$1" "$2" | sort >"$tmp/first"
    printf 'a\nb\na\n' | timeout 60 "$1" "$2" | sort >"$tmp/second"
    cat "$tmp/first" "$tmp/second"
    [ "$(cat "$tmp/first")" = "$(printf 'a: cached: A\na: worked: A\nb: worked: B')" ] || return 1
    [ "$(cat "$tmp/second")" = "$(printf 'a: cached: A\na: cached: A\nb: cached: B')" ]
}

jobs() { # PROGRAM DATA-DIRECTORY
    timeout 60 "$1" "$2" >"$tmp/first" && timeout 60 "$1" "$2" >"$tmp/second" || return 1
    cat "$tmp/first" "$tmp/second"
    [ "$(grep -c '^triggered o-1[78]' "$tmp/first")" = 2 ] || return 1
    [ "$(grep -c '^o-17 is there already' "$tmp/first")" = 1 ] || return 1
    [ "$(grep -c '^o-18: failed, to be tried again' "$tmp/first")" = 1 ] || return 1
    [ "$(grep -c '^o-1[78]: COMPLETED {"sent":true}' "$tmp/first")" = 2 ] || return 1
    [ "$(grep -c '^triggered' "$tmp/second")" = 0 ] && [ "$(grep -c 'COMPLETED' "$tmp/second")" = 2 ]
}

cd "$tmp" || exit 1
for kind in static shared; do
    for example in "$source"/examples/*.c; do
        name=$(basename "$example" .c)
        t "$name builds ($kind)" "link_$kind" "$example" "$tmp/$name-$kind"
        t "$name is linked as it should be ($kind)" "uses_$kind" "$tmp/$name-$kind"
        t "$name does what it says ($kind)" "$name" "$tmp/$name-$kind" "$tmp/data-$name-$kind"
    done
done

# ---- a user's names and ours do not meet ----

cat >"$tmp/names.c" <<'C'
#include <once/once.h>

#include <stdio.h>

/* The names of functions of ours; the user's must be the ones that the user calls, and ours the
 * ones that the library calls. */
int calls;
void buf_add(void);
void map_find(void);
void op_new(void);
void store_submit(void);
void buf_add(void) { calls++; }
void map_find(void) { calls++; }
void op_new(void) { calls++; }
void store_submit(void) { calls++; }

int main(void)
{
    struct once_config config = ONCE_CONFIG_INIT;
    struct once_claim claim = ONCE_CLAIM_INIT;
    struct once_answer answer;
    struct once *o;
    config.flags = ONCE_EPHEMERAL;
    claim.scope = once_str("names");
    claim.key = once_str("k");
    if (once_open(&config, &o, NULL) < 0) return 1;
    if (once_claim(o, &claim, &answer) < 0 || answer.outcome != ONCE_CLAIMED) return 1;
    once_answer_clear(&answer);
    if (calls != 0) return 1;
    buf_add(), map_find(), op_new(), store_submit();
    once_close(o);
    return calls == 4 ? 0 : 1;
}
C
t "a program with functions named like ours links (static)" link_static "$tmp/names.c" "$tmp/names-static"
t "and each side calls its own (static)" "$tmp/names-static"
t "a program with functions named like ours links (shared)" link_shared "$tmp/names.c" "$tmp/names-shared"
t "and each side calls its own (shared)" "$tmp/names-shared"

# ---- manual pages, completions, the command ----

for page in once.1 once.3; do
    t "$page passes mandoc's lint" mandoc -Tlint -Wwarning "$prefix/share/man/man${page#once.}/$page"
done
t "the bash completion is bash" bash -n "$prefix/share/bash-completion/completions/once"
t "the zsh completion is zsh" zsh -n "$prefix/share/zsh/site-functions/_once"
says_version() { "$prefix/bin/once" version | grep -qF "$version"; }
t "the installed command runs and says its version" says_version

printf '1..%d\n' "$number"
exit $failed
