package main

import (
	"bytes"
	"context"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/oncebox/oncebox/examples/twoservices/invoices"
	"github.com/oncebox/oncebox/examples/twoservices/orders"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/pagetest"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/internal/pulsartest"
	"github.com/oncebox/oncebox/messaging/brokers"
	"github.com/oncebox/oncebox/messaging/pulsar"
	"github.com/oncebox/oncebox/serve"
)

func TestMain(m *testing.M) { pgtest.Main(m, pulsartest.Stop) }

// Both services in one process: an order is placed once, and gets its invoice through the database of the other service.
func TestAnOrderGetsItsInvoice(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, play(t.Context(), &out))
	require.Equal(t, `POST /orders/o-1: 201 Created
POST /orders/o-1: 201 Created
GET /orders/o-1: 200 OK {"id":"o-1","total":42,"invoice":"invoice-of-o-1"}
`, out.String())
}

// Each service by itself, with Pulsar between them. The requests are those of the page.
func TestRequestsOfThePage(t *testing.T) {
	page, err := os.ReadFile("../../docs/two-services.md")
	require.NoError(t, err)
	lines := pagetest.Lines(string(page), `(curl .+)`)
	require.Len(t, lines, 2)
	namespace := pulsartest.Open(t)
	t.Setenv("ONCEBOX_PULSAR_URL", namespace.URL)
	t.Setenv("ONCEBOX_PULSAR_ADMIN_URL", namespace.AdminURL)
	t.Setenv("ONCEBOX_PULSAR_NAMESPACE", strings.TrimPrefix(namespace.Name, "public/"))
	ctx, end := context.WithCancel(t.Context())
	group, ctx := errgroup.WithContext(ctx)
	defer func() {
		end()
		require.NoError(t, group.Wait())
	}()
	started := make(chan net.Addr, 1)
	for _, s := range []serve.Service{invoices.Service(), orders.Service()} {
		s.Brokers = []brokers.Kind{pulsar.Kind()}
		if s.Source == orders.Source {
			s.Started = func(at net.Addr) { started <- at }
		}
		group.Go(func() error { return runApart(ctx, s) })
	}
	url := "http://" + await.Receive(t, started, "the service to start").String()
	curl := func(line string) string {
		answer, err := send(pagetest.Request(t, line, url))
		require.NoError(t, err)
		return answer
	}
	require.Equal(t, "201 Created", curl(lines[0]))
	await.True(t, func() bool { return strings.Contains(curl(lines[1]), `"invoice":"invoice-of-o-1"`) }, "the order has its invoice")
}
