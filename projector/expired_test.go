package projector_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/operator"
)

// Nobody wants an expired event any more, so nobody waits for it. Operators find it among the dead letters.
func TestExpiredEventIsSkipped(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		held, blocks bool
		taken        []string
		blocked      int
	}{
		"before the first attempt":             {taken: []string{"placed", "last"}},
		"between two attempts":                 {held: true, taken: []string{"placed", "last"}},
		"and blocks, before the first attempt": {blocks: true, taken: []string{"placed"}, blocked: 1},
		"and blocks, between two attempts":     {held: true, blocks: true, taken: []string{"placed"}, blocked: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			cfg := quick()
			cfg.BlockExpired, cfg.Retry.Delay, cfg.Retry.MaxDelay = c.blocks, time.Hour, time.Hour
			p := f.projector(cfg)
			until := time.Now().Add(-time.Second)
			if c.held {
				until = time.Now().Add(time.Hour)
				f.pub.refuse = func(e event.Envelope) error {
					if e.Type == "quote" {
						return errors.New("not now")
					}
					return nil
				}
			}
			f.add("a", "placed")
			id := f.add("a", "quote", event.WithExpiry(until))
			f.add("a", "last")
			require.NoError(t, p.RunOnce(t.Context()))
			if c.held {
				require.Equal(t, []string{"placed"}, f.pub.types())
				_, err := f.db.Exec("UPDATE outbox_held SET expires_at = now() - interval '1 second', retry_after = least(retry_after, now()) WHERE id = ?", id)
				require.NoError(t, err)
				require.NoError(t, p.RunOnce(t.Context()))
			}
			require.Equal(t, c.taken, f.pub.types())
			require.Equal(t, c.blocked, f.rows("outbox_block"))
			letter, err := f.store.Dead().Show(t.Context(), id)
			require.NoError(t, err)
			require.Equal(t, "expired before it was published", letter.Error)
			found, err := f.store.State().Disorder(t.Context())
			require.NoError(t, err)
			require.Empty(t, found)

			// It dies again.
			require.NoError(t, f.store.Dead().Replay(t.Context(), id, operator.By{Actor: "ann"}))
			require.NoError(t, p.RunOnce(t.Context()))
			require.Equal(t, c.taken, f.pub.types())
			require.Equal(t, c.blocked, f.rows("outbox_block"))
		})
	}
}
