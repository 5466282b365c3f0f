package pulsar

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/pulsartest"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/pulsar/internal/answer"
)

func TestInspectTellsWhatABrokerDoesWithATopic(t *testing.T) {
	t.Parallel()
	n := pulsartest.Open(t)
	empty, err := Inspect(t.Context(), config(n))
	require.NoError(t, err)
	require.Equal(t, &Inspection{Namespace: n.Name}, empty)

	cfg := config(n)
	cfg.Partitions = 3
	cfg.Subscriptions = []messaging.Subscription{owned("shop"), {Topic: "order", Name: "audit", Type: messaging.KeyShared}}
	connect(t, cfg)
	require.NoError(t, n.Admin(t.Context(), http.MethodPut, "/persistent/"+n.Name+"/plain", ""))
	n.Retain(t)
	require.NoError(t, n.Admin(t.Context(), http.MethodPost, "/namespaces/"+n.Name+"/messageTTL", "3600"))
	require.NoError(t, n.Admin(t.Context(), http.MethodPost, "/namespaces/"+n.Name+"/backlogQuota",
		`{"limitSize":1000000,"policy":"consumer_backlog_eviction"}`))

	got, err := Inspect(t.Context(), cfg)
	require.NoError(t, err)
	namespace := TopicInspection{Retained: -1, Expires: time.Hour, Evicts: true}
	order, plain := namespace, namespace
	order.Name, order.Partitions = "order", 3
	order.Subscriptions = []SubscriptionInspection{{Name: "audit", Type: "None"}, {Name: "billing", Type: "None", Source: "shop"}}
	plain.Name = "plain"
	require.Equal(t, &Inspection{Namespace: n.Name, Topics: []TopicInspection{order, plain}}, got)

	one, err := Inspect(t.Context(), cfg, "plain")
	require.NoError(t, err)
	require.Equal(t, []TopicInspection{plain}, one.Topics)

	cfg.AdminURL = ""
	_, err = Inspect(t.Context(), cfg)
	require.ErrorContains(t, err, "ONCEBOX_PULSAR_ADMIN_URL")
	cfg = config(n)
	cfg.Namespace += "-none"
	_, err = Inspect(t.Context(), cfg)
	require.True(t, answer.IsStatus(err, http.StatusNotFound), err)
}
