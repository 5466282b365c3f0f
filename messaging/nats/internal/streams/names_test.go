package streams

import (
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/oncebox/oncebox/internal/nightly"
)

// The server decides which subjects a stream takes. Ours is the same answer.
func TestMatchesAsTheServerDoes(t *testing.T) {
	nightly.Check(t, 500, 20_000, func(t *rapid.T) {
		filter := rapid.StringMatching(`(a|b|\*)(\.(a|b|\*)){0,3}(\.>)?|>`).Draw(t, "filter")
		subject := rapid.StringMatching(`(a|b)(\.(a|b)){0,4}`).Draw(t, "subject")
		require.Equal(t, server.SubjectsCollide(filter, subject), matches(filter, subject), "%s matches %s", filter, subject)
	})
	require.True(t, matches("", "a.b"), "an empty filter matches all")
}
