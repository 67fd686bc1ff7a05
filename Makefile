# Targets install their dependencies into .venv; only `podman`, `slurm`, `btrfs`, `chromium` and
# `prometheus` install system packages.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
STAMP  := $(VENV)/.installed
SCHEMA := src/onejob/api/data/schema.json.gz
UI     := src/onejob/dashboard/page.zip

.DEFAULT_GOAL := help
.PHONY: help lock setup run ui chromium ui-check screenshots ui-figures dist prometheus test unprivileged podman lint types format conformance cron-span cron-soak big-job sim mutants sim-coverage replay replay-record bench e2e schemathesis fuzz fuzz-frames kill-rounds upgrade-rounds mirror-rounds ledger soak worst-requests upstream upstream-e2e upstream-contract upstream-bench upstream-failover upstream-outage upstream-manifests upstream-mirror differential guides managers clean

##@ Run
# A line `##@ GROUP` starts a group; the same group may be continued further down.
GROUPS := Run Develop Test Measure Kubernetes Release
help: ## list the targets
	@awk -v order='$(GROUPS)' ' \
	  /^##@ / { group = substr($$0, 5); if (index(" " order " ", " " group " ") == 0) order = order " " group } \
	  match($$0, /^[a-z0-9-]+:.*## /) { \
	    text = substr($$0, RLENGTH + 1); name = $$0; sub(/:.*/, "", name); \
	    rows[group] = rows[group] sprintf("  %-18s %s\n", name, text) } \
	  END { n = split(order, groups, " "); \
	    for (i = 1; i <= n; i++) if (rows[groups[i]]) printf "%s%s\n%s", (i > 1 ? "\n" : ""), groups[i], rows[groups[i]] }' \
	  $(MAKEFILE_LIST)

PIP := $(BIN)/pip install --quiet --disable-pip-version-check

# Locked dependencies for running and building. The package's build hook writes $(SCHEMA); it runs without
# build isolation, which would fetch another version of hatchling.
$(READY): pyproject.toml requirements/service.txt requirements/build.txt
	@echo "setting up $(VENV): takes about half a minute the first time"
	$(PYTHON) -m venv $(VENV)
	$(PIP) --require-hashes --requirement requirements/service.txt
	$(PIP) --require-hashes --requirement requirements/build.txt
	$(PIP) --no-deps --no-build-isolation --editable .
	@touch $@

# Additional dependencies for development.
$(STAMP): $(READY) requirements/dev.txt
	$(PIP) --require-hashes --requirement requirements/dev.txt
	@touch $@

# Ignored by git: `git checkout` and `git merge` leave it, and update the times of the sources that differ.
$(SCHEMA): build_schema.py src/onejob/wire/kinds.py src/onejob/api/schema/own_definitions.json | $(READY)
	$(BIN)/python build_schema.py

##@ Develop
# Locked versions are kept unless pyproject.toml excludes them; UPGRADE=--upgrade takes the newest.
COMPILE = $(BIN)/uv pip compile --quiet --universal --generate-hashes --no-header --python-version 3.11 $(UPGRADE)
BUILD_REQUIRES = import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"], sep="\n")
lock: $(READY) ## update requirements/*.txt, the locked versions and hashes of all dependencies
	$(PIP) uv
	$(COMPILE) pyproject.toml --extra dev --output-file requirements/dev.txt
	$(COMPILE) pyproject.toml --constraints requirements/dev.txt --output-file requirements/service.txt
	$(COMPILE) --group docs --output-file requirements/docs.txt
	$(BIN)/python -c '$(BUILD_REQUIRES)' | $(COMPILE) - --constraints requirements/dev.txt --output-file requirements/build.txt

setup: $(STAMP) $(SCHEMA) ## create .venv and install all dependencies

##@ Run
run: $(READY) $(SCHEMA) ## run an example Job to completion
	$(BIN)/onejob run examples/hello.yaml

##@ Test
# Three tiers: `check` before every commit, `test` before a change lands, `nightly` for repetition.
# One process more than cores: tests with real processes often wait.
WORKERS := $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)
PYTEST  := $(BIN)/pytest -n $(WORKERS) --dist worksteal
CHECKED := tests/planning tests/objects tests/api/kinds tests/informers tests/store

.PHONY: check
check: lint types ## first tier, within 90 s: lint, types, import contracts, tests of planning, objects, kinds, informers and store
	$(PYTEST) $(CHECKED)

test: setup podman btrfs chromium ## second tier, within 8 minutes: all tests but the rounds of `make nightly`
	$(PYTEST) $(TEST)

