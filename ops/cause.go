package ops

import (
	"slices"

	"github.com/oncebox/oncebox/internal/cause"
	"github.com/oncebox/oncebox/operator/failures"
)

// Looked is how many stuck things of each kind [View.Stuck] reads at most, the oldest ones.
const Looked = 10_000

// Cause is a group of stuck things with the same reason: they have one kind, and one place or fingerprint.
type Cause struct {
	// Stuck is one thing of the group, except that Since is the earliest and Next the earliest of all.
	Stuck
	// Text is the common text of the errors, with "…" where they differ. For a single thing it is its error.
	Text string
	// Count is the size of the group. More is true if it may be larger, because counting stops at a bound.
	Count int
	More  bool
	// Fingerprints are those of the causes that a caller has put together; nil: it is one cause.
	Fingerprints []string
	// Failures is the group of failures with its note, nil for a part that does not run, a step or a tenant.
	Failures *failures.Group
}

// Total adds up the counts. more is true if the sum is a lower bound.
func Total(list []Cause) (n int, more bool) {
	for i := range list {
		n, more = n+list[i].Count, more || list[i].More
	}
	return n, more
}

func isArchived(archived []failures.Group, fingerprint string) bool {
	return slices.ContainsFunc(archived, func(g failures.Group) bool { return g.Fingerprint == fingerprint })
}

// causesOf returns the failures of a group: the dead ones, and the others.
func causesOf(g *failures.Group) (list []Cause) {
	dead, failing := EventDead, EventFailing
	if g.Consumer != "" {
		dead, failing = MessageDead, MessageFailing
	}
	for _, of := range []struct {
		kind  Kind
		tally *failures.Tally
	}{{dead, &g.Dead}, {failing, &g.Failing}} {
		t := of.tally
		if t.Count == 0 {
			continue
		}
		x := &t.Example
		c := Cause{Text: g.Cause, Count: t.Count, More: t.More, Stuck: Stuck{
			Kind: of.kind, Since: t.First, Next: t.Next, Fingerprint: g.Fingerprint, ID: x.ID, MessageKey: x.Ref.MessageKey, Consumer: g.Consumer,
			Type: x.Type, Topic: x.Topic, Tenant: x.TenantID, Source: x.Ref.Source, Key: x.Key, Holds: x.Holds, Attempts: x.Attempts, Error: x.Error,
			FailedBy: t.FailedBy,
		}}
		if t.Count == 1 {
			c.Text = x.Error
		}
		list = append(list, c)
	}
	return list
}

// group groups stuck things by cause, in the order in which each cause comes first.
func group(all []Stuck) (list []Cause) {
	ofKind := map[Kind]int{}
	found := map[causeKey]int{}
	for i := range all {
		s := &all[i]
		ofKind[s.Kind]++
		key := keyOf(s)
		n, known := found[key]
		// Parts and tenants are never grouped: each needs a look of its own.
		if !known || isPart(s.Kind) || s.Kind == TenantPaused {
			found[key] = len(list)
			list = append(list, Cause{Stuck: *s, Text: s.Error, Count: 1})
			continue
		}
		list[n].add(s)
	}
	for n := range list {
		list[n].More = ofKind[list[n].Kind] >= Looked
	}
	return list
}

// add adds a thing to the group. The first thing stays the example, so Since is the earliest if the list is
// sorted by it.
func (c *Cause) add(s *Stuck) {
	c.Count++
	c.Text = CauseOf(s.Error)
	c.Attempts, c.Holds = max(c.Attempts, s.Attempts), c.Holds || s.Holds
	c.FailedBy = slices.Compact(slices.Sorted(slices.Values(append(c.FailedBy, s.FailedBy...))))
	if !s.Next.IsZero() && (c.Next.IsZero() || s.Next.Before(c.Next)) {
		c.Next = s.Next
	}
}

// causeKey has the fields in which things with one cause agree.
type causeKey struct {
	kind              Kind
	fingerprint, step string
}

func keyOf(s *Stuck) causeKey {
	return causeKey{kind: s.Kind, fingerprint: s.Fingerprint, step: s.Step}
}

// CauseOf returns the common text of all errors with the same cause as this one.
func CauseOf(text string) string { return cause.Of(text) }
