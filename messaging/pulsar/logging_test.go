package pulsar

import (
	"bytes"
	"log/slog"
	"testing"

	pulsarlog "github.com/apache/pulsar-client-go/pulsar/log"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
)

func TestLogIsDiscreet(t *testing.T) {
	var out bytes.Buffer
	waiting := false
	isWaiting := func() bool { return waiting }
	inner := slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug})
	log := pulsarlog.NewLoggerWithSlog(slog.New(discreet{inner, isWaiting, nil}))
	secret := map[string]string{"name": "secret"}

	log.Debug("Received send request: ", "secret")
	require.Empty(t, out.String())

	log.WithField("properties", secret).WithField("size", 7).Error("too large")
	log.SubLogger(pulsarlog.Fields{"properties": secret, "topic": "order"}).Info("hello")
	slog.New(discreet{inner, isWaiting, nil}).WithGroup("g").Warn("grouped", "properties", secret, "a", 1)
	require.NotContains(t, out.String(), "secret")
	for _, part := range []string{"size=7", "too large", "topic=order", "hello", "g.a=1"} {
		require.Contains(t, out.String(), part)
	}

	require.Contains(t, out.String(), "level=DEBUG msg=hello", "the client's info is our debug")
	require.Contains(t, out.String(), `level=ERROR msg="too large"`)

	out.Reset()
	waiting = true
	log.Error("connection refused")
	require.Contains(t, out.String(), `level=DEBUG msg="connection refused"`, "the broker is waited for")
	waiting = false

	out.Reset()
	normal := pulsarlog.NewLoggerWithSlog(slog.New(discreet{slog.NewTextHandler(&out, nil), isWaiting, nil}))
	normal.Info("Connecting to broker")
	require.Empty(t, out.String())

	quiet := pulsarlog.NewLoggerWithSlog(slog.New(discreet{slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelError}), isWaiting, nil}))
	quiet.Warn("not wanted")
	require.Empty(t, out.String(), "the program's own level holds")
}

func TestNowhereKeepsNothing(t *testing.T) {
	c := prometheus.NewCounter(prometheus.CounterOpts{Name: "x_total", Help: "x"})
	require.NoError(t, nowhere{}.Register(c))
	require.NoError(t, nowhere{}.Register(c))
	nowhere{}.MustRegister(c, c)
	require.True(t, nowhere{}.Unregister(c))
}
