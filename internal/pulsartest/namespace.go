package pulsartest

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/devenv"
)

// Namespace is a namespace of the shared broker that only one test uses.
type Namespace struct {
	// URL is the address for clients.
	URL string

	// AdminURL is the address of the admin API, without a slash at its end.
	AdminURL string

	// Name is the namespace with its tenant, public/test-...
	Name string

	server *devenv.PulsarServer
}

// Open makes a namespace with the broker's default policies. It is removed with its topics when the test ends.
func Open(t testing.TB) *Namespace {
	t.Helper()
	server := Server(t)
	n := &Namespace{
		URL:      server.URL,
		AdminURL: server.AdminURL,
		Name:     "public/test-" + strings.ToLower(rand.Text()[:16]),
		server:   server,
	}
	require.NoError(t, n.Admin(t.Context(), http.MethodPut, "/namespaces/"+n.Name, ""))
	t.Cleanup(n.remove)
	return n
}

// Topic returns the full name of a topic of the namespace.
func (n *Namespace) Topic(name string) string {
	return "persistent://" + n.Name + "/" + name
}

// Retain makes the namespace keep all messages, also acknowledged ones and those without a subscription.
func (n *Namespace) Retain(t testing.TB) {
	t.Helper()
	require.NoError(t, n.Admin(t.Context(), http.MethodPost, "/namespaces/"+n.Name+"/retention",
		`{"retentionTimeInMinutes":-1,"retentionSizeInMB":-1}`))
}

// Admin sends a request to a path below /admin/v2, with a JSON body if body is not empty. The error for a status other
// than 2xx contains the broker's reason.
func (n *Namespace) Admin(ctx context.Context, method, path, body string) error {
	_, err := n.server.Admin(ctx, method, path, body)
	return err
}

// remove removes the namespace if the broker permits it. Otherwise the namespace stays and the reason is logged once,
// because the test itself has passed.
func (n *Namespace) remove() {
	if err := n.server.RemoveNamespace(context.Background(), n.Name); err != nil {
		stays.Do(func() { fmt.Fprintln(os.Stderr, err) })
	}
}
