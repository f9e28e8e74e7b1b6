# Everything you type in this repository. `make` alone lists it.
# Needs GNU make 3.81 or newer and Python 3.11 or newer; the rest goes into .venv by itself.

PYTHON ?= python3
# Who else can read the site is decided by who types it, and not by the environment.
ifneq ($(origin HOST),command line)
override HOST := 127.0.0.1
endif
PORT ?= 8000
ARGS ?=

PY := .venv/bin/python
# One process more than there are processors: each waits now and then. A file goes to one of them,
# and if one dies, that is the end: another would try the same test again.
PYTESTS = $(PY) -m pytest -q -n $$(($$(getconf _NPROCESSORS_ONLN) + 1)) --max-worker-restart=0 \
    --dist=loadfile --no-loadscope-reorder --continue-on-collection-errors
SOURCES := src tests publish benchmarks snippets bootstrap.py conftest.py
export NO_MKDOCS_2_WARNING := 1

.DEFAULT_GOAL := help
.PHONY: help reader serve site test check deep size fix attacks demo fuzz bench floors screenshots lock clean distclean always

help: ## List what you can type
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' Makefile

serve: reader ## Read the guide at http://127.0.0.1:8000 (PORT=8001 for another port)
	@$(PY) -c "$$CHECK_PORT" "$(HOST)" "$(PORT)"
	@exec $(PY) -m mkdocs serve --dev-addr "$(HOST):$(PORT)"

site: reader ## Build the site into site/, with warnings as errors
	@$(PY) -m mkdocs build --strict

test: .venv/.ready ## Run check, all tests but the long ones, all blocks (ARGS="-k codec" for a part)
	@$(PYTESTS) $(if $(ARGS),$(ARGS),--junitxml=build/evidence.xml)

deep: check ## The long ones: what is marked deep, long fuzzing, the other site generator
	@echo "== what is marked deep"
	@$(PYTESTS) --dist=worksteal -m deep
	@$(MAKE) --no-print-directory fuzz
	@echo "== census of both generators, of what make test ran"
	@test -f build/evidence.xml || $(MAKE) --no-print-directory test
	@$(PY) -m tests.harness.census

check: .venv/.ready ## The quick gate before a commit: lint, format, types, words
	@echo "== lint"
	@$(PY) -m ruff check
	@echo "== format"
	@$(PY) -m ruff format --check
	@echo "== types"
	@$(PY) -m mypy $(SOURCES)
	@echo "== loads"
	@.venv/bin/safepoint lint src snippets
	@echo "== words"
	@.venv/bin/typos
	@$(PY) -m tests.harness.prose

size: .venv/.ready ## Print the code lines of each part of the house, beside its ceiling
	@$(PY) -m tests.harness.size

fix: .venv/.ready ## Repair what a program can: lint, format, callouts
	@$(PY) -m ruff check --fix --exit-zero
	@$(PY) -m ruff format
	@$(PY) -m tests.harness.callouts

attacks: .venv/.ready ## Run the attacks on an unsafe store and on a sealed one
	@.venv/bin/safepoint attack $(ARGS)

demo: .venv/.ready ## Two workers on a real PostgreSQL: one is killed, the other takes over
	@folder=$$(mktemp -d) && trap 'rm -rf "$$folder"' EXIT && trap 'echo Stopped.; exit 130' INT && \
	root=$$PWD && cd "$$folder" && \
	{ "$$root/$(PY)" "$$root/snippets/two_workers.py" 2>errors; status=$$?; } ; \
	cat errors >&2; exit $$status

fuzz: .venv/.ready ## Try what nobody thought of, for some minutes (ARGS="-k records" for a part)
	@$(PYTESTS) --dist=worksteal tests/fuzz tests/unit/test_resume_machine.py \
	    --hypothesis-profile=fuzz $(ARGS)

bench: .venv/.ready ## Measure against the peers, side by side
	@$(PY) -m benchmarks $(ARGS)

floors: .venv/.ready ## Run both adapters on the oldest releases that their extras allow
	@$(PY) -m tests.harness.floors

screenshots: .venv/.ready ## Draw the console's pictures for its page anew, with Chromium
	@$(PY) -m tests.browser.screenshots

# The oldest Python comes first here: what it needs includes what the newer ones need.
lock: ## Choose the newest allowed versions anew, into requirements.txt
	@$(call find-python,python3.11 "$(PYTHON)"); \
	rm -rf build/lock-venv && "$$python" -m venv build/lock-venv && \
	pip="build/lock-venv/bin/python -m pip --disable-pip-version-check -qq" && \
	freeze="$$pip freeze --all --exclude pip --exclude safepoint" && \
	$$pip install '.[docs,postgres]' hatchling editables && $$freeze > build/site.txt && \
	$$pip install '.[test]' && \
	$$freeze | build/lock-venv/bin/python tests/harness/lock.py build/site.txt \
	    > build/requirements.txt && \
	mv build/requirements.txt requirements.txt
	@rm -rf build/lock-venv

clean: ## Remove what was generated
	@rm -rf site build dist .cache .hypothesis .mypy_cache .pytest_cache .ruff_cache
	@find . -name .venv -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean ## Remove .venv as well
	@rm -rf .venv

# Always asked, and answered in a fraction of a second when there is nothing to do.
.venv/.ready: always
	@$(call find-python,"$(PYTHON)" python3.13 python3.12 python3.11); "$$python" bootstrap.py

# The same, without what only tests need.
reader:
	@$(call find-python,"$(PYTHON)" python3.13 python3.12 python3.11); "$$python" bootstrap.py site

# The first of the candidates that is 3.11 or newer becomes $python in the shell.
find-python = for python in $(1) ''; do \
	  [ -z "$$python" ] || "$$python" -c $(is-new-enough) 2>/dev/null && break; \
	done; \
	[ -n "$$python" ] || { echo "$(no-python)" >&2; exit 2; }
is-new-enough = 'import sys; sys.exit(sys.version_info < (3, 11))'
no-python = No Python 3.11 or newer found. Install one, or name it: make PYTHON=/path/to/python3

define CHECK_PORT
import errno, socket, sys

host, port = sys.argv[1:]
try:
    number = int(port)
    if not 0 < number < 65536:
        raise ValueError
    socket.create_server((host, number)).close()
    sys.exit()
except ValueError:
    line = "PORT is a number from 1 to 65535. Try: make serve PORT=8001"
except OSError as error:
    if error.errno == errno.EADDRINUSE:
        line = f"Port {port} is in use. Try: make serve PORT={number % 65535 + 1}"
    else:
        line = f"Cannot listen on {host}:{port} ({error.strerror}). Try: make serve PORT=8001"
print(line, file=sys.stderr)
sys.exit(2)
endef
export CHECK_PORT
