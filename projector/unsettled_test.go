package projector_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/nightly"
	"github.com/oncebox/oncebox/messaging"
)

// fillDisk makes every write about published rows fail, as on a full disk, until the returned function is called.
func (f *fixture) fillDisk() (empty func()) {
	f.t.Helper()
	_, err := f.db.Exec(`CREATE TABLE full_disk AS SELECT true AS full_disk;
		CREATE FUNCTION refuse_if_full() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			IF EXISTS (SELECT FROM full_disk) THEN
				RAISE EXCEPTION 'could not extend file' USING ERRCODE = '53100';
			END IF;
			RETURN NULL; END $$;
		CREATE TRIGGER full_disk BEFORE INSERT ON outbox_sent FOR EACH STATEMENT EXECUTE FUNCTION refuse_if_full();
		CREATE TRIGGER full_disk BEFORE INSERT ON outbox_progress FOR EACH STATEMENT EXECUTE FUNCTION refuse_if_full()`)
	require.NoError(f.t, err)
	return func() {
		_, err := f.db.Exec("DELETE FROM full_disk")
		require.NoError(f.t, err)
	}
}

func (r *recorder) copies() map[string]int {
	n := map[string]int{}
	for _, m := range r.events() {
		n[m.ID]++
	}
	return n
}

// outage is how long a settle fails: until it was tried again and again.
func outage(f *fixture, tries *atomic.Int32) {
	enough := tries.Load() + nightly.N[int32](12, 1000)
	f.eventually("the settle was tried again and again", func() bool { return tries.Load() >= enough })
}

// failuresOf is a logger that counts failures of workers.
func failuresOf(n *atomic.Int32) *slog.Logger {
	return slog.New(mender(func(message string) {
		if strings.Contains(message, "projector worker") {
			n.Add(1)
		}
	}))
}

// While published rows cannot be moved to the archive, they are not published once more.
func TestRowsThatCannotBeSettledArePublishedOnce(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"fresh", "held"} {
		t.Run(kind, func(t *testing.T) {
			f := newFixture(t)
			var committed []string
			for i := range 200 {
				committed = append(committed, f.add(fmt.Sprint("k", i%20), fmt.Sprint("e", i)))
			}
			cfg := quick()
			if kind == "held" {
				f.pub.refuseWith(func(event.Envelope) error { return errNotNow })
				cfg.MaxRetryAttempts, cfg.Retry.Delay, cfg.Retry.MaxDelay = -1, time.Hour, time.Hour
				cfg.Telemetry.Logger = slog.New(slog.DiscardHandler)
				require.NoError(t, f.projector(cfg).RunOnce(t.Context()))
				_, err := f.db.Exec("UPDATE outbox_held SET retry_after = now() WHERE retry_after < 'infinity'")
				require.NoError(t, err)
				require.Equal(t, 200, f.rows("outbox_held"))
				f.pub.refuseWith(nil)
			}
			empty := f.fillDisk()
			var failures atomic.Int32
			cfg.Telemetry.Logger = failuresOf(&failures)
			f.run(f.projector(cfg))
			outage(f, &failures)
			empty()
			f.eventually("all are settled", f.allSent)
			f.pub.requireOrder(t, committed)
			for id, n := range f.pub.copies() {
				require.Equal(t, 1, n, id)
			}
		})
	}
}

// A projector that ends while nothing can be settled hands its lanes on. Its successor does not know of the unsettled
// rows, and publishes them once more, once.
func TestRowsThatCannotBeSettledAreHandedOn(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	empty := f.fillDisk()
	var committed []string
	for i := range 200 {
		committed = append(committed, f.add(fmt.Sprint("k", i%20), fmt.Sprint("e", i)))
	}
	cfg := quick()
	var failures atomic.Int32
	cfg.Telemetry.Logger = failuresOf(&failures)
	stop := f.run(f.projector(cfg))
	outage(f, &failures)
	stop()
	f.run(f.projector(cfg))
	outage(f, &failures)
	for id, n := range f.pub.copies() {
		require.LessOrEqual(t, n, 2, id)
	}
	empty()
	f.eventually("all are settled", f.allSent)
	f.pub.requireOrder(t, committed)
	for id, n := range f.pub.copies() {
		require.LessOrEqual(t, n, 2, id)
	}
}

// speechless is a publisher that stores everything and brings no receipts.
type speechless struct {
	*recorder

	mu    sync.Mutex
	deaf  bool
	calls []int // sizes
}

func (s *speechless) Publish(ctx context.Context, msgs []event.Envelope) error {
	s.mu.Lock()
	deaf := s.deaf
	s.calls = append(s.calls, len(msgs))
	s.mu.Unlock()
	err := s.recorder.Publish(ctx, msgs)
	if !deaf {
		return err
	}
	return errors.Join(messaging.ErrUnknown, err)
}

// Rows without a receipt may be stored all the same. So one row of each lane is tried until a receipt comes.
func TestTriesWithoutAReceiptAreSmall(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	const rows = 3000
	f.fill(rows, "big", "one", "big")
	s := &speechless{recorder: f.pub, deaf: true}
	cfg := quick()
	cfg.Workers = 1
	f.run(f.relay(s, cfg, f.store))
	tries := func() []int {
		s.mu.Lock()
		defer s.mu.Unlock()
		return append([]int(nil), s.calls...)
	}
	f.eventually("it was tried again", func() bool { return len(tries()) >= 3 })
	for _, size := range tries()[1:] {
		require.LessOrEqual(t, size, 64)
	}
	s.mu.Lock()
	s.deaf = false
	s.mu.Unlock()
	f.requireUnspentOnce(rows)
}

// requireUnspentOnce waits until all is sent, whatever was sent more than once.
func (f *fixture) requireUnspentOnce(rows int) {
	f.t.Helper()
	f.eventually("all are settled", func() bool { return f.rows("outbox_messages WHERE status = 'SENT' AND retry_count = 0") == rows })
	require.Equal(f.t, rows, f.pub.distinct())
}
