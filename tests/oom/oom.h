/* oom.h - memory that runs out on request.
 *
 * The linker sends every allocation of this program's own objects, the library's among them, to
 * alloc.c (see the Makefile); SQLite is told to use it, too. What libc allocates for itself is
 * not counted and never fails. */
#ifndef TESTS_OOM_OOM_H
#define TESTS_OOM_OOM_H

#include <once/once.h>
#include <stdbool.h>
#include <stddef.h>

enum oom_mode { OOM_SINGLE, OOM_FROM_THEN_ON };

void oom_init(void);                          /* before SQLite is used */
void oom_arm(enum oom_mode mode, size_t nth); /* the nth allocation from now on fails */
bool oom_disarm(void);                        /* did any fail? */
long oom_live(void);                          /* allocations that were not freed */

#define EXPECT(cond) expect((cond), __FILE__, __LINE__, #cond)
bool expect(bool ok, const char *file, int line, const char *what);

/* A failed call must say so: a code that promises what is true, and words. */
void expect_error(int code, const char *text);

/* A scenario sets a stage without faults, acts while the nth allocation fails, disarms by
 * oom_disarm() and then, with memory again, checks what it was told and cleans up. It returns
 * whether the fault happened: when not, there are no more allocations to fail. */
struct scenario {
    const char *name;
    bool (*run)(const char *arg, enum oom_mode mode, size_t nth);
    const char *arg; /* store, or directory */
};

extern const struct scenario engine_scenarios[], api_scenarios[], batch_scenarios[],
    buffer_scenarios[], runs_scenarios[], mutations_scenarios[], spool_scenarios[];

const char *oom_dir(void); /* a temporary directory for files */

#endif
