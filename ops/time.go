package ops

import (
	"fmt"
	"time"
)

// TimeForms lists the forms of a time that [TimeAgo] and [TimeAhead] accept, for help texts.
const TimeForms = "2006-01-02, 2006-01-02T15:04, 2006-01-02T15:04:05Z or a duration as 90m"

// TimeAgo parses a time as operators type it. A duration means that long before now. A time without a zone
// is UTC. "" is the zero time.
func TimeAgo(text string, now time.Time) (time.Time, error) {
	return timeOf(text, func(d time.Duration) time.Time { return now.Add(-d) })
}

// TimeAhead is [TimeAgo] for a time in the future: a duration is that long after now.
func TimeAhead(text string, now time.Time) (time.Time, error) {
	return timeOf(text, now.Add)
}

// timeOf tries a duration first. The layouts are those of RFC 3339 and its shorter forms, all in UTC: an operator's
// zone is not that of the server.
func timeOf(text string, after func(time.Duration) time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if d, err := time.ParseDuration(text); err == nil {
		return after(d), nil
	}
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05", "2006-01-02T15:04", time.DateOnly} {
		if at, err := time.Parse(layout, text); err == nil {
			return at, nil
		}
	}
	return time.Time{}, fmt.Errorf("%q is not a time: give %s", text, TimeForms)
}
