package projector_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/operator"
)

// A row that no valid event could be made of is never published. It dies in its turn, and holds its key as each dead letter does.
func TestRowThatIsNoValidEvent(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		held  bool     // it has to wait behind an earlier row first
		goOn  []string // Config.ContinueAfterDead
		taken []string
		last  int // rows that wait behind it
	}{
		"holds its key":             {taken: []string{"placed"}, last: 1},
		"holds its key, once due":   {held: true, taken: []string{"placed"}, last: 1},
		"and the key goes on":       {goOn: []string{"order"}, taken: []string{"placed", "last"}},
		"and the key goes on later": {held: true, goOn: []string{"*"}, taken: []string{"placed", "last"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			cfg := quick()
			cfg.ContinueAfterDead, cfg.Retry.Delay, cfg.Retry.MaxDelay = c.goOn, time.Hour, time.Hour
			p := f.projector(cfg)
			if c.held {
				f.pub.refuse = func(event.Envelope) error { return errors.New("not now") }
			}
			f.add("a", "placed")
			var id string
			require.NoError(t, f.db.NewRaw(`SELECT oncebox_add('order', NULL, 'bad', 'order', 'a', source => 'test', payload_bytes => 'no json',
				metadata => '{"k": "v"}', refused => 'the payload is not valid JSON')`).Scan(t.Context(), &id))
			f.add("a", "last")
			require.NoError(t, p.RunOnce(t.Context()))
			if c.held {
				require.Empty(t, f.pub.types())
				f.pub.refuseWith(nil)
				_, err := f.db.Exec("UPDATE outbox_held SET retry_after = now() WHERE retry_count > 0")
				require.NoError(t, err)
				for range 3 { // the first one leaves, the bad one dies, the last one leaves
					require.NoError(t, p.RunOnce(t.Context()))
				}
			}
			require.Equal(t, c.taken, f.pub.types())
			require.Equal(t, c.last, f.rows("outbox_block"))
			letter, err := f.store.Dead().Show(t.Context(), id)
			require.NoError(t, err)
			require.Equal(t, "the payload is not valid JSON", letter.Error)
			require.Equal(t, "no json", string(letter.Payload))
			found, err := f.store.State().Disorder(t.Context())
			require.NoError(t, err)
			require.Empty(t, found)

			// It dies again, unless it gets another payload.
			require.NoError(t, f.store.Dead().Replay(t.Context(), id, operator.By{Actor: "ann"}))
			require.NoError(t, p.RunOnce(t.Context()))
			require.Equal(t, c.taken, f.pub.types())
			require.NoError(t, f.store.Dead().ReplayEdited(t.Context(), id, []byte("{}"), operator.By{Actor: "ann", Reason: "mended"}))
			require.NoError(t, p.RunOnce(t.Context()))
			want := append(append([]string{}, c.taken...), "bad", "last")
			require.Equal(t, want[:3], append([]string{}, f.pub.types()...)[:3])
			all := f.pub.events()
			for i := range all {
				if all[i].Type == "bad" {
					require.Equal(t, event.Metadata{"k": "v"}, all[i].Metadata)
				}
			}
			require.Zero(t, f.rows("outbox_dead")+f.rows("outbox_held"))
		})
	}
}
