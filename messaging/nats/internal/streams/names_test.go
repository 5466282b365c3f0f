package streams

import (
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/oncebox/oncebox/event"
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

// The server can put messages of other programs into the partition of their key, by a subject mapping with {{partition}}.
func TestPartitionIsThatOfTheServer(t *testing.T) {
	mapping, err := server.NewSubjectTransform("orders.*", "oncebox.order.{{partition(8,1)}}")
	require.NoError(t, err)
	of := func(key, id string) string {
		return Names{Prefix: "oncebox"}.Subject("order", PartitionOf(&event.Envelope{RoutingKey: key, ID: id}, 8))
	}
	nightly.Check(t, 500, 20_000, func(t *rapid.T) {
		key := rapid.StringMatching(`[^.*> \t\r\n\f\x00]{1,40}`).Draw(t, "key")
		subject, err := mapping.Match("orders." + key)
		require.NoError(t, err)
		require.Equal(t, subject, of(key, "id"))
	})
	require.Equal(t, of("id", ""), of("", "id"), "without a key")
	require.True(t, strings.HasSuffix(of("order-1", "id"), ".5"), "it never changes: %s", of("order-1", "id"))
}
