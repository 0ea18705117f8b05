# once - one GNU Makefile. `make help` lists what there is.
#
# Everything is built below $(BUILD). A variant (sanitizers, the bug museum) is the same tree built
# elsewhere: SAN=asan,ubsan -> build/asan,ubsan; make museum -> build/museum.

SHELL := /bin/bash
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules
.SUFFIXES:

VERSION := $(shell sed -n 's/^\#define ONCE_VERSION_\(MAJOR\|MINOR\|PATCH\) //p' include/once/once.h | paste -sd.)
SOVERSION := 0

PREFIX ?= /usr/local
DESTDIR ?=
SEEDS ?= 2000
ONLY ?=

CC ?= gcc
ifeq ($(origin CC),default)
CC := gcc
endif
CLANG ?= clang
SAN ?=
VARIANT ?= $(SAN)
BUILD ?= build$(if $(VARIANT),/$(VARIANT))

# ---- flags -------------------------------------------------------------------------------------

comma := ,
WARN := -Wall -Wextra -Wconversion -Wshadow -Wstrict-prototypes -Wmissing-prototypes \
        -Wswitch-enum -Wvla -Wformat=2 -Wimplicit-fallthrough -Wpointer-arith -Wundef \
        -Wno-missing-field-initializers
WERROR := $(if $(CI)$(DEVELOPER),-Werror)
HARDEN := -fstack-protector-strong -fstack-clash-protection -fno-strict-overflow \
          -fno-delete-null-pointer-checks $(if $(filter x86_64,$(shell uname -m)),-fcf-protection=full)
HARDEN_LINK := -Wl,-z,relro -Wl,-z,now -Wl,-z,noexecstack
ifeq ($(VARIANT),)
OPT := -O2 -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2
else
# FORTIFY hides from the sanitizers what they look for.
OPT := -O1 -fno-omit-frame-pointer -U_FORTIFY_SOURCE
SANFLAGS := $(patsubst asan,-fsanitize=address,$(patsubst ubsan,-fsanitize=undefined -fno-sanitize-recover=undefined,$(patsubst tsan,-fsanitize=thread,$(subst $(comma), ,$(SAN)))))
endif
# Tests that Criterion runs are small and many: compiling them well takes longer than they do.
OPT_CASES := -O0 -fno-omit-frame-pointer -U_FORTIFY_SOURCE
DEPS := sqlite3 libpq hiredis libssl libcrypto jansson libuv
PQ_CFLAGS := $(shell pkg-config --cflags-only-I libpq 2>/dev/null)
CPPFLAGS_ALL = -Iinclude -Isrc -I. $(PQ_CFLAGS) -D_GNU_SOURCE $(DEFS) $(CPPFLAGS)
CFLAGS_ALL = -std=gnu11 -g $(OPT) -fPIC -fvisibility=hidden -pthread $(WARN) $(WERROR) $(HARDEN) $(SANFLAGS) $(CFLAGS)
LDFLAGS_ALL = -pie -pthread $(HARDEN_LINK) $(SANFLAGS) $(LDFLAGS)
LIBS := -lsqlite3 -lhiredis -lpq -lssl -lcrypto

# ---- sources: found, not listed ----------------------------------------------------------------

