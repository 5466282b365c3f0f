// Package rulestest runs the tests of the alerts in docs/alerts: files in the format of promtool, with the parts of Prometheus that
// promtool itself is made of. It needs no program:
//
//	go test -C docs/alerts/rulestest .
//
// With promtool the same files run as they are:
//
//	promtool test rules docs/alerts/*_test.yml
package rulestest
