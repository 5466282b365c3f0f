package processes

import (
	"slices"

	"github.com/oncebox/oncebox/internal/presence"
	"github.com/oncebox/oncebox/operator/failures"
)

// AddFailures adds to each process the causes for which its try of a message failed last. Archived causes are left out.
func AddFailures(list []Process, groups []failures.Group) {
	for n := range list {
		p := &list[n]
		for m := range groups {
			g := &groups[m]
			if !g.IsArchived() && slices.ContainsFunc(g.Failing.FailedBy, func(by string) bool { return presence.IsSignedBy(by, p.Name) }) {
				p.Failing = append(p.Failing, *g)
			}
		}
	}
}
