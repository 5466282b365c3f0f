package command

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/cmd/oncebox/internal/keys"
	"github.com/oncebox/oncebox/cmd/oncebox/internal/stuck"
)

// An operator sees which work a step was: the service's name for it, the request, and the sender. Each
// command shows it, also in its JSON.
func TestStuckStepIsRecognised(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.unknownStep()
	of := list[stuck.Item](t, s.oncebox("stuck", "--json"))
	require.Len(t, of, 1)
	require.Equal(t, []string{"charge", "order o-7", "POST /orders", "ann"}, []string{of[0].Step, of[0].Label, of[0].Request, of[0].Caller})
	require.Len(t, of[0].Principal, 16)
	keys := list[keys.Item](t, s.oncebox("keys", "list", "--json"))
	require.Equal(t, []string{"order o-7"}, keys[0].Labels)
	require.Equal(t, []string{"POST /orders", "ann", of[0].Principal}, []string{keys[0].Request, keys[0].Caller, keys[0].Principal})

	require.Regexp(t, `(?m)^\s*asked by\s+ann principal `+of[0].Principal+`\n\s*step\s+charge\n\s*about\s+order o-7$`, s.oncebox("stuck").out)
	require.Contains(t, s.oncebox("keys", "list").out, "charge (order o-7)")
	require.Regexp(t, `about order o-7, of POST /orders, asked by ann principal `+of[0].Principal,
		s.asked("n\n", "keys", "resolve", of[0].ID, "charge", "--not-done", "--by", "ann", "--why", "the bank has no such charge").errs)
}
