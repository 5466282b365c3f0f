package behind

import (
	"fmt"
	"strings"
	"time"

	"github.com/oncebox/oncebox/messaging/count"
)

// Load is what a consumer that is behind has to do.
type Load struct {
	// Since is the time from which events were counted.
	Since time.Time
	// Shares are the tenants of these events, the largest share first.
	Shares []Share
	// Handled is how many messages the consumer handled a second since it fell behind, in the last 5 minutes, at all topics. 0: unknown.
	Handled float64
	// Delay is about how long a message that comes now waits, if the consumer goes on like that, with the precision of Queue.Messages. 0: unknown, or the
	// broker has reported how late the messages are (Queue.Late).
	Delay     time.Duration
	Precision count.Precision
}

// Share is the part of one tenant.
type Share struct {
	Tenant string
	// Types are the types of its events, the most frequent first.
	Types []string
	// Events is about how many there were, and Percent their part in all events that were counted.
	Events  float64
	Percent int
}

// named is how many tenants a text names.
const named = 3

// Text returns the load in a sentence without its end, "" if nothing is known.
func (l *Load) Text() string { return strings.Join(append(l.late(), l.who()...), "; ") }

// About returns what precedes Delay in a sentence: at least, or about.
func (l *Load) About() string {
	return max(l.Precision, count.Estimated).Words()
}

// late says how many messages the consumer handles, and how long a message waits.
func (l *Load) late() []string {
	if l.Handled <= 0 {
		return nil
	}
	text := fmt.Sprintf("it handles %s a second", number(l.Handled))
	if l.Delay > 0 {
		text += ", so a message that comes now waits for " + l.About() + round(l.Delay)
	}
	return []string{text}
}

// who says whose events were recorded.
func (l *Load) who() []string {
	if len(l.Shares) == 0 {
		return nil
	}
	var parts []string
	for n := range l.Shares[:min(len(l.Shares), named)] {
		s := &l.Shares[n]
		parts = append(parts, fmt.Sprintf("%d %% are of the tenant %s", s.Percent, s.Tenant))
	}
	text := fmt.Sprintf("of the events for it since %s UTC, ", l.Since.UTC().Format("15:04:05")) + strings.Join(parts, ", ")
	if more := len(l.Shares) - named; more > 0 {
		text += fmt.Sprintf(", and the others of %d more", more)
	}
	return []string{text}
}

// number formats a rate or an estimate.
func number(n float64) string {
	if n < 10 {
		return fmt.Sprintf("%.2g", n)
	}
	return fmt.Sprintf("%.0f", n)
}

// round returns a duration as exactly as an estimate is.
func round(d time.Duration) string {
	if d < time.Minute {
		return d.Round(time.Second).String()
	}
	return strings.TrimSuffix(d.Round(time.Minute).String(), "0s")
}
