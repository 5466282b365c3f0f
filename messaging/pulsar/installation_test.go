package pulsar

import (
	"errors"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/pulsartest"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/pulsar/internal/answer"
	"github.com/oncebox/oncebox/messaging/pulsar/internal/topics"
)

func installed(topic, id string) messaging.Subscription {
	return messaging.Subscription{Topic: topic, Name: "billing", Source: "shop", Installation: id}
}

// The same service with another database is refused, as a service of another name is. A program of an earlier build, which does not know its
// installation, is let in, and a subscription that it has made gets that of the first who does.
func TestSubscriptionOfAnotherInstallation(t *testing.T) {
	t.Parallel()
	b := connect(t, config(pulsartest.Open(t)))
	declare := func(s messaging.Subscription) error { return b.Declare(patient(t), nil, []messaging.Subscription{s}) }
	require.NoError(t, declare(owned("shop")), "an earlier build")
	require.NoError(t, declare(installed("order", "one")))
	require.NoError(t, declare(installed("order", "one")), "its next process")
	require.NoError(t, declare(owned("shop")))
	properties, err := b.keeper.Admin.PropertiesOf(patient(t), "order-partition-3", "billing")
	require.NoError(t, err)
	require.Equal(t, map[string]string{topics.SourceProperty: "shop", topics.InstallationProperty: "one"}, properties)

	for _, err := range []error{declare(installed("order", "two")), func() error {
		_, err := connect(t, &b.cfg).Subscribe(patient(t), installed("order", "two"))
		require.True(t, messaging.IsPermanent(err), "trying again does not help")
		return err
	}()} {
		found, ok := errors.AsType[*messaging.InstallationError](err)
		require.True(t, ok, err)
		require.Equal(t, []string{"one", "two", "shop"}, []string{found.Owner, found.Installation, found.Source})
		require.ErrorContains(t, err, "ONCEBOX_DATABASE_URL")
		require.Contains(t, found.Mend, "-p 'oncebox.installation=two' -p 'oncebox.source=shop' -s 'billing'")
	}
}

// A start that is refused for the last of its subscriptions has made neither the others nor their topics.
func TestRefusedDeclarationMakesNothing(t *testing.T) {
	t.Parallel()
	b := connect(t, config(pulsartest.Open(t)))
	require.NoError(t, b.Declare(patient(t), nil, []messaging.Subscription{installed("third", "one")}))
	for _, refused := range []messaging.Subscription{installed("third", "two"), {Topic: "third", Name: "billing", Source: "bank"}} {
		first, second := refused, refused
		first.Topic, second.Topic = "first", "second"
		require.Error(t, b.Declare(patient(t), nil, []messaging.Subscription{first, second, refused}))
		for _, topic := range []string{"first", "second"} {
			_, err := b.keeper.Admin.Partitions(patient(t), topic)
			require.True(t, answer.IsStatus(err, http.StatusNotFound), "%s: %v", topic, err)
		}
	}
	// A subscription that exists already is not marked either.
	require.NoError(t, b.Declare(patient(t), nil, []messaging.Subscription{{Topic: "first", Name: "billing"}}))
	require.Error(t, b.Declare(patient(t), nil, []messaging.Subscription{installed("first", "two"), installed("third", "two")}))
	properties, err := b.keeper.Admin.PropertiesOf(patient(t), "first-partition-0", "billing")
	require.NoError(t, err)
	require.Empty(t, properties)
}
