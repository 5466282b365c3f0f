package projector_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/linktest"
	"github.com/oncebox/oncebox/internal/nightly"
)

// The connection breaks after a settle or a hold was sent and before its answer is back, again and again. Whatever the
// database made of it, nothing is lost and no key is overtaken.
func TestLostAnswersOfSettleAndHold(t *testing.T) {
	for seed := range nightly.Seeds(t, 1, 3) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { loseAnswers(t, seed) })
	}
}

func loseAnswers(t *testing.T, seed uint64) {
	f := newFixture(t)
	wire := f.wire()
	kinds := map[string]string{ // what only this statement contains
		"settle": "outbox_progress (lane", "hold": "f.verdict <> 5)\n\t\tTHEN", "settle held": "FROM gone WHERE $7",
	}
	var mu sync.Mutex
	lost := map[string]int{}
	armed, pending := "", ""
	arm := func(kind string) {
		mu.Lock()
		defer mu.Unlock()
		armed = kind
	}
	store := f.through(func(statement string, prepared bool) {
		mu.Lock()
		defer mu.Unlock()
		if prepared && pending == "" && armed != "" && strings.Contains(statement, kinds[armed]) {
			pending, armed = armed, ""
			wire.Limit(linktest.ToClient, 0)
		}
	}, func(u *url.URL) { u.Host = wire.Addr })
	pub := newHarsh(f.pub, throws(seed, 0), 10, 0)
	cfg := quick()
	cfg.MaxRetryAttempts, cfg.Workers, cfg.BatchSize = -1, 1, 20
	cfg.Retry.Delay, cfg.Retry.MaxDelay = 20*time.Millisecond, 50*time.Millisecond
	cfg.Telemetry.Logger = slog.New(mender(func(message string) {
		mu.Lock()
		defer mu.Unlock()
		if strings.Contains(message, "worker 0 failed") && pending != "" {
			lost[pending]++
			pending = ""
			wire.Mend()
		}
	}))
	p := f.relay(pub, cfg, store)
	f.run(p)

	w := &writers{f: f, dice: throws(seed, 1), keys: 6}
	enough := func() bool {
		mu.Lock()
		defer mu.Unlock()
		return min(lost["settle"], lost["hold"], lost["settle held"]) >= nightly.N(4, 20)
	}
	for round := 0; !enough(); round++ {
		require.Less(t, round, 1000)
		arm([]string{"settle", "hold", "settle held"}[round%3])
		w.run(2, 15)
		// After a lost answer the projector needs longer than the writers do for a round. Without this wait, the number of rounds
		// would depend on the machine's pace.
		f.eventually("the projector keeps up", func() bool { return len(w.committed)-f.pub.distinct() < 100 })
	}
	arm("")
	f.eventually("all are sent", func() bool { return f.pub.distinct() == len(w.committed) })
	f.pub.requireOrder(t, w.committed)
	f.eventually("nothing is left", func() bool {
		var n int
		err := f.db.QueryRow(`SELECT (SELECT count(*) FROM outbox_unsent) + (SELECT count(*) FROM outbox_held)
			+ (SELECT count(*) FROM outbox_block)`).Scan(&n)
		return err == nil && n == 0
	})
	mu.Lock()
	defer mu.Unlock()
	t.Logf("answers lost: %v", lost)
	for kind := range kinds {
		require.Positive(t, lost[kind], kind)
	}
}

// mender is a log handler that shows the messages.
type mender func(message string)

func (mender) Enabled(context.Context, slog.Level) bool        { return true }
func (m mender) Handle(_ context.Context, r slog.Record) error { m(r.Message); return nil }
func (m mender) WithAttrs([]slog.Attr) slog.Handler            { return m }
func (m mender) WithGroup(string) slog.Handler                 { return m }
