GOLANGCI_VERSION := v2.15.0
GOLANGCI := bin/golangci-lint-$(GOLANGCI_VERSION)

TEST_ALL := go test -race -count=1 -timeout 25m -p 2 $$(go list ./... | grep -v /internal/endurance)
# These provoke races of pulsar-client-go with itself, see messaging/pulsar/trouble_test.go and race_test.go.
TEST_WITHOUT_RACE := go test -count=1 -timeout 10m -run "^TestTopic.*UnderLoad$$|^TestLoopOutlivesItsTopic$$|^TestConformance$$/^unbatched$$|^TestConformance$$/^batched$$/lost_connection" ./messaging/pulsar
# Whole services in several processes under load, and a broker that is killed: alone, or they starve.
TEST_ENDURANCE := go test -count=1 -timeout 20m ./internal/endurance

.PHONY: help test lint fmt bench quickstart

help: ## list the targets
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/'

test: ## run all tests with -race, on a PostgreSQL and a Pulsar that are found or started
	go run ./internal/devenv/withservers sh -c '$(TEST_ALL) && $(TEST_WITHOUT_RACE) && $(TEST_ENDURANCE)'
	@if [ -f bench/go.mod ]; then echo go -C bench vet ./... && go -C bench vet ./...; fi

lint: $(GOLANGCI) ## run the linters; each one that is off has its reason in .golangci.yml
	$(GOLANGCI) run
	@if [ -f bench/go.mod ]; then cd bench && ../$(GOLANGCI) run; fi

fmt: $(GOLANGCI) ## format the code
	$(GOLANGCI) fmt

bench: ## measure commit, relay, consume and http against their floors
	go run -C bench . commit
	go run -C bench . relay
	go run -C bench . consume
	go run -C bench . http

quickstart: ## watch the whole round trip, with nothing installed but Go
	go run ./examples/quickstart

$(GOLANGCI):
	GOBIN=$(CURDIR)/bin go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION)
	mv bin/golangci-lint $@
