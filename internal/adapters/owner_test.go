package adapters_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/adapters"
	"github.com/oncebox/oncebox/messaging"
)

func TestOwnerAdmits(t *testing.T) {
	t.Parallel()
	mend := func(part string) string { return "hand over the " + part }
	ask := func(source, installation string) messaging.Subscription {
		return messaging.Subscription{Topic: "order", Name: "billing", Source: source, Installation: installation}
	}
	shop := adapters.Owner{Source: "shop", Installation: "one"}
	for _, c := range []struct {
		owner adapters.Owner
		asks  messaging.Subscription
		want  error
	}{
		{shop, ask("shop", "one"), nil},
		{shop, ask("shop", ""), nil},
		{shop, ask("", "two"), nil},
		{adapters.Owner{}, ask("bank", "two"), nil},
		{adapters.Owner{Source: "shop"}, ask("shop", "two"), nil},
		{shop, ask("bank", "one"), &messaging.SourceError{
			Topic: "order", Subscription: "billing", Owner: "shop", Source: "bank", Mend: "hand over the source",
		}},
		{shop, ask("shop", "two"), &messaging.InstallationError{
			Topic: "order", Subscription: "billing", Source: "shop", Owner: "one", Installation: "two", Mend: "hand over the installation",
		}},
	} {
		err := c.owner.Admits(c.asks, mend)
		if c.want == nil {
			require.NoError(t, err, c)
			continue
		}
		require.EqualError(t, err, c.want.Error())
		require.True(t, messaging.IsPermanent(err), "trying again does not help")
		require.NotContains(t, c.owner.Admits(c.asks, nil).Error(), "hand over")
	}
}
