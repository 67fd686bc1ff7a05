# Every target sets up what it needs in .venv; nothing global is touched but by `podman`.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
STAMP  := $(VENV)/.installed
SCHEMA := src/onejob/api/data/schema.json.gz
UI     := src/onejob/dashboard/assets/index.html

.DEFAULT_GOAL := help
.PHONY: help lock setup run ui ui-if-possible chromium screenshots ui-figures dist test unprivileged podman lint types format conformance cron-span cron-soak big-job sim mutants bench e2e schemathesis kill-rounds mirror-rounds ledger soak worst-requests upstream upstream-e2e upstream-contract upstream-bench upstream-failover upstream-outage upstream-manifests upstream-mirror differential e2e-controllers clean

help: ## list the targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

# What running needs. The build hook of the package writes $(SCHEMA).
$(READY): pyproject.toml
	@echo "setting up $(VENV): the first time this takes about half a minute"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --editable .
	@touch $@

# What development needs on top of that.
$(STAMP): $(READY)
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

# Without the tools of development, the build hook does the same in an environment of its own.
$(SCHEMA): build_schema.py src/onejob/wire/kinds.py | $(READY)
	@if $(BIN)/python -c 'import hatchling, kubernetes_validate' 2> /dev/null; \
	then $(BIN)/python build_schema.py; \
	else $(BIN)/pip install --quiet --disable-pip-version-check --editable .; fi
	@touch $@

# Versions that are locked already stay, unless pyproject.toml asks for others; UPGRADE=--upgrade takes new ones.
COMPILE = $(BIN)/uv pip compile --quiet --universal --generate-hashes --no-header --python-version 3.11 $(UPGRADE) pyproject.toml
lock: $(READY) ## write requirements/*.txt anew: the versions and hashes of what we depend on
	$(BIN)/pip install --quiet --disable-pip-version-check uv
	$(COMPILE) --extra dev --output-file requirements/dev.txt
	$(COMPILE) --constraints requirements/dev.txt --output-file requirements/service.txt

setup: $(STAMP) $(SCHEMA) ## create .venv and install everything into it

run: $(READY) $(SCHEMA) ## run an example Job to the end
	$(BIN)/onejob run examples/hello.yaml

# One process a core.
test: setup podman chromium ui-if-possible ## all tests that fit into a few minutes (slow specs are deselected)
	$(BIN)/pytest -n auto --dist worksteal $(TEST)

unprivileged: setup ## the node's process tests as a user without rights, with and without namespaces
	$(BIN)/python -m tests.node.as_nobody

podman: ## install the engine that its tests need: only as root, only with apt-get
	@missing=$$(for program in podman runc busybox; do \
	  command -v $$program > /dev/null || echo $$program; done); \
	if [ -z "$$missing" ]; then exit 0; fi; \
	if [ "$$(id -u)" != 0 ] || ! command -v apt-get > /dev/null; then \
	  echo "podman: not installed, and not for us to install: its tests are skipped"; \
	else \
	  echo "podman: installing the packages podman, runc and busybox-static"; \
	  { apt-get update && DEBIAN_FRONTEND=noninteractive \
	    apt-get install -y podman runc busybox-static; } > /dev/null 2>&1 \
	  || echo "podman: cannot be installed: its tests are skipped"; \
	fi

# Tests of the dashboard are skipped, visibly, where there is no browser or no built page.
chromium: ## install the browser that the dashboard's tests need: only as root, only with apt-get
	@if command -v chromium > /dev/null || [ -n "$$CHROMIUM" ]; then exit 0; fi; \
	if [ "$$(id -u)" != 0 ] || ! command -v apt-get > /dev/null; then \
	  echo "chromium: not installed, and not for us to install: tests of the dashboard are skipped"; \
	else \
	  echo "chromium: installing the package chromium"; \
	  { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y chromium; } \
	    > /dev/null 2>&1 \
	  || echo "chromium: cannot be installed: tests of the dashboard are skipped"; \
	fi

$(UI): $(shell find ui -path ui/node_modules -prune -o -type f -print 2> /dev/null)
	cd ui && npm ci --no-audit --no-fund && npm run build
	@touch $@

ui: $(UI) ## build the dashboard: needs Node.js 20 or newer with npm

ui-if-possible:
	@if ! command -v npm > /dev/null; then \
	  echo "ui: there is no npm: tests of the dashboard's pages are skipped"; \
	else \
	  $(MAKE) --no-print-directory $(UI) > .ui.log 2>&1 \
	  || { tail -5 .ui.log; echo "ui: cannot be built: tests of its pages are skipped"; }; \
	fi

screenshots: setup ui ## pictures of the dashboard's pages, into SHOTS
	$(BIN)/python -m tests.ui.screenshots $(or $(SHOTS),.run/screenshots)

ui-figures: setup ui ## a Job of 10^5 indexes in a browser, and what 20 dashboards cost
	$(BIN)/python -m tests.ui.figures $(FIGURES)

