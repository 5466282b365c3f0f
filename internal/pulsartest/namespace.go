package pulsartest

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Namespace is a namespace of its own on the shared server.
type Namespace struct {
	// URL is the address for clients.
	URL string

	// AdminURL is the address of the admin API, without a slash at its end.
	AdminURL string

	// Name is the namespace with its tenant, public/test-...
	Name string
}

// Open makes a namespace with the server's default policies. It is removed with its topics when the test ends.
func Open(t testing.TB) *Namespace {
	t.Helper()
	server := Server(t)
	n := &Namespace{
		URL:      server.URL,
		AdminURL: server.AdminURL,
		Name:     "public/test-" + strings.ToLower(rand.Text()[:16]),
	}
	require.NoError(t, n.Admin(t.Context(), http.MethodPut, "/namespaces/"+n.Name, ""))
	t.Cleanup(func() { n.remove(t) })
	return n
}

// Topic returns the full name of a topic of the namespace.
func (n *Namespace) Topic(name string) string {
	return "persistent://" + n.Name + "/" + name
}

// Retain keeps what is acknowledged or has no subscription: all of it, for as long as the namespace is there.
func (n *Namespace) Retain(t testing.TB) {
	t.Helper()
	require.NoError(t, n.Admin(t.Context(), http.MethodPost, "/namespaces/"+n.Name+"/retention",
		`{"retentionTimeInMinutes":-1,"retentionSizeInMB":-1}`))
}

// Admin sends a request with a JSON body, if there is one, to a path below /admin/v2. An answer other than 2xx is an error
// with the broker's reason.
func (n *Namespace) Admin(ctx context.Context, method, path, body string) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, n.AdminURL+"/admin/v2"+path, strings.NewReader(body))
	if err != nil {
		return fmt.Errorf("pulsartest: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Close = true // leaves no connection and no goroutine behind
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("pulsartest: %w", err)
	}
	defer resp.Body.Close()
	reason, err := io.ReadAll(io.LimitReader(resp.Body, 1<<16))
	if err != nil {
		return fmt.Errorf("pulsartest: %s %s: %w", method, path, err)
	}
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("pulsartest: %s %s: %s: %s", method, path, resp.Status, reason)
	}
	return nil
}

// remove does its best: a client that the test left behind can make a topic again at any moment, and a namespace that stays
// on a server of somebody else's who forbids its removal is no reason to fail the test.
func (n *Namespace) remove(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	var err error
	for range 3 {
		if err = n.Admin(ctx, http.MethodDelete, "/namespaces/"+n.Name+"?force=true", ""); err == nil {
			return
		}
	}
	t.Logf("the namespace %s stays: %v", n.Name, err)
}
