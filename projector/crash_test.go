package projector_test

import (
	"fmt"
	"io"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/devenv"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/outbox"
	"github.com/oncebox/oncebox/projector"
)

const look = "pg_sequence_last_value('outbox_seq'), 0) AS v" // only the look at the sequence contains it

// Settles do not wait for the disk. A server that is killed forgets the last ones, and their rows are there again, below the
// cursors of a projector that lived on. It publishes them once more, and what comes after them.
func TestServerThatCrashesForgetsSettles(t *testing.T) {
	t.Setenv("DATABASE_URL", "") // a server of its own
	server, err := devenv.Postgres(t.Context(), &devenv.Options{Out: io.Discard})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Stop()) })
	// The log is written when a commit waits for it, and otherwise after ten seconds.
	conn, err := pgx.Connect(t.Context(), server.URL)
	require.NoError(t, err)
	for _, set := range []string{"wal_writer_delay = '10s'", "wal_writer_flush_after = '1GB'", "wal_buffers = '64MB'"} {
		_, err = conn.Exec(t.Context(), "ALTER SYSTEM SET "+set)
		require.NoError(t, err)
	}
	require.NoError(t, conn.Close(t.Context()))
	require.NoError(t, server.Restart(t.Context()))

	db := pgtest.MigratedAt(t, server.URL)
	f := &fixture{t: t, db: db, pub: &recorder{}, store: outbox.NewStore(db.DB, &outbox.Config{Source: "test"})}
	var away atomic.Bool
	f.pub.refuseWith(func(event.Envelope) error {
		if away.Load() {
			return messaging.ErrBrokerDown
		}
		return nil
	})
	cfg := quick()
	cfg.Renew, cfg.CleanInterval = time.Minute, -1 // neither waits for the disk in between
	p := f.projector(cfg)
	f.run(p)
	var committed []string
	forgotten := 0
	for round := 0; forgotten == 0; round++ { // the ten seconds may end between the settles and the crash
		require.Less(t, round, 20)
		away.Store(true)
		for i := range 300 {
			committed = append(committed, f.add(fmt.Sprint("k", i%20), fmt.Sprint("e", i)))
		}
		var last int64
		require.NoError(t, f.db.QueryRow("SELECT max(seq) FROM outbox").Scan(&last))
		f.eventually("the mark is behind all rows", func() bool {
			_, err := f.db.Exec("UPDATE oncebox_settings SET lanes = lanes") // waits for the disk
			return err == nil && projector.Mark(p) >= last
		})
		away.Store(false)
		f.eventually("all are settled", func() bool { return f.rows("outbox_unsent") == 0 })
		require.NoError(t, server.Kill())
		published := f.pub.total()
		require.NoError(t, server.Restart(t.Context()))

		f.eventually("the server takes events", func() bool { // connections of before are closed when they are used
			id, err := pgtest.Add(t.Context(), f.db.DB, f.store, "order", []byte("x"), event.WithAggregate("order", "k0", 1), event.WithType("later"))
			committed = append(committed, id)
			if err != nil {
				committed = committed[:len(committed)-1]
			}
			return err == nil
		})
		f.eventually("all are settled again", func() bool { return f.rows("outbox_unsent") == 0 })
		forgotten = f.pub.total() - published - 1
	}
	t.Logf("%d settles were forgotten", forgotten)
	f.pub.requireOrder(t, committed)
}

// A crash, as the server leaves the tables behind: the rows of forgotten settles are back, and the incarnation is gone.
func TestRowsOfForgottenSettlesArePublishedAgain(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	cfg := quick()
	cfg.Renew = 20 * time.Millisecond
	f.run(f.projector(cfg))
	var committed []string
	for i := range 100 {
		committed = append(committed, f.add(fmt.Sprint("k", i%10), fmt.Sprint("e", i)))
	}
	f.store.Wake()
	f.eventually("all are settled", func() bool { return f.rows("outbox_messages WHERE status = 'SENT'") == len(committed) })
	_, err := f.db.Exec("WITH e AS (DELETE FROM outbox_incarnation) DELETE FROM outbox_progress")
	require.NoError(t, err)
	f.eventually("they are settled again", func() bool { return f.rows("outbox_messages WHERE status = 'SENT'") == len(committed) })
	require.Equal(t, 2*len(committed), f.pub.total())
	f.pub.requireOrder(t, committed)
}

// While one worker waits for the answer to its look at the sequence, no other one fetches: the server may be another one by now.
func TestNothingIsFetchedWhileALookIsUnanswered(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.countBeats()
	answer := make(chan struct{})
	var armed, hanging atomic.Bool
	var fetches atomic.Int32
	store := f.through(func(statement string, _ bool) {
		switch {
		case strings.Contains(statement, look) && armed.CompareAndSwap(true, false):
			hanging.Store(true)
			<-answer
		case strings.Contains(statement, "ORDER BY x.seq LIMIT c.quota"):
			fetches.Add(1)
		}
	}, func(*url.URL) {})
	cfg := quick()
	cfg.Name, cfg.Renew = "one", 10*time.Millisecond
	f.run(f.relay(f.pub, cfg, store))
	f.add("a", "a1")
	f.eventually("it works", f.published("a1"))
	armed.Store(true)
	f.eventually("a look hangs", hanging.Load)
	f.beats("one", 5) // what was begun before has ended
	before := fetches.Load()
	f.add("a", "a2")
	store.Wake()
	f.beats("one", 20)
	require.Equal(t, before, fetches.Load())
	close(answer)
	f.eventually("it goes on", f.published("a2"))
}

// Somebody empties the table of the positions. A projector that lives goes on; another one publishes once more what is kept, in order.
func TestPositionsThatAreGone(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	stop := f.run(f.projector(quick()))
	addMany(f, 0, 3)
	f.eventually("all are sent", func() bool { return f.pub.total() == 3*keys && f.allSent() })
	_, err := f.db.Exec("TRUNCATE outbox_progress")
	require.NoError(t, err)
	addMany(f, 3, 3)
	f.eventually("it goes on", func() bool { return f.pub.total() >= 6*keys })
	stop()
	require.Equal(t, 6*keys, f.pub.total())
	_, err = f.db.Exec("TRUNCATE outbox_progress")
	require.NoError(t, err)
	require.NoError(t, f.projector(quick()).RunOnce(t.Context()))
	require.Equal(t, 12*keys, f.pub.total())
	f.pub.requireOrder(t, f.ids())
}
