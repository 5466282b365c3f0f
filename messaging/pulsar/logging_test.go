package pulsar

import (
	"bytes"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	pulsarlog "github.com/apache/pulsar-client-go/pulsar/log"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
)

func TestLogIsDiscreet(t *testing.T) {
	var out bytes.Buffer
	waiting := false
	isWaiting := func() bool { return waiting }
	inner := slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug})
	log := pulsarlog.NewLoggerWithSlog(slog.New(discreet{inner, isWaiting, nil, new(atomic.Int64)}))
	secret := map[string]string{"name": "secret"}

	log.Debug("Received send request: ", "secret")
	require.Empty(t, out.String())

	log.WithField("properties", secret).WithField("size", 7).Error("too large")
	log.SubLogger(pulsarlog.Fields{"properties": secret, "topic": "order"}).Info("hello")
	slog.New(discreet{inner, isWaiting, nil, new(atomic.Int64)}).WithGroup("g").Warn("grouped", "properties", secret, "a", 1)
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
	normal := pulsarlog.NewLoggerWithSlog(slog.New(discreet{slog.NewTextHandler(&out, nil), isWaiting, nil, new(atomic.Int64)}))
	normal.Info("Connecting to broker")
	require.Empty(t, out.String())

	errorsOnly := slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelError})
	quiet := pulsarlog.NewLoggerWithSlog(slog.New(discreet{errorsOnly, isWaiting, nil, new(atomic.Int64)}))
	quiet.Warn("not wanted")
	require.Empty(t, out.String(), "the program's own level holds")
}

// Each of many producers and consumers tries to connect by itself.
func TestLogSaysOnceAMinuteThatTheBrokerIsAway(t *testing.T) {
	var out bytes.Buffer
	log := slog.Handler(discreet{slog.NewTextHandler(&out, nil), func() bool { return false }, nil, new(atomic.Int64)})
	start := time.Now()
	say := func(h slog.Handler, after time.Duration, msg string) {
		require.NoError(t, h.Handle(t.Context(), slog.NewRecord(start.Add(after), slog.LevelWarn, msg, 0)))
	}
	say(log, 0, unreachable)
	say(log.WithAttrs([]slog.Attr{slog.Int("producer", 2)}), time.Second, unreachable)
	say(log, 59*time.Second, unreachable)
	require.Equal(t, 1, strings.Count(out.String(), unreachable))
	say(log, time.Second, "something else")
	say(log, time.Second, "something else")
	require.Equal(t, 2, strings.Count(out.String(), "something else"))
	say(log, time.Minute, unreachable)
	require.Equal(t, 2, strings.Count(out.String(), unreachable))
}

func TestNowhereKeepsNothing(t *testing.T) {
	c := prometheus.NewCounter(prometheus.CounterOpts{Name: "x_total", Help: "x"})
	require.NoError(t, nowhere{}.Register(c))
	require.NoError(t, nowhere{}.Register(c))
	nowhere{}.MustRegister(c, c)
	require.True(t, nowhere{}.Unregister(c))
}
