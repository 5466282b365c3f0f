package pulsar

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/pulsartest"
	"github.com/oncebox/oncebox/messaging"
)

// A broker throws away what no subscription waits for. Events that are published long before their first consumer
// starts are kept for it all the same, because its subscription was declared.
func TestEventsWaitForTheirFirstConsumer(t *testing.T) {
	t.Parallel()
	n := pulsartest.Open(t)
	cfg := declared(n, "order", "billing")
	cfg.Partitions = 2
	sent := series("order", 20, 3)
	require.NoError(t, connect(t, cfg).Publish(patient(t), sent))
	require.NoError(t, n.Admin(t.Context(), http.MethodPut, "/persistent/"+n.Name+"/order/unload", "")) // closes the ledger
	for _, partition := range []string{"0", "1"} {
		require.NoError(t, n.Admin(t.Context(), http.MethodPost, "/persistent/"+n.Name+"/order-partition-"+partition+"/trim", ""))
	}
	r, err := connect(t, config(n)).Subscribe(t.Context(), messaging.Subscription{Topic: "order", Name: "billing"})
	require.NoError(t, err)
	receiveAll(t, r, len(sent))
}
