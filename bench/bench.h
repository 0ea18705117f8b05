/* bench.h - measuring, and saying what came out of it.
 *
 * The same machine differs by up to 1.7 between two minutes, so nothing here is compared with a
 * number from another day: ours and its baseline are measured in turns (A B A B A B), a figure
 * is the median of its rounds with the spread beside it, and a ratio is the median of the
 * ratios of the rounds. */
#ifndef BENCH_BENCH_H
#define BENCH_BENCH_H

#include <once/once.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SAMPLES_MAX = 64 };

struct samples {
    double values[SAMPLES_MAX];
    size_t count;
};

void samples_add(struct samples *s, double value);
double samples_median(const struct samples *s); /* 0 if there are none */
double samples_min(const struct samples *s);
double samples_max(const struct samples *s);

/* What is promised. Missing a target is said; only missing it by more than a factor of two,
 * which no noise explains, makes the program fail. */
enum target_kind { TARGET_NONE, TARGET_AT_LEAST, TARGET_AT_MOST, TARGET_RATIO_AT_LEAST };

struct target {
    enum target_kind kind;
    double value;
};
#define NO_TARGET ((struct target){ TARGET_NONE, 0 })
#define AT_LEAST(x) ((struct target){ TARGET_AT_LEAST, (x) })
#define AT_MOST(x) ((struct target){ TARGET_AT_MOST, (x) })
#define RATIO_AT_LEAST(x) ((struct target){ TARGET_RATIO_AT_LEAST, (x) })

/* One row of the table. `baseline` may be NULL; where both are there, round i of one belongs to
 * round i of the other. */
struct row {
    const char *name; /* of the number, for programs: "memory_blocking" */
    const char *what; /* for people */
    const char *unit; /* "/s", "ms", "bytes" */
    const struct samples *ours, *baseline;
    const char *baseline_what;
    struct target target;
    const char *binds; /* what keeps it from being better; said where the target is missed */
};

void report(const struct row *row);
int report_end(bool json); /* exit status; with QUICK in the environment nothing is judged */

int64_t now_ns(void); /* CLOCK_MONOTONIC: the same for every process of this machine */
double per_second(uint64_t count, int64_t since_ns);

/* A directory for files, on the disk that is measured; removed by bench_end(). */
const char *bench_dir(void);
void bench_end(void);
void fresh_ledger(char *url, size_t len); /* "sqlite:PATH" of a file that is not there yet */

/* Ends the program with a message: a benchmark that does not do what it says measures nothing.
 */
void must(bool ok, const char *what);

/* ---- latencies.c: how long each of many calls took, to within 3 % ---- */

enum { LATENCIES_PER_OCTAVE = 32 };

struct latencies {
    uint64_t total, counts[64 * LATENCIES_PER_OCTAVE];
};

void latencies_add(struct latencies *l, int64_t ns);
double latencies_ms(const struct latencies *l, double part); /* `part` is from 0 to 1 */

/* ---- clients.c: load on a handle ---- */

struct once *open_memory(void);            /* ONCE_HOSTED | ONCE_EPHEMERAL */
struct once *open_ledger(const char *url); /* ONCE_HOSTED, full sync */

enum work { WORK_CLAIM, WORK_CLAIM_PUBLISH, WORK_REPLAY };

/* Calls with `in_flight` of them at a time, each on the next key, until `count` are finished or
 * `at_most_ns` have passed; the finished ones per second. Keys are `first`, `first` + 1, ... */
double load_async(struct once *o, enum work work, size_t in_flight, uint64_t first,
                  uint64_t count, int64_t at_most_ns);
/* The same; adds how long each call took, unless that is NULL. */
double load_timed(struct once *o, enum work work, size_t in_flight, uint64_t first,
                  uint64_t count, int64_t at_most_ns, struct latencies *latencies);
double load_blocking(struct once *o, enum work work, uint64_t first, uint64_t count);
size_t load_key(char *out, uint64_t n); /* KEY_ROOM bytes; returns the length */
enum { KEY_ROOM = 32, VALUE_BYTES = 32 };
extern const char load_value[VALUE_BYTES];

void claim_key(struct once *o, const char *key, char *ret_token); /* 33 bytes */
void process(struct once *o); /* sleeps until there is something to do, and does it */
void process_for(struct once *o, int at_most_ms);

/* ---- the rows ---- */

void bench_rules(void);
void bench_memory(void);
void bench_bytes(void);
void bench_durable(void);
void bench_replay(void);
void bench_wakeup(void);
void bench_processes(void);

#endif
