package causes

import (
	"net/url"
	"slices"
	"strings"

	"github.com/oncebox/oncebox/console/internal/frame"
	"github.com/oncebox/oncebox/internal/cause"
	"github.com/oncebox/oncebox/operator"
	"github.com/oncebox/oncebox/ops"
)

// Together makes one cause of all failing messages of a consumer whose errors have the same text: if a mail server is away, each type of event has a
// cause of its own. Such a cause has no Fingerprint, and its Type names all types. It stands where the first of its causes stood.
func Together(list []ops.Cause) (out []ops.Cause) {
	found := map[[2]string]int{} // by consumer and text
	for n := range list {
		c := list[n]
		if c.Kind != ops.MessageFailing || c.Failures == nil || cause.Common(c.Error) == "" {
			out = append(out, c)
			continue
		}
		key := [2]string{c.Consumer, c.Failures.Cause}
		first, known := found[key]
		if !known {
			found[key] = len(out)
			out = append(out, c)
			continue
		}
		add(&out[first], &c)
	}
	return out
}

// add adds a cause to a cause with the same text.
func add(to, c *ops.Cause) {
	types := append(strings.Split(to.Type, ", "), c.Type)
	slices.Sort(types)
	to.Type = strings.Join(slices.Compact(types), ", ")
	if to.Fingerprint != "" {
		to.Fingerprints = []string{to.Fingerprint}
	}
	to.Fingerprints = append(to.Fingerprints, c.Fingerprint)
	to.Text, to.Fingerprint = to.Failures.Cause, ""
	to.FailedBy = slices.Compact(slices.Sorted(slices.Values(append(to.FailedBy, c.FailedBy...))))
	to.Count, to.More, to.Attempts, to.Holds = to.Count+c.Count, to.More || c.More, max(to.Attempts, c.Attempts), to.Holds || c.Holds
	if c.Since.Before(to.Since) {
		to.Since = c.Since
	}
	if to.Next.IsZero() || !c.Next.IsZero() && c.Next.Before(to.Next) {
		to.Next = c.Next
	}
	if Said(to.Failures) == "" {
		to.Failures = c.Failures // its note is shown
	}
}

// Shows returns the address of the page about a cause, "" for things without a fingerprint. Several causes with one text have one page, see [View].
func Shows(c *ops.Cause) string {
	switch {
	case c.Fingerprint != "":
		return Href(c.Fingerprint)
	case len(c.Fingerprints) > 0:
		return Href(c.Fingerprints[0])
	default:
		return ""
	}
}

// RetryAll returns the address of the form that tries all messages of a cause at once. Causes that are not in the list, because they are archived, are left
// alone, also if their text is the same.
func RetryAll(c *ops.Cause) string {
	if c.Fingerprint != "" {
		return Bulk(operator.Retry, ops.BoxInbox, c.Fingerprint)
	}
	return frame.Address("bulk", url.Values{
		"action": {string(operator.Retry)}, boxField: {string(ops.BoxInbox)}, "consumer": {c.Consumer}, Field: {strings.Join(c.Fingerprints, ",")},
	})
}
