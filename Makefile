# Each target does its own set-up: a .venv in this checkout, the install, then the work.
PYTHON ?= python3
BIN := .venv/bin
# Tests keep to one thread each, so two files run at once.
TWO_AT_ONCE := -n 2 --dist loadfile

.PHONY: demo explorer explorer-check test test-slow mutants check format docs wheel-test bench bench-vit bench-natten test-natten tables fuzz chaos clean

.venv/installed: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet -c constraints.txt -e ".[faiss,postgres,plots,text,dev,oracles]"
	touch $@

demo: .venv/installed
	$(BIN)/attnknn demo --force

# The page of `attnknn serve`, built into the package; only who changes explorer/ needs Node 20 or later.
explorer/node_modules/installed: explorer/package.json explorer/package-lock.json
	cd explorer && npm ci --no-audit --no-fund
	touch $@

explorer: explorer/node_modules/installed
	cd explorer && npm run check && npm run build

# Types are right, and the committed page is what the sources build.
explorer-check: explorer
	git status --short attnknn/serving/page
	test -z "$$(git status --porcelain attnknn/serving/page)"

test: .venv/installed
	$(BIN)/python -m pytest -q $(TWO_AT_ONCE)

# torchvision and timm want another build of torch than the constraints name: an environment apart.
.venv-images/installed: pyproject.toml
	test -x .venv-images/bin/python || $(PYTHON) -m venv .venv-images
	.venv-images/bin/pip install --quiet -e ".[images]" torchvision
	touch $@

test-slow: .venv/installed .venv-images/installed
	ATTNKNN_IMAGES_PYTHON=.venv-images/bin/python $(BIN)/python -m pytest -q -m slow $(TWO_AT_ONCE)

# Small changes of the code, which the tests of its room must notice; resumable, about half an hour.
mutants: .venv/installed
	OMP_NUM_THREADS=1 $(BIN)/python -m tools.mutants

check: .venv/installed
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m tools.check_docstrings

# Warnings are errors, and no page may load anything from another site.
.venv/docs: .venv/installed
	$(BIN)/pip install --quiet -c constraints.txt -e ".[docs]"
	touch $@

docs: .venv/docs
	OMP_NUM_THREADS=1 $(BIN)/python -m sphinx -q -W --keep-going -j auto -b html docs docs/_build/html
	$(BIN)/python -m tools.check_site docs/_build/html
	@echo "The site is docs/_build/html/index.html"

# The wheel, in an environment that has nothing else, away from the checkout.
wheel-test:
	rm -rf build/wheel build/lib build/bdist.* && mkdir -p build/wheel  # not the rows of experiments
	$(PYTHON) -m venv build/wheel/env
	build/wheel/env/bin/pip wheel --quiet --no-deps -w build/wheel/dist .
	build/wheel/env/bin/pip install --quiet -c constraints.txt build/wheel/dist/attnknn-*.whl
	cd build/wheel && PATH="$$PWD/env/bin:$$PATH" env/bin/python -I ../../tools/smoke_test.py

format: .venv/installed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: .venv/installed
	$(BIN)/python -m benchmarks

bench-vit: .venv/installed
	$(BIN)/python -m benchmarks.vit
	$(MAKE) bench-natten

# NATTEN is built by setup.py, which imports torch: apart from ours, and with the torch that is there.
.venv-natten/installed: pyproject.toml constraints.txt
	test -x .venv-natten/bin/python || $(PYTHON) -m venv .venv-natten
	.venv-natten/bin/pip install --quiet -c constraints.txt -e . setuptools wheel pytest hypothesis
	.venv-natten/bin/pip install --quiet -c constraints.txt --no-build-isolation natten
	touch $@

bench-natten: .venv-natten/installed
	OMP_NUM_THREADS=1 .venv-natten/bin/python -m benchmarks.vit.natten

test-natten: .venv-natten/installed
	.venv-natten/bin/python -m pytest -q -m "slow or not slow" tests/vit/layers/test_patterns.py

tables: .venv/installed
	$(BIN)/python -m experiments tables
	$(BIN)/python -m benchmarks.pages

# Mutated model folders and input files; a run that was stopped continues.
fuzz: .venv/installed
	$(BIN)/python -m tools.fuzz --cases 20000 --processes 2 --work build/fuzz --out benchmarks/results/fuzz.json

# Killed writers, power cuts, full disks and damaged files, three times as many as in the slow tests.
chaos: .venv/installed
	ATTNKNN_CHAOS=3 ATTNKNN_CHAOS_OUT=benchmarks/results/chaos.json $(BIN)/python -m pytest -q -m slow tests/storage/test_chaos.py -n 2

clean:
	rm -rf .venv .venv-images .venv-natten explorer/node_modules build dist docs/_build docs/api docs/gallery *.egg-info .pytest_cache .mypy_cache .ruff_cache
