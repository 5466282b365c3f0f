package processes

import (
	"slices"

	"github.com/oncebox/oncebox/internal/presence"
	"github.com/oncebox/oncebox/operator/failures"
)

// failed reports whether tries of the process failed last. A process of another version may have had its name before. A process without oncebox.App has not
// reported its version: then the name counts.
func (p *Process) failed(by []string) bool {
	return p.Name != "" && slices.ContainsFunc(by, func(signature string) bool {
		name, version := presence.Signer(signature)
		return name == p.Name && (p.Version == "" || version == p.Version)
	})
}

// AddFailures adds to each process the causes for which its try of a message failed last. Archived causes are left out.
func AddFailures(list []Process, groups []failures.Group) {
	for n := range list {
		p := &list[n]
		for m := range groups {
			g := &groups[m]
			if !g.IsArchived() && p.failed(g.Failing.FailedBy) {
				p.Failing = append(p.Failing, *g)
			}
		}
	}
}
