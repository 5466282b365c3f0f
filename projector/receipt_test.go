package projector_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/outbox/state"
)

// A projector dies in the middle of a batch: before the broker has it, or after, and before that is written down. Its
// successor sends all of it: nothing is lost, and what the broker has twice has the same id both times.
func TestKilledBeforeAndAfterTheReceipt(t *testing.T) {
	t.Parallel()
	for name, copies := range map[string]int{"before": 1, "after": 2} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			var committed []string
			for n := range 40 {
				committed = append(committed, f.add(fmt.Sprint("k", n%10), fmt.Sprint("e", n)))
			}
			batch := f.crash(0, quick(), func(msgs []event.Envelope) bool {
				return name == "before" || f.pub.Publish(t.Context(), msgs) == nil
			})
			require.NotEmpty(t, batch)
			f.run(f.projector(quick()))
			f.eventually("all are sent", f.allSent)
			f.pub.requireOrder(t, committed)
			got := map[string]int{}
			for _, m := range f.pub.events() {
				got[m.ID]++
			}
			for _, m := range batch {
				require.Equal(t, copies, got[m.ID])
			}
		})
	}
}

func (f *fixture) allSent() bool {
	unsent, err := f.db.NewSelect().Model((*state.Record)(nil)).Where("status <> ?", state.StatusSent).Count(f.t.Context())
	require.NoError(f.t, err)
	return unsent == 0
}
