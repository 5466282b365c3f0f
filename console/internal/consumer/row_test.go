package consumer

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/inbox/state"
)

// A pause has the name of a read model for all of its generations. A name may contain an @ itself.
func TestNameOfAPause(t *testing.T) {
	t.Parallel()
	for consumer, want := range map[string]string{"mailer": "mailer", "totals@2": "totals", "totals@2/live": "totals", "mailer@eu": "mailer@eu"} {
		require.Equal(t, want, (&Row{Stats: state.Stats{Consumer: consumer}}).Name())
	}
}
