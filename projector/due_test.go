package projector_test

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/projector"
)

// A projector that polls once an hour knows when its held rows are due.
func TestWhatIsDueIsSentBetweenPolls(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	var refusals atomic.Int32
	f.pub.refuseWith(func(e event.Envelope) error {
		if e.Type == "refused" && refusals.Add(1) < 4 {
			return errors.New("not yet")
		}
		return nil
	})
	cfg := sleepy()
	cfg.Retry.Delay, cfg.Retry.MaxDelay = 20*time.Millisecond, 20*time.Millisecond
	f.run(f.projector(cfg))
	f.listener()

	f.add("a", "refused")
	f.add("a", "follower")
	f.add("b", "later", event.WithNotBefore(time.Now().Add(50*time.Millisecond)))
	f.store.Wake()
	for _, name := range []string{"refused", "follower", "later"} {
		f.eventually(name+" is published", f.published(name))
	}
}

// A row becomes due after the look for such rows, while the question when the next one is due is on its way for long.
func TestRowThatBecomesDueDuringTheQuestionIsNotForgotten(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	var asked, refused atomic.Bool
	store := f.through(func(statement string, _ bool) {
		if strings.Contains(statement, "min(h.retry_after)") && refused.Load() && asked.CompareAndSwap(false, true) {
			<-time.After(time.Second) // a slow question: longer than the row waits, and than the look took
		}
	}, nil)
	f.pub.refuseWith(func(event.Envelope) error {
		if refused.CompareAndSwap(false, true) {
			return errors.New("not yet")
		}
		return nil
	})
	cfg := sleepy()
	cfg.Workers, cfg.CleanInterval = 1, -1
	cfg.Retry.Delay, cfg.Retry.MaxDelay = 300*time.Millisecond, 300*time.Millisecond
	f.run(f.relay(f.pub, cfg, store))
	f.add("a", "e")
	store.Wake()
	f.eventually("it is published", f.published("e"))
}

// Rows that come one by one cost a fetch and a settle each: nobody asks the database again and again whether there is more,
// or whether something held has become due.
func TestACommitCostsOneFetch(t *testing.T) {
	f := newFixture(t)
	var fetches, looks atomic.Int32
	store := f.through(func(statement string, _ bool) {
		switch {
		case strings.Contains(statement, "ORDER BY x.seq LIMIT c.quota"):
			fetches.Add(1)
		case strings.Contains(statement, "outbox_held"):
			looks.Add(1)
		}
	}, nil)
	cfg := sleepy()
	cfg.Workers, cfg.CleanInterval = 1, -1
	p := f.relay(f.pub, cfg, store)
	projector.ObserveSeldom(p) // the statistics look at what is held too
	f.run(p)
	f.listener()
	f.add("a", "first")
	store.Wake()
	f.eventually("it is published", f.published("first"))
	f.eventually("it is settled", func() bool { return f.statuses()["first"] == "SENT" })

	fetches.Store(0)
	looks.Store(0)
	const rows = 20
	for i := range rows {
		name := "e" + string(rune('a'+i))
		f.add("a", name)
		store.Wake()
		f.eventually(name+" is settled", func() bool { return f.statuses()[name] == "SENT" })
		<-time.After(20 * time.Millisecond) // rows come so seldom that the worker waits for a notification
	}
	// One more each time a busy machine makes two rows follow each other closely; else it would be two for each, and a look.
	require.Less(t, fetches.Load(), int32(2*rows), "fetches")
	require.Less(t, looks.Load(), int32(rows), "looks at what is held")
}
