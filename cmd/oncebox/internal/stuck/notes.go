package stuck

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/oncebox/oncebox/cmd/oncebox/internal/cli"
	"github.com/oncebox/oncebox/cmd/oncebox/internal/status"
	"github.com/oncebox/oncebox/inbox/consumers"
	"github.com/oncebox/oncebox/operator/failures"
	"github.com/oncebox/oncebox/ops"
	"github.com/oncebox/oncebox/ops/outage"
	"github.com/oncebox/oncebox/ops/processes"
	"github.com/oncebox/oncebox/outbox/tenants"
)

// mostPauses is how many paused tenants are printed.
const mostPauses = 5

// stuckNotes are the notes below the list: reasons why it may be incomplete.
type stuckNotes struct {
	// unknown lists consumers whose messages at the broker could not be counted.
	unknown []string
	// pauses lists tenants whose events wait on purpose.
	pauses []tenants.Pause
	// consumers lists consumers whose messages wait on purpose.
	consumers []consumers.Pause
	// transaction is the age of the oldest open transaction, if it is so old that published events cannot
	// be removed; else 0.
	transaction time.Duration
	// archived lists the causes that are left out.
	archived []failures.Group
	// away is the outage of the broker, and waiting how many events should be published.
	away    outage.Outage
	waiting int64
	// unused is the note that this may be the wrong database, "" if it is in use; see status.Unused.
	unused string
}

// readNotes reads what the list itself cannot show, so that an empty list is not mistaken for "all is well".
func readNotes(ctx context.Context, s *cli.Session, view *ops.View, filter ops.Filter) (notes stuckNotes, err error) {
	if notes.unknown, err = view.Unknown(ctx, filter); err != nil {
		return notes, err
	}
	if notes.pauses, err = view.Pauses(ctx, filter); err != nil {
		return notes, err
	}
	if notes.consumers, err = view.ConsumerPauses(ctx, filter); err != nil {
		return notes, err
	}
	st, err := s.Outbox().State().Stats(ctx)
	if err != nil {
		return notes, err
	}
	notes.waiting = st.Backlog()
	run, err := processes.List(ctx, s.DB, s.Outbox(), s.Inbox())
	if err != nil {
		return notes, err
	}
	consumers, err := s.Inbox().State().Consumers(ctx)
	if err != nil {
		return notes, err
	}
	notes.away = outage.Of(run, consumers)
	if st.SnapshotAge > ops.LongTransaction {
		notes.transaction = st.SnapshotAge
	}
	notes.unused, err = status.Unused(ctx, s)
	return notes, err
}

// printNotes prints the notes, and "nothing is stuck" if that is certain. With --json the notes go to stderr, so that
// the document stays valid.
func printNotes(s *cli.Session, total int, notes stuckNotes) error {
	to := s.Out
	if s.JSON {
		to = s.Errs
	}
	var text strings.Builder
	switch {
	case s.JSON || total > 0:
	case len(notes.unknown) > 0:
		text.WriteString("Nothing is stuck in the database.\n")
	default:
		text.WriteString("Nothing is stuck.\n")
	}
	text.WriteString(pausedOnPurpose(s.Program, notes.pauses))
	if n := len(notes.archived); n > 0 {
		fmt.Fprintf(&text, "%s archived, and left out: %s\n", cli.Several(n, "cause is", "causes are"), s.Typed("failures", "list", "--archived"))
	}
	for n := range notes.consumers {
		p := &notes.consumers[n]
		fmt.Fprintf(&text, "The consumer %s is paused by %s since %s: %s; to handle its messages again: %s\n", cli.Short(p.Consumer, 40),
			cli.Short(p.Actor, 40), cli.Moment(p.Since), cli.Short(p.Reason, 80), s.Decided("consumers", "resume", p.Consumer))
	}
	if len(notes.unknown) > 0 {
		text.WriteString("It is not known how many messages wait at the broker, so messages may be stuck there:\n")
		for _, u := range notes.unknown {
			text.WriteString("  " + cli.Printable(u) + "\n")
		}
		if !s.AsksBroker() {
			text.WriteString("With the variables of the service (" + s.Brokers.Variables() + " and others) this command asks the broker itself.\n")
		}
	}
	if notes.transaction > 0 {
		fmt.Fprintf(&text, "A database transaction has been open for %s. Until it ends, VACUUM cannot remove rows that were deleted since, so the outbox "+
			"becomes slower. To see which transaction it is and how to end it: %s\n", cli.Age(notes.transaction.Seconds()), s.Typed("doctor"))
	}
	if total == 0 {
		text.WriteString(notes.unused)
	}
	_, err := fmt.Fprint(to, text.String())
	return err
}

// pausedOnPurpose returns a sentence for each paused tenant, with the command that resumes it.
func pausedOnPurpose(p cli.Program, pauses []tenants.Pause) string {
	if len(pauses) == 0 {
		return ""
	}
	var text strings.Builder
	text.WriteString("Paused by an operator, so their events wait:\n")
	for n := range pauses {
		if n == mostPauses {
			fmt.Fprintf(&text, "  and %s: %s\n", cli.Several(len(pauses)-n, "other tenant", "other tenants"), p.Typed("tenants", "list"))
			break
		}
		one := &pauses[n]
		fmt.Fprintf(&text, "  tenant %s since %s by %s: %s; to publish its events again: %s\n", cli.Short(one.Tenant, 40), cli.Moment(one.Since),
			cli.Short(one.Actor, 40),
			cli.Short(one.Reason, 80), p.Decided("tenants", "resume", one.Tenant))
	}
	return text.String()
}
