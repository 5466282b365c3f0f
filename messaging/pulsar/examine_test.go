package pulsar

import (
	"net/http"
	"testing"

	pulsarclient "github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/pulsartest"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/brokers"
	"github.com/oncebox/oncebox/messaging/diagnosis"
)

// The faults themselves are planted in the tests of the doctor.
func TestExamineOnlyLooks(t *testing.T) {
	t.Parallel()
	n := pulsartest.Open(t)
	cfg := config(n)
	cfg.Subscriptions = []messaging.Subscription{owned("shop")}
	b := connect(t, cfg)
	found, err := b.Examine(t.Context(), diagnosis.Examination{})
	require.NoError(t, err)
	require.Empty(t, found)

	_, err = b.Examine(t.Context(), diagnosis.Examination{Topics: []string{"none"}})
	require.ErrorContains(t, err, "pulsar: examine topic none")
	all, err := b.keeper.Admin.ListTopics(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"order"}, all, "the topic was not made")

	require.NoError(t, b.Close())
	_, err = b.Examine(t.Context(), diagnosis.Examination{})
	require.ErrorIs(t, err, messaging.ErrBrokerDown)
}

// A reader, such as the one of the doctor itself, keeps no message at the broker.
func TestReaderCountsForNoSubscription(t *testing.T) {
	t.Parallel()
	n := pulsartest.Open(t)
	b := connect(t, config(n))
	require.NoError(t, n.Admin(t.Context(), http.MethodPut, "/persistent/"+n.Name+"/lost/partitions", "1"))
	reader, err := b.client.CreateReader(pulsarclient.ReaderOptions{Topic: "persistent://" + n.Name + "/lost", StartMessageID: pulsarclient.LatestMessageID()})
	require.NoError(t, err)
	defer reader.Close()
	found, err := b.Examine(t.Context(), diagnosis.Examination{Topics: []string{"lost"}})
	require.NoError(t, err)
	require.Len(t, found, 1)
	require.Contains(t, found[0].Problem, "topic lost: it has no subscription and no retention")
}

// Only a topic that exists is looked up, because the broker may make another one.
func TestExisting(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		all, wanted []string
		want        string
	}{
		{nil, nil, ""},
		{nil, []string{"a"}, ""},
		{[]string{"a", "b"}, nil, "a"},
		{[]string{"a", "b"}, []string{"c", "b"}, "b"},
		{[]string{"a", "b"}, []string{"c"}, ""},
	} {
		require.Equal(t, c.want, existing(c.all, c.wanted), c)
	}
}

func TestKindReadsTheVariables(t *testing.T) {
	t.Parallel()
	n := pulsartest.Open(t)
	b, err := Kind().Connect(t.Context(), brokers.Options{Brief: true, Env: func(prefix string, cfg any) error {
		require.Equal(t, "ONCEBOX_PULSAR_", prefix)
		*cfg.(*Config) = *config(n)
		return nil
	}})
	require.NoError(t, err)
	require.NoError(t, b.Close())
	_, err = Kind().Connect(t.Context(), brokers.Options{Env: func(string, any) error { return nil }})
	require.ErrorContains(t, err, "ONCEBOX_PULSAR_URL")
}
