GOLANGCI_VERSION := v2.15.0
GOLANGCI := bin/golangci-lint-$(GOLANGCI_VERSION)

.PHONY: help check stop test nightly lint fmt bench quickstart release-check release

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/'

check: ## what to run between two edits; servers are started once and left running
	go run ./internal/check

stop: ## end the servers that make check has left running
	go run ./internal/check -stop

test: ## run all tests, on a PostgreSQL and a Pulsar that are found or started
	go run ./internal/suite

nightly: ## run all tests at full size, with the race detector and fresh seeds; NIGHTLY_SEED=n repeats a run
	go run ./internal/suite -nightly

lint: $(GOLANGCI) ## run the linters; .golangci.yml says why others are off
	@failed=0; for m in $$(git ls-files go.mod '*/go.mod'); do \
		(cd "$$(dirname "$$m")" && $(CURDIR)/$(GOLANGCI) run) || failed=1; done; exit $$failed

fmt: $(GOLANGCI) ## format the code
	$(GOLANGCI) fmt

bench: ## measure what each service pays for against floors; AGAINST=commit compares with a commit, AGAINST=release with the latest release
	go run -C bench . table $(if $(AGAINST),-against $(AGAINST))

quickstart: ## watch the whole round trip; PostgreSQL is found or downloaded once
	go run ./examples/quickstart

release-check: ## make a release in a clone, and check it as its users would meet it; VERSION=v0.2.0 names the version
	go run -C internal/release . -version=$(VERSION)

release: ## the same, and then set the tags in this repository
	go run -C internal/release . -version=$(VERSION) -keep

$(GOLANGCI):
	GOBIN=$(CURDIR)/bin go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION)
	mv bin/golangci-lint $@
