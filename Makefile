# Every target works from a fresh clone: what it needs, it installs.
SHELL := /bin/bash
.DEFAULT_GOAL := help

help: ## List the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: ## Install what is missing, build, and start Muster on http://127.0.0.1:8080
	@scripts/run.sh

test: ## Run everything that must hold, with a summary at the end
	@scripts/test.sh

fuzz: ## Fuzz the readers and the planner, FUZZ_SECONDS (300) for each target; needs the nightly compiler
	@scripts/fuzz.sh

chaos: ## 1,000 simulated days full of trouble (CHAOS_SEEDS=0..1000), the production loops in them
	cargo build --release --locked -p muster
	target/release/muster sim fuzz --seeds "$${CHAOS_SEEDS:-0..1000}" --hours 24

check: ## The fast inner loop: format, lints, unit tests without other programs
	@scripts/check.sh

cluster: ## Start a real Kubernetes control plane on loopback, until Ctrl-C (KWOK=yes plays nodes)
	@scripts/cluster/cluster.sh run "$${TMPDIR:-/tmp}/muster-cluster" >/dev/null

build: ## Build the release binary, target/release/muster
	cargo build --release --locked -p muster

fmt: ## Format the sources
	cargo fmt --all

clean: ## Remove what was built here (the cache of test peers stays)
	cargo clean
	rm -rf .data

.PHONY: help run test chaos fuzz check build fmt clean
