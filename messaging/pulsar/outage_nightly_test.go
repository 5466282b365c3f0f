//go:build nightly

package pulsar_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/devenv"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/pulsar"
)

// The rows as an outage finds them, to the last byte.
const (
	rememberRows = `CREATE TABLE remembered AS
SELECT 'outbox' AS part, seq, md5(o::text) AS content FROM outbox_unsent o UNION ALL SELECT 'sent', seq, md5(s::text) FROM outbox_published s`

	// changedRows counts rows that were changed, without the new rows of the outbox.
	changedRows = `
WITH now AS (SELECT 'outbox' AS part, seq, md5(o::text) AS content FROM outbox_unsent o UNION ALL SELECT 'sent', seq, md5(s::text) FROM outbox_published s)
SELECT count(*) FROM remembered r FULL JOIN now n USING (part, seq)
WHERE r.content IS DISTINCT FROM n.content AND NOT (r.part IS NULL AND part = 'outbox')`
)

// The broker is killed under load and stays away for as long as it takes every worker to fail several times. No row
// changes and none pays for it; when the broker is back everything arrives in order.
func TestBrokerOutageUnderLoad(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute)
	defer cancel()
	server, err := devenv.Pulsar(ctx, &devenv.Options{Own: true, Volatile: true})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Stop()) })
	r := newRig(t, &pulsar.Config{
		URL: server.URL, AdminURL: server.AdminURL, Tenant: "public", Namespace: "default", Topics: []string{"one", "two"},
		// A broker that is back throws away within minutes what no subscription waits for.
		Subscriptions: []messaging.Subscription{{Topic: "one", Name: "s"}, {Topic: "two", Name: "s"}},
	})
	r.goesOn("one")

	require.NoError(t, server.Kill())
	r.spy.begin()
	r.eventually("the outage is noticed", func() bool { return r.spy.callsInVain() >= 3 })
	r.eventually("what was confirmed before it is settled", func() bool { return r.count("SELECT count(*) FROM outbox_published") == r.spy.confirmedEver() })
	_, err = r.db.Exec(rememberRows)
	require.NoError(t, err)
	r.spy.begin()
	r.eventually("the outage lasts", func() bool { return r.spy.callsInVain() >= 6 })
	require.Zero(t, r.count(changedRows))
	r.requireReceipts()
	waiting := r.count("SELECT count(*) FROM outbox_unsent")
	t.Logf("while the broker was down: %s, %d rows wait", r.spy.summary(), waiting)

	require.NoError(t, server.Restart(ctx))
	r.goesOn("one")
	r.stopWriting()
	r.drained()
	r.requireReceipts()
	for _, topic := range r.topics {
		r.requireSeries(topic, r.read(topic), nil)
	}
}
