# Two commands do everything: `make demo` and `make test`. Each creates .venv and installs what it needs.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
NATIVE := CMakeLists.txt $(wildcard native/*.cpp native/*.h)

.PHONY: demo test test-long lint bench sanitize museum every-type fuzz audit-dependencies clean

$(STAMP): pyproject.toml constraints.txt $(NATIVE)
	@echo "Installing into .venv and compiling the kernels: about three minutes, without output."
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
	OMP_NUM_THREADS=1 $(BIN)/pytest --numprocesses auto

# The long checks: audits of 2,000 random models with one fault or none and of all ordinary models; AOTInductor.
test-long: $(STAMP)
	ERLANGEN_RANDOM_MODELS=2000 ERLANGEN_LONG=1 OMP_NUM_THREADS=1 \
	$(BIN)/pytest --numprocesses auto tests/audit/test_random_models.py tests/audit/test_ordinary.py tests/attention/test_aot_inductor.py

# The native tests under AddressSanitizer and UndefinedBehaviorSanitizer, with a build of their own.
sanitize: $(STAMP)
	PATH="$(abspath $(BIN)):$$PATH" cmake -G Ninja -S . -B build/sanitize -DERLANGEN_SANITIZE=ON -DPython_EXECUTABLE=$(abspath $(BIN)/python)
	$(BIN)/cmake --build build/sanitize
	LD_PRELOAD="$$($(or $(CXX),c++) -print-file-name=libasan.so) $$($(or $(CXX),c++) -print-file-name=libstdc++.so)" \
	ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1 \
	$(BIN)/python native/run_with.py build/sanitize -p no:cacheprovider \
	tests/attention/test_native_kernels.py tests/attention/test_native_ops.py tests/attention/test_native_scores.py tests/attention/test_triples.py \
	tests/attention/test_buffer_pool.py tests/attention/test_decoding.py tests/attention/test_attend.py \
	tests/attention/test_kernels.py tests/attention/test_large_scores.py tests/attention/test_higher_derivatives.py \
	tests/attention/test_odd_tensors.py tests/fuzz/test_corpus.py

# Changed inputs for everything that reads bytes from outside, and for the native kernels. What finds a fault is kept in
# tests/fuzz/corpus, which `make test` tries again. FUZZ_SECONDS is the time in all.
FUZZ_SECONDS ?= 600
fuzz: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python tests/fuzz --seconds $(FUZZ_SECONDS)

# The pinned dependencies against a database of known vulnerabilities; fails, too, where it cannot be asked.
audit-dependencies:
	test -x build/audit/bin/pip-audit || { $(PYTHON) -m venv build/audit && build/audit/bin/python -m pip install --quiet pip-audit; }
	build/audit/bin/python .ci/audit_dependencies.py build/audit/bin/pip-audit constraints.txt

# Times attention against its peers on this machine, about three quarters of an hour; then writes the results into the docs.
bench: $(STAMP)
	$(BIN)/python -m benchmarks; status=$$?; $(BIN)/python -m benchmarks --write-docs && exit $$status

# Faults that were really released, each under the version that has it and under one that does not.
museum: $(STAMP)
	$(BIN)/python museum/run.py

# Every model type of the installed transformers, built small, run and audited: about an hour, and can be stopped.
every-type: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python tests/audit/every_type.py build/every_type.jsonl

clean:
	rm -rf .venv build
