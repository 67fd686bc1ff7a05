# Every target sets up what it needs in .venv; nothing global is touched but by `podman`.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
STAMP  := $(VENV)/.installed
SCHEMA := src/onejob/api/data/schema.json.gz
UI     := src/onejob/dashboard/page.zip

.DEFAULT_GOAL := help
.PHONY: help lock setup run ui chromium ui-check screenshots ui-figures dist prometheus test unprivileged podman lint types format conformance cron-span cron-soak big-job sim mutants sim-coverage replay replay-record bench e2e schemathesis fuzz fuzz-frames kill-rounds upgrade-rounds mirror-rounds ledger soak worst-requests upstream upstream-e2e upstream-contract upstream-bench upstream-failover upstream-outage upstream-manifests upstream-mirror differential guides e2e-controllers clean

help: ## list the targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 20

PIP := $(BIN)/pip install --quiet --disable-pip-version-check

# What running and building need, in the versions that were tested. The build hook of the package
# writes $(SCHEMA); without isolation, so that no other version of hatchling is fetched for it.
$(READY): pyproject.toml requirements/service.txt requirements/build.txt
	@echo "setting up $(VENV): the first time this takes about half a minute"
	$(PYTHON) -m venv $(VENV)
	$(PIP) --require-hashes --requirement requirements/service.txt
	$(PIP) --require-hashes --requirement requirements/build.txt
	$(PIP) --no-deps --no-build-isolation --editable .
	@touch $@

# What development needs on top of that.
$(STAMP): $(READY) requirements/dev.txt
	$(PIP) --require-hashes --requirement requirements/dev.txt
	@touch $@

$(SCHEMA): build_schema.py src/onejob/wire/kinds.py | $(READY)
	$(BIN)/python build_schema.py
	@touch $@

# Versions that are locked already stay, unless pyproject.toml asks for others; UPGRADE=--upgrade takes new ones.
COMPILE = $(BIN)/uv pip compile --quiet --universal --generate-hashes --no-header --python-version 3.11 $(UPGRADE)
BUILD_REQUIRES = import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"], sep="\n")
lock: $(READY) ## write requirements/*.txt anew: the versions and hashes of what we depend on
	$(PIP) uv
	$(COMPILE) pyproject.toml --extra dev --output-file requirements/dev.txt
	$(COMPILE) pyproject.toml --constraints requirements/dev.txt --output-file requirements/service.txt
	$(BIN)/python -c '$(BUILD_REQUIRES)' | $(COMPILE) - --constraints requirements/dev.txt --output-file requirements/build.txt

setup: $(STAMP) $(SCHEMA) ## create .venv and install everything into it

run: $(READY) $(SCHEMA) ## run an example Job to the end
	$(BIN)/onejob run examples/hello.yaml

# One process a core.
test: setup podman btrfs chromium ## all tests that fit into a few minutes (slow specs are deselected)
	$(BIN)/pytest -n auto --dist worksteal $(TEST)

.PHONY: nightly
nightly: setup podman btrfs chromium ## tests and simulations that take from minutes to hours
	$(BIN)/pytest -n auto --dist worksteal -m nightly
	$(BIN)/python -m sim $(SIM)
	$(BIN)/python -m sim --mutant all --seeds 300
	$(BIN)/python -m tests.e2e.killing
	$(BIN)/python -m tests.e2e.ledger

unprivileged: setup ## the node's process tests as a user without rights, with and without namespaces
	$(BIN)/python -m tests.node.as_nobody

# $(1) are programs, $(2) the Debian packages that have them, $(3) is what is skipped without.
define install
	@missing=$$(for program in $(1); do command -v $$program > /dev/null || echo $$program; done); \
	if [ -z "$$missing" ]; then exit 0; fi; \
	if [ "$$(id -u)" != 0 ] || ! command -v apt-get > /dev/null; then \
	  echo "$@: not installed, and not for us to install: $(3) are skipped"; \
	else \
	  echo "$@: installing $(2)"; \
	  { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y $(2); } > /dev/null 2>&1 \
	  || echo "$@: cannot be installed: $(3) are skipped"; \
	fi
endef

