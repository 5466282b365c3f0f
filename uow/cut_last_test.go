package uow_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/linktest"
	"github.com/oncebox/oncebox/internal/nightly"
	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/uow"
)

// The packet with the events, what is sent last, and COMMIT is cut at 500 points, and so is its answer. Half of the units have no
// events.
func TestLastStatementsCutAt500Points(t *testing.T) {
	var n *network
	s := newSaver(t, nil, func(s *service) *bun.DB {
		n = s.network(t)
		return pipelined(t, n.link.URL)
	})
	n.mendWhenAsked(s.service)
	happened := map[string]int{}
	for seed := range nightly.Seeds(t, 500, 5000) {
		rng := rand.New(rand.NewPCG(seed, 7))
		n.link.Mend()
		await.True(t, func() bool { return s.pool.PingContext(t.Context()) == nil }, "the network is mended")
		id, events := fmt.Sprint("seed ", seed), int(seed%2)
		err := s.manager(nil, s.pool, s.batch).Do(t.Context(), func(ctx context.Context, u *uow.Unit) error {
			b := &pgsql.Batch{}
			var xid string
			b.Query(func(row *pgsql.Result) error { return row.One(&xid) }, "SELECT pg_current_xact_id()::text")
			// It is to be prepared before, so that nothing but that packet is cut.
			b.Queue("INSERT INTO sunk (line) VALUES ($1)", id)
			b.Queue("INSERT INTO notes (text) VALUES ($1)", "warm "+id)
			if err := uow.Inside(u).Send(ctx, b); err != nil {
				return fmt.Errorf("send: %w", err)
			}
			uow.Inside(u).Identified(xid)
			if events > 0 {
				if err := u.Add(id, json.RawMessage(`{}`)); err != nil {
					return err
				}
			}
			last := &pgsql.Batch{}
			last.Queue("INSERT INTO notes (text) VALUES ($1)", id)
			if !uow.Inside(u).SendLast(last) {
				return errTooLate
			}
			n.link.Limit(linktest.Direction(rng.IntN(2)), rng.IntN(150))
			return nil
		}, uow.WithoutRetry())
		n.link.Mend()
		require.NotErrorIs(t, err, uow.ErrCommitUnknown, id)
		stored := append(lines(t, s, "SELECT text FROM notes WHERE text IN (?, ?)", id, "warm "+id),
			lines(t, s, "SELECT line FROM sunk WHERE line = ? OR line LIKE ?", id, id+" %")...)
		if err == nil {
			require.Len(t, stored, 3+events, id)
			happened["committed"]++
		} else {
			require.ErrorIs(t, err, uow.ErrConnectionLost, id)
			require.Empty(t, stored, "%s: %v", id, err)
			happened["not committed"]++
		}
		require.Zero(t, s.pool.Stats().InUse, id)
	}
	happened["answers lost"] = strings.Count(s.logs.all(), "the connection broke during COMMIT")
	t.Log(happened)
	require.Greater(t, happened["committed"], 50)
	require.Greater(t, happened["not committed"], 50)
	require.Greater(t, happened["answers lost"], 250)
}
