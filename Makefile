# The two commands: `make demo` and `make test`. Both install what they need first.
BUILD_JOBS ?= $(shell nproc)

.PHONY: demo test build setup smollm2 check format clean help

help:
	@echo "make demo    set everything up and show what mstar does"
	@echo "make test    set everything up and run the tests"
	@echo "make build   programs into build/release/bin/"
	@echo "make smollm2 fetch a small real language model"
	@echo "make check   what every change must pass (.ci/run)"
	@echo "make format  format the C++ files"

demo: setup
	@tools/build.sh release $(BUILD_JOBS) mstar
	@tools/demo.sh

test: setup
	@tools/build.sh dev $(BUILD_JOBS)
	ctest --preset quick -j $(BUILD_JOBS)

build: setup
	@tools/build.sh release $(BUILD_JOBS)

setup:
	@tools/install_deps.sh

smollm2:
	@tools/smollm2.sh

check:
	.ci/run

format:
	tools/format.sh

clean:
	rm -rf build out
