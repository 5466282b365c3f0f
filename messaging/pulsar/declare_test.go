package pulsar

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/logbook"
	"github.com/oncebox/oncebox/internal/pulsartest"
	"github.com/oncebox/oncebox/messaging"
)

func declared(n *pulsartest.Namespace, topic, name string) *Config {
	cfg := config(n)
	cfg.Subscriptions = []messaging.Subscription{{Topic: topic, Name: name}}
	return cfg
}

// Many processes start at once. What is published as soon as one of them is ready reaches a consumer that comes later.
func TestDeclareByManyAtOnce(t *testing.T) {
	t.Parallel()
	n := pulsartest.Open(t)
	brokers := make([]*Broker, 8)
	var starting sync.WaitGroup
	for i := range brokers {
		starting.Go(func() {
			b, err := Connect(t.Context(), declared(n, "order", "billing"))
			if err == nil {
				brokers[i], err = b, b.Publish(t.Context(), []event.Envelope{envelope("order", fmt.Sprint("key", i), 1)})
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	starting.Wait()
	for _, b := range brokers {
		require.NotNil(t, b)
		t.Cleanup(func() { require.NoError(t, b.Close()) })
	}
	partitions, err := brokers[0].keeper.Admin.Partitions(t.Context(), "order")
	require.NoError(t, err)
	require.Equal(t, 4, partitions)
	r, err := brokers[0].Subscribe(t.Context(), messaging.Subscription{Topic: "order", Name: "billing"})
	require.NoError(t, err)
	receiveAll(t, r, len(brokers))
}

func TestDeclareUsesWhatExists(t *testing.T) {
	t.Parallel()
	n := pulsartest.Open(t)
	require.NoError(t, n.Admin(t.Context(), http.MethodPut, "/persistent/"+n.Name+"/two/partitions", "2"))
	require.NoError(t, n.Admin(t.Context(), http.MethodPut, "/persistent/"+n.Name+"/none", ""))
	for topic, partitions := range map[string]int{"two": 2, "none": 0, "new": 4} {
		cfg := declared(n, topic, "billing")
		for range 2 {
			b := connect(t, cfg)
			got, err := b.keeper.Admin.Partitions(t.Context(), topic)
			require.NoError(t, err)
			require.Equal(t, partitions, got, topic)
			require.NoError(t, b.Publish(t.Context(), series(topic, 5, 1)))
		}
		r, err := connect(t, cfg).Subscribe(t.Context(), cfg.Subscriptions[0])
		require.NoError(t, err)
		receiveAll(t, r, 5)
	}
}

// Names that the client and the admin API have to spell in the same way.
func TestDeclareOddNames(t *testing.T) {
	t.Parallel()
	n := pulsartest.Open(t)
	topic, name := "Bestellung ü:&?#=,;", "Rechnung ß / 1"
	b := connect(t, declared(n, topic, name))
	require.NoError(t, b.Publish(t.Context(), series(topic, 5, 1)))
	r, err := b.Subscribe(t.Context(), messaging.Subscription{Topic: topic, Name: name})
	require.NoError(t, err)
	receiveAll(t, r, 5)
	subscriptions, err := b.keeper.Admin.Subscriptions(t.Context(), topic+"-partition-0")
	require.NoError(t, err)
	require.Len(t, subscriptions, 1)
}

func TestDeclareInAMissingNamespace(t *testing.T) {
	t.Parallel()
	cfg := declared(pulsartest.Open(t), "order", "billing")
	cfg.Namespace = "nowhere"
	_, err := Connect(t.Context(), cfg)
	require.ErrorContains(t, err, "Namespace not found")
	require.ErrorContains(t, err, `declare topic "order"`)
}

func TestDeclareRefusesBadNames(t *testing.T) {
	t.Parallel()
	b := connect(t, config(pulsartest.Open(t)))
	require.ErrorContains(t, b.Declare(t.Context(), []string{"a/b"}, nil), `topic "a/b"`)
	require.ErrorContains(t, b.Declare(t.Context(), nil, []messaging.Subscription{{Topic: "a"}}), "Subscription.Name is empty")
	require.NoError(t, b.Declare(t.Context(), nil, nil))
}

// Without the admin API everything works that can work, and the log says once what is missing.
func TestDeclareWithoutAdmin(t *testing.T) {
	t.Parallel()
	notPulsar := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(notPulsar.Close)
	forbidden := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusForbidden)
		_, _ = w.Write([]byte(`{"reason":"no"}`))
	}))
	t.Cleanup(forbidden.Close)
	for name, url := range map[string]string{"nobody": "http://" + nobody, "not Pulsar": notPulsar.URL, "forbidden": forbidden.URL} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var log logbook.Book
			n := pulsartest.Open(t)
			n.Retain(t)
			cfg := declared(n, "order", "billing")
			cfg.AdminURL, cfg.AdminTimeout, cfg.Telemetry.Logger = url, time.Second, log.Logger()
			b := connect(t, cfg)
			// The subscription is there before its first consumer, so this is not lost.
			require.NoError(t, b.Publish(t.Context(), series("order", 5, 2)))
			r, err := b.Subscribe(t.Context(), messaging.Subscription{Topic: "order", Name: "billing"})
			require.NoError(t, err)
			receiveAll(t, r, 10)
			late, err := b.Subscribe(t.Context(), messaging.Subscription{Topic: "order", Name: "late"})
			require.NoError(t, err)
			receiveAll(t, late, 10)
			require.Equal(t, 1, log.Count("admin API cannot be used"))
			require.Equal(t, 1, log.Count(`create-partitioned-topic -p 4 `+b.keeper.FullName("order")))
		})
	}
}

// A topic that has partitions is used as it is, and one of a program that wants a single one is meant so.
func TestNoWarningOfPartitions(t *testing.T) {
	t.Parallel()
	n := pulsartest.Open(t)
	require.NoError(t, connect(t, config(n)).Declare(patient(t), []string{"order"}, nil))
	for topic, partitions := range map[string]int{"order": 4, "single": 1} {
		var log logbook.Book
		cfg := declared(n, topic, "billing")
		cfg.AdminURL, cfg.AdminTimeout, cfg.Telemetry.Logger, cfg.Partitions = "http://"+nobody, 1, log.Logger(), partitions
		connect(t, cfg)
		require.Equal(t, 1, log.Count("admin API cannot be used"))
		require.Zero(t, log.Count("create-partitioned-topic"), topic)
	}
}

// One may look but not make: what exists is enough.
func TestDeclareWithoutRightsToMake(t *testing.T) {
	t.Parallel()
	n := pulsartest.Open(t)
	connect(t, declared(n, "order", "billing"))
	reading := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			w.WriteHeader(http.StatusForbidden)
			_, _ = w.Write([]byte(`{"reason":"no"}`))
			return
		}
		http.Redirect(w, r, n.AdminURL+r.URL.RequestURI(), http.StatusTemporaryRedirect)
	}))
	t.Cleanup(reading.Close)
	cfg := declared(n, "order", "shipping")
	cfg.AdminURL = reading.URL
	b := connect(t, cfg)
	have, err := b.keeper.Admin.Subscribed(t.Context(), "order", 4, "shipping")
	require.NoError(t, err)
	require.True(t, have)

	cfg.Topics = []string{"missing"}
	_, err = Connect(t.Context(), cfg)
	require.ErrorContains(t, err, "403 Forbidden")
}
