package ops

import "github.com/oncebox/oncebox/internal/cause"

// Looked is how many stuck things of each kind [View.Causes] reads at most, the oldest ones.
const Looked = 10_000

// Cause is a group of stuck things with the same reason: they have one kind and one place, and their errors differ only
// in numbers, ids and quotations.
type Cause struct {
	// Stuck is the first thing of the group, except that Since is the earliest and Next the earliest of
	// all, and Attempts the highest.
	Stuck
	// Text is the common text of the errors, with "…" where they differ. For a single thing it is its error.
	Text string
	// Count is the size of the group. More is true if it may be larger, because only [Looked] things of
	// this kind were read.
	Count int
	More  bool
}

// Total adds up the counts. more is true if the sum is a lower bound.
func Total(list []Cause) (n int, more bool) {
	for i := range list {
		n, more = n+list[i].Count, more || list[i].More
	}
	return n, more
}

// Group groups stuck things by cause, in the order in which each cause comes first.
func Group(all []Stuck) (list []Cause) {
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
	if !s.Next.IsZero() && (c.Next.IsZero() || s.Next.Before(c.Next)) {
		c.Next = s.Next
	}
}

// causeKey has the fields in which things with one cause agree.
type causeKey struct {
	kind                      Kind
	consumer, topic, step, of string
}

// keyOf leaves the topic out for a consumer: its handler fails in the same way whichever topic a message came from.
// Refusals of the broker usually concern one topic.
func keyOf(s *Stuck) causeKey {
	k := causeKey{kind: s.Kind, consumer: s.Consumer, step: s.Step, of: CauseOf(s.Error)}
	if s.Consumer == "" {
		k.topic = s.Topic
	}
	return k
}

// CauseOf returns the common text of all errors with the same cause as this one.
func CauseOf(text string) string { return cause.Of(text) }

// CommonPart returns the longest part of an error that is equal for all errors of its cause and that a person can type,
// to search for these errors. "" if there is none.
func CommonPart(text string) string { return cause.Common(text) }

// Has reports whether the stuck thing has this cause.
func (c *Cause) Has(s *Stuck) bool { return keyOf(&c.Stuck) == keyOf(s) }
