package pulsar

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/pulsartest"
)

func TestRetention(t *testing.T) {
	t.Parallel()
	n := pulsartest.Open(t)
	b := connect(t, declared(n, "order", "s"))
	require.NoError(t, b.Declare(t.Context(), []string{"order"}, nil))
	requireKept := func(want time.Duration) {
		t.Helper()
		for _, topic := range []string{"order", "not made yet"} {
			await.True(t, func() bool {
				kept, err := b.Retention(t.Context(), topic)
				return err == nil && kept == want
			}, "%s is kept for %s", topic, want)
		}
	}
	set := func(policy, value string) {
		t.Helper()
		require.NoError(t, n.Admin(t.Context(), http.MethodPost, "/namespaces/"+n.Name+"/"+policy, value))
	}
	requireKept(0)
	set("messageTTL", "7200")
	requireKept(2 * time.Hour)
	set("retention", `{"retentionTimeInMinutes":180,"retentionSizeInMB":10}`)
	requireKept(3 * time.Hour)
	set("retention", `{"retentionTimeInMinutes":60,"retentionSizeInMB":10}`)
	requireKept(2 * time.Hour)
	set("retention", `{"retentionTimeInMinutes":-1,"retentionSizeInMB":-1}`)
	requireKept(-1)

	_, err := b.Retention(t.Context(), "")
	require.Error(t, err)
	cfg := config(n)
	cfg.AdminURL, cfg.AdminTimeout = "http://127.0.0.1:1", time.Second
	_, err = connect(t, cfg).Retention(t.Context(), "order")
	require.ErrorIs(t, err, errors.ErrUnsupported)
}
