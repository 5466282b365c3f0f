// Package rulestest runs the tests of the alerts in docs/alerts. These are files in the format of promtool. The package uses the same parts of
// Prometheus as promtool, so promtool need not be installed:
//
//	go test -C docs/alerts/rulestest .
//
// promtool can run the same files:
//
//	promtool test rules docs/alerts/*_test.yml
package rulestest
