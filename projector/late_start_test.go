package projector_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/logbook"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/outbox"
)

// A relay may start before its database. It is asked meanwhile how it gets on.
func TestRelayStartsBeforeItsDatabase(t *testing.T) {
	t.Parallel()
	apart := pgtest.OpenApart(t)
	f := &fixture{t: t, db: apart.DB, store: outbox.NewStore(apart.DB.DB, &outbox.Config{Source: "test"}), pub: &recorder{}}
	f.add("a", "a1")
	apart.Leave(t)
	var log logbook.Book
	cfg := quick()
	cfg.Telemetry.Logger = log.Logger()
	p := f.relay(f.pub, cfg, outbox.NewStore(apart.Another(t), nil))
	require.ErrorContains(t, p.RunOnce(t.Context()), "not currently accepting connections", "a single run does not wait")
	stop := f.run(p)
	f.eventually("the relay says that it waits", func() bool { return log.Count("the database is away and is waited for") > 0 })
	require.False(t, p.Progress().Running)
	p.Wake()
	require.ErrorContains(t, p.Run(t.Context()), "it is running already")
	stop() // demands nil

	f.run(p)
	f.eventually("the relay waits again", func() bool { return log.Count("the database is away and is waited for") > 1 })
	apart.Return(t)
	f.eventually("a1 is published", func() bool { return f.pub.total() == 1 })
	require.True(t, p.Progress().Running)
}

// With -1 it is an error at once, and the projector can be run again.
func TestRelayThatMayNotWait(t *testing.T) {
	t.Parallel()
	apart := pgtest.OpenApart(t)
	f := &fixture{t: t, db: apart.DB, store: outbox.NewStore(apart.DB.DB, &outbox.Config{Source: "test"}), pub: &recorder{}}
	f.add("a", "a1")
	apart.Leave(t)
	cfg := quick()
	cfg.DatabaseWait = -1
	p := f.relay(f.pub, cfg, outbox.NewStore(apart.Another(t), nil))
	require.ErrorContains(t, p.Run(t.Context()), "not currently accepting connections")
	apart.Return(t)
	f.run(p)
	f.eventually("a1 is published", func() bool { return f.pub.total() == 1 })
	cfg.DatabaseWait = -2
	require.ErrorContains(t, cfg.Validate(), "Config.DatabaseWait is -2ns")
}
