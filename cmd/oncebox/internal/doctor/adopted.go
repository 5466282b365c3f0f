package doctor

import (
	"time"

	"github.com/oncebox/oncebox/cmd/oncebox/internal/cli"
	"github.com/oncebox/oncebox/outbox/adopt"
)

const (
	// silentMover is how long a mover may note nothing before it counts as stopped. It notes something every ten seconds.
	silentMover = time.Minute
	// longForwarded is how long old code may be silent before somebody has probably forgotten to end the switch.
	longForwarded = 7 * 24 * time.Hour
)

// adoption finds why the rows of an old table are not taken over as they should be (oncebox adopt).
func adoption(s *adopt.State, now time.Time) (found []Finding) {
	const check = "adopted"
	at := func(t time.Time) string { return t.UTC().Format(time.RFC3339) }
	if s.Fault != "" {
		return []Finding{finding(check, Problem, "correct the mapping; if the table was dropped on purpose: oncebox adopt --map FILE --stop-forwarding",
			"the rows of %s, which oncebox adopt takes over, cannot be read: %s", s.Table, s.Fault)}
	}
	silent := now.Sub(s.LookedAt) > silentMover
	if s.Waiting > 0 && silent {
		since := ""
		if !s.Oldest.IsZero() {
			since = ", the oldest since " + at(s.Oldest)
		}
		found = append(found, finding(check, Problem, "start oncebox adopt --map FILE", "unsent rows wait in %s (%s)%s, and no process moves them",
			s.Table, cli.UpTo(s.Waiting, adopt.Counted), since))
	}
	if s.Error != "" && !silent {
		found = append(found, finding(check, Problem, "mend what the error says", "rows of %s have not been moved since %s: %s",
			s.Table, at(s.FailedAt), s.Error))
	}
	if s.Stay > 0 {
		found = append(found, finding(check, Problem, "oncebox adopt --map FILE --dry-run lists them: correct them, or mark or delete them",
			"no event can be made of %s of %s, and later rows of its key wait behind it", cli.Several(s.Stay, "row", "rows"), s.Table))
	}
	if s.Trigger == adopt.Disabled {
		found = append(found, finding(check, Problem, "ALTER TABLE "+s.Table+" ENABLE TRIGGER oncebox_forward",
			"somebody has disabled the trigger that forwards the rows of %s: events of new code overtake rows of old code", s.Table))
	}
	last := s.Since
	if s.WrittenAt.After(last) {
		last = s.WrittenAt
	}
	if s.Trigger == adopt.Enabled && s.Waiting == 0 && now.Sub(last) > longForwarded {
		found = append(found, finding(check, Warning, "if no old code runs: oncebox adopt --map FILE --stop-forwarding",
			"rows of %s are still forwarded, and no old code has written to it since %s", s.Table, at(last)))
	}
	return found
}