podman: ## install the engine that its tests need: only as root, only with apt-get
	$(call install,podman runc busybox,podman runc busybox-static,its tests)

.PHONY: btrfs
btrfs: # a file system on which a full disk is different
	$(call install,mkfs.btrfs,btrfs-progs,its tests)

# Tests of the dashboard are skipped, visibly, where there is no browser.
chromium: ## install the browser that the dashboard's tests need: only as root, only with apt-get
	$(if $(CHROMIUM),,$(call install,chromium,chromium,tests of the dashboard))

# The built page is tracked in git, so that a clone without Node.js has a dashboard.
ui/dist/index.html: $(shell find ui \( -name node_modules -o -name dist \) -prune -o -type f -print 2> /dev/null)
	cd ui && npm ci --no-audit --no-fund && npm run build
	@touch $@

ui: ui/dist/index.html ## build the dashboard into $(UI): needs Node.js 20 or newer with npm
	$(PYTHON) ui/pack.py

ui-check: ## fail unless $(UI) was built from the sources in ui/
	@$(PYTHON) ui/pack.py --check
	@if ! command -v npm > /dev/null; then \
	  echo "ui-check: there is no npm: only the digest of the sources is compared"; \
	elif ! $(MAKE) --no-print-directory ui/dist/index.html > .ui.log 2>&1; then \
	  tail -5 .ui.log; echo "ui-check: the page cannot be built here: only the digest is compared"; \
	else \
	  $(PYTHON) ui/pack.py --compare; \
	fi

screenshots: setup ## pictures of the dashboard's pages, into SHOTS
	$(BIN)/python -m tests.ui.screenshots $(or $(SHOTS),.run/screenshots)

ui-figures: setup ## a Job of 10^5 indexes in a browser, and what 20 dashboards cost
	$(BIN)/python -m tests.ui.figures $(FIGURES)

dist: setup ui-check ## source archive and wheel for a release, the dashboard inside
	$(BIN)/python -m hatchling build