dist: setup ui ## source archive and wheel for a release, the dashboard inside
	ONEJOB_RELEASE=1 $(BIN)/python -m hatchling build

lint: setup ## style and import directions
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-cache

types: setup ## strict static types
	$(BIN)/mypy

format: setup ## rewrite the sources in the project's style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

cron-span: setup ## every schedule in ten time zones, minute by minute over four years
	$(BIN)/python -m tests.planning.cron_span

cron-soak: setup ## a year of a thousand daily CronJobs in virtual time
	$(BIN)/python -m tests.controllers.cron_soak $(SOAK)

conformance: setup ## upstream's recorded behaviour, one line per file
	$(BIN)/python -m tests.conformance

big-job: setup ## a Job of 100,000 completions of either mode, each of its statuses watched
	$(BIN)/python -m tests.job.big_job $(BIG)

sim: setup ## long randomised runs of the whole control plane in virtual time
	$(BIN)/python -m sim $(SIM)

mutants: setup ## plant bugs one by one: after how many seeds does the simulator find each?
	$(BIN)/python -m sim --mutant all --seeds 300 $(MUTANTS)

# Without this peer its comparison is skipped, visibly.
$(VENV)/.peers: $(STAMP)
	-$(BIN)/pip install --quiet --disable-pip-version-check hyperqueue tqdm cloudpickle
	@touch $@

bench: setup $(VENV)/.peers ## benchmarks next to their peers and limits
	$(BIN)/onejob bench --results bench/results/history.jsonl $(BENCH)

e2e: setup ## end-to-end tests with real processes and kubectl, the slow ones included
	$(BIN)/pytest -m "" tests/e2e

e2e-controllers: setup ## the real JobSet and Kueue managers against onejob serve, built from the Go module proxy
	$(BIN)/python -m tests.managers

# In an environment of its own: it brings a plugin that pytest would load everywhere.
$(VENV)/schemathesis/bin/schemathesis: $(STAMP)
	$(PYTHON) -m venv $(VENV)/schemathesis
	$(VENV)/schemathesis/bin/pip install --quiet --disable-pip-version-check 'schemathesis>=4.32'

schemathesis: setup $(VENV)/schemathesis/bin/schemathesis ## requests made up from our OpenAPI documents
	$(BIN)/python -m tests.e2e.schemathesis_run $(VENV)/schemathesis/bin/schemathesis

kill-rounds: setup ## the server killed 200 times in the middle of Jobs of real processes
	$(BIN)/python -m tests.e2e.killing $(KILL)

ledger: setup ## what really ran against what is counted, through full disks, short writes and kills
	$(BIN)/python -m tests.e2e.ledger $(LEDGER)

soak: setup ## eight hours of churn and kills: memory, descriptors and disk must not grow
	$(BIN)/python -m tests.e2e.soak $(CHURN)

worst-requests: setup ## how long others wait beside the worst requests we know
	$(BIN)/python -m tests.api.worst_requests $(WORST)

mirror-rounds: setup ## Jobs mirrored between two servers through partitions, slow links and kills
	$(BIN)/python -m tests.mirror.rounds $(ROUNDS)

upstream-mirror: upstream ## the same from a server to a real Kubernetes
	$(BIN)/python -m tests.mirror.upstream_rounds $(ROUNDS)

upstream: setup ## a real Kubernetes to test with, built from the Go module proxy into a cache
	$(BIN)/python -m tests.upstream

# FOCUS='CronJob should' runs some of its specs.
upstream-e2e: setup ## Kubernetes' own end-to-end specs of Jobs against onejob serve
	$(BIN)/python -m tests.upstream.e2e --focus '$(FOCUS)'

upstream-contract: upstream ## what every client of ours promises, asked of a real kube-apiserver too
	ONEJOB_UPSTREAM=1 $(BIN)/pytest -rs tests/contract

upstream-bench: upstream ## onejob controller next to kube-controller-manager on a real API server
	$(BIN)/python -m tests.upstream.bench $(ROUNDS)

upstream-failover: upstream ## two replicas of onejob controller, the leader killed all the time
	$(BIN)/python -m tests.upstream.failover $(FAILOVER)

upstream-outage: upstream ## onejob controller while the API server and the way to it fail
	$(BIN)/python -m tests.upstream.outage $(OUTAGE)

upstream-manifests: upstream ## onejob controller with exactly the permissions of its manifests
	$(BIN)/python -m tests.upstream.least_privilege

# ONLY='cron.*' runs some scenarios; RECORD=1 keeps what Kubernetes answered for replays.
differential: setup ## the same scenarios on a real Kubernetes and on onejob, compared
	$(BIN)/python -m tests.differential $(if $(RECORD),--record) $(if $(ONLY),--only '$(ONLY)')
	$(if $(RECORD),$(BIN)/python -m tests.differential.permissions)

clean: ## forget the environment and generated data
	rm -rf $(VENV) src/onejob/api/data src/onejob/dashboard/assets ui/node_modules .mypy_cache .ruff_cache .pytest_cache
