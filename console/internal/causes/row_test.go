package causes

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/ops"
)

// What the errors of a cause do not share is cut out of its text. A line has a real error, because the numbers say what to do.
func TestALineHasARealError(t *testing.T) {
	t.Parallel()
	c := &ops.Cause{Text: "version …: newer than version …", Count: 18}
	c.Kind, c.Consumer, c.Error = ops.MessageFailing, "mailer", "version 2: newer than version 1"
	now := time.Date(2026, 11, 28, 5, 36, 40, 0, time.UTC)
	require.Equal(t, "18\u00a0ordering keys fail, version 2: newer than version 1, since 05:36:30", Line(c, now.Add(-10*time.Second), now))
	c.Type = "order.placed"
	require.Contains(t, Line(c, now, now), "version 1 (order.placed), since", "which of several lines with one text it is")
	require.Equal(t, "18\u00a0ordering keys fail, version 2: newer than version 1 (order.placed)", Line(c, time.Time{}, now), "the beginning is not known")
}

// The number of stuck things is the sum of numbers that other pages show, each with the same words.
func TestSumsOfKinds(t *testing.T) {
	t.Parallel()
	of := func(kind ops.Kind, count int) ops.Cause { return ops.Cause{Stuck: ops.Stuck{Kind: kind}, Count: count} }
	mixed := []ops.Cause{
		of(ops.MessageDead, 1), of(ops.MessageFailing, 20), of(ops.ConsumerAway, 1), of(ops.EventDead, 2), of(ops.MessageFailing, 10), of(ops.StepUnknown, 1),
	}
	require.Equal(t, "30\u00a0ordering keys fail, 3\u00a0dead letters, 1 request is refused, 1 relay, consumer or tenant", Sums(mixed))
	mixed[1].More = true
	require.Contains(t, Sums(mixed), "30 or more ordering keys fail")
	require.Empty(t, Sums(mixed[:1]), "the number stands there already")
	require.Empty(t, Sums(nil))
}