prometheus: setup ## a real Prometheus scrapes a server and asks every query of docs/monitoring
	@if ! command -v promtool > /dev/null && [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null; then \
	  echo "prometheus: installing the package prometheus"; \
	  { apt-get update && DEBIAN_FRONTEND=noninteractive \
	    apt-get install -y --no-install-recommends prometheus; } > /dev/null 2>&1 \
	  || echo "prometheus: cannot be installed"; \
	fi
	$(BIN)/python -m tests.prometheus

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

replay: setup ## decisions of the planners, recorded by an earlier version: which are others now?
	$(BIN)/python -m sim.journal $(JOURNAL)

replay-record: setup ## record the decisions anew, after a change that was meant
	$(BIN)/python -m sim.journal --record $(JOURNAL)

$(VENV)/.coverage: $(STAMP)
	$(PIP) 'coverage>=7.6'
	@touch $@

# The seed of hashing is set here: the simulator would start itself anew otherwise.
sim-coverage: setup $(VENV)/.coverage ## how much of controllers, node and store the simulator runs
	@mkdir -p .run
	PYTHONHASHSEED=0 $(BIN)/coverage run --data-file=.run/sim-coverage \
	  --source=onejob.controllers,onejob.planning,onejob.node,onejob.store -m sim --seeds 60 $(SIM)
	$(BIN)/python -m sim.coverage .run/sim-coverage

# Without this peer its comparison is skipped, visibly.
$(VENV)/.peers: $(STAMP)
	-$(PIP) hyperqueue tqdm cloudpickle
	@touch $@

bench: setup $(VENV)/.peers ## benchmarks next to their peers and limits
	$(BIN)/onejob bench --results bench/results/history.jsonl $(BENCH)

e2e: setup ## end-to-end tests with real processes and kubectl, the slow ones included
	$(BIN)/pytest -m "" tests/e2e

.PHONY: rsync
rsync: # for the guide about Snakemake, which is skipped without it
	@command -v rsync > /dev/null || [ "$$(id -u)" != 0 ] || ! command -v apt-get > /dev/null \
	|| apt-get install -y rsync > /dev/null 2>&1 || echo "rsync: cannot be installed"

guides: setup podman rsync ## all that README and how-to pages tell a reader to type, other people's workflow engines included
	$(BIN)/pytest -m "" tests/guides $(GUIDES)

e2e-controllers: setup ## the real JobSet and Kueue managers against onejob serve, built from the Go module proxy
	$(BIN)/python -m tests.managers

.PHONY: fabric8 spark ansible
fabric8: setup ## the Java client that operators and Jenkins use, with Maven: informers, waits, exec, logs
	$(BIN)/python -m tests.clients.fabric8 $(FABRIC8)

# Clients in environments of their own: they bring hundreds of megabytes and other versions.
$(VENV)/spark/bin/python: $(STAMP)
	$(PYTHON) -m venv $(VENV)/spark
	$(VENV)/spark/bin/pip install --quiet --disable-pip-version-check 'pyspark>=4,<5'

spark: setup $(VENV)/spark/bin/python ## pyspark in client mode with Pods as executors: needs Java 17
	$(BIN)/python -m tests.clients.spark $(CURDIR)/$(VENV)/spark/bin/python

$(VENV)/ansible/bin/ansible-playbook: $(STAMP)
	$(PYTHON) -m venv $(VENV)/ansible
	$(VENV)/ansible/bin/pip install --quiet --disable-pip-version-check ansible kubernetes

ansible: setup $(VENV)/ansible/bin/ansible-playbook ## the collection kubernetes.core: a second run changes nothing
	$(BIN)/python -m tests.clients.ansible $(CURDIR)/$(VENV)/ansible/bin

# In an environment of its own: it brings a plugin that pytest would load everywhere.
$(VENV)/schemathesis/bin/schemathesis: $(STAMP)
	$(PYTHON) -m venv $(VENV)/schemathesis
	$(VENV)/schemathesis/bin/pip install --quiet --disable-pip-version-check 'schemathesis>=4.32'

schemathesis: setup $(VENV)/schemathesis/bin/schemathesis ## requests made up from our OpenAPI documents
	$(BIN)/python -m tests.e2e.schemathesis_run $(VENV)/schemathesis/bin/schemathesis

fuzz: setup ## the API against a model of it, with random requests for some minutes
	$(BIN)/python -m tests.fuzz $(FUZZ)

# In an environment of its own, like schemathesis.
$(VENV)/atheris/bin/python: $(STAMP)
	$(PYTHON) -m venv $(VENV)/atheris
	$(VENV)/atheris/bin/pip install --quiet --disable-pip-version-check 'atheris>=3' --editable .

fuzz-frames: setup $(VENV)/atheris/bin/python ## protobuf, SPDY and WebSocket messages, guided by coverage
	$(BIN)/python -m tests.fuzz.frame_seeds .run/frame-seeds
	$(VENV)/atheris/bin/python -m tests.fuzz.frames $(or $(FRAMES),-max_total_time=600) .run/frame-seeds

kill-rounds: setup ## the server killed 200 times in the middle of Jobs of real processes
	$(BIN)/python -m tests.e2e.killing $(KILL)

upgrade-rounds: setup ## an earlier version killed in the middle of Jobs, and this one goes on: FROM=REVISION
	$(BIN)/python -m tests.e2e.upgrading --from $(FROM)

ledger: setup ## what really ran against what is counted, through full disks, short writes and kills
	$(BIN)/python -m tests.e2e.ledger $(LEDGER)
	$(BIN)/python -m tests.e2e.resume_rounds $(RESUMES)

.PHONY: sweep
sweep: setup ## a thousand rows, some of which fail and are repeated, next to GNU parallel
	$(BIN)/python -m tests.e2e.sweep $(SWEEP)

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

# SET=crd or SET=wide runs other sets than that of Jobs, FOCUS='CronJob should' specs by name.
upstream-e2e: setup ## Kubernetes' own end-to-end specs against onejob serve
	$(BIN)/python -m tests.upstream.e2e $(if $(SET),--set $(SET)) $(if $(FOCUS),--focus '$(FOCUS)')

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
	rm -rf $(VENV) src/onejob/api/data ui/dist ui/node_modules .mypy_cache .ruff_cache .pytest_cache
