package httpmwtest

import (
	"strings"
	"testing"
)

// Run checks a service against all rules for which the target has requests, each in a subtest.
func Run(t *testing.T, target Target) {
	t.Helper()
	target = target.withDefaults()
	var untold []string
	all := cases()
	for _, c := range all {
		if c.needs != nil && !c.needs(&target) {
			untold = append(untold, c.promise)
			continue
		}
		t.Run(c.promise, func(t *testing.T) { c.run(open(t, target)) })
	}
	t.Logf("%d of %d rules were run", len(all)-len(untold), len(all))
	if len(untold) > 0 {
		t.Logf("not run, because the target does not say how: %s", strings.Join(untold, "; "))
	}
	if !target.counts() {
		t.Log("nobody counts what was committed: work that is done twice with equal answers is not seen")
	}
}
