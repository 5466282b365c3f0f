package oncetest_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/oncetest"
)

// A message that comes again has no effect.
func TestRedeliverChangesNothing(t *testing.T) {
	t.Parallel()
	s := newShop(t, never) // oncetest.New with the function that builds the service
	s.place(t, "a")
	s.Drain() // published and handled
	oncetest.RequireEvents[Invoiced](s.Kit, 1)

	s.Redeliver() // a broker may do so at any time
	s.Drain()
	require.Equal(t, 1, s.invoices(t))
	oncetest.RequireEvents[Invoiced](s.Kit, 1)
}
