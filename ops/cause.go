package ops

import "github.com/oncebox/oncebox/internal/cause"

// Looked is the most stuck things of each kind that [View.Causes] groups, the oldest if there are more.
const Looked = 10_000

// Cause is a group of stuck things with the same reason: of one kind, at one place, with errors that differ only in numbers, ids and
// quotations.
type Cause struct {
	// Stuck is the first of them, with changed fields: Since is that of the oldest, Next the earliest of all, and Attempts the highest
	// number.
	Stuck
	// Text is the common text of their errors, with "…" where they differ. For a single one it is its error.
	Text string
	// Count is the size of the group. More says that it may be larger: only [Looked] of this kind were read.
	Count int
	More  bool
}

// Total adds up causes. more says that it is a lower bound.
func Total(list []Cause) (n int, more bool) {
	for i := range list {
		n, more = n+list[i].Count, more || list[i].More
	}
	return n, more
}

// Group groups a list by causes, in the order of the first of each cause.
func Group(all []Stuck) (list []Cause) {
	ofKind := map[Kind]int{}
	found := map[causeKey]int{}
	for i := range all {
		s := &all[i]
		ofKind[s.Kind]++
		key := keyOf(s)
		n, known := found[key]
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

func keyOf(s *Stuck) causeKey {
	k := causeKey{kind: s.Kind, consumer: s.Consumer, step: s.Step, of: CauseOf(s.Error)}
	if s.Consumer == "" {
		k.topic = s.Topic
	}
	return k
}

// CauseOf returns the text that errors with one cause share.
func CauseOf(text string) string { return cause.Of(text) }

// CommonPart returns the longest part of an error that does not differ within its cause and can be typed, as the text of a filter for
// errors. "": there is none.
func CommonPart(text string) string { return cause.Common(text) }

// Has reports whether something that is stuck has this cause.
func (c *Cause) Has(s *Stuck) bool { return keyOf(&c.Stuck) == keyOf(s) }
