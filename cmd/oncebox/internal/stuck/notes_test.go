package stuck

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/cmd/oncebox/internal/cli"
	"github.com/oncebox/oncebox/ops"
)

// A transaction that is open for too long is said below the list, with what to type.
func TestLongTransactionIsNoted(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	s := &cli.Session{Terminal: &cli.Terminal{Out: &out}}
	require.NoError(t, printNotes(s, 0, stuckNotes{transaction: ops.LongTransaction + 3*time.Minute}))
	require.Equal(t, "Nothing is stuck.\nA database transaction has been open for 13m0s. Until it ends, VACUUM cannot remove rows that were deleted since, "+
		"so the outbox becomes slower. To see which transaction it is and how to end it: oncebox doctor\n", out.String())
	out.Reset()
	require.NoError(t, printNotes(s, 0, stuckNotes{}))
	require.Equal(t, "Nothing is stuck.\n", out.String())
}
