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
	"github.com/oncebox/oncebox/internal/lanedb"
	"github.com/oncebox/oncebox/internal/logbook"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/outbox"
	"github.com/oncebox/oncebox/projector"
)

// deadly is a publisher whose process dies over one event: it never returns, and only the notes in the
// database show what it was doing.
type deadly struct {
	recorder

	asking sync.Mutex
	dies   func(msgs []event.Envelope) bool
	died   chan []event.Envelope
	fenced chan struct{}
}

func (d *deadly) Publish(ctx context.Context, msgs []event.Envelope) error {
	d.asking.Lock()
	dies := d.dies(msgs)
	d.asking.Unlock()
	if dies {
		d.died <- msgs
		<-d.fenced
		return messaging.ErrBrokerDown
	}
	return d.recorder.Publish(ctx, msgs)
}

// crash runs a projector until it dies over something, and has its lanes be taken over as those of a process that is
// gone. It returns what the projector was publishing, nil if it lived until everything was sent or dead.
func (f *fixture) crash(n int, cfg projector.Config, dies func([]event.Envelope) bool) []event.Envelope {
	f.t.Helper()
	d := &deadly{dies: dies, died: make(chan []event.Envelope, 16), fenced: make(chan struct{})}
	cfg.Name = fmt.Sprintf("projector %d", n)
	p := f.relay(d, cfg, f.store)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	f.t.Cleanup(func() {
		cancel()
		<-done
	})
	var msgs []event.Envelope
	f.eventually("the projector dies, or nothing is left to send", func() bool {
		select {
		case msgs = <-d.died:
			return true
		default:
			return f.rows("outbox_unsent")+f.rows("outbox_held WHERE retry_after < 'infinity'") == 0
		}
	})
	cancel() // or its coordinator would take the lanes that are free below
	if msgs == nil {
		close(d.fenced)
		return nil
	}
	// The epoch fences whatever the dead one might still write when the test lets it go on; and what it has begun, it
	// finishes, so nothing must be free for it to take.
	require.NoError(f.t, f.changeLanes("owner = 'nobody', lease_until = clock_timestamp() + interval '1 hour', epoch = epoch + 1"))
	close(d.fenced)
	<-done
	done <- nil
	_, err := f.db.Exec("UPDATE outbox_lane SET lease_until = '-infinity'; DELETE FROM outbox_projector")
	require.NoError(f.t, err)
	return msgs
}

func has(msgs []event.Envelope, name string) bool {
	for _, m := range msgs {
		if m.Type == name {
			return true
		}
	}
	return false
}

func TestRowThatKillsItsProjectorsIsDeadAndNoOther(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		held bool
	}{{"fresh", false}, {"held", true}} {
		t.Run(c.name, func(t *testing.T) {
			f := newFixture(t)
			for key := range 20 {
				for n := range 5 {
					f.add(fmt.Sprintf("k%d", key), fmt.Sprintf("k%d-%d", key, n))
				}
			}
			const killer = "k7-1"
			if c.held {
				f.pub.refuse = func(event.Envelope) error { return errors.New("not now") }
				slow := quick()
				slow.Retry.Delay, slow.Retry.MaxDelay = time.Hour, time.Hour
				require.NoError(t, f.projector(slow).RunOnce(t.Context()))
				_, err := f.db.Exec("UPDATE outbox_held SET retry_after = now() WHERE retry_after < 'infinity'")
				require.NoError(t, err)
			}
			cfg := quick()
			cfg.MaxCrashes = 3
			crashes := 0
			for ; crashes < 8; crashes++ {
				msgs := f.crash(crashes, cfg, func(msgs []event.Envelope) bool { return has(msgs, killer) })
				if msgs == nil || f.statuses()[killer] == "DEAD" {
					break
				}
				if crashes > 2 {
					require.Len(t, msgs, 1, "it is sent alone")
				}
			}
			f.eventually("only the killer and what follows it is left", func() bool {
				counts := map[string]int{}
				for _, status := range f.statuses() {
					counts[status]++
				}
				return counts["DEAD"] == 1 && counts["SENT"] == 96 && counts["NEW"]+counts["FAILED"] == 3
			})
			require.Equal(t, "DEAD", f.statuses()[killer])
			require.LessOrEqual(t, crashes, 6)
		})
	}
}

