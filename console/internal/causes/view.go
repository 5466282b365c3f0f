package causes

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/console/internal/outlook"
	"github.com/oncebox/oncebox/console/internal/plot"
	"github.com/oncebox/oncebox/console/internal/words"
	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/inbox/parked"
	"github.com/oncebox/oncebox/inbox/state"
	"github.com/oncebox/oncebox/internal/cause"
	"github.com/oncebox/oncebox/operator"
	"github.com/oncebox/oncebox/operator/failures"
	"github.com/oncebox/oncebox/ops"
	"github.com/oncebox/oncebox/ops/processes"
	"github.com/oncebox/oncebox/outbox"
)

// mostTenants is how many tenants a page names.
const mostTenants = 10

// View is what the page of a cause shows. If messages of several types fail with one error at one consumer, it is about all of them, as [Together]: the Row
// has the sums of the failures and the names of all types, and notes, archive and dead letters are those of its own fingerprint.
type View struct {
	Row

	// Parts are the causes that it is made of, nil if it is one, and Fingerprints those of all, that of the Row first.
	Parts        []Row
	Fingerprints []string
	// Ahead says what becomes of the failures by themselves. Again is above 0 if it helps to try all at once, see outlook.Again.
	Ahead []string
	Again int64
	// Versions is the sentence of processes.FailsIn, and Tenants has the tenants with their numbers of failing messages.
	Versions, Tenants string

	limit operator.Limit
}

// Read reads a cause with all that its page shows. The error is failures.ErrUnknown if nothing fails for it, and no note is left. A store may be nil.
func Read(ctx context.Context, now time.Time, db *bun.DB, events *outbox.Store, messages *inbox.Inbox, fingerprint string) (*View, error) {
	boxes := ops.New(db, events, messages, nil).Failures()
	g, err := boxes.Show(ctx, fingerprint)
	if err != nil {
		return nil, err
	}
	v := &View{Fingerprints: []string{fingerprint}}
	var limits map[string]operator.Limit
	if g.Consumer != "" && g.Failing.Count > 0 {
		if limits, err = messages.State().Limits(ctx); err != nil {
			return nil, err
		}
		all, err := boxes.List(ctx)
		if err != nil {
			return nil, err
		}
		v.join(&g, all)
	}
	v.Row, v.limit = RowOf(&g, limits), limits[state.Family(g.Consumer)]
	v.Ahead = outlook.OfGroup(&g, &v.limit)
	if limits == nil {
		return v, nil
	}
	return v, v.readConsumer(ctx, now, db, events, messages)
}

// readConsumer reads whether the consumer handles messages again, in which versions it fails, and for which tenants.
func (v *View) readConsumer(ctx context.Context, now time.Time, db *bun.DB, events *outbox.Store, messages *inbox.Inbox) error {
	went, err := messages.State().History(ctx, plot.SpanOf("").Length)
	if err != nil {
		return err
	}
	h := went[state.Family(v.Consumer)]
	v.Again = outlook.Again(&h, v.Failing.Last, now)
	run, err := processes.List(ctx, db, events, messages)
	if err != nil {
		return err
	}
	v.Versions, _ = processes.FailsIn(run, v.Consumer, v.Failing.FailedBy)
	tenants, err := messages.Parked().Tenants(ctx, v.Failed(), mostTenants+1)
	var parts []string
	for n, t := range tenants {
		if n == mostTenants {
			parts = append(parts, "others")
			break
		}
		parts = append(parts, cmp.Or(t.TenantID, "–")+" "+words.Group(t.Messages))
	}
	v.Tenants = strings.Join(parts, ", ")
	return err
}

// join adds the causes of other types with the same error to the group, see [Together].
func (v *View) join(g *failures.Group, all []failures.Group) {
	if g.IsArchived() || cause.Common(g.Failing.Example.Error) == "" {
		return
	}
	parts, types := []Row{RowOf(g, nil)}, []string{g.Type}
	for n := range all {
		o := &all[n]
		if o.Fingerprint == g.Fingerprint || o.Consumer != g.Consumer || o.Cause != g.Cause || o.IsArchived() || o.Failing.Count == 0 {
			continue
		}
		parts, types, v.Fingerprints = append(parts, RowOf(o, nil)), append(types, o.Type), append(v.Fingerprints, o.Fingerprint)
		addTally(&g.Failing, &o.Failing)
	}
	if len(parts) > 1 {
		slices.Sort(types)
		v.Parts, g.Type = parts, strings.Join(slices.Compact(types), ", ")
	}
}

// addTally adds the failures of another type.
func addTally(to, t *failures.Tally) {
	to.Count, to.More = to.Count+t.Count, to.More || t.More
	if t.First.Before(to.First) {
		to.First = t.First
	}
	if t.Last.After(to.Last) {
		to.Last, to.Example = t.Last, t.Example
	}
	if to.Next.IsZero() || !t.Next.IsZero() && t.Next.Before(to.Next) {
		to.Next = t.Next
	}
	to.FailedBy = slices.Compact(slices.Sorted(slices.Values(append(to.FailedBy, t.FailedBy...))))
}

// All returns the fingerprints as a form has them, see [Mark].
func (v *View) All() string { return strings.Join(v.Fingerprints, ",") }

// Failed selects the messages that are tried again.
func (v *View) Failed() parked.Filter {
	return parked.Filter{Consumer: v.Consumer, Fingerprints: v.Fingerprints, State: parked.KeyFailed, FirstOnly: true}
}

// RetryAll returns the address of the form that tries all messages at once.
func (v *View) RetryAll() string {
	c := ops.Cause{Stuck: ops.Stuck{Consumer: v.Consumer}, Fingerprints: v.Fingerprints}
	if v.Parts == nil {
		c.Fingerprint = v.Fingerprint
	}
	return RetryAll(&c)
}

// LimitOf says when a message is given up, "" if that is not known.
func (v *View) LimitOf(m *parked.Message) string {
	if v.Limit == "" {
		return ""
	}
	return v.limit.Text(m.Attempts, m.FailingSince)
}