# Each of these can be run alone, and takes from minutes to hours.
NIGHTLY := mutants field-effects sim replay sweep kill-rounds upgrade-rounds ledger mirror-rounds \
           cron-span cron-soak big-job fuzz worst-requests soak slurm-rounds corpus
FROM ?= HEAD~50

.PHONY: nightly
nightly: setup podman btrfs chromium ## third tier, hours: rounds of kills, upgrades and faults, mutants, sweeps, simulations, soak
	$(PYTEST) -m nightly
	$(MAKE) --keep-going $(NIGHTLY) CHURN="$(or $(CHURN),--minutes 60)"

unprivileged: setup ## run the node's process tests as an unprivileged user, with and without namespaces
	$(BIN)/python -m tests.node.as_nobody

# $(1): programs; $(2): Debian packages that provide them; $(3): tests that are skipped without them.
define install
	@missing=$$(for program in $(1); do command -v $$program > /dev/null || echo $$program; done); \
	if [ -z "$$missing" ]; then exit 0; fi; \
	if [ "$$(id -u)" != 0 ] || ! command -v apt-get > /dev/null; then \
	  echo "$@: not installed; without root and apt-get, $(3) are skipped"; \
	else \
	  echo "$@: installing $(2)"; \
	  { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y $(2); } > /dev/null 2>&1 \
	  || echo "$@: installation failed; $(3) are skipped"; \
	fi
endef

##@ Develop
podman: ## install podman for its tests (as root, with apt-get)
	$(call install,podman runc busybox,podman runc busybox-static,its tests)

.PHONY: slurm slurm-stop slurm-rounds
SLURM := $(or $(TMPDIR),/tmp)/onejob-slurm
slurm: $(STAMP) ## install Slurm for its tests and start a small cluster (as root, with apt-get)
	$(call install,slurmctld slurmd sbatch munged,slurm-wlm munge,its tests)
	@$(BIN)/python -m tests.slurm.cluster start $(SLURM)

slurm-rounds: setup ## kill server, pilots, supervisors and Slurm's daemons while Jobs run on a real Slurm
	$(BIN)/python -m tests.slurm.rounds $(ROUNDS)

.PHONY: slurm-throughput
slurm-throughput: setup ## short Pods in one allocation, compared with sbatch --array and HyperQueue: THROUGHPUT="--hq PYTHON"
	$(BIN)/python -m tests.slurm.throughput $(THROUGHPUT)

.PHONY: corpus
corpus: setup podman ## run the same Jobs as processes, in podman, on Slurm, through the mirror and on a real Kubernetes
	$(BIN)/python -m tests.corpus $(ENGINES)

slurm-stop: # stop the cluster of `make slurm`
	@$(BIN)/python -m tests.slurm.cluster stop $(SLURM)

.PHONY: btrfs
btrfs: # for tests of full disks, which btrfs reports differently
	$(call install,mkfs.btrfs,btrfs-progs,its tests)

# Without a browser, tests of the dashboard are reported as skipped.
chromium: ## install Chromium for the dashboard tests (as root, with apt-get)
	$(if $(CHROMIUM),,$(call install,chromium,chromium,tests of the dashboard))

# The built page is tracked in git, so that a clone without Node.js has a dashboard.
ui/dist/index.html: $(shell find ui \( -name node_modules -o -name dist \) -prune -o -type f -print 2> /dev/null)
	cd ui && npm ci --no-audit --no-fund && npm run build
	@touch $@

##@ Release
ui: ui/dist/index.html ## build the dashboard (needs Node.js 20 or newer with npm)
	$(PYTHON) ui/pack.py

ui-check: ## check that the committed dashboard was built from the sources in ui/
	@$(PYTHON) ui/pack.py --check
	@if ! command -v npm > /dev/null; then \
	  echo "ui-check: npm is not installed; comparing only the digest of the sources"; \
	elif ! $(MAKE) --no-print-directory ui/dist/index.html > .ui.log 2>&1; then \
	  tail -5 .ui.log; echo "ui-check: the build failed; comparing only the digest of the sources"; \
	else \
	  $(PYTHON) ui/pack.py --compare; \
	fi

##@ Measure
screenshots: setup ## take screenshots of the dashboard, into SHOTS
	$(BIN)/python -m tests.ui.screenshots $(or $(SHOTS),.run/screenshots)

ui-figures: setup ## measure the dashboard with a Job of 10^5 indexes, and the cost of 20 dashboards
	$(BIN)/python -m tests.ui.figures $(FIGURES)