// A projector that is killed for other reasons, again and again in the middle of a publication, makes no row dead.
func TestRowsOfKilledProjectorsAreNotDead(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for n := range 40 {
		f.add(fmt.Sprintf("k%d", n), fmt.Sprintf("e%d", n))
	}
	cfg := quick()
	cfg.MaxCrashes = 3
	for n := range 10 {
		calls := 0
		f.crash(n, cfg, func([]event.Envelope) bool { calls++; return calls == 3 })
	}
	f.run(f.projector(cfg))
	f.eventually("all are sent", func() bool {
		for _, status := range f.statuses() {
			if status != "SENT" {
				return false
			}
		}
		return true
	})
}

// An outage is survived by the process, so it counts against no row, however often the process is started anew in it.
func TestOutageCountsAgainstNoRow(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.add("a", "a1")
	f.crash(0, quick(), func([]event.Envelope) bool { return true })
	cfg := quick()
	cfg.MaxCrashes = 1
	f.pub.refuse = func(event.Envelope) error { return messaging.ErrBrokerDown }
	require.ErrorIs(t, f.projector(cfg).RunOnce(t.Context()), messaging.ErrBrokerDown)
	var crashes int
	require.NoError(t, f.db.QueryRow("SELECT crashes FROM outbox").Scan(&crashes))
	require.Zero(t, crashes)
	f.pub.refuseWith(nil)
	require.NoError(t, f.projector(cfg).RunOnce(t.Context()))
	require.Equal(t, []string{"a1"}, f.pub.types())
}

func TestContinueAfterDead(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		attempts int
	}{{"fresh", 1}, {"held", 2}} {
		t.Run(c.name, func(t *testing.T) {
			f := newFixture(t)
			f.pub.refuse = func(e event.Envelope) error {
				if e.Type == "a1" {
					return errors.New("no")
				}
				return nil
			}
			for _, name := range []string{"a1", "a2", "a3"} {
				f.add("a", name)
			}
			cfg := quick()
			cfg.MaxRetryAttempts, cfg.ContinueAfterDead = c.attempts, []string{"order"}
			if c.attempts == 1 {
				require.NoError(t, f.projector(cfg).RunOnce(t.Context()), "what waits its turn is no trouble")
			}
			f.run(f.projector(cfg))
			f.eventually("its key goes on", func() bool {
				s := f.statuses()
				return s["a1"] == "DEAD" && s["a2"] == "SENT" && s["a3"] == "SENT"
			})
			require.Equal(t, []string{"a2", "a3"}, f.pub.types())
			blocks, err := lanedb.Of(f.store.Handle()).Held.Blocks(t.Context(), lanes())
			require.NoError(t, err)
			for _, lane := range blocks {
				require.Empty(t, lane.Blocks)
			}
		})
	}
}

func lanes() (out []int16) {
	for n := range int16(64) {
		out = append(out, n)
	}
	return out
}

// A row that this process has sent alone and lived is counted no more, even if the database does not take what became of it.
func TestFailedSettleCountsAgainstNoRow(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.add("a", "innocent")
	f.vanished()
	_, err := f.db.Exec(`
		CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no space left on device'; END $$;
		CREATE TRIGGER full_disk BEFORE INSERT ON outbox_sent FOR EACH ROW EXECUTE FUNCTION full_disk()`)
	require.NoError(t, err)
	cfg := quick()
	cfg.MaxCrashes = 2
	for range 4 {
		require.ErrorContains(t, f.projector(cfg).RunOnce(t.Context()), "no space left")
		var crashes int
		require.NoError(t, f.db.QueryRow("SELECT crashes FROM outbox").Scan(&crashes))
		require.Zero(t, crashes)
		_, err := f.db.Exec("UPDATE outbox_lane SET owner = 'dead', lease_until = now() - interval '1 second'")
		require.NoError(t, err)
	}
	log := &logbook.Book{}
	cfg.Telemetry.Logger = slog.New(slog.NewTextHandler(log, nil))
	f.run(f.projector(cfg))
	f.eventually("it was tried again and again", func() bool { return log.Count("no space left") > 4 })
	require.NotEqual(t, "DEAD", f.statuses()["innocent"])
	// The trigger stays: to drop it would lock outbox_sent, and might end in a deadlock with the projector.
	_, err = f.db.Exec("CREATE OR REPLACE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NEW; END $$")
	require.NoError(t, err)
	f.eventually("it is settled", func() bool { return f.statuses()["innocent"] == "SENT" })
}

