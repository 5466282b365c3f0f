package projector_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/outbox"
	"github.com/oncebox/oncebox/projector"
)

// A copy of a database carries the name of the installation that it was made from.
func TestCopyOfADatabasePublishesNothing(t *testing.T) {
	f := newFixture(t)
	f.add("a", "a1")
	at := func(name string) (*outbox.Store, *projector.Projector) {
		store := outbox.NewStore(f.db.DB, &outbox.Config{Source: "test", Deployment: name})
		cfg := quick()
		p := f.relay(f.pub, cfg, store)
		return store, p
	}
	_, production := at("production")
	require.NoError(t, production.RunOnce(t.Context()))
	require.Equal(t, []string{"a1"}, f.pub.types())

	f.add("a", "a2")
	_, unnamed := at("")
	require.ErrorIs(t, unnamed.RunOnce(t.Context()), outbox.ErrElsewhere)
	store, staging := at("staging")
	err := staging.RunOnce(t.Context())
	require.ErrorIs(t, err, outbox.ErrElsewhere)
	require.ErrorContains(t, err, `it is "production", Config.Deployment is "staging"`)
	require.Equal(t, []string{"a1"}, f.pub.types())

	f.run(staging)
	require.ErrorContains(t, store.Adopt(t.Context(), outbox.By{Actor: "ann"}), "By.Reason is empty")
	require.NoError(t, store.Adopt(t.Context(), outbox.By{Actor: "ann", Reason: "a trial"}))
	f.eventually("a2 is sent", func() bool { return f.pub.total() == 2 })
	require.ErrorIs(t, production.RunOnce(t.Context()), outbox.ErrElsewhere)
}
