# make help lists the targets. ARGS="..." goes to the harness: make check ARGS="theirs.py --quick".
#
# Where python3 already has torch and triton (vendor images), it is used as it is; packages it lacks go to .deps, beside it.
# Elsewhere, and always with ENV=pinned, a .venv is made with the versions of requirements.txt.

ENV ?= auto
HAVE = $(shell python3 -c "import importlib.util as u; print(all(map(u.find_spec, ('torch', 'triton'))))" 2>/dev/null)

ifeq ($(ENV) $(HAVE),auto True)
SETUP := .deps/done
PYTHON := PYTHONPATH="$(CURDIR)/.deps:$(PYTHONPATH)" python3
else
SETUP := .venv/done
PYTHON := .venv/bin/python
endif

.PHONY: help check test time board report upload-check ledger attend platforms clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST)

check: $(SETUP) ## compare solution.py's bytes with the reference's on the 12 official cases
	$(PYTHON) -m harness check $(ARGS)

test: $(SETUP) ## run the project's own tests
	$(PYTHON) -m pytest $(ARGS)

time: $(SETUP) ## check, then time reference and submission in turn (needs an accelerator); adds a record to scores/
	$(PYTHON) -m harness time $(ARGS)

board: $(SETUP) ## print the scoreboard
	$(PYTHON) -m harness board $(ARGS)

report: $(SETUP) ## write report/report.html and its pictures from scores/
	$(PYTHON) -m harness report $(ARGS)

upload-check: $(SETUP) ## everything to know before an upload: preflight, bytes, hash, size, expected place
	$(PYTHON) -m harness upload-check $(ARGS)

ledger: $(SETUP) ## what each route moves and computes, the floors by chip, what explains the measured times
	$(PYTHON) -m harness ledger $(ARGS)

attend: $(SETUP) ## compress, then attend over the packed cache: the error by cause (ARGS=--time: the time, on an accelerator)
	$(PYTHON) -m harness attend $(ARGS)

platforms: $(SETUP) ## every route by every means short of its chip: interpreted, guarded, compiled, lowered (ARGS=--quick: minutes)
	$(PYTHON) -m harness platforms $(ARGS)

clean: ## remove the environments and caches that make creates
	rm -rf .venv .deps .envs .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/done: requirements.txt
	@python3 -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { echo "python3 is $$(python3 --version 2>&1); 3.10 or later is needed"; exit 5; }
	python3 -m venv .venv
	.venv/bin/python -m pip install --quiet --requirement requirements.txt
	@touch $@

.deps/done:
	@mkdir -p .deps
	@missing=$$(python3 -c "import importlib.util as u; print(*(m for m in ('numpy', 'pytest', 'rich') if not u.find_spec(m)))"); \
	if [ -n "$$missing" ]; then echo "python3 -m pip install --target .deps $$missing"; python3 -m pip install --quiet --target .deps $$missing; fi
	@touch $@
