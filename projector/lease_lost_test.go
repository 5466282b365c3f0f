package projector_test

import (
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/logbook"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/messaging"
)

// While the database takes long over a statement, the lanes are lost. What comes after the statement is not published: the
// next owner has done it.
func TestWhoLostItsLanesMeanwhilePublishesNothing(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		statement string // what only this statement contains
		before    func(f *fixture)
	}{
		"fetch": {"ORDER BY x.seq LIMIT c.quota", func(f *fixture) { f.add("a", "a1") }},
		"queue": {"ORDER BY x.lane, x.ordering_key, x.seq LIMIT 100", func(f *fixture) {
			f.add("a", "a1")
			f.pub.refuse = func(event.Envelope) error { return errors.New("not now") }
			require.NoError(f.t, f.projector(sleepy()).RunOnce(f.t.Context()))
			f.pub.refuse = nil
			_, err := f.db.Exec("UPDATE outbox_held SET retry_after = now()")
			require.NoError(f.t, err)
		}},
		"in flight": {"crashes = least(", func(f *fixture) {
			f.add("a", "a1")
			f.vanished()
		}},
		"pick": {"o.seq = a.seq ORDER BY o.seq LIMIT 1", func(f *fixture) {
			f.pub.refuse = func(e event.Envelope) error {
				if e.Topic == "hangs" {
					return &messaging.TopicError{Topic: e.Topic, Err: errors.New("fenced")}
				}
				return nil
			}
			_, err := pgtest.Add(f.t.Context(), f.db.DB, f.store, "hangs", []byte("x"), event.WithAggregate("order", "b", 1), event.WithType("hangs"))
			require.NoError(f.t, err)
		}},
		"probe of a held row": {"a(held_lane, held_seq)", func(f *fixture) {
			f.add("a", "a1")
			f.holdAll()
			f.pub.refuse = func(e event.Envelope) error { return &messaging.TopicError{Topic: e.Topic, Err: errors.New("fenced")} }
		}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			c.before(f)
			log := &logbook.Book{}
			lost := make(chan struct{})
			sayLost := sync.OnceFunc(func() { close(lost) })
			var late, back atomic.Bool
			store := f.tapped(&tap{ended: func(statement string) {
				if !strings.Contains(statement, c.statement) || !late.CompareAndSwap(false, true) {
					return
				}
				_, err := f.db.Exec("DELETE FROM outbox_projector")
				if err := errors.Join(err, f.changeLanes("owner = NULL, epoch = epoch + 1, lease_until = '-infinity'")); err != nil {
					t.Error(err)
				}
				if name == "probe of a held row" {
					f.pub.refuseWith(nil)
				}
				next := quick()
				next.Name = "next"
				if err := f.projector(next).RunOnce(t.Context()); err != nil {
					t.Error(err)
				}
				select {
				case <-lost:
				case <-t.Context().Done():
				}
				back.Store(true)
			}}, nil)
			cfg := quick()
			cfg.Name, cfg.Workers, cfg.Renew = "late", 1, cfg.SleepIdle
			cfg.Telemetry.Logger = slog.New(mender(func(message string) {
				_, _ = log.Write([]byte(message)) // it never fails
				if strings.Contains(message, "lanes were lost") {
					sayLost()
				}
			}))
			p := f.relay(f.pub, cfg, store)
			f.run(p)
			if name == "pick" {
				f.eventually("a topic is left alone", func() bool { return log.Count(topicPaused) > 0 })
				f.add("a", "a1")
			}
			f.eventually("the statement is over", back.Load)
			f.add("a", "a2")
			f.eventually("what comes later is published", f.published("a2"))
			require.Equal(t, []string{"a1", "a2"}, f.pub.types())
		})
	}
}
