// Package httpmwtest is a test suite for services with idempotency keys. It needs only the address of the service: it sends requests over sockets,
// and compares the answers with the rules.
//
//	func TestConformance(t *testing.T) {
//		server := httptest.NewServer(routes())
//		defer server.Close()
//		httpmwtest.Run(t, httpmwtest.Target{
//			URL: server.URL,
//			Create: httpmwtest.Request{Path: "/payments", Body: `{"amount": 1}`},
//			ChangedBody: `{"amount": 2}`,
//		})
//	}
//
// A service that runs somewhere is tested from its description in a file, which is a [Target] in JSON:
//
//	go test github.com/oncebox/oncebox/httpmw/httpmwtest -run TestTarget -v -url http://127.0.0.1:8080
//
// # What it proves
//
// Each row of the suite is one rule, and its name says which. A rule is not run if the Target does not say how to provoke its case. The log says
// how many rules were run, and which were not. With only the required fields these rules are run: retries, the spellings of a key, another content
// under the same key, bodies that end too early, clients at once, problems as JSON.
//
// If a service executes a request twice and gives the same answer both times, the suite notices that only if it can count the committed effects:
// set Target.Effects, or "effects" in a file.
//
// Keys are random, so a service can be tested again and again. The suite does not delete what its requests have created.
//
// # Who tests the test
//
// The suite's own tests run each row against services that break just its rule, and check that the row fails.
//
// Read first: run.go:Run, then target.go:Target.
package httpmwtest
