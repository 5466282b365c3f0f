package ops

import "github.com/oncebox/oncebox/internal/cause"

// Looked is how many of each kind [View.Causes] puts together, the oldest of them if there are more.
const Looked = 10_000

// Cause is what is stuck for one reason: of one kind, at one place, with errors that say the same apart from numbers, ids and what is quoted.
type Cause struct {
	// Stuck is the first of them. Since is that of the oldest, Next of the one that is tried first, and Attempts are the most.
	Stuck
	// Text is what their errors say, with "…" where they differ. It is the error itself if there is one of them.
	Text string
	// Count is how many they are. More says that there may be others: [Looked] of this kind were looked at.
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

// Group puts what has one cause together, in the order in which the first of each stands in the list.
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

// causeKey is what those with one cause agree in.
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

// CauseOf is the text that errors with one cause share.
func CauseOf(text string) string { return cause.Of(text) }

// CommonPart is the longest part of an error that does not differ within its cause and can be typed: what a filter for errors looks for. "": there is
// none.
func CommonPart(text string) string { return cause.Common(text) }

// Has reports whether something that is stuck has this cause.
func (c *Cause) Has(s *Stuck) bool { return keyOf(&c.Stuck) == keyOf(s) }
