package httpmw_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// The middleware's metrics go where the metrics of the units go, unless its configuration says otherwise.
func TestTelemetryIsThatOfTheManager(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.cfg.Telemetry.MeterProvider = nil
	s.start(s.pay)
	require.Equal(t, http.StatusCreated, s.post("k", "{}").status)
	require.Equal(t, map[string]int64{"executed": 1}, s.counter("oncebox.idempotency.requests"))
}
