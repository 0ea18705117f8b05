/* main.c - check: every scenario once, for callgrind to count (see bench/check/run), and what the
 * figures depend on, a line each. */
#include "bench/check/check.h"

#include <gnu/libc-version.h>
#include <openssl/crypto.h>
#include <sqlite3.h>
#include <stdio.h>
#include <uv.h>
#include <valgrind/callgrind.h>

void count_instructions(const char *name, work_fn *work, void *ctx)
{
    work(ctx, 0);
    CALLGRIND_START_INSTRUMENTATION;
    CALLGRIND_ZERO_STATS;
    work(ctx, OPERATIONS);
    CALLGRIND_DUMP_STATS_AT(name);
    CALLGRIND_STOP_INSTRUMENTATION;
}

/* What the processor can do, as far as libraries choose their code by it. It is valgrind's own. */
static void say_processor(void)
{
#ifdef __x86_64__
    printf("with x86-64%s%s%s\n", __builtin_cpu_supports("avx") ? " avx" : "",
           __builtin_cpu_supports("avx2") ? " avx2" : "",
           __builtin_cpu_supports("bmi2") ? " bmi2" : "");
#else
    printf("with another processor\n");
#endif
}

static void say_built_with(void)
{
    printf("with compiler %s\n", __VERSION__);
    printf("with flags '%s'\n", BUILT_WITH_FLAGS);
    printf("with libc %s\n", gnu_get_libc_version());
    printf("with sqlite %s\n", sqlite3_libversion());
    printf("with libuv %s\n", uv_version_string());
    printf("with %s\n", OpenSSL_version(OPENSSL_VERSION));
    say_processor();
}

int main(void)
{
    printf("operations %d\n", OPERATIONS);
    say_built_with();
    check_rules();
    check_parsers();
    check_stores();
    check_doors();
    return 0;
}
