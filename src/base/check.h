/* check.h - assertions that stay on in production.
 *
 * CHECK(c) traps when c is false: a broken invariant must stop the process before it can turn
 * into a second answer. It uses a compiler trap, not abort(), so that the library imports
 * nothing that ends the caller's process by name (tools/symbols). */
#ifndef BASE_CHECK_H
#define BASE_CHECK_H

#define CHECK(cond)                                                                            \
    do {                                                                                       \
        if (__builtin_expect(!(cond), 0)) __builtin_trap();                                    \
    } while (0)

#define BIT(n) (1u << (n))

#define container_of(ptr, type, member) ((type *)(void *)((char *)(ptr)-offsetof(type, member)))

#endif