// A row that was in flight waits for the rows in front of it under its key, also if these are gone by now: it was sent
// alone, its outcome is unknown, and the next time the broker does not take it.
func TestRowLeftInFlightWaitsForWhatIsInFrontOfIt(t *testing.T) {
	t.Parallel()
	for name, second := range map[string]error{"refused": errors.New("no"), "topic": &messaging.TopicError{Topic: "order", Err: errors.New("fenced")}} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			answers := []error{messaging.ErrUnknown, second}
			f.pub.refuse = func(e event.Envelope) (err error) {
				if e.Type == "a1" && len(answers) > 0 {
					err, answers = answers[0], answers[1:]
				}
				return err
			}
			f.add("a", "a1")
			f.add("a", "a2")
			f.vanished()
			f.run(f.projector(quick()))
			f.eventually("both are sent", func() bool { return f.pub.total() == 2 })
			require.Equal(t, []string{"a1", "a2"}, f.pub.types())
			require.Empty(t, answers)
		})
	}
}

// counting is a publisher that counts its calls. The first one waits until it is let go.
type counting struct {
	*recorder

	calls   atomic.Int32
	entered chan struct{}
	open    chan struct{}
}

func (c *counting) Publish(ctx context.Context, msgs []event.Envelope) error {
	if c.calls.Add(1) == 1 && c.entered != nil {
		close(c.entered)
		<-c.open
	}
	return c.recorder.Publish(ctx, msgs)
}

// deadOwner leaves the lanes as a projector that vanished with all that waits on its way.
const deadOwner = `
	INSERT INTO outbox_claim (lane, upto) SELECT lane, max(seq) FROM outbox GROUP BY lane;
	UPDATE outbox_lane l SET owner = 'dead', lease_until = now() - interval '1 second'`

func (f *fixture) vanished() {
	f.t.Helper()
	_, err := f.db.Exec(deadOwner)
	require.NoError(f.t, err)
}

// Rows that a vanished projector had on their way, and rows that were due when it vanished, take its
// successor no longer than other rows.
func TestRowsLeftInFlightGoTogetherAtFirst(t *testing.T) {
	t.Parallel()
	for _, held := range []bool{false, true} {
		t.Run(fmt.Sprintf("held %t", held), func(t *testing.T) {
			f := newFixture(t)
			const rows = 300
			for n := range rows {
				f.add(fmt.Sprintf("k%d", n%150), fmt.Sprintf("e%d", n))
			}
			if held {
				_, err := f.db.Exec("UPDATE outbox SET ordering_key = NULL")
				require.NoError(t, err)
				f.refused()
				_, err = f.db.Exec("UPDATE outbox_held SET retry_after = now()")
				require.NoError(t, err)
			}
			_, err := f.db.Exec(deadOwner)
			require.NoError(t, err)
			pub := &counting{recorder: f.pub}
			cfg := quick()
			p := f.relay(pub, cfg, f.store)
			require.NoError(t, p.RunOnce(t.Context()))
			require.Len(t, f.pub.types(), rows)
			require.Less(t, pub.calls.Load(), int32(20))
		})
	}
}

// A worker that has to leave its rows, because another worker sends such rows, goes on as soon as that is over.
func TestRowsSentApartByOneWorkerDoNotMakeAnotherSleep(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	const rows = 40
	for n := range rows {
		f.add(fmt.Sprintf("k%d", n), fmt.Sprintf("e%d", n))
	}
	_, err := f.db.Exec(deadOwner)
	require.NoError(t, err)
	var pauses atomic.Int32
	db := f.pool(&tap{on: func(statement string, _ bool) {
		if strings.Contains(statement, "min(h.retry_after)") {
			pauses.Add(1)
		}
	}}, nil)
	store := outbox.NewStore(db, &outbox.Config{Source: "test", PollOnly: true}) // nothing else wakes them
	pub := &counting{recorder: f.pub, entered: make(chan struct{}), open: make(chan struct{})}
	cfg := sleepy()
	cfg.Workers = 2
	p := f.relay(pub, cfg, store)
	f.run(p)
	<-pub.entered
	f.eventually("the other one is about to sleep", func() bool { return pauses.Load() > 0 })
	<-time.After(100 * time.Millisecond) // the other one sleeps by then, or a later wake would prove nothing
	close(pub.open)
	f.eventually("all are sent", func() bool { return f.pub.total() == rows })
}
