# Every target works from a fresh clone: what it needs, it installs.
SHELL := /bin/bash
.DEFAULT_GOAL := help

help: ## List the targets
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: ## Install what is missing, build, and start the demo on http://127.0.0.1:8080
	@scripts/run.sh

test: ## Run everything that must hold, with a summary at the end
	@scripts/test.sh

fuzz: ## Fuzz the readers and the planner, FUZZ_SECONDS (300) for each target; needs the nightly compiler
	@scripts/fuzz.sh

e2e: ## Every story on a real control plane, about 25 minutes (STORIES=name for some)
	@scripts/e2e.sh

chaos: ## Stop and kill servers at every point, a hundred times over (about an hour)
	@scripts/chaos.sh

scale: ## Muster beside 1,000 kwok nodes and 3,000 pods: memory, lag, a burst of 500 (NODES, PODS, BURST)
	@scripts/scale.sh

soak: ## Half an hour of a served fleet and 30 simulated days: does memory, or anything else, grow (MINUTES, DAYS)
	@scripts/soak.sh

check: ## The fast inner loop: format, lints, unit tests without other programs
	@scripts/check.sh

cluster: ## Start a real Kubernetes control plane on loopback, until Ctrl-C (KWOK=yes plays nodes)
	@scripts/cluster/cluster.sh run "$${TMPDIR:-/tmp}/muster-cluster" >/dev/null

page: ## Build the page into web/dist, from where the program takes it
	@scripts/page/build.sh

build: page ## Build the release binary with the page, target/release/muster
	cargo build --release --locked -p muster

browser: ## Try every page in every state in a real Chromium (pictures in target/page-shots)
	@scripts/page/browser.sh

page-figures: ## The page at 2,000 hosts and 10,000 pods, 50 changes a second: when usable, longest task, heap
	@scripts/page/figures.sh

pictures: ## Make the pictures of the README anew, with a real browser
	@scripts/page/pictures.sh

fmt: ## Format the sources
	cargo fmt --all

clean: ## Remove what was built here (the cache of test peers stays)
	cargo clean
	rm -rf .data

.PHONY: help run test fuzz e2e chaos soak check cluster page browser page-figures pictures build fmt clean scale