lib_src := $(filter-out %_test.c,$(wildcard $(addprefix src/,$(addsuffix /*.c,base core proto store engine lib))))
cli_src := $(filter-out %_test.c,$(wildcard src/cli/*.c))
daemon_src := $(filter-out %_test.c,$(wildcard src/daemon/*.c))
unit_src := $(wildcard src/*/*_test.c)
obj = $(patsubst %.c,$(BUILD)/obj/%.o,$(1))

migrations := $(patsubst src/store/postgres/%.sql,$(BUILD)/obj/gen/postgres_%.o,$(wildcard src/store/postgres/*.sql))
markers := $(patsubst src/store/markers/%.sql,$(BUILD)/obj/gen/markers_%.o,$(wildcard src/store/markers/*.sql))
redis_scripts := $(patsubst src/store/%.lua,$(BUILD)/obj/gen/%_script.o,$(filter-out src/store/redis_chunk.lua,$(wildcard src/store/*.lua)))
lib_obj := $(call obj,$(lib_src)) $(redis_scripts) $(migrations) $(markers)
cli_obj := $(call obj,$(cli_src))
daemon_obj := $(call obj,$(daemon_src)) $(BUILD)/obj/gen/openapi_document.o
internal := $(BUILD)/internal.a
daemon_lib := $(BUILD)/daemon.a
support_obj := $(call obj,$(wildcard tests/support/*.c))

.PHONY: all
all: $(BUILD)/once $(BUILD)/libonce.a $(BUILD)/libonce.so ## build the command, the library static and shared

$(BUILD)/obj/%.o: %.c
	@mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS_ALL) $(CFLAGS_ALL) -MMD -MP -c $< -o $@

$(BUILD)/obj/src/%_test.o $(BUILD)/obj/tests/conform/%.o: OPT = $(OPT_CASES)

# What the servers are told travels inside the library.
.PRECIOUS: $(BUILD)/gen/%_script.c
$(BUILD)/gen/%_script.c: src/store/%.lua tools/embed
	@mkdir -p $(@D)
	$(Q)tools/embed $*_script $(filter %/redis_chunk.lua,$^) $< >$@
$(BUILD)/gen/redis_script.c $(BUILD)/gen/redis_buffer_script.c: src/store/redis_chunk.lua

$(BUILD)/gen/openapi_document.c: src/daemon/openapi.json tools/embed
	@mkdir -p $(@D)
	$(Q)tools/embed openapi_document $< >$@

.PRECIOUS: $(BUILD)/gen/postgres_%.c
$(BUILD)/gen/postgres_%.c: src/store/postgres/%.sql tools/embed
	@mkdir -p $(@D)
	$(Q)tools/embed postgres_$(subst -,_,$*) $< >$@

.PRECIOUS: $(BUILD)/gen/markers_%.c
$(BUILD)/gen/markers_%.c: src/store/markers/%.sql tools/embed
	@mkdir -p $(@D)
	$(Q)tools/embed markers_$* $< >$@

$(BUILD)/obj/gen/%.o: $(BUILD)/gen/%.c
	@mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS_ALL) $(CFLAGS_ALL) -c $< -o $@

# Objects of the library as they are, for tests and the command: internals can be reached.
$(internal): $(lib_obj)
	@rm -f $@
	$(Q)$(AR) rcs $@ $^

$(daemon_lib): $(daemon_obj)
	@rm -f $@
	$(Q)$(AR) rcs $@ $^

# What users link: one object whose hidden symbols are local, so that a user's own buf_add() and
# ours never meet.
$(BUILD)/libonce.a: $(lib_obj)
	@rm -f $@
	$(Q)$(LD) -r $^ -o $(BUILD)/libonce.o
	$(Q)objcopy --localize-hidden $(BUILD)/libonce.o
	$(Q)$(AR) rcs $@ $(BUILD)/libonce.o

# nodelete: a lookup of a name cannot be stopped, and returns into code that has to be there still.
$(BUILD)/libonce.so: $(lib_obj) src/lib/once.map
	$(Q)$(CC) -shared -Wl,-z,nodelete -Wl,-soname,libonce.so.$(SOVERSION) -Wl,--version-script=src/lib/once.map \
		-Wl,--no-undefined $(filter-out -pie,$(LDFLAGS_ALL)) $(lib_obj) $(LIBS) -o $@

# What the command needs besides the library's: the library itself is never linked with these.
CLI_LIBS := -ljansson -luv

$(BUILD)/once: $(cli_obj) $(daemon_obj) $(internal)
	$(Q)$(CC) $(LDFLAGS_ALL) $^ $(LIBS) $(CLI_LIBS) -o $@

# ---- test programs -----------------------------------------------------------------------------

# A suite is a directory below tests/: its files and the support code make one program.
define suite
$(BUILD)/tests/$(1): $$(call obj,$$(wildcard tests/$(1)/*.c)) $$(support_obj) $$(daemon_lib) $$(internal)
	@mkdir -p $$(@D)
	$$(Q)$$(CC) $$(LDFLAGS_ALL) $$(filter %.o,$$^) $$(daemon_lib) $$(internal) $$(LIBS) $$(CLI_LIBS) $(2) -o $$@
endef
$(eval $(call suite,conform,))
$(eval $(call suite,cases,))
$(BUILD)/tests/conform $(BUILD)/tests/unit: $(call obj,tests/cases/main.c)
$(eval $(call suite,model,))
$(eval $(call suite,schedule,))
$(eval $(call suite,sim,))
$(eval $(call suite,threads,))
$(eval $(call suite,fault,))
$(eval $(call suite,storm,))
$(eval $(call suite,crowd,))
$(eval $(call suite,mutations,))
$(eval $(call suite,oom,$(addprefix -Wl$(comma)--wrap=,malloc calloc realloc free strdup strndup)))

# The museum drives the simulator, the schedules and the model: their code is in it, but not
# their main().
museum_src := $(wildcard tests/museum/*.c) $(filter-out %/main.c,$(wildcard tests/sim/*.c tests/schedule/*.c tests/model/*.c))
$(BUILD)/tests/museum: $(call obj,$(museum_src)) $(support_obj) $(daemon_lib) $(internal)
	@mkdir -p $(@D)
	$(Q)$(CC) $(LDFLAGS_ALL) $(filter %.o,$^) $(daemon_lib) $(internal) $(LIBS) $(CLI_LIBS) -o $@

# The parts of the command and the daemon have tests beside them too; main() stays out.
$(BUILD)/tests/unit: $(call obj,$(unit_src)) $(filter-out %/main.o,$(cli_obj)) $(daemon_obj) $(support_obj) $(internal)
	@mkdir -p $(@D)
	$(Q)$(CC) $(LDFLAGS_ALL) $(filter %.o,$^) $(internal) $(LIBS) $(CLI_LIBS) -o $@

$(BUILD)/bench/core: $(call obj,$(wildcard bench/*.c)) $(internal)
	@mkdir -p $(@D)
	$(Q)$(CC) $(LDFLAGS_ALL) $^ $(LIBS) -o $@

$(BUILD)/bench/fleet: $(call obj,$(wildcard bench/fleet/*.c) bench/clients.c bench/latencies.c bench/report.c) $(internal)
	@mkdir -p $(@D)
	$(Q)$(CC) $(LDFLAGS_ALL) $^ $(LIBS) -o $@

$(BUILD)/bench/pairs: $(call obj,$(wildcard bench/doors/*.c))
	@mkdir -p $(@D)
	$(Q)$(CC) $(LDFLAGS_ALL) $^ -o $@

$(BUILD)/bench/triggers: $(call obj,$(wildcard bench/runs/*.c))
	@mkdir -p $(@D)
	$(Q)$(CC) $(LDFLAGS_ALL) $^ -o $@

$(BUILD)/bench/limits: $(call obj,$(wildcard bench/limits/*.c))
	@mkdir -p $(@D)
	$(Q)$(CC) $(LDFLAGS_ALL) $^ -o $@

$(BUILD)/bench/markers: $(call obj,bench/mutations/batches.c)
	@mkdir -p $(@D)
	$(Q)$(CC) $(LDFLAGS_ALL) $^ -lpq -o $@

$(BUILD)/bench/mutate: $(call obj,bench/mutations/mutate.c) $(internal)
	@mkdir -p $(@D)
	$(Q)$(CC) $(LDFLAGS_ALL) $^ $(LIBS) -o $@

growth_src := $(wildcard bench/growth/*.c) bench/fleet/open.c bench/clients.c bench/latencies.c bench/report.c
$(BUILD)/bench/growth: $(call obj,$(growth_src)) $(internal)
	@mkdir -p $(@D)
	$(Q)$(CC) $(LDFLAGS_ALL) $^ $(LIBS) -o $@

# Whoever gives flags of their own gets other figures.
$(BUILD)/obj/bench/check/main.o: DEFS += -DBUILT_WITH_FLAGS='"$(strip $(CPPFLAGS) $(CFLAGS) $(SANFLAGS))"'
$(BUILD)/bench/check: $(call obj,$(wildcard bench/check/*.c)) $(support_obj) $(daemon_lib) $(internal)
	@mkdir -p $(@D)
	$(Q)$(CC) $(LDFLAGS_ALL) $(filter %.o,$^) $(daemon_lib) $(internal) $(LIBS) $(CLI_LIBS) -o $@

-include $(shell find $(BUILD) -name '*.d' 2>/dev/null)

# ---- commands ----------------------------------------------------------------------------------

.PHONY: help packages-run packages-test packages-dev
help: ## this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

packages-run:
	@tools/packages run
packages-test:
	@tools/packages run test
	@command -v npm >/dev/null || tools/packages node
packages-dev:
	@tools/packages run test dev

.PHONY: run
run: packages-run ## install what is missing, build, show it at work, start the daemon
	@$(MAKE) --no-print-directory $(BUILD)/once
	@tools/tour $(BUILD)/once
	@tools/daemon start $(BUILD)/once $(BUILD)/daemon

.PHONY: stop
stop: ## end the daemon that make run has started
	@tools/daemon stop $(BUILD)/daemon

.PHONY: test unit conform model sim schedule oom museum e2e crowd fault storm mutations fuzz san memcheck check docs
test: packages-test ## install what is missing and run every test
	@$(MAKE) --no-print-directory -j2 all
	@tests/run

unit conform model sim schedule oom museum e2e crowd fault storm mutations fuzz san memcheck check docs: packages-test
	@SEEDS=$(SEEDS) tests/run $@
unit: ## tests beside the code
conform: ## one suite that every store passes
model: ## random histories, store against store, step by step
sim: ## the simulator; SEEDS=n
schedule: ## every interleaving of the named races
oom: ## the n-th allocation fails, for every n
museum: ## real bugs, each of which must be caught
e2e: ## real processes, real signals; install, examples, command line
crowd: ## ten thousand connections and five thousand who wait, on one daemon
fault: ## real servers killed, hung and cut off under real clients
storm: ## runs, while daemons and everything behind them are killed; MINUTES=n goes on, SEED=n repeats
mutations: ## changes of a real database while everything below is broken; MUTATIONS=n (400), SEED=n repeats
fuzz: ## coverage-guided, FUZZ_SECONDS=n per target
san: ## the suites under ASan+UBSan, TSan and valgrind
memcheck: ## every unit and conform test under valgrind (a quarter of an hour)
check: ## include directions, imported symbols
docs: ## every example in the documentation

.PHONY: soak
soak: packages-test ## faults at random, MINUTES=n; SEED=n repeats the choice
	@$(MAKE) --no-print-directory -j2 $(BUILD)/tests/fault
	@SEED=$${SEED:-$$RANDOM} tests/fault/run --soak $(or $(MINUTES),5) $(BUILD)

.PHONY: bench packages-bench
packages-bench:
	@tools/packages bench
	@command -v npm >/dev/null || tools/packages node
bench: packages-test packages-bench ## ratios against baselines and peers of the same run, into docs/ if it is all of them; ONLY=name
	@$(MAKE) --no-print-directory -j2 $(BUILD)/bench/core $(BUILD)/bench/fleet $(BUILD)/bench/pairs $(BUILD)/bench/triggers \
		$(BUILD)/bench/limits $(BUILD)/bench/growth $(BUILD)/bench/markers $(BUILD)/bench/mutate $(BUILD)/once
	@bench/run $(BUILD)/bench $(ONLY); code=$$?; \
		$(if $(ONLY)$(QUICK),,$(MAKE) --no-print-directory bench-docs &&) exit $$code

.PHONY: bench-check
bench-check: packages-test ## instructions per operation against the figures that are checked in; UPDATE=1 writes them
	@$(MAKE) --no-print-directory -j2 $(BUILD)/bench/check
	@bench/check/run $(BUILD) $(UPDATE)

.PHONY: bench-docs
bench-docs: ## the numbers of the last `make bench` into docs/performance.md, and its chart
	@node bench/docs.mjs $(BUILD)/bench docs/performance.md
	@node bench/chart.mjs docs/performance.md docs/performance.svg

.PHONY: format lint
format: packages-dev ## clang-format over the tree
	clang-format -i $$(git ls-files '*.c' '*.h')
lint: packages-dev ## clang-format and cppcheck, without changing anything
	clang-format --dry-run --Werror $$(git ls-files '*.c' '*.h')
	cppcheck --quiet --std=c11 --enable=warning,portability --inline-suppr --error-exitcode=1 \
		--suppress=missingIncludeSystem --suppress=identicalInnerCondition -Iinclude -Isrc -D_GNU_SOURCE $(lib_src) $(daemon_src) $(cli_src)

.PHONY: install
install: all ## DESTDIR= PREFIX=
	install -d $(DESTDIR)$(PREFIX)/{bin,include/once,lib/pkgconfig,lib/systemd/system,share/man/man1,share/man/man3} \
		$(DESTDIR)$(PREFIX)/share/bash-completion/completions $(DESTDIR)$(PREFIX)/share/zsh/site-functions
	install -m 755 $(BUILD)/once $(DESTDIR)$(PREFIX)/bin/once
	install -m 644 include/once/once.h $(DESTDIR)$(PREFIX)/include/once/
	install -m 644 $(BUILD)/libonce.a $(DESTDIR)$(PREFIX)/lib/
	install -m 755 $(BUILD)/libonce.so $(DESTDIR)$(PREFIX)/lib/libonce.so.$(VERSION)
	ln -sf libonce.so.$(VERSION) $(DESTDIR)$(PREFIX)/lib/libonce.so.$(SOVERSION)
	ln -sf libonce.so.$(SOVERSION) $(DESTDIR)$(PREFIX)/lib/libonce.so
	sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@VERSION@|$(VERSION)|' packaging/once.pc.in \
		>$(DESTDIR)$(PREFIX)/lib/pkgconfig/once.pc
	sed 's|@PREFIX@|$(PREFIX)|' packaging/systemd/once.service \
		>$(DESTDIR)$(PREFIX)/lib/systemd/system/once.service
	install -m 644 docs/once.1 $(DESTDIR)$(PREFIX)/share/man/man1/
	install -m 644 docs/once.3 $(DESTDIR)$(PREFIX)/share/man/man3/
	$(BUILD)/once completion bash >$(DESTDIR)$(PREFIX)/share/bash-completion/completions/once
	$(BUILD)/once completion zsh >$(DESTDIR)$(PREFIX)/share/zsh/site-functions/_once

.PHONY: clean
clean: ## remove everything that was built
	rm -rf build

Q := $(if $(V),,@)
