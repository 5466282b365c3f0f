package pulsar

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/logbook"
	"github.com/oncebox/oncebox/internal/pulsartest"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/pulsar/internal/topics"
)

func owned(source string) messaging.Subscription {
	return messaging.Subscription{Topic: "order", Name: "billing", Source: source}
}

// Two services that have a consumer of one name would share its messages. The second one fails at its start.
func TestSubscriptionOfAnotherService(t *testing.T) {
	t.Parallel()
	n := pulsartest.Open(t)
	shop := config(n)
	shop.Subscriptions = []messaging.Subscription{owned("shop")}
	connect(t, shop)

	bank := config(n)
	bank.Subscriptions = []messaging.Subscription{owned("bank")}
	_, err := Connect(t.Context(), bank)
	for _, part := range []string{
		`"billing"`, `"order"`, `"shop"`, `"bank"`, "ONCEBOX_SOURCE",
		"pulsar-admin topics update-subscription-properties -p 'oncebox.source=bank' -s 'billing' 'persistent://" + n.Name + "/order'",
	} {
		require.ErrorContains(t, err, part)
	}
	b := connect(t, config(n))
	_, err = b.Subscribe(t.Context(), owned("bank"))
	found, ok := errors.AsType[*messaging.SourceError](err)
	require.True(t, ok, err)
	require.Equal(t, []string{"shop", "bank"}, []string{found.Owner, found.Source})
	require.True(t, messaging.IsPermanent(err), "trying again does not help")

	// A new deployment of the same service shares the subscription with the old one, and so does a program
	// that names no source.
	_, err = b.Subscribe(t.Context(), owned("shop"))
	require.NoError(t, err)
	_, err = b.Subscribe(t.Context(), owned(""))
	require.NoError(t, err)
}

// A subscription that was made before there were marks gets the mark of the first service, on all partitions, and keeps its properties.
func TestSubscriptionWithoutAMark(t *testing.T) {
	t.Parallel()
	n := pulsartest.Open(t)
	b := connect(t, config(n))
	old := owned("")
	old.Type = messaging.KeyShared
	require.NoError(t, b.Declare(t.Context(), nil, []messaging.Subscription{old}))
	marked := owned("shop")
	marked.Type = messaging.KeyShared
	require.NoError(t, b.Declare(t.Context(), nil, []messaging.Subscription{marked}))
	for _, part := range []string{"order-partition-0", "order-partition-3"} {
		properties, err := b.keeper.Admin.PropertiesOf(patient(t), part, "billing")
		require.NoError(t, err)
		require.Equal(t, map[string]string{"oncebox.unbatched": "true", topics.SourceProperty: "shop"}, properties)
	}
	require.ErrorContains(t, b.Declare(t.Context(), nil, []messaging.Subscription{owned("bank")}), `belongs to the service "shop"`)
}

// If two services make a subscription at once, one of them gets it and the other one fails.
func TestTwoServicesStartAtOnce(t *testing.T) {
	t.Parallel()
	n := pulsartest.Open(t)
	sources := []string{"shop", "bank", "shop", "bank"}
	errs := make([]error, len(sources))
	brokers := make([]*Broker, len(sources))
	for i := range brokers {
		brokers[i] = connect(t, config(n))
	}
	var starting sync.WaitGroup
	for i, source := range sources {
		starting.Go(func() { errs[i] = brokers[i].Declare(patient(t), nil, []messaging.Subscription{owned(source)}) })
	}
	starting.Wait()
	properties, err := brokers[0].keeper.Admin.PropertiesOf(patient(t), "order-partition-0", "billing")
	require.NoError(t, err)
	for i, source := range sources {
		if source == properties[topics.SourceProperty] {
			require.NoError(t, errs[i])
		} else {
			require.ErrorContains(t, errs[i], "belongs to the service")
		}
	}
}

// Without the admin API the mark is made with the subscription, for those that can see it, and not seen.
func TestMarkWithoutAnAdmin(t *testing.T) {
	t.Parallel()
	var log logbook.Book
	n := pulsartest.Open(t)
	cfg := config(n)
	cfg.AdminURL, cfg.AdminTimeout, cfg.Telemetry.Logger = "http://"+nobody, 1, log.Logger()
	alone := connect(t, cfg)
	require.NoError(t, alone.Declare(patient(t), nil, []messaging.Subscription{owned("shop")}))
	require.Equal(t, 1, log.Count("a second service that uses the same consumer name is not noticed"))
	_, err := alone.Subscribe(patient(t), owned("bank"))
	require.NoError(t, err)
	require.ErrorContains(t, connect(t, config(n)).Declare(t.Context(), nil, []messaging.Subscription{owned("bank")}), `belongs to the service "shop"`)
}

// A token that may not look is no reason to fail.
func TestMarkThatMustNotBeSeen(t *testing.T) {
	t.Parallel()
	var log logbook.Book
	n := pulsartest.Open(t)
	cfg := config(n)
	guarded := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/properties") {
			w.WriteHeader(http.StatusForbidden)
			_, _ = w.Write([]byte(`{"reason":"no"}`))
			return
		}
		http.Redirect(w, r, n.AdminURL+r.URL.RequestURI(), http.StatusTemporaryRedirect)
	}))
	t.Cleanup(guarded.Close)
	cfg.AdminURL, cfg.Telemetry.Logger = guarded.URL, log.Logger()
	require.NoError(t, connect(t, cfg).Declare(patient(t), nil, []messaging.Subscription{owned("shop")}))
	require.Equal(t, 1, log.Count("may not read"))
}