##@ Release
# Wheels of the locked dependencies for each Python of the single file; they are downloaded once.
WHEELS := $(VENV)/wheels
FETCH   = $(BIN)/pip download --quiet --disable-pip-version-check --require-hashes --no-deps --only-binary :all:
TAGS   := $(foreach tag,2_28 2_17,--platform manylinux_$(tag)_x86_64)
$(WHEELS)/.ready: requirements/service.txt requirements/build.txt | $(STAMP)
	rm -rf $(WHEELS)
	for version in 3.11 3.12 3.13; do \
	  $(FETCH) $(TAGS) --implementation cp --python-version $$version --requirement $< --dest $(WHEELS) || exit 1; \
	done
	$(FETCH) --requirement requirements/build.txt --dest $(WHEELS)/build
	@touch $@

dist: setup ui-check $(WHEELS)/.ready ## build all release artefacts: packages, single file, man pages, SBOM, checksums
	$(BIN)/python -m release.dist --wheels $(WHEELS)
	$(BIN)/twine check --strict dist/*.whl dist/*.tar.gz

# The site has its own environment; diagrams are drawn in the browser by mermaid, if npm can fetch it.
$(VENV)/docs/bin/mkdocs: requirements/docs.txt | $(READY)
	$(PYTHON) -m venv $(VENV)/docs
	$(VENV)/docs/bin/pip install --quiet --disable-pip-version-check --require-hashes --requirement $<
	@touch $@

MERMAID := $(VENV)/docs/node_modules/mermaid/dist/mermaid.min.js
$(MERMAID): $(VENV)/docs/bin/mkdocs
	-npm install --silent --no-audit --no-fund --prefix $(VENV)/docs mermaid@11

.PHONY: docs
docs: $(VENV)/docs/bin/mkdocs $(MERMAID) ## build the documentation site into site/, with strict checks of links
	$(BIN)/python -m release.site .run/site-pages $(wildcard $(MERMAID))
	NO_MKDOCS_2_WARNING=1 $(VENV)/docs/bin/mkdocs build --strict --quiet
	$(BIN)/python -m release.links site

# Installers that only this target needs.
$(VENV)/installers/bin/uv: $(STAMP)
	$(PYTHON) -m venv $(VENV)/installers
	$(VENV)/installers/bin/pip install --quiet --disable-pip-version-check uv pipx

.PHONY: installs
installs: dist $(VENV)/installers/bin/uv ## install each artefact into an empty environment and run a Job, with times
	$(BIN)/python -m tests.release.installs $(VENV)/installers/bin

.PHONY: image
image: setup podman $(WHEELS)/.ready ## build the images without network and run a Job in each
	$(BIN)/pytest -m nightly tests/release/test_image.py

##@ Test
prometheus: setup ## scrape a server with a real Prometheus and run every query of docs/monitoring
	@if ! command -v promtool > /dev/null && [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null; then \
	  echo "prometheus: installing the package prometheus"; \
	  { apt-get update && DEBIAN_FRONTEND=noninteractive \
	    apt-get install -y --no-install-recommends prometheus; } > /dev/null 2>&1 \
	  || echo "prometheus: installation failed"; \
	fi
	$(BIN)/python -m tests.prometheus

##@ Develop
lint: setup ## check style and import directions
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-cache

types: setup ## check types with mypy
	$(BIN)/mypy

format: setup ## format the sources
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

.PHONY: hooks diagrams
hooks: setup ## check changed files before each commit (installs pre-commit into .venv)
	$(PIP) 'pre-commit>=4'
	$(BIN)/pre-commit install

diagrams: setup ## generate docs/diagrams from the code
	$(BIN)/python docs/diagrams/import_graph.py
	$(BIN)/python docs/diagrams/pod_lifecycle.py

##@ Test
cron-span: setup ## check every schedule in ten time zones, minute by minute over four years
	$(BIN)/python -m tests.planning.cron_span

cron-soak: setup ## run a year of a thousand daily CronJobs in virtual time
	$(BIN)/python -m tests.controllers.cron_soak $(SOAK)

##@ Kubernetes
conformance: setup ## replay upstream's recorded behaviour, one line per file
	$(BIN)/python -m tests.conformance

##@ Measure
big-job: setup ## run Jobs of 100,000 completions in both modes and watch every status
	$(BIN)/python -m tests.job.big_job $(BIG)

##@ Test
.PHONY: workflow-oracle
workflow-oracle: setup ## compare the workflow planner with its oracle on all graphs of five tasks, and random ones
	$(BIN)/python -m tests.planning.workflow_run $(ORACLE)

sim: setup ## run the whole control plane in virtual time with random faults
	$(BIN)/python -m sim $(SIM)

mutants: setup ## plant bugs one by one and count the seeds until the simulator finds each
	$(BIN)/python -m sim --mutant all --seeds 300 $(MUTANTS)

.PHONY: field-effects
field-effects: setup ## disable the effect of each API field, one by one: its named tests must fail
	$(BIN)/python -m tests.field_effects $(FIELDS)

replay: setup ## compare recorded planner decisions with those of this version
	$(BIN)/python -m sim.journal $(JOURNAL)

##@ Develop
replay-record: setup ## record the planner decisions again, after an intended change
	$(BIN)/python -m sim.journal --record $(JOURNAL)

$(VENV)/.coverage: $(STAMP)
	$(PIP) 'coverage>=7.6'
	@touch $@

##@ Measure
# Set the hash seed here: without it the simulator re-executes itself, without coverage.
sim-coverage: setup $(VENV)/.coverage ## measure how much of controllers, node and store the simulator covers
	@mkdir -p .run
	PYTHONHASHSEED=0 $(BIN)/coverage run --data-file=.run/sim-coverage \
	  --source=onejob.controllers,onejob.planning,onejob.node,onejob.store -m sim --seeds 60 $(SIM)
	$(BIN)/python -m sim.coverage .run/sim-coverage

# Optional peers of the benchmarks; comparisons with absent ones are reported as skipped.
$(VENV)/.peers: $(STAMP)
	-$(PIP) hyperqueue tqdm cloudpickle
	@touch $@

bench: setup $(VENV)/.peers ## run the benchmarks, compared with peers and limits
	$(BIN)/onejob bench --results bench/results/history.jsonl $(BENCH)

##@ Test
e2e: setup ## run all end-to-end tests with real processes and kubectl, including the slow ones
	$(BIN)/pytest -m "" tests/e2e

.PHONY: rsync
rsync: # for the guide about Snakemake, which is skipped without it
	@command -v rsync > /dev/null || [ "$$(id -u)" != 0 ] || ! command -v apt-get > /dev/null \
	|| apt-get install -y rsync > /dev/null 2>&1 || echo "rsync: installation failed"

guides: setup podman rsync ## run every command of README and how-to pages, including the workflow engines
	$(BIN)/pytest -m "" tests/guides $(GUIDES)

##@ Kubernetes
managers: setup ## install the real managers of other projects, built with Go, on onejob serve
	$(BIN)/python -m tests.managers

.PHONY: peer-suites
peer-suites: setup ## run suites of JobSet, Kueue, Trainer, KubeRay and mpi-operator on onejob and kube-apiserver (SUITE=NAME)
	$(BIN)/python -m tests.managers.suites $(SUITE)

.PHONY: fabric8 spark ansible
fabric8: setup ## test the Java client of operators and Jenkins: informers, waits, exec, logs (needs Maven)
	$(BIN)/python -m tests.clients.fabric8 $(FABRIC8)

# Clients get their own environments: they need hundreds of megabytes and conflicting versions.
$(VENV)/spark/bin/python: $(STAMP)
	$(PYTHON) -m venv $(VENV)/spark
	$(VENV)/spark/bin/pip install --quiet --disable-pip-version-check 'pyspark>=4,<5'

spark: setup $(VENV)/spark/bin/python ## run pyspark in client mode with Pods as executors (needs Java 17)
	$(BIN)/python -m tests.clients.spark $(CURDIR)/$(VENV)/spark/bin/python

$(VENV)/ansible/bin/ansible-playbook: $(STAMP)
	$(PYTHON) -m venv $(VENV)/ansible
	$(VENV)/ansible/bin/pip install --quiet --disable-pip-version-check ansible kubernetes

ansible: setup $(VENV)/ansible/bin/ansible-playbook ## run the collection kubernetes.core: a second run changes nothing
	$(BIN)/python -m tests.clients.ansible $(CURDIR)/$(VENV)/ansible/bin

# In its own environment: it includes a pytest plugin, which every test run would load.
$(VENV)/schemathesis/bin/schemathesis: $(STAMP)
	$(PYTHON) -m venv $(VENV)/schemathesis
	$(VENV)/schemathesis/bin/pip install --quiet --disable-pip-version-check 'schemathesis>=4.32'

##@ Test
schemathesis: setup $(VENV)/schemathesis/bin/schemathesis ## send requests generated from our OpenAPI documents
	$(BIN)/python -m tests.e2e.schemathesis_run $(VENV)/schemathesis/bin/schemathesis

fuzz: setup ## compare the API with a model, with random requests for some minutes
	$(BIN)/python -m tests.fuzz $(FUZZ)

# In its own environment, like schemathesis.
$(VENV)/atheris/bin/python: $(STAMP)
	$(PYTHON) -m venv $(VENV)/atheris
	$(VENV)/atheris/bin/pip install --quiet --disable-pip-version-check 'atheris>=3' --editable .

fuzz-frames: setup $(VENV)/atheris/bin/python ## fuzz protobuf, SPDY and WebSocket parsers, guided by coverage
	$(BIN)/python -m tests.fuzz.frame_seeds .run/frame-seeds
	$(VENV)/atheris/bin/python -m tests.fuzz.frames $(or $(FRAMES),-max_total_time=600) .run/frame-seeds

kill-rounds: setup ## kill the server 200 times while Jobs of real processes run
	$(BIN)/python -m tests.e2e.killing $(KILL)

upgrade-rounds: setup ## kill an earlier version while Jobs run, and continue with this one: FROM=REVISION
	$(BIN)/python -m tests.e2e.upgrading --from $(FROM)

ledger: setup ## compare executed with counted Pods through full disks, short writes and kills
	$(BIN)/python -m tests.e2e.ledger $(LEDGER)
	$(BIN)/python -m tests.e2e.resume_rounds $(RESUMES)

##@ Measure
.PHONY: sweep
sweep: setup ## run a thousand rows with failures and retries, compared with GNU parallel
	$(BIN)/python -m tests.e2e.sweep $(SWEEP)

soak: setup ## run eight hours of churn and kills: memory, descriptors and disk must not grow
	$(BIN)/python -m tests.e2e.soak $(CHURN)

worst-requests: setup ## measure the latency of other requests during the most expensive ones
	$(BIN)/python -m tests.api.worst_requests $(WORST)

##@ Test
mirror-rounds: setup ## mirror Jobs between two servers through partitions, slow links and kills
	$(BIN)/python -m tests.mirror.rounds $(ROUNDS)

##@ Kubernetes
upstream-mirror: upstream ## mirror Jobs from a server to a real Kubernetes, with the same faults
	$(BIN)/python -m tests.mirror.upstream_rounds $(ROUNDS)

upstream: setup ## build a real Kubernetes from the Go module proxy into a cache
	$(BIN)/python -m tests.upstream

# SET=crd or SET=wide selects another set of specs than Jobs; FOCUS='CronJob should' selects specs by name.
upstream-e2e: setup ## run Kubernetes' own end-to-end specs against onejob serve
	$(BIN)/python -m tests.upstream.e2e $(if $(SET),--set $(SET)) $(if $(FOCUS),--focus '$(FOCUS)')

upstream-contract: upstream ## run the client contract tests against a real kube-apiserver
	ONEJOB_UPSTREAM=1 $(BIN)/pytest -rs tests/contract

upstream-bench: upstream ## compare onejob controller with kube-controller-manager on a real API server
	$(BIN)/python -m tests.upstream.bench $(ROUNDS)

upstream-failover: upstream ## run two replicas of onejob controller and kill the leader repeatedly
	$(BIN)/python -m tests.upstream.failover $(FAILOVER)

.PHONY: workflow-upstream
workflow-upstream: upstream ## run workflows on a real Kubernetes, kill onejob controller and delete Jobs
	$(BIN)/python -m tests.upstream.workflows $(WORKFLOWS)

upstream-outage: upstream ## run onejob controller while the API server and the network fail
	$(BIN)/python -m tests.upstream.outage $(OUTAGE)

upstream-manifests: upstream ## run onejob controller with exactly the permissions of its manifests
	$(BIN)/python -m tests.upstream.least_privilege

# ONLY='cron.*' selects scenarios; RECORD=1 stores the answers of Kubernetes for replays.
differential: setup ## run the same scenarios on a real Kubernetes and on onejob, and compare
	$(BIN)/python -m tests.differential $(if $(RECORD),--record) $(if $(ONLY),--only '$(ONLY)')
	$(if $(RECORD),$(BIN)/python -m tests.differential.permissions)

##@ Develop
clean: ## remove .venv and generated files
	rm -rf $(VENV) src/onejob/api/data ui/dist ui/node_modules .mypy_cache .ruff_cache .pytest_cache
