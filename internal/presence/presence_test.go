package presence_test

import (
	"context"
	"log/slog"
	"runtime/debug"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/internal/presence"
	"github.com/oncebox/oncebox/operator"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// A process is listed while it runs, is gone when it has ended in order, and takes along the rows of processes that vanished long ago.
func TestProcessIsListedWhileItRuns(t *testing.T) {
	t.Parallel()
	db := pgtest.Migrated(t, pgtest.Outbox)
	run := pgsql.New("", false)
	list := func() []operator.Process {
		all, err := presence.List(t.Context(), run, db.DB)
		require.NoError(t, err)
		return all
	}
	is := operator.Process{
		ID: uuid.NewString(), Name: "vm-1", Host: "vm", Service: "shop", Version: "v2", Library: "v1", Parts: []string{"relay", "cleaner"}, Relay: "r",
		Inbox: uuid.NewString(), Broker: "Pulsar",
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	p := &presence.Presence{Process: is, SQL: run, DB: db.DB, Log: slog.New(slog.NewTextHandler(t.Output(), nil))}
	go func() { defer close(done); p.Keep(ctx) }()
	await.True(t, func() bool { return len(list()) == 1 }, "it is listed")
	got := list()[0]
	require.True(t, got.Alive)
	require.WithinDuration(t, got.BeganAt, got.SeenAt, time.Second)
	got.BeganAt, got.SeenAt, got.Alive = time.Time{}, time.Time{}, false
	require.Equal(t, is, got)
	_, err := db.Exec(`INSERT INTO oncebox_process (process, name, host, service, version, library, parts, relay, broker, seen_until) VALUES
		(gen_random_uuid(), 'killed', '', '', '', '', 'relay', '', '', now() - interval '1 hour'),
		(gen_random_uuid(), 'old', '', '', '', '', 'relay', '', '', now() - interval '25 hours')`)
	require.NoError(t, err)
	require.Len(t, list(), 2)
	require.False(t, list()[0].Alive)
	stop()
	<-done
	require.Len(t, list(), 1)
	var rows int
	require.NoError(t, db.NewRaw("SELECT count(*) FROM oncebox_process").Scan(t.Context(), &rows))
	require.Equal(t, 1, rows)
}

func TestVersions(t *testing.T) {
	t.Parallel()
	const ours = "github.com/oncebox/oncebox"
	for name, c := range map[string]struct {
		info             *debug.BuildInfo
		program, library string
	}{
		"no information": {},
		"a release": {&debug.BuildInfo{
			Main: debug.Module{Path: "shop", Version: "v1.2.3"}, Deps: []*debug.Module{{Path: "other", Version: "v9"}, {Path: ours, Version: "v0.1.0"}},
		}, "v1.2.3", "v0.1.0"},
		"a revision": {&debug.BuildInfo{
			Main: debug.Module{Path: "shop", Version: "(devel)"}, Settings: []debug.BuildSetting{{Key: "vcs.revision", Value: "0123456789abcdef"}},
		}, "0123456789ab", ""},
		"of our own": {&debug.BuildInfo{Main: debug.Module{Path: ours, Version: "v0.1.0"}}, "v0.1.0", "v0.1.0"},
	} {
		program, library := presence.Versions(c.info)
		require.Equal(t, []string{c.program, c.library}, []string{program, library}, name)
	}
}
