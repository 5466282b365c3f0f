package causes

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/operator"
	"github.com/oncebox/oncebox/operator/failures"
	"github.com/oncebox/oncebox/ops"
)

// The beginning of a fault stays the same while its oldest messages are handled one by one, and after a minute without a failure it is another fault.
func TestAFaultHasOneBeginning(t *testing.T) {
	t.Parallel()
	const unread = operator.Unknown
	now := time.Date(2026, 11, 28, 5, 38, 20, 0, time.UTC)
	minutes := func(failing ...int64) (list []operator.Figures) {
		for n, f := range failing {
			at := now.Truncate(time.Minute).Add(time.Duration(n+1-len(failing)) * time.Minute)
			list = append(list, operator.Figures{At: at, Span: time.Minute, Failing: f})
		}
		return list
	}
	at := func(text string) time.Time {
		if text == "" {
			return time.Time{}
		}
		clock, err := time.Parse(time.TimeOnly, text)
		require.NoError(t, err)
		return time.Date(2026, 11, 28, clock.Hour(), clock.Minute(), clock.Second(), 0, time.UTC)
	}
	for name, c := range map[string]struct {
		figures      []operator.Figures
		oldest, want string
	}{
		"the oldest message is there":      {minutes(0, 7, 9, 3), "05:36:29", "05:36:29"},
		"it was read a minute later":       {minutes(0, 7, 9, 3), "05:35:58", "05:35:58"},
		"the oldest messages were handled": {minutes(0, 7, 9, 3), "05:38:02", "05:36:00"},
		"an earlier fault is over":         {minutes(8, 0, 7, 3), "05:38:02", "05:37:00"},
		"it was not read in this minute":   {minutes(0, 7, 9, unread), "05:38:02", "05:36:00"},
		"nothing was read of it yet":       {minutes(0, 0, 0, 0), "05:38:18", "05:38:18"},
		"the figures do not have it":       {minutes(0, 0, 0, 0), "05:30:00", ""},
		"it is older than the figures":     {minutes(7, 9, 3), "05:38:02", ""},
		"there are no figures":             {nil, "05:38:02", ""},
		"nobody has read lately":           {minutes(0, 7, 0, 0, 0, 0)[:2], "05:38:02", ""},
		"nobody read for a while":          {append(minutes(0, 7, 0, 0)[:2], minutes(3)...), "05:38:02", ""},
	} {
		cause := &ops.Cause{Stuck: ops.Stuck{Kind: ops.MessageFailing, Consumer: "mailer", Fingerprint: "a", Since: at(c.oldest)}}
		place := &Place{Figures: c.figures, Causes: []ops.Cause{*cause}}
		require.Equal(t, at(c.want), place.Began(cause, now), name)
		other := *cause
		other.Fingerprint = "b"
		place.Causes = append(place.Causes, other)
		require.Zero(t, place.Began(cause, now), "something else fails at the consumer: "+name)
		cause.Fingerprints = []string{"a", "b"}
		require.Equal(t, at(c.want), place.Began(cause, now), "both are one cause: "+name)
		place.Archived = []failures.Group{{Consumer: "mailer", Failing: failures.Tally{Count: 1}}}
		require.Zero(t, place.Began(cause, now), "an archived cause fails: "+name)
	}
}
