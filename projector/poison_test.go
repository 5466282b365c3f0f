package projector_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/operator"
	"github.com/oncebox/oncebox/outbox/state"
)

// Whichever row of a key is the bad one: the rows in front of it leave, the rows behind it wait until it is replayed or
// discarded, and other keys are not affected.
func TestPoisonAnywhereInItsKey(t *testing.T) {
	t.Parallel()
	const rows = 5
	for name, bad := range map[string]int{"head": 0, "middle": 2, "tail": rows - 1} {
		for _, replay := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, replay %t", name, replay), func(t *testing.T) {
				f := newFixture(t)
				poison := fmt.Sprint("a", bad)
				f.pub.refuse = func(e event.Envelope) error {
					if e.Type == poison {
						return messaging.Permanent(errors.New("never"))
					}
					return nil
				}
				var id string
				var ofA []string
				for n := range rows {
					f.add("b", fmt.Sprint("b", n))
					a := fmt.Sprint("a", n)
					if stored := f.add("a", a); a == poison {
						id = stored
					}
					if a != poison || replay {
						ofA = append(ofA, a)
					}
				}
				f.run(f.projector(quick()))
				f.eventually("it is dead and the other key is served", func() bool {
					s := f.statuses()
					return s[poison] == state.StatusDead && s[fmt.Sprint("b", rows-1)] == state.StatusSent
				})
				require.Len(t, f.pub.types(), rows+bad)
				f.pub.refuseWith(nil)
				if replay {
					require.NoError(t, f.store.Dead().Replay(t.Context(), id, operator.By{Actor: "ann"}))
				} else {
					require.NoError(t, f.store.Dead().Discard(t.Context(), id, operator.By{Actor: "ann", Reason: "bad"}))
				}
				f.store.Wake()
				f.eventually("the key goes on", func() bool { return f.pub.total() == rows+len(ofA) })
				var got []string
				for _, name := range f.pub.types() {
					if name[0] == 'a' {
						got = append(got, name)
					}
				}
				require.Equal(t, ofA, got)
			})
		}
	}
}
