package outlook_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/console/internal/outlook"
	"github.com/oncebox/oncebox/operator"
	"github.com/oncebox/oncebox/operator/failures"
	"github.com/oncebox/oncebox/ops"
)

// Every alarm says what becomes of it by itself. What an operator has to decide does not say that it goes on.
func TestEveryKindHasAnOutlook(t *testing.T) {
	t.Parallel()
	for _, kind := range []ops.Kind{
		ops.RelayMissing, ops.RelayLate, ops.ConsumerMissing, ops.ConsumerAway, ops.ConsumerLate, ops.ConsumerBehind, ops.ConsumerPaused, ops.EventDead,
		ops.EventFailing, ops.MessageDead, ops.MessageFailing, ops.StepUnknown, ops.TenantPaused,
	} {
		require.NotEmpty(t, outlook.OfKind(kind), kind)
		require.NotEmpty(t, outlook.Advice(&ops.Stuck{Kind: kind}), kind)
	}
	require.Equal(t, "Nothing is lost: tries go on by themselves.", outlook.OfKind(ops.MessageFailing))
	require.Equal(t, "Nothing is lost: tries go on, without end.", outlook.Of(&ops.Stuck{Kind: ops.MessageFailing, Ahead: "tries go on, without end"}))
	require.Empty(t, outlook.OfKind("no such kind"))
}

// Of a cause with both, the messages that are tried go on, and the dead letters stay.
func TestOutlookOfACause(t *testing.T) {
	t.Parallel()
	g := &failures.Group{Consumer: "mailer", Failing: failures.Tally{Count: 2}, Dead: failures.Tally{Count: 1}}
	g.Failing.Example.Attempts, g.Failing.First = 3, time.Date(2026, 11, 28, 0, 53, 59, 0, time.UTC)
	limit := &operator.Limit{For: 72 * time.Hour}
	require.Equal(t, []string{
		"Nothing is lost: tries go on until 2026-12-01 00:53 UTC, then it is a dead letter.",
		"Nothing happens by itself: dead letters stay until they are replayed or discarded.",
	}, outlook.OfGroup(g, limit))
	require.Equal(t, "Nothing is lost: tries go on by themselves.", outlook.OfGroup(g, &operator.Limit{})[0])
	g.Dead.Example.Holds = true
	require.Equal(t, "Later events or messages of their ordering keys wait behind them.", outlook.OfGroup(g, limit)[2])
	g = &failures.Group{Topic: "order", Failing: failures.Tally{Count: 2}}
	require.Equal(t, []string{outlook.OfKind(ops.EventFailing)}, outlook.OfGroup(g, limit))
	require.Empty(t, outlook.OfGroup(&failures.Group{}, limit))
}

// A consumer handles again when messages were handled for two minutes, and no try failed.
func TestAConsumerHandlesAgain(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 28, 1, 5, 20, 0, time.UTC)
	at := func(ago time.Duration, went, failed int64) operator.Figures {
		return operator.Figures{At: now.Truncate(time.Minute).Add(-ago), Span: time.Minute, Went: went, Failed: failed}
	}
	for name, c := range map[string]struct {
		want    int64
		figures []operator.Figures
	}{
		"nothing is known":        {0, nil},
		"nothing is handled":      {0, []operator.Figures{at(time.Minute, 0, 0), at(0, 0, 0)}},
		"it fails":                {0, []operator.Figures{at(time.Minute, 50, 0), at(0, 9, 1)}},
		"it failed a moment ago":  {0, []operator.Figures{at(time.Minute, 50, 7), at(0, 9, 0)}},
		"it failed three minutes": {59, []operator.Figures{at(4*time.Minute, 3, 7), at(time.Minute, 50, 0), at(0, 9, 0)}},
	} {
		h := &operator.History{Figures: c.figures}
		require.Equal(t, c.want, outlook.Again(h, now.Add(-time.Hour), now), name)
		require.Zero(t, outlook.Again(h, now.Add(-time.Minute), now), "a message has just begun to fail: "+name)
	}
}
