package projector_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/outbox"
	"github.com/oncebox/oncebox/projector"
)

// keeping is a projector with another store than the fixture's, as in another process.
func (f *fixture) keeping(name string, renew time.Duration) *projector.Projector {
	f.t.Helper()
	cfg := sleepy()
	cfg.Name, cfg.Lease, cfg.Renew = name, 2*time.Hour, renew
	p := f.relay(f.pub, cfg, f.another())
	return p
}

// countBeats makes the database count the heartbeats of each projector.
func (f *fixture) countBeats() {
	f.t.Helper()
	_, err := f.db.Exec(`CREATE TABLE beats (owner text);
		CREATE FUNCTION count_beat() RETURNS trigger LANGUAGE plpgsql AS
			$$ BEGIN INSERT INTO beats VALUES (NEW.owner); RETURN NULL; END $$;
		CREATE TRIGGER count_beat AFTER INSERT OR UPDATE ON outbox_projector FOR EACH ROW EXECUTE FUNCTION count_beat()`)
	require.NoError(f.t, err)
}

func (f *fixture) rows(from string, args ...any) (n int) {
	f.t.Helper()
	require.NoError(f.t, f.db.NewRaw("SELECT count(*) FROM "+from, args...).Scan(f.t.Context(), &n))
	return n
}

func (f *fixture) owns(name string, lanes int) {
	f.t.Helper()
	f.eventually(fmt.Sprintf("%s owns %d lanes", name, lanes), func() bool { return f.rows("outbox_lane WHERE owner = ?", name) == lanes })
}

// Projectors that renew once an hour have the lanes of a projector that stopped, all the same; nothing else makes them beat.
func TestLanesThatAreHandedBackAreTakenByABeatThatComesAtOnce(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.countBeats()
	stop := f.run(f.keeping("first", time.Hour))
	f.owns("first", 64)
	// Once it listens it looks what was handed back before. If it saw the second one then, it would give it half of the lanes.
	f.eventually("the first one listens", func() bool { return f.rows("beats WHERE owner = 'first'") == 2 })
	f.run(f.keeping("second", time.Hour))
	f.eventually("the second one listens", func() bool { return f.rows("beats WHERE owner = 'second'") == 2 })
	stop()
	f.owns("second", 64)

	for i := range 10 {
		name := fmt.Sprintf("e%d", i)
		f.add("k", name, event.WithAggregate("order", name, 1))
		f.hears(f.store, name)
	}
	require.Equal(t, 2, f.rows("beats WHERE owner = 'first'"))
	require.LessOrEqual(t, f.rows("beats WHERE owner = 'second'"), 2+3, "one for each worker that handed lanes back, none for the commits")
}

// A projector that has just started has its share as soon as the others have given back what they had too much.
func TestSurplusLanesAreTakenByABeatThatComesAtOnce(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.countBeats()
	f.run(f.keeping("first", 20*time.Millisecond))
	f.owns("first", 64)
	second := f.keeping("second", time.Hour)
	f.run(second)
	f.owns("second", 32)
	// A worker that was awake while its lanes were marked gives them back in two parts.
	require.LessOrEqual(t, f.rows("beats WHERE owner = 'second'"), 2+2*3, "two for each worker that gave lanes back")
}

// A projector that gets no notifications, because it is behind a pooler, gets its share as well.
func TestSurplusLanesAreTakenBehindAPooler(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.run(f.keeping("first", 20*time.Millisecond))
	f.owns("first", 64)
	cfg := sleepy()
	cfg.Name, cfg.Lease, cfg.Renew, cfg.SleepBusy = "second", 2*time.Hour, time.Hour, 20*time.Millisecond
	deaf := outbox.NewStore(f.db.Another(t), &outbox.Config{Source: "test", PollOnly: true})
	f.run(f.relay(f.pub, cfg, deaf))
	f.owns("second", 32)
}

// A heartbeat that is under way when a projector is told to stop must not come after its heartbeat is deleted: the others would leave
// lanes to it until its lease ends.
func TestABeatThatHasBegunEndsBeforeTheProjectorUnregisters(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.countBeats()
	busy, err := f.db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer func() { _ = busy.Rollback() }()
	_, err = busy.Exec("LOCK TABLE outbox_projector IN SHARE MODE")
	require.NoError(t, err)
	p := f.keeping("one", time.Hour)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	f.eventually("a beat is under way", func() bool { // others may wait as well, such as the cleaner
		return f.rows("pg_locks l JOIN pg_stat_activity a USING (pid) WHERE NOT granted AND l.relation = 'outbox_projector'::regclass "+
			"AND a.query LIKE '%INSERT INTO%outbox_projector%'") == 1
	})
	cancel()
	<-time.After(100 * time.Millisecond) // a slow beat: a projector that breaks it off has done so by then
	require.NoError(t, busy.Rollback())
	require.NoError(t, <-done)
	require.Equal(t, 1, f.rows("beats"))
	require.Zero(t, f.rows("outbox_projector"))
	require.Zero(t, f.rows("outbox_lane WHERE owner IS NOT NULL"))
}
