package uow_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/linktest"
	"github.com/oncebox/oncebox/internal/nightly"
	"github.com/oncebox/oncebox/uow"
)

// The network between a pool and a transaction-mode pooler is cut at COMMIT or its answer, so that what became of a COMMIT is asked of another
// session.
func TestCommitCutBeforeAPooler(t *testing.T) {
	s := newService(t, nil)
	direct := s.DSN
	s.DSN = s.Pooled(t).DSN
	n := s.network(t)
	s.DSN = direct
	n.mendWhenAsked(s)
	happened := map[string]int{}
	for seed := range nightly.Seeds(t, 120, 2000) {
		rng := rand.New(rand.NewPCG(seed, 11))
		n.link.Mend()
		text := fmt.Sprint("seed ", seed)
		await.True(t, func() bool { return n.pool.PingContext(t.Context()) == nil }, "the network is mended")
		cut := func() { n.link.Limit(linktest.Direction(rng.IntN(2)), rng.IntN(20)) }
		units := s.manager(nil, n.pool, &cutter{&probeSink{tableSink: s.sink}, cut})
		_, err := change(t.Context(), units, newAccount(text, "one"), text)
		n.link.Mend()
		require.NotErrorIs(t, err, uow.ErrCommitUnknown, text)
		stored := append(lines(t, s, "SELECT text FROM notes WHERE text = ?", text),
			lines(t, s, "SELECT line FROM sunk WHERE line = ?", "account "+text+" v1 one")...)
		if err == nil {
			happened["committed"]++
			require.Len(t, stored, 2, text)
		} else {
			happened["not committed"]++
			require.Empty(t, stored, "%s: %v", text, err)
		}
	}
	happened["answers lost"] = strings.Count(s.logs.all(), "the connection broke during COMMIT")
	t.Log(happened)
	require.NotZero(t, happened["committed"])
	require.NotZero(t, happened["not committed"])
	require.NotZero(t, happened["answers lost"])
}
