# `make help` lists what there is. Everything runs in .venv, which the first target that needs it makes.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.DEFAULT_GOAL := help
.PHONY: help demo demo-down test lint format generate constraints clean

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'
	@echo "  make test LEVELS=\"unit cluster\"   only these levels; tests/levels.py says what each is"
	@echo "  make demo KEEP=1                  leave everything up to look around; make demo-down ends it"
	@echo "  make demo CLUSTER=current         use the cluster of the current kubeconfig instead of a rack"

# Debian ships venv apart from Python; root can add it, anyone else is told.
$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  if [ "$$(id -u)" = 0 ]; then apt-get update -qq && apt-get install -qq -y --no-install-recommends python3-venv; \
	  else echo "Python's venv is missing: install the package python3-venv, then run make again." >&2; exit 1; fi; }
	@[ -x $(BIN)/python ] || $(PYTHON) -m venv $(VENV)
	@echo "installing the Python packages into $(VENV) (about 5 GB with torch; two minutes the first time)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

demo: $(READY) ## the whole product in a rack in a box: apply, Ready, an answer streamed
	@KEEP='$(KEEP)' CLUSTER='$(CLUSTER)' $(BIN)/python -m tests.rack.demo up

demo-down: $(READY) ## end what KEEP=1 left up
	@$(BIN)/python -m tests.rack.demo down

test: $(READY) ## every test level, with how long each took
	@$(BIN)/python -m tests.levels $(LEVELS)

lint: $(READY) ## ruff, mypy and the import contracts
	@$(BIN)/python -m tests.levels lint

format: $(READY) ## let ruff format and fix
	@$(BIN)/ruff check --fix . ; $(BIN)/ruff format .

generate: $(READY) ## write what is made from code: CRD, API reference, dashboards, the chart's copies
	@$(BIN)/python -m tests.generated
	@$(BIN)/python -m afd_dashboards

constraints: $(READY) ## write constraints.txt from what .venv holds
	@$(BIN)/python -m pip freeze --exclude-editable --exclude afd | sort -f > constraints.txt

clean: ## remove .venv and caches of tools (the binaries' cache stays)
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
