package projector_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/operator"
	"github.com/oncebox/oncebox/outbox/tenants"
)

// A tenant is moved to and fro between two groups of lanes, each with a projector of its own, while it writes. No key of
// it is overtaken.
func TestOrderAcrossMovesOfATenant(t *testing.T) {
	f := newFixture(t)
	for group := range int16(2) {
		cfg := quick()
		cfg.Group = group
		cfg.Renew = 50 * time.Millisecond // until the lanes of the new group are claimed
		f.run(f.projector(cfg))
	}
	ctx, cancel := context.WithCancel(t.Context())
	var writers sync.WaitGroup
	written := make([]int, 4)
	for n := range written {
		writers.Go(func() {
			for ctx.Err() == nil {
				written[n]++
				_, err := pgtest.Add(t.Context(), f.db.DB, f.store, "order", []byte("x"), event.WithTenantID("big"),
					event.WithAggregate("order", fmt.Sprint("k", written[n]%3), 1), event.WithType("e"))
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	moves := 0
	f.eventually("it was moved ten times", func() bool {
		err := f.store.Tenants().Move(t.Context(), "big", int16(1-moves%2), operator.By{Actor: "ann", Reason: "a trial"})
		if !errors.Is(err, tenants.ErrBusy) {
			require.NoError(t, err)
			moves++
		}
		return moves == 10
	})
	cancel()
	writers.Wait()
	total := 0
	for _, n := range written {
		total += n
	}
	f.eventually("all are sent", func() bool { return f.pub.total() >= total })
	last := map[string]int64{}
	for _, m := range f.pub.events() {
		require.Greater(t, m.Sequence, last[m.AggregateID])
		last[m.AggregateID] = m.Sequence
	}
	t.Logf("%d events, %d moves", total, moves)
}
