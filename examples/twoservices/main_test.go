package main

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/shlex"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/oncebox/oncebox/examples/twoservices/invoices"
	"github.com/oncebox/oncebox/examples/twoservices/orders"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/internal/pulsartest"
	"github.com/oncebox/oncebox/messaging/pulsar"
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
	lines := regexp.MustCompile(`(?m)^curl (.*)$`).FindAllStringSubmatch(string(page), -1)
	require.Len(t, lines, 2)
	namespace := pulsartest.Open(t)
	ctx, end := context.WithCancel(t.Context())
	group, ctx := errgroup.WithContext(ctx)
	var url string
	for _, name := range []string{invoices.Source, orders.Source} {
		db, err := openOwn(ctx)
		require.NoError(t, err)
		t.Cleanup(func() { _ = db.close() })
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		url = "http://" + listener.Addr().String()
		group.Go(func() error {
			return one(ctx, name, db.cfg, &pulsar.Config{
				URL: namespace.URL, AdminURL: namespace.AdminURL, Namespace: strings.TrimPrefix(namespace.Name, "public/"),
			}, listener)
		})
	}
	require.Equal(t, "201 Created", curl(t, url, lines[0][1]))
	await.True(t, func() bool { return strings.Contains(curl(t, url, lines[1][1]), `"invoice":"invoice-of-o-1"`) }, "the order has its invoice")
	end()
	require.NoError(t, group.Wait())
}

// curl does what curl does with the arguments of a line of the page, at another address.
func curl(t *testing.T, url, arguments string) string {
	t.Helper()
	words, err := shlex.Split(arguments)
	require.NoError(t, err)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "", nil)
	require.NoError(t, err)
	for i := 0; i < len(words); i++ {
		switch words[i] {
		case "-i":
		case "-X":
			i++
			req.Method = words[i]
		case "-H":
			i++
			name, value, _ := strings.Cut(words[i], ": ")
			req.Header.Set(name, value)
		default:
			path, found := strings.CutPrefix(words[i], "http://127.0.0.1:8080")
			require.True(t, found, words[i])
			req.URL, err = req.URL.Parse(url + path)
			require.NoError(t, err)
		}
	}
	answer, err := send(req)
	require.NoError(t, err)
	return answer
}

func TestUnknownService(t *testing.T) {
	require.ErrorContains(t, run(t.Context(), []string{"-only", "mails"}), "there are orders and invoices")
}
