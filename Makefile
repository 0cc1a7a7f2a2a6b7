# Two commands do everything: `make demo` and `make test`. Each creates .venv and installs what it needs.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
NATIVE := CMakeLists.txt $(wildcard native/*.cpp native/*.h)

.PHONY: demo test lint bench sanitize museum clean

$(STAMP): pyproject.toml constraints.txt $(NATIVE)
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[dev]"
	touch $(STAMP)

demo: $(STAMP)
	$(BIN)/erlangen demo

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

test: lint
	$(BIN)/pytest

clean:
	rm -rf .venv build
