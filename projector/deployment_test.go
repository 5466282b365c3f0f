package projector_test

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/lanedb"
	"github.com/oncebox/oncebox/operator"
	"github.com/oncebox/oncebox/outbox"
	"github.com/oncebox/oncebox/projector"
)

// A copy of a database carries the name of the installation that it was made from.
func TestCopyOfADatabasePublishesNothing(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.add("a", "a1")
	at := func(name string) (*outbox.Store, *projector.Projector) {
		store := outbox.NewStore(f.db.DB, &outbox.Config{Source: "test", Deployment: name})
		cfg := quick()
		p := f.relay(f.pub, cfg, store)
		return store, p
	}
	_, production := at("production")
	require.NoError(t, production.RunOnce(t.Context()))
	require.Equal(t, []string{"a1"}, f.pub.types())

	f.add("a", "a2")
	_, unnamed := at("")
	require.ErrorIs(t, unnamed.RunOnce(t.Context()), lanedb.ErrForeignDatabase)
	store, staging := at("staging")
	err := staging.RunOnce(t.Context())
	require.ErrorIs(t, err, lanedb.ErrForeignDatabase)
	require.ErrorContains(t, err, `it is "production", Config.Deployment is "staging"`)
	require.Equal(t, []string{"a1"}, f.pub.types())

	f.run(staging)
	require.ErrorContains(t, store.Upkeep().TakeOwnership(t.Context(), operator.By{Actor: "ann"}), "By.Reason is empty")
	require.NoError(t, store.Upkeep().TakeOwnership(t.Context(), operator.By{Actor: "ann", Reason: "a trial"}))
	f.eventually("a2 is sent", func() bool { return f.pub.total() == 2 })
	require.ErrorIs(t, production.RunOnce(t.Context()), lanedb.ErrForeignDatabase)
}

// deployed is a projector of a deployment, which beats often.
func (f *fixture) deployed(name, deployment string) *projector.Projector {
	f.t.Helper()
	cfg := quick()
	cfg.Name, cfg.Renew = name, 10*time.Millisecond
	return f.relay(f.pub, cfg, outbox.NewStore(f.db.Another(f.t), &outbox.Config{Source: "test", Deployment: deployment}))
}

// beats waits until a projector has sent that many more heartbeats. See countBeats.
func (f *fixture) beats(name string, more int) {
	f.t.Helper()
	before := f.rows("beats WHERE owner = ?", name)
	f.eventually(name+" beats", func() bool { return f.rows("beats WHERE owner = ?", name) >= before+more })
}

// A projector that is refused, because it has the settings of another deployment, leaves all lanes to the others.
func TestRefusedProjectorHasNoShareOfTheLanes(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.countBeats()
	f.run(f.deployed("right", "production"))
	f.owns("right", 64)
	refused := make(chan struct{}, 100)
	cfg := quick()
	cfg.Name = "wrong"
	cfg.Telemetry.Logger = slog.New(mender(func(message string) {
		if strings.Contains(message, "lease coordinator failed") {
			select {
			case refused <- struct{}{}:
			default: // nobody reads the later ones
			}
		}
	}))
	f.run(f.relay(f.pub, cfg, outbox.NewStore(f.db.Another(t), &outbox.Config{Source: "test", Deployment: "staging"})))
	for range 2 {
		<-refused
	}
	f.beats("right", 2) // it gives surplus lanes back in between
	f.owns("right", 64)
	require.Zero(t, f.rows("beats WHERE owner = 'wrong'"))

	// When the other deployment takes ownership, the lanes change sides at once.
	other := outbox.NewStore(f.db.DB, &outbox.Config{Source: "test", Deployment: "staging"})
	require.NoError(t, other.Upkeep().TakeOwnership(t.Context(), operator.By{Actor: "ann", Reason: "a trial"}))
	f.owns("wrong", 64)
	require.Zero(t, f.rows("outbox_projector WHERE owner = 'right'"))
}

// A name is introduced by a canary. Processes without a name may restart until the last one has ended; then the database has
// the name.
func TestNameIsIntroducedProcessByProcess(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	stopOld, stopOther := f.run(f.deployed("old", "")), f.run(f.deployed("other", ""))
	f.owns("old", 32)
	f.owns("other", 32)
	f.run(f.deployed("canary", "production"))
	share := func(name string) {
		f.eventually(name+" has its share", func() bool { return f.rows("outbox_lane WHERE owner = ?", name) >= 16 })
	}
	share("canary")
	stopOld()
	stopRestarted := f.run(f.deployed("restarted", ""))
	for _, name := range []string{"restarted", "other", "canary"} {
		share(name)
	}
	stopRestarted()
	stopOther()
	f.owns("canary", 64)
	f.eventually("the database has the name", func() bool { return f.rows("oncebox_settings WHERE deployment = 'production'") == 1 })
	require.ErrorIs(t, f.deployed("late", "").RunOnce(t.Context()), lanedb.ErrForeignDatabase)
}
